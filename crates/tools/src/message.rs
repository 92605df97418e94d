//! The `message` tool: sends messages and polls to a chat platform, adds reactions, edits and deletes messages.
//!
//! This module checks the recipients; the [`ChannelSender`] delivers. A run of a non-owner may only write to the conversation
//! that it answers.

use std::{collections::BTreeMap, fmt, io::Read, path::Path, sync::Arc};

use async_trait::async_trait;
use base64::{Engine, engine::general_purpose::STANDARD};
use homard_agent::{
    channel_sender::{ChannelSender, MessageActionKind, OutgoingAction, OutgoingMedia, Poll, Receipt},
    tool::{Tool, ToolClass, ToolCx, ToolResult, ToolSpec},
};
use homard_proto::Route;
use homard_reply::sent::is_same_conversation;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    Error, FileAccess, Recipients,
    cancel_reader::CancelReader,
    error::{MachineError, PathError},
    failure, parse,
};

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
const NO_CHANNEL: &str = "no channel is configured, so nothing can be sent: reply here instead. The owner configures \
                          channels in the config, under channels";

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
pub struct MessageTool {
    sender: Option<Arc<dyn ChannelSender>>,
    rules: MessageRules,
    recipients: Recipients,
    files: FileAccess,
}

impl fmt::Debug for MessageTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageTool").field("rules", &self.rules).field("has_sender", &self.sender.is_some()).finish()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Args {
    action: MessageAction,
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
enum MessageAction {
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
enum MessageError {
    #[error("{0}")]
    Text(String),
    #[error(transparent)]
    File(#[from] Error),
}

impl MessageError {
    fn text<T>(reason: impl Into<String>) -> Result<T, Self> {
        Err(Self::Text(reason.into()))
    }
}

impl MessageTool {
    /// Creates the tool. Without a channel sender every call reports that no channel is configured.
    pub fn new(sender: Option<Arc<dyn ChannelSender>>, rules: MessageRules) -> Self {
        let recipients = Recipients::new(sender.clone(), Vec::new(), BTreeMap::new());
        Self { sender, rules, recipients, files: FileAccess::default() }
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

    async fn send(&self, cx: &ToolCx, arguments: Value) -> Result<ToolResult, MessageError> {
        let Some(sender) = &self.sender else { return MessageError::text(NO_CHANNEL) };
        let arguments: Args = parse(arguments)?;
        let mut outgoing = arguments.outgoing()?;
        let destinations = self.destinations(cx, &arguments)?;
        if arguments.dry_run == Some(true) {
            let to: Vec<_> = destinations
                .iter()
                .map(|destination| json!({"channel": destination.channel, "to": destination.to}))
                .collect();
            return Ok(json_result(
                json!({"ok": true, "dryRun": true, "action": outgoing.action.name(), "targets": to}),
            ));
        }
        outgoing.media = media(cx, &self.files, &arguments).await?;
        outgoing.hides_previews = !cx.may_load_urls();
        let mut results = Vec::new();
        for destination in destinations {
            let action = OutgoingAction {
                id: cx.hub.as_ref().map_or_else(|| cx.call.to_string(), |hub| hub.ambient().nonce()),
                channel: destination.channel.clone(),
                to: destination.to.clone().unwrap_or_default(),
                account: destination.account.clone(),
                thread: destination.thread.clone(),
                ..outgoing.clone()
            };
            let delivered = deliver(sender.as_ref(), action, &cx.cancel).await;
            self.recipients.audit(cx, NAME, &destination, if delivered.is_ok() { "ok" } else { "failed" });
            results.push((destination, delivered));
        }
        Ok(summary(&arguments, &outgoing, &results))
    }

    /// Returns the destinations, if all are allowed.
    fn destinations(&self, cx: &ToolCx, arguments: &Args) -> Result<Vec<Route>, MessageError> {
        let many = arguments.action == MessageAction::Broadcast;
        let recipients: Vec<_> = arguments.recipients().collect();
        match (many, recipients.len()) {
            (true, _) if !self.rules.broadcast => {
                return MessageError::text("broadcasts are disabled (tools.message.broadcast)");
            }
            (true, 0) => return MessageError::text("targets is empty: name the recipients"),
            (true, count) if count > MAX_TARGETS => {
                return MessageError::text(format!("at most {MAX_TARGETS} targets in one call"));
            }
            (false, 2..) => return MessageError::text("name one target, or use the action broadcast"),
            (true | false, _) => {}
        }
        let origin = &cx.origin.route;
        let destinations: Vec<_> = match &recipients[..] {
            [] => vec![arguments.current_conversation(origin)?],
            recipients => recipients.iter().map(|to| arguments.destination(to, origin)).collect(),
        };
        destinations.iter().try_for_each(|destination| self.check(cx, destination))?;
        // In a group, the message could be another member's.
        if arguments.action == MessageAction::Delete && !cx.origin.is_owner() {
            return MessageError::text("only the owner's runs may delete messages");
        }
        Ok(destinations)
    }

    fn check(&self, cx: &ToolCx, destination: &Route) -> Result<(), MessageError> {
        let origin = &cx.origin.route;
        let is_here = origin.channel.is_some() && is_same_conversation(destination, origin);
        if is_here {
            return Ok(());
        }
        if !cx.origin.is_owner() {
            return MessageError::text(
                "only the owner's runs may write to other chats: leave out target and channel to write here",
            );
        }
        // A run that was not started from a chat belongs to no platform.
        match &origin.channel {
            Some(channel) if destination.channel.as_ref() == Some(channel) && !self.rules.within_channel => {
                return MessageError::text(
                    "this chat may not send messages to other chats (tools.message.crossContext.allowWithinProvider)",
                );
            }
            Some(channel) if destination.channel.as_ref() != Some(channel) && !self.rules.across_channels => {
                return MessageError::text(format!(
                    "a chat on {channel} may not send messages to other channels \
                     (tools.message.crossContext.allowAcrossProviders)"
                ));
            }
            Some(_) | None => {}
        }
        self.recipients.check(cx, NAME, destination).map_err(MessageError::Text)
    }
}

fn non_blank(text: &Option<String>) -> Option<String> {
    text.as_deref().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned)
}

impl Args {
    fn recipients(&self) -> impl Iterator<Item = String> {
        let single = non_blank(&self.target).or_else(|| non_blank(&self.to));
        single.into_iter().chain(self.targets.iter().filter_map(|target| non_blank(&Some(target.clone()))))
    }

