//! Devices that belong to the owner: who they are, what they may do, and tokens that stand for the secret.
//!
//! A device that shows the secret on this machine belongs to the owner from then on. One from elsewhere waits until
//! somebody approves it. A token of a device is kept as a digest only, and is worth no more than the device was granted.
//! The list is in `<state>/devices/paired.json`, for its owner's eyes only; what waits is forgotten after five minutes
//! and with the process.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use homard_audit::{Audit, Fact, What};
use homard_proto::method::connect::ConnectParams;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio_util::sync::CancellationToken;

use crate::scope::{Scope, Scopes};

/// How long a request to belong to the owner waits.
const WAITS_MS: u64 = 5 * 60 * 1000;
/// How many may wait; one more, and the oldest is forgotten.
const WAITING: usize = 64;
/// So many requests may be named wrongly; then all are forgotten.
const TRIES: usize = 5;
/// How many devices there may be; one more, and the one that came longest ago is forgotten.
const DEVICES: usize = 256;

/// A device that belongs to the owner.
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
    /// What it may do.
    scopes: Vec<String>,
    created_at_ms: u64,
    approved_at_ms: u64,
    #[serde(default)]
    last_seen_at_ms: u64,
    #[serde(default)]
    tokens: Vec<Token>,
}

/// A token of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Token {
    /// What is kept in its place.
    digest: String,
    /// What it may do.
    scopes: Vec<String>,
    created_at_ms: u64,
}

/// A device that wants to belong to the owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) id: String,
    device_id: String,
    device: Device,
    at_ms: u64,
}

/// All devices. It is in memory, and written to disk with every change.
#[derive(Debug)]
pub(crate) struct Devices {
    file: PathBuf,
    known: Mutex<Known>,
    audit: Audit,
}

#[derive(Debug, Default)]
struct Known {
    paired: BTreeMap<String, Device>,
    waiting: Vec<Request>,
    /// How many requests were approved of late that there are not.
    wrong: usize,
    /// Connections of devices, each with what ends it.
    live: Vec<(String, CancellationToken)>,
}

/// How a token is replaced.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rotation<'a> {
    /// What the new one may do; without it, what the device may.
    pub(crate) scopes: Option<&'a [String]>,
    /// What whoever asks may do: the new one may do no more.
    pub(crate) by: &'a Scopes,
    /// The scopes of the devices that whoever asks may manage.
    pub(crate) manages: &'a Scopes,
    /// What it is made of.
    pub(crate) unguessable: &'a str,
    pub(crate) now_ms: u64,
}

/// What cannot be done about a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error("unknown requestId")]
    NoRequest,
    #[error("unknown deviceId")]
    NoDevice,
    #[error("missing scope: {0}")]
    Above(String),
}

