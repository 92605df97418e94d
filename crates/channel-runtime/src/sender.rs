//! Sends messages on channels: selects the account and loads attachments.

use std::{path::PathBuf, sync::Arc};

use async_trait::async_trait;
use homard_agent::channel_sender::{
    ChannelSender, ChannelTraits, MessageActionKind, OutgoingAction, OutgoingMedia, Receipt, Recipient, SendError,
};
use homard_audit::{AuditKind, AuditRecord};
use homard_channels as channels;
use homard_channels::{ChannelAction, ChannelError, Destination};
use homard_proto::{Route, RunId};
use homard_settings::channels::DEFAULT_ACCOUNT;
use homard_tools::{FileAccess, read_attachment};

use super::{AccountRuntime, Channels};

#[async_trait]
impl ChannelSender for Channels {
    async fn deliver(&self, outgoing: OutgoingAction) -> Result<Receipt, SendError> {
        let (channel, account) = self.select_account(outgoing.channel.as_deref(), outgoing.account.as_deref())?;
        let to = outgoing.to.clone();
        let result = self.send_outgoing(&account, outgoing).await;
        account.remember(&to, &result);
        account.status.sent(self.now(), result.as_ref().err().map(ToString::to_string));
        let receipt = result?;
        Ok(Receipt { message: receipt.message, channel, details: receipt.details })
    }

    fn traits(&self, channel: &str) -> Option<ChannelTraits> {
        let (_, account) = self.select_account(Some(channel), None).ok()?;
        let capabilities = account.channel.capabilities();
        let block_streaming = account.config.block_streaming;
        Some(ChannelTraits {
            text_limit: Some(capabilities.text_limit),
            is_idempotent: capabilities.is_idempotent,
            takes_blocks: if capabilities.has_blocks { block_streaming } else { Some(false) },
            replies: account.config.reply_to_mode.map(|word| word.0).unwrap_or_default(),
            allows_tags: true,
            default_recipient: account.config.default_to.clone().or_else(|| self.default_recipient(&account)),
            ..ChannelTraits::default()
        })
    }

    fn recipient(&self, route: &Route) -> Result<Recipient, SendError> {
        let (channel, account) = self.select_account(route.channel.as_deref(), route.account.as_deref())?;
        let chat = |to: &str| account.channel.recipient(to);
        let id = chat(route.to.as_deref().unwrap_or_default()).map_err(delivery_error)?;
        let is_usual =
            account.config.default_to.as_deref().is_some_and(|to| chat(to).is_ok_and(|default_id| default_id == id));
        let is_known = is_usual || self.is_known_chat(&account, &id);
        Ok(Recipient { channel, account: account.name(), id, is_known })
    }
}

impl Channels {
    /// Records the hosts that the platform will load content from for a message: those of media, and that of a link
    /// preview.
    fn record_loads(&self, account: &AccountRuntime, outgoing: &OutgoingAction) {
        let capabilities = account.channel.capabilities();
        let media = outgoing.media.iter().filter_map(|media| match media {
            OutgoingMedia::Url(url) => Some(("media", url.as_str())),
            OutgoingMedia::File { .. } | OutgoingMedia::Bytes { .. } => None,
        });
        let has_preview = capabilities.has_previews && !outgoing.hides_previews;
        let previewed = has_preview.then(|| first_url(&outgoing.text)).flatten();
        for (kind, address) in media.chain(previewed.map(|address| ("preview", address))) {
            let record =
                AuditRecord::new(AuditKind::Egress).actor(outgoing.run.as_ref().map_or("message", RunId::as_str));
            let record = record.with("host", host(address)).with("channel", capabilities.channel).with("kind", kind);
            self.audit().note(record.outcome("asked"));
        }
    }

    async fn send_outgoing(
        &self,
        account: &AccountRuntime,
        outgoing: OutgoingAction,
    ) -> Result<channels::Receipt, SendError> {
        if !outgoing.action.is_message() {
            self.record_loads(account, &outgoing);
            return perform_action(account, outgoing).await;
        }
        self.record_loads(account, &outgoing);
        let OutgoingAction { id, to, thread, run, reply_to, text, poll, is_silent, is_voice, hides_previews, .. } =
            outgoing;
        let poll = poll.map(|poll| channels::Poll {
            question: poll.question,
            options: poll.options,
            is_multiple: poll.is_multiple,
        });
        let (destination, media) = (Destination { to, thread }, media(&account.files(), outgoing.media).await?);
        let outgoing =
            channels::Outgoing { id, destination, reply_to, text, media, is_silent, is_voice, poll, hides_previews };
        if let Some(run) = run
            && let Some(result) = self.drafts().replace_with_reply(account.channel.as_ref(), &run, &outgoing).await
        {
            return result.map_err(delivery_error);
        }
        account.channel.send(outgoing).await.map_err(delivery_error)
    }

