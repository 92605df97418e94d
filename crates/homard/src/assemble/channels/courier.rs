//! Sends messages on channels: selects the account and loads attachments.

use std::{path::PathBuf, sync::Arc};

use async_trait::async_trait;
use homard_agent::courier::{Action, Courier, CourierError, Manner, Media, Outgoing, Receipt, Recipient};
use homard_audit::{Fact, What};
use homard_channels as channels;
use homard_channels::{Act, Failure, Place};
use homard_proto::{Route, RunId};
use homard_tools::{FileAccess, enclose};

use super::{Account, Channels};
use crate::config::channels::DEFAULT_ACCOUNT;

#[async_trait]
impl Courier for Channels {
    async fn deliver(&self, outgoing: Outgoing) -> Result<Receipt, CourierError> {
        let (channel, account) = self.speaker(outgoing.channel.as_deref(), outgoing.account.as_deref())?;
        let to = outgoing.to.clone();
        let said = self.carry(&account, outgoing).await;
        account.remember(&to, &said);
        account.standing.said(self.now(), said.as_ref().err().map(ToString::to_string));
        let receipt = said?;
        Ok(Receipt { message: receipt.message, channel, details: receipt.details })
    }

    fn manner(&self, channel: &str) -> Option<Manner> {
        let (_, account) = self.speaker(Some(channel), None).ok()?;
        let manner = account.channel.manner();
        let wanted = account.said.block_streaming;
        Some(Manner {
            text_limit: Some(manner.text_limit),
            is_idempotent: manner.is_idempotent,
            takes_blocks: if manner.has_blocks { wanted } else { Some(false) },
            replies: account.said.reply_to_mode.map(|word| word.0).unwrap_or_default(),
            allows_tags: true,
            usual_to: account.said.default_to.clone().or_else(|| self.usual_to(&account)),
            ..Manner::default()
        })
    }

    fn recipient(&self, route: &Route) -> Result<Recipient, CourierError> {
        let (channel, account) = self.speaker(route.channel.as_deref(), route.account.as_deref())?;
        let chat = |to: &str| account.channel.recipient(to);
        let id = chat(route.to.as_deref().unwrap_or_default()).map_err(error)?;
        let is_usual = account.said.default_to.as_deref().is_some_and(|to| chat(to).is_ok_and(|usual| usual == id));
        let is_known = is_usual || self.knows(&account, &id);
        Ok(Recipient { channel, account: account.name(), id, is_known })
    }
}

impl Channels {
    /// Records the hosts that the platform will load content from for a message: those of media, and that of a link
    /// preview.
    fn note_loads(&self, account: &Account, outgoing: &Outgoing) {
        let manner = account.channel.manner();
        let media = outgoing.media.iter().filter_map(|media| match media {
            Media::Url(url) => Some(("media", url.as_str())),
            Media::File { .. } | Media::Bytes { .. } => None,
        });
        let has_preview = manner.has_previews && !outgoing.hides_previews;
        let previewed = has_preview.then(|| first_address(&outgoing.text)).flatten();
        for (kind, address) in media.chain(previewed.map(|address| ("preview", address))) {
            let fact = Fact::new(What::Egress).by(outgoing.run.as_ref().map_or("message", RunId::as_str));
            let fact = fact.with("host", host(address)).with("channel", manner.channel).with("kind", kind);
            self.audit().note(fact.ended("asked"));
        }
    }

    async fn carry(&self, account: &Account, outgoing: Outgoing) -> Result<channels::Receipt, CourierError> {
        if !outgoing.action.speaks() {
            self.note_loads(account, &outgoing);
            return act(account, outgoing).await;
        }
        self.note_loads(account, &outgoing);
        let Outgoing { id, to, thread, run, reply_to, text, poll, is_silent, is_voice, hides_previews, .. } = outgoing;
        let poll = poll.map(|poll| channels::Poll {
            question: poll.question,
            options: poll.options,
            is_multiple: poll.is_multiple,
        });
        let (place, media) = (Place { to, thread }, media(&account.files(), outgoing.media).await?);
        let outgoing =
            channels::Outgoing { id, place, reply_to, text, media, is_silent, is_voice, poll, hides_previews };
        if let Some(run) = run
            && let Some(said) = self.drafts().become_answer(account.channel.as_ref(), &run, &outgoing).await
        {
            return said.map_err(error);
        }
        account.channel.send(outgoing).await.map_err(error)
    }

