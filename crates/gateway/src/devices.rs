//! Paired devices: identities, granted scopes, and device tokens that replace the shared secret.
//!
//! A device that shows the secret on a direct local connection is paired at once. A remote device waits until an
//! operator approves it. Device tokens are stored as digests only and grant no more than the device was granted. The
//! list is stored in `<state>/devices/paired.json`, readable by its owner only; pairing requests live in memory and
//! expire after five minutes.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use homard_audit::{Audit, AuditKind, AuditRecord};
use homard_proto::method::connect::ConnectParams;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio_util::sync::CancellationToken;

use crate::scope::{Scope, Scopes};

/// Lifetime of a pairing request in milliseconds.
const REQUEST_TTL_MS: u64 = 5 * 60 * 1000;
/// Maximum number of pairing requests. When exceeded, the oldest is dropped.
const MAX_REQUESTS: usize = 64;
/// Number of consecutive approvals with an unknown request id after which all requests are dropped.
const MAX_WRONG_IDS: usize = 5;
/// Maximum number of paired devices. When exceeded, the one that connected longest ago is removed.
const MAX_DEVICES: usize = 256;

/// A paired device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Device {
    public_key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    display_name: Option<String>,
    #[serde(default)]
    platform: String,
    #[serde(default)]
    client_id: String,
    #[serde(default)]
    client_mode: String,
    /// Granted scopes.
    scopes: Vec<String>,
    created_at_ms: u64,
    approved_at_ms: u64,
    #[serde(default)]
    last_seen_at_ms: u64,
    #[serde(default)]
    tokens: Vec<Token>,
}

/// A device token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Token {
    /// Digest of the token; the token itself is not stored.
    digest: String,
    /// Scopes the token grants.
    scopes: Vec<String>,
    created_at_ms: u64,
}

/// A pairing request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DevicePairingRequest {
    pub(crate) id: String,
    device_id: String,
    device: Device,
    at_ms: u64,
}

/// All paired devices and pairing requests. Kept in memory; the paired devices are written to disk with every change.
#[derive(Debug)]
pub(crate) struct Devices {
    file: PathBuf,
    registry: Mutex<DeviceRegistry>,
    audit: Audit,
}

#[derive(Debug, Default)]
struct DeviceRegistry {
    paired: BTreeMap<String, Device>,
    requests: Vec<DevicePairingRequest>,
    /// Number of attempted approvals with an unknown request id since the last known one. At [`MAX_WRONG_IDS`] all
    /// requests are dropped, so that request ids cannot be guessed.
    wrong_ids: usize,
    /// Open connections: device id, and the token whose cancellation closes the connection.
    connections: Vec<(String, CancellationToken)>,
}

/// The connections of a device whose tokens are not valid any more. They are closed when this is dropped: the caller, who
/// may use one of them, gets the response first.
#[derive(Debug)]
pub(crate) struct RevokedConnections(Vec<CancellationToken>);

impl Drop for RevokedConnections {
    fn drop(&mut self) {
        for connection in &self.0 {
            connection.cancel();
        }
    }
}

/// A new token of a device.
#[derive(Debug)]
pub(crate) struct RotatedToken {
    pub(crate) token: String,
    pub(crate) scopes: Vec<String>,
    pub(crate) connections: RevokedConnections,
}

/// Parameters of a token rotation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rotation<'a> {
    /// Scopes of the new token; defaults to the device's scopes.
    pub(crate) scopes: Option<&'a [String]>,
    /// Scopes of the caller; the new token cannot exceed them.
    pub(crate) caller_scopes: &'a Scopes,
    /// Scopes of the devices that the caller may manage.
    pub(crate) manageable_scopes: &'a Scopes,
    /// Random text that the token is derived from.
    pub(crate) random: &'a str,
    pub(crate) now_ms: u64,
}

/// Why an operation on a device is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error("unknown requestId")]
    NoRequest,
    #[error("unknown deviceId")]
    NoDevice,
    #[error("missing scope: {0}")]
    MissingScope(String),
}

