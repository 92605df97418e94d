//! `connect`: the first request of a connection, and the response `hello-ok`.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Params;
use crate::{Extra, Generation, schema::Schema};

/// Parameters of `connect`. Unknown members are accepted and ignored, so that either generation may add some.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectParams {
    /// Oldest protocol that the client supports.
    pub min_protocol: u64,
    /// Newest protocol that the client supports.
    pub max_protocol: u64,
    /// Client program.
    pub client: Client,
    /// `operator` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Scopes that the connection requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Vec<String>>,
    /// Capabilities of the client, such as `tool-events`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caps: Option<Vec<String>>,
    /// The shared secret, or a token issued by the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Auth>,
    /// Signed identity of the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<Device>,
    /// Other members.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A client program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Client {
    /// One of a known list.
    pub id: String,
    /// One of a known list.
    pub mode: String,
    /// Version.
    pub version: String,
    /// Platform; part of a v3 signature.
    pub platform: String,
    /// Device family; part of a v3 signature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_family: Option<String>,
    /// Other members.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Secrets presented by a client.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Auth {
    /// Shared token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Shared password.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// Token issued to this device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_token: Option<String>,
    /// Token for the first connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap_token: Option<String>,
}

impl std::fmt::Debug for Auth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Auth(…)")
    }
}

/// Signed identity of a device.
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
    /// Nonce of the challenge; absent in old clients without a challenge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nonce: Option<String>,
}

/// Client ids of both generations, and Homard's own.
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
            let non_empty = || json!({"type": "string", "minLength": 1});
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
                            "version": non_empty(), "platform": non_empty(),
                        },
                    },
                    "role": non_empty(),
                    "scopes": {"type": "array", "items": non_empty()},
                    "caps": {"type": "array", "items": non_empty()},
                    "auth": {"type": "object", "properties": {
                        "token": text(), "password": text(), "deviceToken": text(), "bootstrapToken": text(),
                    }},
                    "device": {
                        "type": "object", "required": ["id", "publicKey", "signature", "signedAt"],
                        "properties": {
                            "id": non_empty(), "publicKey": non_empty(), "signature": non_empty(),
                            "signedAt": {"type": "integer", "minimum": 0}, "nonce": non_empty(),
                        },
                    },
                },
            }))
        });
        &SCHEMA
    }
}

/// Response to a successful `connect`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HelloOk {
    /// Type of the response.
    pub r#type: HelloType,
    /// Negotiated protocol.
    pub protocol: u64,
    /// Server description: `{version, connId, …}`.
    pub server: Value,
    /// Supported methods and events: `{methods, events}`.
    pub features: Value,
    /// Current state of the gateway.
    pub snapshot: Value,
    /// Authorization of the connection: `{role, scopes, …}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<Value>,
    /// Limits: `{maxPayload, maxBufferedBytes, tickIntervalMs}`.
    pub policy: Value,
    /// Members of other versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The `type` of the response; there is only one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HelloType {
    /// `hello-ok`.
    HelloOk,
}
