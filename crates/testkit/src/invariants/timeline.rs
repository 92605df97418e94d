//! Invariants of timelines: spans are contiguous, and they agree with the events that subscribers saw.

use homard_agent::{RunEvent, event::RunEnd, tape::TapeState};
use homard_store::{EndRecord, RunRow, RunState, RunTimeline, SpanKind, TimelineSpan};

use super::phase;
use crate::{
    recorder::{RecordedPayload, RecordedRun},
    runner::{EPOCH_MS, TraceResult},
};

/// Returns all violations in the timelines of finished runs.
pub(super) fn violations(played: &TraceResult) -> Vec<String> {
    let mut wrong = Vec::new();
    for row in played.rows.values() {
        let RunState::Ended(ended) = &row.state else { continue };
        let steps = shown_timeline(row, &ended.steps);
        let told = [
            main_spans_are_contiguous(row, &steps, ended.ended_at),
            side_spans_are_valid(row, &steps, ended.ended_at),
            idle_while_down(played, row, &steps),
        ];
        wrong.extend(told.into_iter().flatten().map(|wrong| format!("run {}: {wrong}: {:?}", row.run, steps.all())));
    }
    for (place, heard) in played.log.runs.iter().enumerate() {
        let row = played.rows.get(heard.tape.run());
        let (Some(row), TapeState::Ended(end)) = (row, heard.tape.state()) else { continue };
        wrong.extend(nothing_after_end(played, place, &end).map(|wrong| format!("run {}: {wrong}", row.run)));
        wrong.extend(
            agrees_with_events(played, row, (heard, &end)).into_iter().map(|wrong| format!("run {}: {wrong}", row.run)),
        );
    }
    wrong
}

/// Returns the timeline as shown for this run: for an absorbed run, the host's since its acceptance.
fn shown_timeline(row: &RunRow, steps: &RunTimeline) -> RunTimeline {
    if row.host.is_some() { steps.since(row.accepted_at) } else { steps.clone() }
}

fn main_steps(steps: &RunTimeline) -> impl Iterator<Item = &TimelineSpan> {
    steps.all().iter().filter(|step| !step.what.is_aside())
}

/// Main spans are contiguous from acceptance to end: no gap, no overlap, to the millisecond.
fn main_spans_are_contiguous(row: &RunRow, steps: &RunTimeline, ended_at: u64) -> Option<String> {
    let mut mark = row.accepted_at;
    for step in main_steps(steps) {
        if step.from != mark || step.to < step.from {
            return Some(format!("a step is {}..{} where {mark} is next", step.from, step.to));
        }
        mark = step.to;
    }
    let all = ended_at.saturating_sub(row.accepted_at);
    let is_whole = mark == ended_at && steps.covered_ms() == all;
    (!is_whole).then(|| format!("{} of {all} ms have a name, up to {mark} of {ended_at}", steps.covered_ms()))
}

/// Side spans are between acceptance and end, and are labelled.
fn side_spans_are_valid(row: &RunRow, steps: &RunTimeline, ended_at: u64) -> Option<String> {
    let is_fine = |step: &TimelineSpan| {
        let has_name = match &step.what {
            SpanKind::Tool { name, call, .. } => !name.is_empty() && !call.is_empty(),
            SpanKind::Hook { point, hook, .. } => !point.is_empty() && !hook.is_empty(),
            SpanKind::Switched { from_model, reason, .. } => !from_model.is_empty() && !reason.is_empty(),
            SpanKind::Placed { disposition, .. } => !disposition.is_empty(),
            SpanKind::Busy { activity, .. } => !activity.is_empty(),
            SpanKind::Summarized { runs } => !runs.is_empty(),
            SpanKind::Joined | SpanKind::Block => true,
            SpanKind::Withheld { call, repetition, .. } => !call.is_empty() && !repetition.is_empty(),
            SpanKind::Model(asked) => !asked.model.is_empty() && !asked.provider.is_empty(),
            SpanKind::Queued { .. }
            | SpanKind::Prepared
            | SpanKind::Retry { .. }
            | SpanKind::Stored
            | SpanKind::Tools
            | SpanKind::Compaction { .. }
            | SpanKind::Down
            | SpanKind::Held
            | SpanKind::Finished
            | SpanKind::FinalHooks
            | SpanKind::More { .. } => true,
        };
        has_name && row.accepted_at <= step.from && step.from <= step.to && step.to <= ended_at
    };
    let wrong = steps.all().iter().find(|step| !is_fine(step))?;
    Some(format!("a step without a name, or outside of the run: {wrong:?}"))
}

