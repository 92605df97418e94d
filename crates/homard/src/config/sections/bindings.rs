//! `bindings`: which agent answers which sender.

use schemars::JsonSchema;
use serde::Deserialize;

use super::word::Word;

/// Who is answered by which agent.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Binding {
    /// The agent.
    pub(crate) agent_id: String,
    /// Whom it answers.
    #[serde(rename = "match", deserialize_with = "super::object")]
    pub(crate) who: Match,
}

/// Whom an agent answers: all that is said must be so.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Match {
    /// The channel, such as `telegram`.
    pub(crate) channel: String,
    /// The account on it; `*` for any, nothing for the default account.
    pub(crate) account_id: Option<String>,
    /// The person or group.
    #[serde(deserialize_with = "super::maybe_object")]
    pub(crate) peer: Option<Peer>,
    /// The server, where the channel has servers.
    pub(crate) guild_id: Option<String>,
    /// The team, where the channel has teams.
    pub(crate) team_id: Option<String>,
}

/// A person or a group.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Peer {
    /// What it is: direct, group or channel.
    pub(crate) kind: Option<Word<Kind>>,
    /// Its id on the channel.
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
