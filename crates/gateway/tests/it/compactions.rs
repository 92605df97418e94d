//! Compaction of sessions, and undoing it.

use homard_proto::message::{Block, Content, Message};
use serde_json::{Value, json};

use crate::support::{TestClient, TestGateway, says};

/// Sends four messages that are long together and waits for the answers.
async fn send_turns(socket: &mut TestClient) {
    for turn in 0..4 {
        let (run, text) = (format!("k{turn}"), format!("turn {turn}: {}", "word ".repeat(12_000)));
        let params = json!({"message": text, "idempotencyKey": run, "sessionKey": "main"});
        assert_eq!(socket.ask(&run, "agent", params).await["payload"]["status"], "accepted");
        assert_eq!(socket.answer(&run).await["payload"]["status"], "ok");
    }
}

async fn request(socket: &mut TestClient, method: &str, params: Value) -> Value {
    let mut answer = socket.ask(method, method, params).await;
    assert_eq!(answer["ok"], true, "{answer}");
    answer["payload"].take()
}

/// Which of the four messages the last model request contained.
fn turns_in_prompt(gateway: &TestGateway) -> Vec<usize> {
    let requests = gateway.requests.lock().unwrap();
    let messages = &requests.last().unwrap().messages;
    let has = |turn: &usize| {
        let prefix = format!("turn {turn}: word");
        messages.iter().any(|message| match &**message {
            Message::User(user) => match &user.content {
                Content::Text(text) => text.len() > 50_000 && text.contains(&prefix),
                Content::Blocks(blocks) => {
                    let mut texts = blocks.iter().filter_map(Block::as_text);
                    texts.any(|text| text.len() > 50_000 && text.contains(&prefix))
                }
            },
            Message::Assistant(_) | Message::ToolResult(_) | Message::Other(_) => false,
        })
    };
    (0..4).filter(has).collect()
}

#[tokio::test]
async fn a_session_is_compacted_and_the_compaction_undone() {
    for protocol in [3, 4] {
        let gateway = TestGateway::new(says(&["hi"])).await;
        let mut socket = gateway.client(protocol, json!({})).await;
        send_turns(&mut socket).await;
        let compaction = request(&mut socket, "sessions.compact", json!({"key": "main", "focus": "the words"})).await;
        let result = json!([compaction["ok"], compaction["key"], compaction["compacted"]]);
        assert_eq!(result, json!([true, "agent:main:main", true]), "{compaction}");
        let tokens = |name: &str| compaction[name].as_u64().unwrap();
        assert!(tokens("tokensAfter") < tokens("tokensBefore"), "{compaction}");

        let row = |listed: &Value| {
            let rows = listed["compactions"].as_array().unwrap();
            assert_eq!((rows.len(), &listed["key"]), (1, &json!("agent:main:main")), "{listed}");
            json!([rows[0]["id"], rows[0]["way"], rows[0]["tokensBefore"], rows[0]["undone"]])
        };
        let listed = request(&mut socket, "sessions.compactions", json!({"key": "main"})).await;
        assert_eq!(row(&listed), json!([compaction["id"], compaction["way"], compaction["tokensBefore"], false]));
        assert!(!listed["compactions"][0]["summary"].as_str().unwrap().is_empty());

        let message = json!({"message": "and?", "idempotencyKey": "short", "sessionKey": "main"});
        socket.ask("short", "agent", message).await;
        assert_eq!(socket.answer("short").await["payload"]["status"], "ok");
        assert_eq!(turns_in_prompt(&gateway), [2, 3]);

        let undone =
            request(&mut socket, "sessions.compactions.undo", json!({"key": "main", "id": compaction["id"]})).await;
        assert_eq!(undone, json!({"ok": true, "key": "agent:main:main", "id": compaction["id"]}));
        let listed = request(&mut socket, "sessions.compactions", json!({"key": "main"})).await;
        assert_eq!(row(&listed), json!([compaction["id"], compaction["way"], compaction["tokensBefore"], true]));

        let message = json!({"message": "and now?", "idempotencyKey": "whole", "sessionKey": "main"});
        socket.ask("whole", "agent", message).await;
        assert_eq!(socket.answer("whole").await["payload"]["status"], "ok");
        assert_eq!(turns_in_prompt(&gateway), [0, 1, 2, 3]);

        let again = socket.ask("again", "sessions.compactions.undo", json!({"key": "main"})).await;
        assert_eq!((&again["ok"], &again["error"]["code"]), (&json!(false), &json!("INVALID_REQUEST")), "{again}");
    }
}

#[tokio::test]
async fn short_and_missing_sessions_are_not_compacted() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    let mut socket = gateway.client(3, json!({})).await;
    let missing = request(&mut socket, "sessions.compact", json!({"key": "main"})).await;
    let expected = json!({"ok": true, "key": "agent:main:main", "compacted": false, "reason": "session not found"});
    assert_eq!(missing, expected);
    let unknown = socket.ask("list", "sessions.compactions", json!({"key": "main"})).await;
    assert_eq!(unknown["error"]["message"], "session not found");

    let message = json!({"message": "hello", "idempotencyKey": "k", "sessionKey": "main"});
    socket.ask("k", "agent", message).await;
    assert_eq!(socket.answer("k").await["payload"]["status"], "ok");
    let lines = socket.ask("lines", "sessions.compact", json!({"key": "main", "maxLines": 1})).await;
    let refused = "invalid sessions.compact params: maxLines is not supported: transcripts are never truncated; omit \
         it to compact the session";
    assert_eq!(lines["error"]["message"], refused);
    let short = request(&mut socket, "sessions.compact", json!({"key": "main"})).await;
    assert_eq!((&short["compacted"], short["reason"].as_str().unwrap().is_empty()), (&json!(false), false), "{short}");
    let listed = request(&mut socket, "sessions.compactions", json!({"key": "main"})).await;
    assert_eq!(listed, json!({"ok": true, "key": "agent:main:main", "compactions": []}));
}
