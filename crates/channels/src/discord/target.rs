//! Parses destinations as people and configs write them.

use super::{Discord, api::ApiCallError};
use crate::{ChannelError, Destination, http::RepeatEffect};

/// A user, or a channel or thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DiscordTarget {
    /// Its id. Ids are unique among users and channels.
    pub(super) id: String,
    kind: TargetKind,
}

/// What an id denotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TargetKind {
    User,
    Channel,
    /// An id alone.
    Unknown,
}

impl DiscordTarget {
    /// Parses `123`, `user:123`, `channel:123`, `discord:123`, `<@123>` and `<#123>`.
    pub(super) fn parse(to: &str) -> Result<Self, ChannelError> {
        let mut kind = TargetKind::Unknown;
        let mut id = to.trim().strip_prefix("discord:").unwrap_or(to.trim());
        let prefixes = [
            ("user:", TargetKind::User),
            ("dm:", TargetKind::User),
            ("direct:", TargetKind::User),
            ("channel:", TargetKind::Channel),
            ("thread:", TargetKind::Channel),
            ("group:", TargetKind::Channel),
        ];
        for (prefix, named) in prefixes {
            if let Some(rest) = id.strip_prefix(prefix) {
                (id, kind) = (rest, named);
            }
        }
        if let Some(mention) = id.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')) {
            let user = mention.strip_prefix("@!").or_else(|| mention.strip_prefix('@'));
            (id, kind) = match (user, mention.strip_prefix('#')) {
                (Some(user), _) => (user, TargetKind::User),
                (None, Some(channel)) => (channel, TargetKind::Channel),
                (None, None) => (id, kind),
            };
        }
        if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_digit()) {
            let excerpt: String = to.chars().filter(|c| !c.is_control()).take(80).collect();
            return Err(ChannelError::Refused(format!(
                "Discord: {excerpt} is not a valid chat; use the id of a user such as user:123456789012345678, or of a \
                 channel such as channel:123456789012345678"
            )));
        }
        Ok(Self { id: id.to_owned(), kind })
    }

    /// Returns the channel to which messages are sent: the thread, the channel, or that of the direct chat.
    pub(super) async fn channel(discord: &Discord, destination: &Destination) -> Result<String, ChannelError> {
        let thread = destination.thread.as_deref().map(str::trim).filter(|thread| !thread.is_empty());
        if let Some(thread) = thread {
            return Ok(Self::parse(thread)?.id);
        }
        let target = Self::parse(&destination.to)?;
        // Users do not see that the channel of a direct chat is created, so that can be repeated.
        let failed = |error: ApiCallError| error.into_failure("open a direct chat", RepeatEffect::None);
        match target.kind {
            TargetKind::Channel => Ok(target.id),
            TargetKind::User => discord.direct_channel(&target.id).await.map_err(failed),
            TargetKind::Unknown => {
                let known = discord.directory().direct_channel(&target.id);
                if let Some(channel) = known {
                    return Ok(channel);
                }
                let is_channel = discord.directory().get(&target.id).is_some();
                if is_channel {
                    return Ok(target.id);
                }
                match discord.fetch_channel(&target.id).await {
                    Ok(()) => Ok(target.id),
                    Err(error) if error.is_not_found() => discord.direct_channel(&target.id).await.map_err(failed),
                    Err(error) => Err(error.into_failure("get a channel", RepeatEffect::None)),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chat_is_parsed_in_all_its_spellings() {
        use TargetKind::{Channel, Unknown, User};
        for (text, id, kind) in [
            (" 123 ", "123", Unknown),
            ("discord:123", "123", Unknown),
            ("user:123", "123", User),
            ("discord:user:123", "123", User),
            ("<@123>", "123", User),
            ("<@!123>", "123", User),
            ("channel:123", "123", Channel),
            ("thread:123", "123", Channel),
            ("<#123>", "123", Channel),
        ] {
            assert_eq!(DiscordTarget::parse(text), Ok(DiscordTarget { id: id.to_owned(), kind }), "{text}");
        }
        for text in ["", "ann", "@ann", "#general", "user:", "<123>", "12 3", "../1"] {
            assert!(DiscordTarget::parse(text).is_err(), "{text}");
        }
    }
}
