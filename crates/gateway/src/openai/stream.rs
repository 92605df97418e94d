//! The output of one run for an HTTP caller: text, then the result.

use std::sync::Arc;

use axum::http::StatusCode;
use homard_agent::{
    AbortReason, Inbound, Outcome, RunEnd, RunEvent, StoredEvent, Subscriber, event::FailureKind, hub::SubmitOutcome,
    tape::TapeState,
};
use homard_proto::{
    RunId, SessionKey,
    message::{StopReason, ToolCall, Usage},
};
use homard_runtime::task;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::{
    error::ApiError,
    text_delta::{self, TextStream},
};
use crate::server::ServerState;

/// A run and the HTTP request that it answers.
#[derive(Debug)]
pub(super) struct RunResponse {
    server: Arc<ServerState>,
    follower: Subscriber,
    text: TextStream,
    stop_reason: StopReason,
    result: Option<ResponseResult>,
    is_over: bool,
    /// Aborts the run when the caller disconnects, if no other request could find it.
    abort_on_drop: AbortOnDrop,
    /// Lets the server wait for this request at shutdown.
    _open: TaskTrackerToken,
}

/// The next piece of output.
#[derive(Debug)]
pub(super) enum ResponsePart {
    /// More text.
    Text(String),
    /// The result; nothing follows.
    End(ResponseResult),
}

/// Result of a run: a complete answer or an error.
pub(super) type ResponseResult = Result<CompleteAnswer, ApiError>;

/// A complete answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CompleteAnswer {
    /// All of its text.
    pub(super) text: String,
    /// Tool calls for the caller to execute.
    pub(super) calls: Vec<ToolCall>,
    pub(super) usage: Usage,
    /// True if the model reached its output limit.
    pub(super) is_truncated: bool,
}

/// What happens to a run when its caller disconnects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnDisconnect {
    /// It continues: its session has a name by which the answer can be found.
    Continue,
    /// It is aborted: no other request knows it.
    Abort,
}

impl RunResponse {
    /// Submits a message. The leash is created first, so that it also applies if the caller disconnects before the
    /// message is accepted.
    pub(super) async fn begin(
        server: &Arc<ServerState>,
        inbound: Inbound,
        on_disconnect: OnDisconnect,
    ) -> Result<Self, ApiError> {
        let (run, key) = (inbound.id.run.clone(), inbound.session.key.clone());
        let mut abort_on_drop =
            AbortOnDrop((on_disconnect == OnDisconnect::Abort).then(|| (server.clone(), key, run.clone())));
        // A message that was not accepted has no run to abort.
        let accepted = server.hub.submit(inbound).await.inspect_err(|_| abort_on_drop.release())?;
        let follower = match accepted.outcome {
            SubmitOutcome::New(tape) | SubmitOutcome::InFlight(tape) => Subscriber::new(tape),
            SubmitOutcome::Finished(_) => return Err(ApiError::failed(format!("run {run} has already ended"))),
        };
        Ok(Self {
            server: server.clone(),
            follower,
            text: TextStream::default(),
            stop_reason: StopReason::Stop,
            result: None,
            is_over: false,
            abort_on_drop,
            _open: server.connections.token(),
        })
    }

