//! A fake Discord over real sockets on loopback: its HTTP API and its gateway, correct or with faults.
//!
//! By default it behaves like Discord: it delivers events to the connected session and keeps them for a resumed one,
//! keeps the messages of each channel, rejects texts that are too long, and recognizes a nonce that it has seen. A script
//! adds faults to the next request of a route, closes connections, or refuses to resume a session. It shares no code
//! with `homard-channels`, so that the two cannot have the same bug.

mod api;
mod gateway;
mod state;

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde_json::{Value, json};
use tokio::sync::watch;

use self::{gateway::FakeGateway, state::DiscordState};
use crate::fake_http::FakeHttpServer;

/// Token of the only bot.
pub const TOKEN: &str = "fake.Token-of.the_testkit";

/// Id of the bot, and of its application.
pub const BOT: u64 = 100;

/// Id of the only server.
pub const SERVER: u64 = 800;

/// Id of a text channel on the server.
pub const GENERAL: u64 = 801;

/// Id of the first thread of that channel. There are eight.
pub const THREAD: u64 = 802;

/// Route that sends messages, for faults.
pub const SEND: &str = "POST channels/*/messages";

/// Fault of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum DiscordFault {
    /// None, so that a later request can be faulty.
    Nothing,
    /// 429 with a number of seconds to wait. The request has no effect.
    Flood(f64),
    /// 429 for all routes.
    GlobalFlood(f64),
    /// Error with this status and code. The request has no effect.
    Denied(u16, u64, &'static str),
    /// HTML page of a proxy with this status. The request has no effect.
    Page(u16),
    /// The connection is closed before the request takes effect.
    Cut,
    /// The request takes effect, and the connection is closed before the response.
    AcceptThenDrop,
    /// The request takes effect, and the connection is closed within the response.
    AcceptThenHalf,
    /// No response, and the request has no effect.
    Silence,
    /// The request takes effect, and there is no response.
    AcceptThenSilence,
    /// The response says that the bucket has this many requests left, and is filled after these seconds.
    Bucket(u64, f64),
}

/// A received request.
#[derive(Debug, Clone, PartialEq)]
pub struct DiscordCall {
    /// Method and path, with `*` for each id.
    pub route: String,
    /// Path.
    pub path: String,
    /// Body; of a form, its JSON part.
    pub body: Value,
    /// Uploaded files: parameter, file name and bytes.
    pub files: Vec<(String, String, Vec<u8>)>,
}

/// A message of the bot that is visible in a channel.
#[derive(Debug, Clone, PartialEq)]
pub struct DiscordMessage {
    /// Message id.
    pub id: String,
    /// Channel id.
    pub channel: u64,
    /// Text.
    pub text: String,
    /// Id of the message it replies to.
    pub reply_to: Option<String>,
    /// Labels of its buttons with their ids.
    pub buttons: Vec<(String, String)>,
    /// Content of its first file.
    pub file: Option<Vec<u8>>,
}

/// A running server. Stops on drop.
#[derive(Debug)]
pub struct FakeDiscord {
    server: FakeHttpServer,
    _gateway: FakeGateway,
    shared: Arc<DiscordShared>,
}

#[derive(Debug)]
struct DiscordShared {
    state: Mutex<DiscordState>,
    /// Counter of changes; waiters check their condition at each.
    changes: watch::Sender<u64>,
}

impl DiscordShared {
    fn state(&self) -> MutexGuard<'_, DiscordState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    fn change<T>(&self, change: impl FnOnce(&mut DiscordState) -> T) -> T {
        let result = change(&mut self.state());
        self.notify();
        result
    }
}

impl FakeDiscord {
    /// Listens on free loopback ports.
    pub async fn start() -> io::Result<Self> {
        let shared = Arc::new(DiscordShared { state: Mutex::default(), changes: watch::channel(0).0 });
        let gateway = FakeGateway::start(shared.clone()).await?;
        shared.state().gateway.address = format!("ws://{}", gateway.address);
        let server_shared = shared.clone();
        let server = FakeHttpServer::start(move |request| api::answer(server_shared.clone(), request)).await?;
        shared.state().api_address = format!("http://{}", server.address);
        Ok(Self { server, _gateway: gateway, shared })
    }

    /// Returns the address of the API for a config.
    pub fn root(&self) -> String {
        format!("http://{}/api/v10", self.server.address)
    }

    /// Returns the channel of the direct chat with a user.
    pub fn direct_channel(user: u64) -> u64 {
        500_000 + user
    }

    /// Adds a direct message to the bot, and returns its id.
    pub fn add_direct(&self, user: u64, text: &str) -> String {
        self.add_message(Self::direct_channel(user), user, text, &json!({}))
    }

