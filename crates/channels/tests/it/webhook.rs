//! Outbound signed JSON over real HTTP.

use std::time::Duration;

use crate::support::{NOW, SECRET, peer, words};
use homard_channels::{
    Channel, ChannelAction, ChannelError, Destination, HttpClients, Media, Outgoing, Secret,
    webhook::{Settings, Webhook, signature},
};
use homard_testkit::{FakeWebhook, fake_webhook::WebhookFault};
use serde_json::json;

#[tokio::test]
async fn what_is_sent_is_signed_and_has_a_key() {
    let fake = FakeWebhook::start().await.unwrap();
    let media = vec![
        Media::Url("https://x.y/z".to_owned()),
        Media::Bytes { name: "a.txt".to_owned(), mime: None, bytes: b"hi".to_vec() },
    ];
    let place = Destination { to: "ann".to_owned(), thread: Some("t".to_owned()) };
    let outgoing =
        Outgoing { destination: place, media, reply_to: Some("m0".to_owned()), ..words("out-1", "", "**hi**") };
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
async fn an_answer_says_whether_to_come_again() {
    let fake = FakeWebhook::start().await.unwrap();
    let peer = peer(&fake);
    let mut told = Vec::new();
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
        told.push(match peer.send(words("1", "ann", "hi")).await.unwrap_err() {
            ChannelError::RetryAfter { after, .. } => format!("after {}", after.as_secs()),
            ChannelError::Unavailable(_) => "unavailable".to_owned(),
            ChannelError::Refused(_) => "refused".to_owned(),
            ChannelError::Unknown(_) => "unknown".to_owned(),
            ChannelError::Unsupported { .. } => "unsupported".to_owned(),
        });
    }
    let expected =
        ["after 7", "after 1", "after 9", "unavailable", "unavailable", "refused", "refused", "unknown", "unknown"];
    assert_eq!(told, expected);
    assert_eq!(fake.visible_messages(), Vec::<serde_json::Value>::new());
    fake.add_fault(WebhookFault::InvalidResponse);
    assert_eq!(
        peer.send(words("1", "ann", "hi")).await.unwrap().message,
        None,
        "taken is taken, whatever is said of it"
    );
}

#[tokio::test]
async fn acts_are_told_by_their_type() {
    let fake = FakeWebhook::start().await.unwrap();
    let peer = peer(&fake);
    let place = || Destination { to: "ann".to_owned(), thread: None };
    let message = || "m1".to_owned();
    peer.perform(ChannelAction::Type(place())).await.unwrap();
    peer.perform(ChannelAction::React { place: place(), message: message(), emoji: Some("👍".to_owned()) })
        .await
        .unwrap();
    peer.perform(ChannelAction::React { place: place(), message: message(), emoji: None }).await.unwrap();
    peer.perform(ChannelAction::Edit {
        place: place(),
        message: message(),
        text: "new".to_owned(),
        hides_previews: false,
    })
    .await
    .unwrap();
    peer.perform(ChannelAction::Delete { place: place(), message: message() }).await.unwrap();
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
async fn settings_that_cannot_be_right_are_told() {
    let make = |secret: &str, url: Option<&str>| {
        let settings = Settings::new("door", Secret::from(secret), url.map(str::to_owned));
        Webhook::new(HttpClients::default(), settings, Box::new(|| NOW))
    };
    assert!(matches!(make("short", None), Err(ChannelError::Refused(why)) if why.contains("16 characters")));
    assert!(
        matches!(make(SECRET, Some("ftp://x")), Err(ChannelError::Refused(why)) if why.contains("https://host/path"))
    );
    let mute = make(SECRET, None).unwrap();
    assert!(matches!(mute.send(words("1", "ann", "hi")).await, Err(ChannelError::Unsupported { .. })));
    assert_eq!(mute.identity().await.unwrap().hints.len(), 1);
    assert_eq!(Settings::new("a", Secret::from(SECRET), None).timeout, Duration::from_secs(60));
}