    /// Returns the next piece of output; `None` after the end. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<ResponsePart> {
        while !self.is_over {
            if let Some(result) = self.result.take() {
                self.is_over = true;
                return Some(ResponsePart::End(result));
            }
            let events = tokio::select! {
                biased;
                // First, because the run's end, if any, is on the tape by now.
                events = self.follower.next() => events,
                () = self.server.stop.cancelled() => {
                    self.result = Some(Err(self.shutdown_error()));
                    continue;
                }
            };
            let mut delta = String::new();
            match events {
                Some(events) => events.iter().for_each(|event| delta.push_str(&self.process_event(&event.kind))),
                None => self.result = Some(Err(self.broken_error())),
            }
            if !delta.is_empty() {
                return Some(ResponsePart::Text(delta));
            }
        }
        None
    }

    /// Waits for the result.
    pub(super) async fn end(mut self) -> ResponseResult {
        loop {
            match self.next().await {
                Some(ResponsePart::Text(_)) => {}
                Some(ResponsePart::End(result)) => return result,
                None => return Err(self.broken_error()),
            }
        }
    }

    fn process_event(&mut self, event: &RunEvent) -> String {
        let mut delta = self.text.push_event(event);
        if let RunEvent::Stored(StoredEvent::Assistant { message, .. }) = event {
            self.stop_reason = message.stop_reason;
        }
        if let RunEvent::Stored(StoredEvent::Ended(end)) = event {
            self.abort_on_drop.release();
            let result = convert_end(end, self.text.whole(), self.stop_reason);
            // Text that was not streamed is sent at once.
            if let Ok(answer) = &result
                && self.text.whole().is_empty()
            {
                delta.push_str(&answer.text);
            }
            self.result = Some(result);
        }
        delta
    }

    /// Error if the gateway stops before the run has ended. The message was accepted, so a retry must not repeat it.
    fn shutdown_error(&self) -> ApiError {
        ApiError::unavailable(match self.abort_on_drop.0 {
            None => "the gateway is stopping; the run continues after the restart",
            Some(_) => "the gateway is stopping and the run is aborted; it may have had side effects",
        })
    }

    /// Error if the run's events stopped and there is no event for its end.
    fn broken_error(&self) -> ApiError {
        match self.follower.tape().state() {
            TapeState::Broken(_) if self.server.hub.lifecycle().is_draining() && self.abort_on_drop.0.is_some() => {
                self.shutdown_error()
            }
            TapeState::Broken(why) if self.server.hub.lifecycle().is_draining() => ApiError::unavailable(why),
            TapeState::Broken(why) => ApiError::failed(why),
            TapeState::Queued | TapeState::Running | TapeState::Ended(_) | TapeState::Rejected => {
                ApiError::failed("the outcome of the run is unknown; see the history of its session")
            }
        }
    }
}

/// Converts the end of a run: the streamed text or, if there is none, the replies.
fn convert_end(end: &RunEnd, streamed: &str, stop_reason: StopReason) -> ResponseResult {
    let status = match &end.outcome {
        Outcome::Done => {
            let replies = end.replies.iter().map(|reply| reply.text.as_str());
            return Ok(CompleteAnswer {
                text: if streamed.is_empty() { text_delta::join(replies) } else { streamed.to_owned() },
                calls: end.calls.clone(),
                usage: end.usage.clone(),
                is_truncated: stop_reason == StopReason::Length,
            });
        }
        Outcome::Failed(failure) if failure.kind == FailureKind::Model => StatusCode::BAD_GATEWAY,
        Outcome::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        Outcome::Aborted(AbortReason::Timeout) => StatusCode::GATEWAY_TIMEOUT,
        Outcome::Aborted(AbortReason::User | AbortReason::Stop) => {
            return Err(ApiError::new(
                StatusCode::CONFLICT,
                "api_error",
                "the run was aborted before it produced an answer",
            ));
        }
        Outcome::Aborted(AbortReason::Interrupted | AbortReason::Dropped) => StatusCode::CONFLICT,
    };
    Err(ApiError::new(status, "api_error", end.outcome.error().unwrap_or_default()))
}

/// Aborts a run when dropped, unless released.
#[derive(Debug)]
struct AbortOnDrop(Option<(Arc<ServerState>, SessionKey, RunId)>);

impl AbortOnDrop {
    fn release(&mut self) {
        self.0 = None;
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        let Some((server, key, run)) = self.0.take() else { return };
        let hub = server.hub.clone();
        let stopping = async move {
            hub.runs().abort(&key, Some(run), AbortReason::User).await;
        };
        // Detached; only the server's shutdown waits for it.
        drop(task::spawn("abort run of disconnected client", server.connections.track_future(stopping)));
    }
}