/// The paired devices by id, as read from disk.
#[derive(Debug, Default)]
pub(crate) struct PairedDevices(BTreeMap<String, Device>);

/// The list of paired devices cannot be read. It is never treated as empty, because the next change would overwrite it.
#[derive(Debug, thiserror::Error)]
#[error(
    "the list of paired devices {} cannot be read ({why}); restore it from a backup, or rename it and pair every \
     device again", .file.display()
)]
pub struct DeviceListError {
    file: PathBuf,
    why: String,
}

impl PairedDevices {
    /// Reads the list from a state directory; empty if the file does not exist.
    pub(crate) fn read(state: &Path) -> Result<Self, DeviceListError> {
        let file = list_path(state);
        let unreadable = |why: String| DeviceListError { file: file.clone(), why };
        match fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Self)
                .map_err(|error| unreadable(format!("invalid content: {error}"))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(unreadable(error.to_string())),
        }
    }
}

/// Path of the list.
fn list_path(state: &Path) -> PathBuf {
    state.join("devices").join("paired.json")
}

impl Devices {
    /// Creates the registry of a state directory from the list that was read. Changes are recorded in the audit log.
    pub(crate) fn new(state: &Path, PairedDevices(paired): PairedDevices, audit: Audit) -> Self {
        Self {
            file: list_path(state),
            registry: Mutex::new(DeviceRegistry { paired, ..DeviceRegistry::default() }),
            audit,
        }
    }

    /// Pairs a device that showed the secret on this machine, or updates one that is paired already, and grants it the
    /// scopes it requested in addition to those it has.
    pub(crate) fn pair(&self, params: &ConnectParams, scopes: &Scopes, now_ms: u64) {
        let Some(device) = &params.device else { return };
        let mut registry = self.lock();
        let found = registry.paired.get(&device.id).filter(|found| found.public_key == device.public_key).cloned();
        let mut updated = found.clone().unwrap_or_else(|| build_device(params, scopes.names(), now_ms));
        merge_scopes(&mut updated.scopes, scopes.names());
        let is_new = found.as_ref().is_none_or(|found| *found != updated);
        updated.last_seen_at_ms = now_ms;
        registry.paired.insert(device.id.clone(), updated);
        while registry.paired.len() > MAX_DEVICES {
            let oldest = registry.paired.iter().min_by_key(|(_, device)| device.last_seen_at_ms);
            let Some(id) = oldest.map(|(id, _)| id.clone()) else { break };
            registry.paired.remove(&id);
        }
        if is_new {
            self.write(&registry);
            self.record_audit(AuditKind::DevicePaired, &device.id, scopes.names());
        }
    }

    /// Issues the first token of a device, with the device's scopes; `None` if it has one already. Only the digest is
    /// kept, so the token cannot be shown again.
    pub(crate) fn issue(&self, id: &str, random: &str, now_ms: u64) -> Option<String> {
        let token = digest(random);
        let mut registry = self.lock();
        let device = registry.paired.get_mut(id).filter(|device| device.tokens.is_empty())?;
        let scopes = device.scopes.clone();
        device.tokens.push(Token { digest: digest(&token), scopes, created_at_ms: now_ms });
        self.write(&registry);
        Some(token)
    }

    /// Returns the scopes that a device token grants, if it is valid.
    pub(crate) fn token_scopes(&self, id: &str, token: &str) -> Option<Vec<String>> {
        let registry = self.lock();
        let device = registry.paired.get(id)?;
        let wanted_digest = digest(token);
        let matches = |token: &&Token| bool::from(token.digest.as_bytes().ct_eq(wanted_digest.as_bytes()));
        let token = device.tokens.iter().find(matches)?;
        Some(token.scopes.iter().filter(|scope| device.scopes.contains(scope)).cloned().collect())
    }

    /// Returns true if a text is a token of any device; for requests that carry no device id.
    pub(crate) fn has_token(&self, token: &str) -> bool {
        let wanted_digest = digest(token);
        let registry = self.lock();
        let mut digests = registry.paired.values().flat_map(|device| &device.tokens).map(|token| &token.digest);
        digests.any(|digest| digest.as_bytes().ct_eq(wanted_digest.as_bytes()).into())
    }

