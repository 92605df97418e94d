//! `bindings`: which agent answers which sender.

use schemars::JsonSchema;
use serde::Deserialize;

use super::word::Word;

/// Assigns senders to an agent.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Binding {
    /// Id of the agent.
    pub agent_id: String,
    /// Messages that the agent receives.
    #[serde(rename = "match", deserialize_with = "super::object")]
    pub who: Match,
}

/// Conditions of a binding; all that are set must match.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Match {
    /// Channel, such as `telegram`.
    pub channel: String,
    /// Account of the channel: `*` for any; if not set, the default account.
    pub account_id: Option<String>,
    /// Person or group that the message comes from.
    #[serde(deserialize_with = "super::maybe_object")]
    pub peer: Option<Peer>,
    /// Server id, for channels with servers.
    pub guild_id: Option<String>,
    /// Team id, for channels with teams.
    pub team_id: Option<String>,
}

/// A person or a group.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Peer {
    /// Kind of peer: direct, group or channel.
    pub kind: Option<Word<Kind>>,
    /// Id of the peer on the channel.
    pub id: String,
}

/// The kind of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Direct,
    Group,
    Channel,
}

super::word::words! {
    Kind: "direct" => Self::Direct, "dm" => Self::Direct, "group" => Self::Group, "channel" => Self::Channel;
}
