//! A fake peer of the webhook channel over real HTTP on loopback: accepts deliveries, once per idempotency key, or
//! misbehaves.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde_json::{Value, json};
use tokio::sync::watch;

use crate::fake_http::{FakeHttpReply, FakeHttpRequest, FakeHttpServer};

/// Fault of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WebhookFault {
    /// This status, with an optional number of seconds to wait. The delivery is not accepted.
    Status(u16, Option<u64>),
    /// The connection is closed before the delivery is accepted.
    Cut,
    /// The delivery is accepted, and the connection is closed before the response.
    AcceptThenDrop,
    /// The delivery is accepted, and there is no response.
    AcceptThenSilence,
    /// The delivery is accepted, and the response is not JSON.
    InvalidResponse,
    /// No response, and the delivery is not accepted.
    Silence,
}

/// A received delivery.
#[derive(Debug, Clone, PartialEq)]
pub struct WebhookDelivery {
    /// Request path.
    pub path: String,
    /// Headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The unparsed body.
    pub body: Vec<u8>,
}

impl WebhookDelivery {
    /// Returns the value of a header; empty if it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    /// Returns the body as JSON; `null` if it is invalid.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// A running peer. Stops on drop.
#[derive(Debug)]
pub struct FakeWebhook {
    server: FakeHttpServer,
    peer: Arc<Mutex<WebhookPeer>>,
    /// Number of deliveries; waiters check their condition at each.
    changes: Arc<watch::Sender<u64>>,
}

#[derive(Debug, Default)]
struct WebhookPeer {
    /// With the type of delivery that each is for; `None` for any.
    faults: Vec<(Option<&'static str>, WebhookFault)>,
    deliveries: Vec<WebhookDelivery>,
    /// Accepted idempotency keys, with the number of the message that each became.
    accepted_keys: BTreeMap<String, usize>,
    visible_messages: Vec<Value>,
}

impl FakeWebhook {
    /// Listens on a free loopback port.
    pub async fn start() -> io::Result<Self> {
        let peer = Arc::new(Mutex::new(WebhookPeer::default()));
        let changes = Arc::new(watch::channel(0).0);
        let (server_peer, server_changes) = (peer.clone(), changes.clone());
        let server = FakeHttpServer::start(move |request| {
            let reply = lock(&server_peer).answer(request);
            server_changes.send_modify(|changes| *changes += 1);
            async { reply }
        });
        Ok(Self { server: server.await?, peer, changes })
    }

    /// Waits until a condition holds.
    pub async fn until(&self, condition: impl Fn(&Self) -> bool) {
        let mut changes = self.changes.subscribe();
        while !condition(self) {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }

    /// Returns its URL.
    pub fn url(&self) -> String {
        format!("http://{}/inbox", self.server.address)
    }

    /// Adds a fault to the next delivery; faults are used in order.
    pub fn add_fault(&self, fault: WebhookFault) {
        lock(&self.peer).faults.push((None, fault));
    }

    /// Adds a fault to the next delivery of a type, such as `message`.
    pub fn add_fault_to(&self, kind: &'static str, fault: WebhookFault) {
        lock(&self.peer).faults.push((Some(kind), fault));
    }

    /// Returns a counter of changes.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Returns all deliveries so far, including those that were not accepted.
    pub fn deliveries(&self) -> Vec<WebhookDelivery> {
        lock(&self.peer).deliveries.clone()
    }

    /// Returns the messages that users see: one per key, in order.
    pub fn visible_messages(&self) -> Vec<Value> {
        lock(&self.peer).visible_messages.clone()
    }
}

fn lock(peer: &Mutex<WebhookPeer>) -> MutexGuard<'_, WebhookPeer> {
    peer.lock().unwrap_or_else(PoisonError::into_inner)
}

impl WebhookPeer {
    fn answer(&mut self, request: FakeHttpRequest) -> FakeHttpReply {
        let FakeHttpRequest { path, headers, body, .. } = request;
        let delivery = WebhookDelivery { path, headers, body };
        self.deliveries.push(delivery.clone());
        let body = delivery.json();
        let is_for = |(kind, _): &(Option<&str>, WebhookFault)| kind.is_none_or(|kind| body["type"] == kind);
        let fault = self.faults.iter().position(is_for).map(|at| self.faults.remove(at).1);
        match fault {
            Some(WebhookFault::Status(status, wait)) => {
                let headers = wait.map(|seconds| ("retry-after".to_owned(), seconds.to_string()));
                FakeHttpReply::Complete { status, headers: headers.into_iter().collect(), body: b"not now".to_vec() }
            }
            Some(WebhookFault::Cut) => FakeHttpReply::Cut,
            Some(WebhookFault::Silence) => FakeHttpReply::Silence,
            Some(WebhookFault::AcceptThenDrop) => {
                self.accept(&delivery);
                FakeHttpReply::Cut
            }
            Some(WebhookFault::AcceptThenSilence) => {
                self.accept(&delivery);
                FakeHttpReply::Silence
            }
            Some(WebhookFault::InvalidResponse) => {
                self.accept(&delivery);
                FakeHttpReply::page(200)
            }
            None => {
                let number = self.accept(&delivery);
                FakeHttpReply::json(200, &json!({ "messageId": format!("m{number}") }))
            }
        }
    }

    fn accept(&mut self, delivery: &WebhookDelivery) -> usize {
        let next = self.accepted_keys.len() + 1;
        let number = *self.accepted_keys.entry(delivery.header("idempotency-key").to_owned()).or_insert(next);
        if number == next {
            self.visible_messages.push(delivery.json());
        }
        number
    }
}
