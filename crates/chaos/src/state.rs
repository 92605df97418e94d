//! Shared state: the gateway's port, the latest events, and everything the clients received.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use homard_client::GatewayTarget;
use homard_credentials::gateway_secret::GatewaySecret;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

/// Maximum number of problems that are listed; the others are counted.
const MAX_LISTED: usize = 20;

/// An event after which a kill may follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KillMoment {
    /// A client received `accepted` for its run.
    Accepted,
    /// The model sent a word.
    TextDelta,
    /// A client received the start of a tool.
    Tool,
    /// The model sent the last word of a run.
    LastDelta,
    /// A client received the end of its run.
    Ended,
}

impl KillMoment {
    /// All moments.
    pub(crate) const ALL: [Self; 5] = [Self::Accepted, Self::TextDelta, Self::Tool, Self::LastDelta, Self::Ended];
}

/// The result of a run as a client received it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReceivedResult {
    /// Success, with the reply.
    Done(String),
    /// Failure, with the reason.
    Failed(String),
}

/// A run as its client knows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ClientRun {
    pub session: String,
    /// Index among the runs of its client: the next one is sent only when this one is accepted.
    pub index: usize,
    pub is_accepted: bool,
    pub result: Option<ReceivedResult>,
    /// How many times its end was received as an event.
    pub ends: usize,
}

/// What the clients have sent and received so far.
#[derive(Debug, Default)]
pub(super) struct ClientHistory {
    pub runs: BTreeMap<String, ClientRun>,
    /// Number of model requests.
    pub requests: usize,
    /// Violations that are not counted elsewhere.
    pub problems: Vec<String>,
}

impl ClientHistory {
    fn run(&mut self, id: &str) -> &mut ClientRun {
        self.runs.entry(id.to_owned()).or_default()
    }

    /// Records a violation.
    pub(crate) fn problem(&mut self, text: String) {
        self.problems.push(text);
    }

    /// Records a result; repeated requests must return the same one.
    pub(super) fn record_result(&mut self, id: &str, result: ReceivedResult) {
        let run = self.run(id);
        run.is_accepted = true;
        match &run.result {
            Some(previous) if *previous != result => {
                let problem = format!("run {id} was reported to end with {previous:?} and later with {result:?}");
                self.problem(problem);
            }
            Some(_) => {}
            None => run.result = Some(result),
        }
    }

    /// Returns the first problems and the number of the others.
    pub(super) fn some_problems(&self) -> Vec<String> {
        let more = self.problems.len().saturating_sub(MAX_LISTED);
        let listed = self.problems.iter().take(MAX_LISTED).cloned();
        listed.chain((more > 0).then(|| format!("and {more} more"))).collect()
    }
}

/// State shared by the test clients, the fake model and the task that kills the gateway.
#[derive(Debug)]
pub(super) struct ChaosState {
    /// The gateway's port while it listens.
    pub port: watch::Sender<Option<u16>>,
    /// Cancelled when no more runs are to be sent.
    pub(super) closing: CancellationToken,
    token: String,
    moments: mpsc::UnboundedSender<KillMoment>,
    history: Mutex<ClientHistory>,
}

impl ChaosState {
    /// Creates the state for gateways with this token. The killer receives the moments.
    pub(crate) fn new(token: String) -> (Self, mpsc::UnboundedReceiver<KillMoment>) {
        // Unbounded: it is drained before every kill, and a killed gateway produces no events.
        let (moments, moment_receiver) = mpsc::unbounded_channel();
        let (port, closing) = (watch::Sender::new(None), CancellationToken::new());
        (Self { port, closing, token, moments, history: Mutex::default() }, moment_receiver)
    }

    /// Returns the gateway at a port as a client target.
    pub(crate) fn target(&self, port: u16) -> GatewayTarget {
        let secret = Some(GatewaySecret::Token(self.token.clone()));
        GatewayTarget { url: format!("ws://127.0.0.1:{port}"), secret, pin: None, is_own: false, is_down: false }
    }

    /// Publishes a moment.
    pub(super) fn publish(&self, moment: KillMoment) {
        // At the end there is no receiver.
        self.moments.send(moment).ok();
    }

    /// Returns what the clients know.
    pub(crate) fn history(&self) -> MutexGuard<'_, ClientHistory> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a new run.
    pub(super) fn record_sent(&self, id: &str, session: &str, index: usize) {
        let run = ClientRun { session: session.to_owned(), index, ..ClientRun::default() };
        self.history().runs.insert(id.to_owned(), run);
    }

    /// Records an acceptance.
    pub(super) fn record_accepted(&self, id: &str) {
        self.history().run(id).is_accepted = true;
        self.publish(KillMoment::Accepted);
    }

    /// Records a result.
    pub(super) fn record_result(&self, id: &str, result: ReceivedResult) {
        self.history().record_result(id, result);
    }

    /// Records an end event of a run.
    pub(super) fn record_end(&self, id: &str) {
        self.history().run(id).ends += 1;
        self.publish(KillMoment::Ended);
    }

    /// Records a model request and what was wrong with it.
    pub(super) fn record_request(&self, problem: Option<String>) {
        let mut history = self.history();
        history.requests += 1;
        if let Some(problem) = problem {
            history.problem(format!("the model received a request with {problem}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_different_result_for_the_same_run_is_a_problem() {
        let mut history = ClientHistory::default();
        history.record_result("1-1", ReceivedResult::Done("a".to_owned()));
        history.record_result("1-1", ReceivedResult::Done("a".to_owned()));
        assert_eq!(history.problems, Vec::<String>::new());
        history.record_result("1-1", ReceivedResult::Failed("b".to_owned()));
        assert_eq!(history.problems, [r#"run 1-1 was reported to end with Done("a") and later with Failed("b")"#]);
    }
}