    /// Returns the conversation that the run answers.
    fn current_conversation(&self, origin: &Route) -> Result<Route, MessageError> {
        let channel = non_blank(&self.channel).map(|channel| channel.to_lowercase());
        let is_other = channel.is_some() && channel != origin.channel;
        if is_other || origin.to.is_none() {
            return MessageError::text("target is missing: name the recipient");
        }
        Ok(Route {
            account: non_blank(&self.account_id).or_else(|| origin.account.clone()),
            thread: non_blank(&self.thread_id).or_else(|| origin.thread.clone()),
            ..origin.clone()
        })
    }

    fn destination(&self, to: &str, origin: &Route) -> Route {
        let channel = non_blank(&self.channel).map(|channel| channel.to_lowercase()).or_else(|| origin.channel.clone());
        let account = non_blank(&self.account_id);
        let account = account.or_else(|| origin.account.clone().filter(|_| channel == origin.channel));
        Route { channel, to: Some(to.to_owned()), account, thread: non_blank(&self.thread_id) }
    }

    /// Returns the file name without path separators, so that it cannot name another directory on the receiving
    /// machine.
    fn file_name(&self) -> Option<String> {
        non_blank(&self.filename).map(|name| name.replace(['/', '\\'], "_"))
    }

    fn mime(&self) -> Option<String> {
        non_blank(&self.mime_type).or_else(|| non_blank(&self.content_type))
    }

    /// Returns the attachment given in the call itself, in Base64.
    fn inline_media(&self) -> Result<Option<OutgoingMedia>, MessageError> {
        let Some(text) = non_blank(&self.buffer) else { return Ok(None) };
        let (mime, text) = match text.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,")) {
            Some((mime, data)) => (Some(mime.to_owned()), data),
            None => (None, text.as_str()),
        };
        if text.len() as u64 > MAX_MIB * 1024 * 1024 / 3 * 4 {
            return MessageError::text(format!("buffer is larger than {MAX_MIB} MiB: send a smaller file"));
        }
        match STANDARD.decode(text) {
            Ok(bytes) => {
                let name = self.file_name().unwrap_or_else(|| "file".to_owned());
                Ok(Some(OutgoingMedia::Bytes { name, mime: self.mime().or(mime), bytes }))
            }
            Err(error) => MessageError::text(format!("buffer is not Base64: {error}")),
        }
    }

    /// Builds the poll.
    fn poll(&self) -> Result<Poll, MessageError> {
        let options: Vec<_> = self.poll_option.iter().filter_map(|option| non_blank(&Some(option.clone()))).collect();
        if !OPTIONS.contains(&options.len()) {
            let (least, max) = (OPTIONS.start(), OPTIONS.end());
            return MessageError::text(format!("pollOption must have {least} to {max} answers"));
        }
        let question = non_blank(&self.poll_question).unwrap_or_default();
        Ok(Poll { question, options, is_multiple: self.poll_multi == Some(true) })
    }

