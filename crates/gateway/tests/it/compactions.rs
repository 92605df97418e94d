//! Compaction of sessions, and undoing it.

use homard_proto::message::{Block, Content, Message};
use serde_json::{Value, json};

use crate::support::{TestClient, TestGateway, says};

/// Sends four messages that are long together and waits for the answers.
async fn talk(socket: &mut TestClient) {
    for turn in 0..4 {
        let (run, text) = (format!("k{turn}"), format!("turn {turn}: {}", "word ".repeat(12_000)));
        let params = json!({"message": text, "idempotencyKey": run, "sessionKey": "main"});
        assert_eq!(socket.ask(&run, "agent", params).await["payload"]["status"], "accepted");
        assert_eq!(socket.answer(&run).await["payload"]["status"], "ok");
    }
}

async fn asked(socket: &mut TestClient, method: &str, params: Value) -> Value {
    let mut answer = socket.ask(method, method, params).await;
    assert_eq!(answer["ok"], true, "{answer}");
    answer["payload"].take()
}

/// Which of the four messages the last model request contained.
fn shown(world: &TestGateway) -> Vec<usize> {
    let requests = world.requests.lock().unwrap();
    let messages = &requests.last().unwrap().messages;
    let has = |turn: &usize| {
        let begins = format!("turn {turn}: word");
        messages.iter().any(|message| match &**message {
            Message::User(user) => match &user.content {
                Content::Text(text) => text.len() > 50_000 && text.contains(&begins),
                Content::Blocks(blocks) => {
                    let mut texts = blocks.iter().filter_map(Block::as_text);
                    texts.any(|text| text.len() > 50_000 && text.contains(&begins))
                }
            },
            Message::Assistant(_) | Message::ToolResult(_) | Message::Other(_) => false,
        })
    };
    (0..4).filter(has).collect()
}

#[tokio::test]
async fn a_conversation_is_made_short_and_whole_again() {
    for protocol in [3, 4] {
        let world = TestGateway::new(says(&["hi"])).await;
        let mut socket = world.client(protocol, json!({})).await;
        talk(&mut socket).await;
        let made = asked(&mut socket, "sessions.compact", json!({"key": "main", "focus": "the words"})).await;
        let facts = json!([made["ok"], made["key"], made["compacted"]]);
        assert_eq!(facts, json!([true, "agent:main:main", true]), "{made}");
        let tokens = |name: &str| made[name].as_u64().unwrap();
        assert!(tokens("tokensAfter") < tokens("tokensBefore"), "{made}");

        let row = |listed: &Value| {
            let rows = listed["compactions"].as_array().unwrap();
            assert_eq!((rows.len(), &listed["key"]), (1, &json!("agent:main:main")), "{listed}");
            json!([rows[0]["id"], rows[0]["way"], rows[0]["tokensBefore"], rows[0]["undone"]])
        };
        let listed = asked(&mut socket, "sessions.compactions", json!({"key": "main"})).await;
        assert_eq!(row(&listed), json!([made["id"], made["way"], made["tokensBefore"], false]));
        assert!(!listed["compactions"][0]["summary"].as_str().unwrap().is_empty());

        let say = json!({"message": "and?", "idempotencyKey": "short", "sessionKey": "main"});
        socket.ask("short", "agent", say).await;
        assert_eq!(socket.answer("short").await["payload"]["status"], "ok");
        assert_eq!(shown(&world), [2, 3]);

        let undone = asked(&mut socket, "sessions.compactions.undo", json!({"key": "main", "id": made["id"]})).await;
        assert_eq!(undone, json!({"ok": true, "key": "agent:main:main", "id": made["id"]}));
        let listed = asked(&mut socket, "sessions.compactions", json!({"key": "main"})).await;
        assert_eq!(row(&listed), json!([made["id"], made["way"], made["tokensBefore"], true]));

        let say = json!({"message": "and now?", "idempotencyKey": "whole", "sessionKey": "main"});
        socket.ask("whole", "agent", say).await;
        assert_eq!(socket.answer("whole").await["payload"]["status"], "ok");
        assert_eq!(shown(&world), [0, 1, 2, 3]);

        let again = socket.ask("again", "sessions.compactions.undo", json!({"key": "main"})).await;
        assert_eq!((&again["ok"], &again["error"]["code"]), (&json!(false), &json!("INVALID_REQUEST")), "{again}");
    }
}

#[tokio::test]
async fn what_is_short_or_not_there_is_left_alone() {
    let world = TestGateway::new(says(&["hi"])).await;
    let mut socket = world.client(3, json!({})).await;
    let nothing = asked(&mut socket, "sessions.compact", json!({"key": "main"})).await;
    let expected = json!({"ok": true, "key": "agent:main:main", "compacted": false, "reason": "session not found"});
    assert_eq!(nothing, expected);
    let unknown = socket.ask("list", "sessions.compactions", json!({"key": "main"})).await;
    assert_eq!(unknown["error"]["message"], "session not found");

    let say = json!({"message": "hello", "idempotencyKey": "k", "sessionKey": "main"});
    socket.ask("k", "agent", say).await;
    assert_eq!(socket.answer("k").await["payload"]["status"], "ok");
    let lines = socket.ask("lines", "sessions.compact", json!({"key": "main", "maxLines": 1})).await;
    let refused = "invalid sessions.compact params: maxLines is not supported: transcripts are never truncated; omit \
         it to compact the session";
    assert_eq!(lines["error"]["message"], refused);
    let short = asked(&mut socket, "sessions.compact", json!({"key": "main"})).await;
    assert_eq!((&short["compacted"], short["reason"].as_str().unwrap().is_empty()), (&json!(false), false), "{short}");
    let listed = asked(&mut socket, "sessions.compactions", json!({"key": "main"})).await;
    assert_eq!(listed, json!({"ok": true, "key": "agent:main:main", "compactions": []}));
}
