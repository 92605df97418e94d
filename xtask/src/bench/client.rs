//! A client of the gateway: one WebSocket, any number of runs.

use std::{collections::HashMap, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::{net::TcpStream, time::Instant};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, Utf8Bytes, protocol::WebSocketConfig},
};

/// Maximum silence of the gateway before the measurement is aborted.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of messages queued in one session, which accepts a thousand.
const MAX_QUEUED: usize = 500;

/// Number of turns after which a session is replaced by a new one, so that no history grows long.
const MAX_TURNS: usize = 20;

/// An authenticated connection.
#[derive(Debug)]
pub(super) struct BenchClient {
    socket: WebSocketStream<TcpStream>,
    requests: u64,
}

/// Result of a load over some time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LoadResult {
    pub(super) succeeded: usize,
    pub(super) failed: usize,
    pub(super) elapsed: Duration,
}

impl BenchClient {
    /// Connects to a gateway on loopback and completes the handshake.
    pub(super) async fn connect(port: u16, token: &str) -> Result<Self> {
        Self::connect_as(port, token, 4).await
    }

    /// Like [`Self::connect`], with another protocol version.
    pub(super) async fn connect_as(port: u16, token: &str, protocol: u8) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.context("cannot reach the gateway")?;
        stream.set_nodelay(true)?;
        let url = format!("ws://127.0.0.1:{port}/");
        // Small, because there may be ten thousand of them.
        let config = WebSocketConfig::default().read_buffer_size(8 * 1024);
        let opening = tokio_tungstenite::client_async_with_config(url, stream, Some(config));
        let (socket, _) = opening.await.context("the WebSocket upgrade failed")?;
        let mut client = Self { socket, requests: 0 };
        let id = client
            .request(
                "connect",
                json!({
                    "minProtocol": protocol, "maxProtocol": protocol, "role": "operator", "scopes": ["operator.admin"],
                    "client": {"id": "gateway-client", "version": "1", "platform": "linux", "mode": "backend"},
                    "auth": {"token": token},
                }),
            )
            .await?;
        let hello = client.next_response().await?;
        ensure!(hello["id"] == id && hello["ok"] == true, "the gateway rejected the handshake: {hello}");
        Ok(client)
    }

    /// Makes one run in a session, from the request to the final response.
    pub(super) async fn run(&mut self, session: &str, chunks: usize) -> Result<Duration> {
        self.load(&[session.to_owned()], 1, chunks).await
    }

    /// Makes one run with a message that controls the model's answer.
    pub(super) async fn run_text(&mut self, session: &str, text: &str) -> Result<()> {
        let key = format!("bench-run-{}", self.requests);
        self.request("agent", json!({"message": text, "sessionKey": session, "idempotencyKey": key})).await?;
        loop {
            let answer = self.next_response().await?;
            match answer["payload"]["status"].as_str() {
                Some("accepted") => {}
                Some("ok") => return Ok(()),
                _ => bail!("a run did not end with ok: {answer}"),
            }
        }
    }

    /// Calls a method; returns the time and the text of the response. The response is not parsed, so that its length
    /// costs little.
    pub(super) async fn call(&mut self, method: &str, params: Value) -> Result<(Duration, Utf8Bytes)> {
        let start = Instant::now();
        let id = self.request(method, params).await?;
        let prefix = format!(r#"{{"type":"res","id":"{id}","ok":"#);
        loop {
            let text = self.text().await?;
            if let Some(rest) = text.strip_prefix(&prefix) {
                ensure!(rest.starts_with("true"), "{method} failed: {text}");
                return Ok((start.elapsed(), text));
            }
        }
    }

    /// Compacts a session; returns the time and the result.
    pub(super) async fn compact(&mut self, session: &str) -> Result<(Duration, Value)> {
        let start = Instant::now();
        let id = self.request("sessions.compact", json!({"key": session})).await?;
        let answer = self.next_response().await?;
        ensure!(answer["id"] == id && answer["ok"] == true, "a session was not compacted: {answer}");
        Ok((start.elapsed(), answer["payload"].clone()))
    }

    /// Makes a number of sequential runs in each session, all sessions concurrently; returns the total time.
    pub(super) async fn load(&mut self, sessions: &[String], runs: usize, chunks: usize) -> Result<Duration> {
        let start = Instant::now();
        // Session by request id, and the number of its remaining runs after that one.
        let mut waiting = HashMap::new();
        for session in sessions {
            waiting.insert(self.start_run(session, chunks).await?, (session, runs - 1));
        }
        while !waiting.is_empty() {
            let answer = self.next_response().await?;
            ensure!(answer["ok"] == true, "a run failed: {answer}");
            if answer["payload"]["status"] == "accepted" {
                continue;
            }
            ensure!(answer["payload"]["status"] == "ok", "a run did not end with ok: {answer}");
            let id = answer["id"].as_str().unwrap_or_default();
            let Some((session, left)) = waiting.remove(id) else { bail!("response without a request: {answer}") };
            if left > 0 {
                waiting.insert(self.start_run(session, chunks).await?, (session, left - 1));
            }
        }
        Ok(start.elapsed())
    }

    /// Makes sequential runs in a number of concurrent sessions, which are replaced by new ones now and then, until the
    /// time is over; returns the number of successful and failed ones. Unfinished runs do not count.
    pub(super) async fn load_for(
        &mut self,
        sessions: usize,
        name: &str,
        time: Duration,
        text: &str,
    ) -> Result<LoadResult> {
        let start = Instant::now();
        let mut load = LoadResult::default();
        let mut waiting = HashMap::new();
        let key = |session: usize, run: usize| format!("agent:main:{name}-{session}-{}", run / MAX_TURNS);
        for session in 0..sessions {
            waiting.insert(self.start_run_with_text(&key(session, 0), text).await?, (session, 0));
        }
        while let Ok(answer) = tokio::time::timeout(time.saturating_sub(start.elapsed()), self.next_response()).await {
            let answer = answer?;
            if answer["payload"]["status"] == "accepted" {
                continue;
            }
            // A response without a request belongs to the previous load.
            let id = answer["id"].as_str().unwrap_or_default();
            let Some((session, run)) = waiting.remove(id) else { continue };
            if answer["payload"]["status"] == "ok" {
                load.succeeded += 1;
            } else {
                if load.failed == 0 {
                    eprintln!("a run failed: {answer}");
                }
                load.failed += 1;
            }
            waiting.insert(self.start_run_with_text(&key(session, run + 1), text).await?, (session, run + 1));
        }
        load.elapsed = start.elapsed();
        Ok(load)
    }

    /// Sends messages to one session at once and waits for their answers; returns the time until the last one and the
    /// number of answers that were out of order.
    pub(super) async fn burst(&mut self, session: &str, messages: usize, text: &str) -> Result<(Duration, usize)> {
        let start = Instant::now();
        let mut sent_ids = Vec::new();
        for _ in 0..messages {
            sent_ids.push(self.start_run_with_text(session, text).await?);
        }
        let mut answered_ids = Vec::new();
        while answered_ids.len() < messages {
            let answer = self.next_response().await?;
            if answer["payload"]["status"] != "accepted" {
                ensure!(answer["payload"]["status"] == "ok", "a run did not end with ok: {answer}");
                answered_ids.push(answer["id"].as_str().unwrap_or_default().to_owned());
            }
        }
        let elapsed = start.elapsed();
        Ok((elapsed, sent_ids.iter().zip(&answered_ids).filter(|(sent, answered)| sent != answered).count()))
    }

    /// Sends a message and returns when it is accepted.
    pub(super) async fn send(&mut self, session: &str, text: &str) -> Result<()> {
        // No other measurement uses these keys.
        let key = format!("{session}-send-{}", self.requests);
        let id = self.request("agent", json!({"message": text, "sessionKey": session, "idempotencyKey": key})).await?;
        loop {
            let answer = self.next_response().await?;
            if answer["id"] == id.as_str() {
                ensure!(answer["payload"]["status"] == "accepted", "a message was not accepted: {answer}");
                return Ok(());
            }
        }
    }

    /// Sends messages sequentially to sessions whose names begin like this; returns how long each took to be accepted.
    pub(super) async fn send_until(&mut self, end: Instant, session: &str, text: &str) -> Result<Vec<Duration>> {
        let mut times = Vec::new();
        while Instant::now() < end {
            let session = format!("{session}-{}", times.len() / MAX_QUEUED);
            let start = Instant::now();
            self.send(&session, text).await?;
            times.push(start.elapsed());
        }
        Ok(times)
    }

    /// Sends a message to a session with `chat.send` and returns its run when it is accepted; fails unless its
    /// disposition is the expected one.
    pub(super) async fn chat_send(&mut self, session: &str, text: &str, disposition: &str) -> Result<String> {
        let run = format!("bench-say-{}", self.requests);
        let id =
            self.request("chat.send", json!({"message": text, "sessionKey": session, "idempotencyKey": run})).await?;
        let answer = self.next_response().await?;
        let is_accepted = answer["id"] == id && answer["ok"] == true && answer["payload"]["disposition"] == disposition;
        ensure!(is_accepted, "a message was not {disposition}: {answer}");
        Ok(run)
    }

    /// Returns the next run whose final `chat` event arrives.
    pub(super) async fn next_final(&mut self) -> Result<String> {
        loop {
            let event = self.frame("event", "chat").await?;
            let payload = &event["payload"];
            if payload["state"] != "delta" {
                ensure!(payload["state"] == "final", "a run did not end with final: {event}");
                return Ok(payload["runId"].as_str().unwrap_or_default().to_owned());
            }
        }
    }

    /// Reads the events of a run to its end; returns their number.
    pub(super) async fn watch(&mut self, session: &str) -> Result<usize> {
        let session_field = format!(r#""sessionKey":"{session}""#);
        let mut events = 0;
        loop {
            let text = self.text().await?;
            if text.contains(r#""type":"event""#) && text.contains(&session_field) {
                events += 1;
                if text.contains(r#""state":"final""#) {
                    return Ok(events);
                }
            }
        }
    }

    /// Starts a run in each session at once and reads all of them to their ends; returns the intervals between deltas
    /// of one session, and the number of successful runs.
    pub(super) async fn stream_all(&mut self, sessions: &[String], text: &str) -> Result<(Vec<Duration>, usize)> {
        for session in sessions {
            let key = format!("bench-hear-{}", self.requests);
            self.request("agent", json!({"message": text, "sessionKey": session, "idempotencyKey": key})).await?;
        }
        let (mut last, mut gaps, mut ends) = (HashMap::new(), Vec::new(), 0);
        // Each request gets two responses: accepted and final.
        let mut pending = 2 * sessions.len();
        while pending > 0 {
            let frame = self.text().await?;
            if frame.contains(r#""type":"res""#) {
                pending -= 1;
                ends += usize::from(frame.contains(r#""status":"ok""#));
            } else if frame.contains(r#""event":"chat""#)
                && let Some((_, rest)) = frame.split_once(r#""runId":""#)
                && let Some((run, _)) = rest.split_once('"')
            {
                let now = Instant::now();
                gaps.extend(last.insert(run.to_owned(), now).map(|before| now - before));
            }
        }
        Ok((gaps, ends))
    }

    async fn start_run(&mut self, session: &str, chunks: usize) -> Result<String> {
        self.start_run_with_text(session, &format!("chunks={chunks}")).await
    }

    /// Starts a run with a message that controls the model's answer.
    pub(super) async fn start_run_with_text(&mut self, session: &str, text: &str) -> Result<String> {
        // Unique across sockets, because the key also names the run.
        let key = format!("bench-run-{session}-{}", self.requests);
        self.request("agent", json!({"message": text, "sessionKey": session, "idempotencyKey": key})).await
    }

    pub(super) async fn request(&mut self, method: &str, params: Value) -> Result<String> {
        self.requests += 1;
        let id = self.requests.to_string();
        let request = json!({"type": "req", "id": id, "method": method, "params": params});
        self.socket.send(Message::text(request.to_string())).await?;
        Ok(id)
    }

    /// Returns the next response.
    pub(super) async fn next_response(&mut self) -> Result<Value> {
        self.frame("type", "res").await
    }

    /// Returns the next frame with this member. Others are skipped by a text search, to keep the client cheap.
    async fn frame(&mut self, name: &str, value: &str) -> Result<Value> {
        let field = format!(r#""{name}":"{value}""#);
        loop {
            let text = self.text().await?;
            if text.contains(&field) {
                let frame: Value = serde_json::from_str(&text)?;
                if frame[name] == value {
                    return Ok(frame);
                }
            }
        }
    }

    /// Returns the next message.
    async fn text(&mut self) -> Result<Utf8Bytes> {
        loop {
            let next = tokio::time::timeout(SILENCE_TIMEOUT, self.socket.next());
            let message = next.await.with_context(|| format!("the gateway sent nothing for {SILENCE_TIMEOUT:?}"))?;
            if let Message::Text(text) = message.context("the gateway closed the connection")?? {
                return Ok(text);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::{TcpListener, TcpStream},
        thread,
    };

    use tokio_tungstenite::tungstenite::{WebSocket, accept};

    use super::*;

    fn send(socket: &mut WebSocket<TcpStream>, frame: &Value) {
        socket.send(Message::text(frame.to_string())).unwrap();
    }

    fn read_request(socket: &mut WebSocket<TcpStream>) -> Value {
        serde_json::from_str(socket.read().unwrap().to_text().unwrap()).unwrap()
    }

    /// A fake gateway that accepts `runs` requests, two at a time, and answers the later one first.
    fn gateway(runs: usize, status: &'static str) -> (u16, thread::JoinHandle<Vec<Value>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = thread::spawn(move || {
            let mut socket = accept(listener.accept().unwrap().0).unwrap();
            send(
                &mut socket,
                &json!({"type": "event", "event": "connect.challenge", "payload": {"nonce": "n", "ts": 1}}),
            );
            let hello = read_request(&mut socket);
            send(&mut socket, &json!({"type": "res", "id": hello["id"], "ok": true, "payload": {"type": "hello-ok"}}));
            let mut keys = Vec::new();
            for _ in 0..runs / 2 {
                let pair = [read_request(&mut socket), read_request(&mut socket)];
                for request in &pair {
                    let accepted = json!({"status": "accepted"});
                    send(&mut socket, &json!({"type": "res", "id": request["id"], "ok": true, "payload": accepted}));
                }
                for request in pair.iter().rev() {
                    send(
                        &mut socket,
                        &json!({"type": "event", "event": "agent", "payload": {"text": "\"type\":\"res\""}}),
                    );
                    send(
                        &mut socket,
                        &json!({"type": "res", "id": request["id"], "ok": true, "payload": {"status": status}}),
                    );
                    keys.push(request["params"]["sessionKey"].clone());
                }
            }
            keys
        });
        (port, server)
    }

    fn load(port: u16) -> Result<Duration> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut client = BenchClient::connect(port, "token").await?;
            client.load(&["a".to_owned(), "b".to_owned()], 2, 20).await
        })
    }

    #[test]
    fn every_session_makes_its_runs() {
        let (port, server) = gateway(4, "ok");
        load(port).unwrap();
        let mut keys = server.join().unwrap();
        keys.sort_by_key(Value::to_string);
        assert_eq!(keys, ["a", "a", "b", "b"]);
    }

    #[test]
    fn a_failed_run_is_an_error_of_the_measurement() {
        let (port, server) = gateway(2, "error");
        let error = load(port).unwrap_err().to_string();
        assert_eq!(
            error,
            r#"a run did not end with ok: {"type":"res","id":"3","ok":true,"payload":{"status":"error"}}"#
        );
        server.join().unwrap();
    }
}
