//! Conformance suite for all channels.

use std::time::Duration;

use crate::discord;
use crate::support::{SECRET, bot, peer, telegram_at, text_message, webhook_at};
use homard_channels::{Channel, ChannelError, HttpClients, discord::Discord, telegram::Telegram};
use homard_testkit::{
    FakeDiscord, FakeTelegram, FakeWebhook,
    fake_discord::{self, DiscordFault, SEND},
    fake_telegram, fake_webhook,
};

/// Faults that can happen on any platform.
#[derive(Debug, Clone, Copy)]
enum InjectedFault {
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
    fn unreachable(&self) -> Box<dyn Channel>;
    fn inject(&self, injected: InjectedFault);
    fn messages(&self) -> Vec<String>;
    fn secret(&self) -> &'static str;
}

impl Platform for FakeTelegram {
    fn channel(&self) -> Box<dyn Channel> {
        Box::new(bot(self))
    }

    fn unreachable(&self) -> Box<dyn Channel> {
        Box::new(Telegram::new(HttpClients::default(), telegram_at("http://127.0.0.1:1".to_owned())).unwrap())
    }

    fn inject(&self, injected: InjectedFault) {
        let fault = match injected {
            InjectedFault::Later(seconds) => fake_telegram::TelegramFault::Flood(seconds),
            InjectedFault::Refusal => {
                fake_telegram::TelegramFault::Denied(403, "Forbidden: bot was blocked by the user")
            }
            InjectedFault::Busy => fake_telegram::TelegramFault::Denied(503, "Service Unavailable"),
            InjectedFault::Cut => fake_telegram::TelegramFault::Cut,
            InjectedFault::AcceptThenDrop => fake_telegram::TelegramFault::AcceptThenDrop,
        };
        Self::add_fault(self, "sendMessage", fault);
    }

    fn messages(&self) -> Vec<String> {
        Self::visible_messages(self).into_iter().map(|seen| seen.text).collect()
    }

    fn secret(&self) -> &'static str {
        fake_telegram::TOKEN
    }
}

impl Platform for FakeDiscord {
    fn channel(&self) -> Box<dyn Channel> {
        Box::new(discord::bot(self))
    }

    fn unreachable(&self) -> Box<dyn Channel> {
        let settings = discord::discord_at("http://127.0.0.1:1".to_owned());
        Box::new(Discord::new(HttpClients::default(), settings).unwrap())
    }

    fn inject(&self, injected: InjectedFault) {
        let fault = match injected {
            InjectedFault::Later(seconds) => DiscordFault::Flood(seconds as f64),
            InjectedFault::Refusal => DiscordFault::Denied(403, 50007, "Cannot send messages to this user"),
            InjectedFault::Busy => DiscordFault::Denied(503, 0, "Service Unavailable"),
            InjectedFault::Cut => DiscordFault::Cut,
            InjectedFault::AcceptThenDrop => DiscordFault::AcceptThenDrop,
        };
        Self::add_fault(self, SEND, fault);
    }

    fn messages(&self) -> Vec<String> {
        Self::visible_messages(self).into_iter().map(|seen| seen.text).collect()
    }

    fn secret(&self) -> &'static str {
        fake_discord::TOKEN
    }
}

impl Platform for FakeWebhook {
    fn channel(&self) -> Box<dyn Channel> {
        Box::new(peer(self))
    }

    fn unreachable(&self) -> Box<dyn Channel> {
        Box::new(webhook_at("http://127.0.0.1:1".to_owned()))
    }

    fn inject(&self, injected: InjectedFault) {
        let fault = match injected {
            InjectedFault::Later(seconds) => fake_webhook::WebhookFault::Status(429, Some(seconds)),
            InjectedFault::Refusal => fake_webhook::WebhookFault::Status(403, None),
            InjectedFault::Busy => fake_webhook::WebhookFault::Status(503, None),
            InjectedFault::Cut => fake_webhook::WebhookFault::Cut,
            InjectedFault::AcceptThenDrop => fake_webhook::WebhookFault::AcceptThenDrop,
        };
        Self::add_fault(self, fault);
    }

    fn messages(&self) -> Vec<String> {
        Self::visible_messages(self).into_iter().map(|body| body["text"].as_str().unwrap().to_owned()).collect()
    }

    fn secret(&self) -> &'static str {
        SECRET
    }
}

async fn conforms(platform: &impl Platform) {
    let channel = platform.channel();
    let capabilities = channel.capabilities();
    let name = capabilities.channel;
    let send = async |id: &str, text: &str| channel.send(text_message(id, "7", text)).await;

    assert!(send("1", "plain").await.unwrap().message.is_some(), "{name}: a receipt names the message");
    assert_eq!(platform.messages(), ["plain"], "{name}");

    let mut failures = Vec::new();
    platform.inject(InjectedFault::Later(3));
    failures.push(send("2", "later").await.unwrap_err());
    assert!(matches!(failures[0], ChannelError::RetryAfter { after, .. } if after == Duration::from_secs(3)), "{name}");
    platform.inject(InjectedFault::Refusal);
    failures.push(send("3", "refused").await.unwrap_err());
    assert!(matches!(failures[1], ChannelError::Refused(_)), "{name}");
    platform.inject(InjectedFault::Busy);
    failures.push(send("4", "busy").await.unwrap_err());
    assert!(matches!(failures[2], ChannelError::Unavailable(_)), "{name}");
    failures.push(platform.unreachable().send(text_message("5", "7", "lonely")).await.unwrap_err());
    assert!(matches!(failures[3], ChannelError::Unavailable(_)), "{name}: nobody there, so nothing was said");
    assert_eq!(platform.messages(), ["plain"], "{name}: what failed for certain was not said");

    platform.inject(InjectedFault::Cut);
    failures.push(send("6", "cut").await.unwrap_err());
    platform.inject(InjectedFault::AcceptThenDrop);
    failures.push(send("7", "dropped").await.unwrap_err());
    assert!(failures[4..].iter().all(|failure| matches!(failure, ChannelError::Unknown(_))), "{name}: {failures:?}");
    assert_eq!(platform.messages(), ["plain", "dropped"], "{name}");
    if capabilities.is_idempotent {
        send("7", "dropped").await.unwrap();
        assert_eq!(platform.messages(), ["plain", "dropped"], "{name}: said again is not said twice");
    }

    let long = "x".repeat(capabilities.text_limit);
    send("8", &long).await.unwrap();
    assert_eq!(platform.messages()[2..], [long], "{name}: a text of the limit is one message");

    let output =
        format!("{failures:?} {channel:?} {}", failures.iter().map(ChannelError::to_string).collect::<String>());
    assert!(!output.contains(platform.secret()), "{name}");
    channel.identity().await.unwrap();
}

#[tokio::test]
async fn telegram_conforms() {
    conforms(&FakeTelegram::start().await.unwrap()).await;
}

#[tokio::test]
async fn discord_conforms() {
    conforms(&FakeDiscord::start().await.unwrap()).await;
}

#[tokio::test]
async fn webhook_conforms() {
    conforms(&FakeWebhook::start().await.unwrap()).await;
}
