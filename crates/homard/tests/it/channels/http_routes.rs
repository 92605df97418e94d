//! HTTP endpoints for platforms: the webhook channel, and Telegram's own webhook.

use homard_testkit::fake_webhook::WebhookFault;
use serde_json::json;

use super::setup::{ChannelFixture, SECRET, post_signed, request, webhook_message};
use crate::home::until;

const PATH: &str = "/channels/webhook";

#[tokio::test(flavor = "multi_thread")]
async fn a_signed_peer_is_accepted_and_answered_at_its_url() {
    let fixture = ChannelFixture::with(json!({"webhook": {"allowFrom": ["ann"]}}), json!({})).await;
    let gateway = fixture.gateway();
    let message = webhook_message("m1", "ann", "hello");
    let status = |path: &str, message, secret| post_signed(gateway.port, path, message, secret).unwrap().0;
    assert_eq!(status(PATH, &message, "another secret of theirs"), 401);
    assert_eq!(status("/channels/webhook/other", &message, SECRET), 404);
    assert_eq!(status("/channels/telegram", &message, SECRET), 404);
    assert_eq!(status(PATH, &json!({"id": "m1"}), SECRET), 400);
    assert_eq!(request(gateway.port, &format!("GET {PATH} HTTP/1.0\r\nHost: localhost\r\n"), "").unwrap().0, 405);
    assert_eq!(post_signed(gateway.port, PATH, &message, SECRET), Some((200, json!({"ok": true}).to_string())));
    let messages = || {
        let seen = fixture.peer.visible_messages().into_iter();
        seen.filter(|seen| seen["type"] == "message")
            .map(|seen| (seen["to"].clone(), seen["text"].clone()))
            .collect::<Vec<_>>()
    };
    until("an answer", || !messages().is_empty());
    assert_eq!(messages(), [(json!("ann"), json!("echo hello"))]);
    assert_eq!(fixture.sessions(&gateway), ["agent:main:webhook:direct:ann"], "a program is not the owner");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unlisted_peer_is_ignored() {
    let fixture =
        ChannelFixture::with(json!({"webhook": {"allowFrom": ["ann"], "dmPolicy": "allowlist"}}), json!({})).await;
    let gateway = fixture.gateway();
    assert_eq!(post_signed(gateway.port, PATH, &webhook_message("m1", "bob", "hello"), SECRET).unwrap().0, 200);
    assert_eq!(post_signed(gateway.port, PATH, &webhook_message("m2", "ann", "hi"), SECRET).unwrap().0, 200);
    until("an answer", || fixture.peer.visible_messages().iter().any(|seen| seen["type"] == "message"));
    assert!(
        fixture.peer.visible_messages().iter().all(|seen| seen["to"] == "ann"),
        "{:?}",
        fixture.peer.visible_messages()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_is_down_gets_its_reply_later_and_once() {
    let fixture = ChannelFixture::with(json!({"webhook": {"allowFrom": ["ann"]}}), json!({})).await;
    let gateway = fixture.gateway();
    for fault in [
        WebhookFault::Status(503, Some(1)),
        WebhookFault::AcceptThenDrop,
        WebhookFault::Cut,
        WebhookFault::Status(500, None),
    ] {
        fixture.peer.add_fault(fault);
    }
    assert_eq!(post_signed(gateway.port, PATH, &webhook_message("m1", "ann", "hello"), SECRET).unwrap().0, 200);
    let is_answer = |body: &serde_json::Value| body["type"] == "message";
    until("an answer", || fixture.peer.visible_messages().iter().any(is_answer));
    let answers: Vec<_> = fixture.peer.visible_messages().into_iter().filter(is_answer).collect();
    assert_eq!(answers.len(), 1, "{answers:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn telegram_webhook_updates_require_the_secret() {
    let account = json!({
        "allowFrom": [7], "webhookUrl": "https://example.org/channels/telegram",
        "webhookSecret": "sixteen-or-more-letters",
    });
    let fixture = ChannelFixture::telegram(account).await;
    let gateway = fixture.gateway();
    until("the webhook is set", || !fixture.telegram.calls_of("setWebhook").is_empty());
    let update = json!({"update_id": 5, "message": {
        "message_id": 1, "date": 1_794_758_460, "chat": {"id": 7, "type": "private"}, "text": "hello",
        "from": {"id": 7, "is_bot": false, "first_name": "Ann"},
    }});
    let bring = |secret: &str| {
        let head = format!(
            "POST /channels/telegram HTTP/1.0\r\nHost: localhost\r\nX-Telegram-Bot-Api-Secret-Token: {secret}\r\n"
        );
        request(gateway.port, &head, &update.to_string()).unwrap().0
    };
    assert_eq!(bring("wrong"), 401);
    until("it is taken", || bring("sixteen-or-more-letters") == 200);
    assert_eq!([bring("sixteen-or-more-letters"), bring("sixteen-or-more-letters")], [200, 200]);
    until("an answer", || !fixture.telegram.visible_messages().is_empty());
    assert_eq!((fixture.answers(), fixture.request_count()), (vec![(7, "echo hello".to_owned())], 1));
}
