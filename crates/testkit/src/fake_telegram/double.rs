//! The fake Bot API as a platform of the suite of all channels.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::sync::watch;

use super::{FakeTelegram, TOKEN, TelegramFault};
use crate::channel_double::{
    ChannelDouble, MissingFeature, Operation, Place, RequestFault, SeenMessage, User, UserMessage,
};

/// The group.
const GROUP: i64 = -100;
/// A group with topics.
const FORUM: i64 = -200;
/// Id of the bot.
const BOT: i64 = 123_456;
/// How the bot is mentioned.
const MENTION: &str = "@fake_bot";
/// Date of all messages.
const DATE: u64 = 1_794_758_460;

fn user_id(user: User) -> i64 {
    match user {
        User::Owner => 7,
        User::Friend => 8,
        User::Stranger => 9,
    }
}

fn chat_id(place: Place, user: User) -> i64 {
    match place {
        Place::Direct => user_id(user),
        Place::Group => GROUP,
        Place::Thread(_) => FORUM,
    }
}

fn method(operation: Operation) -> &'static str {
    match operation {
        Operation::Send => "sendMessage",
        Operation::Edit => "editMessageText",
        Operation::Delete => "deleteMessage",
    }
}

fn chat(place: Place, user: User) -> Value {
    match place {
        Place::Direct => json!({"id": user_id(user), "type": "private"}),
        Place::Group => json!({"id": GROUP, "type": "supergroup", "title": "Family"}),
        Place::Thread(_) => json!({"id": FORUM, "type": "supergroup", "title": "Club", "is_forum": true}),
    }
}

fn sender(user: User) -> Value {
    json!({"id": user_id(user), "is_bot": false, "first_name": format!("{user:?}")})
}

impl FakeTelegram {
    /// Returns the message that a user's message replies to.
    fn replied(&self, id: &str) -> Value {
        let number: i64 = id.parse().unwrap_or_default();
        let own = self.visible_messages().into_iter().find(|message| message.id == number);
        match own {
            Some(message) => json!({
                "message_id": number, "date": DATE, "chat": {"id": message.chat}, "text": message.text,
                "from": {"id": BOT, "is_bot": true, "first_name": "Fake", "username": "fake_bot"},
            }),
            None => json!({"message_id": number, "date": DATE}),
        }
    }

    /// Returns the message id of an update.
    fn message_of(&self, update: i64) -> String {
        let bot = self.shared.bot();
        let found = bot.updates.iter().chain(&bot.acknowledged).find(|known| known["update_id"] == update);
        found.map(|update| update["message"]["message_id"].to_string()).unwrap_or_default()
    }
}

