//! Records that are committed to a store, and its verdicts.

use std::{path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use homard_proto::{
    CallId, EntryId, Route, RunId, SessionId, SessionKey,
    message::{Message, ToolResult, Usage},
    session,
    transcript::{Entry, Header},
};

use crate::{Delivery, DeliveryState, ReplyDelivery, timeline::RunTimeline};

/// A record: one durable fact in the journal.
#[derive(Debug, Clone, PartialEq)]
pub enum Rec {
    /// A message was accepted: from here on it is never lost.
    Accept(Box<Accept>),
    /// The run starts in this session.
    Start(Start),
    /// The run's own message, and those it absorbed, enter the transcript.
    Input(Input),
    /// A transcript entry. The store sets its parent: the last entry of that transcript.
    Entry {
        /// Run that the entry belongs to; `None` for an entry from elsewhere.
        run: Option<RunId>,
        /// Session key.
        key: SessionKey,
        /// Session id of the transcript: a run stays in the transcript in which it started, even if its key gets a new
        /// session meanwhile.
        session: SessionId,
        /// The entry.
        entry: Box<Entry>,
    },
    /// A tool with side effects is about to start.
    ToolIntent {
        /// Run id.
        run: RunId,
        /// Call id.
        call: CallId,
        /// Whether the call may be repeated.
        class: ToolClass,
    },
    /// A tool call finished. Its entry follows once those of the preceding calls are written.
    ToolDone {
        /// Run id.
        run: RunId,
        /// Its result.
        result: Box<ToolResult>,
    },
    /// An abort of the run was requested: a restart does not resume it.
    Abort {
        /// Run id.
        run: RunId,
        /// Reason.
        reason: AbortReason,
    },
    /// A started run is held: no restart resumes it until it is released. Its transcript is complete.
    Hold {
        /// Run id.
        run: RunId,
        /// Time in milliseconds since the epoch.
        at: u64,
    },
    /// A held run is queued again; its message enters the transcript once more when it starts.
    Release {
        /// Run id.
        run: RunId,
        /// Time in milliseconds since the epoch.
        at: u64,
    },
    /// The run ended. Only the first such record of a run counts.
    Terminal {
        /// Run id.
        run: RunId,
        /// How it ended.
        ended: Box<EndRecord>,
    },
    /// Replaces a session record, if the key still refers to the expected session.
    Patch {
        /// Run that it belongs to; `None` for a change from elsewhere.
        run: Option<RunId>,
        /// Session key.
        key: SessionKey,
        /// Expected session id; `None` for a session that does not exist yet.
        expect: Option<SessionId>,
        /// The complete new record.
        record: Box<session::Record>,
    },
    /// Deletes a session, if the key still refers to the expected one. Its transcript is archived, not destroyed.
    Delete {
        /// Session key.
        key: SessionKey,
        /// Expected session id.
        expect: SessionId,
    },
    /// Queues a delivery to a channel: from here on it is never lost.
    Queue(Box<Delivery>),
    /// Changes the state of a delivery, if the transition is allowed.
    Deliver {
        /// Delivery id.
        id: String,
        /// New state.
        state: DeliveryState,
        /// Time in milliseconds since the epoch.
        at: u64,
    },
}

/// An accepted message.
#[derive(Debug, Clone, PartialEq)]
pub struct Accept {
    /// Run that it requests.
    pub run: RunId,
    /// Who requests it.
    pub principal: String,
    /// RPC method of the request.
    pub method: String,
    /// Digest of the request: the same id with another digest is a conflict.
    pub fingerprint: String,
    /// Session key.
    pub key: SessionKey,
    /// The message.
    pub message: Message,
    /// Further options of its run.
    pub options: Options,
    /// Channel event that brought it; used for deduplication, because channels redeliver events.
    pub origin: Option<Origin>,
    /// Time in milliseconds since the epoch.
    pub at: u64,
}

/// Identity of the channel event that a message came from. As long as the event's run is stored, the same event starts
/// no second run.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Origin {
    /// Channel.
    pub channel: String,
    /// Own account on the channel that received it.
    pub account: String,
    /// The channel's id of the event.
    pub event: String,
    /// The channel's id of the message, if the event has another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Options of a run in addition to its message; they survive a restart.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Options {
    /// Concurrency class of the run; empty for the one that its session implies.
    #[serde(rename = "lane")]
    pub class: String,
    /// Time limit; `None` for the agent's own limit.
    pub timeout: Option<Duration>,
    /// Text appended to the system prompt.
    pub extra_prompt: Option<String>,
    /// What happens if a restart finds the run unfinished, as the sender wants it.
    pub on_restart: OnRestart,
    /// True if a message that does not fit into the context window is refused rather than truncated.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_strict: bool,
    /// Origin of the message and destination of the reply.
    #[serde(skip_serializing_if = "is_nowhere")]
    pub route: Route,
    /// True if the text is literal and never parsed as a command.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_literal: bool,
    /// Queue settings of this message, in command syntax; empty if none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub queue: String,
    /// How the reply is delivered to the route; `None` if only the run's subscribers receive it.
    #[serde(rename = "post", skip_serializing_if = "Option::is_none")]
    pub delivery: Option<ReplyDelivery>,
    /// Sender, as the channel knows them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender: Option<Sender>,
    /// Working directory of the run's tools; `None` for the agent's workspace. A restart resumes the run in the same
    /// one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathBuf>,
    /// Share of its principal's authority that it has.
    #[serde(skip_serializing_if = "Authority::is_full")]
    pub authority: Authority,
    /// Settings of this run only. A restart resumes the run with the same ones.
    #[serde(skip_serializing_if = "RunOverrides::is_empty")]
    pub overrides: RunOverrides,
    /// Messages with which a new session starts, before its own, in transcript format.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<serde_json::Value>,
    /// True if its session is deleted when it ends.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_ephemeral: bool,
}

