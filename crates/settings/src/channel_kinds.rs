//! The channels that a config can name.

use homard_proto::IdIssuer;

/// Known channels with their display names.
pub const CHANNEL_KINDS: [(&str, &str); 2] = [("telegram", "Telegram"), ("webhook", "Webhook")];

/// Returns who assigns the ids of a channel's senders. For unknown channels the ids are not trusted.
pub fn issuer(channel: &str) -> IdIssuer {
    match channel {
        "telegram" => IdIssuer::Platform,
        _ => IdIssuer::Peer,
    }
}

/// Returns the display name of a channel.
pub fn label(channel: &str) -> &str {
    CHANNEL_KINDS.iter().find(|(name, _)| *name == channel).map_or(channel, |(_, label)| label)
}
