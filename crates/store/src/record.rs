//! What a store is told, and what it answers.

use std::{path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use homard_proto::{
    CallId, EntryId, Route, RunId, SessionId, SessionKey,
    message::{Message, ToolResult, Usage},
    session,
    transcript::{Entry, Header},
};

use crate::{Delivery, DeliveryState, Post, timeline::Steps};

/// One fact to be kept.
#[derive(Debug, Clone, PartialEq)]
pub enum Rec {
    /// A message was taken in: from here on it is never lost.
    Accept(Box<Accept>),
    /// Its run begins in this session.
    Start(Start),
    /// The run's own message, and those that it absorbed, enter the transcript.
    Input(Input),
    /// A line of a transcript. The store sets its parent: the last line of that transcript.
    Entry {
        /// The run that it belongs to; `None` for a line from elsewhere.
        run: Option<RunId>,
        /// The session.
        key: SessionKey,
        /// The transcript: a run stays in the one that it began in, also when its session gets a new one meanwhile.
        session: SessionId,
        /// The line.
        entry: Box<Entry>,
    },
    /// A tool with effects is about to start.
    ToolIntent {
        /// The run.
        run: RunId,
        /// The call.
        call: CallId,
        /// Whether it may be repeated.
        class: ToolClass,
    },
    /// A tool has answered. Its line follows when those of the calls before it have.
    ToolDone {
        /// The run.
        run: RunId,
        /// What it answered.
        result: Box<ToolResult>,
    },
    /// Somebody wants the run stopped: a restart does not take it up again.
    Abort {
        /// The run.
        run: RunId,
        /// Why.
        reason: AbortReason,
    },
    /// A started run is held: no restart takes it up until it is released. Its transcript is complete.
    Hold {
        /// The run.
        run: RunId,
        /// Milliseconds since the epoch.
        at: u64,
    },
    /// A held run is queued again; its message enters the transcript once more when it starts.
    Release {
        /// The run.
        run: RunId,
        /// Milliseconds since the epoch.
        at: u64,
    },
    /// The run is over. Only the first such record of a run counts.
    Terminal {
        /// The run.
        run: RunId,
        /// How.
        ended: Box<Ended>,
    },
    /// A session's record changes, if it still is the same session.
    Patch {
        /// The run that it comes with; `None` for a change from elsewhere.
        run: Option<RunId>,
        /// The session.
        key: SessionKey,
        /// The session id that the writer believes in; `None` for a session that is not there yet.
        expect: Option<SessionId>,
        /// The whole new record.
        record: Box<session::Record>,
    },
    /// A session is forgotten, if it still is the same session. Its transcript is put aside, not destroyed.
    Delete {
        /// The session.
        key: SessionKey,
        /// The session id that the writer believes in.
        expect: SessionId,
    },
    /// Something is to be said on a channel: from here on it is never lost.
    Queue(Box<Delivery>),
    /// A delivery goes a step further, if it can.
    Deliver {
        /// Its id.
        id: String,
        /// What it becomes.
        state: DeliveryState,
        /// Milliseconds since the epoch.
        at: u64,
    },
}

/// A message that was taken in.
#[derive(Debug, Clone, PartialEq)]
pub struct Accept {
    /// The run that it asks for.
    pub run: RunId,
    /// Who asks.
    pub principal: String,
    /// With which method.
    pub method: String,
    /// A digest of what was asked: the same id with another digest is a conflict.
    pub fingerprint: String,
    /// The session.
    pub key: SessionKey,
    /// The message.
    pub message: Message,
    /// What else its run needs to know.
    pub options: Options,
    /// The event of a channel that brought it; channels tell of one more than once.
    pub origin: Option<Origin>,
    /// Milliseconds since the epoch.
    pub at: u64,
}

/// An event of a channel. As long as its run is remembered, it leads to no other.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Origin {
    /// The channel.
    pub channel: String,
    /// Which of our accounts there heard it.
    pub account: String,
    /// What the channel calls it.
    pub event: String,
}

