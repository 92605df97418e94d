//! `agent` and `agent.wait`: starting a run and waiting for its end.

use std::time::Duration;

use homard_agent::{
    hub::{SubmitOutcome, WaitResult},
    intake, wire,
};
use homard_command::OWNER;
use homard_proto::{
    ErrorShape, Generation,
    method::{
        Params,
        agent::{AgentParams, WaitParams},
    },
};
use tokio::time::Instant;

use super::{overrides, submit::submit, unavailable};
use crate::{
    router::{RpcCall, RpcResult},
    scope::{self, Scope},
};

/// Default timeout of `agent.wait` in milliseconds.
const DEFAULT_TIMEOUT_MS: u64 = 30_000;
/// Maximum timeout in milliseconds: the largest that clients' timers support.
const MAX_TIMEOUT_MS: u64 = 2_147_483_647;

/// Starts a run, or finds the one that the same request started.
pub(crate) async fn start(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let params: AgentParams = call.params()?;
    check_overrides(&call, &params)?;
    let inbound = intake::agent(&call.server.hub, OWNER, params).await?;
    let (accepted, gate) = submit(&call, inbound).await?;
    let generation = call.client.generation;
    let (mut payload, error) = wire::accepted(generation, &accepted);
    Ok(match (accepted.outcome, generation) {
        (SubmitOutcome::New(tape), _) => {
            wire::add_disposition(&mut payload, tape.disposition());
            RpcResult::WithFinal(payload, tape, gate)
        }
        (SubmitOutcome::InFlight(tape), Generation::Three) => RpcResult::WithFinal(payload, tape, gate),
        (SubmitOutcome::InFlight(_), Generation::Four) | (SubmitOutcome::Finished(_), _) => {
            RpcResult::Single(payload, error)
        }
    })
}

/// Checks the overrides: choosing a model requires the scope of `/model`.
fn check_overrides(call: &RpcCall, params: &AgentParams) -> Result<(), ErrorShape> {
    let client = &call.client;
    let has_overrides = params.model.is_some() || params.provider.is_some();
    if has_overrides && !client.scopes.allow(Scope::Admin) {
        return Err(scope::missing_error(client.generation, Scope::Admin));
    }
    overrides::check_cwd(call, params.cwd.as_deref(), AgentParams::METHOD)
}

/// Waits for the end of a run.
pub(crate) async fn wait(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let WaitParams { run_id, timeout_ms } = call.params()?;
    let timeout = Duration::from_millis(timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS).min(MAX_TIMEOUT_MS));
    let (hub, started_at) = (&call.server.hub, Instant::now());
    let result = hub.runs().wait(&run_id, timeout).await.map_err(unavailable)?;
    let mut answer = wire::waited(call.client.generation, &run_id, &result);
    if matches!(result, WaitResult::Ended(_)) {
        let remaining = timeout.saturating_sub(started_at.elapsed());
        wire::add_delivery(&mut answer, &hub.deliveries().result(&run_id, remaining).await.map_err(unavailable)?);
    }
    Ok(answer.into())
}
