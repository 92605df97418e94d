//! `/tools/invoke`.

use homard_gateway::Gateway;
use homard_store::ToolClass;
use serde_json::{Value, json};

use super::*;
use crate::support::says;

async fn invoke(gateway: &TestGateway, body: Value) -> (u16, Value) {
    let answer = post(gateway, "/tools/invoke", body).await;
    (answer.status, answer.json())
}

fn error_body(kind: &str, message: &str) -> Value {
    json!({"ok": false, "error": {"type": kind, "message": message}})
}

#[tokio::test]
async fn a_tool_is_called_without_a_model() {
    let gateway = gateway(says(&["ok"])).await;
    let expected = json!({"ok": true, "result": {"content": [{"type": "text", "text": r#"{"x":1}"#}]}});
    assert_eq!(invoke(&gateway, json!({"tool": "echo", "args": {"x": 1}})).await, (200, expected.clone()));
    assert_eq!(
        invoke(&gateway, json!({"name": "echo", "args": {"x": 1}, "sessionKey": "notes"})).await,
        (200, expected)
    );
    assert_eq!(*gateway.message_counts.lock().unwrap(), [] as [usize; 0]);
}

#[tokio::test]
async fn tools_that_cannot_be_called_are_rejected() {
    let gateway = gateway_with(says(&["ok"]), |endpoints| endpoints.denied_tools = vec!["echo".to_owned()]).await;
    for (body, answer) in [
        (json!({}), (400, error_body("invalid_request", "tools.invoke requires tool, the name of a tool"))),
        (json!({"tool": "echo", "args": 7}), (400, error_body("invalid_request", "args must be an object"))),
        (json!({"tool": "echo", "agentId": "ops"}), (400, error_body("invalid_request", "unknown agent \"ops\""))),
        (json!({"tool": "echo", "agentId": 7}), (400, error_body("invalid_request", "agentId must be a string"))),
        (json!({"tool": ["echo"]}), (400, error_body("invalid_request", "tool must be a string"))),
        (json!({"tool": "nope"}), (404, error_body("not_found", "Tool not available: nope"))),
        (json!({"tool": "exec"}), (404, error_body("not_found", "Tool not available: exec"))),
        (
            json!({"tool": "echo"}),
            (403, error_body("forbidden", "Tool not available: echo: denied by gateway.tools.deny")),
        ),
    ] {
        assert_eq!(invoke(&gateway, body).await, answer);
    }
}

#[tokio::test]
async fn tool_errors_are_client_errors_and_panics_are_server_errors() {
    let tools = [("echo", ToolClass::Read), ("count", ToolClass::Read)];
    let change = |gateway: Gateway| gateway.with_endpoints(all());
    let store = Arc::new(MemoryStore::default());
    let gateway = TestGateway::with_tools(store, says(&["ok"]), HubRules::default(), &tools, change).await;
    let schema_error =
        "The arguments for count do not fit its schema:\n  - /to: must be integer\nReceived: {\"to\":\"x\"}";
    for (body, answer) in [
        (json!({"tool": "count", "args": {"to": "x"}}), (400, error_body("tool_error", schema_error))),
        (
            json!({"tool": "echo", "args": {"fail": "there is no file a.txt"}}),
            (400, error_body("tool_error", "there is no file a.txt")),
        ),
        (
            json!({"tool": "echo", "args": {"panic": true}}),
            (500, error_body("tool_error", "echo failed with an internal error")),
        ),
    ] {
        assert_eq!(invoke(&gateway, body).await, answer);
    }
}

#[tokio::test]
async fn a_tool_with_side_effects_must_be_allowed_by_name() {
    let tools = [
        ("look", ToolClass::Read),
        ("set", ToolClass::Idempotent),
        ("write", ToolClass::Idempotent),
        ("bell__ring", ToolClass::Effect),
    ];
    let called = (200, json!({"ok": true, "result": {"content": [{"type": "text", "text": "{}"}]}}));
    let forbidden = |message: &str| (403, error_body("forbidden", &format!("Tool not available: {message}")));
    let ring_reason = "bell__ring: the tool may have side effects; add it to gateway.tools.allow to call it over HTTP";
    let (write_reason, deny) =
        ("write: add the tool to gateway.tools.allow to call it over HTTP", "denied by gateway.tools.deny");
    for (allowed, denied, write, ring) in [
        (vec![], vec![], forbidden(write_reason), forbidden(ring_reason)),
        (vec!["write", "Bell__Ring"], vec![], called.clone(), called.clone()),
        (
            vec!["write", "bell__ring"],
            vec!["bell__ring", "write"],
            forbidden(&format!("write: {deny}")),
            forbidden(&format!("bell__ring: {deny}")),
        ),
    ] {
        let list = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
        let endpoints = Endpoints { allowed_tools: list(allowed), denied_tools: list(denied), ..all() };
        let store = Arc::new(MemoryStore::default());
        let change = |gateway: Gateway| gateway.with_endpoints(endpoints);
        let gateway = TestGateway::with_tools(store, says(&["ok"]), HubRules::default(), &tools, change).await;
        for (tool, answer) in [("look", &called), ("set", &called), ("write", &write), ("bell__ring", &ring)] {
            assert_eq!(invoke(&gateway, json!({"tool": tool})).await, *answer, "{tool}");
        }
    }
}
