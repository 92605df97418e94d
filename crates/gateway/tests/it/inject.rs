//! Injected messages and images, and how the history shows them.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use homard_model::{Error as ModelError, ErrorKind, ModelEvent, stream::CallDelta};
use homard_proto::{
    AgentId, EntryId, SessionId, SessionKey,
    message::{Message, StopReason, User},
    session::Record,
    transcript::{Entry, Kind},
};
use homard_store::{Fence, MemoryStore, Rec, StoreWriter};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::{
    exchange::{is_end, text, until},
    support::{Script, TestClient, TestGateway, done, says, waits},
};

/// A picture of one pixel.
const DOT: &str = "R0lGODdhAQABAIAAAP///////ywAAAAAAQABAAACAkQBADs=";

async fn send_message(socket: &mut TestClient, run: &str) {
    socket.send(run, "chat.send", json!({"sessionKey": "main", "message": "x", "idempotencyKey": run})).await;
    until(socket, |frame| is_end(frame, run)).await;
}

async fn history(socket: &mut TestClient, mut params: Value) -> Value {
    params["sessionKey"] = "main".into();
    socket.ask("h", "chat.history", params).await["payload"].take()
}

#[tokio::test]
async fn an_injected_message_is_stored_and_published() {
    for protocol in [3, 4] {
        let gateway = TestGateway::new(says(&["hi"])).await;
        let mut socket = gateway.client(protocol, json!({})).await;
        let mut other = gateway.client(7 - protocol, json!({})).await;
        send_message(&mut socket, "k").await;
        until(&mut other, |frame| is_end(frame, "k")).await;
        let note = json!({"sessionKey": "main", "message": " The build is green. ", "label": "ci"});
        let answer = socket.ask("i", "chat.inject", note).await;
        let id = answer["payload"]["messageId"].as_str().unwrap().to_owned();
        assert_eq!(answer["payload"], json!({"ok": true, "messageId": id}));
        let event = other.next().await["payload"].take();
        let content = json!([{"type": "text", "text": "[ci]\n\nThe build is green."}]);
        let timestamp = &event["message"]["timestamp"];
        assert!(timestamp.is_u64());
        assert_eq!(
            event,
            json!({
                "runId": format!("inject-{id}"), "sessionKey": "agent:main:main", "agentId": "main", "seq": 0,
                "state": "final", "stopReason": "injected",
                "message": {"role": "assistant", "content": content, "timestamp": timestamp},
            })
        );
        let messages = history(&mut socket, json!({})).await["messages"].take();
        assert_eq!((&messages[2]["role"], &messages[2]["content"]), (&json!("assistant"), &content));
        // The next model request contains it.
        send_message(&mut socket, "k2").await;
        assert_eq!(*gateway.message_counts.lock().unwrap(), [1, 4]);
    }
}

#[tokio::test]
async fn an_injected_message_waits_for_the_active_run() {
    let gate = Arc::new(Semaphore::new(0));
    let gateway = TestGateway::new(waits(&gate)).await;
    let mut socket = gateway.client(4, json!({})).await;
    socket.send("r", "chat.send", json!({"sessionKey": "main", "message": "x", "idempotencyKey": "k"})).await;
    until(&mut socket, |frame| frame["event"] == "chat").await;
    socket.send("i", "chat.inject", json!({"sessionKey": "main", "message": "a note"})).await;
    // The request is read before this one is answered.
    socket.ask("h", "health", json!({})).await;
    gate.add_permits(1);
    assert_eq!(socket.answer("i").await["ok"], true);
    let messages = history(&mut socket, json!({})).await["messages"].take();
    let texts: Vec<_> = messages.as_array().unwrap().iter().map(|message| &message["content"][0]["text"]).collect();
    assert_eq!(texts, ["x", "hello world", "a note"]);
}

#[tokio::test]
async fn injecting_needs_an_existing_session() {
    let gateway = TestGateway::new(says(&["hi"])).await;
    for protocol in [3, 4] {
        let mut socket = gateway.client(protocol, json!({})).await;
        for (params, why) in [
            (json!({"sessionKey": "nowhere", "message": "x"}), "session not found"),
            (json!({"sessionKey": "nowhere", "message": " "}), "invalid chat.inject params: message must not be blank"),
        ] {
            let error = json!({"code": "INVALID_REQUEST", "message": why});
            assert_eq!(socket.ask("i", "chat.inject", params).await["error"], error);
        }
        let mut writer = gateway.client(protocol, json!({"scopes": ["operator.write"]})).await;
        let refused = writer.ask("i", "chat.inject", json!({"sessionKey": "main", "message": "x"})).await;
        assert!(refused["error"]["message"].as_str().unwrap().contains("operator.admin"), "{refused}");
    }
}

