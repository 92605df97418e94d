//! The `message` tool: sends messages and polls to a chat platform, adds reactions, edits and deletes messages.
//!
//! This module checks the recipients; the [`Courier`] delivers. A run of a non-owner may only write to the conversation
//! that it answers.

use std::{collections::BTreeMap, fmt, io::Read, path::Path, sync::Arc};

use async_trait::async_trait;
use base64::{Engine, engine::general_purpose::STANDARD};
use homard_agent::{
    courier::{Action, Courier, Media, Outgoing, Poll, Receipt},
    tool::{Tool, ToolClass, ToolCx, ToolResult, ToolSpec},
};
use homard_proto::Route;
use homard_reply::sent::is_same;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{Error, FileAccess, Recipients, failure, parse, stoppable::Stoppable};

const NAME: &str = "message";
/// Maximum size of an attachment in MiB.
const MAX_MIB: u64 = 16;
/// Maximum number of recipients of a broadcast.
const MAX_TARGETS: usize = 50;
/// Maximum number of messages read.
const MAX_READ: usize = 100;
/// Number of options of a poll.
const OPTIONS: std::ops::RangeInclusive<usize> = 2..=12;
/// Error message if no channel is configured.
const NO_CHANNEL: &str = "no channel is set up, so nothing can be sent: answer here instead. The owner sets channels up in \
                          the config, under channels";

/// Owner's limits on whom a conversation writes to: `tools.message`. [`Recipients`] is checked in addition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageRules {
    /// True if a conversation may write to another one on its platform.
    pub within_channel: bool,
    /// True if a conversation may write to another platform.
    pub across_channels: bool,
    /// True if one call may write to several recipients.
    pub broadcast: bool,
}

impl Default for MessageRules {
    fn default() -> Self {
        Self { within_channel: true, across_channels: false, broadcast: true }
    }
}

/// Sends messages to a chat platform.
#[derive(Clone, Default)]
pub struct Message {
    courier: Option<Arc<dyn Courier>>,
    rules: MessageRules,
    recipients: Recipients,
    files: FileAccess,
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message").field("rules", &self.rules).field("has_courier", &self.courier.is_some()).finish()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Arguments {
    action: Word,
    channel: Option<String>,
    target: Option<String>,
    to: Option<String>,
    #[serde(default)]
    targets: Vec<String>,
    account_id: Option<String>,
    thread_id: Option<String>,
    reply_to: Option<String>,
    message_id: Option<String>,
    message: Option<String>,
    caption: Option<String>,
    media: Option<String>,
    path: Option<String>,
    file_path: Option<String>,
    buffer: Option<String>,
    filename: Option<String>,
    mime_type: Option<String>,
    content_type: Option<String>,
    emoji: Option<String>,
    remove: Option<bool>,
    poll_question: Option<String>,
    #[serde(default)]
    poll_option: Vec<String>,
    poll_multi: Option<bool>,
    as_voice: Option<bool>,
    limit: Option<f64>,
    silent: Option<bool>,
    dry_run: Option<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Word {
    Send,
    Broadcast,
    Reply,
    ThreadReply,
    React,
    Edit,
    #[serde(alias = "unsend")]
    Delete,
    Poll,
    Read,
}

/// Why nothing was sent.
#[derive(Debug, thiserror::Error)]
enum No {
    #[error("{0}")]
    Said(String),
    #[error(transparent)]
    File(#[from] Error),
}

impl No {
    fn said<T>(why: impl Into<String>) -> Result<T, Self> {
        Err(Self::Said(why.into()))
    }
}

impl Message {
    /// Creates the tool. Without a channel sender every call reports that no channel is configured.
    pub fn new(courier: Option<Arc<dyn Courier>>, rules: MessageRules) -> Self {
        let recipients = Recipients::new(courier.clone(), Vec::new(), BTreeMap::new());
        Self { courier, rules, recipients, files: FileAccess::default() }
    }

    /// Sets the allowed recipients.
    #[must_use]
    pub fn with_recipients(self, recipients: Recipients) -> Self {
        Self { recipients, ..self }
    }

