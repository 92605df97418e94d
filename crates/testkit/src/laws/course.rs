//! Invariants of timelines: spans are contiguous, and they agree with the events that subscribers saw.

use homard_agent::{RunEvent, event::End, tape::State};
use homard_store::{Ended, RunRow, RunState, Step, Steps, What};

use super::phase;
use crate::{
    play::{EPOCH_MS, Played},
    watch::{Heard, Told},
};

/// Returns all violations in the timelines of finished runs.
pub(super) fn broken(played: &Played) -> Vec<String> {
    let mut wrong = Vec::new();
    for row in played.rows.values() {
        let RunState::Ended(ended) = &row.state else { continue };
        let steps = seen(row, &ended.steps);
        let told = [tiled(row, &steps, ended.ended_at), asides(row, &steps, ended.ended_at), down(played, row, &steps)];
        wrong.extend(told.into_iter().flatten().map(|wrong| format!("run {}: {wrong}: {:?}", row.run, steps.all())));
    }
    for (place, heard) in played.log.runs.iter().enumerate() {
        let row = played.rows.get(heard.tape.run());
        let (Some(row), State::Ended(end)) = (row, heard.tape.state()) else { continue };
        wrong.extend(ends_last(played, place, &end).map(|wrong| format!("run {}: {wrong}", row.run)));
        wrong.extend(agrees(played, row, (heard, &end)).into_iter().map(|wrong| format!("run {}: {wrong}", row.run)));
    }
    wrong
}

/// Returns the timeline as shown for this run: for an absorbed run, the host's since its acceptance.
fn seen(row: &RunRow, steps: &Steps) -> Steps {
    if row.host.is_some() { steps.since(row.accepted_at) } else { steps.clone() }
}

fn main_steps(steps: &Steps) -> impl Iterator<Item = &Step> {
    steps.all().iter().filter(|step| !step.what.is_aside())
}

/// Main spans are contiguous from acceptance to end: no gap, no overlap, to the millisecond.
fn tiled(row: &RunRow, steps: &Steps, ended_at: u64) -> Option<String> {
    let mut mark = row.accepted_at;
    for step in main_steps(steps) {
        if step.from != mark || step.to < step.from {
            return Some(format!("a step is {}..{} where {mark} is next", step.from, step.to));
        }
        mark = step.to;
    }
    let all = ended_at.saturating_sub(row.accepted_at);
    let is_whole = mark == ended_at && steps.accounted() == all;
    (!is_whole).then(|| format!("{} of {all} ms have a name, up to {mark} of {ended_at}", steps.accounted()))
}

/// Side spans are between acceptance and end, and are labelled.
fn asides(row: &RunRow, steps: &Steps, ended_at: u64) -> Option<String> {
    let is_fine = |step: &Step| {
        let has_name = match &step.what {
            What::Tool { name, call, .. } => !name.is_empty() && !call.is_empty(),
            What::Hook { point, hook, .. } => !point.is_empty() && !hook.is_empty(),
            What::Switched { from_model, reason, .. } => !from_model.is_empty() && !reason.is_empty(),
            What::Placed { disposition, .. } => !disposition.is_empty(),
            What::Busy { activity, .. } => !activity.is_empty(),
            What::Summarized { runs } => !runs.is_empty(),
            What::Joined | What::Block => true,
            What::Withheld { call, repetition, .. } => !call.is_empty() && !repetition.is_empty(),
            What::Model(asked) => !asked.model.is_empty() && !asked.provider.is_empty(),
            What::Queued { .. }
            | What::Prepared
            | What::Retry { .. }
            | What::Stored
            | What::Tools
            | What::Compaction { .. }
            | What::Down
            | What::Held
            | What::Finished
            | What::FinalHooks
            | What::More { .. } => true,
        };
        has_name && row.accepted_at <= step.from && step.from <= step.to && step.to <= ended_at
    };
    let wrong = steps.all().iter().find(|step| !is_fine(step))?;
    Some(format!("a step without a name, or outside of the run: {wrong:?}"))
}