impl ChannelDouble for FakeTelegram {
    fn channel(&self) -> &'static str {
        "telegram"
    }

    fn account(&self) -> Value {
        json!({"botToken": TOKEN, "apiRoot": self.root()})
    }

    fn group_config(&self, requires_mention: bool) -> Value {
        let group = json!({"requireMention": requires_mention});
        json!({"groups": {GROUP.to_string(): group, FORUM.to_string(): group}, "groupPolicy": "open"})
    }

    fn missing(&self) -> &'static [MissingFeature] {
        &[]
    }

    fn max_text(&self) -> usize {
        4096
    }

    fn user_id(&self, user: User) -> String {
        user_id(user).to_string()
    }

    fn chat_id(&self, place: Place, user: User) -> String {
        chat_id(place, user).to_string()
    }

    fn thread_id(&self, place: Place) -> Option<String> {
        match place {
            Place::Direct | Place::Group => None,
            Place::Thread(number) => Some((10 + u64::from(number)).to_string()),
        }
    }

    // The channel polls.
    fn gateway_started(&self, _: SocketAddr) {}

    fn post(&self, message: &UserMessage) -> String {
        let UserMessage { user, place, text, is_mention, reply_to, picture } = message;
        let text = if *is_mention { format!("{MENTION} {text}") } else { text.clone() };
        let mut posted =
            json!({"message_id": 0, "date": DATE, "chat": chat(*place, *user), "from": sender(*user), "text": text});
        if *is_mention {
            posted["entities"] = json!([{"type": "mention", "offset": 0, "length": MENTION.len()}]);
        } else if text.starts_with('/') {
            posted["entities"] = json!([{"type": "bot_command", "offset": 0, "length": text.len()}]);
        }
        if let Some(thread) = self.thread_id(*place) {
            posted["message_thread_id"] = json!(thread.parse::<u64>().unwrap_or_default());
            posted["is_topic_message"] = json!(true);
        }
        if let Some(id) = reply_to {
            posted["reply_to_message"] = self.replied(id);
        }
        if let Some(bytes) = picture {
            self.add_file("picture", bytes.clone());
            posted["caption"] = posted["text"].take();
            posted["photo"] = json!([{"file_id": "picture", "file_size": bytes.len(), "width": 1, "height": 1}]);
            posted.as_object_mut().and_then(|fields| fields.remove("text"));
        }
        let update = self.add_update(json!({"message": posted}));
        self.message_of(update)
    }

    fn edit(&self, message: &str, text: &str) {
        self.add_update(json!({"edited_message": {
            "message_id": message.parse::<i64>().unwrap_or_default(), "date": DATE, "edit_date": DATE + 1,
            "chat": chat(Place::Direct, User::Owner), "from": sender(User::Owner), "text": text,
        }}));
    }

    fn seen(&self) -> Vec<SeenMessage> {
        let seen = self.visible_messages().into_iter().map(|message| SeenMessage {
            id: message.id.to_string(),
            chat: message.chat.to_string(),
            thread: message.topic.map(|topic| topic.to_string()),
            text: message.text,
            reply_to: message.reply_to.map(|id| id.to_string()),
            file: message.file,
        });
        seen.collect()
    }

    fn requests(&self, operation: Operation) -> usize {
        self.calls_of(method(operation)).len()
    }

    fn typing(&self, chat: &str) -> usize {
        let calls = self.calls_of("sendChatAction");
        let chat = json!(chat.parse::<i64>().unwrap_or_default());
        calls.iter().filter(|call| call.params["chat_id"] == chat).count()
    }

    fn fail_next(&self, operation: Operation, fault: RequestFault) {
        let fault = match fault {
            RequestFault::RateLimited(seconds) => TelegramFault::Flood(seconds),
            RequestFault::Unavailable => TelegramFault::Denied(503, "Service Unavailable"),
            RequestFault::ServerError => TelegramFault::Denied(500, "Internal Server Error"),
            RequestFault::Refused => TelegramFault::Denied(403, "Forbidden: bot was blocked by the user"),
            RequestFault::UnknownChat => TelegramFault::Denied(404, "Not Found: chat not found"),
            RequestFault::Reset => TelegramFault::Cut,
            RequestFault::LostResponse => TelegramFault::AcceptThenDrop,
            RequestFault::NoResponse => TelegramFault::AcceptThenSilence,
        };
        self.add_fault(method(operation), fault);
    }

    fn repeat_events(&self) {
        self.add_fault("getUpdates", TelegramFault::Again);
    }

    fn disconnect(&self) {
        self.shared.bot().disconnects += 1;
        self.shared.notify();
    }

    fn reset_cursor(&self) {
        self.shared.bot().restart_numbers();
    }

    fn is_drained(&self) -> bool {
        self.pending_updates().is_empty()
    }

    /// Returns the parameters that are null: the documentation knows no such values.
    fn violations(&self) -> Vec<String> {
        let nulls = |value: &Value| {
            let members = value.as_object().into_iter().flatten();
            members.filter(|(_, value)| value.is_null()).map(|(name, _)| name.clone()).collect::<Vec<_>>()
        };
        let calls = self.calls().into_iter();
        calls
            .flat_map(|call| {
                nulls(&call.params).into_iter().map(move |name| format!("{}: {name} is null", call.method))
            })
            .collect()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changes.subscribe()
    }
}
