//! A client that keeps a session busy: it sends runs, sends them again after every lost connection, and records every
//! response.
//!
//! The next run is sent when the previous one is accepted, not when it has ended, so runs are queued and their order is
//! known. A run counts as lost only if its key cannot be sent again.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use anyhow::{Result, bail};
use homard_client::{ConnectResult, GatewayClient, RpcError, ServerFrame};
use homard_stdx::SeededRng;
use serde_json::{Value, json};

use super::{
    script,
    state::{ChaosState, KillMoment, ReceivedResult},
};

/// Number of runs per session before the next one is started, so that histories stay short.
const PER_SESSION: usize = 20;
/// Pause after a lost connection, unless the gateway's port changes in the meantime.
const RECONNECT_DELAY: Duration = Duration::from_millis(5);
/// Timeout of one `agent.wait` in milliseconds.
const WAIT_MS: u64 = 60_000;

/// A client that uses one session after the other.
#[derive(Debug)]
pub(crate) struct Sender {
    state: Arc<ChaosState>,
    number: usize,
    rng: SeededRng,
    sent: usize,
    /// Runs whose end was not received, in the order in which they were sent.
    open: Vec<String>,
}

/// The purpose of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
enum SenderRequest {
    /// To start this run.
    Run(String),
    /// To wait for this run.
    Wait(String),
    /// To find out whether this run has ended, because its request was rejected with this message.
    CheckEnd(String, String),
}

impl Sender {
    /// Creates the client with this number.
    pub(crate) fn new(state: Arc<ChaosState>, number: usize, seed: u64) -> Self {
        Self { state, number, rng: SeededRng::named(seed, &format!("client {number}")), sent: 0, open: Vec::new() }
    }

    /// Sends runs until the stage closes, and returns when all have ended.
    pub(crate) async fn run(mut self) {
        let mut port_watch = self.state.port.subscribe();
        loop {
            let port = match port_watch.wait_for(Option::is_some).await.as_deref() {
                Ok(Some(port)) => *port,
                Ok(None) | Err(_) => return,
            };
            if self.use_connection(port).await.is_ok() {
                return;
            }
            // The gateway was killed; the killer restarts it and announces its port.
            tokio::time::timeout(RECONNECT_DELAY, port_watch.changed()).await.ok();
        }
    }

    /// Uses one connection until it is lost or nothing is left to send.
    async fn use_connection(&mut self, port: u16) -> Result<()> {
        let target = self.state.target(port);
        let ConnectResult::Gateway(client) =
            GatewayClient::connect(&target, &["operator.write", "operator.read"], &["tool-events"]).await?
        else {
            bail!("no gateway is listening");
        };
        let depth = 1 + self.rng.below(3) as usize;
        let unsent = self.open.iter().cloned().collect();
        let mut connection =
            SenderConnection { sender: self, client: *client, requests: HashMap::new(), unsent, unaccepted: None };
        loop {
            connection.send_next(depth).await?;
            let is_closing = connection.sender.state.closing.is_cancelled();
            if is_closing && connection.sender.open.is_empty() {
                return Ok(());
            }
            connection.process_frame().await?;
        }
    }

    fn next_run(&mut self) -> String {
        let id = format!("{}-{}", self.number, self.sent);
        self.state.record_sent(&id, &session(self.number, self.sent), self.sent);
        self.sent += 1;
        self.open.push(id.clone());
        id
    }
}

/// Returns the session of a client's nth run.
fn session(client: usize, sent: usize) -> String {
    format!("chaos-{client}-{}", sent / PER_SESSION)
}

/// Returns the parameters of a run; always the same for the same run.
pub(crate) fn params(id: &str, session: &str) -> Value {
    json!({"message": script::message(id), "sessionKey": session, "idempotencyKey": key(id), "timeout": 60})
}

/// Returns the idempotency key of a run.
pub(crate) fn key(id: &str) -> String {
    format!("chaos-{id}")
}

/// Returns the result in a final response.
pub(super) fn final_answer(answer: &Result<Value, RpcError>) -> ReceivedResult {
    match answer {
        Ok(payload) if payload["status"] == "ok" => {
            let texts = payload.pointer("/result/payloads").and_then(Value::as_array).into_iter().flatten();
            ReceivedResult::Done(texts.filter_map(|payload| payload["text"].as_str()).collect())
        }
        Ok(payload) => ReceivedResult::Failed(payload["summary"].as_str().unwrap_or("no reason").to_owned()),
        Err(error) => ReceivedResult::Failed(error.message.clone()),
    }
}

/// One connection.
struct SenderConnection<'a> {
    sender: &'a mut Sender,
    client: GatewayClient,
    requests: HashMap<String, SenderRequest>,
    /// Runs that were not sent on this connection yet.
    unsent: VecDeque<String>,
    /// The run that was sent and is not accepted yet.
    unaccepted: Option<String>,
}

