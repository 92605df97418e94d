//! Finding and changing sessions, also while runs are active.

use std::sync::Arc;

use homard_agent::{
    DeletedSession, HubRules,
    auto_reset::{AutoReset, ResetMode, ResetRule},
    hub::SubmitOutcome,
    intake,
};
use homard_command::OWNER;
use homard_proto::{
    AgentId, Generation, SessionKey,
    method::{Params, agent::AgentParams},
};
use homard_store::{Fence, MemoryStore, Rec, StoreWriter, Verdict};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::support::{FaultyMemoryStore, TestClient, TestGateway, says, waits};

/// A store that contains these sessions.
async fn store(sessions: &[(&str, Value)]) -> Arc<MemoryStore> {
    let store = MemoryStore::default();
    for (key, record) in sessions {
        let key = SessionKey::parse(key, &AgentId::main()).unwrap();
        let record = serde_json::from_value(record.clone()).unwrap();
        store.commit(&Fence::default(), vec![Rec::Patch { run: None, key, expect: None, record }]).await.unwrap();
    }
    Arc::new(store)
}

/// Sends a message; the result comes later.
async fn send(socket: &mut TestClient, run: &str, key: &str, text: &str) {
    let params = json!({"message": text, "idempotencyKey": run, "sessionKey": key});
    assert_eq!(socket.ask(run, "agent", params).await["payload"]["status"], "accepted");
}

/// Transcript of a run, once it has ended successfully.
async fn session_of(socket: &mut TestClient, run: &str) -> String {
    let answer = socket.answer(run).await;
    assert_eq!(answer["payload"]["status"], "ok", "{answer}");
    answer["payload"]["result"]["meta"]["agentMeta"]["sessionId"].as_str().unwrap().to_owned()
}

async fn run(socket: &mut TestClient, run: &str, key: &str, text: &str) -> String {
    send(socket, run, key, text).await;
    session_of(socket, run).await
}

/// Texts of a session's messages.
async fn history_texts(socket: &mut TestClient, key: &str) -> Vec<String> {
    let history = socket.ask("history", "chat.history", json!({"sessionKey": key})).await;
    let messages = history["payload"]["messages"].as_array().unwrap().clone();
    messages.iter().map(|message| message["content"][0]["text"].as_str().unwrap().to_owned()).collect()
}