/// While the process was down, nothing is recorded as done: a queued run waited, an active one was suspended.
fn down(played: &Played, row: &RunRow, steps: &Steps) -> Option<String> {
    let (began, ended) = (row.started_at?, main_steps(steps).last()?.to);
    let gone = played.log.restarts.iter().map(|(at, _)| {
        let at = EPOCH_MS + at.as_millis() as u64;
        (at.max(began), (at + played.down.as_millis() as u64).min(ended))
    });
    let is_at_work = |from: u64, to: u64| {
        main_steps(steps).find(|step| step.from.max(from) < step.to.min(to) && !is_idle(&step.what)).cloned()
    };
    gone.filter(|(from, to)| from < to).find_map(|(from, to)| {
        let step = is_at_work(from, to)?;
        Some(format!("nobody was there from {from} to {to}, and it tells {step:?}"))
    })
}

fn is_idle(what: &What) -> bool {
    matches!(what, What::Down | What::Held | What::Queued { .. } | What::More { .. })
}

/// Between the end of a run and its publication there is nothing but the commit: no hook, no other commit, nothing
/// whose time would be in no span.
fn ends_last(played: &Played, place: usize, end: &End) -> Option<String> {
    let is_end = |told: &&Told| told.run == place && matches!(phase(told), Some("end" | "error"));
    let told = EPOCH_MS + played.log.told.iter().rfind(is_end)?.at.as_millis() as u64;
    let commit = played.commit_time.as_millis() as u64;
    let is_fine = end.ended_at <= told && told <= end.ended_at + commit;
    (!is_fine).then(|| format!("ended at {}, and its end was told at {told}; commits took {commit} ms", end.ended_at))
}

/// The stored timeline agrees with the published events.
fn agrees(played: &Played, row: &RunRow, (heard, end): (&Heard, &End)) -> Vec<String> {
    let RunState::Ended(ended) = &row.state else { return Vec::new() };
    let mut wrong = Vec::new();
    if (&ended.outcome, ended.ended_at) != (&end.outcome, end.ended_at) {
        wrong.push(format!("ended with {:?} at {}, and it was told {end:?}", ended.outcome, ended.ended_at));
    }
    // The work of an absorbed run's host is recorded with the host; a run that never started has no spans.
    if row.host.is_some() || played.disk_failed || ended.steps.all().len() == Steps::MAX || end.started_at.is_none() {
        return wrong;
    }
    wrong.extend(adds_up(row, ended).filter(|_| !is_at_once(heard)));
    for (what, seen, told) in counts(heard, &ended.steps) {
        if seen != told {
            wrong.push(format!("of {what}, {seen:?} was seen, its course tells {told:?}: {:?}", ended.steps.all()));
        }
    }
    wrong
}

/// True if an answer has the same millisecond as the restart that resumed the run: then their order is ambiguous. This
/// requires a process that starts in zero time.
fn is_at_once(heard: &Heard) -> bool {
    let began = heard.events.iter().find(|event| matches!(event.kind, RunEvent::Started { .. }));
    let is_at = |at: u64| {
        let mut events = heard.events.iter();
        events.any(|event| matches!(&event.kind, RunEvent::Assistant { said, .. } if said.timestamp == at))
    };
    began.is_some_and(|began| is_at(began.at))
}

/// The token usage of the model requests adds up to that of the run. Requests for compaction or memory flush are not
/// recorded as model requests.
fn adds_up(row: &RunRow, ended: &Ended) -> Option<String> {
    let is_more = |step: &Step| matches!(step.what, What::Compaction { .. });
    if ended.steps.all().iter().any(is_more) || row.method == "memory-flush" {
        return None;
    }
    let (mut took, usage) = (0, &ended.usage);
    for step in ended.steps.all() {
        if let What::Model(asked) = &step.what {
            took += asked.input + asked.output + asked.cache_read + asked.cache_write;
        }
    }
    let whole = usage.input + usage.output + usage.cache_read + usage.cache_write;
    (took != whole).then(|| format!("its questions took {took} tokens, and it took {whole}: {:?}", ended.steps.all()))
}

/// Returns what was observed and what is recorded, for each kind.
fn counts(heard: &Heard, steps: &Steps) -> Vec<(&'static str, Vec<String>, Vec<String>)> {
    let (seen, told) = (saw(heard), tells(steps));
    KINDS.iter().zip(seen).zip(told).map(|((kind, seen), told)| (*kind, seen, told)).collect()
}

/// Kinds of things that are compared, each in order.
const KINDS: [&str; 10] = [
    "models",
    "retries",
    "tools",
    "switches",
    "compactions",
    "hooks",
    "messages that joined",
    "blocks",
    "withheld texts",
    "places",
];

