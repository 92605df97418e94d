//! A fake Telegram Bot API over real HTTP on loopback, correct or with faults.
//!
//! By default it behaves like Telegram: it keeps updates until a later offset is requested, supports long polling,
//! terminates the older of two pollers, and rejects texts that are too long or have invalid tags. A script adds faults
//! to the next call of a method. It shares no code with `homard-channels`, so that the two cannot have the same bug.
//! `markup` parses HTML, `double` makes it a platform of the suite of all channels.

mod bot;
mod double;
mod markup;

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde_json::{Value, json};
use tokio::sync::watch;

use self::bot::FakeBot;
use crate::{
    fake_form,
    fake_http::{FakeHttpReply, FakeHttpRequest, FakeHttpServer},
};

/// Token of the only bot.
pub const TOKEN: &str = "123456:fake-Token_of_the_testkit";

/// Fault of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TelegramFault {
    /// None, so that a later call can be faulty.
    Nothing,
    /// 429 with a number of seconds to wait. The call has no effect.
    Flood(u64),
    /// Error with this code. The call has no effect.
    Denied(u16, &'static str),
    /// The group was migrated to a new id. The call has no effect.
    Moved(i64),
    /// HTML page of a proxy with this status. The call has no effect.
    Page(u16),
    /// The connection is closed before the call takes effect.
    Cut,
    /// The call takes effect, and the connection is closed before the response.
    AcceptThenDrop,
    /// The call takes effect, and the connection is closed within the response.
    AcceptThenHalf,
    /// The call takes effect, and there is no response.
    AcceptThenSilence,
    /// No response, and the call has no effect.
    Silence,
    /// For updates: wrong order, each one twice.
    Disorder,
    /// For updates: acknowledged ones are sent again.
    Again,
}

/// A received call.
#[derive(Debug, Clone, PartialEq)]
pub struct TelegramCall {
    /// Method.
    pub method: String,
    /// Parameters.
    pub params: Value,
    /// Uploaded file, if any: parameter, file name and bytes.
    pub file: Option<(String, String, Vec<u8>)>,
}

/// A message visible in a chat.
#[derive(Debug, Clone, PartialEq)]
pub struct VisibleMessage {
    /// Message id.
    pub id: i64,
    /// Chat id.
    pub chat: Value,
    /// Topic id.
    pub topic: Option<i64>,
    /// Text without tags.
    pub text: String,
    /// Id of the message it replies to.
    pub reply_to: Option<i64>,
    /// Method that sent it.
    pub method: String,
    /// Content of the uploaded file, if any.
    pub file: Option<Vec<u8>>,
}

/// A running server. Stops on drop.
#[derive(Debug)]
pub struct FakeTelegram {
    server: FakeHttpServer,
    shared: Arc<TelegramShared>,
}

#[derive(Debug)]
struct TelegramShared {
    bot: Mutex<FakeBot>,
    /// Counter of changes; waiters check their condition at each.
    changes: watch::Sender<u64>,
}

impl TelegramShared {
    fn bot(&self) -> MutexGuard<'_, FakeBot> {
        self.bot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }
}

impl FakeTelegram {
    /// Listens on a free loopback port.
    pub async fn start() -> io::Result<Self> {
        let shared = Arc::new(TelegramShared { bot: Mutex::default(), changes: watch::channel(0).0 });
        let server_shared = shared.clone();
        let server = FakeHttpServer::start(move |request| answer(server_shared.clone(), request)).await?;
        Ok(Self { server, shared })
    }

    /// Returns the API root for a config.
    pub fn root(&self) -> String {
        format!("http://{}", self.server.address)
    }

    /// Adds an update and returns its id.
    pub fn add_update(&self, update: Value) -> i64 {
        let number = self.shared.bot().add_update(update);
        self.shared.notify();
        number
    }

    /// Adds a private message to the bot.
    pub fn add_message(&self, from: i64, text: &str) -> i64 {
        let chat = json!({"id": from, "type": "private"});
        let sender = json!({"id": from, "is_bot": false, "first_name": format!("User {from}")});
        let message = json!({"message_id": 0, "date": 1_794_758_460, "chat": chat, "from": sender, "text": text});
        self.add_update(json!({ "message": message }))
    }

    /// Adds a fault to the next call of a method; faults are used in order.
    pub fn add_fault(&self, method: &str, fault: TelegramFault) {
        self.shared.bot().faults.push((method.to_owned(), fault));
    }

    /// Stores a file under an id.
    pub fn add_file(&self, id: &str, bytes: Vec<u8>) {
        self.shared.bot().files.insert(id.to_owned(), bytes);
    }

    /// Returns all calls so far.
    pub fn calls(&self) -> Vec<TelegramCall> {
        self.shared.bot().calls.clone()
    }

