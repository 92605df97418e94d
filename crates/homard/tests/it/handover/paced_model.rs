//! A model with OpenAI's chat completions that streams an answer in pieces, one at each tick.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use homard_runtime::task;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// Number of pieces of an answer, and the time between them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    pub(super) pieces: usize,
    pub(super) tick: Duration,
}

impl Pace {
    /// Returns the answer to a message.
    pub(super) fn text(self, message: &str) -> String {
        (0..self.pieces).map(|piece| format!("{message}/{piece} ")).collect::<String>().trim_end().to_owned()
    }
}

/// A running model. Ends on drop.
pub(super) struct PacedModel {
    pub(super) port: u16,
    requests: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for PacedModel {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl PacedModel {
    /// Starts a model that answers each message at the pace that `pace` returns for it.
    pub(super) async fn start(pace: impl Fn(&str) -> Pace + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(AtomicUsize::new(0));
        let count = requests.clone();
        let pace = Arc::new(pace);
        let task = task::spawn("test", async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                count.fetch_add(1, Ordering::Relaxed);
                let pace = pace.clone();
                // Ends with its connection; the gateway hangs up when it is replaced.
                task::spawn("test", async move { answer(stream, &*pace).await.ok() });
            }
        });
        Self { port, requests, task }
    }

    /// Returns the number of requests.
    pub(super) fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }

    /// Returns the section `models.providers` for this model.
    pub(super) fn providers(&self) -> Value {
        json!({"paced": {
            "baseUrl": format!("http://127.0.0.1:{}/v1", self.port), "apiKey": "none", "api": "openai-completions",
            "models": [{"id": "m", "contextWindow": 100_000, "maxTokens": 4_096}],
        }})
    }
}

async fn answer(mut stream: TcpStream, pace: &(dyn Fn(&str) -> Pace + Send + Sync)) -> std::io::Result<()> {
    let message = read_message(&mut stream).await?;
    let Pace { pieces, tick } = pace(&message);
    stream.set_nodelay(true)?;
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n").await?;
    let mut ticks = tokio::time::interval(tick);
    for piece in 0..pieces {
        ticks.tick().await;
        let blank = if piece + 1 == pieces { "" } else { " " };
        send(&mut stream, &json!({"content": format!("{message}/{piece}{blank}")}), None).await?;
    }
    send(&mut stream, &json!({}), Some("stop")).await?;
    stream.write_all(b"data: [DONE]\n\n").await
}

async fn send(stream: &mut TcpStream, delta: &Value, finish: Option<&str>) -> std::io::Result<()> {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
    let chunk = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]});
    stream.write_all(format!("data: {chunk}\n\n").as_bytes()).await
}

/// Reads a request and returns the last word of its last message: the texts of these tests are single words.
async fn read_message(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).await?;
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).await?;
    let request: Value = serde_json::from_slice(&body)?;
    let content =
        request["messages"].as_array().and_then(|messages| messages.last()).map(|last| last["content"].clone());
    let content = content.unwrap_or_default();
    let blocks = content.as_array().into_iter().flatten().filter_map(|block| block["text"].as_str());
    let text: String = content.as_str().into_iter().chain(blocks).collect();
    Ok(text.split_whitespace().last().unwrap_or_default().to_owned())
}
