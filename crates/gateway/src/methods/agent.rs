//! `agent` and `agent.wait`: start a run, wait for one.

use std::time::Duration;

use homard_agent::{
    Inbound,
    hub::{Disposition, SubmitError},
    intake, wire,
};
use homard_proto::{
    ErrorShape, Generation,
    method::agent::{AgentParams, WaitParams},
};

use super::unavailable;
use crate::{
    projector::Detail,
    router::{Answer, Call},
};

/// Who sends what comes in with the shared secret.
const OWNER: &str = "owner";

/// How long `agent.wait` waits when it is not told.
const PATIENCE_MS: u64 = 30_000;
/// How long it waits at most: what fits into the clients' timers.
const MAX_PATIENCE_MS: u64 = 2_147_483_647;

/// Starts a run, or finds the one that the same request started.
pub(crate) async fn start(mut call: Call) -> Result<Answer, ErrorShape> {
    let params: AgentParams = call.params()?;
    let (hub, projector) = (&call.server.hub, &call.server.projector);
    let inbound = intake::agent(hub, OWNER, params).await?;
    let run = inbound.run.clone();
    // Before the run can begin, or its first tool could be missed.
    let detail = tool_detail(&call, &inbound).await?;
    if let Some(detail) = detail {
        projector.watch(run.clone(), &call.client, detail);
    }
    let hold = projector.hold(run.clone());
    let submitted = hub.submit(inbound).await;
    let is_new = matches!(&submitted, Ok(accepted) if matches!(accepted.disposition, Disposition::New(_)));
    if detail.is_some() && !is_new {
        projector.unwatch(run, &call.client);
    }
    let accepted = submitted.map_err(|error| refusal(&error))?;
    let generation = call.client.generation;
    let (payload, error) = wire::accepted(generation, &accepted);
    Ok(match (accepted.disposition, generation) {
        (Disposition::New(tape), _) | (Disposition::InFlight(tape), Generation::Three) => {
            Answer::Twice(payload, tape, hold)
        }
        (Disposition::InFlight(_), Generation::Four) | (Disposition::Finished(_), _) => Answer::Once(payload, error),
    })
}

/// How much the caller is told of the run's tools. Clients of protocol 3 get what their session's setting says.
async fn tool_detail(call: &Call, inbound: &Inbound) -> Result<Option<Detail>, ErrorShape> {
    let hub = &call.server.hub;
    // Whoever started the run watches it; a repeated request does not.
    if !call.client.tool_events || hub.session_of(&inbound.run).is_some() {
        return Ok(None);
    }
    match call.client.generation {
        Generation::Four => Ok(Some(Detail::Full)),
        Generation::Three => {
            let sessions = hub.sessions().await.map_err(unavailable)?;
            let record = sessions.into_iter().find(|(key, _)| *key == inbound.key).map(|(_, record)| record);
            Ok(match record.and_then(|record| record.verbose_level.clone()).as_deref() {
                Some("on") => Some(Detail::Brief),
                Some("full") => Some(Detail::Full),
                Some(_) | None => None,
            })
        }
    }
}

fn refusal(error: &SubmitError) -> ErrorShape {
    let why = error.to_string();
    match error {
        SubmitError::Conflict(_) | SubmitError::Blocked => ErrorShape::invalid(why),
        SubmitError::Store(_) | SubmitError::Held(_) => ErrorShape::unavailable(why),
        SubmitError::Stopping => ErrorShape { retryable: Some(true), ..ErrorShape::unavailable(why) },
    }
}

/// Waits for the end of a run.
pub(crate) async fn wait(mut call: Call) -> Result<Answer, ErrorShape> {
    let WaitParams { run_id, timeout_ms } = call.params()?;
    let patience = Duration::from_millis(timeout_ms.unwrap_or(PATIENCE_MS).min(MAX_PATIENCE_MS));
    let waited = call.server.hub.wait(&run_id, patience).await.map_err(unavailable)?;
    Ok(wire::waited(call.client.generation, &run_id, &waited).into())
}
