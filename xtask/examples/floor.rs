//! A minimal gateway: a WebSocket in, a model's stream out. It has no authentication, tools, history or persistence, so
//! no gateway of this kind can be cheaper; `bench --peers` uses it as the baseline.
//!
//! `floor serve PORT MODEL_PORT` is the gateway, `floor once MODEL_PORT TEXT` sends one message from the command line.
#![allow(clippy::print_stdout, reason = "one way to use it is to print an answer")]

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use anyhow::{Context, Result, bail, ensure};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{
        Mutex,
        mpsc::{self, UnboundedSender},
    },
    task::{LocalSet, spawn_local},
};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

/// Size of a read from the model.
const READ_BYTES: usize = 64 << 10;

/// State of the gateway.
struct MinimalGateway {
    model: u16,
    /// Idle connections to the model.
    idle: RefCell<Vec<TcpStream>>,
    /// All sockets; every event is broadcast.
    sockets: RefCell<HashMap<u64, UnboundedSender<Utf8Bytes>>>,
    /// One run at a time per session, in order of arrival.
    sessions: RefCell<HashMap<String, Rc<Mutex<()>>>>,
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match args[..] {
        ["serve", port, model] => {
            LocalSet::new().block_on(&runtime, serve(port.parse()?, Rc::new(MinimalGateway::new(model.parse()?))))
        }
        ["once", model, text] => runtime.block_on(once(&MinimalGateway::new(model.parse()?), text)),
        _ => bail!("say `floor serve PORT MODEL_PORT` or `floor once MODEL_PORT TEXT`"),
    }
}

async fn serve(port: u16, floor: Rc<MinimalGateway>) -> Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    for number in 0.. {
        let (stream, _) = listener.accept().await?;
        let floor = Rc::clone(&floor);
        spawn_local(async move {
            // A client that disconnects early simply receives nothing more.
            floor.listen(number, stream).await.ok();
            floor.sockets.borrow_mut().remove(&number);
        });
    }
    Ok(())
}

async fn once(floor: &MinimalGateway, text: &str) -> Result<()> {
    let mut answer = String::new();
    floor.stream_model(text, |delta| answer.push_str(delta)).await?;
    println!("{answer}");
    Ok(())
}

impl MinimalGateway {
    fn new(model: u16) -> Self {
        let (idle, sockets, sessions) = Default::default();
        Self { model, idle, sockets, sessions }
    }

    /// Serves one socket, from its handshake to its end.
    async fn listen(self: &Rc<Self>, number: u64, stream: TcpStream) -> Result<()> {
        stream.set_nodelay(true)?;
        let (mut write, mut read) = tokio_tungstenite::accept_async(stream).await?.split();
        // Unbounded: this gateway does not defend itself.
        let (sender, mut receiver) = mpsc::unbounded_channel::<Utf8Bytes>();
        self.sockets.borrow_mut().insert(number, sender.clone());
        spawn_local(async move {
            while let Some(text) = receiver.recv().await {
                write.feed(Message::Text(text)).await?;
                // Messages that are already queued are flushed together.
                while let Ok(text) = receiver.try_recv() {
                    write.feed(Message::Text(text)).await?;
                }
                write.flush().await?;
            }
            anyhow::Ok(())
        });
        while let Some(message) = read.next().await {
            let Message::Text(text) = message? else { continue };
            let request: Value = serde_json::from_str(&text)?;
            if request["method"] == "agent" {
                let floor = Rc::clone(self);
                let sender = sender.clone();
                spawn_local(async move { floor.run(&request, &sender).await.ok() });
            } else {
                sender.send(answer(&request, &json!({"type": "hello-ok", "protocol": 4})))?;
            }
        }
        Ok(())
    }

    async fn run(&self, request: &Value, sender: &UnboundedSender<Utf8Bytes>) -> Result<()> {
        let params = &request["params"];
        let key = params["sessionKey"].as_str().context("no session")?;
        let (run, text) = (&params["idempotencyKey"], params["message"].as_str().unwrap_or_default());
        let session = Rc::clone(self.sessions.borrow_mut().entry(key.to_owned()).or_default());
        sender.send(answer(request, &json!({"runId": run, "status": "accepted"})))?;
        let _turn = session.lock().await;
        let mut reply = String::new();
        self.stream_model(text, |delta| {
            reply.push_str(delta);
            let data = json!({"delta": delta});
            self.broadcast("agent", &json!({"runId": run, "sessionKey": key, "stream": "assistant", "data": data}));
        })
        .await?;
        let message = json!({"role": "assistant", "content": [{"type": "text", "text": reply}]});
        self.broadcast("chat", &json!({"runId": run, "sessionKey": key, "state": "final", "message": message}));
        let result = json!({"payloads": [{"text": reply}]});
        Ok(sender.send(answer(request, &json!({"runId": run, "status": "ok", "result": result})))?)
    }

    /// Broadcasts an event; it is encoded once.
    fn broadcast(&self, event: &str, payload: &Value) {
        let frame = Utf8Bytes::from(format!(r#"{{"type":"event","event":"{event}","payload":{payload}}}"#));
        self.sockets.borrow_mut().retain(|_, socket| socket.send(frame.clone()).is_ok());
    }

    /// Sends a request to the model and passes on its text.
    async fn stream_model(&self, text: &str, mut on_delta: impl FnMut(&str)) -> Result<()> {
        let idle_stream = self.idle.borrow_mut().pop();
        let mut stream = match idle_stream {
            Some(stream) => stream,
            None => TcpStream::connect(("127.0.0.1", self.model)).await.context("cannot reach the model")?,
        };
        stream.set_nodelay(true)?;
        let body = json!({"model": "fake-1", "stream": true, "messages": [{"role": "user", "content": text}]});
        let body = body.to_string();
        let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n";
        let request = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(request.as_bytes()).await?;
        let mut buffer = Vec::with_capacity(READ_BYTES);
        loop {
            ensure!(stream.read_buf(&mut buffer).await? > 0, "the model hung up");
            let mut done = 0;
            while let Some(length) = buffer[done..].iter().position(|byte| *byte == b'\n') {
                let line = &buffer[done..done + length];
                done += length + 1;
                if line == b"data: [DONE]" {
                    // Each HTTP chunk contains one event here, so only its lines must be parsed; the last chunk is
                    // still to come, and is read before the connection is reused.
                    while !buffer.ends_with(b"\r\n0\r\n\r\n") {
                        ensure!(stream.read_buf(&mut buffer).await? > 0, "the model hung up");
                    }
                    self.idle.borrow_mut().push(stream);
                    return Ok(());
                }
                if let Some(event) = line.strip_prefix(b"data: ") {
                    let event: Value = serde_json::from_slice(event)?;
                    if let Some(delta) = event["choices"][0]["delta"]["content"].as_str() {
                        on_delta(delta);
                    }
                }
            }
            buffer.drain(..done);
        }
    }
}

fn answer(request: &Value, payload: &Value) -> Utf8Bytes {
    format!(r#"{{"type":"res","id":{},"ok":true,"payload":{payload}}}"#, request["id"]).into()
}
