//! `runs.*` and `usage.*`: timelines, token usage and cost.

use std::sync::Arc;

use homard_agent::{
    HubRules,
    budget::{BudgetLimit, BudgetLimits},
};
use homard_request_log::{DEFAULT_MAX_BYTES, RequestLog};
use homard_store::MemoryStore;
use serde_json::{Value, json};

use crate::support::{TestGateway, says};

async fn run(socket: &mut crate::support::TestClient, id: &str, message: &str) -> Value {
    let params = json!({"message": message, "idempotencyKey": id, "sessionKey": "main"});
    socket.ask(&format!("send-{id}"), "agent", params).await;
    socket.ask(&format!("wait-{id}"), "agent.wait", json!({"runId": id, "timeoutMs": 10_000})).await
}

#[tokio::test]
async fn the_trace_of_a_run_accounts_for_all_of_its_time() {
    let gateway = TestGateway::new(says(&["Hi ", "there."])).await;
    let mut socket = gateway.client(4, json!({})).await;
    assert_eq!(run(&mut socket, "r1", "hello").await["payload"]["status"], "ok");
    let trace = socket.ask("1", "runs.trace", json!({"id": "r1"})).await["payload"].clone();
    assert_eq!(trace["run"]["runId"], "r1");
    assert_eq!(trace["run"]["status"], "ok");
    assert_eq!(trace["accountedMs"], trace["totalMs"]);
    let model_steps: Vec<_> =
        trace["steps"].as_array().unwrap().iter().filter(|step| step["step"] == "model").collect();
    assert_eq!(model_steps.len(), 1);
    assert_eq!(model_steps[0]["prompt"]["messages"], 1);
    assert!(model_steps[0]["prompt"]["sections"].as_array().unwrap().len() > 3);
    assert!(model_steps[0]["firstMs"].is_u64());
    // `last` finds the newest run; its prompt begins with the same sections as that of the first request.
    assert_eq!(run(&mut socket, "r2", "again").await["payload"]["status"], "ok");
    let last = socket.ask("2", "runs.trace", json!({"id": "last"})).await["payload"].clone();
    assert_eq!(last["run"]["runId"], "r2");
    let model_steps = last["steps"].as_array().unwrap().iter().find(|step| step["step"] == "model").unwrap();
    assert_eq!((model_steps["prompt"].get("changed"), model_steps["prompt"].get("sections")), (None, None));
    assert_eq!(socket.ask("3", "runs.get", json!({"id": "r2"})).await["payload"]["run"]["status"], "ok");
}

