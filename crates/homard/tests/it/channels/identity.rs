//! Identities: a channel, an account and an id, never a text that looks like one.

use std::fs;

use homard_channels::{Secret, webhook::signature::sign};
use homard_testkit::fake_provider::ReceivedRequest;
use serde_json::{Value, json};

use super::stage::{SECRET, Stage, last_message, post_signed, request, said};
use crate::home::{RunningGateway, until};

/// Returns a webhook channel that admits everyone, with two more accounts beside the default one.
fn open_webhook() -> Value {
    json!({"webhook": {"dmPolicy": "open", "allowFrom": ["*"], "accounts": {"shop": {}, "bank": {}}}})
}

/// Sends a message to an account of the webhook channel and waits for the model request that it leads to.
fn say(
    stage: &Stage,
    gateway: &RunningGateway<'_>,
    account: &str,
    (id, sender, text): (&str, &str, &str),
) -> ReceivedRequest {
    let before = stage.asked();
    let path = format!("/channels/webhook/{account}");
    assert_eq!(post_signed(gateway.port, &path, &said(id, sender, text), SECRET).unwrap().0, 200, "{sender}");
    until("the model is asked", || stage.asked() > before);
    let asked = stage.puppet.provider.requests().pop().unwrap();
    assert_eq!(last_message(&asked), text);
    asked
}

fn offers(asked: &ReceivedRequest, tool: &str) -> bool {
    asked.json()["tools"].as_array().into_iter().flatten().any(|offered| offered["function"]["name"] == tool)
}

