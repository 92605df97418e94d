//! Tests of timelines: every moment of a run is covered by exactly one span.

use std::sync::Arc;

use homard_proto::{
    EntryId, SessionId,
    message::{Assistant, ToolResult},
};
use proptest::prelude::*;
use serde_json::json;

use super::*;

const ACCEPTED_AT: u64 = 1_000;

fn at(at: u64, kind: RunEvent) -> TapeEvent {
    TapeEvent { at: ACCEPTED_AT + at, kind }
}

fn started() -> RunEvent {
    RunEvent::Stored(StoredEvent::Started { session: SessionId::parse("s").unwrap() })
}

fn model_requested(model: &str) -> RunEvent {
    RunEvent::Model(RequestEvent::Requested(Arc::new(ModelRequestSpan {
        model: model.to_owned(),
        ..ModelRequestSpan::default()
    })))
}

fn assistant(entry_at: u64, error: Option<&str>) -> RunEvent {
    let error_message = error.map(str::to_owned);
    let message =
        Assistant { timestamp: ACCEPTED_AT + entry_at, model: "m".to_owned(), error_message, ..Assistant::default() };
    RunEvent::Stored(StoredEvent::Assistant { entry: EntryId::parse("e").unwrap(), message: Arc::new(message) })
}

fn tool_started(call: &str) -> RunEvent {
    let (call, name) = (CallId::parse(call).unwrap(), "read".to_owned());
    RunEvent::Tool(ToolEvent::Started { call, name, arguments: json!({"path": "a"}) })
}

fn tool_ended(call: &str, entry_at: u64) -> RunEvent {
    let result = ToolResult {
        tool_call_id: call.to_owned(),
        tool_name: "read".to_owned(),
        content: Vec::new(),
        details: None,
        is_error: false,
        timestamp: ACCEPTED_AT + entry_at,
        extra: serde_json::Map::new(),
    };
    RunEvent::Stored(StoredEvent::ToolEnded {
        call: CallId::parse(call).unwrap(),
        result: Arc::new(result),
        shown: None,
    })
}

/// Returns the spans in short form: from, to, label; parallel ones in brackets.
fn spans(events: &[TapeEvent], starts: &[u64], until: u64) -> Vec<String> {
    let starts: Vec<_> = starts.iter().map(|at| ACCEPTED_AT + at).collect();
    short_spans(
        events,
        TimelineRange {
            accepted_at: ACCEPTED_AT,
            earlier_starts: &starts,
            held: None,
            stored_at: None,
            until: ACCEPTED_AT + until,
        },
    )
}

fn short_spans(events: &[TapeEvent], range: TimelineRange<'_>) -> Vec<String> {
    let steps = build_timeline(events, range);
    assert_eq!(steps.covered_ms(), range.until - ACCEPTED_AT, "{steps:#?}");
    let formatted = steps.all().iter().map(|step| {
        let label = serde_json::to_value(&step.what).unwrap()["step"].as_str().unwrap().to_owned();
        let label = if step.what.is_aside() { format!("[{label}]") } else { label };
        format!("{}-{} {label}", step.from - ACCEPTED_AT, step.to - ACCEPTED_AT)
    });
    formatted.collect()
}

#[test]
fn a_run_with_tools_is_covered_from_start_to_end() {
    let events = [
        at(10, started()),
        at(12, model_requested("m")),
        at(20, RunEvent::Model(RequestEvent::FirstToken)),
        at(30, assistant(30, None)),
        at(33, tool_started("a")),
        at(34, tool_started("b")),
        at(40, tool_ended("b", 40)),
        at(50, tool_ended("a", 50)),
        at(51, model_requested("m")),
        at(60, assistant(60, None)),
    ];
    let expected = [
        "0-10 queued",
        "10-12 prepared",
        "12-30 model",
        "30-33 stored",
        "34-40 [tool]",
        "33-50 [tool]",
        "33-50 tools",
        "50-51 prepared",
        "51-60 model",
        "60-63 finished",
    ];
    assert_eq!(spans(&events, &[], 63), expected);
}

#[test]
fn failures_retries_and_fallbacks_have_their_own_spans() {
    let why = || "busy".to_owned();
    let events = [
        at(0, started()),
        at(2, model_requested("m")),
        at(
            5,
            RunEvent::Model(RequestEvent::Retrying {
                model: String::new(),
                attempt: (2, 5),
                after: std::time::Duration::from_millis(20),
                why: why(),
            }),
        ),
        at(25, model_requested("m")),
        at(
            30,
            RunEvent::Model(RequestEvent::CandidateFailed {
                from: "p/m".to_owned(),
                reason: "rate_limit".to_owned(),
                why: why(),
            }),
        ),
        at(31, RunEvent::Compaction(CompactionEvent::Started)),
        at(40, RunEvent::Compaction(CompactionEvent::Failed { why: why() })),
        at(40, model_requested("n")),
    ];
    let expected = [
        "0-2 prepared",
        "2-5 model",
        "5-25 retry",
        "25-30 model",
        "30-30 [switched]",
        "30-31 prepared",
        "31-40 compaction",
        "40-44 model",
    ];
    assert_eq!(spans(&events, &[], 44), expected);
}