/// Settings of one run that override those of its agent and its session.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RunOverrides {
    /// The only model to use, as `provider/model`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How much of the system prompt the model gets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_mode: Option<PromptMode>,
    /// True if the workspace files are omitted from the system prompt.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub without_bootstrap_files: bool,
    /// True if the run does not have the tool `message`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub without_message_tool: bool,
}

impl RunOverrides {
    /// True if nothing is overridden.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// How much of the system prompt a model gets; a later one has all sections of an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PromptMode {
    /// The identity line.
    None,
    /// The sections that a sub-agent needs.
    Minimal,
    /// Every section.
    Full,
}

/// How much of its principal's authority a run has. A run, the runs that it starts and the messages that it sends have
/// the authority of the request that it came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Authority {
    /// Requested by a connection without `operator.admin`: no tools that require that scope.
    Limited,
    /// All of it. Also the value for runs that were stored before this field existed.
    #[default]
    Full,
}

impl Authority {
    /// True if nothing is withheld.
    pub fn is_full(&self) -> bool {
        *self == Self::Full
    }
}

/// A sender on a channel.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Sender {
    /// The channel's id, which users cannot choose.
    pub id: String,
    /// Display name, which users choose freely.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Handle without `@`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
}

fn is_nowhere(route: &Route) -> bool {
    *route == Route::default()
}

/// Treatment of a run that a restart finds unfinished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnRestart {
    /// The run is resumed.
    #[default]
    Resume,
    /// The run ends as interrupted.
    Interrupt,
}

/// Start of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Start {
    /// Run id.
    pub run: RunId,
    /// Session key.
    pub key: SessionKey,
    /// Transcript header; written only if the transcript does not exist yet.
    pub header: Header,
    /// Time in milliseconds since the epoch.
    pub at: u64,
}

/// Messages that enter the transcript.
#[derive(Debug, Clone, PartialEq)]
pub struct Input {
    /// Run that takes them.
    pub run: RunId,
    /// Session key.
    pub key: SessionKey,
    /// Session id of the transcript.
    pub session: SessionId,
    /// Runs that are absorbed by this one.
    pub absorbs: Vec<RunId>,
    /// Entries of the messages.
    pub entries: Vec<Entry>,
}

/// Whether a tool call may be repeated after a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ToolClass {
    /// Changes nothing.
    Read,
    /// Repeating it has no further effect.
    Idempotent,
    /// Must never be repeated.
    Effect,
}

