//! `gateway`: listen address, authentication, and the remote gateway for clients.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::Deserialize;

use super::word::{FixedValues, Word};
use crate::Text;

/// Network address, authentication and HTTP endpoints of the gateway.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Gateway {
    /// Port that the gateway listens on. Default: 18789.
    pub port: Option<u16>,
    /// `local`, or `remote` for commands that use another gateway.
    pub mode: Option<String>,
    /// Interfaces to listen on: `loopback` for this machine only, `lan` for all networks of this machine, `tailnet` for its
    /// Tailscale network, `custom` for the address in `customBindHost`; `auto` is `loopback`. Access from other machines
    /// requires TLS, a trusted proxy or `allowInsecure`. Default: `loopback`.
    pub bind: Option<Word<Bind>>,
    /// Address to listen on with `bind: "custom"`, in addition to loopback.
    pub custom_bind_host: Option<IpAddr>,
    /// Accept connections from other machines without TLS, although the secret and every message could be read on the way. Default: false.
    pub allow_insecure: bool,
    /// Encryption of connections (TLS).
    #[serde(deserialize_with = "super::object")]
    pub tls: Tls,
    /// Shared secret for authentication.
    #[serde(deserialize_with = "super::object")]
    pub auth: Auth,
    /// Control UI and other pages in browsers.
    #[serde(deserialize_with = "super::object")]
    pub control_ui: ControlUi,
    /// Addresses of proxies that may report the client address (`X-Forwarded-For`). Requests through any other proxy are refused.
    pub trusted_proxies: Vec<IpAddr>,
    /// Another gateway, used by commands in mode `remote`.
    #[serde(deserialize_with = "super::object")]
    pub remote: Remote,
    /// OpenAI-compatible HTTP endpoints.
    #[serde(deserialize_with = "super::object")]
    pub http: Http,
    /// Tools that `/tools/invoke` may call.
    #[serde(deserialize_with = "super::object")]
    pub tools: Tools,
}

/// The interfaces that a gateway listens on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bind {
    /// Loopback, as the default.
    Auto,
    /// All interfaces, for the local network.
    Lan,
    /// Loopback.
    Loopback,
    /// The address of a Tailscale network.
    Tailnet,
    /// A given address.
    Custom,
}

/// The kind of secret for authentication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthMode {
    Token,
    Password,
}

super::word::words! {
    Bind:
        "auto" => Self::Auto, "lan" => Self::Lan, "loopback" => Self::Loopback, "tailnet" => Self::Tailnet,
        "custom" => Self::Custom;
    AuthMode: "token" => Self::Token, "password" => Self::Password;
}

impl Bind {
    /// Parses a word.
    pub fn named(word: &str) -> Option<Self> {
        Self::parse(word.trim())
    }
}

/// Shared secret for authentication.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Auth {
    /// Which secret is used if both are set: `token` or `password`.
    pub mode: Option<Word<AuthMode>>,
    /// Shared token. Default: one that is generated at the first start and kept in the state directory.
    pub token: Option<Text>,
    /// Shared password.
    pub password: Option<Text>,
}

/// Encryption of connections (TLS).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Tls {
    /// Serve TLS. Addresses of the gateway then begin with `wss://` and `https://`.
    pub enabled: bool,
    /// Generate a self-signed certificate if there is none. Clients verify it by its fingerprint. Default: true.
    pub auto_generate: bool,
    /// Path of the certificate, a PEM file. Default: `gateway/tls/gateway-cert.pem` in the state directory.
    pub cert_path: Option<Text>,
    /// Path of the private key, a PEM file. Default: `gateway/tls/gateway-key.pem` in the state directory.
    pub key_path: Option<Text>,
}

impl Default for Tls {
    fn default() -> Self {
        Self { enabled: false, auto_generate: true, cert_path: None, key_path: None }
    }
}

/// Control UI and other pages in browsers.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ControlUi {
    /// Origins that pages may connect from, in addition to the gateway's own.
    pub allowed_origins: Vec<String>,
    /// Directory of an installed Control UI, such as `node_modules/openclaw/dist/control-ui`. Default: none, and the
    /// gateway serves Homard's own page at `/`.
    pub root: Option<Text>,
}

/// Connection settings of another gateway.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Remote {
    /// URL of the gateway, such as `wss://host:18789`.
    pub url: Option<Text>,
    /// Token of the gateway.
    pub token: Option<Text>,
    /// Password of the gateway.
    pub password: Option<Text>,
    /// SHA-256 fingerprint of its certificate, as the gateway prints it at startup. Default: none; the certificate must be trusted by the system.
    pub tls_fingerprint: Option<Text>,
}

/// OpenAI-compatible HTTP endpoints.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Http {
    /// Settings per endpoint.
    #[serde(deserialize_with = "super::object")]
    pub endpoints: Endpoints,
}

/// Settings per HTTP endpoint.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Endpoints {
    /// Endpoint `/v1/chat/completions`.
    #[serde(deserialize_with = "super::object")]
    pub chat_completions: ChatCompletions,
    /// Endpoint `/v1/responses`.
    #[serde(deserialize_with = "super::object")]
    pub responses: Responses,
}

/// Endpoint `/v1/chat/completions`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ChatCompletions {
    /// Enable the endpoint.
    pub enabled: bool,
}

/// Endpoint `/v1/responses`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Responses {
    /// Enable the endpoint.
    pub enabled: bool,
    /// Maximum size of a request body in bytes. Default: 20000000.
    pub max_body_bytes: Option<usize>,
}

/// Tools that `/tools/invoke` may call.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Tools {
    /// Tools that `/tools/invoke` may call although they are dangerous, such as `exec`.
    pub allow: Vec<String>,
    /// Tools that `/tools/invoke` may not call.
    pub deny: Vec<String>,
}

#[cfg(test)]
mod tests {
    use crate::Config;

    #[test]
    fn bind_modes_of_openclaw_are_accepted_and_others_rejected() {
        for word in ["auto", "lan", "loopback", "tailnet", "custom"] {
            assert!(Config::parse(&format!("{{gateway: {{bind: '{word}'}}}}")).is_ok(), "{word}");
        }
        assert_eq!(
            Config::parse("{gateway: {bind: 'everywhere', auth: {mode: 'token'}}}").unwrap_err().to_string(),
            "line 1, column 18: gateway.bind must be one of auto, lan, loopback, tailnet, custom"
        );
        assert_eq!(
            Config::parse("{gateway: {auth: {mode: 'pasword'}}}").unwrap_err().to_string(),
            "line 1, column 25: gateway.auth.mode must be one of token, password"
        );
    }

    #[test]
    fn endpoints_are_disabled_by_default() {
        let is_enabled = |text: &str| {
            let endpoints = Config::parse(text).unwrap().gateway.http.endpoints;
            (endpoints.chat_completions.enabled, endpoints.responses.enabled, endpoints.responses.max_body_bytes)
        };
        assert_eq!(is_enabled("{}"), (false, false, None));
        let text = "{gateway: {http: {endpoints: {chatCompletions: {enabled: true}, responses: {enabled: true, maxBodyBytes: 9}}}}}";
        assert_eq!(is_enabled(text), (true, true, Some(9)));
    }
}
