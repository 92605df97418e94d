//! How a message is handed in, whichever method it came with.

use homard_agent::{
    Inbound,
    command::Command,
    hub::{Accepted, Disposition, SubmitError},
};
use homard_proto::{ErrorShape, Generation, SessionKey};
use serde_json::json;

use super::unavailable;
use crate::{
    projector::{Detail, Hold},
    router::Call,
    scope::{self, Scope},
};

/// Hands a message in. The news of its run are held until the sender was answered. The run, and a command in the message,
/// may do no more than the connection.
pub(super) async fn submit(call: &Call, inbound: Inbound) -> Result<(Accepted, Hold), ErrorShape> {
    let client = &call.client;
    if let Some(need) = inbound.command.as_ref().map(needs).filter(|need| !client.scopes.allow(*need)) {
        return Err(scope::missing(client.generation, need));
    }
    let inbound = Inbound { authority: client.authority(), ..inbound };
    let (hub, projector) = (&call.server.hub, &call.server.projector);
    let run = inbound.run.clone();
    // Before the run can begin, or its first tool could be missed. Whoever started it watches it; a repeated request
    // does not.
    let detail = if hub.session_of(&run).is_none() { tool_detail(call, &inbound.key).await? } else { None };
    if let Some(detail) = detail {
        projector.watch(run.clone(), &call.client, detail);
    }
    let hold = projector.hold(run.clone());
    let submitted = hub.submit(inbound).await;
    let is_new = matches!(&submitted, Ok(accepted) if matches!(accepted.disposition, Disposition::New(_)));
    if detail.is_some() && !is_new {
        projector.unwatch(run, &call.client);
    }
    Ok((submitted.map_err(|error| refusal(&error))?, hold))
}

/// The scope that a command needs.
fn needs(command: &Command) -> Scope {
    if matches!(command, Command::Approve(_)) {
        // A yes to a command is worth more than a message.
        Scope::Approvals
    } else if command.needs_admin() {
        Scope::Admin
    } else {
        Scope::Write
    }
}

/// How much the caller is told of a session's tools. Clients of protocol 3 get what the session or its agent says.
pub(super) async fn tool_detail(call: &Call, key: &SessionKey) -> Result<Option<Detail>, ErrorShape> {
    if !call.client.tool_events {
        return Ok(None);
    }
    match call.client.generation {
        Generation::Four => Ok(Some(Detail::Full)),
        Generation::Three => Ok(match call.server.hub.verbosity(key).await.map_err(unavailable)?.as_str() {
            "on" => Some(Detail::Brief),
            "full" => Some(Detail::Full),
            _ => None,
        }),
    }
}

fn refusal(error: &SubmitError) -> ErrorShape {
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
