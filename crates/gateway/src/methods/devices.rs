//! `device.*`: paired devices and their tokens.

use std::sync::Arc;

use homard_proto::{
    ErrorShape, Generation,
    method::devices::{
        DecideParams, ListParams, LoginCodeParams, RemoveParams, RenameParams, RevokeParams, TokenParams,
    },
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    broadcaster::Audience,
    control_ui,
    devices::{Devices, Error, RotatedToken, Rotation},
    login_codes,
    router::{RpcCall, RpcResult},
    scope::Scope,
};

/// Lists paired devices and pairing requests.
pub(crate) async fn list(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let ListParams {} = call.params()?;
    Ok(call.server.devices.list(call.server.hub.ambient().now_ms()).into())
}

/// Approves a pairing request.
pub(crate) async fn approve(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let DecideParams { request_id } = call.params()?;
    let now = call.server.hub.ambient().now_ms();
    let (id, scopes) = (request_id.clone(), call.client.scopes.clone());
    let device = blocking(&call, move |devices| devices.approve(&id, &scopes, now)).await?;
    resolved(&call, &request_id, &device["deviceId"], "approved");
    Ok(json!({"requestId": request_id, "device": device}).into())
}

/// Rejects a pairing request.
pub(crate) async fn reject(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let DecideParams { request_id } = call.params()?;
    let id = call.server.devices.reject(&request_id).map_err(|error| error_response(&error))?;
    resolved(&call, &request_id, &json!(id), "rejected");
    Ok(json!({"requestId": request_id, "deviceId": id}).into())
}

/// Removes a device.
pub(crate) async fn remove(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let RemoveParams { device_id } = call.params()?;
    let id = device_id.clone();
    let manageable_scopes = call.client.manageable_scopes();
    let connections = blocking(&call, move |devices| devices.remove(&id, &manageable_scopes)).await?;
    Ok(RpcResult::Revoking(json!({"ok": true, "deviceId": device_id}), connections))
}

/// Sets the display name of a device.
pub(crate) async fn rename(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let RenameParams { device_id, label } = call.params()?;
    let manageable_scopes = call.client.manageable_scopes();
    let device = blocking(&call, move |devices| devices.rename(&device_id, &label, &manageable_scopes)).await?;
    Ok(json!({"ok": true, "device": device}).into())
}

/// Rotates the token of a device.
pub(crate) async fn rotate(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let TokenParams { device_id, role, scopes } = call.params()?;
    check_role(&role)?;
    let ambient = call.server.hub.ambient();
    let (now_ms, random) = (ambient.now_ms(), format!("{}{}", ambient.nonce(), ambient.nonce()));
    let (id, caller_scopes, manageable_scopes) =
        (device_id.clone(), call.client.scopes.clone(), call.client.manageable_scopes());
    let RotatedToken { token, scopes, connections } = blocking(&call, move |devices| {
        let rotation = Rotation {
            scopes: scopes.as_deref(),
            caller_scopes: &caller_scopes,
            manageable_scopes: &manageable_scopes,
            random: &random,
            now_ms,
        };
        devices.rotate(&id, rotation)
    })
    .await?;
    // Returned in the response: a caller with the pairing scope could obtain the token from the device anyway.
    let payload = json!({
        "deviceId": device_id, "role": role, "token": token, "scopes": scopes, "rotatedAtMs": now_ms,
        "tokenDelivery": "in-band",
    });
    Ok(RpcResult::Revoking(payload, connections))
}

/// Revokes the tokens of a device.
pub(crate) async fn revoke(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let RevokeParams { device_id, role } = call.params()?;
    check_role(&role)?;
    let id = device_id.clone();
    let manageable_scopes = call.client.manageable_scopes();
    let connections = blocking(&call, move |devices| devices.revoke(&id, &manageable_scopes)).await?;
    let now = call.server.hub.ambient().now_ms();
    Ok(RpcResult::Revoking(json!({"deviceId": device_id, "role": role, "revokedAtMs": now}), connections))
}

/// Issues a one-time code with which a browser signs in. The code grants what the browser requests, as the token would.
pub(crate) async fn create_login_code(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let LoginCodeParams {} = call.params()?;
    let ambient = call.server.hub.ambient();
    let random = format!("{}{}", ambient.nonce(), ambient.nonce());
    let code = call.server.login_codes.issue(&random, Instant::now());
    let path = if call.server.routes.control_ui.is_some() { control_ui::OWN_PAGE_PREFIX } else { "/" };
    let expires_at = ambient.now_ms() + login_codes::VALID_FOR.as_millis() as u64;
    Ok(json!({"code": code, "path": path, "expiresAtMs": expires_at}).into())
}

fn check_role(role: &str) -> Result<(), ErrorShape> {
    if role == "operator" { Ok(()) } else { Err(ErrorShape::invalid(format!("no device has the role {role}"))) }
}

/// Runs an operation that writes to disk on the blocking pool.
async fn blocking<T: Send + 'static>(
    call: &RpcCall,
    operation: impl FnOnce(&Devices) -> Result<T, Error> + Send + 'static,
) -> Result<T, ErrorShape> {
    let devices: Arc<Devices> = call.server.devices.clone();
    let result = tokio::task::spawn_blocking(move || operation(&devices)).await;
    result.map_err(super::unavailable)?.map_err(|error| error_response(&error))
}

fn error_response(error: &Error) -> ErrorShape {
    ErrorShape::invalid(error.to_string())
}

fn resolved(call: &RpcCall, request: &str, device: &Value, decision: &str) {
    let now = call.server.hub.ambient().now_ms();
    let payload = json!({"requestId": request, "deviceId": device, "decision": decision, "ts": now});
    let audience = Audience { scope: Some(Scope::Pairing), min_protocol: Generation::Three };
    call.server.projector.publish("device.pair.resolved", &payload, audience);
}
