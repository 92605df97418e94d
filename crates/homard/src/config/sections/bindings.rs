//! `bindings`: which agent answers which sender.

use schemars::JsonSchema;
use serde::Deserialize;

use super::word::Word;

/// Assigns senders to an agent.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Binding {
    /// Id of the agent.
    pub(crate) agent_id: String,
    /// Messages that the agent receives.
    #[serde(rename = "match", deserialize_with = "super::object")]
    pub(crate) who: Match,
}

/// Conditions of a binding; all that are set must match.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Match {
    /// Channel, such as `telegram`.
    pub(crate) channel: String,
    /// Account of the channel: `*` for any; if not set, the default account.
    pub(crate) account_id: Option<String>,
    /// Person or group that the message comes from.
    #[serde(deserialize_with = "super::maybe_object")]
    pub(crate) peer: Option<Peer>,
    /// Server id, for channels with servers.
    pub(crate) guild_id: Option<String>,
    /// Team id, for channels with teams.
    pub(crate) team_id: Option<String>,
}

/// A person or a group.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Peer {
    /// Kind of peer: direct, group or channel.
    pub(crate) kind: Option<Word<Kind>>,
    /// Id of the peer on the channel.
    pub(crate) id: String,
}

/// The kind of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Direct,
    Group,
    Channel,
}

super::word::words! {
    Kind: "direct" => Self::Direct, "dm" => Self::Direct, "group" => Self::Group, "channel" => Self::Channel;
}