/// A session with `count` messages, each in an envelope.
async fn with_messages(count: usize) -> TestGateway {
    let (store, session) = (MemoryStore::default(), SessionId::parse("s").unwrap());
    let key = SessionKey::parse("main", &AgentId::main()).unwrap();
    let record = Box::new(Record::new(session.clone(), 1));
    let mut batch = vec![Rec::Patch { run: None, key: key.clone(), expect: None, record }];
    for number in 0..count {
        let kind = Kind::message(Message::User(User::text(format!("[Telegram Ann] {number}"), 1)));
        let id = EntryId::parse(&format!("e{number}")).unwrap();
        let entry = Box::new(Entry { kind, id, parent_id: None, timestamp: String::new() });
        batch.push(Rec::Entry { run: None, key: key.clone(), session: session.clone(), entry });
    }
    store.commit(&Fence::default(), batch).await.unwrap();
    TestGateway::with_store(Arc::new(store), says(&["hi"])).await
}

/// Answers with these texts in turn; those that begin with `call` also call a tool.
fn answers_in_order(answers: &'static [&'static str]) -> Script {
    Arc::new(move |answer| {
        let text = answers[answer];
        let (id, name) = (Some(format!("call-{answer}")), Some("echo".to_owned()));
        let call = ModelEvent::Call(CallDelta { index: 0, id, name, arguments: "{}".to_owned() });
        // Splits the text in the middle, wherever that is.
        let (first, rest) = text.split_at(text.floor_char_boundary(text.len() / 2));
        let events = [first, rest].map(|events| ModelEvent::Text(events.to_owned()));
        if text.starts_with("call") {
            stream::iter(events).chain(stream::iter([call, done(StopReason::ToolUse)])).boxed()
        } else {
            stream::iter(events).chain(stream::iter([done(StopReason::Stop)])).boxed()
        }
    })
}

#[tokio::test]
async fn a_history_shows_what_was_delivered() {
    for (answers, delivered) in [
        (&["Plain words."][..], Some("Plain words.")),
        (&["[[reply_to_current]] Hello,\n[[audio_as_voice]]there"], Some("Hello,\nthere")),
        (&["<think>They want a chart.</think>\nHere it is.\nMEDIA: ./chart.png"], Some("Here it is.\n./chart.png")),
        (&["MEDIA: https://example.com/a.png"], Some("https://example.com/a.png")),
        (&["MEDIA: /etc/passwd"], Some("MEDIA: /etc/passwd")),
        (&["call it [[reply_to:7]]now", "<final>Done.</final> NO_REPLY"], Some("call it now\n\nDone.")),
        (&["In code: `[[reply_to_current]]`"], Some("In code: `[[reply_to_current]]`")),
        (&["HEARTBEAT_OK all is well"], Some("all is well")),
        // A second model request is made before a silent reply is accepted.
        (&["NO_REPLY", "no_reply."], None),
    ] {
        for protocol in [3, 4] {
            let gateway = TestGateway::new(answers_in_order(answers)).await;
            let mut socket = gateway.client(protocol, json!({})).await;
            socket.send("r", "chat.send", json!({"sessionKey": "main", "message": "x", "idempotencyKey": "k"})).await;
            let frames = until(&mut socket, |frame| is_end(frame, "k")).await;
            let last = &frames.last().unwrap()["payload"];
            assert_eq!((&last["state"], text(last)), (&json!("final"), delivered));
            let page = history(&mut socket, json!({})).await;
            let messages = page["messages"].as_array().unwrap();
            let assistant_messages = messages.iter().filter(|message| message["role"] == "assistant");
            let blocks = assistant_messages.clone().flat_map(|message| message["content"].as_array().unwrap());
            let texts: Vec<_> = blocks.filter_map(|block| block["text"].as_str()).collect();
            assert_eq!(Some(texts.join("\n\n")).filter(|text| !text.is_empty()).as_deref(), delivered);
            assert_eq!(assistant_messages.count(), delivered.map_or(0, |_| answers.len()));
            if protocol == 4 {
                assert_eq!(page["totalMessages"], messages.len());
            }
        }
    }
}