/// What a run needs to know beside its message, also after a restart.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Options {
    /// The pool of slots that it draws from; empty for the one that its session implies.
    pub lane: String,
    /// How long it may take; `None` for its agent's own limit.
    pub timeout: Option<Duration>,
    /// What it adds to the system prompt.
    pub extra_prompt: Option<String>,
    /// What its sender wants if a restart finds it unfinished.
    pub on_restart: OnRestart,
    /// Whether it is refused rather than cut if it does not fit into the context window.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_strict: bool,
    /// Where it came from, and where its answer goes.
    #[serde(skip_serializing_if = "is_nowhere")]
    pub route: Route,
    /// Whether its text is meant as it is written, and never as a command.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_literal: bool,
    /// What it says about its own way through the queue, as it can be typed; empty if nothing.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub queue: String,
    /// That its answer is sent to its route; `None` if those who follow the run are all who get it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub post: Option<Post>,
    /// Who said it, as its channel knows them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender: Option<Sender>,
    /// Working directory of the run's tools; `None` for the agent's workspace. A restart resumes the run in the same one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathBuf>,
    /// How much of its principal's authority it has.
    #[serde(skip_serializing_if = "Authority::is_full")]
    pub authority: Authority,
    /// Settings of this run only. A restart resumes the run with the same ones.
    #[serde(skip_serializing_if = "RunOverrides::is_empty")]
    pub overrides: RunOverrides,
    /// Messages that a new session begins with, before its own, as a transcript has them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<serde_json::Value>,
    /// Whether its session is deleted when it ends.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_ephemeral: bool,
}

/// Settings that one run has instead of those of its agent and its session.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RunOverrides {
    /// The only model that is asked, as `provider/model`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How much of the system prompt the model gets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_mode: Option<PromptMode>,
    /// Whether the files of the workspace are left out of the system prompt.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub without_bootstrap_files: bool,
    /// Whether the run does not have the tool `message`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub without_message_tool: bool,
}

impl RunOverrides {
    /// Whether nothing is overridden.
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
    /// Asked for by a connection without `operator.admin`: no tools that do what needs that scope.
    Limited,
    /// All of it. Runs that were stored before there was a bound have it, too.
    #[default]
    Full,
}

impl Authority {
    /// Whether nothing is withheld.
    pub fn is_full(&self) -> bool {
        *self == Self::Full
    }
}

/// Somebody on a channel.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Sender {
    /// What the channel calls them; cannot be chosen.
    pub id: String,
    /// What people read; anybody may call themselves anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Their handle, without `@`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
}

fn is_nowhere(route: &Route) -> bool {
    *route == Route::default()
}

/// What becomes of a run that a restart finds unfinished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnRestart {
    /// It goes on.
    #[default]
    Resume,
    /// It ends, and says that it was interrupted.
    Interrupt,
}

/// A run's beginning.
#[derive(Debug, Clone, PartialEq)]
pub struct Start {
    /// The run.
    pub run: RunId,
    /// The session.
    pub key: SessionKey,
    /// The header of its transcript; written if there is none yet.
    pub header: Header,
    /// Milliseconds since the epoch.
    pub at: u64,
}

/// Messages that enter the transcript.
#[derive(Debug, Clone, PartialEq)]
pub struct Input {
    /// The run that takes them.
    pub run: RunId,
    /// The session.
    pub key: SessionKey,
    /// The transcript.
    pub session: SessionId,
    /// Other runs that end with this one.
    pub absorbs: Vec<RunId>,
    /// Their lines.
    pub entries: Vec<Entry>,
}

/// Whether a tool may be run again after a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ToolClass {
    /// It changes nothing.
    Read,
    /// Doing it twice is the same as doing it once.
    Idempotent,
    /// It must never be done twice.
    Effect,
}

/// How a run ended. Replies are pointers into the transcript; only what is nowhere else is kept here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// How.
    pub outcome: Outcome,
    /// The lines of the transcript that hold its replies, in order.
    pub replies: Vec<EntryId>,
    /// The model that answered: provider and name.
    pub model: (String, String),
    /// The sum over all model calls.
    pub usage: Usage,
    /// What happened on the way.
    #[serde(default)]
    pub steps: Steps,
    /// When it ended, in milliseconds since the epoch: after its last hook and all its other commits, when this record was
    /// complete. A record cannot hold the time of its own commit.
    pub ended_at: u64,
    /// What a command was answered, which stands in no transcript.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub words: Option<String>,
    /// The replies as the user got them, where they are not what the lines and the words say: a hook changed them, or
    /// something was added. What they are is the business of whoever writes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payloads: Option<serde_json::Value>,
}

/// The ways in which a run can end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// It is done.
    Done,
    /// Somebody or something stopped it.
    Aborted(AbortReason),
    /// It could not go on.
    Failed(Failure),
}

/// Why a run was stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AbortReason {
    /// Somebody asked for it with a request.
    User,
    /// Somebody asked for it with a message.
    Stop,
    /// It took longer than it may.
    Timeout,
    /// A newer message took its place.
    Interrupted,
    /// Too many messages waited.
    Dropped,
}