impl SenderConnection<'_> {
    /// Sends the next run if the previous one is accepted.
    async fn send_next(&mut self, depth: usize) -> Result<()> {
        if self.unaccepted.is_some() {
            return Ok(());
        }
        let is_closing = self.sender.state.closing.is_cancelled();
        let id = match self.unsent.pop_front() {
            Some(id) => id,
            None if !is_closing && self.sender.open.len() < depth => self.sender.next_run(),
            None => return Ok(()),
        };
        self.unaccepted = Some(id.clone());
        self.send_run(id).await
    }

    async fn send_run(&mut self, id: String) -> Result<()> {
        let session = self.sender.state.history().runs.get(&id).map(|run| run.session.clone()).unwrap_or_default();
        let request = self.client.send("agent", params(&id, &session)).await?;
        self.requests.insert(request, SenderRequest::Run(id));
        Ok(())
    }

    async fn send_wait(&mut self, id: &str, patience_ms: u64, purpose: SenderRequest) -> Result<()> {
        let params = json!({"runId": key(id), "timeoutMs": patience_ms});
        let request = self.client.send("agent.wait", params).await?;
        self.requests.insert(request, purpose);
        Ok(())
    }

    /// Processes the next frame.
    async fn process_frame(&mut self) -> Result<()> {
        let closing = self.sender.state.closing.clone();
        let incoming = tokio::select! {
            biased;
            incoming = self.client.next() => incoming?,
            // Lets a client with nothing to wait for end.
            () = closing.cancelled(), if self.sender.open.is_empty() => return Ok(()),
        };
        match incoming {
            ServerFrame::Event { event, payload } if event == "agent" => self.record_event(&payload),
            ServerFrame::Event { .. } => {}
            ServerFrame::Response { id, answer } => match self.requests.remove(&id) {
                Some(SenderRequest::Run(run)) => self.on_run_response(id, run, answer).await?,
                Some(SenderRequest::Wait(run)) => self.on_wait_response(run, answer).await?,
                Some(SenderRequest::CheckEnd(run, error)) => self.resolve_rejection(&run, &error, answer),
                None => {}
            },
        }
        Ok(())
    }

    /// Handles a response to `agent`.
    async fn on_run_response(&mut self, request: String, id: String, answer: Result<Value, RpcError>) -> Result<()> {
        let was_unaccepted = self.unaccepted.take_if(|unaccepted| *unaccepted == id).is_some();
        match &answer {
            Ok(payload) if payload["status"] == "accepted" => {
                self.sender.state.record_accepted(&id);
                self.requests.insert(request, SenderRequest::Run(id));
            }
            Ok(payload) if payload["status"] == "in_flight" => {
                self.sender.state.record_accepted(&id);
                let purpose = SenderRequest::Wait(id.clone());
                self.send_wait(&id, WAIT_MS, purpose).await?;
            }
            // Rejected, or failed earlier: the store knows which.
            Err(error) if was_unaccepted => {
                let purpose = SenderRequest::CheckEnd(id.clone(), error.message.clone());
                self.send_wait(&id, 0, purpose).await?;
            }
            Ok(_) | Err(_) => self.end(&id, final_answer(&answer)),
        }
        Ok(())
    }

    /// Handles a response to `agent.wait`: once the run has ended, its reply is requested with the same key.
    async fn on_wait_response(&mut self, id: String, answer: Result<Value, RpcError>) -> Result<()> {
        let status = answer.as_ref().ok().and_then(|payload| payload["status"].as_str());
        if matches!(status, Some("timeout" | "pending")) {
            let purpose = SenderRequest::Wait(id.clone());
            return self.send_wait(&id, WAIT_MS, purpose).await;
        }
        self.send_run(id).await
    }

    /// Decides whether a rejected run had ended.
    fn resolve_rejection(&mut self, id: &str, error: &str, answer: Result<Value, RpcError>) {
        match answer {
            Ok(payload) if payload["status"] == "error" && payload["error"] == error => {
                self.end(id, ReceivedResult::Failed(error.to_owned()));
            }
            answer => {
                let problem = format!("run {id} was rejected ({error}), but agent.wait returned {answer:?}");
                self.sender.state.history().problem(problem);
                self.sender.open.retain(|open| open != id);
            }
        }
    }

    fn end(&mut self, id: &str, result: ReceivedResult) {
        self.sender.state.record_result(id, result);
        self.sender.open.retain(|open| open != id);
    }

    /// Records an event of one of this client's runs; others are ignored.
    fn record_event(&self, payload: &Value) {
        let run = payload["runId"].as_str().and_then(|run| run.strip_prefix("chaos-"));
        let prefix = format!("{}-", self.sender.number);
        let Some(id) = run.filter(|run| run.starts_with(&prefix)) else { return };
        match (payload["stream"].as_str(), payload.pointer("/data/phase").and_then(Value::as_str)) {
            (Some("lifecycle"), Some("end" | "error")) => self.sender.state.record_end(id),
            (Some("tool"), Some("start")) => self.sender.state.publish(KillMoment::Tool),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_final_answer_has_the_reply_or_the_error() {
        let done = json!({"status": "ok", "result": {"payloads": [{"text": "1-1 is counted"}]}});
        assert_eq!(final_answer(&Ok(done)), ReceivedResult::Done("1-1 is counted".to_owned()));
        let stopped = json!({"status": "timeout", "summary": "aborted"});
        assert_eq!(final_answer(&Ok(stopped)), ReceivedResult::Failed("aborted".to_owned()));
        let error = RpcError { code: "UNAVAILABLE".to_owned(), message: "INTERRUPTED".to_owned() };
        assert_eq!(final_answer(&Err(error)), ReceivedResult::Failed("INTERRUPTED".to_owned()));
    }

    #[test]
    fn a_session_has_twenty_runs() {
        assert_eq!([0, 19, 20].map(|sent| session(3, sent)), ["chaos-3-0", "chaos-3-0", "chaos-3-1"]);
    }
}