/// Extracts the observations from the events.
fn saw(heard: &Heard) -> [Vec<String>; 10] {
    let mut seen: [Vec<String>; 10] = Default::default();
    let [models, retries, tools, switches, compactions, hooks, joined, blocks, withholdings, moved] = &mut seen;
    let began = heard.events.iter().find(|event| matches!(event.kind, RunEvent::Started { .. })).map(|event| event.at);
    // The open model request, and why it failed.
    let mut open: Option<(String, Option<&str>)> = None;
    for event in &heard.events {
        match &event.kind {
            RunEvent::Asking(asked) => {
                models.extend(
                    open.map(|(model, error)| question(&model, error.or(Some("nobody said what became of it")))),
                );
                open = Some((format!("{}/{}", asked.provider, asked.model), None));
            }
            // Of a request before a restart, only the answer is known.
            RunEvent::Assistant { said, .. } => {
                let before = began.is_none_or(|began| said.timestamp < began);
                let model = open.take().map(|(model, _)| model);
                let model = model.or_else(|| before.then(|| format!("{}/{}", said.provider, said.model)));
                models.extend(model.map(|model| question(&model, said.error_message.as_deref())));
            }
            RunEvent::Discarded { why, .. } => open = open.map(|(model, _)| (model, Some(why.as_str()))),
            RunEvent::Retrying { why, .. } => retries.push(why.clone()),
            RunEvent::ToolEnded { call, result, .. } => {
                tools.push(format!("{} {call} {}", result.tool_name, result.is_error));
            }
            RunEvent::Switched { from, reason, why } => switches.push(format!("{from} {reason} {why}")),
            // What follows does not answer the request before it.
            RunEvent::Compacting => models.extend(open.take().map(|(model, error)| question(&model, error))),
            RunEvent::Compacted { before, after, way, input, .. } => {
                compactions.push(format!("{before} {after} {way} {input:?}"));
            }
            RunEvent::NotCompacted { why } => compactions.push(why.clone()),
            RunEvent::Hooked(note) => hooks.push(format!("{} {} {}", note.point.name(), note.hook, note.decision)),
            RunEvent::Input(_) if !models.is_empty() || open.is_some() => joined.push(String::new()),
            RunEvent::Block(_) => blocks.push(String::new()),
            RunEvent::Withheld(withheld) => {
                withholdings.push(format!("{} {}", withheld.call, withheld.repetition.name()))
            }
            RunEvent::Placed(placed) => moved.push(placed.told().0.to_owned()),
            RunEvent::Busy(busy) => moved.push(busy.activity.to_string()),
            RunEvent::Summarized(runs) => moved.push(format!("{runs:?}")),
            RunEvent::Started { .. }
            | RunEvent::Waited(_)
            | RunEvent::Input(_)
            | RunEvent::Absorbed { .. }
            | RunEvent::Heard
            | RunEvent::Text { .. }
            | RunEvent::Thinking { .. }
            | RunEvent::Answering { .. }
            | RunEvent::Rewound { .. }
            | RunEvent::ToolStarted { .. }
            | RunEvent::ToolProgress { .. }
            | RunEvent::Ended(_) => {}
        }
    }
    models.extend(open.map(|(model, error)| question(&model, error)));
    seen
}

/// Formats a model request in a line.
fn question(model: &str, error: Option<&str>) -> String {
    format!("{model} {:?}", error.map(|error| error.chars().take(300).collect::<String>()))
}

