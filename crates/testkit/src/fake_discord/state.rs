//! Everything that the fake Discord knows: channels with their messages, the session of the gateway, and faults.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{BOT, DiscordCall, DiscordFault, DiscordMessage, GENERAL, SERVER, THREAD};

/// First id of messages: of November 2025.
const FIRST_ID: u64 = 1_441_000_000_000_000_000;

/// An event of a session.
#[derive(Debug, Clone)]
pub(super) struct SessionEvent {
    pub(super) sequence: u64,
    pub(super) name: String,
    pub(super) data: Value,
}

/// A session of the gateway.
#[derive(Debug, Default)]
pub(super) struct FakeSession {
    pub(super) id: String,
    pub(super) events: Vec<SessionEvent>,
}

/// The gateway: its session and its connections.
#[derive(Debug)]
pub(super) struct GatewayState {
    pub(super) address: String,
    pub(super) session: Option<FakeSession>,
    /// Login messages: identify and resume.
    pub(super) logins: Vec<Value>,
    pub(super) heartbeats: usize,
    pub(super) last_heartbeat: Value,
    pub(super) heartbeat_ms: u64,
    pub(super) is_deaf: bool,
    pub(super) is_offline: bool,
    pub(super) login_close: Option<u16>,
    /// Connections up to this number are closed with the code.
    pub(super) closed: (u64, u16),
    pub(super) connections: u64,
    pub(super) keeps_early_events: bool,
    /// Events before the first session, if they are kept.
    early_events: Vec<(String, Value)>,
}

