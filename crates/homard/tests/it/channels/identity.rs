//! Identities: a channel, an account and an id, never a text that looks like one.

use std::fs;

use homard_channels::{Secret, webhook::signature::sign};
use homard_testkit::fake_provider::ReceivedRequest;
use serde_json::{Value, json};

use super::setup::{ChannelFixture, SECRET, last_message, post_signed, request, webhook_message};
use crate::home::{RunningGateway, until};

/// Returns a webhook channel that admits everyone, with two more accounts beside the default one.
fn open_webhook() -> Value {
    json!({"webhook": {"dmPolicy": "open", "allowFrom": ["*"], "accounts": {"shop": {}, "bank": {}}}})
}

/// Sends a message to an account of the webhook channel and waits for the model request that it leads to.
fn say(fixture: &ChannelFixture, gateway: &RunningGateway<'_>, account: &str, message: &Value) -> ReceivedRequest {
    let before = fixture.request_count();
    let path = format!("/channels/webhook/{account}");
    assert_eq!(post_signed(gateway.port, &path, message, SECRET).unwrap().0, 200, "{message}");
    until("the model is asked", || fixture.request_count() > before);
    let request = fixture.scripted.provider.requests().pop().unwrap();
    assert_eq!(last_message(&request), message["text"]);
    request
}

