//! The peer of the webhook channel as a platform of the suite. It sends a message again until a gateway accepts it.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{Mutex, MutexGuard, PoisonError},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use homard_channels::{Secret, webhook::signature::sign};
use homard_runtime::Ambient;
use homard_testkit::{
    FakeWebhook,
    channel_double::{
        ChannelDouble, Feature, MissingFeature, Operation, Place, RequestFault, SeenMessage, User, UserMessage,
    },
    fake_webhook::WebhookFault,
};
use serde_json::{Value, json};
use tokio::sync::watch;

/// The shared secret.
const SECRET: &str = "a secret of the suite";
/// The only group.
const GROUP: &str = "family";

const MISSING: &[MissingFeature] = &[
    (Feature::UserEdits, "the protocol has no message for edits of users"),
    (Feature::Connection, "the peer calls the gateway for each message; there is no connection to break"),
    (Feature::Cursor, "the peer repeats a message until it is accepted; there is no position"),
    (Feature::UnknownOutcomes, "the peer accepts an idempotency key once, so messages are repeated"),
    (Feature::UnknownChats, "a status without a defined meaning is all that a peer can answer"),
];

/// The peer, and the messages that it still has to send.
#[derive(Debug)]
pub(crate) struct WebhookDouble {
    peer: FakeWebhook,
    state: Mutex<PeerState>,
}

#[derive(Debug, Default)]
struct PeerState {
    gateway: Option<SocketAddr>,
    /// All messages so far.
    messages: Vec<Value>,
    /// Number of messages that a gateway accepted.
    accepted: usize,
}

