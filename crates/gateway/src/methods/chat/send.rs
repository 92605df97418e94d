//! `chat.send` and `chat.abort`: sending a message and aborting runs.

use std::time::Duration;

use futures_util::future::join_all;
use homard_agent::{Inbound, Subscriber, event::AbortReason, hub::SubmitError, intake, wire};
use homard_command::{Command, OWNER, StopForm};
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
    methods::{overrides, session_key_of_agent, submit::submit, unavailable},
    router::{RpcCall, RpcResult},
};

/// Time to wait for an aborted run to end before the response is sent regardless.
const ABORT_TIMEOUT: Duration = Duration::from_secs(3);

/// Submits a message, or aborts runs if it is a stop command.
pub(crate) async fn send(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let params: SendParams = call.params()?;
    overrides::check_cwd(&call, params.cwd.as_deref(), SendParams::METHOD)?;
    let view = SenderView::of(&params);
    let inbound = intake::chat(&call.server.hub, OWNER, params).await?;
    if is_stop(&call, &inbound) {
        check_policy(&call, &inbound.session.key).await?;
        let stopped = call.server.hub.runs().stop(&inbound).await;
        return Ok(aborted_response(&call, &inbound.session.key, stopped).await);
    }
    if let Some(view) = view
        && call.server.hub.runs().session_of(&inbound.id.run).is_none()
    {
        view.check(&call, &inbound.session.key).await?;
    }
    let (accepted, gate) = submit(&call, inbound).await?;
    let (payload, error) = wire::sent(call.client.generation, &accepted);
    Ok(RpcResult::Gated(payload, error, gate))
}

/// State of the session as seen by the sender of a message.
struct SenderView {
    session: Option<SessionId>,
    leaf: Leaf,
}

impl SenderView {
    /// Reads the view from the parameters. A steering message applies to the active run regardless of newer entries, so
    /// it has none.
    fn of(params: &SendParams) -> Option<Self> {
        let leaf = params.expected_leaf_entry_id.clone().filter(|_| params.queue_mode.as_deref() != Some("steer"))?;
        Some(Self { session: params.session_id.clone(), leaf })
    }

    /// Rejects a message written against another state of the session, after a reset or a rewind. Newer entries below
    /// the expected one are accepted if the session id is given.
    async fn check(&self, call: &RpcCall, key: &SessionKey) -> Result<(), ErrorShape> {
        let found = call.server.hub.sessions().history_entries(key).await.map_err(unavailable)?;
        let (current, entries) =
            found.map_or((None, Vec::new()), |(record, entries)| (Some(record.session_id), entries));
        let is_same = self.session.is_none() || self.session == current;
        let is_seen = match &self.leaf {
            Leaf::Entry(seen) if self.session.is_some() => entries.iter().any(|(id, _)| id == seen),
            Leaf::Entry(seen) => entries.last().is_some_and(|(id, _)| id == seen),
            Leaf::Nothing => self.session.is_some() || entries.is_empty(),
        };
        if is_same && is_seen {
            return Ok(());
        }
        let details = json!({"reason": "active-leaf-changed"});
        let why =
            "the conversation has changed since the client loaded it; reload the history and send the message again";
        Err(ErrorShape::invalid(why).with_details(details))
    }
}

/// True if a message aborts the active run. A bare stop word counts only while a run is active; a repetition of the
/// same message does not, since its own run is the active one.
fn is_stop(call: &RpcCall, inbound: &Inbound) -> bool {
    let hub = &call.server.hub;
    match &inbound.command {
        Some(Command::Stop(StopForm::Slash)) => true,
        Some(Command::Stop(StopForm::Word)) => {
            hub.runs().session_of(&inbound.id.run).is_none() && hub.runs().has_live(&inbound.session.key)
        }
        Some(
            Command::NewTranscript { .. }
            | Command::NewTranscriptWith(_)
            | Command::Queue(_)
            | Command::Level(..)
            | Command::Model(_)
            | Command::Compact(_)
            | Command::Context(_)
            | Command::Approve(_)
            | Command::Plugin(..)
            | Command::Status
            | Command::Help,
        )
        | None => false,
    }
}

/// A session that accepts no messages accepts no stop command either.
async fn check_policy(call: &RpcCall, key: &SessionKey) -> Result<(), ErrorShape> {
    let record = call.server.hub.sessions().get(key).await.map_err(unavailable)?;
    match record.as_ref().and_then(|record| record.send_policy.as_deref()) {
        Some("deny") => Err(ErrorShape::invalid(SubmitError::Blocked.to_string())),
        Some(_) | None => Ok(()),
    }
}

/// Aborts one run or all runs of a session.
pub(crate) async fn abort(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let AbortParams { session_key, agent_id, run_id } = call.params()?;
    let requested = session_key_of_agent(&call.server, AbortParams::METHOD, &session_key, agent_id.as_deref())?;
    let active = run_id.as_ref().and_then(|run| call.server.hub.runs().session_of(run));
    let key = match (active, call.client.generation) {
        (Some(other), Generation::Three) if other != requested => {
            return Err(ErrorShape::invalid("runId does not match sessionKey"));
        }
        (active, _) => active.unwrap_or(requested),
    };
    let stopped = call.server.hub.runs().abort(&key, run_id, AbortReason::User).await;
    Ok(aborted_response(&call, &key, stopped).await)
}

/// Responds that runs were aborted, after their final events were published.
async fn aborted_response(call: &RpcCall, key: &SessionKey, stopped: Vec<RunId>) -> RpcResult {
    let hub = &call.server.hub;
    // A run that can no longer be followed has ended.
    let ends = stopped.iter().filter_map(|run| hub.runs().follow(run)).map(Subscriber::end);
    if timeout(ABORT_TIMEOUT, join_all(ends)).await.is_err() {
        tracing::warn!(%key, "an aborted run is slow to end");
    }
    call.server.projector.drain().await;
    json!({"ok": true, "aborted": !stopped.is_empty(), "runIds": stopped}).into()
}
