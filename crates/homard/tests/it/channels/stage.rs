//! What the tests of channels have in common: a home with a model that repeats what it hears, and the other sides.

use std::{
    future::Future,
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use homard_channels::{Secret, webhook::signature::sign};
use homard_testkit::{
    FakeTelegram, FakeWebhook,
    fake_provider::{Asked, Reply},
    fake_telegram::TOKEN,
};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    home::{Gateway, Home},
    puppet::Puppet,
};

/// What both sides of the webhook channel sign with.
pub(super) const SECRET: &str = "a secret of the tests";

/// How long something may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for something that comes soon.
pub(super) async fn soon<T>(what: &str, coming: impl Future<Output = T>) -> T {
    timeout(PATIENCE, coming).await.unwrap_or_else(|_| panic!("{what}: not within {PATIENCE:?}"))
}

/// A home, and everybody whom it talks to.
pub(super) struct Stage {
    pub(super) puppet: Puppet,
    pub(super) telegram: FakeTelegram,
    pub(super) peer: FakeWebhook,
}

impl Stage {
    /// A home on Telegram.
    pub(super) async fn telegram(account: Value) -> Self {
        Self::with(json!({"telegram": account}), json!({})).await
    }

    /// A home with these channels, and with this config besides.
    pub(super) async fn with(mut channels: Value, config: Value) -> Self {
        Self::answering(channels.take(), config, echo).await
    }

    /// The same with a model that has its own mind.
    pub(super) async fn answering(
        mut channels: Value,
        mut config: Value,
        reply: impl FnMut(&Asked) -> Reply + Send + 'static,
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
        Self { puppet: Puppet::answering(config, reply).await, telegram, peer }
    }

    pub(super) fn home(&self) -> &Home {
        &self.puppet.home
    }

    /// A gateway, however often the one before was killed.
    pub(super) fn gateway(&self) -> Gateway<'_> {
        let mut command = self.home().command(&["gateway", "run", "--port", "0", "--recover"]);
        command.stderr(std::process::Stdio::null());
        self.home().listening(command)
    }

    /// What people on Telegram read, and where.
    pub(super) fn answers(&self) -> Vec<(i64, String)> {
        self.telegram.seen().into_iter().map(|seen| (seen.chat.as_i64().unwrap(), seen.text)).collect()
    }

    /// The sessions that there are.
    pub(super) fn sessions(&self, gateway: &Gateway<'_>) -> Vec<String> {
        let listed = gateway.run(&["sessions", "--json"]).json();
        let mut keys: Vec<_> =
            listed["sessions"].as_array().unwrap().iter().map(|row| row["key"].as_str().unwrap().to_owned()).collect();
        keys.sort();
        keys
    }

    /// How often the model was asked.
    pub(super) fn asked(&self) -> usize {
        self.puppet.provider.asked().len()
    }
}

/// What was said last, without its envelope.
pub(super) fn heard(asked: &Asked) -> String {
    let messages = asked.json()["messages"].as_array().cloned().unwrap_or_default();
    let content = &messages.last().cloned().unwrap_or_default()["content"];
    let blocks = content.as_array().into_iter().flatten();
    let words = blocks.filter_map(|block| block["text"].as_str().map(str::to_owned));
    let text: String = content.as_str().map(str::to_owned).into_iter().chain(words).collect();
    text.rsplit_once("] ").map_or(text.clone(), |(_, said)| said.to_owned())
}

fn echo(asked: &Asked) -> Reply {
    Reply::text(format!("echo {}", heard(asked)))
}

/// Brings a signed message to a gateway: the status, and what it says. None if nobody answers.
pub(super) fn knock(port: u16, path: &str, message: &Value, secret: &str) -> Option<(u16, String)> {
    let body = message.to_string();
    let now = homard_agent::Ambient::system().now_ms() / 1000;
    let signature = sign(&Secret::from(secret), now, body.as_bytes());
    let headers = format!("x-homard-timestamp: {now}\r\nx-homard-signature: {signature}\r\n");
    request(port, &format!("POST {path} HTTP/1.0\r\nHost: localhost\r\n{headers}"), &body)
}

/// A request as it is written: the status, and what is answered. None if nobody answers.
pub(super) fn request(port: u16, head: &str, body: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.write_all(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

/// A message of the webhook channel.
pub(super) fn said(id: &str, sender: &str, text: &str) -> Value {
    json!({"id": id, "sender": {"id": sender, "name": sender}, "text": text})
}