#[tokio::test]
async fn discarded_text_followed_by_silence_is_cleared() {
    let gate = Arc::new(Semaphore::new(0));
    let failure_gate = gate.clone();
    let script: Script = Arc::new(move |answer| match answer {
        0 => {
            let gate = gate.clone();
            let fails = stream::once(async move {
                gate.acquire().await.unwrap().forget();
                ModelEvent::Failed(ModelError::new(ErrorKind::Server, "500"))
            });
            stream::iter([ModelEvent::Text("Well, ".to_owned())]).chain(fails).boxed()
        }
        _ => stream::iter([ModelEvent::Text("NO_REPLY".to_owned()), done(StopReason::Stop)]).boxed(),
    });
    for protocol in [3, 4] {
        let gateway = TestGateway::new(script.clone()).await;
        let mut socket = gateway.client(protocol, json!({})).await;
        socket.send("r", "chat.send", json!({"sessionKey": "main", "message": "x", "idempotencyKey": "k"})).await;
        let mut frames = until(&mut socket, |frame| frame["event"] == "chat").await;
        failure_gate.add_permits(1);
        // The model request is retried after a delay.
        tokio::time::pause();
        frames.extend(until(&mut socket, |frame| is_end(frame, "k")).await);
        tokio::time::resume();
        let chats: Vec<_> =
            frames.iter().filter(|frame| frame["event"] == "chat").map(|frame| &frame["payload"]).collect();
        let states: Vec<_> = chats.iter().map(|chat| json!([chat["state"], chat["replace"], text(chat)])).collect();
        let (first_delta, cleared, last) =
            (json!(["delta", null, "Well,"]), json!(["delta", true, ""]), json!(["final", null, null]));
        assert_eq!(states, if protocol == 4 { vec![first_delta, cleared, last] } else { vec![first_delta, last] });
        assert_eq!(history(&mut socket, json!({})).await["messages"].as_array().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_history_contains_the_newest_messages_without_envelopes() {
    let gateway = with_messages(250).await;
    let mut old = gateway.client(3, json!({})).await;
    let numbers = |page: &Value| -> Vec<usize> {
        let text = |message: &Value| message["content"][0]["text"].as_str().unwrap().parse().unwrap();
        page["messages"].as_array().unwrap().iter().map(text).collect()
    };
    let mut page = history(&mut old, json!({})).await;
    assert_eq!(numbers(&page), (50..250).collect::<Vec<_>>());
    page["messages"].take();
    assert_eq!(page, json!({"sessionKey": "main", "sessionId": "s", "thinkingLevel": "off", "messages": null}));
    assert_eq!(numbers(&history(&mut old, json!({"limit": 1000})).await), (0..250).collect::<Vec<_>>());
    let error = old.ask("h", "chat.history", json!({"sessionKey": "main", "limit": 1001})).await["error"].take();
    assert_eq!(error["code"], "INVALID_REQUEST");

    let mut new = gateway.client(4, json!({})).await;
    let mut page = history(&mut new, json!({"limit": 2, "offset": 240, "inputRunIds": ["k"]})).await;
    assert_eq!(numbers(&page), [8, 9]);
    page["messages"].take();
    let row = json!({
        "key": "agent:main:main", "kind": "direct", "updatedAt": 1, "sessionId": "s", "agentId": "main", "isMain": true,
        "hasActiveRun": false, "activeRunIds": [], "activeLeafEntryId": "e249",
    });
    assert_eq!(
        page,
        json!({
            "sessionKey": "main", "sessionId": "s", "thinkingLevel": "off", "messages": null, "hasMore": true,
            "nextOffset": 242, "totalMessages": 250, "pendingInputs": {"items": [], "total": 0}, "sessionInfo": row,
            "defaults": {"modelProvider": "test", "model": "scripted", "contextTokens": 100_000},
            "inputReceipts": [], "inputConsumptions": [],
        })
    );
    // What does not fit is omitted, oldest first; a foreign cursor makes the client start over.
    let limited = history(&mut new, json!({"maxBytes": 200})).await;
    assert_eq!((numbers(&limited).last(), &limited["hasMore"]), (Some(&249), &json!(true)));
    assert!(numbers(&limited).len() < 4);
    assert_eq!(history(&mut new, json!({"cursor": "elsewhere"})).await, json!({"kind": "reset"}));
}

#[tokio::test]
async fn images_reach_the_model_and_their_size_the_history() {
    for protocol in [3, 4] {
        let gateway = TestGateway::new(says(&["a dot"])).await;
        let mut socket = gateway.client(protocol, json!({})).await;
        let attachment_json = json!({"type": "image", "mimeType": "image/png", "fileName": "dot.png", "content": DOT});
        let send = |run: &str, text: &str, attachment: &Value| json!({"sessionKey": "main", "message": text, "idempotencyKey": run, "attachments": [attachment]});
        socket.send("r", "chat.send", send("k", "", &attachment_json)).await;
        until(&mut socket, |frame| is_end(frame, "k")).await;
        let agent =
            json!({"message": "look", "sessionKey": "main", "idempotencyKey": "a", "attachments": [attachment_json]});
        socket.send("a", "agent", agent).await;
        until(&mut socket, |frame| is_end(frame, "a")).await;
        let image = json!({"type": "image", "mimeType": "image/gif", "bytes": DOT.len(), "omitted": true});
        let messages = history(&mut socket, json!({})).await["messages"].take();
        assert_eq!(messages[0]["content"], json!([image]));
        assert_eq!(messages[2]["content"], json!([{"type": "text", "text": "look"}, image]));
        let broken = json!({"fileName": "dot.png", "mimeType": "image/png", "content": "no base64"});
        let refused = socket.ask("b", "chat.send", send("b", "look", &broken)).await;
        let why = "attachment \"dot.png\": invalid base64; send the file's bytes in base64";
        assert_eq!(refused["error"], json!({"code": "INVALID_REQUEST", "message": why}));
        // The agent of this test has no workspace.
        let text = json!({"mimeType": "text/plain", "content": "aGk="});
        let refused = socket.ask("c", "chat.send", send("c", "", &text)).await;
        let why =
            "attachment 1: not an image, and the agent has no workspace to store it in; send its text in the message";
        assert_eq!(refused["error"], json!({"code": "INVALID_REQUEST", "message": why}));
    }
}