/// While the process was down, nothing is recorded as done: a queued run waited, an active one was suspended.
fn idle_while_down(played: &TraceResult, row: &RunRow, steps: &RunTimeline) -> Option<String> {
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

fn is_idle(what: &SpanKind) -> bool {
    matches!(what, SpanKind::Down | SpanKind::Held | SpanKind::Queued { .. } | SpanKind::More { .. })
}

/// The end of a run is published after at most the time of one commit. Other work in between, such as a hook, would not
/// be in any span.
fn nothing_after_end(played: &TraceResult, place: usize, end: &RunEnd) -> Option<String> {
    let is_end = |told: &&RecordedPayload| told.run == place && matches!(phase(told), Some("end" | "error"));
    let told = EPOCH_MS + played.log.payloads.iter().rfind(is_end)?.at.as_millis() as u64;
    let commit = played.commit_time.as_millis() as u64;
    let is_fine = end.ended_at <= told && told <= end.ended_at + commit;
    (!is_fine).then(|| format!("ended at {}, and its end was told at {told}; commits took {commit} ms", end.ended_at))
}

/// The stored timeline agrees with the published events.
fn agrees_with_events(played: &TraceResult, row: &RunRow, (heard, end): (&RecordedRun, &RunEnd)) -> Vec<String> {
    let RunState::Ended(ended) = &row.state else { return Vec::new() };
    let mut wrong = Vec::new();
    if (&ended.outcome, ended.ended_at) != (&end.outcome, end.ended_at) {
        wrong.push(format!("ended with {:?} at {}, and it was told {end:?}", ended.outcome, ended.ended_at));
    }
    // The work of an absorbed run's host is recorded with the host; a run that never started has no spans.
    if row.host.is_some()
        || played.disk_failed
        || ended.steps.all().len() == RunTimeline::MAX
        || end.started_at.is_none()
    {
        return wrong;
    }
    wrong.extend(usage_adds_up(row, ended).filter(|_| !is_ambiguous(heard)));
    for (what, seen, told) in compare_kinds(heard, &ended.steps) {
        if seen != told {
            wrong.push(format!("of {what}, {seen:?} was seen, its course tells {told:?}: {:?}", ended.steps.all()));
        }
    }
    wrong
}

/// True if an answer has the same millisecond as the restart that resumed the run: then their order is ambiguous. This
/// requires a process that starts in zero time.
fn is_ambiguous(heard: &RecordedRun) -> bool {
    let began = heard.events.iter().find(|event| matches!(event.kind, RunEvent::Started { .. }));
    let is_at = |at: u64| {
        let mut events = heard.events.iter();
        events.any(|event| matches!(&event.kind, RunEvent::Assistant { said, .. } if said.timestamp == at))
    };
    began.is_some_and(|began| is_at(began.at))
}

/// The token usage of the model requests adds up to that of the run. Requests for compaction or memory flush are not
/// recorded as model requests.
fn usage_adds_up(row: &RunRow, ended: &EndRecord) -> Option<String> {
    let is_more = |step: &TimelineSpan| matches!(step.what, SpanKind::Compaction { .. });
    if ended.steps.all().iter().any(is_more) || row.method == "memory-flush" {
        return None;
    }
    let (mut took, usage) = (0, &ended.usage);
    for step in ended.steps.all() {
        if let SpanKind::Model(asked) = &step.what {
            took += asked.input + asked.output + asked.cache_read + asked.cache_write;
        }
    }
    let whole = usage.input + usage.output + usage.cache_read + usage.cache_write;
    (took != whole).then(|| format!("its questions took {took} tokens, and it took {whole}: {:?}", ended.steps.all()))
}

/// Returns what was observed and what is recorded, for each kind.
fn compare_kinds(heard: &RecordedRun, steps: &RunTimeline) -> Vec<(&'static str, Vec<String>, Vec<String>)> {
    let (seen, told) = (observed(heard), recorded(steps));
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
fn observed(heard: &RecordedRun) -> [Vec<String>; 10] {
    let mut seen: [Vec<String>; 10] = Default::default();
    let [models, retries, tools, switches, compactions, hooks, joined, blocks, withholdings, moved] = &mut seen;
    let began = heard.events.iter().find(|event| matches!(event.kind, RunEvent::Started { .. })).map(|event| event.at);
    // The open model request, and why it failed.
    let mut open: Option<(String, Option<&str>)> = None;
    for event in &heard.events {
        match &event.kind {
            RunEvent::ModelRequested(asked) => {
                models.extend(
                    open.map(|(model, error)| format_request(&model, error.or(Some("nobody said what became of it")))),
                );
                open = Some((format!("{}/{}", asked.provider, asked.model), None));
            }
            // Of a request before a restart, only the answer is known.
            RunEvent::Assistant { said, .. } => {
                let before = began.is_none_or(|began| said.timestamp < began);
                let model = open.take().map(|(model, _)| model);
                let model = model.or_else(|| before.then(|| format!("{}/{}", said.provider, said.model)));
                models.extend(model.map(|model| format_request(&model, said.error_message.as_deref())));
            }
            RunEvent::AnswerDropped { why, .. } => open = open.map(|(model, _)| (model, Some(why.as_str()))),
            RunEvent::Retrying { why, .. } => retries.push(why.clone()),
            RunEvent::ToolEnded { call, result, .. } => {
                tools.push(format!("{} {call} {}", result.tool_name, result.is_error));
            }
            RunEvent::CandidateFailed { from, reason, why } => switches.push(format!("{from} {reason} {why}")),
            // What follows does not answer the request before it.
            RunEvent::Compacting => models.extend(open.take().map(|(model, error)| format_request(&model, error))),
            RunEvent::Compacted { before, after, way, input, .. } => {
                compactions.push(format!("{before} {after} {way} {input:?}"));
            }
            RunEvent::NotCompacted { why } => compactions.push(why.clone()),
            RunEvent::HookDecision(note) => {
                hooks.push(format!("{} {} {}", note.point.name(), note.hook, note.decision))
            }
            RunEvent::Input(_) if !models.is_empty() || open.is_some() => joined.push(String::new()),
            RunEvent::Block(_) => blocks.push(String::new()),
            RunEvent::Withheld(withheld) => {
                withholdings.push(format!("{} {}", withheld.call, withheld.repetition.name()))
            }
            RunEvent::DispositionChanged(placed) => moved.push(placed.wire_name().0.to_owned()),
            RunEvent::Busy(busy) => moved.push(busy.activity.to_string()),
            RunEvent::Summarized(runs) => moved.push(format!("{runs:?}")),
            RunEvent::Started { .. }
            | RunEvent::SlotWaited(_)
            | RunEvent::Input(_)
            | RunEvent::Absorbed { .. }
            | RunEvent::FirstToken
            | RunEvent::Text { .. }
            | RunEvent::Thinking { .. }
            | RunEvent::ModelChanged { .. }
            | RunEvent::MessageReset { .. }
            | RunEvent::ToolStarted { .. }
            | RunEvent::ToolProgress { .. }
            | RunEvent::Ended(_) => {}
        }
    }
    models.extend(open.map(|(model, error)| format_request(&model, error)));
    seen
}

/// Formats a model request in a line.
fn format_request(model: &str, error: Option<&str>) -> String {
    format!("{model} {:?}", error.map(|error| error.chars().take(300).collect::<String>()))
}

/// Extracts the records from the spans.
fn recorded(steps: &RunTimeline) -> [Vec<String>; 10] {
    let mut told: [Vec<String>; 10] = Default::default();
    let [models, retries, tools, switches, compactions, hooks, joined, blocks, withholdings, moved] = &mut told;
    for step in steps.all() {
        match &step.what {
            SpanKind::Model(asked) => {
                models.push(format_request(&format!("{}/{}", asked.provider, asked.model), asked.error.as_deref()));
            }
            SpanKind::Retry { why } => retries.push(why.clone()),
            SpanKind::Tool { name, call, is_error, .. } => tools.push(format!("{name} {call} {is_error}")),
            SpanKind::Switched { from_model, reason, why } => switches.push(format!("{from_model} {reason} {why}")),
            SpanKind::Compaction { tokens: Some((before, after)), how, input } => {
                compactions.push(format!("{before} {after} {how} {input:?}"));
            }
            SpanKind::Compaction { tokens: None, how, input: _ } => compactions.push(how.clone()),
            SpanKind::Hook { point, hook, decision } => hooks.push(format!("{point} {hook} {decision}")),
            SpanKind::Joined => joined.push(String::new()),
            SpanKind::Block => blocks.push(String::new()),
            SpanKind::Withheld { call, repetition, .. } => withholdings.push(format!("{call} {repetition}")),
            SpanKind::Placed { disposition, .. } => moved.push(disposition.clone()),
            SpanKind::Busy { activity, .. } => moved.push(activity.clone()),
            SpanKind::Summarized { runs } => moved.push(format!("{runs:?}")),
            SpanKind::Queued { .. }
            | SpanKind::Prepared
            | SpanKind::Stored
            | SpanKind::Tools
            | SpanKind::Down
            | SpanKind::Held
            | SpanKind::Finished
            | SpanKind::FinalHooks
            | SpanKind::More { .. } => {}
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Trace, runner::play};

    const TRACE: &str = "set retries=1 down=1s\nat 0ms say \"look\" run=k1\nmodel pause 10ms ; fail overloaded \"busy\"\n\
                         model pause 10ms ; call c1 read {\"path\":\"a\"} ; usage in=5 out=1\ntool c1 takes 50ms says \"A\"\n\
                         model hang\nat 9s restart\nmodel pause 20ms ; text \"There.\" ; usage in=6 out=1\n";

    /// Returns the beginnings of the complaints about a trace whose spans were manipulated.
    fn complaints(spoil: impl FnOnce(&mut Vec<TimelineSpan>)) -> Vec<String> {
        let mut played = play(&Trace::read("x.trace", TRACE).unwrap()).unwrap();
        let row = played.rows.values_mut().next().unwrap();
        let RunState::Ended(ended) = &mut row.state else { panic!("it has not ended") };
        let mut steps = ended.steps.all().to_vec();
        spoil(&mut steps);
        ended.steps = RunTimeline::new(steps);
        violations(&played).iter().map(|wrong| wrong.chars().take(40).collect()).collect()
    }

    #[test]
    fn a_hook_that_looks_at_the_answer_last_has_its_time() {
        let trace = "hook polite message_sending takes 3s answers {\"content\":\"Hello, dear.\"}\n\
                     at 0ms say \"hello\" run=k1\nmodel pause 1s ; text \"Hello.\"\n";
        let played = play(&Trace::read("x.trace", trace).unwrap()).unwrap();
        let RunState::Ended(ended) = &played.rows.values().next().unwrap().state else { panic!("it has not ended") };
        let at = |ms: u64| EPOCH_MS + ms;
        let (last, hook) = (ended.steps.all().last().unwrap(), &ended.steps.all()[ended.steps.all().len() - 2]);
        assert_eq!(*last, TimelineSpan { from: at(1000), to: at(4000), what: SpanKind::FinalHooks });
        let (point, name) = ("message_sending".to_owned(), "polite".to_owned());
        let decision = "changed content".to_owned();
        assert_eq!(
            *hook,
            TimelineSpan { from: at(1000), to: at(4000), what: SpanKind::Hook { point, hook: name, decision } }
        );
        assert_eq!(ended.ended_at, at(4000));
        assert_eq!(violations(&played), Vec::<String>::new());
    }

    fn first(steps: &mut [TimelineSpan], is_meant: fn(&SpanKind) -> bool) -> &mut TimelineSpan {
        steps.iter_mut().find(|step| is_meant(&step.what)).unwrap()
    }

    #[test]
    fn what_is_wrong_with_a_course_is_found() {
        let down = |what: &SpanKind| *what == SpanKind::Down;
        let tool = |what: &SpanKind| matches!(what, SpanKind::Tool { .. });
        let model = |what: &SpanKind| matches!(what, SpanKind::Model(_));
        assert_eq!(complaints(|_| {}), Vec::<String>::new());
        let found = complaints(|steps| first(steps, down).to -= 1);
        assert!(found[0].starts_with("run k1: a step is "), "{found:?}");
        let found = complaints(|steps| steps.retain(|step| !model(&step.what)));
        assert!(found[0].starts_with("run k1: a step is "), "{found:?}");
        let found = complaints(Vec::clear);
        assert!(found[0].starts_with("run k1: 0 of "), "{found:?}");
        let found = complaints(|steps| first(steps, down).what = SpanKind::Tools);
        assert!(found[0].starts_with("run k1: nobody was there from"), "{found:?}");
        let found = complaints(|steps| steps.retain(|step| !tool(&step.what)));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("run k1: of tools, "), "{found:?}");
        let found = complaints(|steps| first(steps, model).what = SpanKind::Prepared);
        assert!(found.iter().any(|wrong| wrong.starts_with("run k1: of models, ")), "{found:?}");
        let found = complaints(|steps| {
            if let SpanKind::Tool { name, .. } = &mut first(steps, tool).what {
                name.clear();
            }
        });
        assert!(found[0].starts_with("run k1: a step without a name"), "{found:?}");
    }
}
