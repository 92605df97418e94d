//! Verifies a `connect` request: a pure function of its parameters and the facts about the connection.

use std::net::IpAddr;

use homard_proto::{
    Code, ErrorShape, Generation,
    method::{
        Params,
        connect::{ConnectParams, Device},
    },
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    auth::{AuthLimiter, Proof},
    device::{self, SignatureContext, UsedSignatures},
    devices::Devices,
    login_codes::LoginCodes,
    origin_check::ClientKind,
    scope::Scopes,
    send_queue::CloseReason,
};

/// Facts about a connection that do not come from its `connect` request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionFacts<'a> {
    /// Nonce of its challenge.
    pub(crate) nonce: &'a str,
    /// Milliseconds since the epoch.
    pub(crate) now_ms: u64,
    /// The same time, for durations.
    pub(crate) now: Instant,
    /// Client address.
    pub(crate) address: IpAddr,
    /// Kind of client, as determined from its headers.
    pub(crate) caller: ClientKind,
    /// True for a direct connection from this machine, without a proxy.
    pub(crate) is_direct: bool,
    /// Nonce-less signatures that were used already.
    pub(crate) used_signatures: &'a UsedSignatures,
    /// One-time codes with which browsers sign in.
    pub(crate) login_codes: &'a LoginCodes,
}

/// An authenticated connection.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AuthenticatedClient {
    /// Its `connect` parameters.
    pub(crate) params: ConnectParams,
    /// True if it authenticated with the shared secret, false if with a device token.
    pub(crate) has_secret: bool,
    /// True if it authenticated with a one-time login code, which counts as the shared secret.
    pub(crate) has_login_code: bool,
    /// True for a direct connection from this machine, without a proxy.
    pub(crate) is_direct: bool,
    /// Negotiated protocol version.
    pub(crate) generation: Generation,
    pub(crate) scopes: Scopes,
    /// True if it wants tool events.
    pub(crate) tool_events: bool,
}

/// A rejected `connect` request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HandshakeError {
    /// Error response.
    pub(crate) error: Box<ErrorShape>,
    /// WebSocket close code.
    code: u16,
}

impl HandshakeError {
    /// Returns the close frame that follows the response.
    pub(crate) fn close_reason(&self) -> CloseReason {
        CloseReason::new(self.code, &self.error.message)
    }
}

impl From<ErrorShape> for HandshakeError {
    fn from(error: ErrorShape) -> Self {
        Self { error: Box::new(error), code: 1008 }
    }
}

/// Verifies a `connect` request.
pub(crate) fn verify(
    params: Option<Value>,
    facts: ConnectionFacts<'_>,
    limiter: &AuthLimiter,
    devices: &Devices,
) -> Result<AuthenticatedClient, HandshakeError> {
    // The members of `connect` are the same in both protocol versions; the version range is one of them.
    let params = ConnectParams::decode(Generation::Four, params)?;
    let generation =
        Generation::negotiate(params.min_protocol, params.max_protocol).ok_or_else(|| mismatch(&params))?;
    check_role(&params)?;
    check_page(&params, facts.caller, generation)?;
    match &params.device {
        Some(device) => check_device(&params, device, facts, generation)?,
        None => check_deviceless(&params, generation)?,
    }
    let auth = params.auth.clone().unwrap_or_default();
    let device_grant = || {
        let id = &params.device.as_ref()?.id;
        [&auth.device_token, &auth.token].into_iter().flatten().find_map(|token| devices.token_scopes(id, token))
    };
    // What a code is exchanged for is the token of a device.
    let code = auth.bootstrap_token.as_deref().filter(|_| params.device.is_some());
    let has_login_code = code.is_some_and(|code| facts.login_codes.redeem(code, facts.now));
    let proof = if has_login_code {
        Proof::Secret
    } else {
        limiter.authenticate(&auth, facts.address, facts.now, device_grant).map_err(|error| error.error(generation))?
    };
    // Recorded only now, so that a rejected client can neither use up a signature nor fill the table.
    if let Some(device) = params.device.as_ref().filter(|device| device.nonce.is_none()) {
        facts.used_signatures.record(device, facts.now_ms).map_err(|error| error.error(generation))?;
    }
    let requested = Scopes::granted(generation, params.scopes.as_deref());
    let (has_secret, scopes) = match proof {
        Proof::Secret => (true, requested),
        Proof::Other(grant) => (false, requested.within(&grant)),
    };
    let tool_events = params.caps.iter().flatten().any(|cap| cap == "tool-events");
    Ok(AuthenticatedClient {
        params,
        has_secret,
        has_login_code,
        is_direct: facts.is_direct,
        generation,
        scopes,
        tool_events,
    })
}

