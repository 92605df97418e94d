//! Conformance suite for all channels.

use std::time::Duration;

use crate::support::{SECRET, bot, peer, telegram_at, webhook_at, words};
use homard_channels::{Channel, Failure, Road, telegram::Telegram};
use homard_testkit::{FakeTelegram, FakeWebhook, fake_telegram, fake_webhook};

/// Faults that can happen on any platform.
#[derive(Debug, Clone, Copy)]
enum Wrong {
    /// It asks to wait this many seconds.
    Later(u64),
    /// It rejects the request.
    Refusal,
    /// It is not ready.
    Busy,
    /// The connection ends before the request was processed.
    Cut,
    /// The connection ends after the request was processed.
    AcceptThenDrop,
}

/// A fake platform and the messages that arrived on it.
trait Platform {
    fn channel(&self) -> Box<dyn Channel>;
    /// The same channel with an unreachable platform.
    fn lonely(&self) -> Box<dyn Channel>;
    fn spoil(&self, wrong: Wrong);
    fn seen(&self) -> Vec<String>;
    fn secret(&self) -> &'static str;
}

impl Platform for FakeTelegram {
    fn channel(&self) -> Box<dyn Channel> {
        Box::new(bot(self))
    }

    fn lonely(&self) -> Box<dyn Channel> {
        Box::new(Telegram::new(Road::default(), telegram_at("http://127.0.0.1:1".to_owned())).unwrap())
    }

    fn spoil(&self, wrong: Wrong) {
        let fault = match wrong {
            Wrong::Later(seconds) => fake_telegram::Fault::Flood(seconds),
            Wrong::Refusal => fake_telegram::Fault::Denied(403, "Forbidden: bot was blocked by the user"),
            Wrong::Busy => fake_telegram::Fault::Denied(503, "Service Unavailable"),
            Wrong::Cut => fake_telegram::Fault::Cut,
            Wrong::AcceptThenDrop => fake_telegram::Fault::AcceptThenDrop,
        };
        Self::spoil(self, "sendMessage", fault);
    }

    fn seen(&self) -> Vec<String> {
        Self::seen(self).into_iter().map(|seen| seen.text).collect()
    }

    fn secret(&self) -> &'static str {
        fake_telegram::TOKEN
    }
}

impl Platform for FakeWebhook {
    fn channel(&self) -> Box<dyn Channel> {
        Box::new(peer(self))
    }

    fn lonely(&self) -> Box<dyn Channel> {
        Box::new(webhook_at("http://127.0.0.1:1".to_owned()))
    }

    fn spoil(&self, wrong: Wrong) {
        let fault = match wrong {
            Wrong::Later(seconds) => fake_webhook::Fault::Status(429, Some(seconds)),
            Wrong::Refusal => fake_webhook::Fault::Status(403, None),
            Wrong::Busy => fake_webhook::Fault::Status(503, None),
            Wrong::Cut => fake_webhook::Fault::Cut,
            Wrong::AcceptThenDrop => fake_webhook::Fault::AcceptThenDrop,
        };
        Self::spoil(self, fault);
    }

    fn seen(&self) -> Vec<String> {
        Self::seen(self).into_iter().map(|body| body["text"].as_str().unwrap().to_owned()).collect()
    }

    fn secret(&self) -> &'static str {
        SECRET
    }
}

async fn conforms(platform: &impl Platform) {
    let channel = platform.channel();
    let manner = channel.manner();
    let name = manner.channel;
    let send = async |id: &str, text: &str| channel.send(words(id, "7", text)).await;

    assert!(send("1", "plain").await.unwrap().message.is_some(), "{name}: a receipt names the message");
    assert_eq!(platform.seen(), ["plain"], "{name}");

    let mut failures = Vec::new();
    platform.spoil(Wrong::Later(3));
    failures.push(send("2", "later").await.unwrap_err());
    assert!(matches!(failures[0], Failure::RetryAfter { after, .. } if after == Duration::from_secs(3)), "{name}");
    platform.spoil(Wrong::Refusal);
    failures.push(send("3", "refused").await.unwrap_err());
    assert!(matches!(failures[1], Failure::Refused(_)), "{name}");
    platform.spoil(Wrong::Busy);
    failures.push(send("4", "busy").await.unwrap_err());
    assert!(matches!(failures[2], Failure::Unavailable(_)), "{name}");
    failures.push(platform.lonely().send(words("5", "7", "lonely")).await.unwrap_err());
    assert!(matches!(failures[3], Failure::Unavailable(_)), "{name}: nobody there, so nothing was said");
    assert_eq!(platform.seen(), ["plain"], "{name}: what failed for certain was not said");

    platform.spoil(Wrong::Cut);
    failures.push(send("6", "cut").await.unwrap_err());
    platform.spoil(Wrong::AcceptThenDrop);
    failures.push(send("7", "dropped").await.unwrap_err());
    assert!(failures[4..].iter().all(|failure| matches!(failure, Failure::Unknown(_))), "{name}: {failures:?}");
    assert_eq!(platform.seen(), ["plain", "dropped"], "{name}");
    if manner.is_idempotent {
        send("7", "dropped").await.unwrap();
        assert_eq!(platform.seen(), ["plain", "dropped"], "{name}: said again is not said twice");
    }

    let long = "x".repeat(manner.text_limit);
    send("8", &long).await.unwrap();
    assert_eq!(platform.seen()[2..], [long], "{name}: a text of the limit is one message");

    let told = format!("{failures:?} {channel:?} {}", failures.iter().map(Failure::to_string).collect::<String>());
    assert!(!told.contains(platform.secret()), "{name}");
    channel.probe().await.unwrap();
}

#[tokio::test]
async fn telegram_conforms() {
    conforms(&FakeTelegram::start().await.unwrap()).await;
}

#[tokio::test]
async fn webhook_conforms() {
    conforms(&FakeWebhook::start().await.unwrap()).await;
}