async fn error_of(socket: &mut TestClient, method: &str, params: Value) -> String {
    let answer = socket.ask("refused", method, params).await;
    assert_eq!((&answer["ok"], &answer["error"]["code"]), (&json!(false), &json!("INVALID_REQUEST")), "{answer}");
    answer["error"]["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_session_is_found_by_its_key_id_or_label() {
    let labelled = |id: &str, label: &str| json!({"sessionId": id, "updatedAt": 5, "label": label});
    let sessions =
        [("a", labelled("s-a", "mine")), ("b", labelled("s-b", "yours")), ("agent:ops:c", labelled("s-c", "yours"))];
    let gateway = TestGateway::with_store(store(&sessions).await, says(&["hi"])).await;
    let mut old = gateway.client(3, json!({})).await;
    let found = json!({"ok": true, "key": "agent:main:a"});
    for params in [json!({"key": " A "}), json!({"sessionId": "s-a"}), json!({"label": "mine"})] {
        assert_eq!(old.ask("1", "sessions.resolve", params).await["payload"], found);
    }
    let narrowed = old.ask("2", "sessions.resolve", json!({"label": "yours", "agentId": "ops"})).await;
    assert_eq!(narrowed["payload"]["key"], "agent:ops:c");
    for (params, why) in [
        (json!({}), "Either key, sessionId, or label is required"),
        (json!({"key": "nobody"}), "No session found: nobody"),
        (json!({"sessionId": "s-z"}), "No session found: s-z"),
        (json!({"label": "theirs"}), "No session found with label: theirs"),
        (json!({"key": "a", "label": "mine"}), "specify only one of key, sessionId and label"),
        (json!({"label": "yours"}), "several sessions match; specify the key of one: agent:main:b, agent:ops:c"),
    ] {
        assert_eq!(error_of(&mut old, "sessions.resolve", params).await, why);
    }
    let mut new = gateway.client(4, json!({})).await;
    let found = json!({"ok": true, "key": "agent:main:a", "agentId": "main"});
    assert_eq!(new.ask("1", "sessions.resolve", json!({"key": "a"})).await["payload"], found);
}

#[tokio::test]
async fn a_preview_shows_the_last_messages() {
    let gateway = TestGateway::with_store(store(&[("empty", json!({"sessionId": "s"}))]).await, says(&["hi"])).await;
    let mut socket = gateway.client(3, json!({})).await;
    run(&mut socket, "k1", "main", "one").await;
    run(&mut socket, "k2", "main", "two\n\nthree").await;
    let keys = json!({"keys": ["main", "empty", "nobody"], "limit": 2});
    let answer = socket.ask("1", "sessions.preview", keys).await;
    assert!(answer["payload"]["ts"].is_u64());
    let item = |role: &str, text: &str| json!({"role": role, "text": text});
    assert_eq!(
        answer["payload"]["previews"],
        json!([
            {"key": "main", "status": "ok", "items": [item("user", "two three"), item("assistant", "hi")]},
            {"key": "empty", "status": "empty", "items": []},
            {"key": "nobody", "status": "missing", "items": []},
        ])
    );
}

#[tokio::test]
async fn a_session_can_be_created_and_described() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    let mut socket = gateway.client(4, json!({})).await;
    let params = json!({"key": "tui-7", "parentSessionKey": "main", "label": "mine", "succeedsParent": true});
    let created = socket.ask("1", "sessions.create", params).await["payload"].take();
    assert_eq!((&created["ok"], &created["key"]), (&json!(true), &json!("agent:main:tui-7")));
    assert_eq!((&created["entry"]["label"], &created["entry"]["sessionId"]), (&json!("mine"), &created["sessionId"]));
    let described = socket.ask("2", "sessions.describe", json!({"key": "tui-7"})).await;
    let mut entry = created["entry"].clone();
    entry["hasActiveRun"] = false.into();
    entry["activeRunIds"] = json!([]);
    entry["snapshotAt"] = described["payload"]["session"]["snapshotAt"].clone();
    assert_eq!(described["payload"]["session"], entry);
    let missing = socket.ask("3", "sessions.describe", json!({"key": "nobody"})).await;
    assert_eq!(missing["payload"], json!({"session": null}));
    assert_eq!(run(&mut socket, "k", "tui-7", "x").await, created["sessionId"].as_str().unwrap());

    let named = json!({"idempotencyKey": "n1"});
    let first = socket.ask("4", "sessions.create", named.clone()).await["payload"].take();
    let again = socket.ask("5", "sessions.create", named).await["payload"].take();
    assert_eq!((&first["key"], &first["sessionId"]), (&again["key"], &again["sessionId"]));
    assert_eq!(
        error_of(&mut socket, "sessions.create", json!({"key": "x", "agentId": "nobody"})).await,
        "unknown agent id \"nobody\""
    );
}

