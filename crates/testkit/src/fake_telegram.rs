//! The Bot API over real HTTP on loopback, well or badly.
//!
//! By itself it does what Telegram does: it keeps updates until one after them is asked for, holds a question open, ends
//! the older of two pollers, refuses texts that are too long or whose tags are wrong. A script says what goes wrong with
//! the next call of a method. It shares no code with `homard-channels`, so that one cannot be wrong in the way of the
//! other. `markup` is how it reads HTML.

mod bot;
mod markup;
mod multipart;

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde_json::{Value, json};
use tokio::sync::watch;

use self::bot::Bot;
use crate::fake_http::{Reply, Request, Server};

/// The token of the one bot that there is.
pub const TOKEN: &str = "123456:fake-Token_of_the_testkit";

/// What goes wrong with a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Nothing, so that the call after this one can go wrong.
    Nothing,
    /// 429, and how many seconds to wait. Nothing is done.
    Flood(u64),
    /// A refusal or a failure with this code. Nothing is done.
    Denied(u16, &'static str),
    /// The group has a new number. Nothing is done.
    Moved(i64),
    /// A page of a proxy with this status. Nothing is done.
    Page(u16),
    /// The connection ends before anything is done.
    Cut,
    /// It is done, and the connection ends before the answer.
    AcceptThenDrop,
    /// It is done, and the connection ends within the answer.
    AcceptThenHalf,
    /// Nothing comes, and nothing is done.
    Silence,
    /// Of updates: they come in the wrong order, each one twice.
    Disorder,
    /// Of updates: those that were asked away come again.
    Again,
}

/// A call that came in.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The method.
    pub method: String,
    /// Its parameters.
    pub params: Value,
    /// Its file, if it has one: the parameter, what it is called, and its bytes.
    pub file: Option<(String, String, Vec<u8>)>,
}

/// A message that people see in a chat.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// Its number.
    pub id: i64,
    /// The chat.
    pub chat: Value,
    /// The topic.
    pub topic: Option<i64>,
    /// What it says, without tags.
    pub text: String,
    /// Which message it answers.
    pub reply_to: Option<i64>,
    /// The method that sent it.
    pub method: String,
}

/// The running server. It stops when it is dropped.
#[derive(Debug)]
pub struct FakeTelegram {
    server: Server,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    bot: Mutex<Bot>,
    /// How many things happened; who waits for something looks again at each.
    news: watch::Sender<u64>,
}

impl Shared {
    fn bot(&self) -> MutexGuard<'_, Bot> {
        self.bot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self) {
        self.news.send_modify(|news| *news += 1);
    }
}

impl FakeTelegram {
    /// Listens on a free port of loopback.
    pub async fn start() -> io::Result<Self> {
        let shared = Arc::new(Shared { bot: Mutex::default(), news: watch::channel(0).0 });
        let serving = shared.clone();
        let server = Server::start(move |request| answer(serving.clone(), request)).await?;
        Ok(Self { server, shared })
    }

    /// What a config calls its root.
    pub fn root(&self) -> String {
        format!("http://{}", self.server.address)
    }

    /// Something happens on Telegram. The update gets the next number, which is returned.
    pub fn happens(&self, update: Value) -> i64 {
        let number = self.shared.bot().happens(update);
        self.shared.tell();
        number
    }

    /// Somebody writes to the bot alone.
    pub fn writes(&self, from: i64, text: &str) -> i64 {
        let chat = json!({"id": from, "type": "private"});
        let sender = json!({"id": from, "is_bot": false, "first_name": format!("User {from}")});
        let message = json!({"message_id": 0, "date": 1_794_758_460, "chat": chat, "from": sender, "text": text});
        self.happens(json!({ "message": message }))
    }

    /// The next call of a method goes wrong; after it, the next one that is said here.
    pub fn spoil(&self, method: &str, fault: Fault) {
        self.shared.bot().faults.push((method.to_owned(), fault));
    }

    /// Puts a file on the server, and says under which id.
    pub fn keep(&self, id: &str, bytes: Vec<u8>) {
        self.shared.bot().files.insert(id.to_owned(), bytes);
    }

    /// All calls so far.
    pub fn calls(&self) -> Vec<Call> {
        self.shared.bot().calls.clone()
    }