    /// Builds the outgoing action, without destination and attachments.
    fn outgoing(&self) -> Result<OutgoingAction, MessageError> {
        let action = match self.action {
            MessageAction::Send | MessageAction::Broadcast => MessageActionKind::Send,
            MessageAction::Reply => MessageActionKind::Reply,
            MessageAction::ThreadReply => MessageActionKind::ThreadReply,
            MessageAction::React if self.remove == Some(true) => MessageActionKind::Unreact,
            MessageAction::React => MessageActionKind::React,
            MessageAction::Edit => MessageActionKind::Edit,
            MessageAction::Delete => MessageActionKind::Delete,
            MessageAction::Poll => MessageActionKind::Poll,
            MessageAction::Read => MessageActionKind::Read,
        };
        let text = non_blank(&self.message).or_else(|| non_blank(&self.caption)).unwrap_or_default();
        let reply_to = non_blank(&self.reply_to).or_else(|| non_blank(&self.message_id));
        let has_media = [&self.media, &self.path, &self.file_path, &self.buffer]
            .into_iter()
            .any(|media| non_blank(media).is_some());
        let missing = match action {
            MessageActionKind::Send | MessageActionKind::Reply | MessageActionKind::ThreadReply
                if text.is_empty() && !has_media =>
            {
                "message"
            }
            MessageActionKind::Reply if reply_to.is_none() => "replyTo",
            MessageActionKind::ThreadReply if non_blank(&self.thread_id).is_none() => "threadId",
            MessageActionKind::React
            | MessageActionKind::Unreact
            | MessageActionKind::Edit
            | MessageActionKind::Delete
                if reply_to.is_none() =>
            {
                "messageId"
            }
            MessageActionKind::React if non_blank(&self.emoji).is_none() => "emoji",
            MessageActionKind::Edit if text.is_empty() => "message",
            MessageActionKind::Poll if non_blank(&self.poll_question).is_none() => "pollQuestion",
            MessageActionKind::Send
            | MessageActionKind::Reply
            | MessageActionKind::ThreadReply
            | MessageActionKind::React
            | MessageActionKind::Unreact
            | MessageActionKind::Edit
            | MessageActionKind::Delete
            | MessageActionKind::Poll
            | MessageActionKind::Read => "",
        };
        if !missing.is_empty() {
            return MessageError::text(format!("{missing} is missing: {} needs it", action.name()));
        }
        Ok(OutgoingAction {
            action,
            text,
            reply_to,
            emoji: non_blank(&self.emoji),
            poll: if action == MessageActionKind::Poll { Some(self.poll()?) } else { None },
            // `as` saturates, so out-of-range values become the nearest limit.
            limit: self.limit.map(|limit| (limit as usize).clamp(1, MAX_READ)),
            is_silent: self.silent == Some(true),
            is_voice: self.as_voice == Some(true),
            ..OutgoingAction::default()
        })
    }
}

/// Returns the attachments: a URL, a file of the workspace, or inline data.
async fn media(cx: &ToolCx, files: &FileAccess, arguments: &Args) -> Result<Vec<OutgoingMedia>, MessageError> {
    let source =
        non_blank(&arguments.media).or_else(|| non_blank(&arguments.path)).or_else(|| non_blank(&arguments.file_path));
    let Some(source) = source else { return Ok(arguments.inline_media()?.into_iter().collect()) };
    if source.starts_with("https://") || source.starts_with("http://") {
        if !cx.may_load_urls() {
            return MessageError::text("web_fetch is not allowed here, so URLs cannot be loaded: leave out media");
        }
        return Ok(vec![OutgoingMedia::Url(source)]);
    }
    if !cx.may_read_workspace() {
        return MessageError::text(
            "only the owner's runs may send files of the workspace: describe the content, or leave out the file",
        );
    }
    let path = source.strip_prefix("file://").unwrap_or(&source).to_owned();
    let default_name = Path::new(&path).file_name().map(|name| name.to_string_lossy().into_owned());
    let name = arguments.file_name().or(default_name).unwrap_or_default();
    let mime = arguments.mime();
    let (files, workdir, cancel) = (files.clone(), cx.workdir.clone(), cx.cancel.clone());
    let loading = tokio::task::spawn_blocking(move || load(&files, &workdir, &path, &cancel));
    let bytes = loading.await.map_err(Error::Thread)??;
    Ok(vec![OutgoingMedia::Bytes { name, mime, bytes }])
}

/// Reads an attachment confined to a directory, even through symlinks; the error says why it cannot be sent.
pub fn read_attachment(files: &FileAccess, folder: &Path, path: &str) -> Result<Vec<u8>, String> {
    let path = path.strip_prefix("file://").unwrap_or(path);
    load(files, folder, path, &CancellationToken::new()).map_err(|error| error.to_string())
}

fn load(files: &FileAccess, workdir: &Path, path: &str, cancel: &CancellationToken) -> Result<Vec<u8>, Error> {
    let file = files.open(workdir)?.file(path)?;
    let max = MAX_MIB * 1024 * 1024;
    let mut bytes = Vec::new();
    // One byte more than the limit, because the file may grow while it is read.
    let read = CancelReader::new(file, cancel).take(max + 1).read_to_end(&mut bytes);
    read.map_err(|source| Error::Machine(MachineError::Io { path: path.to_owned(), source }))?;
    match bytes.len() as u64 > max {
        true => Err(Error::Path(PathError::TooLarge { path: path.to_owned(), most: MAX_MIB })),
        false => Ok(bytes),
    }
}

async fn deliver(
    sender: &dyn ChannelSender,
    outgoing: OutgoingAction,
    cancel: &CancellationToken,
) -> Result<Receipt, String> {
    tokio::select! {
        biased;
        () = cancel.cancelled() => Err("the run was stopped; it is unknown whether the message was sent".to_owned()),
        delivered = sender.deliver(outgoing) => delivered.map_err(|error| error.to_string()),
    }
}

fn summary(arguments: &Args, outgoing: &OutgoingAction, results: &[(Route, Result<Receipt, String>)]) -> ToolResult {
    let action = outgoing.action.name();
    let row = |(destination, delivered): &(Route, Result<Receipt, String>)| match delivered {
        Ok(receipt) => {
            let mut row =
                json!({"ok": true, "channel": receipt.channel, "to": destination.to, "messageId": receipt.message});
            if !receipt.details.is_null() {
                row["result"] = receipt.details.clone();
            }
            row
        }
        Err(reason) => json!({"ok": false, "channel": destination.channel, "to": destination.to, "error": reason}),
    };
    let mut rows: Vec<_> = results.iter().map(row).collect();
    let is_ok = results.iter().any(|(_, delivered)| delivered.is_ok());
    let mut details = match (arguments.action, rows.pop()) {
        (MessageAction::Broadcast, last) => {
            json!({"ok": is_ok, "results": rows.into_iter().chain(last).collect::<Vec<_>>()})
        }
        (_, Some(row)) => row,
        (_, None) => json!({"ok": false}),
    };
    details["action"] = if arguments.action == MessageAction::Broadcast { "broadcast" } else { action }.into();
    ToolResult { is_error: !is_ok, ..json_result(details) }
}

fn json_result(details: Value) -> ToolResult {
    // Serializing a `Value` cannot fail.
    ToolResult::text(serde_json::to_string_pretty(&details).unwrap_or_default()).with_details(details)
}

#[async_trait]
impl Tool for MessageTool {
    fn spec(&self) -> ToolSpec {
        let text = |description: &str| json!({"type": "string", "description": description});
        ToolSpec {
            name: NAME.to_owned(),
            description: "Send messages on a chat platform: send, broadcast, reply, thread-reply, poll; react to a \
                          message; edit or delete your messages. Without a target, the message goes to the current \
                          chat. To reply there in the usual way, just answer."
                .to_owned(),
            parameters: json!({
                "type": "object",
                "required": ["action"],
                "properties": {
                    "action": {"type": "string", "enum": ["send", "broadcast", "reply", "thread-reply", "react", "edit", "delete", "poll", "read"]},
                    "channel": text("The platform; that of this conversation by default"),
                    "target": text("The person or group"),
                    "targets": {"type": "array", "items": {"type": "string"}, "description": "The recipients of a broadcast"},
                    "accountId": text("The account to send from"),
                    "message": text("The text to send"),
                    "media": text("A picture or file that goes with it: a path in the workspace, or an address"),
                    "path": text("The same as media"),
                    "filePath": text("The same as media"),
                    "buffer": text("The file itself in Base64, instead of media"),
                    "filename": text("What the file is called there"),
                    "mimeType": text("What the file is, such as image/png"),
                    "contentType": text("The same as mimeType"),
                    "caption": text("The text that goes with the file, instead of message"),
                    "replyTo": text("The message that is answered"),
                    "threadId": text("The thread"),
                    "messageId": text("The message that is reacted to, edited or deleted"),
                    "emoji": text("The reaction"),
                    "remove": {"type": "boolean", "description": "Remove the reaction"},
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
