//! The other side of the webhook channel, over real HTTP on loopback: it takes what is sent, once for each key, or does
//! something wrong.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde_json::{Value, json};
use tokio::sync::watch;

use crate::fake_http::{Reply, Request, Server};

/// What goes wrong with a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// This status, and how many seconds to wait, if it says so. Nothing is taken.
    Status(u16, Option<u64>),
    /// The connection ends before anything is taken.
    Cut,
    /// It is taken, and the connection ends before the answer.
    AcceptThenDrop,
    /// It is taken, and the answer is no JSON.
    Mumble,
    /// Nothing comes, and nothing is taken.
    Silence,
}

/// A delivery that came in.
#[derive(Debug, Clone, PartialEq)]
pub struct Delivery {
    /// Where to.
    pub path: String,
    /// Its headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// Its body as it came.
    pub body: Vec<u8>,
}

impl Delivery {
    /// What a header says; nothing if it is not there.
    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str()).unwrap_or_default()
    }

    /// The body as JSON; `null` if it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// The running peer. It stops when it is dropped.
#[derive(Debug)]
pub struct FakeWebhook {
    server: Server,
    peer: Arc<Mutex<Peer>>,
    /// How many deliveries came; who waits for something looks again at each.
    news: Arc<watch::Sender<u64>>,
}

#[derive(Debug, Default)]
struct Peer {
    faults: VecDeque<Fault>,
    came: Vec<Delivery>,
    /// The keys that were taken, with the number of the message that each became.
    taken: BTreeMap<String, usize>,
    seen: Vec<Value>,
}

impl FakeWebhook {
    /// Listens on a free port of loopback.
    pub async fn start() -> io::Result<Self> {
        let peer = Arc::new(Mutex::new(Peer::default()));
        let news = Arc::new(watch::channel(0).0);
        let (serving, telling) = (peer.clone(), news.clone());
        let server = Server::start(move |request| {
            let reply = lock(&serving).answer(request);
            telling.send_modify(|news| *news += 1);
            async { reply }
        });
        Ok(Self { server: server.await?, peer, news })
    }

    /// Waits until something is true.
    pub async fn until(&self, is_so: impl Fn(&Self) -> bool) {
        let mut news = self.news.subscribe();
        while !is_so(self) {
            if news.changed().await.is_err() {
                return;
            }
        }
    }

    /// Where it is to be reached.
    pub fn url(&self) -> String {
        format!("http://{}/inbox", self.server.address)
    }

    /// The next delivery goes wrong; after it, the next one that is said here.
    pub fn spoil(&self, fault: Fault) {
        lock(&self.peer).faults.push_back(fault);
    }

    /// All deliveries so far, also those of which nothing was taken.
    pub fn came(&self) -> Vec<Delivery> {
        lock(&self.peer).came.clone()
    }

    /// What people see: each key once, in order.
    pub fn seen(&self) -> Vec<Value> {
        lock(&self.peer).seen.clone()
    }
}

fn lock(peer: &Mutex<Peer>) -> MutexGuard<'_, Peer> {
    peer.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Peer {
    fn answer(&mut self, request: Request) -> Reply {
        let Request { path, headers, body } = request;
        let delivery = Delivery { path, headers, body };
        self.came.push(delivery.clone());
        match self.faults.pop_front() {
            Some(Fault::Status(status, wait)) => {
                let headers = wait.map(|seconds| ("retry-after".to_owned(), seconds.to_string()));
                Reply::Whole { status, headers: headers.into_iter().collect(), body: b"not now".to_vec() }
            }
            Some(Fault::Cut) => Reply::Cut,
            Some(Fault::Silence) => Reply::Silence,
            Some(Fault::AcceptThenDrop) => {
                self.take(&delivery);
                Reply::Cut
            }
            Some(Fault::Mumble) => {
                self.take(&delivery);
                Reply::page(200)
            }
            None => {
                let number = self.take(&delivery);
                Reply::json(200, &json!({ "messageId": format!("m{number}") }))
            }
        }
    }

    fn take(&mut self, delivery: &Delivery) -> usize {
        let next = self.taken.len() + 1;
        let number = *self.taken.entry(delivery.header("idempotency-key").to_owned()).or_insert(next);
        if number == next {
            self.seen.push(delivery.json());
        }
        number
    }
}
