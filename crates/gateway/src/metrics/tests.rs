//! Tests of the run metrics.

use std::{sync::Arc, time::Duration};

use homard_agent::{
    AbortReason, Outcome, QueueEvent, RequestEvent, RunEnd, RunEvent, StoredEvent, TapeEvent, ToolEvent,
};
use homard_proto::{
    CallId, EntryId, SessionId,
    message::{Assistant, Cost, ToolResult, Usage},
};
use serde_json::json;

use super::{Metrics, MetricsPage, RunProgress};

fn rows(metrics: &Metrics) -> Vec<String> {
    let mut page = MetricsPage::default();
    metrics.runs().write(&mut page);
    let is_number = |line: &&str| !line.starts_with('#') && !line.contains("_bucket");
    page.text().lines().filter(is_number).map(str::to_owned).collect()
}

fn ended(outcome: Outcome) -> RunEvent {
    RunEvent::Stored(StoredEvent::Ended(Arc::new(RunEnd {
        outcome,
        replies: Vec::new(),
        complete_reply: None,
        heartbeat: None,
        entries: Vec::new(),
        calls: Vec::new(),
        model: (String::new(), String::new()),
        usage: Usage::default(),
        last_usage: Usage::default(),
        truncated_input: None,
        is_summarized: false,
        session: None,
        started_at: None,
        ended_at: 0,
    })))
}

fn tool(call: &CallId, name: &str, is_error: bool) -> RunEvent {
    let result = ToolResult {
        tool_call_id: call.to_string(),
        tool_name: name.to_owned(),
        content: Vec::new(),
        details: None,
        is_error,
        timestamp: 0,
        extra: serde_json::Map::new(),
    };
    RunEvent::Stored(StoredEvent::ToolEnded { call: call.clone(), result: Arc::new(result), shown: None })
}

fn answer() -> RunEvent {
    let usage = Usage { input: 7, output: 5, cost: Cost { total: 0.25, ..Cost::default() }, ..Usage::default() };
    let answer = Assistant { usage, ..Assistant::default() };
    RunEvent::Stored(StoredEvent::Assistant { entry: EntryId::parse("e").unwrap(), message: Arc::new(answer) })
}

#[test]
fn a_run_is_counted_from_its_tape_without_invented_tool_names() {
    let metrics = Metrics::new(|name| name == "exec", None);
    let mut progress = RunProgress::default();
    let requested = || {
        RunEvent::Model(RequestEvent::Requested(Arc::new(
            serde_json::from_value(json!({"provider": "acme", "model": "m"})).unwrap(),
        )))
    };
    let (first_call, second_call) = (CallId::parse("1").unwrap(), CallId::parse("2").unwrap());
    let started = |call: &CallId| {
        RunEvent::Tool(ToolEvent::Started { call: call.clone(), name: String::new(), arguments: json!({}) })
    };
    let events = [
        (250, RunEvent::Stored(StoredEvent::Started { session: SessionId::parse("s").unwrap() })),
        (250, requested()),
        (
            300,
            RunEvent::Model(RequestEvent::Retrying {
                model: String::new(),
                attempt: (2, 5),
                after: Duration::ZERO,
                why: String::new(),
            }),
        ),
        (400, requested()),
        (500, RunEvent::Model(RequestEvent::FirstToken)),
        (900, answer()),
        (900, started(&first_call)),
        (900, started(&second_call)),
        (950, tool(&first_call, "exec", false)),
        (1000, tool(&second_call, "sk-made-up-by-a-model", true)),
        (1000, requested()),
        (
            1100,
            RunEvent::Model(RequestEvent::CandidateFailed {
                from: "acme/m".to_owned(),
                reason: "rate_limit".to_owned(),
                why: String::new(),
            }),
        ),
        (1250, ended(Outcome::Aborted(AbortReason::Timeout))),
    ];
    for (at, kind) in events {
        metrics.observe(&mut progress, &TapeEvent { at, kind });
    }
    assert_eq!(
        rows(&metrics),
        [
            "homard_runs_total{outcome=\"timeout\"} 1",
            "homard_run_seconds_sum 1",
            "homard_run_seconds_count 1",
            "homard_queue_wait_seconds_sum 0.25",
            "homard_queue_wait_seconds_count 1",
            "homard_model_calls_total{provider=\"acme\",outcome=\"error\"} 2",
            "homard_model_calls_total{provider=\"acme\",outcome=\"ok\"} 1",
            "homard_model_first_token_seconds_sum{provider=\"acme\"} 0.1",
            "homard_model_first_token_seconds_count{provider=\"acme\"} 1",
            "homard_model_call_seconds_sum{provider=\"acme\"} 0.5",
            "homard_model_call_seconds_count{provider=\"acme\"} 1",
            "homard_model_tokens_total{provider=\"acme\",kind=\"cache_read\"} 0",
            "homard_model_tokens_total{provider=\"acme\",kind=\"cache_write\"} 0",
            "homard_model_tokens_total{provider=\"acme\",kind=\"input\"} 7",
            "homard_model_tokens_total{provider=\"acme\",kind=\"output\"} 5",
            "homard_model_cost_dollars_total{provider=\"acme\"} 0.25",
            "homard_model_retries_total{provider=\"acme\"} 1",
            "homard_model_failovers_total{provider=\"acme\",reason=\"rate_limit\"} 1",
            "homard_tool_calls_total{tool=\"exec\",outcome=\"ok\"} 1",
            "homard_tool_calls_total{tool=\"unknown\",outcome=\"error\"} 1",
            "homard_tool_seconds_sum{tool=\"exec\"} 0.05",
            "homard_tool_seconds_count{tool=\"exec\"} 1",
            "homard_tool_seconds_sum{tool=\"unknown\"} 0.1",
            "homard_tool_seconds_count{tool=\"unknown\"} 1",
        ]
    );
}

#[test]
fn an_absorbed_message_has_no_run_duration() {
    let metrics = Metrics::default();
    let mut progress = RunProgress::default();
    let by = homard_proto::RunId::parse("host").unwrap();
    for kind in [RunEvent::Queue(QueueEvent::Absorbed { by }), ended(Outcome::Done)] {
        metrics.observe(&mut progress, &TapeEvent { at: 5, kind });
    }
    metrics.run_broken();
    let expected = ["homard_runs_total{outcome=\"absorbed\"} 1", "homard_runs_total{outcome=\"broken\"} 1"];
    assert_eq!(rows(&metrics), expected);
}