#[tokio::test]
async fn runs_are_listed_newest_first_page_by_page() {
    let gateway = TestGateway::new(says(&["Hi."])).await;
    let mut socket = gateway.client(3, json!({})).await;
    for id in ["a", "b", "c"] {
        run(&mut socket, id, "hello").await;
    }
    let names = |answer: Value| -> Vec<String> {
        let runs = answer["payload"]["runs"].as_array().unwrap().clone();
        runs.iter().map(|run| run["runId"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(socket.ask("1", "runs.list", json!({"limit": 2})).await), ["c", "b"]);
    assert_eq!(names(socket.ask("2", "runs.list", json!({"before": "b"})).await), ["a"]);
    assert!(names(socket.ask("3", "runs.list", json!({"sessionKey": "agent:main:other"})).await).is_empty());
}

#[tokio::test]
async fn runs_are_filtered() {
    let gateway = TestGateway::new(says(&["Hi."])).await;
    let mut socket = gateway.client(4, json!({})).await;
    for id in ["first-run", "second-run"] {
        run(&mut socket, id, "hello").await;
    }
    for (filter, expected) in [
        (json!({"search": "SECOND"}), vec!["second-run"]),
        (json!({"status": "ok"}), vec!["second-run", "first-run"]),
        (json!({"status": "error"}), vec![]),
        (json!({"agentId": "main", "search": "first"}), vec!["first-run"]),
        (json!({"agentId": "other"}), vec![]),
        (json!({"channel": "telegram"}), vec![]),
        (json!({"status": "ok", "before": "second-run"}), vec!["first-run"]),
    ] {
        let answer = socket.ask(&filter.to_string(), "runs.list", filter.clone()).await;
        let runs = answer["payload"]["runs"].as_array().unwrap();
        let names: Vec<_> = runs.iter().map(|run| run["runId"].as_str().unwrap()).collect();
        assert_eq!(names, expected, "{filter}");
    }
    // All were examined, so there is no next page; with a limit there may be.
    let answer = socket.ask("p", "runs.list", json!({"status": "ok", "limit": 1})).await["payload"].clone();
    assert_eq!((&answer["runs"][0]["runId"], &answer["next"]), (&json!("second-run"), &json!("second-run")));
    let refused = socket.ask("x", "runs.list", json!({"status": "fine"})).await;
    assert!(refused["error"]["message"].as_str().unwrap().starts_with("invalid runs.list params"), "{refused}");
}

#[tokio::test]
async fn the_prompt_of_a_request_is_returned_and_compared() {
    let folder = tempfile::tempdir().unwrap();
    let request_log = RequestLog::open(folder.path().join("prompts"), DEFAULT_MAX_BYTES, || 1);
    let rules = HubRules { request_log, ..HubRules::default() };
    let gateway = TestGateway::with_rules(Arc::new(MemoryStore::default()), says(&["Hi."]), rules).await;
    let mut socket = gateway.client(4, json!({})).await;
    run(&mut socket, "a", "hello").await;
    run(&mut socket, "b", "hello again").await;
    let first = socket.ask("1", "runs.prompt", json!({"id": "a", "request": 0})).await["payload"].clone();
    assert_eq!((&first["requests"], &first["request"], &first["isKept"]), (&json!(1), &json!(0), &json!(true)));
    assert_eq!((first.get("previous"), &first["changed"]), (None, &json!("")), "there was none before");
    let identity = first["sections"][0].clone();
    assert_eq!((&identity["name"], identity.get("change")), (&json!("Identity"), None));
    assert_eq!(identity["text"].as_str().unwrap().chars().count() as u64, identity["chars"]);
    let second = socket.ask("2", "runs.prompt", json!({"id": "b", "maxChars": 3})).await["payload"].clone();
    assert_eq!((&second["previous"]["runId"], &second["previous"]["isKept"]), (&json!("a"), &json!(true)));
    let sections = second["sections"].as_array().unwrap();
    assert!(sections.iter().all(|section| section["change"] == "same" && section["text"].as_str().unwrap().len() <= 3));
    let new: Vec<_> = second["messages"].as_array().unwrap().iter().map(|message| message["isNew"].clone()).collect();
    assert_eq!(new.last(), Some(&json!(true)), "{second}");
    let refused = socket.ask("3", "runs.prompt", json!({"id": "a", "request": 7})).await;
    let expected = "invalid runs.prompt params: request: the run made 1 model requests";
    assert_eq!(refused["error"]["message"], expected);
}

#[tokio::test]
async fn unknown_runs_and_invalid_parameters_are_rejected() {
    let gateway = TestGateway::new(says(&["Hi."])).await;
    let mut socket = gateway.client(4, json!({})).await;
    let error_message = |answer: Value| answer["error"]["message"].as_str().unwrap().to_owned();
    let unknown = error_message(socket.ask("1", "runs.trace", json!({"id": "nobody"})).await);
    assert_eq!(unknown, "unknown run: nobody; runs.list returns the known runs");
    assert!(
        error_message(socket.ask("2", "runs.list", json!({"limit": 0})).await).starts_with("invalid runs.list params")
    );
    let day = error_message(socket.ask("3", "usage.cost", json!({"startDate": "2026-13-77"})).await);
    assert_eq!(day, "invalid date: 2026-13-77; write it as 2026-11-15");
}

#[tokio::test]
async fn usage_is_reported_by_day_and_by_session() {
    let gateway = TestGateway::new(says(&["Hi."])).await;
    let mut socket = gateway.client(4, json!({})).await;
    run(&mut socket, "a", "hello").await;
    run(&mut socket, "b", "hello").await;
    let cost = socket.ask("1", "usage.cost", json!({"days": 2})).await["payload"].clone();
    let sessions = socket.ask("2", "sessions.usage", json!({})).await["payload"].clone();
    let points = socket.ask("3", "sessions.usage.timeseries", json!({"key": "main"})).await["payload"].clone();
    let tokens_per_run = points["points"][0]["totalTokens"].as_u64().unwrap();
    assert!(tokens_per_run > 0, "the scripted model takes something");
    assert_eq!((cost["days"].clone(), cost["totals"]["totalTokens"].clone()), (json!(2), json!(2 * tokens_per_run)));
    assert_eq!(cost["daily"].as_array().unwrap().len(), 1);
    assert_eq!(sessions["sessions"][0]["usage"]["totalTokens"], 2 * tokens_per_run);
    assert_eq!(sessions["sessions"][0]["usage"]["runs"], 2);
    assert_eq!(sessions["aggregates"]["byModel"][0]["count"], 2);
    assert_eq!(points["points"][1]["cumulativeTokens"], 2 * tokens_per_run);
    let logs = socket.ask("4", "sessions.usage.logs", json!({"key": "main"})).await["payload"]["logs"].clone();
    let roles: Vec<_> = logs.as_array().unwrap().iter().map(|line| line["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant"]);
}

#[tokio::test]
async fn a_run_over_budget_is_rejected_with_a_hint() {
    let tokens = BudgetLimit { tokens: Some(10), cost: None };
    let rules = HubRules { budgets: BudgetLimits { day: tokens, ..BudgetLimits::default() }, ..HubRules::default() };
    let gateway = TestGateway::with_rules(Arc::new(MemoryStore::default()), says(&["Hi."]), rules).await;
    let mut socket = gateway.client(4, json!({})).await;
    let waited = run(&mut socket, "a", "hello").await;
    let error = waited["payload"]["error"].as_str().unwrap().to_owned();
    assert!(error.starts_with("Your message was not answered: the budget for today is 10 tokens"), "{error}");
    assert!(error.ends_with("To raise it, set budgets.day.tokens"), "{error}");
    assert!(gateway.message_counts.lock().unwrap().is_empty(), "nobody was asked");
}