impl WebhookDouble {
    pub(crate) async fn start() -> io::Result<Self> {
        Ok(Self { peer: FakeWebhook::start().await?, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, PeerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what was not accepted yet, in order, up to the first message that is not accepted now.
    fn send_pending(&self) {
        let mut state = self.state();
        let Some(gateway) = state.gateway else { return };
        while let Some(message) = state.messages.get(state.accepted) {
            if !is_accepted(gateway, message) {
                return;
            }
            state.accepted += 1;
        }
    }
}

/// Sends a message to a gateway.
fn is_accepted(gateway: SocketAddr, message: &Value) -> bool {
    let body = message.to_string();
    let now = Ambient::system().now_ms() / 1000;
    let signature = sign(&Secret::from(SECRET), now, body.as_bytes());
    let head = format!(
        "POST /channels/webhook HTTP/1.0\r\nHost: localhost\r\nx-homard-timestamp: {now}\r\n\
         x-homard-signature: {signature}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let exchange = || -> io::Result<String> {
        let mut stream = TcpStream::connect(gateway)?;
        stream.write_all(head.as_bytes())?;
        stream.write_all(body.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    exchange().is_ok_and(|answer| answer.split(' ').nth(1) == Some("200"))
}

fn user(user: User) -> &'static str {
    match user {
        User::Owner => "ann",
        User::Friend => "bob",
        User::Stranger => "eve",
    }
}

fn kind(operation: Operation) -> &'static str {
    match operation {
        Operation::Send => "message",
        Operation::Edit => "edit",
        Operation::Delete => "delete",
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

impl ChannelDouble for WebhookDouble {
    fn channel(&self) -> &'static str {
        "webhook"
    }

    fn account(&self) -> Value {
        json!({"url": self.peer.url(), "secret": SECRET})
    }

    fn group_config(&self, requires_mention: bool) -> Value {
        json!({"groups": {GROUP: {"requireMention": requires_mention}}, "groupPolicy": "open"})
    }

    fn missing(&self) -> &'static [MissingFeature] {
        MISSING
    }

    fn max_text(&self) -> usize {
        16_000
    }

    fn user_id(&self, of: User) -> String {
        user(of).to_owned()
    }

    fn chat_id(&self, place: Place, of: User) -> String {
        match place {
            Place::Direct => user(of).to_owned(),
            Place::Group | Place::Thread(_) => GROUP.to_owned(),
        }
    }

    fn thread_id(&self, place: Place) -> Option<String> {
        match place {
            Place::Direct | Place::Group => None,
            Place::Thread(number) => Some(format!("thread-{number}")),
        }
    }

    fn gateway_started(&self, address: SocketAddr) {
        self.state().gateway = Some(address);
        self.send_pending();
    }

    fn post(&self, message: &UserMessage) -> String {
        let id = format!("u{}", self.state().messages.len() + 1);
        let mut body = json!({
            "id": id, "sender": {"id": user(message.user), "name": user(message.user)}, "text": message.text,
            "mentioned": message.is_mention,
        });
        if message.place != Place::Direct {
            body["chat"] = json!({"id": GROUP, "kind": "group", "title": "Family"});
        }
        if let Some(thread) = self.thread_id(message.place) {
            body["thread"] = json!(thread);
        }
        if let Some(replied) = &message.reply_to {
            let is_own = self.seen().iter().any(|seen| seen.id == *replied);
            body["replyTo"] = json!({"id": replied, "text": "", "ours": is_own});
            body["mentioned"] = json!(is_own || message.is_mention);
        }
        if let Some(picture) = &message.picture {
            body["media"] = json!([{"name": "dot.gif", "mime": "image/gif", "data": STANDARD.encode(picture)}]);
        }
        self.state().messages.push(body);
        self.send_pending();
        id
    }

    // Listed as missing.
    fn edit(&self, _: &str, _: &str) {}

    fn seen(&self) -> Vec<SeenMessage> {
        let mut seen: Vec<SeenMessage> = Vec::new();
        for (index, body) in self.peer.visible_messages().iter().enumerate() {
            let named = |message: &SeenMessage| body["messageId"] == message.id.as_str();
            match body["type"].as_str() {
                Some("message") => seen.push(SeenMessage {
                    id: format!("m{}", index + 1),
                    chat: text(&body["to"]).unwrap(),
                    thread: text(&body["thread"]),
                    text: text(&body["text"]).unwrap_or_default(),
                    reply_to: text(&body["replyTo"]),
                    file: body["media"][0]["data"].as_str().map(|data| STANDARD.decode(data).unwrap()),
                }),
                Some("edit") => {
                    let edited = seen.iter_mut().find(|message| named(message));
                    edited.unwrap().text = text(&body["text"]).unwrap();
                }
                Some("delete") => seen.retain(|message| !named(message)),
                Some(_) | None => {}
            }
        }
        seen
    }

    fn requests(&self, operation: Operation) -> usize {
        self.peer.deliveries().iter().filter(|delivery| delivery.json()["type"] == kind(operation)).count()
    }

    fn typing(&self, chat: &str) -> usize {
        let visible = self.peer.visible_messages();
        visible.iter().filter(|body| body["type"] == "typing" && body["to"] == chat).count()
    }

    fn fail_next(&self, operation: Operation, fault: RequestFault) {
        let fault = match fault {
            RequestFault::RateLimited(seconds) => WebhookFault::Status(429, Some(seconds)),
            RequestFault::Unavailable => WebhookFault::Status(503, None),
            RequestFault::ServerError => WebhookFault::Status(500, None),
            RequestFault::Refused => WebhookFault::Status(403, None),
            RequestFault::UnknownChat => WebhookFault::Status(404, None),
            RequestFault::Reset => WebhookFault::Cut,
            RequestFault::LostResponse => WebhookFault::AcceptThenDrop,
            RequestFault::NoResponse => WebhookFault::AcceptThenSilence,
        };
        self.peer.add_fault_to(kind(operation), fault);
    }

    fn repeat_events(&self) {
        self.state().accepted = 0;
    }

    // Listed as missing.
    fn disconnect(&self) {}

    // Listed as missing.
    fn reset_cursor(&self) {}

    fn is_drained(&self) -> bool {
        let state = self.state();
        state.accepted == state.messages.len()
    }

    fn violations(&self) -> Vec<String> {
        let deliveries = self.peer.deliveries();
        let unsigned = deliveries.iter().filter(|delivery| {
            ["x-homard-signature", "idempotency-key"].iter().any(|name| delivery.header(name).is_empty())
        });
        unsigned.map(|delivery| format!("a delivery to {} has no signature or no key", delivery.path)).collect()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.peer.changes()
    }
}
