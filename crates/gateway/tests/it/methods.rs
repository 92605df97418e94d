//! The remaining methods: their results and required scopes.

use std::sync::Arc;

use homard_proto::{AgentId, SessionId, SessionKey, session::Record};
use homard_store::{Fence, MemoryStore, Rec, StoreWriter};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::support::{TestClient, TestGateway, says, waits};

async fn run(socket: &mut TestClient, run: &str, key: &str, text: &str) {
    let params = json!({"message": text, "idempotencyKey": run, "sessionKey": key});
    assert_eq!(socket.ask(run, "agent", params).await["payload"]["status"], "accepted");
    assert_eq!(socket.answer(run).await["payload"]["status"], "ok");
}

#[tokio::test]
async fn a_method_needs_its_scope() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    let agent = json!({"message": "x", "idempotencyKey": "k"});
    let mut old = gateway.client(3, json!({"scopes": ["operator.read"]})).await;
    assert_eq!(old.ask("1", "health", json!({})).await["ok"], true);
    let refused = json!({"code": "INVALID_REQUEST", "message": "missing scope: operator.write"});
    assert_eq!(old.ask("2", "agent", agent.clone()).await["error"], refused);

    let mut new = gateway.client(4, json!({"scopes": ["operator.read"]})).await;
    assert_eq!(new.ask("1", "health", json!({})).await["ok"], true);
    let refused = json!({
        "code": "FORBIDDEN", "message": "missing scope: operator.write",
        "details": {
            "code": "MISSING_SCOPE", "missingScope": "operator.write", "requiredScopes": ["operator.write"],
        },
    });
    assert_eq!(new.ask("2", "agent", agent.clone()).await["error"], refused);

    let mut unprivileged = gateway.client(4, json!({"scopes": []})).await;
    assert_eq!(unprivileged.ask("1", "health", json!({})).await["error"]["code"], "FORBIDDEN");
    // Without the scope it receives no run events either.
    let mut all_scopes = gateway.client(3, json!({"scopes": []})).await;
    run(&mut all_scopes, "k", "main", "x").await;
    let answer = unprivileged.ask("2", "status", json!({})).await;
    assert_eq!((&answer["id"], &answer["ok"]), (&json!("2"), &json!(false)));
}

#[tokio::test]
async fn health_and_status_report_sessions_and_heartbeats() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    let mut socket = gateway.client(3, json!({})).await;
    run(&mut socket, "k", "garden", "x").await;
    let mut health = socket.ask("1", "health", json!({"probe": true})).await["payload"].take();
    let age = |recent: &mut Value| {
        assert_eq!(recent["key"], "agent:main:garden");
        assert!(recent["updatedAt"].is_u64() && recent["age"].is_u64());
        *recent = json!("seen");
    };
    age(&mut health["sessions"]["recent"][0]);
    age(&mut health["agents"][0]["sessions"]["recent"][0]);
    assert!(health["ts"].take().is_u64() && health["durationMs"].take().is_u64());
    let sessions = json!({"path": "/state/agents/main/sessions/sessions.json", "count": 1, "recent": ["seen"]});
    assert_eq!(
        health,
        json!({
            "ok": true, "ts": null, "durationMs": null, "channels": {}, "channelOrder": [], "channelLabels": {},
            "heartbeatSeconds": 1800, "defaultAgentId": "main", "sessions": sessions,
            "work": {"queued": 0, "running": 0, "longRunning": 0, "stalled": 0, "stuck": 0, "slow": []},
            "degraded": [],
            "agents": [{
                "agentId": "main", "isDefault": true, "sessions": sessions,
                "heartbeat": {
                    "enabled": true, "every": "30m", "everyMs": 1_800_000, "prompt": "", "target": "last", "ackMaxChars": 300,
                },
            }],
        })
    );
    let status = socket.ask("2", "status", json!(null)).await["payload"].take();
    assert_eq!(
        status["heartbeat"]["agents"],
        json!([{"agentId": "main", "enabled": true, "every": "30m", "everyMs": 1_800_000}])
    );
    assert_eq!(status["sessions"]["count"], 1);
    assert_eq!(status["sessions"]["defaults"], json!({"model": "scripted", "contextTokens": 100_000}));
    let row = &status["sessions"]["recent"][0];
    assert_eq!(
        json!([row["key"], row["totalTokens"], row["remainingTokens"], row["percentUsed"]]),
        json!(["agent:main:garden", 100, 99_900, 0])
    );
    assert_eq!(status["sessions"]["recent"], status["sessions"]["byAgent"][0]["recent"]);
}

