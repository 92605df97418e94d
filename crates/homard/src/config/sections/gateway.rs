//! `gateway`: where it listens, with which secret, or which other gateway is meant.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::Text;

/// Where the gateway listens, and for whom.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Gateway {
    /// The port. Default: 18789.
    pub(crate) port: Option<u16>,
    /// `local`, or `remote` for commands that use another gateway.
    pub(crate) mode: Option<String>,
    /// For whom it listens; `loopback` is this machine.
    pub(crate) bind: Option<String>,
    /// The shared secret.
    #[serde(deserialize_with = "super::object")]
    pub(crate) auth: Auth,
    /// Pages in browsers.
    #[serde(deserialize_with = "super::object")]
    pub(crate) control_ui: ControlUi,
    /// Another gateway, which commands use in mode `remote`.
    #[serde(deserialize_with = "super::object")]
    pub(crate) remote: Remote,
}

/// The shared secret.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Auth {
    /// `token` or `password`: which one counts if both are there.
    pub(crate) mode: Option<String>,
    /// The token. Default: one that is made at the first start and kept in the state directory.
    pub(crate) token: Option<Text>,
    /// The password.
    pub(crate) password: Option<Text>,
}

/// Pages in browsers.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ControlUi {
    /// Where they may come from, beside the gateway itself.
    pub(crate) allowed_origins: Vec<String>,
}

/// Another gateway.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Remote {
    /// Its address, such as `ws://host:18789`.
    pub(crate) url: Option<Text>,
    /// Its token.
    pub(crate) token: Option<Text>,
    /// Its password.
    pub(crate) password: Option<Text>,
}
