//! Everything that can happen in a run, as one enum.

use std::{sync::Arc, time::Duration};

use homard_proto::{
    CallId, EntryId, RunId, SessionId,
    message::{Assistant, Message, ToolCall, ToolResult as Answered, Usage},
};
use homard_reply::{payload::Payload, sent::Withheld};
pub use homard_store::{AbortReason, Failure, FailureKind, Outcome, timeline::TruncatedInput};
use serde_json::Value;

use crate::{activity::Busy, lane::inbox::Placed, tool::ToolResult};

/// Something that happened, and when.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Milliseconds since the epoch.
    pub at: u64,
    /// What.
    pub kind: RunEvent,
}

/// What can happen in a run. A fact marked *stored* becomes visible when it is on disk, not before.
#[derive(Debug, Clone, PartialEq)]
pub enum RunEvent {
    /// The run began (stored).
    Started {
        /// The transcript that it works in.
        session: SessionId,
    },
    /// The run waited so long for a slot.
    Waited(Duration),
    /// The message got another place in the queue than its sender was told last.
    Placed(Placed),
    /// The message has waited for half a minute; its session is busy with this.
    Busy(Arc<Busy>),
    /// The model gets a summary of these messages instead of their text: too many waited in the queue.
    Summarized(Arc<[RunId]>),
    /// A message went into the transcript (stored).
    Input(Arc<Message>),
    /// The run's message became a part of another run, and ends with it.
    Absorbed {
        /// That run.
        by: RunId,
    },
    /// A model is asked. Nobody is woken for it: it is for those who want to know where the time went.
    Asking(Arc<homard_store::timeline::Asked>),
    /// The model began to answer. Nobody is woken for it.
    Heard,
    /// What the model said counts for nothing, and it or another is asked instead. Nobody is woken for it.
    Discarded {
        /// What went wrong.
        why: String,
        /// What it took.
        usage: Usage,
    },
    /// The model said more.
    Text {
        /// Which assistant message of this run, from 0.
        message: u32,
        /// The new words.
        delta: String,
    },
    /// The model thought more.
    Thinking {
        /// Which assistant message of this run, from 0.
        message: u32,
        /// The new words.
        delta: String,
    },
    /// Another than the agent's first choice is asked from here on.
    Answering {
        /// The provider.
        provider: String,
        /// The model.
        model: String,
    },
    /// What was told of the message that the model is at is void: it is asked again.
    Rewound {
        /// Which assistant message of this run, from 0.
        message: u32,
    },
    /// The model failed, and is asked again after so long.
    Retrying {
        /// The model, as `provider/model`.
        model: String,
        /// Which attempt follows, and how many there are at most.
        attempt: (u32, u32),
        /// How long.
        after: Duration,
        /// What went wrong.
        why: String,
    },
    /// Somebody was passed over: the next one is asked.
    Switched {
        /// Who, as `provider/model`.
        from: String,
        /// In a word, such as `rate_limit`.
        reason: String,
        /// What went wrong.
        why: String,
    },
    /// An assistant message is complete (stored).
    Assistant {
        /// Its line in the transcript.
        entry: EntryId,
        /// The message.
        said: Arc<Assistant>,
    },
    /// A tool was started.
    ToolStarted {
        /// The call.
        call: CallId,
        /// The tool.
        name: String,
        /// With what.
        arguments: Value,
    },
    /// A tool told how far it has come.
    ToolProgress {
        /// The call.
        call: CallId,
        /// The tool.
        name: String,
        /// Its result so far.
        partial: ToolResult,
    },
    /// A tool answered, or was answered for (stored).
    ToolEnded {
        /// The call.
        call: CallId,
        /// The answer as it is stored.
        result: Arc<Answered>,
        /// The answer as it is shown, if a hook had another one stored.
        shown: Option<Arc<Answered>>,
    },
    /// A hook decided something.
    Hooked(Arc<homard_hooks::Note>),
    /// A text of the model's is not sent, because a tool of the run had sent it to the same conversation. It wakes
    /// no follower.
    Withheld(Arc<Withheld>),
    /// The conversation is being made short.
    Compacting,
    /// The conversation was made short (stored).
    Compacted {
        /// Its line in the transcript.
        entry: EntryId,
        /// How many tokens it took before, about.
        before: u64,
        /// How many it takes now.
        after: u64,
        /// How it was done, in a word.
        way: &'static str,
        /// Whether the model is asked after it.
        goes_on: bool,
        /// How much of the run's message was kept, if the model has not answered it yet and it did not fit.
        input: Option<TruncatedInput>,
    },
    /// The conversation was not made short, and is as it was.
    NotCompacted {
        /// Why.
        why: String,
    },
    /// A piece of the answer is on its way to the user, before the answer is whole.
    Block(Arc<Payload>),
    /// The run is over (stored). Always the last, always exactly one.
    Ended(Arc<End>),
}

/// How a run ended, and what came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct End {
    /// How.
    pub outcome: Outcome,
    /// What the user gets, in order, without what went out in blocks.
    pub replies: Vec<Payload>,
    /// What the user got in all, for whoever asks later; `None` if that is what the replies are. Others than those: of a run
    /// that spoke in blocks, and of a message that another run answered.
    pub whole: Option<Vec<Payload>>,
    /// What the answer of a heartbeat means; `None` for any other run and for one that failed.
    pub heartbeat: Option<HeartbeatAnswer>,
    /// The lines of the transcript that hold what the model said to the user.
    pub lines: Vec<EntryId>,
    /// Calls of the sender's own tools, handed over for the sender to make.
    pub calls: Vec<ToolCall>,
    /// The provider and the model that answered.
    pub model: (String, String),
    /// The sum over all model calls.
    pub usage: Usage,
    /// Of the last model call alone: its prompt is how full the context is.
    pub last_usage: Usage,
    /// How much of the run's message the model got, if it did not fit into the context window.
    pub truncated_input: Option<TruncatedInput>,
    /// Whether the model got a summary of the run's message instead of its text: too many waited in the queue.
    pub is_summarized: bool,
    /// The transcript; `None` when the run never began.
    pub session: Option<SessionId>,
    /// When it began; `None` when it never did. Milliseconds since the epoch.
    pub started_at: Option<u64>,
    /// When it ended, in milliseconds since the epoch: after its last hook, and after all its commits but that of the
    /// terminal record, in which this time is stored.
    pub ended_at: u64,
}

/// What the answer of a heartbeat means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeartbeatAnswer {
    /// Whether there is something to report.
    pub kind: HeartbeatKind,
    /// The text of the answer, without the token for "nothing to do".
    pub text: String,
}

/// The kinds of answers to a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeartbeatKind {
    /// No text.
    Empty,
    /// The token: nothing to report.
    Ok,
    /// The same text was reported within the last day.
    Duplicate,
    /// A new finding, and whether it was queued for delivery to a chat.
    Finding {
        /// False if the heartbeat has no chat to report to.
        is_queued: bool,
    },
}

impl End {
    /// What the user got in all.
    pub fn payloads(&self) -> &[Payload] {
        self.whole.as_deref().unwrap_or(&self.replies)
    }
}