/// Rejection of a remote device that is not paired yet.
pub(crate) fn not_paired(generation: Generation, request: &str) -> HandshakeError {
    let error = ErrorShape::new(Code::NotPaired, "pairing required");
    let details = match generation {
        Generation::Three => json!({"requestId": request}),
        Generation::Four => json!({"code": "PAIRING_REQUIRED", "requestId": request, "reason": "not-paired"}),
    };
    error.with_details(details).into()
}

/// Rejection if there is no common protocol version. The details contain what clients of either version look for.
fn mismatch(params: &ConnectParams) -> HandshakeError {
    let details = json!({
        "code": "PROTOCOL_MISMATCH", "expectedProtocol": 4, "minimumProbeProtocol": 3,
        "clientMinProtocol": params.min_protocol, "clientMaxProtocol": params.max_protocol,
    });
    let error = ErrorShape::invalid("protocol mismatch").with_details(details);
    HandshakeError { code: 1002, ..error.into() }
}

fn check_role(params: &ConnectParams) -> Result<(), HandshakeError> {
    match params.role.as_deref() {
        None | Some("operator") => Ok(()),
        Some("node") => Err(ErrorShape::unavailable("nodes are not supported yet").into()),
        Some(_) => Err(ErrorShape::invalid("invalid role").into()),
    }
}

/// A client that identifies itself as a web page must have sent an `Origin`. Whether that origin may connect was
/// decided before the upgrade.
fn check_page(params: &ConnectParams, caller: ClientKind, generation: Generation) -> Result<(), HandshakeError> {
    let is_page = params.client.id == "openclaw-control-ui" || params.client.mode == "webchat";
    if !is_page || caller == ClientKind::Page {
        return Ok(());
    }
    let error = ErrorShape::invalid(
        "origin not allowed (open the Control UI from the gateway host or allow it in \
         gateway.controlUi.allowedOrigins)",
    );
    Err(match generation {
        Generation::Three => error,
        Generation::Four => error.with_details(json!({
            "code": "CONTROL_UI_ORIGIN_NOT_ALLOWED", "reason": "origin missing or invalid",
        })),
    }
    .into())
}

fn check_device(
    params: &ConnectParams,
    device: &Device,
    facts: ConnectionFacts<'_>,
    generation: Generation,
) -> Result<(), HandshakeError> {
    if generation == Generation::Four && device.nonce.is_none() {
        let why = "invalid connect params: at /device: must have required property 'nonce'";
        return Err(ErrorShape::invalid(why).into());
    }
    let is_local = facts.is_direct;
    let context = SignatureContext { nonce: facts.nonce, now_ms: facts.now_ms, is_local, generation };
    Ok(device::check(params, device, context).map_err(|error| error.error(generation))?)
}