    /// Selects the account that sends: on the given channel, or the only one; with the given account, or the default
    /// one.
    pub(super) fn speaker(
        &self,
        channel: Option<&str>,
        account: Option<&str>,
    ) -> Result<(String, Arc<Account>), CourierError> {
        let accounts = self.accounts();
        let mut names: Vec<&str> = accounts.keys().map(|(channel, _)| channel.as_str()).collect();
        names.dedup();
        let channel = match (channel.map(|name| name.trim().to_lowercase()), names.as_slice()) {
            (Some(channel), _) => channel,
            (None, [only]) => (*only).to_owned(),
            (None, []) => return Err(CourierError::NoChannel("of any kind".to_owned())),
            (None, several) => return Err(CourierError::Ambiguous(several.join(", "))),
        };
        let of: Vec<_> = accounts.iter().filter(|((name, _), _)| *name == channel).collect();
        let wanted = account.map(|name| name.trim().to_lowercase());
        let found = match &wanted {
            Some(name) => of.iter().find(|((_, known), _)| known == name),
            None => of.iter().find(|((_, known), _)| known == DEFAULT_ACCOUNT).or_else(|| of.first()),
        };
        match (found, wanted) {
            (Some((_, account)), _) => Ok((channel, (*account).clone())),
            (None, Some(name)) if !of.is_empty() => {
                Err(CourierError::NoChannel(format!("{channel} with the account {name}")))
            }
            (None, _) => Err(CourierError::NoChannel(channel)),
        }
    }
}

/// Returns the first URL in a text.
fn first_address(text: &str) -> Option<&str> {
    let at = ["https://", "http://"].iter().filter_map(|scheme| text.find(scheme)).min()?;
    text[at..].split(|c: char| c.is_whitespace() || matches!(c, ')' | ']' | '>' | '"')).next()
}

/// Returns the host of a URL, or an empty string.
fn host(address: &str) -> &str {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let place = rest.split(['/', '?', '#']).next().unwrap_or_default();
    place.rsplit_once('@').map_or(place, |(_, place)| place)
}

/// Performs an action other than sending a message.
async fn act(account: &Account, outgoing: Outgoing) -> Result<channels::Receipt, CourierError> {
    let place = Place { to: outgoing.to, thread: outgoing.thread };
    let message = outgoing.reply_to.unwrap_or_default();
    let act = match outgoing.action {
        Action::React => Act::React { place, message, emoji: outgoing.emoji },
        Action::Unreact => Act::React { place, message, emoji: None },
        Action::Edit => Act::Edit { place, message, text: outgoing.text, hides_previews: outgoing.hides_previews },
        Action::Delete => Act::Delete { place, message },
        Action::Send | Action::Reply | Action::ThreadReply | Action::Poll | Action::Read => {
            let (channel, action) = (account.channel.manner().channel, outgoing.action.name());
            return Err(error(Failure::Unsupported { channel, action }));
        }
    };
    account.channel.act(act).await.map_err(error)
}

/// Loads the attachments of a message into memory: channels have no access to our files.
async fn media(files: &FileAccess, all: Vec<Media>) -> Result<Vec<channels::Media>, CourierError> {
    let mut loaded = Vec::new();
    for media in all {
        loaded.push(match media {
            Media::Url(url) => channels::Media::Url(url),
            Media::Bytes { name, mime, bytes } => channels::Media::Bytes { name, mime, bytes },
            Media::File { root, path } => file(files.clone(), root, path).await.map_err(CourierError::Refused)?,
        });
    }
    Ok(loaded)
}

async fn file(files: FileAccess, root: PathBuf, path: String) -> Result<channels::Media, String> {
    let name = path.rsplit('/').next().unwrap_or_default().to_owned();
    let shown = path.clone();
    let reading = tokio::task::spawn_blocking(move || enclose(&files, &root, &path)).await;
    let bytes = reading.map_err(|error| error.to_string()).flatten();
    let bytes = bytes.map_err(|why| format!("the file {shown} cannot go with the message: {why}"))?;
    Ok(channels::Media::Bytes { name, mime: None, bytes })
}

/// Maps a channel's failure to a delivery error.
pub(super) fn error(failure: Failure) -> CourierError {
    match failure {
        Failure::Unsupported { channel, action } => CourierError::Unsupported { channel: channel.to_owned(), action },
        Failure::Refused(why) => CourierError::Refused(why),
        Failure::RetryAfter { after, why } => CourierError::Unavailable { why, retry_after: Some(after) },
        Failure::Unavailable(why) => CourierError::Unavailable { why, retry_after: None },
        Failure::Unknown(why) => CourierError::Unknown(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m5_the_host_that_a_platform_asks_is_found_in_an_address() {
        for (text, expected) in [
            ("See https://evil.example/?d=1 and http://b.example", Some("evil.example")),
            ("[x](http://user:pw@evil.example:81/a)", Some("evil.example:81")),
            ("(https://evil.example)", Some("evil.example")),
            ("no address: example.org", None),
        ] {
            assert_eq!(first_address(text).map(host), expected, "{text}");
        }
    }
}
