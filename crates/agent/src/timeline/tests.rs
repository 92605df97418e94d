//! Tests of timelines: every moment of a run is covered by exactly one span.

use std::sync::Arc;

use homard_proto::{
    EntryId, SessionId,
    message::{Assistant, ToolResult},
};
use proptest::prelude::*;
use serde_json::json;

use super::*;

const BORN: u64 = 1_000;

fn at(at: u64, kind: RunEvent) -> TapeEvent {
    TapeEvent { at: BORN + at, kind }
}

fn started() -> RunEvent {
    RunEvent::Started { session: SessionId::parse("s").unwrap() }
}

fn asking(model: &str) -> RunEvent {
    RunEvent::ModelRequested(Arc::new(ModelRequestSpan { model: model.to_owned(), ..ModelRequestSpan::default() }))
}

fn said(written: u64, error: Option<&str>) -> RunEvent {
    let error_message = error.map(str::to_owned);
    let said = Assistant { timestamp: BORN + written, model: "m".to_owned(), error_message, ..Assistant::default() };
    RunEvent::Assistant { entry: EntryId::parse("e").unwrap(), said: Arc::new(said) }
}

fn tool(call: &str) -> RunEvent {
    let (call, name) = (CallId::parse(call).unwrap(), "read".to_owned());
    RunEvent::ToolStarted { call, name, arguments: json!({"path": "a"}) }
}

fn answered(call: &str, written: u64) -> RunEvent {
    let result = ToolResult {
        tool_call_id: call.to_owned(),
        tool_name: "read".to_owned(),
        content: Vec::new(),
        details: None,
        is_error: false,
        timestamp: BORN + written,
        extra: serde_json::Map::new(),
    };
    RunEvent::ToolEnded { call: CallId::parse(call).unwrap(), result: Arc::new(result), shown: None }
}

/// Returns the spans in short form: from, to, label; parallel ones in brackets.
fn told(facts: &[TapeEvent], begun: &[u64], until: u64) -> Vec<String> {
    let begun: Vec<_> = begun.iter().map(|at| BORN + at).collect();
    in_short(
        facts,
        TimelineRange { accepted_at: BORN, earlier_starts: &begun, held: None, stored_at: None, until: BORN + until },
    )
}

fn in_short(facts: &[TapeEvent], span: TimelineRange<'_>) -> Vec<String> {
    let steps = build_timeline(facts, span);
    assert_eq!(steps.covered_ms(), span.until - BORN, "{steps:#?}");
    let told = steps.all().iter().map(|step| {
        let what = serde_json::to_value(&step.what).unwrap()["step"].as_str().unwrap().to_owned();
        let what = if step.what.is_aside() { format!("[{what}]") } else { what };
        format!("{}-{} {what}", step.from - BORN, step.to - BORN)
    });
    told.collect()
}