impl Devices {
    /// The devices of a state directory. A list that cannot be read is put aside, and nobody is paired.
    /// What becomes of them is noted.
    pub(crate) fn open(state: &Path, audit: Audit) -> Self {
        let file = state.join("devices").join("paired.json");
        let paired = match fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_else(|error| {
                let aside = file.with_extension("json.broken");
                tracing::error!(%error, file = %file.display(), aside = %aside.display(),
                    "the list of devices cannot be read; it is put aside, and devices must be paired again");
                fs::rename(&file, &aside).ok();
                audit.note(Fact::new(What::Repaired).with("kind", "devices_set_aside"));
                BTreeMap::new()
            }),
            Err(_) => BTreeMap::new(),
        };
        Self { file, known: Mutex::new(Known { paired, ..Known::default() }), audit }
    }

    /// A device showed the secret on this machine: it belongs to the owner, and may do what it asked for.
    pub(crate) fn admit(&self, params: &ConnectParams, scopes: &Scopes, now_ms: u64) {
        let Some(device) = &params.device else { return };
        let mut known = self.known();
        let found = known.paired.get(&device.id).filter(|found| found.public_key == device.public_key).cloned();
        let mut after = found.clone().unwrap_or_else(|| described(params, scopes.names(), now_ms));
        join(&mut after.scopes, scopes.names());
        let is_new = found.as_ref().is_none_or(|found| *found != after);
        after.last_seen_at_ms = now_ms;
        known.paired.insert(device.id.clone(), after);
        while known.paired.len() > DEVICES {
            let oldest = known.paired.iter().min_by_key(|(_, device)| device.last_seen_at_ms);
            let Some(id) = oldest.map(|(id, _)| id.clone()) else { break };
            known.paired.remove(&id);
        }
        if is_new {
            self.write(&known);
            self.note(What::DevicePaired, &device.id, scopes.names());
        }
    }

    /// The first token of a device, worth what the device may do; none if it has one. It is made of texts that nobody
    /// can guess, and this is the only time that it is seen.
    pub(crate) fn issue(&self, id: &str, unguessable: &str, now_ms: u64) -> Option<String> {
        let token = digest(unguessable);
        let mut known = self.known();
        let device = known.paired.get_mut(id).filter(|device| device.tokens.is_empty())?;
        let scopes = device.scopes.clone();
        device.tokens.push(Token { digest: digest(&token), scopes, created_at_ms: now_ms });
        self.write(&known);
        Some(token)
    }

    /// What a token of a device is worth, if it is one.
    pub(crate) fn worth(&self, id: &str, token: &str) -> Option<Vec<String>> {
        let known = self.known();
        let device = known.paired.get(id)?;
        let shown = digest(token);
        let is_shown = |token: &&Token| bool::from(token.digest.as_bytes().ct_eq(shown.as_bytes()));
        let token = device.tokens.iter().find(is_shown)?;
        Some(token.scopes.iter().filter(|scope| device.scopes.contains(scope)).cloned().collect())
    }

    /// Whether a text is the token of some device: for requests that do not say of which.
    pub(crate) fn has_token(&self, token: &str) -> bool {
        let shown = digest(token);
        let known = self.known();
        let mut digests = known.paired.values().flat_map(|device| &device.tokens).map(|token| &token.digest);
        digests.any(|digest| digest.as_bytes().ct_eq(shown.as_bytes()).into())
    }

    /// Whether a text is the token of some device that may do this.
    pub(crate) fn token_may(&self, token: &str, need: Scope) -> bool {
        let shown = digest(token);
        let known = self.known();
        let is_shown = |token: &&Token| bool::from(token.digest.as_bytes().ct_eq(shown.as_bytes()));
        known.paired.values().any(|device| {
            let granted = device.tokens.iter().find(is_shown).map(|token| &token.scopes);
            granted.is_some_and(|granted| {
                let both = granted.iter().filter(|scope| device.scopes.contains(scope)).cloned().collect();
                Scopes::of(both).allow(need)
            })
        })
    }

    /// Whether a device belongs to the owner, with this key.
    pub(crate) fn knows(&self, id: &str, public_key: &str) -> bool {
        self.known().paired.get(id).is_some_and(|device| device.public_key == public_key)
    }

    /// A device from elsewhere wants to belong to the owner. Asking again is the same request.
    pub(crate) fn request(&self, params: &ConnectParams, request: String, now_ms: u64) -> Option<Request> {
        let device = params.device.as_ref()?;
        let mut known = self.known();
        known.waiting.retain(|request| now_ms.saturating_sub(request.at_ms) < WAITS_MS);
        if let Some(found) = known.waiting.iter().find(|request| request.device_id == device.id) {
            return Some(found.clone());
        }
        let scopes = params.scopes.clone().unwrap_or_default();
        let request = Request {
            id: request,
            device_id: device.id.clone(),
            device: described(params, &scopes, now_ms),
            at_ms: now_ms,
        };
        known.waiting.push(request.clone());
        if known.waiting.len() > WAITING {
            known.waiting.remove(0);
        }
        Some(request)
    }

    /// Lets a device that waits belong to the owner. Nobody gives what he has not.
    pub(crate) fn approve(&self, id: &str, by: &Scopes, now_ms: u64) -> Result<Value, Error> {
        let mut known = self.known();
        known.waiting.retain(|request| now_ms.saturating_sub(request.at_ms) < WAITS_MS);
        let Some(at) = known.waiting.iter().position(|request| request.id == id) else {
            known.wrong += 1;
            if known.wrong >= TRIES {
                // Whoever guesses shall not find one; who waits will ask again, under another name.
                known.waiting.clear();
                known.wrong = 0;
            }
            return Err(Error::NoRequest);
        };
        known.wrong = 0;
        if let Some(above) = known.waiting[at].device.scopes.iter().find(|scope| !by.hold(scope)) {
            return Err(Error::Above(above.clone()));
        }
        let Request { device_id, mut device, .. } = known.waiting.remove(at);
        device.approved_at_ms = now_ms;
        device.last_seen_at_ms = now_ms;
        let shown = shown(&device_id, &device);
        self.note(What::DevicePaired, &device_id, &device.scopes);
        known.paired.insert(device_id, device);
        self.write(&known);
        Ok(shown)
    }

    /// Forgets a device that waits; which one it was.
    pub(crate) fn reject(&self, id: &str) -> Result<String, Error> {
        let mut known = self.known();
        let at = known.waiting.iter().position(|request| request.id == id).ok_or(Error::NoRequest)?;
        let request = known.waiting.remove(at);
        self.note(What::DeviceRejected, &request.device_id, &request.device.scopes);
        Ok(request.device_id)
    }

    /// Forgets a device and its tokens, and ends its connections. Nobody does that to a device that may do more than they.
    pub(crate) fn remove(&self, id: &str, manages: &Scopes) -> Result<(), Error> {
        let mut known = self.known();
        known.managed(id, manages)?;
        known.paired.remove(id);
        known.end(id);
        self.write(&known);
        self.note(What::DeviceRemoved, id, &[]);
        Ok(())
    }

    /// Names a device.
    pub(crate) fn rename(&self, id: &str, name: &str, manages: &Scopes) -> Result<Value, Error> {
        let mut known = self.known();
        let device = known.managed(id, manages)?;
        device.display_name = Some(name.trim().to_owned()).filter(|name| !name.is_empty());
        let shown = shown(id, device);
        self.write(&known);
        Ok(shown)
    }

    /// Makes all tokens of a device worthless, and ends its connections.
    pub(crate) fn revoke(&self, id: &str, manages: &Scopes) -> Result<(), Error> {
        let mut known = self.known();
        known.managed(id, manages)?.tokens.clear();
        known.end(id);
        self.write(&known);
        self.note(What::DeviceTokenRevoked, id, &[]);
        Ok(())
    }

    /// A new token in the place of all others, worth no more than the device may and than whoever asks.
    pub(crate) fn rotate(&self, id: &str, new: Rotation<'_>) -> Result<(String, Vec<String>), Error> {
        let mut known = self.known();
        let device = known.managed(id, new.manages)?;
        let wanted: Vec<String> = new.scopes.map_or_else(|| device.scopes.clone(), <[String]>::to_vec);
        if let Some(above) = wanted.iter().find(|scope| !device.scopes.contains(scope) || !new.by.hold(scope)) {
            return Err(Error::Above(above.clone()));
        }
        let token = digest(new.unguessable);
        device.tokens = vec![Token { digest: digest(&token), scopes: wanted.clone(), created_at_ms: new.now_ms }];
        known.end(id);
        self.write(&known);
        self.note(What::DeviceTokenRotated, id, &wanted);
        Ok((token, wanted))
    }

    /// What ends a connection of a device, when the device is forgotten or its tokens are revoked.
    pub(crate) fn follow(&self, id: &str) -> CancellationToken {
        let token = CancellationToken::new();
        let mut known = self.known();
        // Those that ended by themselves are nobody's any more.
        known.live.retain(|(_, token)| !token.is_cancelled());
        known.live.push((id.to_owned(), token.clone()));
        token
    }

    /// All devices, and those that wait.
    pub(crate) fn list(&self, now_ms: u64) -> Value {
        let mut known = self.known();
        known.waiting.retain(|request| now_ms.saturating_sub(request.at_ms) < WAITS_MS);
        let paired: Vec<_> = known.paired.iter().map(|(id, device)| shown(id, device)).collect();
        let pending: Vec<_> = known.waiting.iter().map(Request::shown).collect();
        json!({"pending": pending, "paired": paired})
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, what: What, device: &str, scopes: &[String]) {
        let fact = Fact::new(what).by("operator").with("device", device);
        self.audit.note(if scopes.is_empty() { fact } else { fact.with("scopes", &scopes.join(" ")) });
    }

    /// Writes the list. What cannot be written holds until the gateway stops.
    fn write(&self, known: &Known) {
        if let Err(error) = write(&self.file, &known.paired) {
            tracing::error!(%error, file = %self.file.display(), "the list of devices was not written");
        }
    }
}

