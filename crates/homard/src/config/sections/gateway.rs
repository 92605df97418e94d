//! `gateway`: where it listens, with which secret, or which other gateway is meant.

use serde::Deserialize;

use crate::config::Text;

/// The section.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Gateway {
    pub(crate) port: Option<u16>,
    /// `local`, or `remote` for commands that use another gateway.
    pub(crate) mode: Option<String>,
    pub(crate) bind: Option<String>,
    #[serde(deserialize_with = "super::object")]
    pub(crate) auth: Auth,
    #[serde(deserialize_with = "super::object")]
    pub(crate) control_ui: ControlUi,
    #[serde(deserialize_with = "super::object")]
    pub(crate) remote: Remote,
}

/// The shared secret.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Auth {
    /// `token` or `password`: which one counts if both are there.
    pub(crate) mode: Option<String>,
    pub(crate) token: Option<Text>,
    pub(crate) password: Option<Text>,
}

/// Pages in browsers.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ControlUi {
    /// Where they may come from, beside the gateway itself.
    pub(crate) allowed_origins: Vec<String>,
}

/// Another gateway.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Remote {
    pub(crate) url: Option<Text>,
    pub(crate) token: Option<Text>,
    pub(crate) password: Option<Text>,
}