/// How a run ended. Replies refer to transcript entries; only what is stored nowhere else is contained here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EndRecord {
    /// Outcome.
    pub outcome: Outcome,
    /// Transcript entries that contain its replies, in order.
    pub replies: Vec<EntryId>,
    /// Model that answered: provider and name.
    pub model: (String, String),
    /// Token usage of all model requests.
    pub usage: Usage,
    /// Timeline of the run.
    #[serde(default)]
    pub steps: RunTimeline,
    /// Time at which it ended, in milliseconds since the epoch: after its last hook and all its other commits, when
    /// this record was complete. A record cannot contain the time of its own commit.
    pub ended_at: u64,
    /// Reply to a command, which is in no transcript.
    #[serde(rename = "words", default, skip_serializing_if = "Option::is_none")]
    pub command_reply: Option<String>,
    /// Replies as the user received them, if they differ from the entries and `command_reply`: a hook changed them, or
    /// something was added. The format is defined by the writer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payloads: Option<serde_json::Value>,
}

/// How a run can end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// Completed.
    Done,
    /// Aborted, with the reason.
    Aborted(AbortReason),
    /// Failed.
    Failed(Failure),
}

/// Why a run was aborted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AbortReason {
    /// A client requested it by RPC.
    User,
    /// A message requested it.
    Stop,
    /// It exceeded its time limit.
    Timeout,
    /// A newer message replaced it.
    Interrupted,
    /// The queue was full.
    Dropped,
}

/// Why a run failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Origin of the failure; clients receive model failures differently from internal ones.
    pub kind: FailureKind,
    /// Message for people.
    pub message: String,
}

/// Origin of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FailureKind {
    /// The model or its provider.
    Model,
    /// The gateway or the disk.
    Internal,
}

impl Outcome {
    /// Returns the error message for people; `None` if the run completed.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Done => None,
            Self::Failed(failure) => Some(&failure.message),
            Self::Aborted(AbortReason::User | AbortReason::Stop) => Some("aborted"),
            Self::Aborted(AbortReason::Timeout) => Some("the run took longer than its timeout and was stopped"),
            Self::Aborted(AbortReason::Interrupted) => Some("interrupted: replaced by a newer message"),
            Self::Aborted(AbortReason::Dropped) => Some("queue_full: too many messages are queued in this session"),
        }
    }
}

/// State of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum RunState {
    /// Waiting in the queue.
    Accepted,
    /// Active.
    Running,
    /// Its message was absorbed by another run and ends with it.
    Absorbed(RunId),
    /// Started, active at several crashes in a row, and waiting for the owner to release or drop it.
    Held,
    /// Ended.
    Ended(Box<EndRecord>),
}

/// Stored row of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRow {
    /// Run id.
    pub run: RunId,
    /// Who requested it.
    pub principal: String,
    /// RPC method of the request.
    pub method: String,
    /// Digest of the request.
    pub fingerprint: String,
    /// Channel event that brought it.
    pub origin: Option<Origin>,
    /// Session key.
    pub key: SessionKey,
    /// Session id of its transcript, once the run was started or absorbed.
    pub session: Option<SessionId>,
    /// Time of acceptance in milliseconds since the epoch.
    pub accepted_at: u64,
    /// Time of the first start of the run or of the run that absorbed it, in milliseconds since the epoch; `None` if it
    /// never started.
    pub started_at: Option<u64>,
    /// Times at which restarts resumed it, oldest first, in milliseconds since the epoch.
    pub resumed_at: Vec<u64>,
    /// Run that absorbed its message, even after that run ended.
    pub host: Option<RunId>,
    /// Last period in which it was held, if any.
    pub hold: Option<Hold>,
    /// State.
    pub state: RunState,
}

/// A period in which a run was held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hold {
    /// Start of the period in milliseconds since the epoch.
    pub held_at: u64,
    /// Time of the release; `None` while it is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_at: Option<u64>,
    /// True if the run has started again after the release: its message was written to the transcript once more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_reentered: bool,
}