impl Known {
    /// A device whose scopes are all among those that somebody manages.
    fn managed(&mut self, id: &str, manages: &Scopes) -> Result<&mut Device, Error> {
        let device = self.paired.get_mut(id).ok_or(Error::NoDevice)?;
        match device.scopes.iter().find(|scope| !manages.hold(scope)) {
            Some(above) => Err(Error::Above(above.clone())),
            None => Ok(device),
        }
    }

    fn end(&mut self, id: &str) {
        for (_, token) in self.live.iter().filter(|(device, _)| device == id) {
            token.cancel();
        }
        self.live.retain(|(device, _)| device != id);
    }
}

impl Request {
    /// The request as operators are shown it.
    pub(crate) fn shown(&self) -> Value {
        let Device { public_key, display_name, platform, client_id, client_mode, scopes, .. } = &self.device;
        let mut shown = json!({
            "requestId": self.id, "deviceId": self.device_id, "publicKey": public_key, "platform": platform,
            "clientId": client_id, "clientMode": client_mode, "role": "operator", "roles": ["operator"],
            "scopes": scopes, "ts": self.at_ms,
        });
        if let Some(name) = display_name {
            shown["displayName"] = name.as_str().into();
        }
        shown
    }
}

/// A device as it says it is.
fn described(params: &ConnectParams, scopes: &[String], now_ms: u64) -> Device {
    let client = &params.client;
    // A stranger's words, so not too many of them.
    let short = |text: &str| text.chars().filter(|char| !char.is_control()).take(64).collect::<String>();
    Device {
        public_key: params.device.as_ref().map(|device| device.public_key.clone()).unwrap_or_default(),
        display_name: client.extra.get("displayName").and_then(Value::as_str).map(short),
        platform: short(&client.platform),
        client_id: client.id.clone(),
        client_mode: client.mode.clone(),
        scopes: scopes.to_vec(),
        created_at_ms: now_ms,
        approved_at_ms: now_ms,
        last_seen_at_ms: now_ms,
        tokens: Vec::new(),
    }
}