/// Why a run could not go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Whose fault it is: clients are told of the model's in another way than of ours.
    pub kind: FailureKind,
    /// For people.
    pub message: String,
}

/// Whose fault a failure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FailureKind {
    /// The model's or its provider's.
    Model,
    /// Ours, or the disk's.
    Internal,
}

impl Outcome {
    /// What went wrong, for people; `None` when nothing did.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Done => None,
            Self::Failed(failure) => Some(&failure.message),
            Self::Aborted(AbortReason::User | AbortReason::Stop) => Some("aborted"),
            Self::Aborted(AbortReason::Timeout) => Some("the run took longer than its timeout and was stopped"),
            Self::Aborted(AbortReason::Interrupted) => Some("interrupted: a newer message took its place"),
            Self::Aborted(AbortReason::Dropped) => Some("queue_full: too many messages waited in this session"),
        }
    }
}

/// How far a run has come.
#[derive(Debug, Clone, PartialEq)]
pub enum RunState {
    /// Waiting for its turn.
    Accepted,
    /// At work.
    Running,
    /// Its message went into another run and ends with it.
    Absorbed(RunId),
    /// Started, active at several crashes in a row, and waiting for the owner to release or drop it.
    Held,
    /// Over.
    Ended(Box<Ended>),
}

/// What is known of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRow {
    /// The run.
    pub run: RunId,
    /// Who asked.
    pub principal: String,
    /// With which method.
    pub method: String,
    /// A digest of what was asked.
    pub fingerprint: String,
    /// The event of a channel that brought it.
    pub origin: Option<Origin>,
    /// The session.
    pub key: SessionKey,
    /// Its transcript, once the run began or went into another.
    pub session: Option<SessionId>,
    /// Milliseconds since the epoch.
    pub accepted_at: u64,
    /// When it began first, or that into which it went; `None` if it never did. Milliseconds since the epoch.
    pub started_at: Option<u64>,
    /// When restarts took it up again, oldest first. Milliseconds since the epoch.
    pub taken_up: Vec<u64>,
    /// The run into which its message went, also when that is over.
    pub host: Option<RunId>,
    /// When it was held, if it ever was. Of several times the last.
    pub hold: Option<Hold>,
    /// How far it has come.
    pub state: RunState,
}

/// A period in which a run was held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hold {
    /// Since when. Milliseconds since the epoch.
    pub held_at: u64,
    /// Until when; `None` while it is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_at: Option<u64>,
    /// Whether the message entered the transcript again after the release.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_reentered: bool,
}

impl Hold {
    /// Whether the run was released and has not started since.
    pub fn is_released(&self) -> bool {
        self.released_at.is_some() && !self.is_reentered
    }
}

/// What a store says to one record.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// It is kept.
    Stored,
    /// It is kept, and the transcript was put aside: here, or there was none.
    Archived(Option<PathBuf>),
    /// An [`Accept`] with an id that is known and the same fingerprint, or with an origin that is known: this is what is
    /// known of its run.
    Duplicate(Box<RunRow>),
    /// An [`Accept`] with an id that is known but another fingerprint, or a [`Rec::Patch`] of a session that changed.
    Conflict,
    /// An [`Accept`] for which there is no room; the text says what helps.
    Full(String),
    /// Not applied, because the run's [`Accept`] in this batch was refused, or the run had already ended, or a delivery
    /// is known already or cannot go that way.
    Skipped,
}

impl Rec {
    /// The run that the record belongs to, if to one.
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
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn m2_options_that_an_earlier_version_stored_have_full_authority() {
        let stored = json!({"lane": "main", "timeout": null, "extraPrompt": null, "onRestart": "resume"});
        let options: Options = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!(options.authority, Authority::Full);
        assert_eq!(serde_json::to_value(&options).unwrap(), stored);
        let limited = serde_json::to_value(Options { authority: Authority::Limited, ..options }).unwrap();
        assert_eq!(limited["authority"], "limited");
        assert_eq!(serde_json::from_value::<Options>(limited).unwrap().authority, Authority::Limited);
    }

    #[test]
    fn an_end_that_an_earlier_version_stored_is_read() {
        let usage = serde_json::to_value(Usage::default()).unwrap();
        let stored = json!({
            "outcome": "done", "replies": ["0000000a"], "model": ["p", "m"], "usage": usage, "ended_at": 7,
            "steps": [{"from": 1, "to": 7, "step": "finished"}], "words": "hi",
        });
        let ended: Ended = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!((ended.payloads.as_ref(), ended.ended_at, ended.words.as_deref()), (None, 7, Some("hi")));
        assert_eq!(serde_json::to_value(&ended).unwrap(), stored);
    }
}