    /// Sets the file access for attachments.
    #[must_use]
    pub fn with_files(self, files: FileAccess) -> Self {
        Self { files, ..self }
    }

    async fn send(&self, cx: &ToolCx, arguments: Value) -> Result<ToolResult, No> {
        let Some(courier) = &self.courier else { return No::said(NO_CHANNEL) };
        let arguments: Arguments = parse(arguments)?;
        let mut outgoing = arguments.outgoing()?;
        let places = self.places(cx, &arguments)?;
        if arguments.dry_run == Some(true) {
            let to: Vec<_> = places.iter().map(|place| json!({"channel": place.channel, "to": place.to})).collect();
            return Ok(told(json!({"ok": true, "dryRun": true, "action": outgoing.action.name(), "targets": to})));
        }
        outgoing.media = media((cx, &self.files), &arguments).await?;
        outgoing.hides_previews = !cx.loads_addresses();
        let mut results = Vec::new();
        for place in places {
            let mine = Outgoing {
                id: cx.hub.as_ref().map_or_else(|| cx.call.to_string(), |hub| hub.ambient().nonce()),
                channel: place.channel.clone(),
                to: place.to.clone().unwrap_or_default(),
                account: place.account.clone(),
                thread: place.thread.clone(),
                ..outgoing.clone()
            };
            let carried = carry(courier.as_ref(), mine, &cx.cancel).await;
            self.recipients.note((cx, NAME), &place, if carried.is_ok() { "ok" } else { "failed" });
            results.push((place, carried));
        }
        Ok(summary(&arguments, &outgoing, &results))
    }

    /// Returns the destinations, if all are allowed.
    fn places(&self, cx: &ToolCx, arguments: &Arguments) -> Result<Vec<Route>, No> {
        let many = arguments.action == Word::Broadcast;
        let named: Vec<_> = arguments.named().collect();
        match (many, named.len()) {
            (true, _) if !self.rules.broadcast => return No::said("broadcasts are off (tools.message.broadcast)"),
            (true, 0) => return No::said("targets is empty: name those who are to get it"),
            (true, count) if count > MAX_TARGETS => {
                return No::said(format!("at most {MAX_TARGETS} targets in one call"));
            }
            (false, 2..) => return No::said("name one target, or use the action broadcast"),
            (true | false, _) => {}
        }
        let origin = &cx.origin.route;
        let places: Vec<_> = match &named[..] {
            [] => vec![arguments.here(origin)?],
            named => named.iter().map(|to| arguments.there(to, origin)).collect(),
        };
        places.iter().try_for_each(|place| self.check(cx, place))?;
        // In a group, the message could be another member's.
        if arguments.action == Word::Delete && !cx.origin.is_owner() {
            return No::said("only the owner's runs take messages back");
        }
        Ok(places)
    }

    fn check(&self, cx: &ToolCx, place: &Route) -> Result<(), No> {
        let origin = &cx.origin.route;
        let is_here = origin.channel.is_some() && is_same(place, origin);
        if is_here {
            return Ok(());
        }
        if !cx.origin.is_owner() {
            return No::said("only the owner's runs write elsewhere: leave out target and channel to write here");
        }
        // A run that was not started from a chat belongs to no platform.
        match &origin.channel {
            Some(channel) if place.channel.as_ref() == Some(channel) && !self.rules.within_channel => {
                return No::said(
                    "other conversations may not be written to from this one \
                     (tools.message.crossContext.allowWithinProvider)",
                );
            }
            Some(channel) if place.channel.as_ref() != Some(channel) && !self.rules.across_channels => {
                return No::said(format!(
                    "a conversation on {channel} does not write to other platforms \
                     (tools.message.crossContext.allowAcrossProviders)"
                ));
            }
            Some(_) | None => {}
        }
        self.recipients.check((cx, NAME), place).map_err(No::Said)
    }
}

fn given(text: &Option<String>) -> Option<String> {
    text.as_deref().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned)
}

impl Arguments {
    fn named(&self) -> impl Iterator<Item = String> {
        let one = given(&self.target).or_else(|| given(&self.to));
        one.into_iter().chain(self.targets.iter().filter_map(|target| given(&Some(target.clone()))))
    }