#[test]
fn a_run_that_never_started_was_queued_all_the_time() {
    assert_eq!(spans(&[], &[], 9), ["0-9 queued"]);
    assert!(spans(&[], &[], 0).is_empty());
}

#[test]
fn a_restart_has_its_own_span() {
    let events = [
        at(500, started()),
        at(500, assistant(30, None)),
        at(500, tool_ended("a", 40)),
        at(510, model_requested("m")),
        at(530, assistant(530, None)),
    ];
    let expected = [
        "0-10 queued",
        "10-30 model",
        "40-40 [tool]",
        "30-40 tools",
        "40-500 down",
        "500-510 prepared",
        "510-530 model",
        "530-531 finished",
    ];
    assert_eq!(spans(&events, &[10], 531), expected);
    // A run that is not resumed.
    assert_eq!(spans(&events[1..2], &[10], 500), ["0-10 queued", "10-30 model", "30-500 down"]);
    assert_eq!(spans(&[], &[0], 500), ["0-500 down"]);
}

#[test]
fn every_restart_has_its_own_span() {
    let events = [
        at(500, started()),
        at(500, assistant(30, None)),
        at(500, tool_ended("a", 40)),
        at(220, RunEvent::Compaction(CompactionEvent::Started)),
        at(220, RunEvent::Compaction(CompactionEvent::Failed { why: "no".to_owned() })),
        at(500, assistant(250, None)),
        at(510, model_requested("m")),
        at(512, RunEvent::Model(RequestEvent::AnswerDropped { why: "empty".to_owned(), usage: Usage::default() })),
        at(512, model_requested("m")),
        at(530, assistant(530, None)),
    ];
    let expected = [
        "0-10 queued",
        "10-30 model",
        "40-40 [tool]",
        "30-40 tools",
        "40-200 down",
        "200-220 compaction",
        "220-250 model",
        "250-500 down",
        "500-510 prepared",
        "510-512 model",
        "512-530 model",
        "530-531 finished",
    ];
    assert_eq!(spans(&events, &[10, 200, 300], 531), expected);
}

#[test]
fn hooks_on_the_final_messages_have_their_own_span() {
    let range = TimelineRange {
        accepted_at: ACCEPTED_AT,
        earlier_starts: &[],
        held: None,
        stored_at: Some(ACCEPTED_AT + 35),
        until: ACCEPTED_AT + 90,
    };
    let completed = [at(10, started()), at(10, model_requested("m")), at(30, assistant(30, None))];
    assert_eq!(short_spans(&completed, range), ["0-10 queued", "10-30 model", "30-35 finished", "35-90 finalHooks"]);
    let stopped = [at(10, started()), at(10, model_requested("m"))];
    assert_eq!(short_spans(&stopped, range), ["0-10 queued", "10-35 model", "35-90 finalHooks"]);
    // The partial answer of a stopped run is stored after the hooks on it.
    let partial =
        [at(10, started()), at(10, model_requested("m")), at(35, assistant(35, None)), at(35, tool_started("a"))];
    let expected = ["0-10 queued", "10-35 model", "35-35 [tool]", "35-90 finalHooks"];
    assert_eq!(short_spans(&partial, range), expected);
}

proptest! {
    #[test]
    fn every_moment_is_covered_by_exactly_one_span(
        kinds in proptest::collection::vec((0_u8..12, 0_u64..50), 0..60), resumed in any::<bool>(), tail in 0_u64..20,
        hooks in 0_u64..40
    ) {
        let mut now = 0;
        let events: Vec<_> = kinds.iter().map(|(kind, delay)| {
            now += delay;
            let kind = match kind {
                0 => started(),
                1 | 2 => model_requested("m"),
                3 => RunEvent::Model(RequestEvent::FirstToken),
                4 => assistant(now, None),
                5 => tool_started("a"),
                6 => tool_ended("a", now),
                7 => RunEvent::Model(RequestEvent::Retrying { model: String::new(), attempt: (2, 5), after: std::time::Duration::ZERO, why: String::new() }),
                8 => RunEvent::Model(RequestEvent::CandidateFailed { from: String::new(), reason: String::new(), why: String::new() }),
                9 => RunEvent::Compaction(CompactionEvent::Started),
                10 => RunEvent::Compaction(CompactionEvent::Failed { why: String::new() }),
                _ => assistant(now / 2, Some("broken")),
            };
            at(now, kind)
        }).collect();
        let until = ACCEPTED_AT + now + tail;
        let starts: &[u64] = if resumed { &[ACCEPTED_AT, ACCEPTED_AT + 40, ACCEPTED_AT + 80] } else { &[] };
        let stored_at = (hooks > 0).then(|| until.saturating_sub(hooks).max(ACCEPTED_AT));
        let range = TimelineRange { accepted_at: ACCEPTED_AT, earlier_starts: starts, held: None, stored_at, until };
        let steps = build_timeline(&events, range);
        let main: Vec<_> = steps.all().iter().filter(|step| !step.what.is_aside()).collect();
        prop_assert_eq!(steps.covered_ms(), until - ACCEPTED_AT);
        prop_assert!(main.windows(2).all(|pair| pair[0].to == pair[1].from));
    }
}