    /// Returns true if a text is a token of any device and grants this scope.
    pub(crate) fn token_grants(&self, token: &str, required: Scope) -> bool {
        let wanted_digest = digest(token);
        let registry = self.lock();
        let matches = |token: &&Token| bool::from(token.digest.as_bytes().ct_eq(wanted_digest.as_bytes()));
        registry.paired.values().any(|device| {
            let granted = device.tokens.iter().find(matches).map(|token| &token.scopes);
            granted.is_some_and(|granted| {
                let effective = granted.iter().filter(|scope| device.scopes.contains(scope)).cloned().collect();
                Scopes::from_names(effective).allow(required)
            })
        })
    }

    /// Whether a device is paired with this key and approved for all of these scopes.
    pub(crate) fn allows(&self, id: &str, public_key: &str, scopes: &Scopes) -> bool {
        let registry = self.lock();
        let Some(device) = registry.paired.get(id).filter(|device| device.public_key == public_key) else {
            return false;
        };
        let approved = Scopes::from_names(device.scopes.clone());
        scopes.names().iter().all(|scope| approved.includes(scope))
    }

    /// Registers a pairing request of a remote device. A repeated request returns the first one.
    pub(crate) fn request(
        &self,
        params: &ConnectParams,
        request_id: String,
        now_ms: u64,
    ) -> Option<DevicePairingRequest> {
        let device = params.device.as_ref()?;
        let mut registry = self.lock();
        registry.requests.retain(|request| now_ms.saturating_sub(request.at_ms) < REQUEST_TTL_MS);
        let scopes = params.scopes.clone().unwrap_or_default();
        let is_same =
            |request: &&DevicePairingRequest| request.device_id == device.id && request.device.scopes == scopes;
        if let Some(found) = registry.requests.iter().find(is_same) {
            return Some(found.clone());
        }
        // A device has one request: the scopes that it asked for last.
        registry.requests.retain(|request| request.device_id != device.id);
        let request = DevicePairingRequest {
            id: request_id,
            device_id: device.id.clone(),
            device: build_device(params, &scopes, now_ms),
            at_ms: now_ms,
        };
        registry.requests.push(request.clone());
        if registry.requests.len() > MAX_REQUESTS {
            registry.requests.remove(0);
        }
        Some(request)
    }

    /// Approves a pairing request. The approver must hold every scope that is granted.
    pub(crate) fn approve(&self, id: &str, approver: &Scopes, now_ms: u64) -> Result<Value, Error> {
        let mut registry = self.lock();
        registry.requests.retain(|request| now_ms.saturating_sub(request.at_ms) < REQUEST_TTL_MS);
        let Some(at) = registry.requests.iter().position(|request| request.id == id) else {
            registry.wrong_ids += 1;
            if registry.wrong_ids >= MAX_WRONG_IDS {
                // Prevents guessing of request ids. Waiting devices will ask again and get a new id.
                registry.requests.clear();
                registry.wrong_ids = 0;
            }
            return Err(Error::NoRequest);
        };
        registry.wrong_ids = 0;
        if let Some(missing) = registry.requests[at].device.scopes.iter().find(|scope| !approver.includes(scope)) {
            return Err(Error::MissingScope(missing.clone()));
        }
        let DevicePairingRequest { device_id, mut device, .. } = registry.requests.remove(at);
        device.approved_at_ms = now_ms;
        device.last_seen_at_ms = now_ms;
        // A paired device that asked for more scopes keeps those it has. Its tokens, which cover these only, are replaced.
        let paired = registry.paired.get(&device_id).filter(|paired| paired.public_key == device.public_key);
        if let Some(paired) = paired {
            merge_scopes(&mut device.scopes, &paired.scopes);
        }
        let approved = device_json(&device_id, &device);
        self.record_audit(AuditKind::DevicePaired, &device_id, &device.scopes);
        registry.paired.insert(device_id, device);
        self.write(&registry);
        Ok(approved)
    }