/// Without a device identity, the shared secret is required.
fn check_deviceless(params: &ConnectParams, generation: Generation) -> Result<(), HandshakeError> {
    // A device token is not valid without the device's identity.
    let has_credentials = params.auth.as_ref().is_some_and(|auth| auth.token.is_some() || auth.password.is_some());
    if has_credentials {
        return Ok(());
    }
    let error = ErrorShape::new(Code::NotPaired, "device identity required");
    Err(match generation {
        Generation::Three => error,
        Generation::Four => error.with_details(json!({"code": "DEVICE_IDENTITY_REQUIRED"})),
    }
    .into())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::auth::Secret;

    fn verify_with(change: &Value, caller: ClientKind) -> Result<AuthenticatedClient, HandshakeError> {
        let mut params = json!({
            "minProtocol": 3, "maxProtocol": 3, "auth": {"token": "secret"},
            "client": {"id": "cli", "mode": "cli", "version": "dev", "platform": "linux"},
        });
        for (name, value) in change.as_object().unwrap() {
            params[name] = value.clone();
        }
        let facts = ConnectionFacts {
            nonce: "n",
            now_ms: 1000,
            now: Instant::now(),
            address: Ipv4Addr::LOCALHOST.into(),
            caller,
            is_direct: true,
            used_signatures: &UsedSignatures::default(),
            login_codes: &LoginCodes::default(),
        };
        let devices = Devices::new(
            "/nonexistent".as_ref(),
            crate::devices::PairedDevices::default(),
            homard_audit::Audit::default(),
        );
        verify(Some(params), facts, &AuthLimiter::new(Secret::new(Some("secret".to_owned()), None)), &devices)
    }

    fn rejection_of(change: &Value) -> (u16, Value) {
        let rejection = verify_with(change, ClientKind::Program).unwrap_err();
        (rejection.code, serde_json::to_value(rejection.error).unwrap())
    }

    #[test]
    fn the_newest_common_protocol_is_negotiated() {
        let negotiated = |min: u64, max: u64| {
            verify_with(&json!({"minProtocol": min, "maxProtocol": max}), ClientKind::Program)
                .map(|session| session.generation)
                .map_err(|rejection| (rejection.code, rejection.error.details))
        };
        for (min, max, generation) in [
            (3, 3, Generation::Three),
            (4, 4, Generation::Four),
            (3, 4, Generation::Four),
            (1, 10, Generation::Four),
            (1, 3, Generation::Three),
        ] {
            assert_eq!(negotiated(min, max), Ok(generation), "{min}..{max}");
        }
        for (min, max) in [(2, 2), (5, 5), (4, 3)] {
            let details = json!({
                "code": "PROTOCOL_MISMATCH", "expectedProtocol": 4, "minimumProbeProtocol": 3,
                "clientMinProtocol": min, "clientMaxProtocol": max,
            });
            assert_eq!(negotiated(min, max), Err((1002, Some(details))), "{min}..{max}");
        }
    }

    #[test]
    fn a_valid_connect_gets_the_requested_scopes_and_events() {
        let params = json!({
            "minProtocol": 4, "maxProtocol": 4, "scopes": ["operator.read"], "caps": ["agent-kind", "tool-events"],
            "somethingNew": {"x": 1},
        });
        let session = verify_with(&params, ClientKind::Program).unwrap();
        let scopes = Scopes::granted(Generation::Four, Some(&["operator.read".to_owned()]));
        assert_eq!(
            (session.generation, session.scopes, session.tool_events, session.has_secret),
            (Generation::Four, scopes, true, true)
        );
    }

    #[test]
    fn unknown_and_unsupported_roles_are_rejected() {
        assert_eq!(
            rejection_of(&json!({"role": "boss"})),
            (1008, json!({"code": "INVALID_REQUEST", "message": "invalid role"}))
        );
        assert_eq!(
            rejection_of(&json!({"role": "node"})),
            (1008, json!({"code": "UNAVAILABLE", "message": "nodes are not supported yet"}))
        );
    }

    #[test]
    fn a_control_ui_client_must_connect_from_a_page() {
        let page = |protocol: u64| {
            json!({
                "minProtocol": protocol, "maxProtocol": protocol,
                "client": {"id": "openclaw-control-ui", "mode": "webchat", "version": "1", "platform": "web"},
            })
        };
        let message = "origin not allowed (open the Control UI from the gateway host or allow it in \
                       gateway.controlUi.allowedOrigins)";
        assert_eq!(rejection_of(&page(3)), (1008, json!({"code": "INVALID_REQUEST", "message": message})));
        let details = json!({"code": "CONTROL_UI_ORIGIN_NOT_ALLOWED", "reason": "origin missing or invalid"});
        assert_eq!(
            rejection_of(&page(4)),
            (1008, json!({"code": "INVALID_REQUEST", "message": message, "details": details}))
        );
        assert!(verify_with(&page(4), ClientKind::Page).is_ok());
    }

    #[test]
    fn a_client_without_credentials_needs_a_device_identity() {
        let no_credentials = |protocol: u64| json!({"minProtocol": protocol, "maxProtocol": protocol, "auth": {}});
        let error = json!({"code": "NOT_PAIRED", "message": "device identity required"});
        assert_eq!(rejection_of(&no_credentials(3)), (1008, error));
        let error = json!({
            "code": "NOT_PAIRED", "message": "device identity required",
            "details": {"code": "DEVICE_IDENTITY_REQUIRED"},
        });
        assert_eq!(rejection_of(&no_credentials(4)), (1008, error));
    }
}
