//! `commands`: who may use chat commands.

use schemars::JsonSchema;
use serde::Deserialize;

use super::channels::Id;

/// Who may give commands.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Commands {
    /// You, on chat platforms: channel and id, such as `telegram:123456789`, or `webhook/door:ann` on one account. Whoever is listed has all that you have here. Default: the only person who is let in, if there is only one.
    pub(crate) owner_allow_from: Vec<Id>,
}
