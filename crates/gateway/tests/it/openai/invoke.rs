//! `/tools/invoke`.

use homard_gateway::Gateway;
use homard_store::ToolClass;
use serde_json::{Value, json};

use super::*;
use crate::support::says;

async fn invoked(world: &TestGateway, body: Value) -> (u16, Value) {
    let answer = post(world, "/tools/invoke", body).await;
    (answer.status, answer.json())
}

fn refused(kind: &str, message: &str) -> Value {
    json!({"ok": false, "error": {"type": kind, "message": message}})
}

#[tokio::test]
async fn a_tool_is_called_without_a_model() {
    let world = world(says(&["ok"])).await;
    let said = json!({"ok": true, "result": {"content": [{"type": "text", "text": r#"{"x":1}"#}]}});
    assert_eq!(invoked(&world, json!({"tool": "echo", "args": {"x": 1}})).await, (200, said.clone()));
    assert_eq!(invoked(&world, json!({"name": "echo", "args": {"x": 1}, "sessionKey": "notes"})).await, (200, said));
    assert_eq!(*world.message_counts.lock().unwrap(), [] as [usize; 0]);
}

#[tokio::test]
async fn what_cannot_be_called_is_told() {
    let world = world_with(says(&["ok"]), |endpoints| endpoints.denied_tools = vec!["echo".to_owned()]).await;
    for (body, answer) in [
        (json!({}), (400, refused("invalid_request", "tools.invoke requires tool, the name of a tool"))),
        (json!({"tool": "echo", "args": 7}), (400, refused("invalid_request", "args must be an object"))),
        (json!({"tool": "echo", "agentId": "ops"}), (400, refused("invalid_request", "unknown agent \"ops\""))),
        (json!({"tool": "echo", "agentId": 7}), (400, refused("invalid_request", "agentId must be a string"))),
        (json!({"tool": ["echo"]}), (400, refused("invalid_request", "tool must be a string"))),
        (json!({"tool": "nope"}), (404, refused("not_found", "Tool not available: nope"))),
        (json!({"tool": "exec"}), (404, refused("not_found", "Tool not available: exec"))),
        (
            json!({"tool": "echo"}),
            (403, refused("forbidden", "Tool not available: echo: denied by gateway.tools.deny")),
        ),
    ] {
        assert_eq!(invoked(&world, body).await, answer);
    }
}

#[tokio::test]
async fn what_a_tool_says_is_wrong_is_the_callers_and_what_breaks_is_ours() {
    let tools = [("echo", ToolClass::Read), ("count", ToolClass::Read)];
    let change = |gateway: Gateway| gateway.with_endpoints(all());
    let store = Arc::new(MemoryStore::default());
    let world = TestGateway::equipped(store, says(&["ok"]), HubRules::default(), &tools, change).await;
    let unfit = "The arguments for count do not fit its schema:\n  - /to: must be integer\nReceived: {\"to\":\"x\"}";
    for (body, answer) in [
        (json!({"tool": "count", "args": {"to": "x"}}), (400, refused("tool_error", unfit))),
        (
            json!({"tool": "echo", "args": {"fail": "there is no file a.txt"}}),
            (400, refused("tool_error", "there is no file a.txt")),
        ),
        (
            json!({"tool": "echo", "args": {"panic": true}}),
            (500, refused("tool_error", "echo failed with an internal error")),
        ),
    ] {
        assert_eq!(invoked(&world, body).await, answer);
    }
}

#[tokio::test]
async fn a_tool_with_effects_must_be_allowed_by_name() {
    let tools = [
        ("look", ToolClass::Read),
        ("set", ToolClass::Idempotent),
        ("write", ToolClass::Idempotent),
        ("bell__ring", ToolClass::Effect),
    ];
    let called = (200, json!({"ok": true, "result": {"content": [{"type": "text", "text": "{}"}]}}));
    let no = |message: &str| (403, refused("forbidden", &format!("Tool not available: {message}")));
    let why = "bell__ring: the tool may have side effects; add it to gateway.tools.allow to call it over HTTP";
    let (write_off, deny) =
        ("write: add the tool to gateway.tools.allow to call it over HTTP", "denied by gateway.tools.deny");
    for (allowed, denied, write, ring) in [
        (vec![], vec![], no(write_off), no(why)),
        (vec!["write", "Bell__Ring"], vec![], called.clone(), called.clone()),
        (
            vec!["write", "bell__ring"],
            vec!["bell__ring", "write"],
            no(&format!("write: {deny}")),
            no(&format!("bell__ring: {deny}")),
        ),
    ] {
        let list = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
        let endpoints = Endpoints { allowed_tools: list(allowed), denied_tools: list(denied), ..all() };
        let store = Arc::new(MemoryStore::default());
        let change = |gateway: Gateway| gateway.with_endpoints(endpoints);
        let world = TestGateway::equipped(store, says(&["ok"]), HubRules::default(), &tools, change).await;
        for (tool, answer) in [("look", &called), ("set", &called), ("write", &write), ("bell__ring", &ring)] {
            assert_eq!(invoked(&world, json!({"tool": tool})).await, *answer, "{tool}");
        }
    }
}
