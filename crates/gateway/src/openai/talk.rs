//! One run on its way to a caller over HTTP: what it says, then how it ended.

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

/// A run and the caller that it answers.
#[derive(Debug)]
pub(super) struct Talk {
    server: Arc<Server>,
    follower: Follower,
    words: Words,
    stop_reason: StopReason,
    ending: Option<Ending>,
    is_over: bool,
    /// Stops the run when the caller leaves, if nobody could ever come back to it.
    leash: Leash,
    /// The server waits for callers when it stops.
    _open: TaskTrackerToken,
}

/// What a caller learns next.
#[derive(Debug)]
pub(super) enum News {
    /// More of the answer.
    Words(String),
    /// The end. The last news.
    Over(Ending),
}

/// How a run ended: with an answer, or with an error.
pub(super) type Ending = Result<Whole, Refusal>;

/// The whole answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Whole {
    /// Everything that was said.
    pub(super) text: String,
    /// Calls that are the caller's to make.
    pub(super) calls: Vec<ToolCall>,
    /// What it cost.
    pub(super) usage: Usage,
    /// Whether the model ran into its output limit.
    pub(super) is_cut: bool,
}

/// What becomes of a run when its caller leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaving {
    /// It goes on: its session has a name, under which the answer can be found.
    GoesOn,
    /// It is stopped: nobody else knows of it.
    Stops,
}

impl Talk {
    /// Hands a message in. A caller may leave before it was accepted, too.
    pub(super) async fn begin(server: &Arc<Server>, inbound: Inbound, leaving: Leaving) -> Result<Self, Refusal> {
        let (run, key) = (inbound.run.clone(), inbound.key.clone());
        let mut leash = Leash((leaving == Leaving::Stops).then(|| (server.clone(), key, run.clone())));
        // Of a message that was not taken in there is no run to stop.
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

    /// The next news; `None` after the end. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<News> {
        while !self.is_over {
            if let Some(ending) = self.ending.take() {
                self.is_over = true;
                return Some(News::Over(ending));
            }
            let heard = tokio::select! {
                biased;
                // The run's end is on its tape before this, if it came to one.
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

    /// Waits for the end.
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
            // Words that the model did not say come all at once.
            if let Ok(whole) = &ending
                && self.words.whole().is_empty()
            {
                new.push_str(&whole.text);
            }
            self.ending = Some(ending);
        }
        new
    }

    /// The gateway stops before the run has ended. The message was accepted, so it must not come a second time.
    fn cut_off(&self) -> Refusal {
        Refusal::unavailable(match self.leash.0 {
            None => "the gateway is stopping; the run goes on when it is back",
            Some(_) => "the gateway is stopping, and so is the run, which may have done something already",
        })
    }

    /// The story stopped without an end.
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

/// What a run came to: what the model said, or what was said for it if it said nothing.
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

/// Stops a run when it is dropped, unless that was let go.
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
        // Nobody waits for it but the server, when that stops.
        drop(task::spawn("caller left", server.connections.track_future(stopping)));
    }
}