#[tokio::test]
async fn a_patch_merges_into_the_stored_record() {
    let future = 9_000_000_000_000_u64;
    let before =
        json!({"sessionId": "s", "updatedAt": future, "thinkingLevel": "high", "verboseLevel": "on", "novel": [1]});
    let gateway = TestGateway::with_store(store(&[("main", before)]).await, says(&["hi"])).await;
    let mut old = gateway.client(3, json!({})).await;
    let params = json!({"key": "main", "label": " mine ", "thinkingLevel": "off", "verboseLevel": "FULL", "model": "test/scripted"});
    let entry = json!({
        "sessionId": "s", "updatedAt": future, "label": "mine", "verboseLevel": "full", "novel": [1],
        "providerOverride": "test", "modelOverride": "scripted",
    });
    assert_eq!(
        old.ask("1", "sessions.patch", params).await["payload"],
        json!({
            "ok": true, "path": "/state/agents/main/sessions/sessions.json", "key": "agent:main:main", "entry": entry,
            "resolved": {"modelProvider": "test", "model": "scripted"},
        })
    );
    let cleared = old.ask("2", "sessions.patch", json!({"key": "main", "label": null, "model": null})).await;
    let entry = json!({"sessionId": "s", "updatedAt": future, "verboseLevel": "full", "novel": [1]});
    assert_eq!(cleared["payload"]["entry"], entry);
    for (params, why) in [
        (
            json!({"key": "main", "thinkingLevel": "bogus"}),
            "invalid thinkingLevel (use off|minimal|low|medium|high|xhigh)",
        ),
        (
            json!({"key": "main", "sendPolicy": "maybe"}),
            "invalid sessions.patch params: at /sendPolicy: must match a schema in anyOf",
        ),
        (
            json!({"key": "main", "pinned": true}),
            "invalid sessions.patch params: at root: unexpected property 'pinned'",
        ),
        // Acceptance D10: what `/model` refuses.
        (json!({"key": "main", "model": "p/m"}), "p/m cannot be chosen: unknown model p/m"),
        (json!({"key": "main", "model": "m"}), "m cannot be chosen: unknown model m"),
        (json!({"key": "agent:nobody:x"}), "unknown agent id \"nobody\""),
    ] {
        assert_eq!(error_of(&mut old, "sessions.patch", params).await, why);
    }

    let mut new = gateway.client(4, json!({})).await;
    let pinned = json!({"key": "main", "pinned": true, "expectedSessionId": "s", "expectedMarkedUnreadAt": null});
    let entry = json!({"sessionId": "s", "updatedAt": future, "verboseLevel": "full", "novel": [1], "pinned": true});
    assert_eq!(new.ask("1", "sessions.patch", pinned).await["payload"]["entry"], entry);
    let stale = json!({"key": "main", "pinned": false, "expectedSessionId": "other"});
    assert_eq!(
        error_of(&mut new, "sessions.patch", stale).await,
        "the session has a new transcript since it was read; read it and try again"
    );
}

#[tokio::test]
async fn a_patch_during_a_run_outlives_it() {
    let gate = Arc::new(Semaphore::new(0));
    let gateway = TestGateway::new(waits(&gate)).await;
    let mut socket = gateway.client(3, json!({})).await;
    send(&mut socket, "k", "main", "x").await;
    let patched = socket.ask("1", "sessions.patch", json!({"key": "main", "label": "mine"})).await;
    assert_eq!(patched["payload"]["entry"]["label"], "mine");
    gate.add_permits(1);
    session_of(&mut socket, "k").await;
    let rows = socket.ask("2", "sessions.list", json!({})).await;
    let row = &rows["payload"]["sessions"][0];
    assert_eq!(json!([row["label"], row["inputTokens"]]), json!(["mine", 100]));
}

#[tokio::test]
async fn changes_need_the_admin_scope() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    let scopes = json!({"scopes": ["operator.read", "operator.write"]});
    let mut old = gateway.client(3, scopes.clone()).await;
    let mut new = gateway.client(4, scopes).await;
    let changes = ["patch", "reset", "delete", "compact", "compactions.undo"];
    for method in changes.map(|name| format!("sessions.{name}")) {
        let method = method.as_str();
        assert_eq!(error_of(&mut old, method, json!({"key": "main"})).await, "missing scope: operator.admin");
        assert_eq!(new.ask("1", method, json!({"key": "main"})).await["error"]["code"], "FORBIDDEN");
    }
    for (method, params) in [
        ("sessions.create", json!({"key": "x"})),
        ("sessions.describe", json!({"key": "x"})),
        ("sessions.resolve", json!({"key": "x"})),
        ("sessions.preview", json!({"keys": ["x"]})),
    ] {
        assert_eq!(new.ask("2", method, params).await["ok"], true, "{method}");
    }
}