impl Default for GatewayState {
    fn default() -> Self {
        Self {
            address: String::new(),
            session: None,
            logins: Vec::new(),
            heartbeats: 0,
            last_heartbeat: Value::Null,
            heartbeat_ms: 40_000,
            is_deaf: false,
            is_offline: false,
            login_close: None,
            closed: (0, 0),
            connections: 0,
            keeps_early_events: false,
            early_events: Vec::new(),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct DiscordState {
    pub(super) api_address: String,
    pub(super) gateway: GatewayState,
    pub(super) faults: Vec<(String, DiscordFault)>,
    pub(super) calls: Vec<DiscordCall>,
    pub(super) files: BTreeMap<String, Vec<u8>>,
    pub(super) roles: BTreeMap<u64, Vec<String>>,
    /// Registered commands; null until there are some.
    pub(super) commands: Value,
    /// Messages of all channels, oldest first.
    messages: Vec<Value>,
    /// Content of the files of own messages, by message.
    sent_files: BTreeMap<String, Vec<u8>>,
    pub(super) repeats_messages: bool,
    /// Number of ids given out.
    ids: u64,
}

impl DiscordState {
    pub(super) fn new_id(&mut self) -> String {
        self.ids += 1;
        (FIRST_ID + self.ids).to_string()
    }

    /// Returns a channel as the API describes it; `None` if there is none.
    pub(super) fn channel(&self, id: u64) -> Option<Value> {
        let last = self.messages_in(id).last().map(|message| message["id"].clone());
        let server = |kind: u64, name: &str| {
            json!({
                "id": id.to_string(), "type": kind, "name": name, "guild_id": SERVER.to_string(),
                "last_message_id": last,
            })
        };
        match id {
            GENERAL => Some(server(0, "general")),
            THREAD..810 => {
                let mut thread = server(11, "a thread");
                thread["parent_id"] = json!(GENERAL.to_string());
                Some(thread)
            }
            500_000.. => {
                let user = (id - 500_000).to_string();
                Some(json!({"id": id.to_string(), "type": 1, "recipients": [{"id": user, "username": "someone"}]}))
            }
            _ => None,
        }
    }

    /// Returns the server with its channels, as the gateway describes it.
    pub(super) fn server(&self) -> Value {
        let own_role = json!({"id": "850", "name": "fake-bot", "tags": {"bot_id": BOT.to_string()}});
        json!({
            "id": SERVER.to_string(), "name": "A server", "channels": [self.channel(GENERAL)],
            "threads": (THREAD..810).map(|id| self.channel(id)).collect::<Vec<_>>(), "roles": [own_role],
        })
    }

    fn messages_in(&self, channel: u64) -> impl DoubleEndedIterator<Item = &Value> {
        let channel = channel.to_string();
        self.messages.iter().filter(move |message| message["channel_id"] == channel.as_str())
    }

    /// Returns messages after an id, newest first, as the API does.
    pub(super) fn messages_after(&self, channel: u64, after: u64, limit: usize) -> Vec<Value> {
        let id = |message: &Value| message["id"].as_str().and_then(|id| id.parse::<u64>().ok()).unwrap_or(0);
        let found = self.messages_in(channel).filter(|message| id(message) > after).take(limit).cloned();
        let mut found: Vec<Value> = found.collect();
        found.reverse();
        // Messages that are fetched name neither server nor member.
        for message in &mut found {
            if let Some(fields) = message.as_object_mut() {
                fields.remove("guild_id");
                fields.remove("member");
            }
        }
        found
    }

    pub(super) fn message(&mut self, channel: &str, id: &str) -> Option<&mut Value> {
        self.messages.iter_mut().find(|message| message["channel_id"] == channel && message["id"] == id)
    }

    pub(super) fn remove_message(&mut self, channel: &str, id: &str) -> bool {
        let before = self.messages.len();
        self.messages.retain(|message| message["channel_id"] != channel || message["id"] != id);
        self.messages.len() < before
    }

    pub(super) fn add_user_message(&mut self, channel: u64, user: u64, text: &str, extra: &Value) -> String {
        let author =
            json!({"id": user.to_string(), "username": format!("user{user}"), "global_name": format!("User {user}")});
        let mut fields = json!({"author": author, "content": text});
        if channel < 500_000 {
            fields["guild_id"] = json!(SERVER.to_string());
            fields["member"] = json!({"roles": self.roles.get(&user).cloned().unwrap_or_default()});
        }
        if let (Some(fields), Some(extra)) = (fields.as_object_mut(), extra.as_object()) {
            fields.extend(extra.clone());
        }
        self.add_message(channel, fields)
    }

    /// Adds a message of the bot. The same nonce returns the first message.
    pub(super) fn add_own_message(&mut self, channel: u64, body: &Value, file: Option<Vec<u8>>) -> Value {
        let nonce = &body["nonce"];
        if body["enforce_nonce"] == true
            && let Some(known) =
                self.messages_in(channel).find(|message| !nonce.is_null() && message["nonce"] == *nonce)
        {
            return known.clone();
        }
        let author = json!({"id": BOT.to_string(), "username": "fake-bot", "bot": true});
        let mut fields = json!({
            "author": author, "content": body["content"].as_str().unwrap_or_default(), "nonce": nonce,
            "components": body["components"], "message_reference": body["message_reference"], "poll": body["poll"],
        });
        if channel < 500_000 {
            fields["guild_id"] = json!(SERVER.to_string());
        }
        let id = self.add_message(channel, fields);
        self.sent_files.extend(file.map(|file| (id.clone(), file)));
        self.message(&channel.to_string(), &id).cloned().unwrap_or_default()
    }

    fn add_message(&mut self, channel: u64, mut fields: Value) -> String {
        let id = self.new_id();
        let base = json!({
            "id": id, "channel_id": channel.to_string(), "type": 0, "mentions": [], "mention_roles": [],
            "attachments": [], "edited_timestamp": null,
        });
        if let (Some(fields), Some(base)) = (fields.as_object_mut(), base.as_object()) {
            for (name, value) in base {
                fields.entry(name.clone()).or_insert_with(|| value.clone());
            }
        }
        self.messages.push(fields.clone());
        self.add_event("MESSAGE_CREATE", fields);
        id
    }

    pub(super) fn add_interaction(&mut self, user: u64, kind: u64, data: &Value) -> String {
        let id = self.new_id();
        let channel = super::FakeDiscord::direct_channel(user).to_string();
        let event = json!({
            "id": id, "type": kind, "token": format!("token-of-{id}"), "channel_id": channel, "data": data,
            "application_id": BOT.to_string(), "user": {"id": user.to_string(), "username": format!("user{user}")},
            "message": {"id": "1"},
        });
        self.add_event("INTERACTION_CREATE", event);
        id
    }

    /// Adds an event to the session. Without one it is lost, unless events before the first one are kept.
    pub(super) fn add_event(&mut self, name: &str, data: Value) {
        let repeated = if std::mem::take(&mut self.repeats_messages) { self.messages.clone() } else { Vec::new() };
        let Some(session) = &mut self.gateway.session else {
            if self.gateway.logins.is_empty() && self.gateway.keeps_early_events {
                self.gateway.early_events.push((name.to_owned(), data));
            }
            return;
        };
        let known: Vec<Value> = repeated.into_iter().filter(|message| *message != data).collect();
        let events =
            known.into_iter().map(|message| ("MESSAGE_CREATE".to_owned(), message)).chain([(name.to_owned(), data)]);
        for (name, data) in events {
            let sequence = session.events.len() as u64 + 1;
            session.events.push(SessionEvent { sequence, name, data });
        }
    }

    /// Starts a session.
    pub(super) fn identify(&mut self) {
        let id = format!("session-{}", self.new_id());
        self.gateway.session = Some(FakeSession { id: id.clone(), events: Vec::new() });
        self.gateway.last_heartbeat = Value::Null;
        let ready = json!({
            "v": 10, "session_id": id, "resume_gateway_url": self.gateway.address,
            "user": {"id": BOT.to_string(), "username": "fake-bot", "bot": true},
            "application": {"id": BOT.to_string(), "flags": 0}, "guilds": [{"id": SERVER.to_string(), "unavailable": true}],
        });
        self.add_event("READY", ready);
        let server = self.server();
        self.add_event("GUILD_CREATE", server);
        for (name, data) in std::mem::take(&mut self.gateway.early_events) {
            self.add_event(&name, data);
        }
    }

    pub(super) fn disconnect(&mut self, code: u16) {
        self.gateway.closed = (self.gateway.connections, code);
    }

    /// Records a request and returns its fault.
    pub(super) fn record_call(&mut self, call: &DiscordCall) -> Option<DiscordFault> {
        self.calls.push(call.clone());
        let at = self.faults.iter().position(|(route, _)| *route == call.route)?;
        Some(self.faults.remove(at).1)
    }

    pub(super) fn visible_messages(&self) -> Vec<DiscordMessage> {
        let bot = BOT.to_string();
        let own = self.messages.iter().filter(|message| message["author"]["id"] == bot.as_str());
        let visible = own.map(|message| DiscordMessage {
            id: message["id"].as_str().unwrap_or_default().to_owned(),
            channel: message["channel_id"].as_str().and_then(|id| id.parse().ok()).unwrap_or(0),
            text: message["content"].as_str().unwrap_or_default().to_owned(),
            reply_to: message["message_reference"]["message_id"].as_str().map(str::to_owned),
            buttons: buttons(&message["components"]),
            file: message["id"].as_str().and_then(|id| self.sent_files.get(id)).cloned(),
        });
        visible.collect()
    }
}

fn buttons(rows: &Value) -> Vec<(String, String)> {
    let rows = rows.as_array().into_iter().flatten();
    let buttons = rows.flat_map(|row| row["components"].as_array().into_iter().flatten());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    buttons.map(|button| (text(&button["label"]), text(&button["custom_id"]))).collect()
}
