//! A scripted WebSocket client that records all frames.

use std::{
    collections::VecDeque,
    fs::{self, File, OpenOptions},
    io::Write,
    path::Path,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::{
    net::TcpStream,
    runtime::Runtime,
    time::{Instant, timeout},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, client::IntoClientRequest, http::HeaderValue},
};

use super::client::ProtocolVersion;
use crate::gateway::TOKEN;

/// Time limit of a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// What was received.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum WireEvent {
    /// A frame.
    Frame(Value),
    /// The close frame, with its code and reason.
    Closed(u16, String),
}

/// A connection.
pub(super) struct ScriptedSocket {
    runtime: Runtime,
    socket: WebSocketStream<TcpStream>,
    /// Received frames that were not consumed yet.
    unread: VecDeque<Value>,
    record: File,
    protocol: u8,
    requests: u32,
}

/// Address, protocol version and file for recorded frames.
#[derive(Debug, Clone, Copy)]
pub(super) struct SocketParams<'a> {
    pub(super) port: u16,
    pub(super) protocol: ProtocolVersion,
    pub(super) record: &'a Path,
}

impl SocketParams<'_> {
    /// Returns the protocol version as a number.
    pub(super) fn number(&self) -> u8 {
        match self.protocol {
            ProtocolVersion::Three => 3,
            ProtocolVersion::Four => 4,
        }
    }

    /// Returns the parameters of a valid `connect`.
    pub(super) fn connect(&self) -> Value {
        let number = self.number();
        json!({
            "minProtocol": number, "maxProtocol": number, "role": "operator", "auth": {"token": TOKEN},
            "scopes": ["operator.admin", "operator.read", "operator.write", "operator.approvals", "operator.pairing"],
            "caps": ["tool-events"],
            "client": {"id": "gateway-client", "version": "1", "platform": "linux", "mode": "backend"},
        })
    }

    /// Connects and completes the handshake.
    pub(super) fn open(&self) -> Result<ScriptedSocket> {
        let mut wire = self.connect_only(&[])?;
        let hello = wire.request("connect", self.connect())?;
        ensure!(hello["ok"] == true, "the handshake should succeed: {hello}");
        ensure!(hello["payload"]["protocol"] == self.number(), "the negotiated protocol is wrong: {hello}");
        Ok(wire)
    }

    /// Connects without sending anything; the challenge has been received.
    pub(super) fn connect_only(&self, headers: &[(&'static str, &str)]) -> Result<ScriptedSocket> {
        let mut wire = self.upgrade(headers)?;
        let challenge = wire.next(RESPONSE_TIMEOUT)?;
        match &challenge {
            WireEvent::Frame(frame) if frame["event"] == "connect.challenge" => {
                ensure!(frame["payload"]["ts"].is_u64(), "`ts` should be an integer: {frame}");
                ensure!(frame["payload"]["nonce"].is_string(), "`nonce` should be a string: {frame}");
            }
            WireEvent::Frame(_) | WireEvent::Closed(..) => {
                bail!("the first frame should be a challenge, but is {challenge:?}")
            }
        }
        Ok(wire)
    }

    fn upgrade(&self, headers: &[(&'static str, &str)]) -> Result<ScriptedSocket> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut request = format!("ws://127.0.0.1:{}/", self.port).into_client_request()?;
        for (name, value) in headers {
            request.headers_mut().insert(*name, HeaderValue::from_str(value)?);
        }
        let port = self.port;
        let socket = runtime.block_on(async {
            let stream = TcpStream::connect(("127.0.0.1", port)).await.context("cannot reach the gateway")?;
            let (socket, answer) = tokio_tungstenite::client_async(request, stream).await?;
            ensure!(!answer.headers().contains_key("sec-websocket-extensions"), "compression should not be negotiated");
            anyhow::Ok(socket)
        })?;
        if let Some(folder) = self.record.parent() {
            fs::create_dir_all(folder)?;
        }
        let record = OpenOptions::new().create(true).append(true).open(self.record)?;
        Ok(ScriptedSocket { runtime, socket, unread: VecDeque::new(), record, protocol: self.number(), requests: 0 })
    }
}

impl ScriptedSocket {
    /// Sends arbitrary text.
    pub(super) fn send_text(&mut self, text: &str) -> Result<()> {
        let message = Message::text(text);
        self.runtime.block_on(self.socket.send(message)).context("cannot send to the gateway")
    }

    /// Sends a binary message.
    pub(super) fn send_binary(&mut self, bytes: &[u8]) -> Result<()> {
        let message = Message::binary(bytes.to_vec());
        self.runtime.block_on(self.socket.send(message)).context("cannot send to the gateway")
    }

    /// Sends a request and returns its id.
    pub(super) fn send_request(&mut self, method: &str, params: impl Into<Value>) -> Result<String> {
        self.requests += 1;
        let id = format!("q{}", self.requests);
        self.write_record(&json!({"asked": id, "method": method}))?;
        self.send_text(&json!({"type": "req", "id": id, "method": method, "params": params.into()}).to_string())?;
        Ok(id)
    }

    /// Sends a request and waits for the first response.
    pub(super) fn request(&mut self, method: &str, params: Value) -> Result<Value> {
        let id = self.send_request(method, params)?;
        self.response(&id)
    }

    /// Sends a request that must succeed; returns its payload.
    pub(super) fn request_ok(&mut self, method: &str, params: Value) -> Result<Value> {
        let mut answer = self.request(method, params)?;
        ensure!(answer["ok"] == true, "`{method}` should succeed: {answer}");
        Ok(answer["payload"].take())
    }

    /// Returns the next response to a request.
    pub(super) fn response(&mut self, id: &str) -> Result<Value> {
        self.find(&format!("a response to {id}"), |frame| frame["type"] == "res" && frame["id"] == id)
    }

    /// Returns the next `chat` event of a run that is not a delta.
    pub(super) fn final_chat_event(&mut self, run: &str) -> Result<Value> {
        let is_last = |frame: &Value| {
            let payload = &frame["payload"];
            frame["event"] == "chat"
                && payload["runId"] == run
                && payload["state"] != "delta"
                && payload["state"] != "status"
        };
        Ok(self.find(&format!("the last event of {run}"), is_last)?["payload"].take())
    }

    /// Returns the first matching frame, among received and future ones.
    pub(super) fn find(&mut self, what: &str, is_match: impl Fn(&Value) -> bool) -> Result<Value> {
        if let Some(at) = self.unread.iter().position(&is_match) {
            return self.unread.remove(at).context("the frame is missing in the queue");
        }
        loop {
            match self.next(RESPONSE_TIMEOUT).with_context(|| format!("waiting for {what}"))? {
                WireEvent::Frame(frame) if is_match(&frame) => return Ok(frame),
                WireEvent::Frame(frame) => self.unread.push_back(frame),
                WireEvent::Closed(code, reason) => bail!("closed with {code} {reason:?} while waiting for {what}"),
            }
        }
    }

    /// Returns everything received so far and within a time.
    pub(super) fn collect(&mut self, time: Duration) -> Result<Vec<Value>> {
        let end = Instant::now() + time;
        while let Some(remaining) = end.checked_duration_since(Instant::now()) {
            match self.next_within(remaining)? {
                Some(WireEvent::Frame(frame)) => self.unread.push_back(frame),
                Some(WireEvent::Closed(code, reason)) => bail!("closed with {code} {reason:?}"),
                None => break,
            }
        }
        Ok(self.unread.drain(..).collect())
    }

    /// Returns what is received until the connection is closed, and the close frame.
    pub(super) fn rest(&mut self) -> Result<(Vec<Value>, u16, String)> {
        let mut frames: Vec<Value> = self.unread.drain(..).collect();
        loop {
            match self.next(RESPONSE_TIMEOUT)? {
                WireEvent::Frame(frame) => frames.push(frame),
                WireEvent::Closed(code, reason) => return Ok((frames, code, reason)),
            }
        }
    }

    fn next(&mut self, time_limit: Duration) -> Result<WireEvent> {
        self.next_within(time_limit)?.with_context(|| format!("nothing received within {time_limit:?}"))
    }

    fn next_within(&mut self, time_limit: Duration) -> Result<Option<WireEvent>> {
        loop {
            let received = self.runtime.block_on(async { timeout(time_limit, self.socket.next()).await });
            let Ok(received) = received else { return Ok(None) };
            let received = match received {
                Some(Ok(Message::Text(text))) => WireEvent::Frame(serde_json::from_str(&text)?),
                Some(Ok(Message::Close(Some(close)))) => WireEvent::Closed(close.code.into(), close.reason.to_string()),
                Some(Ok(Message::Close(None))) | None => WireEvent::Closed(1005, String::new()),
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Binary(_) | Message::Frame(_))) => continue,
                Some(Err(error)) => WireEvent::Closed(1006, error.to_string()),
            };
            if let WireEvent::Frame(frame) = &received {
                let frame = frame.clone();
                self.write_record(&json!({"heard": frame}))?;
            }
            return Ok(Some(received));
        }
    }

    fn write_record(&mut self, what: &Value) -> Result<()> {
        let mut what = what.clone();
        what["protocol"] = self.protocol.into();
        writeln!(self.record, "{what}").context("cannot write the frame record")
    }
}
