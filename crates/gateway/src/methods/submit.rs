//! Submission of messages, shared by all methods that accept one.

use homard_agent::{
    Inbound,
    hub::{AcceptedRun, SubmitError, SubmitOutcome},
};
use homard_command::Command;
use homard_proto::{ErrorShape, Generation, SessionKey};
use serde_json::json;

use super::unavailable;
use crate::{
    projector::{EventGate, ToolDetail},
    router::RpcCall,
    scope::{self, Scope},
};

/// Submits a message to the hub. The run's events are delayed until the sender got its response. The run, and a command
/// in the message, have no more authority than the connection.
pub(super) async fn submit(call: &RpcCall, mut inbound: Inbound) -> Result<(AcceptedRun, EventGate), ErrorShape> {
    let client = &call.client;
    if let Some(required) =
        inbound.command.as_ref().map(required_scope).filter(|required| !client.scopes.allow(*required))
    {
        return Err(scope::missing_error(client.generation, required));
    }
    inbound.sender.authority = client.authority();
    let (hub, projector) = (&call.server.hub, &call.server.projector);
    let run = inbound.id.run.clone();
    // Before the run can start, so that its first tool event is not missed. Only the request that starts the run
    // watches it, not a repetition.
    let detail =
        if hub.runs().session_of(&run).is_none() { tool_detail(call, &inbound.session.key).await? } else { None };
    if let Some(detail) = detail {
        projector.watch(run.clone(), &call.client, detail);
    }
    let gate = projector.gate(run.clone());
    let submitted = hub.submit(inbound).await;
    let is_new = matches!(&submitted, Ok(accepted) if matches!(accepted.outcome, SubmitOutcome::New(_)));
    if detail.is_some() && !is_new {
        projector.unwatch(run, &call.client);
    }
    Ok((submitted.map_err(|error| error_response(&error))?, gate))
}

/// Scope that a chat command requires.
fn required_scope(command: &Command) -> Scope {
    if matches!(command, Command::Approve(_)) {
        // Approving a command requires more than sending a message.
        Scope::Approvals
    } else if command.needs_admin() {
        Scope::Admin
    } else {
        Scope::Write
    }
}

/// Level of detail of tool events for the caller. In protocol 3 it depends on the verbosity of the session or agent.
pub(super) async fn tool_detail(call: &RpcCall, key: &SessionKey) -> Result<Option<ToolDetail>, ErrorShape> {
    if !call.client.tool_events {
        return Ok(None);
    }
    match call.client.generation {
        Generation::Four => Ok(Some(ToolDetail::Full)),
        Generation::Three => Ok(match call.server.hub.sessions().verbosity(key).await.map_err(unavailable)?.as_str() {
            "on" => Some(ToolDetail::Brief),
            "full" => Some(ToolDetail::Full),
            _ => None,
        }),
    }
}

fn error_response(error: &SubmitError) -> ErrorShape {
    let why = error.to_string();
    match error {
        SubmitError::Conflict(_) | SubmitError::Blocked => ErrorShape::invalid(why),
        SubmitError::SessionChanged => ErrorShape::invalid(why).with_details(json!({"reason": "session-changed"})),
        SubmitError::Store(_) | SubmitError::Held(_) => ErrorShape::unavailable(why),
        SubmitError::Stopping | SubmitError::Overloaded => {
            ErrorShape { retryable: Some(true), ..ErrorShape::unavailable(why) }
        }
    }
}
