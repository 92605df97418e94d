//! Invariants of timelines: spans are contiguous, and they agree with the events that subscribers saw.

use homard_agent::{
    CompactionEvent, QueueEvent, ReplyEvent, RequestEvent, RunEvent, StoredEvent, event::RunEnd, tape::TapeState,
};
use homard_store::{EndRecord, RunRow, RunState, RunTimeline, SpanKind, TimelineSpan};

use super::phase;
use crate::{
    recorder::{RecordedPayload, RecordedRun},
    runner::{EPOCH_MS, TraceResult},
};

/// Returns all violations in the timelines of finished runs.
pub(super) fn violations(result: &TraceResult) -> Vec<String> {
    let mut problems = Vec::new();
    for row in result.rows.values() {
        let RunState::Ended(ended) = &row.state else { continue };
        let timeline = shown_timeline(row, &ended.steps);
        let found = [
            main_spans_are_contiguous(row, &timeline, ended.ended_at),
            side_spans_are_valid(row, &timeline, ended.ended_at),
            idle_while_down(result, row, &timeline),
        ];
        problems.extend(
            found.into_iter().flatten().map(|problem| format!("run {}: {problem}: {:?}", row.run, timeline.all())),
        );
    }
    for (index, recorded_run) in result.log.runs.iter().enumerate() {
        let row = result.rows.get(recorded_run.tape.run());
        let (Some(row), TapeState::Ended(end)) = (row, recorded_run.tape.state()) else { continue };
        problems.extend(nothing_after_end(result, index, &end).map(|problem| format!("run {}: {problem}", row.run)));
        problems.extend(
            agrees_with_events(result, row, recorded_run, &end)
                .into_iter()
                .map(|problem| format!("run {}: {problem}", row.run)),
        );
    }
    problems
}

/// Returns the timeline as shown for this run: for an absorbed run, the host's since its acceptance.
fn shown_timeline(row: &RunRow, timeline: &RunTimeline) -> RunTimeline {
    if row.host.is_some() { timeline.since(row.accepted_at) } else { timeline.clone() }
}

fn main_steps(timeline: &RunTimeline) -> impl Iterator<Item = &TimelineSpan> {
    timeline.all().iter().filter(|span| !span.what.is_aside())
}

/// Main spans are contiguous from acceptance to end: no gap, no overlap, to the millisecond.
fn main_spans_are_contiguous(row: &RunRow, timeline: &RunTimeline, ended_at: u64) -> Option<String> {
    let mut expected_start = row.accepted_at;
    for span in main_steps(timeline) {
        if span.from != expected_start || span.to < span.from {
            return Some(format!("a step is {}..{} where {expected_start} is next", span.from, span.to));
        }
        expected_start = span.to;
    }
    let all = ended_at.saturating_sub(row.accepted_at);
    let is_whole = expected_start == ended_at && timeline.covered_ms() == all;
    (!is_whole)
        .then(|| format!("{} of {all} ms have a name, up to {expected_start} of {ended_at}", timeline.covered_ms()))
}

