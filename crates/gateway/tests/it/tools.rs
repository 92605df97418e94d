//! Recipients and detail of tool events.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use homard_agent::{Agents, HubRules, Profile, profile::LevelSettings};
use homard_model::{ModelEvent, stream::CallDelta};
use homard_proto::{AgentId, SessionId, message::StopReason, session::Record};
use homard_store::{Fence, MemoryStore, Rec, StoreWriter};
use serde_json::{Value, json};

use crate::support::{Script, TestClient, TestGateway, done, says};

/// Calls `echo`, then answers.
pub(crate) fn calls_a_tool() -> Script {
    let final_answer = says(&["done"]);
    Arc::new(move |answer| {
        if answer % 2 == 1 {
            return final_answer(answer);
        }
        let call = CallDelta {
            index: 0,
            id: Some("call-1".to_owned()),
            name: Some("echo".to_owned()),
            arguments: r#"{"x":1}"#.to_owned(),
        };
        stream::iter([ModelEvent::Call(call), done(StopReason::ToolUse)]).boxed()
    })
}

async fn gateway(verbose: Option<&str>) -> TestGateway {
    let store = MemoryStore::default();
    let mut record = Record::new(SessionId::parse("s-1").unwrap(), 1);
    record.verbose_level = verbose.map(str::to_owned);
    let patch = Rec::Patch { run: None, key: AgentId::main().main_session(), expect: None, record: Box::new(record) };
    store.commit(&Fence::default(), vec![patch]).await.unwrap();
    TestGateway::with_store(Arc::new(store), calls_a_tool()).await
}

/// Data of the tool events before the last response.
async fn tool_events(socket: &mut TestClient) -> Vec<Value> {
    let mut tools = Vec::new();
    loop {
        let frame = socket.next().await;
        if frame["payload"]["stream"] == "tool" {
            tools.push(frame["payload"]["data"].clone());
        }
        if frame["payload"]["status"] == "ok" || frame["payload"]["data"]["phase"] == "end" {
            return tools;
        }
    }
}

fn steps(detail: bool) -> Vec<Value> {
    let mut update = json!({"phase": "update", "name": "echo", "toolCallId": "call-1"});
    let mut result = json!({"phase": "result", "name": "echo", "toolCallId": "call-1", "isError": false});
    if detail {
        update["partialResult"] = json!({"content": [{"type": "text", "text": "half"}]});
        result["result"] = json!({"content": [{"type": "text", "text": r#"{"x":1}"#}]});
    }
    let start = json!({"phase": "start", "name": "echo", "toolCallId": "call-1", "args": {"x": 1}});
    vec![start, update, result]
}

async fn started(gateway: &TestGateway, protocol: u64, caps: Value) -> Vec<Value> {
    let mut socket = gateway.client(protocol, json!({"caps": caps})).await;
    socket.send("a", "agent", json!({"message": "x", "idempotencyKey": "k"})).await;
    tool_events(&mut socket).await
}

#[tokio::test]
async fn protocol_four_gets_all_tool_events_on_request() {
    for verbose in [None, Some("off"), Some("on"), Some("full")] {
        assert_eq!(started(&gateway(verbose).await, 4, json!(["tool-events"])).await, steps(true));
    }
    assert_eq!(started(&gateway(Some("full")).await, 4, json!([])).await, [] as [Value; 0]);
}

/// Case 123.
#[tokio::test]
async fn protocol_three_gets_tool_events_by_session_verbosity() {
    for (verbose, expected) in
        [(None, Vec::new()), (Some("off"), Vec::new()), (Some("on"), steps(false)), (Some("full"), steps(true))]
    {
        assert_eq!(started(&gateway(verbose).await, 3, json!(["tool-events"])).await, expected, "{verbose:?}");
    }
    assert_eq!(started(&gateway(Some("full")).await, 3, json!([])).await, [] as [Value; 0]);
}

#[tokio::test]
async fn protocol_three_falls_back_to_the_agents_verbosity() {
    for (verbose, expected) in [(None, steps(true)), (Some("off"), Vec::new())] {
        let gateway = gateway(verbose).await;
        let profile = (**gateway.hub.agents().get(&AgentId::main()).unwrap()).clone();
        gateway.hub.reconfigure(
            Agents::new(
                Profile {
                    default_levels: LevelSettings { verbose: Some("full"), ..LevelSettings::default() },
                    ..profile
                },
                [],
            ),
            HubRules::default(),
        );
        assert_eq!(started(&gateway, 3, json!(["tool-events"])).await, expected, "{verbose:?}");
    }
}

#[tokio::test]
async fn the_tool_calls_of_a_run_are_returned_with_their_results() {
    let gateway = gateway(Some("off")).await;
    started(&gateway, 4, json!([])).await;
    let mut socket = gateway.client(4, json!({})).await;
    let answer = socket.ask("w", "agent.wait", json!({"runId": "k", "timeoutMs": 10_000})).await;
    assert_eq!(answer["payload"]["status"], "ok");
    let answer = socket.ask("t", "runs.tools", json!({"id": "k"})).await["payload"].clone();
    let [call] = &answer["calls"].as_array().unwrap()[..] else { panic!("{answer}") };
    assert_eq!(
        (&call["call"], &call["name"], &call["arguments"]),
        (&json!("call-1"), &json!("echo"), &json!({"x": 1}))
    );
    assert_eq!(call["isError"], false);
    assert!(call["result"]["content"][0]["text"].is_string(), "{answer}");
    assert!(call["endedAt"].as_u64() >= call["startedAt"].as_u64());
    let short = socket.ask("s", "runs.tools", json!({"id": "k", "maxChars": 1})).await["payload"].clone();
    assert!(short["calls"][0]["result"]["content"][0]["text"].as_str() < call["result"]["content"][0]["text"].as_str());
    let unknown = socket.ask("u", "runs.tools", json!({"id": "nobody"})).await;
    assert!(unknown["error"]["message"].as_str().unwrap().starts_with("unknown run"), "{unknown}");
}

#[tokio::test]
async fn only_the_connection_that_started_a_run_gets_its_tool_events() {
    let gateway = gateway(None).await;
    let mut starter = gateway.client(4, json!({})).await;
    let mut other = gateway.client(4, json!({})).await;
    starter.send("a", "agent", json!({"message": "x", "idempotencyKey": "k"})).await;
    assert_eq!(tool_events(&mut starter).await, steps(true));
    assert_eq!(tool_events(&mut other).await, [] as [Value; 0]);
}