#[tokio::test]
async fn sessions_are_listed_newest_first_and_in_pages() {
    let store = MemoryStore::default();
    for (name, at) in [("a", 10), ("b", 30), ("c", 20)] {
        let key = SessionKey::parse(name, &AgentId::main()).unwrap();
        let record = Box::new(Record::new(SessionId::parse(name).unwrap(), at));
        store.commit(&Fence::default(), vec![Rec::Patch { run: None, key, expect: None, record }]).await.unwrap();
    }
    let gateway = TestGateway::with_store(Arc::new(store), says(&["hi"])).await;
    let keys = |answer: &Value| -> Vec<String> {
        let rows = answer["payload"]["sessions"].as_array().unwrap();
        rows.iter().map(|row| row["key"].as_str().unwrap().replace("agent:main:", "")).collect()
    };
    let mut old = gateway.client(3, json!({})).await;
    let all = old.ask("1", "sessions.list", json!({})).await;
    assert_eq!(keys(&all), ["b", "c", "a"]);
    assert_eq!(all["payload"]["count"], 3);
    assert_eq!(
        all["payload"]["defaults"],
        json!({"modelProvider": "test", "model": "scripted", "contextTokens": 100_000})
    );
    assert_eq!(all["payload"].get("totalCount"), None);
    assert_eq!(keys(&old.ask("2", "sessions.list", json!({"limit": 1})).await), ["b"]);

    let mut new = gateway.client(4, json!({})).await;
    let page = new.ask("1", "sessions.list", json!({"limit": 2})).await;
    assert_eq!(keys(&page), ["b", "c"]);
    let page_info = |page: &Value| {
        let page = &page["payload"];
        json!([page["totalCount"], page["limitApplied"], page["hasMore"], page["nextOffset"]])
    };
    assert_eq!(page_info(&page), json!([3, 2, true, 2]));
    let page = new.ask("2", "sessions.list", json!({"limit": 2, "offset": 2})).await;
    assert_eq!((keys(&page), page_info(&page)), (vec!["a".to_owned()], json!([3, 2, false, null])));
}

#[tokio::test]
async fn history_is_ordered_newest_last() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    let mut socket = gateway.client(3, json!({})).await;
    run(&mut socket, "k1", "main", "one").await;
    run(&mut socket, "k2", "main", "two").await;
    let texts = |answer: &Value| -> Vec<String> {
        let text = |message: &Value| {
            let content = &message["content"];
            content.as_str().or_else(|| content[0]["text"].as_str()).unwrap().to_owned()
        };
        answer["payload"]["messages"].as_array().unwrap().iter().map(text).collect()
    };
    let all = socket.ask("1", "chat.history", json!({"sessionKey": "main"})).await;
    assert_eq!(texts(&all), ["one", "hi", "two", "hi"]);
    assert_eq!(all["payload"]["sessionKey"], "main");
    assert_eq!(all["payload"]["thinkingLevel"], "off");
    assert!(all["payload"]["sessionId"].is_string());
    assert_eq!(all["payload"]["messages"][2]["idempotencyKey"], "k2:user");
    let newest = socket.ask("2", "chat.history", json!({"sessionKey": "agent:main:main", "limit": 2})).await;
    assert_eq!(texts(&newest), ["two", "hi"]);
    let none = socket.ask("3", "chat.history", json!({"sessionKey": "nobody"})).await;
    assert_eq!(none["payload"], json!({"sessionKey": "nobody", "thinkingLevel": "off", "messages": []}));
    let too_many = socket.ask("4", "chat.history", json!({"sessionKey": "main", "limit": 1001})).await;
    assert_eq!(too_many["error"]["message"], "invalid chat.history params: at /limit: must be <= 1000");

    let mut new = gateway.client(4, json!({})).await;
    let page = new.ask("1", "chat.history", json!({"sessionKey": "main", "limit": 3})).await;
    assert_eq!(texts(&page), ["hi", "two", "hi"]);
    let page_info = &page["payload"];
    assert_eq!(
        json!([page_info["hasMore"], page_info["totalMessages"], page_info["pendingInputs"]]),
        json!([true, 4, {"items": [], "total": 0}])
    );
}

#[tokio::test]
async fn a_run_can_be_aborted() {
    for protocol in [3, 4] {
        let gate = Arc::new(Semaphore::new(0));
        let gateway = TestGateway::new(waits(&gate)).await;
        let mut socket = gateway.client(protocol, json!({})).await;
        let not_aborted = json!({"ok": true, "aborted": false, "runIds": []});
        let abort = |run: &str, key: &str| json!({"sessionKey": key, "runId": run});
        assert_eq!(socket.ask("1", "chat.abort", json!({"sessionKey": "main"})).await["payload"], not_aborted);
        socket.ask("k", "agent", json!({"message": "x", "idempotencyKey": "k", "sessionKey": "main"})).await;
        assert_eq!(socket.ask("2", "chat.abort", abort("nope", "main")).await["payload"], not_aborted);
        let other_session = socket.ask("3", "chat.abort", abort("k", "other")).await;
        let stopped = json!({"ok": true, "aborted": true, "runIds": ["k"]});
        if protocol == 3 {
            assert_eq!(other_session["error"]["message"], "runId does not match sessionKey");
            assert_eq!(socket.ask("4", "chat.abort", abort("k", "main")).await["payload"], stopped);
        } else {
            assert_eq!(other_session["payload"], stopped);
        }
        let waited = socket.ask("5", "agent.wait", json!({"runId": "k"})).await;
        assert_eq!((&waited["payload"]["status"], &waited["payload"]["error"]), (&json!("error"), &json!("aborted")));
    }
}
