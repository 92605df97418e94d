//! The model of the soak: the behaviour is part of the message, such as `soak r17 tools`, so that it is the same after
//! a restart. It counts its requests as independent evidence.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use serde_json::{Value, json};

/// The behaviours that a message may request, repeated by weight.
pub(super) const KINDS: &[&str] = &[
    "plain", "plain", "plain", "plain", "tools", "tools", "fails", "slow", "slow", "slow", "busy", "down", "refused",
    "overflow", "empty", "cut", "hold", "hold", "long",
];

/// Text that makes a session long.
const LONG: &str = "All about the house by the sea. ";

/// A text that is accepted as a summary.
const SUMMARY: &str = "## Goal\nKeep the house.\n## Constraints\nnone\n## Progress\n### Done\nmuch of it\n### In progress\n\
    more\n### Blocked\nnothing\n## Decisions\nto go on\n## Next steps\ngo on\n## Critical context\nthe word is tide, and \
    the house stands by the sea where it always stood";

/// A server that speaks Chat Completions.
pub(super) struct SoakModel {
    address: SocketAddr,
    counts_by_run: Counts,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Number of requests per message.
type Counts = Arc<Mutex<BTreeMap<String, usize>>>;

impl SoakModel {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (counts_by_run, is_over) = (Counts::default(), Arc::<AtomicBool>::default());
        let (address, counts, ended) = (listener.local_addr().unwrap(), counts_by_run.clone(), is_over.clone());
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let (stream, counts) = (stream.unwrap(), counts.clone());
                // Ends with its connection.
                thread::spawn(move || answer(&stream, &counts));
            }
        });
        Self { address, counts_by_run, is_over, thread: Some(thread) }
    }

    /// Returns a config whose agent uses this model, with another one as fallback.
    pub(super) fn config(&self) -> Value {
        let model = |id: &str| json!({"id": id, "contextWindow": 40_000, "maxTokens": 4_096});
        let provider = |id: &str| {
            json!({
                "baseUrl": format!("http://{}/v1", self.address), "apiKey": "none", "api": "openai-completions",
                "models": [model(id)],
            })
        };
        let models = json!({"primary": "first/one", "fallbacks": ["second/two"]});
        json!({
            "agents": {"defaults": {"model": models, "maxConcurrent": 8}},
            "models": {"providers": {"first": provider("one"), "second": provider("two")}},
        })
    }

    /// Returns the number of requests with this message as the last one.
    pub(super) fn request_count(&self, run: &str) -> usize {
        self.counts_by_run.lock().unwrap().get(run).copied().unwrap_or_default()
    }
}

impl Drop for SoakModel {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        TcpStream::connect(self.address).unwrap();
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Returns the text of a message.
fn message_text(message: &Value) -> String {
    let content = &message["content"];
    let blocks = content.as_array().into_iter().flatten().filter_map(|block| block["text"].as_str());
    content.as_str().into_iter().chain(blocks).collect()
}

/// Reads the body of a request; `None` if the client was killed before it was complete.
fn read(stream: &TcpStream) -> Option<Value> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        if line.trim().is_empty() {
            break;
        }
        if let Some(text) = line.to_lowercase().strip_prefix("content-length:") {
            length = text.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    serde_json::from_slice(&body).ok()
}

fn answer(stream: &TcpStream, counts: &Counts) -> Option<()> {
    let body = read(stream)?;
    let messages = body["messages"].as_array()?;
    // Only compaction requests have no tools.
    if body["tools"].as_array().is_none_or(Vec::is_empty) {
        return tell(stream, &[SUMMARY], None);
    }
    let run_and_kind = |message: &Value| {
        let text = message_text(message);
        let mut rest = text.rsplit_once("soak ")?.1.split_whitespace();
        Some((rest.next()?.to_owned(), rest.next()?.to_owned()))
    };
    let user_messages = messages.iter().enumerate().rev().filter(|(_, message)| message["role"] == "user");
    let (position, (run, kind)) =
        user_messages.into_iter().find_map(|(position, message)| Some((position, run_and_kind(message)?)))?;
    let answers = messages[position..].iter().filter(|message| message["role"] == "assistant").count();
    let times = {
        let mut counts = counts.lock().unwrap();
        let times = counts.entry(run.clone()).or_default();
        *times += 1;
        *times
    };
    let call = |command: &str| json!({"id": format!("call_{run}_{answers}_{times}"), "name": "exec", "arguments": {"command": command}});
    match (kind.as_str(), answers) {
        ("tools", 0 | 1) => tell(stream, &["Looking. "], Some(&call("true"))),
        ("fails", 0) => tell(stream, &[], Some(&call("exit 3"))),
        ("slow", 0) => tell(stream, &["One moment. "], Some(&call("sleep 0.2"))),
        ("busy", _) if times <= 2 => refuse(stream, 429, "retry-after-ms: 60\r\n", "slow down"),
        // The fallback has to answer.
        ("down", _) if body["model"] == "one" => refuse(stream, 500, "", "out of order"),
        ("refused", _) => refuse(stream, 400, "", "this makes no sense"),
        ("overflow", _) if times == 1 => {
            refuse(stream, 400, "", "This model's maximum context length is 40000 tokens, and the prompt is too long")
        }
        ("empty", _) if times == 1 => tell(stream, &[], None),
        ("cut", _) if times == 1 => cut(stream),
        // Ends by an abort or a timeout.
        ("hold", _) if times == 1 => hold(stream),
        ("long", _) => tell(stream, &[&LONG.repeat(900)], None),
        _ => tell(stream, &["All ", "is ", "well."], None),
    }
}

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

fn event(delta: &Value, finish: Option<&str>) -> String {
    format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}))
}

/// Writes to the stream; the client may be gone.
fn write(mut stream: &TcpStream, text: &str) -> Option<()> {
    stream.write_all(text.as_bytes()).ok()
}

fn tell(stream: &TcpStream, pieces: &[&str], call: Option<&Value>) -> Option<()> {
    write(stream, HEAD)?;
    for piece in pieces {
        write(stream, &event(&json!({"content": piece}), None))?;
    }
    if let Some(call) = call {
        let function = json!({"name": call["name"], "arguments": call["arguments"].to_string()});
        let calls = json!([{"index": 0, "id": call["id"], "type": "function", "function": function}]);
        write(stream, &event(&json!({"tool_calls": calls}), None))?;
    }
    write(stream, &event(&json!({}), Some(if call.is_some() { "tool_calls" } else { "stop" })))?;
    let usage = json!({"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13});
    write(stream, &format!("data: {}\n\ndata: [DONE]\n\n", json!({"choices": [], "usage": usage})))
}

fn refuse(stream: &TcpStream, status: u16, headers: &str, reason: &str) -> Option<()> {
    let body = json!({"error": {"message": reason, "type": "error"}}).to_string();
    let head = "content-type: application/json\r\nconnection: close\r\n";
    write(stream, &format!("HTTP/1.1 {status} No\r\n{head}{headers}content-length: {}\r\n\r\n{body}", body.len()))
}

fn cut(stream: &TcpStream) -> Option<()> {
    write(stream, HEAD)?;
    write(stream, &event(&json!({"content": "I would "}), None))
}

/// Sends some text, and then nothing until the client disconnects.
fn hold(mut stream: &TcpStream) -> Option<()> {
    cut(stream)?;
    stream.read(&mut [0]).ok().map(drop)
}
