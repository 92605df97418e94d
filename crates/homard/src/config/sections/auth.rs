//! `auth`: in which order credentials are used. The credentials themselves are in `auth-profiles.json`.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The section.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Auth {
    /// The ids of a provider's credentials, first choice first. Those that are not listed are not used.
    pub(crate) order: BTreeMap<String, Vec<String>>,
}