/// Side spans are between acceptance and end, and are labelled.
fn side_spans_are_valid(row: &RunRow, timeline: &RunTimeline, ended_at: u64) -> Option<String> {
    let is_valid = |span: &TimelineSpan| {
        let has_name = match &span.what {
            SpanKind::Tool { name, call, .. } => !name.is_empty() && !call.is_empty(),
            SpanKind::Hook { point, hook, .. } => !point.is_empty() && !hook.is_empty(),
            SpanKind::Switched { from_model, reason, .. } => !from_model.is_empty() && !reason.is_empty(),
            SpanKind::Placed { disposition, .. } => !disposition.is_empty(),
            SpanKind::Busy { activity, .. } => !activity.is_empty(),
            SpanKind::Summarized { runs } => !runs.is_empty(),
            SpanKind::Joined | SpanKind::Block => true,
            SpanKind::Withheld { call, repetition, .. } => !call.is_empty() && !repetition.is_empty(),
            SpanKind::Model(request) => !request.model.is_empty() && !request.provider.is_empty(),
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
        has_name && row.accepted_at <= span.from && span.from <= span.to && span.to <= ended_at
    };
    let invalid = timeline.all().iter().find(|span| !is_valid(span))?;
    Some(format!("a step without a name, or outside of the run: {invalid:?}"))
}

/// While the process was down, nothing is recorded as done: a queued run waited, an active one was suspended.
fn idle_while_down(result: &TraceResult, row: &RunRow, timeline: &RunTimeline) -> Option<String> {
    let (started_at, ended) = (row.started_at?, main_steps(timeline).last()?.to);
    let downtimes = result.log.restarts.iter().map(|(at, _)| {
        let at = EPOCH_MS + at.as_millis() as u64;
        (at.max(started_at), (at + result.conditions.downtime.as_millis() as u64).min(ended))
    });
    let active_span = |from: u64, to: u64| {
        main_steps(timeline).find(|span| span.from.max(from) < span.to.min(to) && !is_idle(&span.what)).cloned()
    };
    downtimes.filter(|(from, to)| from < to).find_map(|(from, to)| {
        let span = active_span(from, to)?;
        Some(format!("nobody was there from {from} to {to}, and it tells {span:?}"))
    })
}

fn is_idle(what: &SpanKind) -> bool {
    matches!(what, SpanKind::Down | SpanKind::Held | SpanKind::Queued { .. } | SpanKind::More { .. })
}

/// The end of a run is published after at most the time of one commit. Other work in between, such as a hook, would not
/// be in any span.
fn nothing_after_end(result: &TraceResult, index: usize, end: &RunEnd) -> Option<String> {
    let is_end =
        |recorded: &&RecordedPayload| recorded.run == index && matches!(phase(recorded), Some("end" | "error"));
    let published_at = EPOCH_MS + result.log.payloads.iter().rfind(is_end)?.at.as_millis() as u64;
    let commit = result.conditions.commit_time.as_millis() as u64;
    let is_immediate = end.ended_at <= published_at && published_at <= end.ended_at + commit;
    (!is_immediate)
        .then(|| format!("ended at {}, and its end was told at {published_at}; commits took {commit} ms", end.ended_at))
}

/// The stored timeline agrees with the published events.
fn agrees_with_events(result: &TraceResult, row: &RunRow, recorded_run: &RecordedRun, end: &RunEnd) -> Vec<String> {
    let RunState::Ended(ended) = &row.state else { return Vec::new() };
    let mut problems = Vec::new();
    if (&ended.outcome, ended.ended_at) != (&end.outcome, end.ended_at) {
        problems.push(format!("ended with {:?} at {}, and it was told {end:?}", ended.outcome, ended.ended_at));
    }
    // The work of an absorbed run's host is recorded with the host; a run that never started has no spans.
    if row.host.is_some()
        || result.conditions.disk_failed
        || ended.steps.all().len() == RunTimeline::MAX
        || end.started_at.is_none()
    {
        return problems;
    }
    problems.extend(usage_adds_up(row, ended).filter(|_| !is_ambiguous(recorded_run)));
    for (kind, observed, recorded) in compare_kinds(recorded_run, &ended.steps) {
        if observed != recorded {
            problems.push(format!(
                "of {kind}, {observed:?} was seen, its course tells {recorded:?}: {:?}",
                ended.steps.all()
            ));
        }
    }
    problems
}

/// True if an answer has the same millisecond as the restart that resumed the run: then their order is ambiguous. This
/// requires a process that starts in zero time.
fn is_ambiguous(recorded_run: &RecordedRun) -> bool {
    let started =
        recorded_run.events.iter().find(|event| matches!(event.kind, RunEvent::Stored(StoredEvent::Started { .. })));
    let is_at = |at: u64| {
        let mut events = recorded_run.events.iter();
        events.any(|event| matches!(&event.kind, RunEvent::Stored(StoredEvent::Assistant { message: answer, .. }) if answer.timestamp == at))
    };
    started.is_some_and(|started| is_at(started.at))
}

/// The token usage of the model requests adds up to that of the run. Requests for compaction or memory flush are not
/// recorded as model requests.
fn usage_adds_up(row: &RunRow, ended: &EndRecord) -> Option<String> {
    let is_compaction = |span: &TimelineSpan| matches!(span.what, SpanKind::Compaction { .. });
    if ended.steps.all().iter().any(is_compaction) || row.method == "memory-flush" {
        return None;
    }
    let (mut sum, usage) = (0, &ended.usage);
    for span in ended.steps.all() {
        if let SpanKind::Model(request) = &span.what {
            sum += request.input + request.output + request.cache_read + request.cache_write;
        }
    }
    let total = usage.input + usage.output + usage.cache_read + usage.cache_write;
    (sum != total).then(|| format!("its questions took {sum} tokens, and it took {total}: {:?}", ended.steps.all()))
}

/// Returns for each of [`KINDS`] what subscribers observed and what the timeline has.
fn compare_kinds(recorded_run: &RecordedRun, timeline: &RunTimeline) -> Vec<(&'static str, Vec<String>, Vec<String>)> {
    let (observed_kinds, recorded_kinds) = (observed(recorded_run), recorded(timeline));
    KINDS
        .iter()
        .zip(observed_kinds)
        .zip(recorded_kinds)
        .map(|((kind, from_events), from_spans)| (*kind, from_events, from_spans))
        .collect()
}

/// Kinds of spans that are compared with events, each in order.
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

/// Extracts from the events of a run what its timeline should contain: one list for each of [`KINDS`].
fn observed(recorded_run: &RecordedRun) -> [Vec<String>; 10] {
    let mut kinds: [Vec<String>; 10] = Default::default();
    let [models, retries, tools, switches, compactions, hooks, joined, blocks, withholdings, changes] = &mut kinds;
    let started_at = recorded_run
        .events
        .iter()
        .find(|event| matches!(event.kind, RunEvent::Stored(StoredEvent::Started { .. })))
        .map(|event| event.at);
    // The model of the request without an answer so far, and the request's error.
    let mut open: Option<(String, Option<&str>)> = None;
    for event in &recorded_run.events {
        match &event.kind {
            RunEvent::Model(RequestEvent::Requested(request)) => {
                models.extend(
                    open.map(|(model, error)| format_request(&model, error.or(Some("nobody said what became of it")))),
                );
                open = Some((format!("{}/{}", request.provider, request.model), None));
            }
            // The events of a request before a restart are lost; only its stored answer is known.
            RunEvent::Stored(StoredEvent::Assistant { message: answer, .. }) => {
                let is_before_restart = started_at.is_none_or(|started_at| answer.timestamp < started_at);
                let model = open.take().map(|(model, _)| model);
                let model =
                    model.or_else(|| is_before_restart.then(|| format!("{}/{}", answer.provider, answer.model)));
                models.extend(model.map(|model| format_request(&model, answer.error_message.as_deref())));
            }
            RunEvent::Model(RequestEvent::AnswerDropped { why, .. }) => {
                open = open.map(|(model, _)| (model, Some(why.as_str())))
            }
            RunEvent::Model(RequestEvent::Retrying { why, .. }) => retries.push(why.clone()),
            RunEvent::Stored(StoredEvent::ToolEnded { call, result, .. }) => {
                tools.push(format!("{} {call} {}", result.tool_name, result.is_error));
            }
            RunEvent::Model(RequestEvent::CandidateFailed { from, reason, why }) => {
                switches.push(format!("{from} {reason} {why}"))
            }
            // The next answer belongs to another request, so the open one ends here.
            RunEvent::Compaction(CompactionEvent::Started) => {
                models.extend(open.take().map(|(model, error)| format_request(&model, error)))
            }
            RunEvent::Stored(StoredEvent::Compacted { before, after, strategy, input, .. }) => {
                compactions.push(format!("{before} {after} {strategy} {input:?}"));
            }
            RunEvent::Compaction(CompactionEvent::Failed { why }) => compactions.push(why.clone()),
            RunEvent::HookDecision(note) => {
                hooks.push(format!("{} {} {}", note.point.name(), note.hook, note.decision))
            }
            RunEvent::Stored(StoredEvent::Input(_)) if !models.is_empty() || open.is_some() => {
                joined.push(String::new())
            }
            RunEvent::Reply(ReplyEvent::Block(_)) => blocks.push(String::new()),
            RunEvent::Reply(ReplyEvent::Withheld(withheld)) => {
                withholdings.push(format!("{} {}", withheld.call, withheld.repetition.name()))
            }
            RunEvent::Queue(QueueEvent::DispositionChanged(disposition)) => {
                changes.push(disposition.wire_name().0.to_owned())
            }
            RunEvent::Queue(QueueEvent::Busy(busy)) => changes.push(busy.activity.to_string()),
            RunEvent::Queue(QueueEvent::Summarized(runs)) => changes.push(format!("{runs:?}")),
            RunEvent::Stored(StoredEvent::Started { .. } | StoredEvent::Input(_) | StoredEvent::Ended(_))
            | RunEvent::Queue(QueueEvent::SlotWaited(_) | QueueEvent::Absorbed { .. })
            | RunEvent::Model(
                RequestEvent::FirstToken
                | RequestEvent::NoResponse { .. }
                | RequestEvent::Changed { .. }
                | RequestEvent::MessageReset { .. },
            )
            | RunEvent::Text { .. }
            | RunEvent::Thinking { .. }
            | RunEvent::Tool(_) => {}
        }
    }
    models.extend(open.map(|(model, error)| format_request(&model, error)));
    kinds
}

/// Formats a model request in a line.
fn format_request(model: &str, error: Option<&str>) -> String {
    format!("{model} {:?}", error.map(|error| error.chars().take(300).collect::<String>()))
}

/// Extracts the same lists as [`observed`] from the spans of a timeline.
fn recorded(timeline: &RunTimeline) -> [Vec<String>; 10] {
    let mut kinds: [Vec<String>; 10] = Default::default();
    let [models, retries, tools, switches, compactions, hooks, joined, blocks, withholdings, changes] = &mut kinds;
    for span in timeline.all() {
        match &span.what {
            SpanKind::Model(request) => {
                models
                    .push(format_request(&format!("{}/{}", request.provider, request.model), request.error.as_deref()));
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
            SpanKind::Placed { disposition, .. } => changes.push(disposition.clone()),
            SpanKind::Busy { activity, .. } => changes.push(activity.clone()),
            SpanKind::Summarized { runs } => changes.push(format!("{runs:?}")),
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
    kinds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Trace, runner::play};

    const TRACE: &str = "set retries=1 down=1s\nat 0ms say \"look\" run=k1\nmodel pause 10ms ; fail overloaded \"busy\"\n\
                         model pause 10ms ; call c1 read {\"path\":\"a\"} ; usage in=5 out=1\ntool c1 takes 50ms says \"A\"\n\
                         model hang\nat 9s restart\nmodel pause 20ms ; text \"There.\" ; usage in=6 out=1\n";

    /// Returns the beginnings of the complaints about a trace whose spans were manipulated.
    fn complaints(tamper: impl FnOnce(&mut Vec<TimelineSpan>)) -> Vec<String> {
        let mut result = play(&Trace::read("x.trace", TRACE).unwrap()).unwrap();
        let row = result.rows.values_mut().next().unwrap();
        let RunState::Ended(ended) = &mut row.state else { panic!("it has not ended") };
        let mut spans = ended.steps.all().to_vec();
        tamper(&mut spans);
        ended.steps = RunTimeline::new(spans);
        violations(&result).iter().map(|problem| problem.chars().take(40).collect()).collect()
    }

    #[test]
    fn the_time_of_final_hooks_is_a_span() {
        let trace = "hook polite message_sending takes 3s answers {\"content\":\"Hello, dear.\"}\n\
                     at 0ms say \"hello\" run=k1\nmodel pause 1s ; text \"Hello.\"\n";
        let result = play(&Trace::read("x.trace", trace).unwrap()).unwrap();
        let RunState::Ended(ended) = &result.rows.values().next().unwrap().state else { panic!("it has not ended") };
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
        assert_eq!(violations(&result), Vec::<String>::new());
    }

    fn first(spans: &mut [TimelineSpan], matches_kind: fn(&SpanKind) -> bool) -> &mut TimelineSpan {
        spans.iter_mut().find(|span| matches_kind(&span.what)).unwrap()
    }

    #[test]
    fn problems_of_a_timeline_are_reported() {
        let down = |what: &SpanKind| *what == SpanKind::Down;
        let tool = |what: &SpanKind| matches!(what, SpanKind::Tool { .. });
        let model = |what: &SpanKind| matches!(what, SpanKind::Model(_));
        assert_eq!(complaints(|_| {}), Vec::<String>::new());
        let found = complaints(|spans| first(spans, down).to -= 1);
        assert!(found[0].starts_with("run k1: a step is "), "{found:?}");
        let found = complaints(|spans| spans.retain(|span| !model(&span.what)));
        assert!(found[0].starts_with("run k1: a step is "), "{found:?}");
        let found = complaints(Vec::clear);
        assert!(found[0].starts_with("run k1: 0 of "), "{found:?}");
        let found = complaints(|spans| first(spans, down).what = SpanKind::Tools);
        assert!(found[0].starts_with("run k1: nobody was there from"), "{found:?}");
        let found = complaints(|spans| spans.retain(|span| !tool(&span.what)));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("run k1: of tools, "), "{found:?}");
        let found = complaints(|spans| first(spans, model).what = SpanKind::Prepared);
        assert!(found.iter().any(|problem| problem.starts_with("run k1: of models, ")), "{found:?}");
        let found = complaints(|spans| {
            if let SpanKind::Tool { name, .. } = &mut first(spans, tool).what {
                name.clear();
            }
        });
        assert!(found[0].starts_with("run k1: a step without a name"), "{found:?}");
    }
}
