//! Outbound signed JSON over real HTTP.

use std::time::Duration;

use crate::support::{NOW, SECRET, peer, text_message};
use homard_channels::{
    Channel, ChannelAction, ChannelError, Destination, HttpClients, Media, Outgoing, Secret,
    webhook::{Settings, Webhook, signature},
};
use homard_testkit::{FakeWebhook, fake_webhook::WebhookFault};
use serde_json::json;

#[tokio::test]
async fn outgoing_messages_are_signed_and_have_an_idempotency_key() {
    let fake = FakeWebhook::start().await.unwrap();
    let media = vec![
        Media::Url("https://x.y/z".to_owned()),
        Media::Bytes { name: "a.txt".to_owned(), mime: None, bytes: b"hi".to_vec() },
    ];
    let destination = Destination { to: "ann".to_owned(), thread: Some("t".to_owned()) };
    let outgoing =
        Outgoing { destination, media, reply_to: Some("m0".to_owned()), ..text_message("out-1", "", "**hi**") };
    let receipt = peer(&fake).send(outgoing).await.unwrap();
    assert_eq!((receipt.message.as_deref(), receipt.details), (Some("m1"), json!({"status": 200})));
    let delivery = fake.deliveries().pop().unwrap();
    assert_eq!(
        delivery.json(),
        json!({
            "type": "message", "to": "ann", "thread": "t", "id": "out-1", "replyTo": "m0", "text": "**hi**",
            "media": [{"url": "https://x.y/z"}, {"name": "a.txt", "mime": null, "data": "aGk="}], "account": "door",
        })
    );
    assert_eq!((delivery.path.as_str(), delivery.header("idempotency-key")), ("/inbox", "out-1"));
    let (timestamp, signed) = (delivery.header("x-homard-timestamp"), delivery.header("x-homard-signature"));
    let secret = Secret::from(SECRET);
    assert_eq!(signature::verify(&secret, Some(timestamp), Some(signed), &delivery.body, NOW), Ok(()));
}

#[tokio::test]
async fn the_response_decides_whether_to_retry() {
    let fake = FakeWebhook::start().await.unwrap();
    let peer = peer(&fake);
    let mut outcomes = Vec::new();
    for fault in [
        WebhookFault::Status(429, Some(7)),
        WebhookFault::Status(429, None),
        WebhookFault::Status(503, Some(9)),
        WebhookFault::Status(500, None),
        WebhookFault::Status(408, None),
        WebhookFault::Status(400, None),
        WebhookFault::Status(302, None),
        WebhookFault::Cut,
        WebhookFault::Silence,
    ] {
        fake.add_fault(fault);
        outcomes.push(match peer.send(text_message("1", "ann", "hi")).await.unwrap_err() {
            ChannelError::RetryAfter { after, .. } => format!("after {}", after.as_secs()),
            ChannelError::Unavailable(_) => "unavailable".to_owned(),
            ChannelError::Refused(_) => "refused".to_owned(),
            ChannelError::Unknown(_) => "unknown".to_owned(),
            ChannelError::Unsupported { .. } => "unsupported".to_owned(),
        });
    }
    let expected =
        ["after 7", "after 1", "after 9", "unavailable", "unavailable", "refused", "refused", "unknown", "unknown"];
    assert_eq!(outcomes, expected);
    assert_eq!(fake.visible_messages(), Vec::<serde_json::Value>::new());
    fake.add_fault(WebhookFault::InvalidResponse);
    assert_eq!(
        peer.send(text_message("1", "ann", "hi")).await.unwrap().message,
        None,
        "taken is taken, whatever is said of it"
    );
}

#[tokio::test]
async fn actions_are_sent_with_their_type() {
    let fake = FakeWebhook::start().await.unwrap();
    let peer = peer(&fake);
    let destination = || Destination { to: "ann".to_owned(), thread: None };
    let message = || "m1".to_owned();
    peer.perform(ChannelAction::Type(destination())).await.unwrap();
    peer.perform(ChannelAction::React {
        destination: destination(), message: message(), emoji: Some("👍".to_owned())
    })
    .await
    .unwrap();
    peer.perform(ChannelAction::React { destination: destination(), message: message(), emoji: None }).await.unwrap();
    peer.perform(ChannelAction::Edit {
        destination: destination(),
        message: message(),
        text: "new".to_owned(),
        hides_previews: false,
    })
    .await
    .unwrap();
    peer.perform(ChannelAction::Delete { destination: destination(), message: message() }).await.unwrap();
    assert_eq!(
        fake.visible_messages(),
        [
            json!({"type": "typing", "to": "ann", "account": "door"}),
            json!({"type": "reaction", "to": "ann", "messageId": "m1", "emoji": "👍", "account": "door"}),
            json!({"type": "reaction", "to": "ann", "messageId": "m1", "emoji": "", "account": "door"}),
            json!({"type": "edit", "to": "ann", "messageId": "m1", "text": "new", "account": "door"}),
            json!({"type": "delete", "to": "ann", "messageId": "m1", "account": "door"}),
        ]
    );
}

#[tokio::test]
async fn invalid_settings_are_rejected() {
    let create = |secret: &str, url: Option<&str>| {
        let settings = Settings::new("door", Secret::from(secret), url.map(str::to_owned));
        Webhook::new(HttpClients::default(), settings, Box::new(|| NOW))
    };
    assert!(matches!(create("short", None), Err(ChannelError::Refused(reason)) if reason.contains("16 characters")));
    assert!(
        matches!(create(SECRET, Some("ftp://x")), Err(ChannelError::Refused(reason)) if reason.contains("https://host/path"))
    );
    let without_url = create(SECRET, None).unwrap();
    assert!(matches!(without_url.send(text_message("1", "ann", "hi")).await, Err(ChannelError::Unsupported { .. })));
    assert_eq!(without_url.identity().await.unwrap().hints.len(), 1);
    assert_eq!(Settings::new("a", Secret::from(SECRET), None).timeout, Duration::from_secs(60));
}