    /// Rejects a pairing request; returns the device id.
    pub(crate) fn reject(&self, id: &str) -> Result<String, Error> {
        let mut registry = self.lock();
        let at = registry.requests.iter().position(|request| request.id == id).ok_or(Error::NoRequest)?;
        let request = registry.requests.remove(at);
        self.record_audit(AuditKind::DeviceRejected, &request.device_id, &request.device.scopes);
        Ok(request.device_id)
    }

    /// Removes a device with its tokens and closes its connections. The caller must manage all of the device's scopes.
    pub(crate) fn remove(&self, id: &str, manageable_scopes: &Scopes) -> Result<RevokedConnections, Error> {
        let mut registry = self.lock();
        registry.manageable(id, manageable_scopes)?;
        registry.paired.remove(id);
        let connections = registry.take_connections(id);
        self.write(&registry);
        self.record_audit(AuditKind::DeviceRemoved, id, &[]);
        Ok(connections)
    }

    /// Sets the display name of a device.
    pub(crate) fn rename(&self, id: &str, name: &str, manageable_scopes: &Scopes) -> Result<Value, Error> {
        let mut registry = self.lock();
        let device = registry.manageable(id, manageable_scopes)?;
        device.display_name = Some(name.trim().to_owned()).filter(|name| !name.is_empty());
        let renamed = device_json(id, device);
        self.write(&registry);
        Ok(renamed)
    }

    /// Revokes all tokens of a device.
    pub(crate) fn revoke(&self, id: &str, manageable_scopes: &Scopes) -> Result<RevokedConnections, Error> {
        let mut registry = self.lock();
        registry.manageable(id, manageable_scopes)?.tokens.clear();
        let connections = registry.take_connections(id);
        self.write(&registry);
        self.record_audit(AuditKind::DeviceTokenRevoked, id, &[]);
        Ok(connections)
    }

    /// Replaces all tokens of a device with a new one, whose scopes exceed neither the device's nor the caller's.
    pub(crate) fn rotate(&self, id: &str, rotation: Rotation<'_>) -> Result<RotatedToken, Error> {
        let mut registry = self.lock();
        let device = registry.manageable(id, rotation.manageable_scopes)?;
        let scopes: Vec<String> = rotation.scopes.map_or_else(|| device.scopes.clone(), <[String]>::to_vec);
        if let Some(missing) =
            scopes.iter().find(|scope| !device.scopes.contains(scope) || !rotation.caller_scopes.includes(scope))
        {
            return Err(Error::MissingScope(missing.clone()));
        }
        let token = digest(rotation.random);
        device.tokens = vec![Token { digest: digest(&token), scopes: scopes.clone(), created_at_ms: rotation.now_ms }];
        let connections = registry.take_connections(id);
        self.write(&registry);
        self.record_audit(AuditKind::DeviceTokenRotated, id, &scopes);
        Ok(RotatedToken { token, scopes, connections })
    }

    /// Registers a connection of a device; the token is cancelled when the device is removed or its tokens are revoked.
    pub(crate) fn register_connection(&self, id: &str) -> CancellationToken {
        let token = CancellationToken::new();
        let mut registry = self.lock();
        // Drop entries of connections that have ended.
        registry.connections.retain(|(_, token)| !token.is_cancelled());
        registry.connections.push((id.to_owned(), token.clone()));
        token
    }

    /// Lists paired devices and pairing requests.
    pub(crate) fn list(&self, now_ms: u64) -> Value {
        let mut registry = self.lock();
        registry.requests.retain(|request| now_ms.saturating_sub(request.at_ms) < REQUEST_TTL_MS);
        let paired: Vec<_> = registry.paired.iter().map(|(id, device)| device_json(id, device)).collect();
        let pending: Vec<_> = registry.requests.iter().map(DevicePairingRequest::to_json).collect();
        json!({"pending": pending, "paired": paired})
    }

