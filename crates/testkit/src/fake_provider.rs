//! A fake model provider over real HTTP on loopback that speaks all four wire formats, correctly or with faults.
//!
//! A function decides what each request gets: an answer, and optionally a fault. Every request is recorded and
//! validated as strictly as the vendors do; what they would reject is reported as a complaint. It shares no code with
//! `homard-providers`, so that the two cannot have the same bug.
//!
//! [`dialect`] encodes answers for each wire format, [`fault`] lists the faults, [`check`] validates requests. The
//! provider also simulates vendors' prompt caches, so that the reported tokens show how well a prompt was cached.

pub mod check;
pub mod dialect;
pub mod fault;

mod http;

use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use homard_runtime::task;
use serde_json::Value;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::{JoinHandle, JoinSet},
    time::Instant,
};

use self::{
    dialect::{TokenCounts, WireFormat},
    fault::ProviderFault,
    http::ProviderConnection,
};

/// An answer of the model, independent of the wire format.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FakeAnswer {
    /// Reasoning, signed as the wire format requires.
    pub thinking: Option<String>,
    /// Text; each piece is sent as a separate event.
    pub text: Vec<String>,
    /// Tool calls.
    pub calls: Vec<FakeToolCall>,
}

/// A tool call.
#[derive(Debug, Clone, PartialEq)]
pub struct FakeToolCall {
    /// Call id. OpenAI's Responses format adds a second id of its own.
    pub id: String,
    /// Tool name.
    pub name: String,
    /// Arguments.
    pub arguments: Value,
}

/// Reply to a request.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ProviderReply {
    /// The answer.
    pub answer: FakeAnswer,
    /// The fault, if any.
    pub fault: Option<ProviderFault>,
    /// Splits the bytes at positions determined by this seed; `None` sends them in one piece.
    pub split: Option<u64>,
    /// Makes the answer pause after its first piece of text until the gate is opened.
    pub gate: Option<AnswerGate>,
}

/// A gate that an answer waits for. Clones share it.
#[derive(Debug, Clone)]
pub struct AnswerGate(Arc<Semaphore>);

impl Default for AnswerGate {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }
}

impl PartialEq for AnswerGate {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl AnswerGate {
    /// Opens the gate for all current and future waiters.
    pub fn open(&self) {
        self.0.close();
    }

    async fn pass(&self) {
        // The semaphore never has permits, so this returns when it is closed.
        self.0.acquire().await.map(drop).unwrap_or_default();
    }
}

impl ProviderReply {
    /// Builds a plain text reply.
    pub fn text(text: impl Into<String>) -> Self {
        Self { answer: FakeAnswer { text: vec![text.into()], ..FakeAnswer::default() }, ..Self::default() }
    }
}

/// A received request.
#[derive(Debug, Clone)]
pub struct ReceivedRequest {
    /// Index, from 0.
    pub number: usize,
    /// Time of arrival.
    pub at: Instant,
    /// Wire format, determined by the path.
    pub dialect: WireFormat,
    /// Model name.
    pub model: String,
    /// Headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The unparsed body.
    pub body: String,
}

impl ReceivedRequest {
    /// Returns the body as JSON; `null` if it is invalid.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    /// Returns the text of the last message, without the envelope of a message from a channel.
    pub fn last_message(&self) -> String {
        let messages = self.json()["messages"].as_array().cloned().unwrap_or_default();
        let content = &messages.last().cloned().unwrap_or_default()["content"];
        let blocks = content.as_array().into_iter().flatten();
        let block_texts = blocks.filter_map(|block| block["text"].as_str().map(str::to_owned));
        let text: String = content.as_str().map(str::to_owned).into_iter().chain(block_texts).collect();
        text.rsplit_once("] ").map_or(text.clone(), |(_, rest)| rest.to_owned())
    }