    /// Returns the calls of one method.
    pub fn calls_of(&self, method: &str) -> Vec<TelegramCall> {
        self.calls().into_iter().filter(|call| call.method == method).collect()
    }

    /// Returns the messages visible in all chats, in the order in which they were sent.
    pub fn visible_messages(&self) -> Vec<VisibleMessage> {
        self.shared.bot().visible_messages.clone()
    }

    /// Returns the ids of updates that were not acknowledged.
    pub fn pending_updates(&self) -> Vec<i64> {
        self.shared.bot().updates.iter().filter_map(|update| update["update_id"].as_i64()).collect()
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

async fn answer(shared: Arc<TelegramShared>, request: FakeHttpRequest) -> FakeHttpReply {
    if let Some(path) = request.path.strip_prefix(&format!("/file/bot{TOKEN}/")) {
        let file = shared.bot().files.get(path.trim_start_matches("files/")).cloned();
        return match file {
            Some(body) => FakeHttpReply::Complete { status: 200, headers: Vec::new(), body },
            None => denied(404, "Not Found"),
        };
    }
    let Some(method) = request.path.strip_prefix(&format!("/bot{TOKEN}/")).map(str::to_owned) else {
        return denied(401, "Unauthorized");
    };
    let call = match fake_form::read(&request) {
        Some((params, files)) => TelegramCall { method, params, file: files.into_iter().next() },
        None => TelegramCall { method, params: serde_json::from_slice(&request.body).unwrap_or_default(), file: None },
    };
    let fault = shared.bot().record_call(&call);
    shared.notify();
    let reply = match &fault {
        Some(TelegramFault::Flood(seconds)) => return flood(*seconds),
        Some(TelegramFault::Denied(code, why)) => return denied(*code, why),
        Some(TelegramFault::Moved(chat)) => return moved(*chat),
        Some(TelegramFault::Page(status)) => return FakeHttpReply::page(*status),
        Some(TelegramFault::Cut) => return FakeHttpReply::Cut,
        Some(TelegramFault::Silence) => return FakeHttpReply::Silence,
        Some(
            TelegramFault::AcceptThenDrop
            | TelegramFault::AcceptThenHalf
            | TelegramFault::AcceptThenSilence
            | TelegramFault::Disorder
            | TelegramFault::Again
            | TelegramFault::Nothing,
        )
        | None => {
            let is_updates = call.method == "getUpdates";
            if is_updates { updates(&shared, &call, fault.as_ref()).await } else { shared.bot().answer(&call) }
        }
    };
    shared.notify();
    match fault {
        Some(TelegramFault::AcceptThenDrop) => FakeHttpReply::Cut,
        Some(TelegramFault::AcceptThenHalf) => FakeHttpReply::Truncated,
        Some(TelegramFault::AcceptThenSilence) => FakeHttpReply::Silence,
        _ => reply,
    }
}

/// Holds a long poll open until there are updates, it times out, or another poll starts.
async fn updates(shared: &TelegramShared, call: &TelegramCall, fault: Option<&TelegramFault>) -> FakeHttpReply {
    let mut changes = shared.changes.subscribe();
    let (poll, disconnects) = {
        let mut bot = shared.bot();
        match bot.begin_poll(&call.params) {
            Ok(poll) => (poll, bot.disconnects),
            Err(why) => return denied(409, why),
        }
    };
    let poll_timeout = std::time::Duration::from_secs(call.params["timeout"].as_u64().unwrap_or(0));
    let waiting = async {
        loop {
            let ready = {
                let bot = shared.bot();
                let is_cut = bot.disconnects != disconnects;
                if is_cut { Some(FakeHttpReply::Cut) } else { bot.poll(poll, &call.params, fault) }
            };
            if let Some(reply) = ready {
                return reply;
            }
            if changes.changed().await.is_err() {
                return FakeHttpReply::Cut;
            }
        }
    };
    tokio::time::timeout(poll_timeout, waiting).await.unwrap_or_else(|_over| success(&json!([])))
}

fn success(result: &Value) -> FakeHttpReply {
    FakeHttpReply::json(200, &json!({"ok": true, "result": result}))
}

fn denied(code: u16, why: &str) -> FakeHttpReply {
    FakeHttpReply::json(code, &json!({"ok": false, "error_code": code, "description": why}))
}

fn flood(seconds: u64) -> FakeHttpReply {
    let description = format!("Too Many Requests: retry after {seconds}");
    let parameters = json!({"retry_after": seconds});
    let body = json!({"ok": false, "error_code": 429, "description": description, "parameters": parameters});
    FakeHttpReply::json(429, &body)
}

fn moved(chat: i64) -> FakeHttpReply {
    let description = "Bad Request: group chat was upgraded to a supergroup chat";
    let parameters = json!({"migrate_to_chat_id": chat});
    let body = json!({"ok": false, "error_code": 400, "description": description, "parameters": parameters});
    FakeHttpReply::json(400, &body)
}