    /// The calls of one method.
    pub fn calls_of(&self, method: &str) -> Vec<Call> {
        self.calls().into_iter().filter(|call| call.method == method).collect()
    }

    /// What people see in all chats, in the order in which it was sent.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.bot().seen.clone()
    }

    /// The updates that the bot has not asked away.
    pub fn waiting(&self) -> Vec<i64> {
        self.shared.bot().updates.iter().filter_map(|update| update["update_id"].as_i64()).collect()
    }

    /// Waits until something is true.
    pub async fn until(&self, is_so: impl Fn(&Self) -> bool) {
        let mut news = self.shared.news.subscribe();
        while !is_so(self) {
            if news.changed().await.is_err() {
                return;
            }
        }
    }
}

async fn answer(shared: Arc<Shared>, request: Request) -> Reply {
    if let Some(path) = request.path.strip_prefix(&format!("/file/bot{TOKEN}/")) {
        let file = shared.bot().files.get(path.trim_start_matches("files/")).cloned();
        return match file {
            Some(body) => Reply::Whole { status: 200, headers: Vec::new(), body },
            None => denied(404, "Not Found"),
        };
    }
    let Some(method) = request.path.strip_prefix(&format!("/bot{TOKEN}/")).map(str::to_owned) else {
        return denied(401, "Unauthorized");
    };
    let call = match multipart::read(&request) {
        Some((params, file)) => Call { method, params, file: Some(file) },
        None => Call { method, params: serde_json::from_slice(&request.body).unwrap_or_default(), file: None },
    };
    let fault = shared.bot().called(&call);
    shared.tell();
    let reply = match &fault {
        Some(Fault::Flood(seconds)) => return flood(*seconds),
        Some(Fault::Denied(code, why)) => return denied(*code, why),
        Some(Fault::Moved(chat)) => return moved(*chat),
        Some(Fault::Page(status)) => return Reply::page(*status),
        Some(Fault::Cut) => return Reply::Cut,
        Some(Fault::Silence) => return Reply::Silence,
        Some(Fault::AcceptThenDrop | Fault::AcceptThenHalf | Fault::Disorder | Fault::Again | Fault::Nothing)
        | None => {
            let is_updates = call.method == "getUpdates";
            if is_updates { updates(&shared, &call, fault.as_ref()).await } else { shared.bot().answer(&call) }
        }
    };
    shared.tell();
    match fault {
        Some(Fault::AcceptThenDrop) => Reply::Cut,
        Some(Fault::AcceptThenHalf) => Reply::Half,
        _ => reply,
    }
}

/// Holds a question for updates open until there are some, the time is over, or another one comes.
async fn updates(shared: &Shared, call: &Call, fault: Option<&Fault>) -> Reply {
    let mut news = shared.news.subscribe();
    let poll = match shared.bot().begin_poll(&call.params) {
        Ok(poll) => poll,
        Err(why) => return denied(409, why),
    };
    let hold = std::time::Duration::from_secs(call.params["timeout"].as_u64().unwrap_or(0));
    let waiting = async {
        loop {
            let ready = shared.bot().poll(poll, &call.params, fault);
            if let Some(reply) = ready {
                return reply;
            }
            if news.changed().await.is_err() {
                return Reply::Cut;
            }
        }
    };
    tokio::time::timeout(hold, waiting).await.unwrap_or_else(|_over| good(&json!([])))
}

fn good(result: &Value) -> Reply {
    Reply::json(200, &json!({"ok": true, "result": result}))
}

fn denied(code: u16, why: &str) -> Reply {
    Reply::json(code, &json!({"ok": false, "error_code": code, "description": why}))
}

fn flood(seconds: u64) -> Reply {
    let description = format!("Too Many Requests: retry after {seconds}");
    let parameters = json!({"retry_after": seconds});
    let body = json!({"ok": false, "error_code": 429, "description": description, "parameters": parameters});
    Reply::json(429, &body)
}

fn moved(chat: i64) -> Reply {
    let description = "Bad Request: group chat was upgraded to a supergroup chat";
    let parameters = json!({"migrate_to_chat_id": chat});
    let body = json!({"ok": false, "error_code": 400, "description": description, "parameters": parameters});
    Reply::json(400, &body)
}
