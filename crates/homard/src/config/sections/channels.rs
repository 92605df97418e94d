//! `channels`: the chats that agents take part in. For now, how much of them models see.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

/// A channel.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Channel {
    /// How many of the user's turns in a direct chat a model sees; 0 for all. Default: 0.
    pub(crate) dm_history_limit: Option<usize>,
    /// Direct chats by the peer's id.
    #[serde(deserialize_with = "super::named_objects")]
    pub(crate) dms: BTreeMap<String, Chat>,
}

/// A direct chat.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Chat {
    /// How many of the user's turns a model sees; 0 for all.
    pub(crate) history_limit: Option<usize>,
}