/// A device as operators are shown it: without anything that a token could be made from.
fn shown(id: &str, device: &Device) -> Value {
    let token = |token: &Token| json!({"role": "operator", "scopes": token.scopes, "createdAtMs": token.created_at_ms});
    let mut shown = json!({
        "deviceId": id, "publicKey": device.public_key, "platform": device.platform, "clientId": device.client_id,
        "clientMode": device.client_mode, "role": "operator", "roles": ["operator"], "scopes": device.scopes,
        "createdAtMs": device.created_at_ms, "approvedAtMs": device.approved_at_ms,
        "tokens": device.tokens.last().map(token).into_iter().collect::<Vec<_>>(),
    });
    if let Some(name) = &device.display_name {
        shown["displayName"] = name.as_str().into();
    }
    shown
}

fn join(scopes: &mut Vec<String>, more: &[String]) {
    for scope in more {
        if !scopes.contains(scope) {
            scopes.push(scope.clone());
        }
    }
}

fn digest(token: &str) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(token))
}

fn write(file: &Path, paired: &BTreeMap<String, Device>) -> io::Result<()> {
    // Not the state directory itself, which is there wherever a gateway is at home.
    if let Some(folder) = file.parent().filter(|folder| !folder.exists()) {
        fs::DirBuilder::new().mode(0o700).create(folder)?;
    }
    let beside = file.with_extension("json.tmp");
    let mut new = fs::OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&beside)?;
    new.write_all(&serde_json::to_vec_pretty(paired)?)?;
    new.sync_all()?;
    fs::rename(&beside, file)
}

#[cfg(test)]
mod tests;