impl Hold {
    /// True if the run was released and has not started since.
    pub fn is_released(&self) -> bool {
        self.released_at.is_some() && !self.is_reentered
    }
}

/// A store's answer to one record.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// The record was stored.
    Stored,
    /// The record was stored and the transcript archived at this path; `None` if there was no transcript file.
    Archived(Option<PathBuf>),
    /// An [`Accept`] with a known id and the same fingerprint, or with a known origin. Contains the row of the known
    /// run.
    Duplicate(Box<RunRow>),
    /// An [`Accept`] with a known id but another fingerprint, or a [`Rec::Patch`] of a session that changed.
    Conflict,
    /// An [`Accept`] refused for lack of disk space; the text says what helps.
    Full(String),
    /// Not applied, because the run's [`Accept`] in this batch was refused, the run had already ended, or a delivery is
    /// known already or cannot make this transition.
    Skipped,
}

impl Rec {
    /// Returns the run that the record belongs to, if any.
    pub fn run(&self) -> Option<&RunId> {
        match self {
            Self::Accept(accept) => Some(&accept.run),
            Self::Start(start) => Some(&start.run),
            Self::Input(input) => Some(&input.run),
            Self::ToolIntent { run, .. }
            | Self::ToolDone { run, .. }
            | Self::Abort { run, .. }
            | Self::Hold { run, .. }
            | Self::Release { run, .. }
            | Self::Terminal { run, .. } => Some(run),
            Self::Entry { run, .. } | Self::Patch { run, .. } => run.as_ref(),
            Self::Queue(delivery) => delivery.run.as_ref(),
            Self::Delete { .. } | Self::Deliver { .. } => None,
        }
    }

    /// Returns the session whose transcript the record changes, if any.
    pub fn transcript(&self) -> Option<(&SessionKey, &SessionId)> {
        match self {
            Self::Start(start) => Some((&start.key, &start.header.id)),
            Self::Input(input) => Some((&input.key, &input.session)),
            Self::Entry { key, session, .. } | Self::Delete { key, expect: session } => Some((key, session)),
            Self::Accept(_)
            | Self::ToolIntent { .. }
            | Self::ToolDone { .. }
            | Self::Abort { .. }
            | Self::Hold { .. }
            | Self::Release { .. }
            | Self::Terminal { .. }
            | Self::Patch { .. }
            | Self::Queue(_)
            | Self::Deliver { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn options_that_an_earlier_version_stored_have_full_authority() {
        let stored = json!({"lane": "main", "timeout": null, "extraPrompt": null, "onRestart": "resume"});
        let options: Options = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!(options.authority, Authority::Full);
        assert_eq!(serde_json::to_value(&options).unwrap(), stored);
        let limited = serde_json::to_value(Options { authority: Authority::Limited, ..options }).unwrap();
        assert_eq!(limited["authority"], "limited");
        assert_eq!(serde_json::from_value::<Options>(limited).unwrap().authority, Authority::Limited);
    }

    #[test]
    fn the_delivery_of_a_reply_is_stored_under_its_first_names() {
        let stored = json!({
            "lane": "main", "timeout": null, "extraPrompt": null, "onRestart": "resume",
            "post": {"isOrigin": true, "isBestEffort": false, "tellsTools": true, "trouble": "no such chat"},
        });
        let options: Options = serde_json::from_value(stored.clone()).unwrap();
        assert!(options.delivery.as_ref().unwrap().reports_tools);
        assert_eq!(serde_json::to_value(&options).unwrap(), stored);
    }

    #[test]
    fn an_end_that_an_earlier_version_stored_is_read() {
        let usage = serde_json::to_value(Usage::default()).unwrap();
        let stored = json!({
            "outcome": "done", "replies": ["0000000a"], "model": ["p", "m"], "usage": usage, "ended_at": 7,
            "steps": [{"from": 1, "to": 7, "step": "finished"}], "words": "hi",
        });
        let ended: EndRecord = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!((ended.payloads.as_ref(), ended.ended_at, ended.command_reply.as_deref()), (None, 7, Some("hi")));
        assert_eq!(serde_json::to_value(&ended).unwrap(), stored);
    }
}