    /// Selects the account that sends: on the given channel, or the only one; with the given account, or the default
    /// one.
    pub(super) fn select_account(
        &self,
        channel: Option<&str>,
        account: Option<&str>,
    ) -> Result<(String, Arc<AccountRuntime>), SendError> {
        let accounts = self.accounts();
        let mut names: Vec<&str> = accounts.keys().map(|(channel, _)| channel.as_str()).collect();
        names.dedup();
        let channel = match (channel.map(|name| name.trim().to_lowercase()), names.as_slice()) {
            (Some(channel), _) => channel,
            (None, [only]) => (*only).to_owned(),
            (None, []) => return Err(SendError::NoChannels),
            (None, several) => return Err(SendError::Ambiguous(several.join(", "))),
        };
        let matching: Vec<_> = accounts.iter().filter(|((name, _), _)| *name == channel).collect();
        let account_name = account.map(|name| name.trim().to_lowercase());
        let found = match &account_name {
            Some(name) => matching.iter().find(|((_, known), _)| known == name),
            None => matching.iter().find(|((_, known), _)| known == DEFAULT_ACCOUNT).or_else(|| matching.first()),
        };
        match (found, account_name) {
            (Some((_, account)), _) => Ok((channel, (*account).clone())),
            (None, Some(name)) if !matching.is_empty() => {
                Err(SendError::NoChannel(format!("{channel} (account {name})")))
            }
            (None, _) => Err(SendError::NoChannel(channel)),
        }
    }
}

/// Returns the first URL in a text.
fn first_url(text: &str) -> Option<&str> {
    let at = ["https://", "http://"].iter().filter_map(|scheme| text.find(scheme)).min()?;
    text[at..].split(|c: char| c.is_whitespace() || matches!(c, ')' | ']' | '>' | '"')).next()
}

/// Returns the host of a URL, or an empty string.
fn host(address: &str) -> &str {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit_once('@').map_or(authority, |(_, authority)| authority)
}

/// Performs an action other than sending a message.
async fn perform_action(account: &AccountRuntime, outgoing: OutgoingAction) -> Result<channels::Receipt, SendError> {
    let destination = Destination { to: outgoing.to, thread: outgoing.thread };
    let message = outgoing.reply_to.unwrap_or_default();
    let channel_action = match outgoing.action {
        MessageActionKind::React => ChannelAction::React { destination, message, emoji: outgoing.emoji },
        MessageActionKind::Unreact => ChannelAction::React { destination, message, emoji: None },
        MessageActionKind::Edit => {
            ChannelAction::Edit { destination, message, text: outgoing.text, hides_previews: outgoing.hides_previews }
        }
        MessageActionKind::Delete => ChannelAction::Delete { destination, message },
        MessageActionKind::Send
        | MessageActionKind::Reply
        | MessageActionKind::ThreadReply
        | MessageActionKind::Poll
        | MessageActionKind::Read => {
            let (channel, action) = (account.channel.capabilities().channel, outgoing.action.name());
            return Err(delivery_error(ChannelError::Unsupported { channel, action }));
        }
    };
    account.channel.perform(channel_action).await.map_err(delivery_error)
}

/// Loads the attachments of a message into memory: channels have no access to our files.
async fn media(files: &FileAccess, all: Vec<OutgoingMedia>) -> Result<Vec<channels::Media>, SendError> {
    let mut loaded = Vec::new();
    for media in all {
        loaded.push(match media {
            OutgoingMedia::Url(url) => channels::Media::Url(url),
            OutgoingMedia::Bytes { name, mime, bytes } => channels::Media::Bytes { name, mime, bytes },
            OutgoingMedia::File { root, path } => file(files.clone(), root, path).await.map_err(SendError::Refused)?,
        });
    }
    Ok(loaded)
}

async fn file(files: FileAccess, root: PathBuf, path: String) -> Result<channels::Media, String> {
    let name = path.rsplit('/').next().unwrap_or_default().to_owned();
    let file_path = path.clone();
    let read_result = tokio::task::spawn_blocking(move || read_attachment(&files, &root, &path)).await;
    let bytes = read_result.map_err(|error| error.to_string()).flatten();
    let bytes = bytes.map_err(|why| format!("cannot attach the file {file_path}: {why}"))?;
    Ok(channels::Media::Bytes { name, mime: None, bytes })
}

/// Maps a channel's failure to a delivery error.
pub(super) fn delivery_error(failure: ChannelError) -> SendError {
    match failure {
        ChannelError::Unsupported { channel, action } => SendError::Unsupported { channel: channel.to_owned(), action },
        ChannelError::Refused(why) => SendError::Refused(why),
        ChannelError::RetryAfter { after, why } => SendError::Unavailable { why, retry_after: Some(after) },
        ChannelError::Unavailable(why) => SendError::Unavailable { why, retry_after: None },
        ChannelError::Unknown(why) => SendError::Unknown(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_the_first_url_is_found() {
        for (text, expected) in [
            ("See https://evil.example/?d=1 and http://b.example", Some("evil.example")),
            ("[x](http://user:pw@evil.example:81/a)", Some("evil.example:81")),
            ("(https://evil.example)", Some("evil.example")),
            ("no address: example.org", None),
        ] {
            assert_eq!(first_url(text).map(host), expected, "{text}");
        }
    }
}