fn offers(request: &ReceivedRequest, tool: &str) -> bool {
    request.json()["tools"].as_array().into_iter().flatten().any(|offered| offered["function"]["name"] == tool)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_sender_named_like_the_owner_is_a_non_owner() {
    let owners = json!({"commands": {"ownerAllowFrom": ["telegram:7", "webhook/bank:boss", "8"]}});
    let fixture = ChannelFixture::with(open_webhook(), owners).await;
    let gateway = fixture.gateway();
    let names = ["telegram:7", "7", "tg:7", "webhook:boss", "webhook/bank:boss", "bank:boss", "boss", "8", "*"];
    for (at, name) in names.into_iter().enumerate() {
        let request = say(&fixture, &gateway, "shop", &webhook_message(&format!("m{at}"), name, "let me in"));
        assert!(!offers(&request, "exec"), "{name}");
    }
    assert!(!fixture.sessions(&gateway).contains(&"agent:main:main".to_owned()));
    let request = say(&fixture, &gateway, "bank", &webhook_message("m", "boss", "it is me"));
    assert!(offers(&request, "exec"), "the one who is named");
    assert!(fixture.sessions(&gateway).contains(&"agent:main:main".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_on_one_account_does_not_apply_to_another() {
    let fixture = ChannelFixture::with(json!({"webhook": {"accounts": {"shop": {}, "bank": {}}}}), json!({})).await;
    let gateway = fixture.gateway();
    let codes = || {
        let texts =
            fixture.peer.visible_messages().into_iter().filter_map(|seen| seen["text"].as_str().map(str::to_owned));
        let codes = texts.filter_map(|text| Some(text.split("Pairing code: ").nth(1)?.lines().next()?.to_owned()));
        codes.collect::<Vec<_>>()
    };
    let send_hello = |account: &str, id: &str| {
        let path = format!("/channels/webhook/{account}");
        assert_eq!(post_signed(gateway.port, &path, &webhook_message(id, "ann", "hello"), SECRET).unwrap().0, 200);
    };
    send_hello("shop", "m1");
    until("a code", || codes().len() == 1);
    let approved = gateway.run(&["pairing", "approve", "webhook", &codes()[0]]);
    assert_eq!(approved.code, Some(0), "{approved:?}");
    send_hello("bank", "m2");
    until("another code", || codes().len() == 2);
    assert_eq!(fixture.request_count(), 0);
    send_hello("shop", "m3");
    until("the model is asked", || fixture.request_count() == 1);
    assert_eq!(fixture.sessions(&gateway), ["agent:main:webhook:shop:direct:ann"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn senders_with_similar_ids_never_share_a_session() {
    let fixture = ChannelFixture::with(open_webhook(), json!({})).await;
    let gateway = fixture.gateway();
    let senders = [
        ("default", "ann", "agent:main:webhook:direct:ann"),
        ("default", "Ann", "agent:main:webhook:direct:%41nn"),
        ("default", "ann ", "agent:main:webhook:direct:ann%20"),
        ("default", "ann:thread:1", "agent:main:webhook:direct:ann%3athread%3a1"),
        ("default", "group", "agent:main:webhook:direct:%67roup"),
        ("shop", "ann", "agent:main:webhook:shop:direct:ann"),
        ("bank", "ann", "agent:main:webhook:bank:direct:ann"),
    ];
    for (at, (account, sender, _)) in senders.into_iter().enumerate() {
        let request = say(
            &fixture,
            &gateway,
            account,
            &webhook_message(&format!("m{at}"), sender, &format!("canary-{at}-secret")),
        );
        let leaked: Vec<_> = (0..at).filter(|other| request.body.contains(&format!("canary-{other}-secret"))).collect();
        assert!(leaked.is_empty(), "{sender:?} of {account} reads {leaked:?}");
    }
    let mut keys = senders.map(|(.., key)| key);
    keys.sort_unstable();
    assert_eq!(fixture.sessions(&gateway), keys);
}

/// Creates sessions as the previous version stored them: by the id in lower case, without the account.
fn old_sessions(fixture: &ChannelFixture, sessions: &[(&str, &str, &str, &str)]) {
    let folder = fixture.home().state().join("agents/main/sessions");
    fs::create_dir_all(&folder).unwrap();
    let mut records = json!({});
    for (index, (key, account, to, text)) in sessions.iter().enumerate() {
        let id = format!("00000000-0000-4000-8000-00000000000{index}");
        records[*key] = json!({
            "sessionId": id, "updatedAt": 1_794_000_000_000_u64, "lastChannel": "webhook", "lastTo": to,
            "lastAccountId": account, "deliveryContext": {"channel": "webhook", "to": to, "accountId": account},
        });
        let timestamp = "2026-11-06T21:20:00.000Z";
        let message =
            json!({"role": "user", "content": [{"type": "text", "text": text}], "timestamp": 1_794_000_000_000_u64});
        let lines = [
            json!({"type": "session", "version": 3, "id": id, "timestamp": timestamp, "cwd": "/"}),
            json!({"type": "message", "id": "aaaaaaaa", "parentId": null, "timestamp": timestamp, "message": message}),
        ];
        fs::write(folder.join(format!("{id}.jsonl")), lines.map(|line| format!("{line}\n")).concat()).unwrap();
    }
    fs::write(folder.join("sessions.json"), records.to_string()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_in_the_old_format_is_used_by_its_own_sender_only() {
    let fixture = ChannelFixture::with(open_webhook(), json!({})).await;
    old_sessions(
        &fixture,
        &[
            ("agent:main:webhook:direct:ann", "default", "ann", "old-ann"),
            ("agent:main:webhook:direct:bob", "default", "Bob", "old-Bob"),
            ("agent:main:webhook:direct:eve", "shop", "eve", "old-eve"),
            ("agent:main:webhook:direct:kim:thread:1", "default", "kim:thread:1", "old-kim"),
        ],
    );
    let gateway = fixture.gateway();
    let visible_texts = |account: &str, id: &str, sender: &str| -> Vec<&'static str> {
        let request = say(&fixture, &gateway, account, &webhook_message(id, sender, "hello"));
        ["old-ann", "old-Bob", "old-eve", "old-kim"].into_iter().filter(|text| request.body.contains(text)).collect()
    };
    assert_eq!(visible_texts("default", "m1", "ann"), ["old-ann"]);
    assert_eq!(visible_texts("shop", "m1", "ann"), Vec::<&str>::new());
    assert_eq!(visible_texts("default", "m2", "bob"), Vec::<&str>::new());
    assert_eq!(visible_texts("default", "m3", "Bob"), ["old-Bob"]);
    assert_eq!(visible_texts("default", "m4", "eve"), Vec::<&str>::new());
    assert_eq!(visible_texts("shop", "m5", "eve"), ["old-eve"]);
    // The old key is ambiguous: a person of this name, or a thread of another person.
    assert_eq!(visible_texts("default", "m6", "kim:thread:1"), Vec::<&str>::new());
    for round in ["x", "y"] {
        assert_eq!(visible_texts("default", &format!("{round}1"), "bob"), Vec::<&str>::new());
        assert_eq!(visible_texts("default", &format!("{round}2"), "Bob"), ["old-Bob"]);
        assert_eq!(visible_texts("shop", &format!("{round}3"), "eve"), ["old-eve"]);
    }
    // A thread starts with the history of its parent session, and that is not Bob's.
    let mut threaded = webhook_message("t1", "bob", "hello in a thread");
    threaded["thread"] = json!("1");
    let before = fixture.request_count();
    assert_eq!(post_signed(gateway.port, "/channels/webhook", &threaded, SECRET).unwrap().0, 200);
    until("the model is asked", || fixture.request_count() > before);
    assert!(!fixture.scripted.provider.requests().pop().unwrap().body.contains("old-Bob"));
    let keys = fixture.sessions(&gateway);
    for key in ["agent:main:webhook:direct:%62ob", "agent:main:webhook:direct:bob", "agent:main:webhook:direct:eve"] {
        assert!(keys.contains(&key.to_owned()), "{keys:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replayed_delivery_with_another_idempotency_key_is_the_same_message() {
    let fixture = ChannelFixture::with(json!({"webhook": {"allowFrom": ["ann"]}}), json!({})).await;
    let gateway = fixture.gateway();
    let body = webhook_message("m1", "ann", "hello").to_string();
    let now = homard_runtime::Ambient::system().now_ms() / 1000;
    let signature = sign(&Secret::from(SECRET), now, body.as_bytes());
    for key in ["", "a", "b", "c"] {
        let head = format!(
            "POST /channels/webhook HTTP/1.0\r\nHost: localhost\r\nx-homard-timestamp: {now}\r\n\
             x-homard-signature: {signature}\r\nidempotency-key: {key}\r\n"
        );
        assert_eq!(request(gateway.port, &head, &body).unwrap().0, 200);
    }
    assert_eq!(
        post_signed(gateway.port, "/channels/webhook", &webhook_message("m2", "ann", "bye"), SECRET).unwrap().0,
        200
    );
    let answers = || {
        let seen = fixture.peer.visible_messages().into_iter().filter(|seen| seen["type"] == "message");
        seen.map(|seen| seen["text"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    until("the last answer", || answers().iter().any(|text| text.contains("bye")));
    assert_eq!(answers(), ["echo hello", "echo bye"]);
    let trace = gateway.run(&["trace", "m1"]);
    assert!(trace.code == Some(0) && trace.stdout.contains("agent:main:webhook:direct:ann"), "{trace:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_telegram_chat_is_never_treated_as_a_person() {
    let account = json!({
        "allowFrom": [7], "webhookUrl": "https://example.org/channels/telegram",
        "webhookSecret": "sixteen-or-more-letters",
    });
    let fixture = ChannelFixture::telegram(account).await;
    let gateway = fixture.gateway();
    until("the webhook is set", || !fixture.telegram.calls_of("setWebhook").is_empty());
    let bring = |number: i64, sender: Value, text: &str| {
        let mut message = json!({
            "message_id": number, "date": 1_794_758_460, "chat": {"id": 7, "type": "private"}, "text": text,
        });
        message.as_object_mut().unwrap().extend(sender.as_object().cloned().unwrap());
        let head = "POST /channels/telegram HTTP/1.0\r\nHost: localhost\r\n\
                    X-Telegram-Bot-Api-Secret-Token: sixteen-or-more-letters\r\n";
        request(gateway.port, head, &json!({"update_id": number, "message": message}).to_string()).unwrap().0
    };
    let person = json!({"from": {"id": 7, "is_bot": false, "first_name": "Ann"}});
    let chat = json!({"sender_chat": {"id": 7, "type": "private", "title": "Ann"}});
    until("the door is open", || bring(1, chat.clone(), "as a chat") == 200);
    assert_eq!(bring(2, json!({}), "as nobody"), 200);
    assert_eq!(bring(3, person, "as myself"), 200);
    until("an answer", || !fixture.telegram.visible_messages().is_empty());
    assert_eq!(fixture.answers(), [(7, "echo as myself".to_owned())]);
}