#[tokio::test]
async fn sessions_are_listed_by_last_interaction_and_without_removed_agents() {
    let record_at =
        |at: u64, record_at: u64| json!({"sessionId": "s-1", "updatedAt": at, "lastInteractionAt": record_at});
    let sessions = [("one", record_at(3, 1)), ("two", record_at(2, 2)), ("agent:gone:main", record_at(1, 0))];
    let gateway = TestGateway::with_store(store(&sessions).await, says(&["hi"])).await;
    let mut socket = gateway.client(4, json!({})).await;
    for (params, keys) in [
        (json!({}), ["agent:main:one", "agent:main:two", "agent:gone:main"].as_slice()),
        (json!({"sortBy": "lastInteractionAt"}), &["agent:main:two", "agent:main:one", "agent:gone:main"]),
        (json!({"configuredAgentsOnly": true}), &["agent:main:one", "agent:main:two"]),
    ] {
        let listed = socket.ask("1", "sessions.list", params).await["payload"]["sessions"].take();
        let listed: Vec<_> = listed.as_array().unwrap().iter().map(|row| row["key"].as_str().unwrap()).collect();
        assert_eq!(listed, keys);
    }
}

#[tokio::test]
async fn a_run_ends_in_the_transcript_it_started_in() {
    for protocol in [3, 4] {
        let gate = Arc::new(Semaphore::new(0));
        let gateway = TestGateway::new(waits(&gate)).await;
        let mut socket = gateway.client(protocol, json!({})).await;
        socket.ask("label", "sessions.patch", json!({"key": "main", "label": "mine"})).await;
        send(&mut socket, "k1", "main", "one").await;
        send(&mut socket, "k2", "main", "two").await;
        let reset = socket.ask("reset", "sessions.reset", json!({"key": "main"})).await["payload"].take();
        assert_eq!((&reset["ok"], &reset["key"]), (&json!(true), &json!("agent:main:main")));
        assert_eq!(json!([reset["entry"]["label"], reset["entry"]["compactionCount"]]), json!(["mine", 0]));
        gate.add_permits(2);
        let first = session_of(&mut socket, "k1").await;
        let second = session_of(&mut socket, "k2").await;
        assert_ne!(first, second);
        assert_eq!(second, reset["entry"]["sessionId"].as_str().unwrap());
        assert_eq!(history_texts(&mut socket, "main").await, ["two", "hello world"]);
        gate.add_permits(1);
        assert_eq!(run(&mut socket, "k3", "main", "three").await, second);
        assert_eq!(*gateway.message_counts.lock().unwrap(), [1, 1, 3]);
        assert_eq!(history_texts(&mut socket, "main").await, ["two", "hello world", "three", "hello world"]);
    }
}

#[tokio::test]
async fn a_session_without_messages_can_be_reset() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    let mut old = gateway.client(3, json!({})).await;
    let first = old.ask("1", "sessions.reset", json!({"key": "garden"})).await;
    let again = old.ask("2", "sessions.reset", json!({"key": "garden"})).await;
    assert_ne!(first["payload"]["entry"]["sessionId"], again["payload"]["entry"]["sessionId"]);
    assert_eq!(
        error_of(&mut old, "sessions.reset", json!({"key": "garden", "reason": "new"})).await,
        "invalid sessions.reset params: at root: unexpected property 'reason'"
    );
    let mut new = gateway.client(4, json!({})).await;
    assert_eq!(new.ask("1", "sessions.reset", json!({"key": "garden", "reason": "new"})).await["ok"], true);
}

#[tokio::test]
async fn a_command_keeps_its_position_among_the_messages() {
    let gate = Arc::new(Semaphore::new(0));
    let gateway = TestGateway::new(waits(&gate)).await;
    let mut socket = gateway.client(3, json!({})).await;
    for (run, text) in [("k1", "one"), ("k2", "two"), ("k3", "/NEW Three"), ("k4", "four")] {
        send(&mut socket, run, "main", text).await;
    }
    gate.add_permits(4);
    let mut sessions = Vec::new();
    for run in ["k1", "k2", "k3", "k4"] {
        sessions.push(session_of(&mut socket, run).await);
    }
    assert_eq!((sessions[0] == sessions[1], sessions[2] == sessions[3]), (true, true));
    assert_ne!(sessions[1], sessions[2]);
    assert_eq!(history_texts(&mut socket, "main").await, ["Three", "hello world", "four", "hello world"]);
    assert_eq!(*gateway.message_counts.lock().unwrap(), [1, 3, 1, 3]);
    // A repeated request does not execute the command again.
    let params = json!({"message": "/NEW Three", "idempotencyKey": "k3", "sessionKey": "main"});
    assert_eq!(socket.ask("again", "agent", params).await["payload"]["status"], "ok");
    assert_eq!(history_texts(&mut socket, "main").await.len(), 4);
}

