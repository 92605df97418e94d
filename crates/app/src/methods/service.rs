//! `homard.gateway.status` describes the process of the gateway; `homard.gateway.restart` replaces it with a new one that
//! takes over its sockets.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use homard_gateway::{Method, Scope};
use homard_proto::{
    ErrorShape,
    method::service::{RestartParams, StatusParams},
};
use homard_queue::Slots;
use homard_runtime::Ambient;
use homard_service::handover::{HandoverRequest, Program, RESTART_WAIT};
use serde_json::json;
use tokio::sync::mpsc;

/// How this process can be replaced.
#[derive(Debug, Clone)]
pub struct Handover {
    /// The program.
    pub program: Program,
    /// Receives the request once the new program has been checked. Capacity one: further requests are refused.
    pub requests: mpsc::Sender<HandoverRequest>,
}

/// Describes this process.
#[derive(Debug)]
struct ProcessInfo {
    started_at: u64,
    listeners: Vec<SocketAddr>,
    slots: Slots,
}

/// Returns the methods. Without `handover` the process cannot be replaced.
pub fn methods(slots: &Slots, listeners: Vec<SocketAddr>, handover: Option<Handover>) -> Vec<Method> {
    let info = Arc::new(ProcessInfo { started_at: Ambient::system().now_ms(), listeners, slots: slots.clone() });
    let slots = slots.clone();
    let status = Method::new("homard.gateway.status", Scope::Read, move |mut request| {
        let info = info.clone();
        async move {
            let StatusParams {} = request.params()?;
            let waiting: usize = info.slots.loads().iter().map(|load| load.waiting).sum();
            Ok(json!({
                "pid": std::process::id(), "version": env!("CARGO_PKG_VERSION"), "startedAtMs": info.started_at,
                "uptimeMs": Ambient::system().now_ms().saturating_sub(info.started_at),
                "listeners": info.listeners, "runs": {"active": info.slots.taken(), "waiting": waiting},
            }))
        }
    });
    let restart = Method::new("homard.gateway.restart", Scope::Admin, move |mut request| {
        let (handover, slots) = (handover.clone(), slots.clone());
        async move {
            let RestartParams { wait_ms } = request.params()?;
            let handover = handover.ok_or_else(|| ErrorShape::unavailable("this gateway cannot restart itself"))?;
            let program = handover.program.clone();
            let checked = tokio::task::spawn_blocking(move || program.check(homard_journal::state_format())).await;
            let checked = checked.map_err(|error| ErrorShape::unavailable(error.to_string()))?;
            checked.map_err(|refusal| ErrorShape::unavailable(refusal.to_string()))?;
            let wait = wait_ms.map_or(RESTART_WAIT, Duration::from_millis);
            let waits_for = slots.taken();
            if handover.requests.try_send(HandoverRequest { wait }).is_err() {
                return Err(ErrorShape::unavailable("the gateway is restarting already"));
            }
            Ok(json!({"ok": true, "waitsFor": waits_for, "waitMs": homard_stdx::time::millis(wait)}))
        }
    });
    vec![status, restart]
}
