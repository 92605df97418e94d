//! Common code of the channel tests: a home with a model that repeats its input, and the fake platforms.

use std::{
    future::Future,
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use homard_channels::{Secret, webhook::signature::sign};
use homard_testkit::{
    FakeTelegram, FakeWebhook,
    fake_provider::{ProviderReply, ReceivedRequest},
    fake_telegram::TOKEN,
};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    home::{Home, RunningGateway},
    scripted_model::ScriptedHome,
};

/// The signing secret of the webhook channel.
pub(crate) const SECRET: &str = "a secret of the tests";

/// Default timeout.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for something with a timeout.
pub(crate) async fn within_timeout<T>(description: &str, future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{description}: not within {PATIENCE:?}"))
}

/// A home with its model and platforms.
pub(super) struct ChannelFixture {
    pub(super) scripted: ScriptedHome,
    pub(super) telegram: FakeTelegram,
    pub(super) peer: FakeWebhook,
}

impl ChannelFixture {
    /// Creates a home with a Telegram account.
    pub(super) async fn telegram(account: Value) -> Self {
        Self::with(json!({"telegram": account}), json!({})).await
    }

    /// Creates a home with these channels and this config.
    pub(super) async fn with(mut channels: Value, config: Value) -> Self {
        Self::answering(channels.take(), config, echo).await
    }

    /// Same as `with`, with a model that answers by `reply`.
    pub(super) async fn answering(
        mut channels: Value,
        mut config: Value,
        reply: impl FnMut(&ReceivedRequest) -> ProviderReply + Send + 'static,
    ) -> Self {
        let (telegram, peer) = (FakeTelegram::start().await.unwrap(), FakeWebhook::start().await.unwrap());
        if channels["telegram"].is_object() {
            channels["telegram"]["apiRoot"] = json!(telegram.root());
            if channels["telegram"]["botToken"].is_null() {
                channels["telegram"]["botToken"] = json!(TOKEN);
            }
        }
        if channels["webhook"].is_object() {
            channels["webhook"]["url"] = json!(peer.url());
            channels["webhook"]["secret"] = json!(SECRET);
        }
        config["channels"] = channels;
        Self { scripted: ScriptedHome::answering(config, reply).await, telegram, peer }
    }

    pub(super) fn home(&self) -> &Home {
        &self.scripted.home
    }

    /// Starts a gateway that recovers its runs however often it was killed.
    pub(super) fn gateway(&self) -> RunningGateway<'_> {
        let mut command = self.home().command(&["gateway", "run", "--port", "0", "--recover"]);
        command.stderr(std::process::Stdio::null());
        self.home().listening(command)
    }

    /// Returns the messages on Telegram: chat and text.
    pub(super) fn answers(&self) -> Vec<(i64, String)> {
        self.telegram.visible_messages().into_iter().map(|seen| (seen.chat.as_i64().unwrap(), seen.text)).collect()
    }

    /// Returns the session keys.
    pub(super) fn sessions(&self, gateway: &RunningGateway<'_>) -> Vec<String> {
        let listed = gateway.run(&["sessions", "--json"]).json();
        let mut keys: Vec<_> =
            listed["sessions"].as_array().unwrap().iter().map(|row| row["key"].as_str().unwrap().to_owned()).collect();
        keys.sort();
        keys
    }

    /// Returns the number of model requests.
    pub(super) fn request_count(&self) -> usize {
        self.scripted.provider.requests().len()
    }
}

/// Returns the last message without its envelope.
pub(super) fn last_message(received: &ReceivedRequest) -> String {
    received.last_message()
}

fn echo(received: &ReceivedRequest) -> ProviderReply {
    ProviderReply::text(format!("echo {}", last_message(received)))
}

/// Sends a signed message to a gateway; returns status and body, `None` without a response.
pub(crate) fn post_signed(port: u16, path: &str, message: &Value, secret: &str) -> Option<(u16, String)> {
    let body = message.to_string();
    let now = homard_runtime::Ambient::system().now_ms() / 1000;
    let signature = sign(&Secret::from(secret), now, body.as_bytes());
    let headers = format!("x-homard-timestamp: {now}\r\nx-homard-signature: {signature}\r\n");
    request(port, &format!("POST {path} HTTP/1.0\r\nHost: localhost\r\n{headers}"), &body)
}

/// Sends a raw request; returns status and body, `None` without a response.
pub(super) fn request(port: u16, head: &str, body: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.write_all(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

/// Returns a message of the webhook channel.
pub(crate) fn webhook_message(id: &str, sender: &str, text: &str) -> Value {
    json!({"id": id, "sender": {"id": sender, "name": sender}, "text": text})
}
