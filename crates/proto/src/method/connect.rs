//! `connect`: the first request of a connection, and the answer `hello-ok`.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Params;
use crate::{Extra, Generation, schema::Schema};

/// What `connect` takes. Unknown members are accepted and passed over, so that either generation may add some.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectParams {
    /// The oldest protocol that the client speaks.
    pub min_protocol: u64,
    /// The newest protocol that the client speaks.
    pub max_protocol: u64,
    /// Which program this is.
    pub client: Client,
    /// `operator` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// What the connection wants to be allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Vec<String>>,
    /// What the client can take, such as `tool-events`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caps: Option<Vec<String>>,
    /// The shared secret, or a token that the gateway gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// The device's signed identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<Device>,
    /// The rest.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Which program a client is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Client {
    /// One of a known list.
    pub id: String,
    /// One of a known list.
    pub mode: String,
    /// Its version.
    pub version: String,
    /// Its platform; part of a v3 signature.
    pub platform: String,
    /// Its kind of device; part of a v3 signature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_family: Option<String>,
    /// The rest.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Secrets that a client shows.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Auth {
    /// The shared token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The shared password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// A token that was given to this device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_token: Option<String>,
    /// A token for the first contact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap_token: Option<String>,
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Auth(…)")
    }
}

/// A device's signed identity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    /// Lower-case hex SHA-256 of the raw public key.
    pub id: String,
    /// Base64url of the raw 32 bytes.
    pub public_key: String,
    /// Base64url of the 64 bytes.
    pub signature: String,
    /// Milliseconds since the epoch.
    pub signed_at: u64,
    /// The challenge's nonce; old clients without a challenge leave it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nonce: Option<String>,
}

/// Client ids of both generations, and our own.
const CLIENT_IDS: &[&str] = &[
    "webchat-ui",
    "openclaw-control-ui",
    "openclaw-browser-copilot",
    "openclaw-tui",
    "webchat",
    "cli",
    "gateway-client",
    "openclaw-macos",
    "openclaw-linux",
    "openclaw-ios",
    "openclaw-watchos",
    "openclaw-android",
    "node-host",
    "openclaw-worker",
    "test",
    "fingerprint",
    "openclaw-probe",
    "homard",
];
const CLIENT_MODES: &[&str] = &["webchat", "cli", "ui", "backend", "node", "worker", "probe", "test"];

impl Params for ConnectParams {
    const METHOD: &'static str = "connect";

    fn schema(_: Generation) -> &'static Schema {
        static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
            let word = || json!({"type": "string", "minLength": 1});
            let text = || json!({"type": "string"});
            Schema::compile(&json!({
                "type": "object", "required": ["minProtocol", "maxProtocol", "client"],
                "properties": {
                    "minProtocol": {"type": "integer", "minimum": 1},
                    "maxProtocol": {"type": "integer", "minimum": 1},
                    "client": {
                        "type": "object", "required": ["id", "version", "platform", "mode"],
                        "properties": {
                            "id": {"enum": CLIENT_IDS}, "mode": {"enum": CLIENT_MODES},
                            "version": word(), "platform": word(),
                        },
                    },
                    "role": word(),
                    "scopes": {"type": "array", "items": word()},
                    "caps": {"type": "array", "items": word()},
                    "auth": {"type": "object", "properties": {
                        "token": text(), "password": text(), "deviceToken": text(), "bootstrapToken": text(),
                    }},
                    "device": {
                        "type": "object", "required": ["id", "publicKey", "signature", "signedAt"],
                        "properties": {
                            "id": word(), "publicKey": word(), "signature": word(),
                            "signedAt": {"type": "integer", "minimum": 0}, "nonce": word(),
                        },
                    },
                },
            }))
        });
        &SCHEMA
    }
}

/// The answer to a good `connect`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HelloOk {
    /// Says what this is.
    pub r#type: HelloType,
    /// The protocol that was agreed on.
    pub protocol: u64,
    /// Who answers: `{version, connId, …}`.
    pub server: Value,
    /// What can be asked: `{methods, events}`.
    pub features: Value,
    /// How things are now.
    pub snapshot: Value,
    /// What the connection may do: `{role, scopes, …}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Value>,
    /// Limits: `{maxPayload, maxBufferedBytes, tickIntervalMs}`.
    pub policy: Value,
    /// Members of other versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The `type` of the answer; there is only one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HelloType {
    /// `hello-ok`.
    HelloOk,
}