#[test]
fn a_plain_run_with_tools_is_told_from_end_to_end() {
    let facts = [
        at(10, started()),
        at(12, asking("m")),
        at(20, RunEvent::FirstToken),
        at(30, said(30, None)),
        at(33, tool("a")),
        at(34, tool("b")),
        at(40, answered("b", 40)),
        at(50, answered("a", 50)),
        at(51, asking("m")),
        at(60, said(60, None)),
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
    assert_eq!(told(&facts, &[], 63), expected);
}

#[test]
fn failures_waits_and_those_who_step_in_have_their_names() {
    let why = || "busy".to_owned();
    let facts = [
        at(0, started()),
        at(2, asking("m")),
        at(
            5,
            RunEvent::Retrying {
                model: String::new(),
                attempt: (2, 5),
                after: std::time::Duration::from_millis(20),
                why: why(),
            },
        ),
        at(25, asking("m")),
        at(30, RunEvent::CandidateFailed { from: "p/m".to_owned(), reason: "rate_limit".to_owned(), why: why() }),
        at(31, RunEvent::Compacting),
        at(40, RunEvent::NotCompacted { why: why() }),
        at(40, asking("n")),
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
    assert_eq!(told(&facts, &[], 44), expected);
}

#[test]
fn one_that_never_began_waited_all_the_time() {
    assert_eq!(told(&[], &[], 9), ["0-9 queued"]);
    assert!(told(&[], &[], 0).is_empty());
}

#[test]
fn a_restart_in_the_middle_is_a_time_of_its_own() {
    let facts = [
        at(500, started()),
        at(500, said(30, None)),
        at(500, answered("a", 40)),
        at(510, asking("m")),
        at(530, said(530, None)),
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
    assert_eq!(told(&facts, &[10], 531), expected);
    // A run that is not resumed.
    assert_eq!(told(&facts[1..2], &[10], 500), ["0-10 queued", "10-30 model", "30-500 down"]);
    assert_eq!(told(&[], &[0], 500), ["0-500 down"]);
}

#[test]
fn every_restart_is_a_time_of_its_own() {
    let facts = [
        at(500, started()),
        at(500, said(30, None)),
        at(500, answered("a", 40)),
        at(220, RunEvent::Compacting),
        at(220, RunEvent::NotCompacted { why: "no".to_owned() }),
        at(500, said(250, None)),
        at(510, asking("m")),
        at(512, RunEvent::AnswerDropped { why: "empty".to_owned(), usage: Usage::default() }),
        at(512, asking("m")),
        at(530, said(530, None)),
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
    assert_eq!(told(&facts, &[10, 200, 300], 531), expected);
}

#[test]
fn hooks_on_the_last_messages_have_their_time() {
    let span = TimelineRange {
        accepted_at: BORN,
        earlier_starts: &[],
        held: None,
        stored_at: Some(BORN + 35),
        until: BORN + 90,
    };
    let answered = [at(10, started()), at(10, asking("m")), at(30, said(30, None))];
    assert_eq!(in_short(&answered, span), ["0-10 queued", "10-30 model", "30-35 finished", "35-90 finalHooks"]);
    let stopped = [at(10, started()), at(10, asking("m"))];
    assert_eq!(in_short(&stopped, span), ["0-10 queued", "10-35 model", "35-90 finalHooks"]);
    // The partial answer of a stopped run is stored after the hooks on it.
    let broken_off = [at(10, started()), at(10, asking("m")), at(35, said(35, None)), at(35, tool("a"))];
    let expected = ["0-10 queued", "10-35 model", "35-35 [tool]", "35-90 finalHooks"];
    assert_eq!(in_short(&broken_off, span), expected);
}

proptest! {
    #[test]
    fn whatever_happens_every_moment_has_one_name(
        kinds in proptest::collection::vec((0_u8..12, 0_u64..50), 0..60), resumed in any::<bool>(), tail in 0_u64..20,
        hooks in 0_u64..40
    ) {
        let mut now = 0;
        let facts: Vec<_> = kinds.iter().map(|(kind, later)| {
            now += later;
            let kind = match kind {
                0 => started(),
                1 | 2 => asking("m"),
                3 => RunEvent::FirstToken,
                4 => said(now, None),
                5 => tool("a"),
                6 => answered("a", now),
                7 => RunEvent::Retrying { model: String::new(), attempt: (2, 5), after: std::time::Duration::ZERO, why: String::new() },
                8 => RunEvent::CandidateFailed { from: String::new(), reason: String::new(), why: String::new() },
                9 => RunEvent::Compacting,
                10 => RunEvent::NotCompacted { why: String::new() },
                _ => said(now / 2, Some("broken")),
            };
            at(now, kind)
        }).collect();
        let until = BORN + now + tail;
        let begun: &[u64] = if resumed { &[BORN, BORN + 40, BORN + 80] } else { &[] };
        let stored_at = (hooks > 0).then(|| until.saturating_sub(hooks).max(BORN));
        let span = TimelineRange { accepted_at: BORN, earlier_starts: begun, held: None, stored_at, until };
        let steps = build_timeline(&facts, span);
        let main: Vec<_> = steps.all().iter().filter(|step| !step.what.is_aside()).collect();
        prop_assert_eq!(steps.covered_ms(), until - BORN);
        prop_assert!(main.windows(2).all(|pair| pair[0].to == pair[1].from));
    }
}
