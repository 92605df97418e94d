//! The channels that a config can name.

use homard_proto::IdIssuer;

use crate::{channels::Account, paths};

/// Known channels with their display names: the native ones, then those of [`HOSTED`].
pub const CHANNEL_KINDS: [(&str, &str); 14] = [
    ("telegram", "Telegram"),
    ("discord", "Discord"),
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
        "telegram" | "discord" => IdIssuer::Platform,
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

/// Returns an entry of an allowlist without the decoration that the channel's users write: on Discord `user:7`, `<@7>`
/// and `<@!7>` are `7`.
pub fn sender_entry<'a>(channel: &str, entry: &'a str) -> &'a str {
    let text = entry.trim();
    if channel != "discord" {
        return text;
    }
    let id = text.strip_prefix("discord:").unwrap_or(text);
    let id = id.strip_prefix("user:").unwrap_or(id);
    let mention = id.strip_prefix("<@").and_then(|rest| rest.strip_suffix('>'));
    let id = mention.map_or(id, |mention| mention.trim_start_matches('!'));
    let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
    if is_id { id } else { text }
}

/// Returns what a channel account lacks, and how to fix it.
pub fn missing_credential(channel: &str, account: &Account) -> Option<(&'static str, &'static str)> {
    match channel {
        "telegram" => {
            let has_token = account.bot_token.is_some() || account.token_file.is_some();
            let has_any = has_token || paths::env("TELEGRAM_BOT_TOKEN").is_some();
            (!has_any).then_some(("the bot token is missing", "homard channels add telegram --token TOKEN"))
        }
        "discord" => {
            let has_token = account.token.is_some() || account.token_file.is_some();
            let has_any = has_token || paths::env("DISCORD_BOT_TOKEN").is_some();
            (!has_any).then_some(("the bot token is missing", "homard channels add discord --token TOKEN"))
        }
        // Its package checks its own settings when it starts.
        hosted if is_hosted(hosted) => None,
        _ => {
            let missing_secret = ("the secret is missing", "homard channels add webhook --secret TEXT");
            account.secret.is_none().then_some(missing_secret)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_an_allowlist_is_read_in_all_its_spellings() {
        for entry in ["7", " user:7 ", "<@7>", "<@!7>", "discord:7", "discord:user:7"] {
            assert_eq!(sender_entry("discord", entry), "7", "{entry}");
        }
        for entry in ["*", "ann", "telegram:7", "discord/work:7", "<@ann>"] {
            assert_eq!(sender_entry("discord", entry), entry);
        }
        assert_eq!(sender_entry("telegram", "user:7"), "user:7");
    }
}