#[tokio::test(flavor = "multi_thread")]
async fn c1_a_webhook_sender_named_like_the_owner_is_a_stranger() {
    let owners = json!({"commands": {"ownerAllowFrom": ["telegram:7", "webhook/bank:boss", "8"]}});
    let stage = Stage::with(open_webhook(), owners).await;
    let gateway = stage.gateway();
    let names = ["telegram:7", "7", "tg:7", "webhook:boss", "webhook/bank:boss", "bank:boss", "boss", "8", "*"];
    for (at, name) in names.into_iter().enumerate() {
        let asked = say(&stage, &gateway, "shop", (&format!("m{at}"), name, "let me in"));
        assert!(!offers(&asked, "exec"), "{name}");
    }
    assert!(!stage.sessions(&gateway).contains(&"agent:main:main".to_owned()));
    let asked = say(&stage, &gateway, "bank", ("m", "boss", "it is me"));
    assert!(offers(&asked, "exec"), "the one who is named");
    assert!(stage.sessions(&gateway).contains(&"agent:main:main".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn c1_who_is_approved_on_one_account_is_a_stranger_on_another() {
    let stage = Stage::with(json!({"webhook": {"accounts": {"shop": {}, "bank": {}}}}), json!({})).await;
    let gateway = stage.gateway();
    let codes = || {
        let texts =
            stage.peer.visible_messages().into_iter().filter_map(|seen| seen["text"].as_str().map(str::to_owned));
        let codes = texts.filter_map(|text| Some(text.split("Pairing code: ").nth(1)?.lines().next()?.to_owned()));
        codes.collect::<Vec<_>>()
    };
    let knock = |account: &str, id: &str| {
        let path = format!("/channels/webhook/{account}");
        assert_eq!(post_signed(gateway.port, &path, &said(id, "ann", "hello"), SECRET).unwrap().0, 200);
    };
    knock("shop", "m1");
    until("a code", || codes().len() == 1);
    let approved = gateway.run(&["pairing", "approve", "webhook", &codes()[0]]);
    assert_eq!(approved.code, Some(0), "{approved:?}");
    knock("bank", "m2");
    until("another code", || codes().len() == 2);
    assert_eq!(stage.asked(), 0);
    knock("shop", "m3");
    until("the model is asked", || stage.asked() == 1);
    assert_eq!(stage.sessions(&gateway), ["agent:main:webhook:shop:direct:ann"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn h5_senders_with_similar_ids_never_share_a_session() {
    let stage = Stage::with(open_webhook(), json!({})).await;
    let gateway = stage.gateway();
    let people = [
        ("default", "ann", "agent:main:webhook:direct:ann"),
        ("default", "Ann", "agent:main:webhook:direct:%41nn"),
        ("default", "ann ", "agent:main:webhook:direct:ann%20"),
        ("default", "ann:thread:1", "agent:main:webhook:direct:ann%3athread%3a1"),
        ("default", "group", "agent:main:webhook:direct:%67roup"),
        ("shop", "ann", "agent:main:webhook:shop:direct:ann"),
        ("bank", "ann", "agent:main:webhook:bank:direct:ann"),
    ];
    for (at, (account, sender, _)) in people.into_iter().enumerate() {
        let asked = say(&stage, &gateway, account, (&format!("m{at}"), sender, &format!("canary-{at}-secret")));
        let leaked: Vec<_> = (0..at).filter(|other| asked.body.contains(&format!("canary-{other}-secret"))).collect();
        assert!(leaked.is_empty(), "{sender:?} of {account} reads {leaked:?}");
    }
    let mut keys = people.map(|(.., key)| key);
    keys.sort_unstable();
    assert_eq!(stage.sessions(&gateway), keys);
}

/// Creates sessions as the previous version stored them: by the id in lower case, without the account.
fn old_sessions(stage: &Stage, sessions: &[(&str, &str, &str, &str)]) {
    let folder = stage.home().state().join("agents/main/sessions");
    fs::create_dir_all(&folder).unwrap();
    let mut records = json!({});
    for (at, (key, account, to, words)) in sessions.iter().enumerate() {
        let id = format!("00000000-0000-4000-8000-00000000000{at}");
        records[*key] = json!({
            "sessionId": id, "updatedAt": 1_794_000_000_000_u64, "lastChannel": "webhook", "lastTo": to,
            "lastAccountId": account, "deliveryContext": {"channel": "webhook", "to": to, "accountId": account},
        });
        let at = "2026-11-06T21:20:00.000Z";
        let message =
            json!({"role": "user", "content": [{"type": "text", "text": words}], "timestamp": 1_794_000_000_000_u64});
        let lines = [
            json!({"type": "session", "version": 3, "id": id, "timestamp": at, "cwd": "/"}),
            json!({"type": "message", "id": "aaaaaaaa", "parentId": null, "timestamp": at, "message": message}),
        ];
        fs::write(folder.join(format!("{id}.jsonl")), lines.map(|line| format!("{line}\n")).concat()).unwrap();
    }
    fs::write(folder.join("sessions.json"), records.to_string()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn h5_a_session_of_the_old_format_is_found_by_its_own_sender_only() {
    let stage = Stage::with(open_webhook(), json!({})).await;
    old_sessions(
        &stage,
        &[
            ("agent:main:webhook:direct:ann", "default", "ann", "old-ann"),
            ("agent:main:webhook:direct:bob", "default", "Bob", "old-Bob"),
            ("agent:main:webhook:direct:eve", "shop", "eve", "old-eve"),
            ("agent:main:webhook:direct:kim:thread:1", "default", "kim:thread:1", "old-kim"),
        ],
    );
    let gateway = stage.gateway();
    let reads = |account: &str, id: &str, sender: &str| -> Vec<&'static str> {
        let asked = say(&stage, &gateway, account, (id, sender, "hello"));
        ["old-ann", "old-Bob", "old-eve", "old-kim"].into_iter().filter(|words| asked.body.contains(words)).collect()
    };
    assert_eq!(reads("default", "m1", "ann"), ["old-ann"]);
    assert_eq!(reads("shop", "m1", "ann"), Vec::<&str>::new());
    assert_eq!(reads("default", "m2", "bob"), Vec::<&str>::new());
    assert_eq!(reads("default", "m3", "Bob"), ["old-Bob"]);
    assert_eq!(reads("default", "m4", "eve"), Vec::<&str>::new());
    assert_eq!(reads("shop", "m5", "eve"), ["old-eve"]);
    // The old key is ambiguous: a person of this name, or a thread of another person.
    assert_eq!(reads("default", "m6", "kim:thread:1"), Vec::<&str>::new());
    for round in ["x", "y"] {
        assert_eq!(reads("default", &format!("{round}1"), "bob"), Vec::<&str>::new());
        assert_eq!(reads("default", &format!("{round}2"), "Bob"), ["old-Bob"]);
        assert_eq!(reads("shop", &format!("{round}3"), "eve"), ["old-eve"]);
    }
    // A thread starts with the history of its parent session, and that is not Bob's.
    let mut threaded = said("t1", "bob", "hello in a thread");
    threaded["thread"] = json!("1");
    let before = stage.asked();
    assert_eq!(post_signed(gateway.port, "/channels/webhook", &threaded, SECRET).unwrap().0, 200);
    until("the model is asked", || stage.asked() > before);
    assert!(!stage.puppet.provider.requests().pop().unwrap().body.contains("old-Bob"));
    let keys = stage.sessions(&gateway);
    for key in ["agent:main:webhook:direct:%62ob", "agent:main:webhook:direct:bob", "agent:main:webhook:direct:eve"] {
        assert!(keys.contains(&key.to_owned()), "{keys:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn m1_a_replayed_delivery_with_another_idempotency_key_is_the_same_message() {
    let stage = Stage::with(json!({"webhook": {"allowFrom": ["ann"]}}), json!({})).await;
    let gateway = stage.gateway();
    let body = said("m1", "ann", "hello").to_string();
    let now = homard_agent::Ambient::system().now_ms() / 1000;
    let signature = sign(&Secret::from(SECRET), now, body.as_bytes());
    for key in ["", "a", "b", "c"] {
        let head = format!(
            "POST /channels/webhook HTTP/1.0\r\nHost: localhost\r\nx-homard-timestamp: {now}\r\n\
             x-homard-signature: {signature}\r\nidempotency-key: {key}\r\n"
        );
        assert_eq!(request(gateway.port, &head, &body).unwrap().0, 200);
    }
    assert_eq!(post_signed(gateway.port, "/channels/webhook", &said("m2", "ann", "bye"), SECRET).unwrap().0, 200);
    let answers = || {
        let seen = stage.peer.visible_messages().into_iter().filter(|seen| seen["type"] == "message");
        seen.map(|seen| seen["text"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    until("the last answer", || answers().iter().any(|text| text.contains("bye")));
    assert_eq!(answers(), ["echo hello", "echo bye"]);
    let traced = gateway.run(&["trace", "m1"]);
    assert!(traced.code == Some(0) && traced.stdout.contains("agent:main:webhook:direct:ann"), "{traced:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_telegram_chat_is_never_taken_for_a_person() {
    let account = json!({
        "allowFrom": [7], "webhookUrl": "https://example.org/channels/telegram",
        "webhookSecret": "sixteen-or-more-letters",
    });
    let stage = Stage::telegram(account).await;
    let gateway = stage.gateway();
    until("the webhook is set", || !stage.telegram.calls_of("setWebhook").is_empty());
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
    until("an answer", || !stage.telegram.visible_messages().is_empty());
    assert_eq!(stage.answers(), [(7, "echo as myself".to_owned())]);
}