    /// Returns the conversation that the run answers.
    fn here(&self, origin: &Route) -> Result<Route, No> {
        let channel = given(&self.channel).map(|channel| channel.to_lowercase());
        let is_other = channel.is_some() && channel != origin.channel;
        if is_other || origin.to.is_none() {
            return No::said("target is missing: say to whom it goes");
        }
        Ok(Route {
            account: given(&self.account_id).or_else(|| origin.account.clone()),
            thread: given(&self.thread_id).or_else(|| origin.thread.clone()),
            ..origin.clone()
        })
    }

    fn there(&self, to: &str, origin: &Route) -> Route {
        let channel = given(&self.channel).map(|channel| channel.to_lowercase()).or_else(|| origin.channel.clone());
        let account = given(&self.account_id);
        let account = account.or_else(|| origin.account.clone().filter(|_| channel == origin.channel));
        Route { channel, to: Some(to.to_owned()), account, thread: given(&self.thread_id) }
    }

    /// Returns the file name without path separators, so that it cannot name another directory on the receiving
    /// machine.
    fn file_name(&self) -> Option<String> {
        given(&self.filename).map(|name| name.replace(['/', '\\'], "_"))
    }

    fn mime(&self) -> Option<String> {
        given(&self.mime_type).or_else(|| given(&self.content_type))
    }

    /// Returns the attachment given in the call itself, in Base64.
    fn enclosed(&self) -> Result<Option<Media>, No> {
        let Some(text) = given(&self.buffer) else { return Ok(None) };
        let (mime, text) = match text.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,")) {
            Some((mime, data)) => (Some(mime.to_owned()), data),
            None => (None, text.as_str()),
        };
        if text.len() as u64 > MAX_MIB * 1024 * 1024 / 3 * 4 {
            return No::said(format!(
                "buffer is larger than {MAX_MIB} MiB: put the file into the workspace and send less"
            ));
        }
        match STANDARD.decode(text) {
            Ok(bytes) => {
                let name = self.file_name().unwrap_or_else(|| "file".to_owned());
                Ok(Some(Media::Bytes { name, mime: self.mime().or(mime), bytes }))
            }
            Err(error) => No::said(format!("buffer is not Base64: {error}")),
        }
    }

    /// Builds the poll.
    fn poll(&self) -> Result<Poll, No> {
        let options: Vec<_> = self.poll_option.iter().filter_map(|option| given(&Some(option.clone()))).collect();
        if !OPTIONS.contains(&options.len()) {
            let (least, most) = (OPTIONS.start(), OPTIONS.end());
            return No::said(format!("pollOption must have {least} to {most} answers"));
        }
        let question = given(&self.poll_question).unwrap_or_default();
        Ok(Poll { question, options, is_multiple: self.poll_multi == Some(true) })
    }

