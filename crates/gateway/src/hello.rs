//! The response to a successful `connect`: server information, available methods and events, and a state snapshot.

use homard_agent::intake::attachments::MAX_ATTACHMENT_BYTES;
use homard_proto::{
    Extra, Generation,
    method::connect::{HelloOk, HelloType},
};
use serde_json::{Value, json};

use crate::{
    connection::TICK_INTERVAL,
    handshake::AuthenticatedClient,
    presence, router,
    scope::Scope,
    send_queue::{self, StateVersion},
    server::ServerState,
};

/// Events that the gateway sends.
const EVENTS: [&str; 16] = [
    "connect.challenge",
    "agent",
    "chat",
    "presence",
    "health",
    "tick",
    "shutdown",
    "cron",
    "heartbeat",
    "exec.approval.requested",
    "exec.approval.resolved",
    "config.changed",
    "sessions.changed",
    "session.message",
    "device.pair.requested",
    "device.pair.resolved",
];

/// Capabilities that clients of protocol 4 check: here, that `models.list` returns the models of this gateway.
const CAPABILITIES: [&str; 1] = ["published-model-catalog"];

/// Maximum frame size of an authenticated client.
pub(crate) fn max_frame(generation: Generation) -> usize {
    match generation {
        Generation::Three => 524_288,
        Generation::Four => 26_214_400,
    }
}

/// Returns the presence list and its version. Clients without the read scope get only the gateway's own row.
pub(crate) fn visible_presence(server: &ServerState, session: &AuthenticatedClient) -> (Vec<Value>, StateVersion) {
    let now = server.hub.ambient().now_ms();
    let (rows, state) = server.presence.list(now);
    if session.scopes.allow(Scope::Read) { (rows, state) } else { (vec![presence::gateway(now)], state) }
}

/// State of the gateway at the time of the connection.
pub(crate) struct HelloSnapshot<'a> {
    pub(crate) health: &'a Value,
    /// Rows that the client may see.
    pub(crate) presence: Vec<Value>,
    pub(crate) state: StateVersion,
}

/// Builds the response to a successful `connect`. Protocol 3 gets no `auth`, since an old client would store the token
/// and send it to other gateways, and none of the members that only protocol 4 has.
pub(crate) fn ok(
    server: &ServerState,
    session: &AuthenticatedClient,
    token: Option<&str>,
    connection: &str,
    HelloSnapshot { health, presence, state }: HelloSnapshot<'_>,
) -> HelloOk {
    let generation = session.generation;
    let agents = server.hub.agents();
    let default = agents.default_id();
    let secret = server.auth.kind().name();
    let auth = match generation {
        Generation::Three => None,
        Generation::Four => {
            let method = if session.has_secret { secret } else { "device-token" };
            let mut auth = json!({"role": "operator", "scopes": session.scopes.names(), "method": method});
            if let Some(token) = token {
                auth["deviceToken"] = token.into();
                auth["issuedAtMs"] = server.hub.ambient().now_ms().into();
            }
            Some(auth)
        }
    };
    let mut snapshot = json!({
        "presence": presence, "health": health, "stateVersion": state,
        "uptimeMs": server.uptime_ms(), "stateDir": server.state_dir, "authMode": secret,
        "sessionDefaults": {
            "defaultAgentId": default, "mainKey": "main", "mainSessionKey": default.main_session(),
            "scope": "per-sender", "modelConfigured": true,
        },
    });
    if let Some(path) = &server.config_path {
        snapshot["configPath"] = json!(path);
    }
    let mut policy = json!({
        "maxPayload": max_frame(generation), "maxBufferedBytes": send_queue::queue_limit(generation),
        "tickIntervalMs": TICK_INTERVAL.as_millis() as u64,
    });
    let mut features = json!({"methods": router::all_names(server), "events": EVENTS});
    if generation == Generation::Four {
        features["capabilities"] = json!(CAPABILITIES);
        policy["attachments"] = json!({"maxBytes": MAX_ATTACHMENT_BYTES, "maxImageBytes": MAX_ATTACHMENT_BYTES});
    }
    HelloOk {
        r#type: HelloType::HelloOk,
        protocol: generation.number(),
        server: json!({"version": env!("CARGO_PKG_VERSION"), "connId": connection}),
        features,
        snapshot,
        auth,
        policy,
        extra: Extra::new(),
    }
}