#[tokio::test]
async fn a_deleted_session_is_gone_with_its_runs() {
    let gate = Arc::new(Semaphore::new(0));
    let gateway = TestGateway::new(waits(&gate)).await;
    let mut socket = gateway.client(4, json!({})).await;
    send(&mut socket, "k1", "garden", "one").await;
    send(&mut socket, "k2", "garden", "two").await;
    let stale = json!({"key": "garden", "expectedSessionId": "other"});
    error_of(&mut socket, "sessions.delete", stale).await;
    let gone = json!({"ok": true, "key": "agent:main:garden", "deleted": true, "archived": []});
    assert_eq!(socket.ask("1", "sessions.delete", json!({"key": "garden"})).await["payload"], gone);
    for run in ["k1", "k2"] {
        let waited = socket.ask("2", "agent.wait", json!({"runId": run})).await;
        assert_eq!((&waited["payload"]["status"], &waited["payload"]["error"]), (&json!("error"), &json!("aborted")));
    }
    let described = socket.ask("3", "sessions.describe", json!({"key": "garden"})).await;
    assert_eq!(described["payload"], json!({"session": null}));
    let nothing = json!({"ok": true, "key": "agent:main:garden", "deleted": false, "archived": []});
    assert_eq!(socket.ask("4", "sessions.delete", json!({"key": "garden"})).await["payload"], nothing);
    gate.add_permits(1);
    run(&mut socket, "k3", "garden", "three").await;
    assert_eq!(history_texts(&mut socket, "garden").await, ["three", "hello world"]);
}

#[tokio::test]
async fn a_deletion_reports_the_archived_transcript() {
    let files: fn(Verdict) -> Verdict = |verdict| match verdict {
        Verdict::Archived(_) => Verdict::Archived(Some("/state/s.jsonl.deleted.1".into())),
        other @ (Verdict::Stored | Verdict::Duplicate(_) | Verdict::Conflict | Verdict::Full(_) | Verdict::Skipped) => {
            other
        }
    };
    let store = FaultyMemoryStore { after: files, ..FaultyMemoryStore::default() };
    let gateway = TestGateway::with_store(Arc::new(store), says(&["hi"])).await;
    let mut socket = gateway.client(3, json!({})).await;
    run(&mut socket, "k1", "garden", "one").await;
    let gone = json!({
        "ok": true, "key": "agent:main:garden", "deleted": true, "archived": ["/state/s.jsonl.deleted.1"],
    });
    assert_eq!(socket.ask("1", "sessions.delete", json!({"key": "garden"})).await["payload"], gone);
    let again = json!({"ok": true, "key": "agent:main:garden", "deleted": false, "archived": []});
    assert_eq!(socket.ask("2", "sessions.delete", json!({"key": "garden"})).await["payload"], again);
}

#[tokio::test]
async fn a_message_behind_a_deletion_runs_in_a_new_session() {
    let gate = Arc::new(Semaphore::new(0));
    let gateway = TestGateway::new(waits(&gate)).await;
    let mut socket = gateway.client(4, json!({})).await;
    send(&mut socket, "k1", "garden", "one").await;
    let key = SessionKey::parse("garden", &AgentId::main()).unwrap();
    let params = json!({"message": "two", "idempotencyKey": "k2", "sessionKey": "garden"});
    let params = AgentParams::decode(Generation::Four, Some(params)).unwrap();
    let inbound = intake::agent(&gateway.hub, OWNER, params).await.unwrap();
    // Each is handed to the lane when first polled, so the message is queued behind the deletion.
    let (deleted, accepted) = tokio::join!(gateway.hub.sessions().delete(&key, None), gateway.hub.submit(inbound));
    assert_eq!(deleted, Ok(Some(DeletedSession { archive: None })));
    assert!(matches!(accepted.unwrap().outcome, SubmitOutcome::New(_)));
    gate.add_permits(1);
    let waited = socket.ask("1", "agent.wait", json!({"runId": "k2"})).await;
    assert_eq!(waited["payload"]["status"], "ok");
    assert_eq!(history_texts(&mut socket, "garden").await, ["two", "hello world"]);
}

