//! `chat.send` and `chat.abort`: sending a message and aborting runs.

use std::time::Duration;

use futures_util::future::join_all;
use homard_agent::{
    Follower, Inbound,
    command::{Command, OWNER, Stop},
    event::AbortReason,
    hub::SubmitError,
    intake, wire,
};
use homard_proto::{
    ErrorShape, Generation, RunId, SessionId, SessionKey,
    method::{
        Params,
        chat::{AbortParams, Leaf, SendParams},
    },
};
use serde_json::json;
use tokio::time::timeout;

use crate::{
    methods::{keyed, submit::submit, unavailable},
    router::{Answer, Call},
};

/// Time to wait for an aborted run to end before the response is sent regardless.
const GRACE: Duration = Duration::from_secs(3);

/// Submits a message, or aborts runs if it is a stop command.
pub(crate) async fn send(mut call: Call) -> Result<Answer, ErrorShape> {
    let params: SendParams = call.params()?;
    let view = View::of(&params);
    let inbound = intake::chat(&call.server.hub, OWNER, params).await?;
    if is_stop(&call, &inbound) {
        check_policy(&call, &inbound.key).await?;
        let stopped = call.server.hub.stop(&inbound).await;
        return Ok(ended(&call, &inbound.key, stopped).await);
    }
    if let Some(view) = view
        && call.server.hub.session_of(&inbound.run).is_none()
    {
        view.check(&call, &inbound.key).await?;
    }
    let (accepted, hold) = submit(&call, inbound).await?;
    let (payload, error) = wire::sent(call.client.generation, &accepted);
    Ok(Answer::Held(payload, error, hold))
}

/// State of the session as seen by the sender of a message.
struct View {
    session: Option<SessionId>,
    leaf: Leaf,
}

impl View {
    /// Reads the view from the parameters. A steering message applies to the active run regardless of newer entries, so
    /// it has none.
    fn of(params: &SendParams) -> Option<Self> {
        let leaf = params.expected_leaf_entry_id.clone().filter(|_| params.queue_mode.as_deref() != Some("steer"))?;
        Some(Self { session: params.session_id.clone(), leaf })
    }

    /// Rejects a message written against another state of the session, after a reset or a rewind. Newer entries below
    /// the expected one are accepted if the session id is given.
    async fn check(&self, call: &Call, key: &SessionKey) -> Result<(), ErrorShape> {
        let found = call.server.hub.history_lines(key).await.map_err(unavailable)?;
        let (now, lines) = found.map_or((None, Vec::new()), |(record, lines)| (Some(record.session_id), lines));
        let is_same = self.session.is_none() || self.session == now;
        let is_seen = match &self.leaf {
            Leaf::Entry(seen) if self.session.is_some() => lines.iter().any(|(id, _)| id == seen),
            Leaf::Entry(seen) => lines.last().is_some_and(|(id, _)| id == seen),
            Leaf::Nothing => self.session.is_some() || lines.is_empty(),
        };
        if is_same && is_seen {
            return Ok(());
        }
        let details = json!({"reason": "active-leaf-changed"});
        let why = "the conversation is not the one that was shown any more; look at it, and send the message again";
        Err(ErrorShape::invalid(why).with_details(details))
    }
}

/// True if a message aborts the active run. A bare stop word counts only while a run is active; a repetition of the
/// same message does not, since its own run is the active one.
fn is_stop(call: &Call, inbound: &Inbound) -> bool {
    let hub = &call.server.hub;
    match &inbound.command {
        Some(Command::Stop(Stop::Slash)) => true,
        Some(Command::Stop(Stop::Word)) => hub.session_of(&inbound.run).is_none() && hub.is_at_work(&inbound.key),
        Some(
            Command::Begin { .. }
            | Command::BeginWith(_)
            | Command::Queue(_)
            | Command::Level(..)
            | Command::Model(_)
            | Command::Compact(_)
            | Command::Context(_)
            | Command::Approve(_)
            | Command::Foreign(..)
            | Command::Status
            | Command::Help,
        )
        | None => false,
    }
}

/// A session that accepts no messages accepts no stop command either.
async fn check_policy(call: &Call, key: &SessionKey) -> Result<(), ErrorShape> {
    let record = call.server.hub.session(key).await.map_err(unavailable)?;
    match record.as_ref().and_then(|record| record.send_policy.as_deref()) {
        Some("deny") => Err(ErrorShape::invalid(SubmitError::Blocked.to_string())),
        Some(_) | None => Ok(()),
    }
}

/// Aborts one run or all runs of a session.
pub(crate) async fn abort(mut call: Call) -> Result<Answer, ErrorShape> {
    let AbortParams { session_key, agent_id, run_id } = call.params()?;
    let asked = keyed(&call.server, AbortParams::METHOD, &session_key, agent_id.as_deref())?;
    let at_work = run_id.as_ref().and_then(|run| call.server.hub.session_of(run));
    let key = match (at_work, call.client.generation) {
        (Some(other), Generation::Three) if other != asked => {
            return Err(ErrorShape::invalid("runId does not match sessionKey"));
        }
        (at_work, _) => at_work.unwrap_or(asked),
    };
    let stopped = call.server.hub.abort(&key, run_id, AbortReason::User).await;
    Ok(ended(&call, &key, stopped).await)
}

/// Responds that runs were aborted, after their final events were published.
async fn ended(call: &Call, key: &SessionKey, stopped: Vec<RunId>) -> Answer {
    let hub = &call.server.hub;
    // A run that can no longer be followed has ended.
    let ends = stopped.iter().filter_map(|run| hub.follow(run)).map(Follower::end);
    if timeout(GRACE, join_all(ends)).await.is_err() {
        tracing::warn!(%key, "a run that was stopped takes long to end");
    }
    call.server.projector.drain().await;
    json!({"ok": true, "aborted": !stopped.is_empty(), "runIds": stopped}).into()
}
