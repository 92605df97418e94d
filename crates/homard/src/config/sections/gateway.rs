//! `gateway`: listen address, authentication, and the remote gateway for clients.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::Deserialize;

use super::word::{Named, Word};
use crate::config::Text;

/// Where the gateway listens, and for whom.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Gateway {
    /// The port. Default: 18789.
    pub(crate) port: Option<u16>,
    /// `local`, or `remote` for commands that use another gateway.
    pub(crate) mode: Option<String>,
    /// For whom it listens: `loopback` is this machine, `lan` every network that it is in, `tailnet` its Tailscale network,
    /// `custom` the address in `customBindHost`; `auto` is `loopback`. Other machines need TLS, a trusted proxy or
    /// `allowInsecure`. Default: `loopback`.
    pub(crate) bind: Option<Word<Bind>>,
    /// The address to listen on with `bind: "custom"`, beside this machine's own.
    pub(crate) custom_bind_host: Option<IpAddr>,
    /// Answers other machines without TLS, although the secret and every message could be read on the way. Default: false.
    pub(crate) allow_insecure: bool,
    /// How it speaks in secret.
    #[serde(deserialize_with = "super::object")]
    pub(crate) tls: Tls,
    /// The shared secret.
    #[serde(deserialize_with = "super::object")]
    pub(crate) auth: Auth,
    /// Pages in browsers.
    #[serde(deserialize_with = "super::object")]
    pub(crate) control_ui: ControlUi,
    /// Addresses of proxies that may say for whom they ask (`X-Forwarded-For`). Requests through any other are refused.
    pub(crate) trusted_proxies: Vec<IpAddr>,
    /// Another gateway, which commands use in mode `remote`.
    #[serde(deserialize_with = "super::object")]
    pub(crate) remote: Remote,
    /// What is answered over HTTP, for programs that speak to OpenAI.
    #[serde(deserialize_with = "super::object")]
    pub(crate) http: Http,
    /// Which tools `/tools/invoke` may call.
    #[serde(deserialize_with = "super::object")]
    pub(crate) tools: Tools,
}

/// The interfaces that a gateway listens on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bind {
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
pub(crate) enum AuthMode {
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
    pub(crate) fn named(word: &str) -> Option<Self> {
        Self::read(word.trim())
    }
}

/// The shared secret.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Auth {
    /// `token` or `password`: which one counts if both are there.
    pub(crate) mode: Option<Word<AuthMode>>,
    /// The token. Default: one that is made at the first start and kept in the state directory.
    pub(crate) token: Option<Text>,
    /// The password.
    pub(crate) password: Option<Text>,
}

/// How a gateway speaks in secret.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Tls {
    /// Whether it does: then its addresses begin with `wss://` and `https://`.
    pub(crate) enabled: bool,
    /// Makes a certificate of its own if there is none. Clients know it by its fingerprint. Default: true.
    pub(crate) auto_generate: bool,
    /// The certificate, a PEM file. Default: `gateway/tls/gateway-cert.pem` in the state directory.
    pub(crate) cert_path: Option<Text>,
    /// Its key, a PEM file. Default: `gateway/tls/gateway-key.pem` in the state directory.
    pub(crate) key_path: Option<Text>,
}

impl Default for Tls {
    fn default() -> Self {
        Self { enabled: false, auto_generate: true, cert_path: None, key_path: None }
    }
}

/// Pages in browsers.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ControlUi {
    /// Where they may come from, beside the gateway itself.
    pub(crate) allowed_origins: Vec<String>,
    /// The folder of an installed Control UI, such as `node_modules/openclaw/dist/control-ui`. Default: none, and the
    /// gateway shows a start page of its own.
    pub(crate) root: Option<Text>,
}

/// Another gateway.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Remote {
    /// Its address, such as `wss://host:18789`.
    pub(crate) url: Option<Text>,
    /// Its token.
    pub(crate) token: Option<Text>,
    /// Its password.
    pub(crate) password: Option<Text>,
    /// The SHA-256 fingerprint of its certificate, as it prints it. Default: none, and the system must trust the certificate.
    pub(crate) tls_fingerprint: Option<Text>,
}

/// What is answered over HTTP.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Http {
    /// One by one.
    #[serde(deserialize_with = "super::object")]
    pub(crate) endpoints: Endpoints,
}

/// What is answered over HTTP, one by one.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Endpoints {
    /// `/v1/chat/completions`.
    #[serde(deserialize_with = "super::object")]
    pub(crate) chat_completions: ChatCompletions,
    /// `/v1/responses`.
    #[serde(deserialize_with = "super::object")]
    pub(crate) responses: Responses,
}

/// `/v1/chat/completions`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct ChatCompletions {
    /// Whether it is answered.
    pub(crate) enabled: bool,
}

/// `/v1/responses`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Responses {
    /// Whether it is answered.
    pub(crate) enabled: bool,
    /// How large a request may be. Default: 20000000.
    pub(crate) max_body_bytes: Option<usize>,
}

/// Which tools `/tools/invoke` may call.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Tools {
    /// Tools that it may call although they are dangerous, such as `exec`.
    pub(crate) allow: Vec<String>,
    /// Tools that it may not call.
    pub(crate) deny: Vec<String>,
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn words_of_openclaw_are_fine_and_others_are_told() {
        for word in ["auto", "lan", "loopback", "tailnet", "custom"] {
            assert!(Config::parse(&format!("{{gateway: {{bind: '{word}'}}}}")).is_ok(), "{word}");
        }
        assert_eq!(
            Config::parse("{gateway: {bind: 'everywhere', auth: {mode: 'token'}}}").unwrap_err(),
            "line 1, column 18: gateway.bind must be one of auto, lan, loopback, tailnet, custom"
        );
        assert_eq!(
            Config::parse("{gateway: {auth: {mode: 'pasword'}}}").unwrap_err(),
            "line 1, column 25: gateway.auth.mode must be one of token, password"
        );
    }

    #[test]
    fn endpoints_are_off_until_they_are_put_on() {
        let on = |text: &str| {
            let endpoints = Config::parse(text).unwrap().gateway.http.endpoints;
            (endpoints.chat_completions.enabled, endpoints.responses.enabled, endpoints.responses.max_body_bytes)
        };
        assert_eq!(on("{}"), (false, false, None));
        let text = "{gateway: {http: {endpoints: {chatCompletions: {enabled: true}, responses: {enabled: true, maxBodyBytes: 9}}}}}";
        assert_eq!(on(text), (true, true, Some(9)));
    }
}
