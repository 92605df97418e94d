//! Server-side state of the bot: pending updates, and the messages in chats.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{TelegramCall, TelegramFault, VisibleMessage, denied, markup, success};
use crate::fake_http::FakeHttpReply;

/// Everything that Telegram knows about a bot.
#[derive(Debug, Default)]
pub(super) struct FakeBot {
    pub(super) updates: Vec<Value>,
    /// Acknowledged updates, for a fault that sends them again.
    pub(super) acknowledged: Vec<Value>,
    pub(super) faults: Vec<(String, TelegramFault)>,
    pub(super) files: BTreeMap<String, Vec<u8>>,
    pub(super) calls: Vec<TelegramCall>,
    pub(super) visible_messages: Vec<VisibleMessage>,
    last_update: i64,
    /// How often the numbers of updates started anew, lower than before.
    restarts: i64,
    last_message: i64,
    polls: u64,
    /// How often running polls were cut.
    pub(super) disconnects: u64,
    has_webhook: bool,
}

impl FakeBot {
    pub(super) fn add_update(&mut self, mut update: Value) -> i64 {
        self.last_update += 1;
        let number = self.last_update + 1000 - self.restarts * 500;
        update["update_id"] = json!(number);
        if update["message"]["message_id"] == 0 {
            self.last_message += 1;
            update["message"]["message_id"] = json!(self.last_message);
        }
        self.updates.push(update);
        number
    }

    /// Records a call and returns its fault.
    pub(super) fn record_call(&mut self, call: &TelegramCall) -> Option<TelegramFault> {
        self.calls.push(call.clone());
        let at = self.faults.iter().position(|(method, _)| *method == call.method)?;
        Some(self.faults.remove(at).1)
    }

    /// Starts a poll. Acknowledges updates before its offset, and terminates any other poll.
    pub(super) fn begin_poll(&mut self, params: &Value) -> Result<u64, &'static str> {
        if self.has_webhook {
            return Err("Conflict: can't use getUpdates method while webhook is active; use deleteWebhook first");
        }
        // After a restart of the numbers, an offset that is higher than all of them confirms nothing.
        let newest = self.last_update + 1000 - self.restarts * 500;
        let offset = params["offset"].as_i64().filter(|offset| *offset <= newest + 1).unwrap_or(0);
        let is_old = |update: &Value| update["update_id"].as_i64().unwrap_or(0) < offset;
        let (old, waiting) = self.updates.drain(..).partition(is_old);
        self.updates = waiting;
        let old: Vec<Value> = old;
        self.acknowledged.extend(old);
        self.polls += 1;
        Ok(self.polls)
    }

    /// Returns the response to a poll; `None` if it has to wait.
    pub(super) fn poll(&self, poll: u64, params: &Value, fault: Option<&TelegramFault>) -> Option<FakeHttpReply> {
        if poll != self.polls {
            let why =
                "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running";
            return Some(denied(409, why));
        }
        let limit = params["limit"].as_u64().unwrap_or(100) as usize;
        let mut updates: Vec<&Value> = self.updates.iter().take(limit).collect();
        match fault {
            Some(TelegramFault::Disorder) => {
                updates.reverse();
                updates = updates.iter().flat_map(|update| [*update, *update]).collect();
            }
            Some(TelegramFault::Again) => updates.splice(0..0, &self.acknowledged).for_each(drop),
            Some(_) | None => {}
        }
        (!updates.is_empty()).then(|| success(&json!(updates)))
    }

    /// Lets the numbers of updates start anew, lower than before, as Telegram does after a week without updates.
    pub(super) fn restart_numbers(&mut self) {
        self.restarts += 1;
    }

    /// Executes a method.
    pub(super) fn answer(&mut self, call: &TelegramCall) -> FakeHttpReply {
        let params = &call.params;
        match call.method.as_str() {
            "getMe" => success(&json!({
                "id": 123_456, "is_bot": true, "first_name": "Fake", "username": "fake_bot",
                "can_read_all_group_messages": false,
            })),
            "setMyCommands" | "sendChatAction" | "setMessageReaction" => success(&json!(true)),
            "setWebhook" | "deleteWebhook" => {
                self.has_webhook = call.method == "setWebhook";
                success(&json!(true))
            }
            "getFile" => match params["file_id"].as_str().and_then(|id| Some((id, self.files.get(id)?))) {
                Some((id, bytes)) => success(&json!({
                    "file_id": id, "file_size": bytes.len(), "file_path": format!("files/{id}"),
                })),
                None => denied(400, "Bad Request: invalid file_id"),
            },
            "editMessageText" => self.edit(params),
            "deleteMessage" => {
                let before = self.visible_messages.len();
                self.visible_messages.retain(|message| params["message_id"] != message.id);
                let is_gone = self.visible_messages.len() < before;
                if is_gone { success(&json!(true)) } else { denied(400, "Bad Request: message to delete not found") }
            }
            "sendPoll" => self.send(call, "question", 300),
            "sendMessage" => self.send(call, "text", 4096),
            method if method.starts_with("send") => self.send(call, "caption", 1024),
            _ => denied(404, "Not Found"),
        }
    }

    fn send(&mut self, call: &TelegramCall, field: &str, limit: usize) -> FakeHttpReply {
        let params = &call.params;
        let text = match message_text(params, field, limit) {
            Ok(text) if text.is_empty() && field == "text" => return denied(400, "Bad Request: message text is empty"),
            Ok(text) => text,
            Err(refusal) => return refusal,
        };
        self.last_message += 1;
        let id = self.last_message;
        // A form has strings where JSON has numbers and objects.
        let read = |name: &str| {
            let value = &params[name];
            value.as_str().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_else(|| value.clone())
        };
        let (chat, topic) = (read("chat_id"), read("message_thread_id").as_i64());
        let reply_to = read("reply_parameters")["message_id"].as_i64();
        let message = json!({"message_id": id, "date": 1, "chat": {"id": chat}, "text": text});
        let (method, file) = (call.method.clone(), call.file.as_ref().map(|(_, _, bytes)| bytes.clone()));
        self.visible_messages.push(VisibleMessage { id, chat, topic, text, reply_to, method, file });
        success(&message)
    }

    fn edit(&mut self, params: &Value) -> FakeHttpReply {
        let text = match message_text(params, "text", 4096) {
            Ok(text) => text,
            Err(refusal) => return refusal,
        };
        match self.visible_messages.iter_mut().find(|message| params["message_id"] == message.id) {
            Some(message) if message.text == text => denied(400, "Bad Request: message is not modified"),
            Some(message) => {
                message.text = text;
                success(&json!({"message_id": message.id}))
            }
            None => denied(400, "Bad Request: message to edit not found"),
        }
    }
}

/// Returns the text of a message without tags; an error if Telegram would reject it.
fn message_text(params: &Value, field: &str, limit: usize) -> Result<String, FakeHttpReply> {
    let input = params[field].as_str().unwrap_or_default();
    let text = if params["parse_mode"] == "HTML" { markup::text(input) } else { Ok(input.to_owned()) };
    let text = text.map_err(|why| denied(400, &format!("Bad Request: can't parse entities: {why}")))?;
    if text.encode_utf16().count() > limit {
        return Err(denied(400, "Bad Request: message is too long"));
    }
    Ok(text)
}
