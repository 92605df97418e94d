//! A model provider over real HTTP on loopback that speaks all four wires, well or badly.
//!
//! A function says what each request gets: an answer, and what goes wrong with it. Every request is kept, and looked at
//! as strictly as the vendors do: what they would refuse is a complaint. It shares no code with `homard-providers`,
//! so that one cannot be wrong in the way of the other.
//!
//! [`dialect`] is how each wire says an answer, [`fault`] what can go wrong, [`check`] what a request must be. The
//! provider also remembers prompts as vendors do, so that the tokens that it reports tell how well a prompt was cached.

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

use homard_agent::task;
use serde_json::Value;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::{JoinHandle, JoinSet},
    time::Instant,
};

use self::{
    dialect::{Dialect, Tokens},
    fault::Fault,
    http::Connection,
};

/// What a model says, in whatever dialect.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Said {
    /// Reasoning, signed as the wire signs it.
    pub thinking: Option<String>,
    /// Words, each piece in an event of its own.
    pub text: Vec<String>,
    /// Calls.
    pub calls: Vec<Call>,
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// Its id. OpenAI's Responses add a second one of their own.
    pub id: String,
    /// The tool.
    pub name: String,
    /// With what.
    pub arguments: Value,
}

/// What a request gets.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reply {
    /// The answer.
    pub said: Said,
    /// What goes wrong.
    pub fault: Option<Fault>,
    /// Cuts the answer's bytes into pieces, the same for the same seed; `None` sends it in one.
    pub split: Option<u64>,
    /// Has it stop after its first words until the gate is opened.
    pub gate: Option<Gate>,
}

/// Something that an answer waits for. Clones are the same.
#[derive(Debug, Clone)]
pub struct Gate(Arc<Semaphore>);

impl Default for Gate {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }
}

impl PartialEq for Gate {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Gate {
    /// Lets all through that wait, and all that come.
    pub fn open(&self) {
        self.0.close();
    }

    async fn pass(&self) {
        // It has no permits, so it fails once it is closed.
        self.0.acquire().await.map(drop).unwrap_or_default();
    }
}

impl Reply {
    /// A plain answer.
    pub fn text(text: impl Into<String>) -> Self {
        Self { said: Said { text: vec![text.into()], ..Said::default() }, ..Self::default() }
    }
}

/// A request that came in.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Which one, from 0.
    pub number: usize,
    /// When.
    pub at: Instant,
    /// The wire, by its path.
    pub dialect: Dialect,
    /// The model.
    pub model: String,
    /// Its headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// Its body as it came.
    pub body: String,
}

impl Asked {
    /// The body as JSON; `null` if it is none.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    /// The bytes of the conversation, without the marks that say how much of it is to be remembered, which move.
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

/// Says what each request gets.
pub type Answers = Box<dyn FnMut(&Asked) -> Reply + Send>;

/// The running provider. It stops when it is dropped.
#[derive(Debug)]
pub struct FakeProvider {
    address: SocketAddr,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

impl Drop for FakeProvider {
    fn drop(&mut self) {
        self.server.abort();
    }
}

struct Shared(Mutex<Inner>);

struct Inner {
    answers: Answers,
    asked: Vec<Asked>,
    complaints: Vec<String>,
    /// The ids of calls that each model made.
    given: BTreeMap<(Dialect, String), HashSet<String>>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("asked", &self.lock().asked.len()).finish_non_exhaustive()
    }
}

impl FakeProvider {
    /// Listens on a free port of loopback.
    pub async fn start(answers: impl FnMut(&Asked) -> Reply + Send + 'static) -> std::io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let inner =
            Inner { answers: Box::new(answers), asked: Vec::new(), complaints: Vec::new(), given: BTreeMap::new() };
        let shared = Arc::new(Shared(Mutex::new(inner)));
        let server = task::spawn("fake provider", listen(listener, shared.clone()));
        Ok(Self { address, shared, server })
    }

    /// What a config calls its base URL.
    pub fn base_url(&self, dialect: Dialect) -> String {
        format!("http://{}{}", self.address, dialect.base())
    }

    /// All requests so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.shared.lock().asked.clone()
    }

    /// What a vendor would have refused of them.
    pub fn complaints(&self) -> Vec<String> {
        self.shared.lock().complaints.clone()
    }
}

async fn listen(listener: TcpListener, shared: Arc<Shared>) {
    // Dropped with this task, and all connections with it.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(serve(stream, shared.clone()));
        while connections.try_join_next().is_some() {}
    }
}

/// Answers the requests of one connection. A client that goes away mid-way is what many tests are about.
async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let Ok(mut connection) = Connection::new(stream) else { return };
    while let Ok(Some(request)) = connection.read().await {
        let Some((dialect, model)) = Dialect::of(&request.path, &request.body) else {
            shared.lock().complaints.push(format!("nobody is at {}", request.path));
            return;
        };
        let (reply, tokens) = shared.take(dialect, model, request);
        if connection.answer(dialect, &reply, tokens).await.is_err() {
            return;
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a request, looks at it, and asks what it gets.
    fn take(&self, dialect: Dialect, model: String, request: http::Request) -> (Reply, Tokens) {
        let mut inner = self.lock();
        let number = inner.asked.len();
        let http::Request { headers, body, .. } = request;
        let asked = Asked { number, at: Instant::now(), dialect, model, headers, body };
        let own = inner.given.entry((dialect, asked.model.clone())).or_default();
        let wrong = check::wrong(dialect, &asked.json(), own);
        inner.complaints.extend(wrong.into_iter().map(|wrong| format!("request {number} ({dialect:?}): {wrong}")));
        let prompt = asked.prompt();
        let same = inner.asked.iter().filter(|earlier| earlier.dialect == dialect && earlier.model == asked.model);
        let cached = same.map(|earlier| common(&earlier.prompt(), &prompt)).max().unwrap_or(0);
        let reply = (inner.answers)(&asked);
        let ids = reply.said.calls.iter().map(|call| call.id.clone());
        inner.given.entry((dialect, asked.model.clone())).or_default().extend(ids);
        let tokens = Tokens { prompt: tokens(prompt.len()), cached: tokens(cached), written: 7 };
        inner.asked.push(asked);
        (reply, tokens)
    }
}

fn common(a: &str, b: &str) -> usize {
    a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count()
}

/// Tokens of so many bytes, roughly.
fn tokens(bytes: usize) -> u64 {
    bytes as u64 / 4
}

/// How long [`Fault::TooMany`] asks to wait when it says so.
pub const WAIT: Duration = Duration::from_millis(60);