    /// Adds a message of a user to a channel, and returns its id. `extra` are further fields of the message.
    pub fn add_message(&self, channel: u64, user: u64, text: &str, extra: &Value) -> String {
        self.shared.change(|state| state.add_user_message(channel, user, text, extra))
    }

    /// Adds a message that mentions the bot.
    pub fn add_mention(&self, channel: u64, user: u64, text: &str) -> String {
        let text = format!("<@{BOT}> {text}");
        self.add_message(channel, user, &text, &json!({"mentions": [{"id": BOT.to_string(), "username": "fake-bot"}]}))
    }

    /// Adds an event of the gateway.
    pub fn add_event(&self, name: &str, data: &Value) {
        self.shared.change(|state| state.add_event(name, data.clone()));
    }

    /// Adds an interaction of a user in a direct chat, and returns its id.
    pub fn add_interaction(&self, user: u64, kind: u64, data: &Value) -> String {
        self.shared.change(|state| state.add_interaction(user, kind, data))
    }

    /// Keeps events for the first session. Discord loses them; tests then need not wait until the client is connected.
    pub fn keep_early_events(&self) {
        self.shared.state().gateway.keeps_early_events = true;
    }

    /// Sets the roles of a member of the server.
    pub fn set_roles(&self, user: u64, roles: &[&str]) {
        self.shared.state().roles.insert(user, roles.iter().map(|role| (*role).to_owned()).collect());
    }

    /// Adds a fault to the next request of a route, such as [`SEND`]; faults are used in order.
    pub fn add_fault(&self, route: &str, fault: DiscordFault) {
        self.shared.state().faults.push((route.to_owned(), fault));
    }

    /// Stores the content of an attachment, and returns the attachment for a message.
    pub fn add_file(&self, id: u64, name: &str, bytes: Vec<u8>) -> Value {
        let mut state = self.shared.state();
        let url = format!("{}/files/{id}", state.api_address);
        let attachment = json!({"id": id.to_string(), "filename": name, "size": bytes.len(), "url": url});
        state.files.insert(id.to_string(), bytes);
        attachment
    }

    /// Closes all connections of the gateway with a code. The session can be resumed.
    pub fn disconnect(&self, code: u16) {
        self.shared.change(|state| state.disconnect(code));
    }

    /// Ends the session, so that it cannot be resumed: events that are not delivered yet are lost.
    pub fn end_session(&self) {
        self.shared.change(|state| state.gateway.session = None);
    }

    /// Closes each connection with this code once it has logged in; `None` ends that.
    pub fn reject_logins(&self, code: Option<u16>) {
        self.shared.state().gateway.login_close = code;
    }

    /// Rejects connections of the gateway while set.
    pub fn set_offline(&self, is_offline: bool) {
        self.shared.state().gateway.is_offline = is_offline;
    }

    /// Stops or resumes to acknowledge heartbeats.
    pub fn set_acknowledges(&self, acknowledges: bool) {
        self.shared.state().gateway.is_deaf = !acknowledges;
    }

    /// Sets the interval of heartbeats for later connections.
    pub fn set_heartbeat_ms(&self, interval: u64) {
        self.shared.state().gateway.heartbeat_ms = interval;
    }

    /// Returns all requests so far.
    pub fn calls(&self) -> Vec<DiscordCall> {
        self.shared.state().calls.clone()
    }

    /// Returns the requests of one route.
    pub fn calls_of(&self, route: &str) -> Vec<DiscordCall> {
        self.calls().into_iter().filter(|call| call.route == route).collect()
    }

    /// Returns the login messages of the gateway: identify and resume.
    pub fn logins(&self) -> Vec<Value> {
        self.shared.state().gateway.logins.clone()
    }

    /// Delivers all messages so far once more, as new events, with the next event.
    pub fn repeat_messages(&self) {
        self.shared.state().repeats_messages = true;
    }

    /// Returns the number of heartbeats received, and the last stored event that the last one named.
    pub fn heartbeats(&self) -> (usize, Value) {
        let state = self.shared.state();
        (state.gateway.heartbeats, state.gateway.last_heartbeat.clone())
    }

    /// True if the client has stored all events of the session, as far as its heartbeats say.
    pub fn has_stored_all(&self) -> bool {
        let state = self.shared.state();
        state.gateway.session.as_ref().is_some_and(|session| state.gateway.last_heartbeat == session.events.len())
    }

    /// Returns the messages of the bot in all channels, in the order in which they were sent.
    pub fn visible_messages(&self) -> Vec<DiscordMessage> {
        self.shared.state().visible_messages()
    }

    /// Waits until a condition holds; it is checked again after every change.
    pub async fn until(&self, condition: impl Fn(&Self) -> bool) {
        let mut changes = self.shared.changes.subscribe();
        while !condition(self) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }
}