    /// Builds the outgoing action, without destination and attachments.
    fn outgoing(&self) -> Result<Outgoing, No> {
        let action = match self.action {
            Word::Send | Word::Broadcast => Action::Send,
            Word::Reply => Action::Reply,
            Word::ThreadReply => Action::ThreadReply,
            Word::React if self.remove == Some(true) => Action::Unreact,
            Word::React => Action::React,
            Word::Edit => Action::Edit,
            Word::Delete => Action::Delete,
            Word::Poll => Action::Poll,
            Word::Read => Action::Read,
        };
        let text = given(&self.message).or_else(|| given(&self.caption)).unwrap_or_default();
        let reply_to = given(&self.reply_to).or_else(|| given(&self.message_id));
        let has_media =
            [&self.media, &self.path, &self.file_path, &self.buffer].into_iter().any(|media| given(media).is_some());
        let missing = match action {
            Action::Send | Action::Reply | Action::ThreadReply if text.is_empty() && !has_media => "message",
            Action::Reply if reply_to.is_none() => "replyTo",
            Action::ThreadReply if given(&self.thread_id).is_none() => "threadId",
            Action::React | Action::Unreact | Action::Edit | Action::Delete if reply_to.is_none() => "messageId",
            Action::React if given(&self.emoji).is_none() => "emoji",
            Action::Edit if text.is_empty() => "message",
            Action::Poll if given(&self.poll_question).is_none() => "pollQuestion",
            Action::Send
            | Action::Reply
            | Action::ThreadReply
            | Action::React
            | Action::Unreact
            | Action::Edit
            | Action::Delete
            | Action::Poll
            | Action::Read => "",
        };
        if !missing.is_empty() {
            return No::said(format!("{missing} is missing: {} needs it", action.name()));
        }
        Ok(Outgoing {
            action,
            text,
            reply_to,
            emoji: given(&self.emoji),
            poll: if action == Action::Poll { Some(self.poll()?) } else { None },
            // `as` saturates, so out-of-range values become the nearest limit.
            limit: self.limit.map(|limit| (limit as usize).clamp(1, MAX_READ)),
            is_silent: self.silent == Some(true),
            is_voice: self.as_voice == Some(true),
            ..Outgoing::default()
        })
    }
}

/// Returns the attachments: a URL, a file of the workspace, or inline data.
async fn media((cx, files): (&ToolCx, &FileAccess), arguments: &Arguments) -> Result<Vec<Media>, No> {
    let named = given(&arguments.media).or_else(|| given(&arguments.path)).or_else(|| given(&arguments.file_path));
    let Some(named) = named else { return Ok(arguments.enclosed()?.into_iter().collect()) };
    if named.starts_with("https://") || named.starts_with("http://") {
        if !cx.loads_addresses() {
            return No::said("web_fetch is not allowed here, so no address is loaded: leave media out");
        }
        return Ok(vec![Media::Url(named)]);
    }
    if !cx.opens_workspace() {
        return No::said("only the owner's runs send files of the workspace: say what is in it, or leave it out");
    }
    let path = named.strip_prefix("file://").unwrap_or(&named).to_owned();
    let usual = Path::new(&path).file_name().map(|name| name.to_string_lossy().into_owned());
    let name = arguments.file_name().or(usual).unwrap_or_default();
    let mime = arguments.mime();
    let (files, workdir, cancel) = (files.clone(), cx.workdir.clone(), cx.cancel.clone());
    let loading = tokio::task::spawn_blocking(move || load((&files, &workdir), &path, &cancel));
    let bytes = loading.await.map_err(Error::Thread)??;
    Ok(vec![Media::Bytes { name, mime, bytes }])
}

/// Reads an attachment confined to a directory, even through symlinks; the error says why it cannot be sent.
pub fn enclose(files: &FileAccess, folder: &Path, path: &str) -> Result<Vec<u8>, String> {
    let path = path.strip_prefix("file://").unwrap_or(path);
    load((files, folder), path, &CancellationToken::new()).map_err(|error| error.to_string())
}

fn load((files, workdir): (&FileAccess, &Path), path: &str, cancel: &CancellationToken) -> Result<Vec<u8>, Error> {
    let file = files.open(workdir)?.file(path)?;
    let most = MAX_MIB * 1024 * 1024;
    let mut bytes = Vec::new();
    // One byte more than the limit, because the file may grow while it is read.
    let read = Stoppable::new(file, cancel).take(most + 1).read_to_end(&mut bytes);
    read.map_err(|source| Error::Io { path: path.to_owned(), source })?;
    match bytes.len() as u64 > most {
        true => Err(Error::TooLarge { path: path.to_owned(), most: MAX_MIB }),
        false => Ok(bytes),
    }
}

async fn carry(courier: &dyn Courier, outgoing: Outgoing, cancel: &CancellationToken) -> Result<Receipt, String> {
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err("the run was stopped; nobody knows whether it was sent".to_owned()),
        carried = courier.deliver(outgoing) => carried.map_err(|error| error.to_string()),
    }
}