    fn lock(&self) -> MutexGuard<'_, DeviceRegistry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record_audit(&self, kind: AuditKind, device: &str, scopes: &[String]) {
        let record = AuditRecord::new(kind).actor("operator").with("device", device);
        self.audit.note(if scopes.is_empty() { record } else { record.with("scopes", &scopes.join(" ")) });
    }

    /// Writes the list. If that fails, the change lasts until the gateway stops.
    fn write(&self, registry: &DeviceRegistry) {
        if let Err(error) = write(&self.file, &registry.paired) {
            tracing::error!(%error, file = %self.file.display(), "failed to write the device list");
        }
    }
}

impl DeviceRegistry {
    /// Finds a device whose scopes are all among those the caller manages.
    fn manageable(&mut self, id: &str, manageable_scopes: &Scopes) -> Result<&mut Device, Error> {
        let device = self.paired.get_mut(id).ok_or(Error::NoDevice)?;
        match device.scopes.iter().find(|scope| !manageable_scopes.includes(scope)) {
            Some(missing) => Err(Error::MissingScope(missing.clone())),
            None => Ok(device),
        }
    }

    fn take_connections(&mut self, id: &str) -> RevokedConnections {
        let of_device = self.connections.extract_if(.., |(device, _)| device == id);
        RevokedConnections(of_device.map(|(_, token)| token).collect())
    }
}

impl DevicePairingRequest {
    /// Formats the request for operators.
    pub(crate) fn to_json(&self) -> Value {
        let Device { public_key, display_name, platform, client_id, client_mode, scopes, .. } = &self.device;
        let mut json = json!({
            "requestId": self.id, "deviceId": self.device_id, "publicKey": public_key, "platform": platform,
            "clientId": client_id, "clientMode": client_mode, "role": "operator", "roles": ["operator"],
            "scopes": scopes, "ts": self.at_ms,
        });
        if let Some(name) = display_name {
            json["displayName"] = name.as_str().into();
        }
        json
    }
}

/// Builds a device from its connect parameters.
fn build_device(params: &ConnectParams, scopes: &[String], now_ms: u64) -> Device {
    let client = &params.client;
    // Untrusted text: control characters are removed and the length is limited.
    let sanitise = |text: &str| text.chars().filter(|char| !char.is_control()).take(64).collect::<String>();
    Device {
        public_key: params.device.as_ref().map(|device| device.public_key.clone()).unwrap_or_default(),
        display_name: client.extra.get("displayName").and_then(Value::as_str).map(sanitise),
        platform: sanitise(&client.platform),
        client_id: client.id.clone(),
        client_mode: client.mode.clone(),
        scopes: scopes.to_vec(),
        created_at_ms: now_ms,
        approved_at_ms: now_ms,
        last_seen_at_ms: now_ms,
        tokens: Vec::new(),
    }
}

/// Formats a device for operators, without token digests.
fn device_json(id: &str, device: &Device) -> Value {
    let token = |token: &Token| json!({"role": "operator", "scopes": token.scopes, "createdAtMs": token.created_at_ms});
    let mut json = json!({
        "deviceId": id, "publicKey": device.public_key, "platform": device.platform, "clientId": device.client_id,
        "clientMode": device.client_mode, "role": "operator", "roles": ["operator"], "scopes": device.scopes,
        "createdAtMs": device.created_at_ms, "approvedAtMs": device.approved_at_ms,
        "tokens": device.tokens.last().map(token).into_iter().collect::<Vec<_>>(),
    });
    if let Some(name) = &device.display_name {
        json["displayName"] = name.as_str().into();
    }
    json
}

fn merge_scopes(scopes: &mut Vec<String>, added: &[String]) {
    for scope in added {
        if !scopes.contains(scope) {
            scopes.push(scope.clone());
        }
    }
}

fn digest(token: &str) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(token))
}

fn write(file: &Path, paired: &BTreeMap<String, Device>) -> io::Result<()> {
    // The state directory itself is not created here; it exists wherever a gateway runs.
    if let Some(directory) = file.parent().filter(|directory| !directory.exists()) {
        fs::DirBuilder::new().mode(0o700).create(directory)?;
    }
    homard_stdx::file::replace(file, &serde_json::to_vec_pretty(paired)?)
}

#[cfg(test)]
mod tests;