    /// Returns the bytes of the conversation without cache markers, which move between requests.
    pub fn prompt(&self) -> String {
        let field = format!("\"{}\":[", self.dialect.conversation());
        let begin = self.body.find(&field).map_or(0, |at| at + field.len());
        let (mut depth, mut is_text, mut is_escaped) = (1_usize, false, false);
        let end = self.body[begin..].bytes().position(|byte| {
            match byte {
                _ if is_escaped => is_escaped = false,
                b'\\' if is_text => is_escaped = true,
                b'"' => is_text = !is_text,
                b'[' | b'{' if !is_text => depth += 1,
                b']' | b'}' if !is_text => depth -= 1,
                _ => {}
            }
            depth == 0
        });
        let prompt = &self.body[begin..end.map_or(self.body.len(), |end| begin + end)];
        prompt.replace(r#","cache_control":{"type":"ephemeral"}"#, "")
    }
}

/// Decides the reply to each request.
pub type ReplyFn = Box<dyn FnMut(&ReceivedRequest) -> ProviderReply + Send>;

/// A running provider. Stops on drop.
#[derive(Debug)]
pub struct FakeProvider {
    address: SocketAddr,
    shared: Arc<ProviderShared>,
    server: JoinHandle<()>,
}

impl Drop for FakeProvider {
    fn drop(&mut self) {
        self.server.abort();
    }
}

struct ProviderShared(Mutex<ProviderInner>);

struct ProviderInner {
    answers: ReplyFn,
    requests: Vec<ReceivedRequest>,
    complaints: Vec<String>,
    /// Ids of the tool calls that each model made.
    issued_ids: BTreeMap<(WireFormat, String), HashSet<String>>,
}

impl fmt::Debug for ProviderShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderShared").field("asked", &self.lock().requests.len()).finish_non_exhaustive()
    }
}

impl FakeProvider {
    /// Listens on a free loopback port.
    pub async fn start(
        answers: impl FnMut(&ReceivedRequest) -> ProviderReply + Send + 'static,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let inner = ProviderInner {
            answers: Box::new(answers),
            requests: Vec::new(),
            complaints: Vec::new(),
            issued_ids: BTreeMap::new(),
        };
        let shared = Arc::new(ProviderShared(Mutex::new(inner)));
        let server = task::spawn("fake provider", listen(listener, shared.clone()));
        Ok(Self { address, shared, server })
    }

    /// Returns the base URL for a config.
    pub fn base_url(&self, dialect: WireFormat) -> String {
        format!("http://{}{}", self.address, dialect.base())
    }

    /// Returns all requests so far.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.shared.lock().requests.clone()
    }

    /// Returns what a vendor would have rejected in them.
    pub fn complaints(&self) -> Vec<String> {
        self.shared.lock().complaints.clone()
    }
}

async fn listen(listener: TcpListener, shared: Arc<ProviderShared>) {
    // Dropped with this task, which closes all connections.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(serve(stream, shared.clone()));
        while connections.try_join_next().is_some() {}
    }
}

/// Answers the requests of one connection. A client that disconnects early is part of many tests.
async fn serve(stream: TcpStream, shared: Arc<ProviderShared>) {
    let Ok(mut connection) = ProviderConnection::new(stream) else { return };
    while let Ok(Some(request)) = connection.read().await {
        let Some((dialect, model)) = WireFormat::of(&request.path, &request.body) else {
            shared.lock().complaints.push(format!("nobody is at {}", request.path));
            return;
        };
        let (reply, tokens) = shared.receive(dialect, model, request);
        if connection.answer(dialect, &reply, tokens).await.is_err() {
            return;
        }
    }
}

impl ProviderShared {
    fn lock(&self) -> MutexGuard<'_, ProviderInner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records and validates a request, and determines the reply.
    fn receive(
        &self,
        dialect: WireFormat,
        model: String,
        request: http::ProviderHttpRequest,
    ) -> (ProviderReply, TokenCounts) {
        let mut inner = self.lock();
        let number = inner.requests.len();
        let http::ProviderHttpRequest { headers, body, .. } = request;
        let received = ReceivedRequest { number, at: Instant::now(), dialect, model, headers, body };
        let own_ids = inner.issued_ids.entry((dialect, received.model.clone())).or_default();
        let violations = check::violations(dialect, &received.json(), own_ids);
        inner
            .complaints
            .extend(violations.into_iter().map(|violation| format!("request {number} ({dialect:?}): {violation}")));
        let prompt = received.prompt();
        let same =
            inner.requests.iter().filter(|earlier| earlier.dialect == dialect && earlier.model == received.model);
        let cached = same.map(|earlier| common_prefix(&earlier.prompt(), &prompt)).max().unwrap_or(0);
        let reply = (inner.answers)(&received);
        let ids = reply.answer.calls.iter().map(|call| call.id.clone());
        inner.issued_ids.entry((dialect, received.model.clone())).or_default().extend(ids);
        let tokens = TokenCounts { prompt: estimate_tokens(prompt.len()), cached: estimate_tokens(cached), output: 7 };
        inner.requests.push(received);
        (reply, tokens)
    }
}

fn common_prefix(a: &str, b: &str) -> usize {
    a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count()
}

/// Estimates the number of tokens of a text.
fn estimate_tokens(bytes: usize) -> u64 {
    bytes as u64 / 4
}

/// Retry delay that [`ProviderFault::TooMany`] sends, if it does.
pub const RETRY_DELAY: Duration = Duration::from_millis(60);
