//! The channels that a config can name.

use homard_proto::IdIssuer;

use crate::{channels::Account, paths};

/// Known channels with their display names: the native ones, then those of [`HOSTED`].
pub const CHANNEL_KINDS: [(&str, &str); 13] = [
    ("telegram", "Telegram"),
    ("webhook", "Webhook"),
    ("feishu", "Feishu"),
    ("googlechat", "Google Chat"),
    ("irc", "IRC"),
    ("line", "LINE"),
    ("matrix", "Matrix"),
    ("mattermost", "Mattermost"),
    ("msteams", "Microsoft Teams"),
    ("nextcloud-talk", "Nextcloud Talk"),
    ("signal", "Signal"),
    ("whatsapp", "WhatsApp"),
    ("zalo", "Zalo"),
];

/// Channels that OpenClaw's packages serve, in a process of their own.
pub const HOSTED: [&str; 11] = [
    "feishu",
    "googlechat",
    "irc",
    "line",
    "matrix",
    "mattermost",
    "msteams",
    "nextcloud-talk",
    "signal",
    "whatsapp",
    "zalo",
];

/// Returns true if one of OpenClaw's packages serves the channel.
pub fn is_hosted(channel: &str) -> bool {
    HOSTED.contains(&channel)
}

/// Returns who assigns the ids of a channel's senders. For unknown channels the ids are not trusted.
pub fn issuer(channel: &str) -> IdIssuer {
    match channel {
        "telegram" => IdIssuer::Platform,
        // On IRC everyone chooses their own name.
        "irc" => IdIssuer::Peer,
        hosted if is_hosted(hosted) => IdIssuer::Platform,
        _ => IdIssuer::Peer,
    }
}

/// Returns the display name of a channel.
pub fn label(channel: &str) -> &str {
    CHANNEL_KINDS.iter().find(|(name, _)| *name == channel).map_or(channel, |(_, label)| label)
}

/// Returns what a channel account lacks, and how to fix it.
pub fn missing_credential(channel: &str, account: &Account) -> Option<(&'static str, &'static str)> {
    match channel {
        "telegram" => {
            let has_token = account.bot_token.is_some() || account.token_file.is_some();
            let has_any = has_token || paths::env("TELEGRAM_BOT_TOKEN").is_some();
            (!has_any).then_some(("the bot token is missing", "homard channels add telegram --token TOKEN"))
        }
        // Its package checks its own settings when it starts.
        hosted if is_hosted(hosted) => None,
        _ => {
            let missing_secret = ("the secret is missing", "homard channels add webhook --secret TEXT");
            account.secret.is_none().then_some(missing_secret)
        }
    }
}
