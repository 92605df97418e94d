//! The output of one run for an HTTP caller: text, then the result.

use std::sync::Arc;

use axum::http::StatusCode;
use homard_agent::{
    AbortReason, End, Follower, Inbound, Outcome, RunEvent, event::FailureKind, hub::Disposition, tape::State, task,
};
use homard_proto::{
    RunId, SessionKey,
    message::{StopReason, ToolCall, Usage},
};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::{
    refusal::Refusal,
    words::{self, Words},
};
use crate::server::Server;

/// A run and the HTTP request that it answers.
#[derive(Debug)]
pub(super) struct Talk {
    server: Arc<Server>,
    follower: Follower,
    words: Words,
    stop_reason: StopReason,
    ending: Option<Ending>,
    is_over: bool,
    /// Aborts the run when the caller disconnects, if no other request could find it.
    leash: Leash,
    /// Lets the server wait for this request at shutdown.
    _open: TaskTrackerToken,
}

/// The next piece of output.
#[derive(Debug)]
pub(super) enum News {
    /// More text.
    Words(String),
    /// The result; nothing follows.
    Over(Ending),
}

/// Result of a run: a complete answer or an error.
pub(super) type Ending = Result<Whole, Refusal>;

/// A complete answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Whole {
    /// All of its text.
    pub(super) text: String,
    /// Tool calls for the caller to execute.
    pub(super) calls: Vec<ToolCall>,
    pub(super) usage: Usage,
    /// True if the model reached its output limit.
    pub(super) is_cut: bool,
}

/// What happens to a run when its caller disconnects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaving {
    /// It continues: its session has a name by which the answer can be found.
    GoesOn,
    /// It is aborted: no other request knows it.
    Stops,
}

impl Talk {
    /// Submits a message. The leash is created first, so that it also applies if the caller disconnects before the
    /// message is accepted.
    pub(super) async fn begin(server: &Arc<Server>, inbound: Inbound, leaving: Leaving) -> Result<Self, Refusal> {
        let (run, key) = (inbound.run.clone(), inbound.key.clone());
        let mut leash = Leash((leaving == Leaving::Stops).then(|| (server.clone(), key, run.clone())));
        // A message that was not accepted has no run to abort.
        let accepted = server.hub.submit(inbound).await.inspect_err(|_| leash.let_go())?;
        let follower = match accepted.disposition {
            Disposition::New(tape) | Disposition::InFlight(tape) => Follower::new(tape),
            Disposition::Finished(_) => return Err(Refusal::failed(format!("run {run} is over already"))),
        };
        Ok(Self {
            server: server.clone(),
            follower,
            words: Words::default(),
            stop_reason: StopReason::Stop,
            ending: None,
            is_over: false,
            leash,
            _open: server.connections.token(),
        })
    }

    /// Returns the next piece of output; `None` after the end. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<News> {
        while !self.is_over {
            if let Some(ending) = self.ending.take() {
                self.is_over = true;
                return Some(News::Over(ending));
            }
            let heard = tokio::select! {
                biased;
                // First, because the run's end, if any, is on the tape by now.
                heard = self.follower.next() => heard,
                () = self.server.stop.cancelled() => {
                    self.ending = Some(Err(self.cut_off()));
                    continue;
                }
            };
            let mut new = String::new();
            match heard {
                Some(events) => events.iter().for_each(|event| new.push_str(&self.hear(&event.kind))),
                None => self.ending = Some(Err(self.broken())),
            }
            if !new.is_empty() {
                return Some(News::Words(new));
            }
        }
        None
    }

    /// Waits for the result.
    pub(super) async fn end(mut self) -> Ending {
        loop {
            match self.next().await {
                Some(News::Words(_)) => {}
                Some(News::Over(ending)) => return ending,
                None => return Err(self.broken()),
            }
        }
    }

    fn hear(&mut self, event: &RunEvent) -> String {
        let mut new = self.words.hear(event);
        if let RunEvent::Assistant { said, .. } = event {
            self.stop_reason = said.stop_reason;
        }
        if let RunEvent::Ended(end) = event {
            self.leash.let_go();
            let ending = ending(end, self.words.whole(), self.stop_reason);
            // Text that was not streamed is sent at once.
            if let Ok(whole) = &ending
                && self.words.whole().is_empty()
            {
                new.push_str(&whole.text);
            }
            self.ending = Some(ending);
        }
        new
    }

    /// Error if the gateway stops before the run has ended. The message was accepted, so a retry must not repeat it.
    fn cut_off(&self) -> Refusal {
        Refusal::unavailable(match self.leash.0 {
            None => "the gateway is stopping; the run goes on when it is back",
            Some(_) => "the gateway is stopping, and so is the run, which may have done something already",
        })
    }

    /// Error if the tape stopped without an end.
    fn broken(&self) -> Refusal {
        match self.follower.tape().state() {
            State::Broken(_) if self.server.hub.is_draining() && self.leash.0.is_some() => self.cut_off(),
            State::Broken(why) if self.server.hub.is_draining() => Refusal::unavailable(why),
            State::Broken(why) => Refusal::failed(why),
            State::Queued | State::Running | State::Ended(_) | State::Refused => {
                Refusal::failed("the run's end is not known; see what its session says")
            }
        }
    }
}

/// Converts the end of a run: the streamed text or, if there is none, the replies.
fn ending(end: &End, said: &str, stop_reason: StopReason) -> Ending {
    let status = match &end.outcome {
        Outcome::Done => {
            let replies = end.replies.iter().map(|reply| reply.text.as_str());
            return Ok(Whole {
                text: if said.is_empty() { words::join(replies) } else { said.to_owned() },
                calls: end.calls.clone(),
                usage: end.usage.clone(),
                is_cut: stop_reason == StopReason::Length,
            });
        }
        Outcome::Failed(failure) if failure.kind == FailureKind::Model => StatusCode::BAD_GATEWAY,
        Outcome::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        Outcome::Aborted(AbortReason::Timeout) => StatusCode::GATEWAY_TIMEOUT,
        Outcome::Aborted(AbortReason::User | AbortReason::Stop) => {
            return Err(Refusal::new(StatusCode::CONFLICT, "api_error", "the run was stopped before it had an answer"));
        }
        Outcome::Aborted(AbortReason::Interrupted | AbortReason::Dropped) => StatusCode::CONFLICT,
    };
    Err(Refusal::new(status, "api_error", end.outcome.error().unwrap_or_default()))
}

/// Aborts a run when dropped, unless released.
#[derive(Debug)]
struct Leash(Option<(Arc<Server>, SessionKey, RunId)>);

impl Leash {
    fn let_go(&mut self) {
        self.0 = None;
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        let Some((server, key, run)) = self.0.take() else { return };
        let hub = server.hub.clone();
        let stopping = async move {
            hub.abort(&key, Some(run), AbortReason::User).await;
        };
        // Detached; only the server's shutdown waits for it.
        drop(task::spawn("caller left", server.connections.track_future(stopping)));
    }
}