/// Extracts the records from the spans.
fn tells(steps: &Steps) -> [Vec<String>; 10] {
    let mut told: [Vec<String>; 10] = Default::default();
    let [models, retries, tools, switches, compactions, hooks, joined, blocks, withholdings, moved] = &mut told;
    for step in steps.all() {
        match &step.what {
            What::Model(asked) => {
                models.push(question(&format!("{}/{}", asked.provider, asked.model), asked.error.as_deref()));
            }
            What::Retry { why } => retries.push(why.clone()),
            What::Tool { name, call, is_error, .. } => tools.push(format!("{name} {call} {is_error}")),
            What::Switched { from_model, reason, why } => switches.push(format!("{from_model} {reason} {why}")),
            What::Compaction { tokens: Some((before, after)), how, input } => {
                compactions.push(format!("{before} {after} {how} {input:?}"));
            }
            What::Compaction { tokens: None, how, input: _ } => compactions.push(how.clone()),
            What::Hook { point, hook, decision } => hooks.push(format!("{point} {hook} {decision}")),
            What::Joined => joined.push(String::new()),
            What::Block => blocks.push(String::new()),
            What::Withheld { call, repetition, .. } => withholdings.push(format!("{call} {repetition}")),
            What::Placed { disposition, .. } => moved.push(disposition.clone()),
            What::Busy { activity, .. } => moved.push(activity.clone()),
            What::Summarized { runs } => moved.push(format!("{runs:?}")),
            What::Queued { .. }
            | What::Prepared
            | What::Stored
            | What::Tools
            | What::Down
            | What::Held
            | What::Finished
            | What::FinalHooks
            | What::More { .. } => {}
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Trace, play::play};

    const TRACE: &str = "set retries=1 down=1s\nat 0ms say \"look\" run=k1\nmodel pause 10ms ; fail overloaded \"busy\"\n\
                         model pause 10ms ; call c1 read {\"path\":\"a\"} ; usage in=5 out=1\ntool c1 takes 50ms says \"A\"\n\
                         model hang\nat 9s restart\nmodel pause 20ms ; text \"There.\" ; usage in=6 out=1\n";

    /// Returns the beginnings of the complaints about a trace whose spans were manipulated.
    fn complaints(spoil: impl FnOnce(&mut Vec<Step>)) -> Vec<String> {
        let mut played = play(&Trace::read("x.trace", TRACE).unwrap()).unwrap();
        let row = played.rows.values_mut().next().unwrap();
        let RunState::Ended(ended) = &mut row.state else { panic!("it has not ended") };
        let mut steps = ended.steps.all().to_vec();
        spoil(&mut steps);
        ended.steps = Steps::new(steps);
        broken(&played).iter().map(|wrong| wrong.chars().take(40).collect()).collect()
    }

    #[test]
    fn a_hook_that_looks_at_the_answer_last_has_its_time() {
        let trace = "hook polite message_sending takes 3s answers {\"content\":\"Hello, dear.\"}\n\
                     at 0ms say \"hello\" run=k1\nmodel pause 1s ; text \"Hello.\"\n";
        let played = play(&Trace::read("x.trace", trace).unwrap()).unwrap();
        let RunState::Ended(ended) = &played.rows.values().next().unwrap().state else { panic!("it has not ended") };
        let at = |ms: u64| EPOCH_MS + ms;
        let (last, hook) = (ended.steps.all().last().unwrap(), &ended.steps.all()[ended.steps.all().len() - 2]);
        assert_eq!(*last, Step { from: at(1000), to: at(4000), what: What::FinalHooks });
        let (point, name) = ("message_sending".to_owned(), "polite".to_owned());
        let decision = "changed content".to_owned();
        assert_eq!(*hook, Step { from: at(1000), to: at(4000), what: What::Hook { point, hook: name, decision } });
        assert_eq!(ended.ended_at, at(4000));
        assert_eq!(broken(&played), Vec::<String>::new());
    }

    fn first(steps: &mut [Step], is_meant: fn(&What) -> bool) -> &mut Step {
        steps.iter_mut().find(|step| is_meant(&step.what)).unwrap()
    }

    #[test]
    fn what_is_wrong_with_a_course_is_found() {
        let down = |what: &What| *what == What::Down;
        let tool = |what: &What| matches!(what, What::Tool { .. });
        let model = |what: &What| matches!(what, What::Model(_));
        assert_eq!(complaints(|_| {}), Vec::<String>::new());
        let found = complaints(|steps| first(steps, down).to -= 1);
        assert!(found[0].starts_with("run k1: a step is "), "{found:?}");
        let found = complaints(|steps| steps.retain(|step| !model(&step.what)));
        assert!(found[0].starts_with("run k1: a step is "), "{found:?}");
        let found = complaints(Vec::clear);
        assert!(found[0].starts_with("run k1: 0 of "), "{found:?}");
        let found = complaints(|steps| first(steps, down).what = What::Tools);
        assert!(found[0].starts_with("run k1: nobody was there from"), "{found:?}");
        let found = complaints(|steps| steps.retain(|step| !tool(&step.what)));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("run k1: of tools, "), "{found:?}");
        let found = complaints(|steps| first(steps, model).what = What::Prepared);
        assert!(found.iter().any(|wrong| wrong.starts_with("run k1: of models, ")), "{found:?}");
        let found = complaints(|steps| {
            if let What::Tool { name, .. } = &mut first(steps, tool).what {
                name.clear();
            }
        });
        assert!(found[0].starts_with("run k1: a step without a name"), "{found:?}");
    }
}