#[tokio::test]
async fn a_run_whose_session_has_a_new_transcript_is_not_resumed() {
    let store = store(&[]).await;
    let gateway = TestGateway::with_store(store.clone(), waits(&Arc::new(Semaphore::new(0)))).await;
    let mut socket = gateway.client(4, json!({})).await;
    send(&mut socket, "k1", "main", "one").await;
    socket.ask("1", "sessions.reset", json!({"key": "main"})).await;
    // Simulates a dead process: its model never answers.
    let next = TestGateway::with_store(store, says(&["hi"])).await;
    assert_eq!(next.hub.lifecycle().recover(Default::default()).await.map(|recovered| recovered.resumed), Ok(0));
    let mut socket = next.client(4, json!({})).await;
    let waited = socket.ask("1", "agent.wait", json!({"runId": "k1"})).await;
    let why = "INTERRUPTED: the gateway was restarted, and the session has a new transcript";
    assert_eq!((&waited["payload"]["status"], &waited["payload"]["error"]), (&json!("error"), &json!(why)));
    run(&mut socket, "k2", "main", "two").await;
    assert_eq!(history_texts(&mut socket, "main").await, ["two", "hi"]);
}

#[tokio::test]
async fn deleting_the_main_session_is_rejected() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    let mut socket = gateway.client(3, json!({})).await;
    assert_eq!(
        error_of(&mut socket, "sessions.delete", json!({"key": "main"})).await,
        "Cannot delete the main session (agent:main:main)."
    );
    let keep_transcript = json!({"key": "x", "deleteTranscript": false});
    assert!(error_of(&mut socket, "sessions.delete", keep_transcript).await.contains("not supported yet"));
}

// Case 75 and, with a scheduled run in place of a heartbeat, case 77.
#[tokio::test]
async fn a_stale_session_is_reset_by_the_next_message_of_a_person() {
    let idle = ResetRule { mode: Some(ResetMode::Idle), ..ResetRule::default() };
    let freshness = AutoReset { all: Some(idle), ..AutoReset::default() };
    let old = |id: &str| json!({"sessionId": id, "updatedAt": 5, "label": "mine"});
    let store = store(&[("a", old("s-a")), ("b", old("s-b")), ("c", old("s-c"))]).await;
    let gateway =
        TestGateway::with_rules(store, says(&["hi"]), HubRules { auto_reset: freshness, ..HubRules::default() }).await;
    let mut socket = gateway.client(3, json!({})).await;
    // A person's message finds the session stale, and keeps the new one fresh.
    let fresh = run(&mut socket, "k1", "a", "one").await;
    assert_ne!(fresh, "s-a");
    assert_eq!(run(&mut socket, "k2", "a", "two").await, fresh);
    assert_eq!(history_texts(&mut socket, "a").await, ["one", "hi", "two", "hi"]);
    let row = socket.ask("1", "sessions.list", json!({"search": "main:a"})).await;
    assert_eq!(row["payload"]["sessions"][0]["label"], "mine");
    // A named transcript is used even if it is stale.
    let named = json!({"message": "x", "idempotencyKey": "k3", "sessionId": "s-b"});
    socket.ask("k3", "agent", named).await;
    assert_eq!(session_of(&mut socket, "k3").await, "s-b");
    // A scheduled run neither starts a new session nor keeps the old one fresh.
    let scheduled = json!({"message": "x", "idempotencyKey": "k4", "sessionKey": "c", "lane": "cron"});
    socket.ask("k4", "agent", scheduled).await;
    assert_eq!(session_of(&mut socket, "k4").await, "s-c");
    assert_ne!(run(&mut socket, "k5", "c", "x").await, "s-c");
}
