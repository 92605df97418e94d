//! `commands`: who may use chat commands.

use schemars::JsonSchema;
use serde::Deserialize;

use super::channels::Id;

/// Owners on chat platforms.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Commands {
    /// Senders that are treated as the owner on chat platforms: channel and id, such as `telegram:123456789`, or
    /// `webhook/door:ann` for one account. Each listed sender has all of the owner's rights. Default: the only sender
    /// who may write, if there is only one.
    pub owner_allow_from: Vec<Id>,
}