fn summary(arguments: &Arguments, outgoing: &Outgoing, results: &[(Route, Result<Receipt, String>)]) -> ToolResult {
    let action = outgoing.action.name();
    let row = |(place, carried): &(Route, Result<Receipt, String>)| match carried {
        Ok(receipt) => {
            let mut row = json!({"ok": true, "channel": receipt.channel, "to": place.to, "messageId": receipt.message});
            if !receipt.details.is_null() {
                row["result"] = receipt.details.clone();
            }
            row
        }
        Err(why) => json!({"ok": false, "channel": place.channel, "to": place.to, "error": why}),
    };
    let mut rows: Vec<_> = results.iter().map(row).collect();
    let is_ok = results.iter().any(|(_, carried)| carried.is_ok());
    let mut facts = match (arguments.action, rows.pop()) {
        (Word::Broadcast, last) => json!({"ok": is_ok, "results": rows.into_iter().chain(last).collect::<Vec<_>>()}),
        (_, Some(row)) => row,
        (_, None) => json!({"ok": false}),
    };
    facts["action"] = if arguments.action == Word::Broadcast { "broadcast" } else { action }.into();
    ToolResult { is_error: !is_ok, ..told(facts) }
}

fn told(facts: Value) -> ToolResult {
    // Serializing a `Value` cannot fail.
    ToolResult::text(serde_json::to_string_pretty(&facts).unwrap_or_default()).with_details(facts)
}

#[async_trait]
impl Tool for Message {
    fn spec(&self) -> ToolSpec {
        let text = |description: &str| json!({"type": "string", "description": description});
        ToolSpec {
            name: NAME.to_owned(),
            description: "Say something on a chat platform: send, broadcast, reply, thread-reply, poll; react to a message; \
                          edit or delete what you said. Without a target it goes to the conversation that is being answered. To answer there in the usual way, just \
                          answer."
                .to_owned(),
            parameters: json!({
                "type": "object",
                "required": ["action"],
                "properties": {
                    "action": {"type": "string", "enum": ["send", "broadcast", "reply", "thread-reply", "react", "edit", "delete", "poll", "read"]},
                    "channel": text("The platform; that of this conversation by default"),
                    "target": text("The person or group"),
                    "targets": {"type": "array", "items": {"type": "string"}, "description": "Those who get a broadcast"},
                    "accountId": text("The account that speaks"),
                    "message": text("What to say"),
                    "media": text("A picture or file that goes with it: a path in the workspace, or an address"),
                    "path": text("The same as media"),
                    "filePath": text("The same as media"),
                    "buffer": text("The file itself in Base64, instead of media"),
                    "filename": text("What the file is called there"),
                    "mimeType": text("What the file is, such as image/png"),
                    "contentType": text("The same as mimeType"),
                    "caption": text("What is said with the file, instead of message"),
                    "replyTo": text("The message that is answered"),
                    "threadId": text("The thread"),
                    "messageId": text("The message that is reacted to, edited or deleted"),
                    "emoji": text("The reaction"),
                    "remove": {"type": "boolean", "description": "Take the reaction off"},
                    "pollQuestion": text("What a poll asks"),
                    "pollOption": {"type": "array", "items": {"type": "string"}, "description": "Its answers: 2 to 12"},
                    "pollMulti": {"type": "boolean", "description": "Several answers may be chosen"},
                    "asVoice": {"type": "boolean", "description": "Send a sound file as a voice message"},
                    "limit": {"type": "number", "description": "How many messages to read; at most 100"},
                    "silent": {"type": "boolean", "description": "Without a sound"},
                    "dryRun": {"type": "boolean", "description": "Only say what would be sent to whom"},
                },
            }),
        }
    }

    fn class(&self) -> ToolClass {
        ToolClass::Effect
    }

    async fn call(&self, cx: ToolCx, arguments: Value) -> ToolResult {
        self.send(&cx, arguments).await.unwrap_or_else(|no| failure(NAME, &no))
    }
}
