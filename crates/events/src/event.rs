//! Events of a run.

use std::{sync::Arc, time::Duration};

use homard_proto::{
    CallId, EntryId, RunId, SessionId,
    message::{Assistant, Message, ToolCall, ToolResult as Answered, Usage},
};
use homard_queue::inbox::Disposition;
use homard_reply::{payload::Payload, sent::WithheldText};
use serde_json::Value;

use crate::{activity::Busy, result::ToolResult};

pub use homard_store::{AbortReason, Failure, FailureKind, Outcome, timeline::TruncatedInput};

/// An event and its time.
#[derive(Debug, Clone, PartialEq)]
pub struct TapeEvent {
    /// Milliseconds since the epoch.
    pub at: u64,
    /// The event.
    pub kind: RunEvent,
}

/// An event of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum RunEvent {
    /// An event with a record; visible once the record is on disk.
    Stored(StoredEvent),
    /// The run's message in the session's queue.
    Queue(QueueEvent),
    /// A model request.
    Model(RequestEvent),
    /// Text delta.
    Text {
        /// Ordinal of the assistant message in this run, from 0.
        message: u32,
        /// New text.
        delta: String,
    },
    /// Reasoning delta.
    Thinking {
        /// Ordinal of the assistant message in this run, from 0.
        message: u32,
        /// New text.
        delta: String,
    },
    /// A running tool call.
    Tool(ToolEvent),
    /// A running compaction.
    Compaction(CompactionEvent),
    /// A part of the reply.
    Reply(ReplyEvent),
    /// A hook made a decision.
    HookDecision(Arc<homard_hooks::HookNote>),
}

/// An event with a record. It becomes visible through the commit of its record, never before.
#[derive(Debug, Clone, PartialEq)]
pub enum StoredEvent {
    /// The run started.
    Started {
        /// Id of its transcript.
        session: SessionId,
    },
    /// A message was added to the transcript.
    Input(Arc<Message>),
    /// An assistant message is complete.
    Assistant {
        /// Id of its transcript entry.
        entry: EntryId,
        /// The message.
        message: Arc<Assistant>,
    },
    /// A tool call has a result, from the tool or in its place.
    ToolEnded {
        /// Id of the call.
        call: CallId,
        /// The result as stored.
        result: Arc<Answered>,
        /// The result as shown, if a hook had another one stored.
        shown: Option<Arc<Answered>>,
    },
    /// A compaction is complete.
    Compacted {
        /// Id of its transcript entry.
        entry: EntryId,
        /// Estimated tokens before.
        before: u64,
        /// Estimated tokens after.
        after: u64,
        /// Name of the compaction strategy.
        strategy: &'static str,
        /// True if a model request follows.
        continues: bool,
        /// Truncation of the run's message, if the model has not answered it yet and it did not fit.
        input: Option<TruncatedInput>,
    },
    /// The run ended. Always the last event, exactly once.
    Ended(Arc<RunEnd>),
}

/// What happens to a message in its session's queue.
#[derive(Debug, Clone, PartialEq)]
pub enum QueueEvent {
    /// The run waited this long for a slot.
    SlotWaited(Duration),
    /// The queue disposition of the message changed since it was last reported to its sender.
    DispositionChanged(Disposition),
    /// The message has been queued for half a minute, because its session is busy with this.
    Busy(Arc<Busy>),
    /// The model gets a summary of these messages instead of their text, because the queue was full.
    Summarized(Arc<[RunId]>),
    /// The run's message was absorbed by another run and ends with it.
    Absorbed {
        /// Id of the host run.
        by: RunId,
    },
}

/// Progress and failure of a model request.
#[derive(Debug, Clone, PartialEq)]
pub enum RequestEvent {
    /// A request was sent. For the timeline; does not wake readers.
    Requested(Arc<homard_store::timeline::ModelRequestSpan>),
    /// The first part of the answer arrived. Does not wake readers.
    FirstToken,
    /// The answer was discarded, and the model or another candidate is asked again. Does not wake readers.
    AnswerDropped {
        /// Reason.
        why: String,
        /// Token usage of the discarded answer.
        usage: Usage,
    },
    /// Another model than the agent's primary one is asked from now on.
    Changed {
        /// Provider.
        provider: String,
        /// Model.
        model: String,
    },
    /// No response has arrived for a while, and the request continues.
    NoResponse {
        /// The model, as `provider/model`.
        model: String,
        /// Where the request was sent, and what to check.
        why: String,
    },
    /// Discards everything streamed so far for this assistant message; the request will be retried.
    MessageReset {
        /// Ordinal of the assistant message in this run, from 0.
        message: u32,
    },
    /// The model failed and is retried after a delay.
    Retrying {
        /// The model, as `provider/model`.
        model: String,
        /// Number of the next attempt, and the maximum.
        attempt: (u32, u32),
        /// Delay.
        after: Duration,
        /// Error message.
        why: String,
    },
    /// A candidate failed or is in cooldown; the next one is tried.
    CandidateFailed {
        /// The candidate, as `provider/model`.
        from: String,
        /// Short reason, such as `rate_limit`.
        reason: String,
        /// Error message.
        why: String,
    },
}

/// Start and progress of a tool call. Its result is a [`StoredEvent`].
#[derive(Debug, Clone, PartialEq)]
pub enum ToolEvent {
    /// A tool call started.
    Started {
        /// Id of the call.
        call: CallId,
        /// Name of the tool.
        name: String,
        /// Arguments.
        arguments: Value,
    },
    /// Progress of a tool call.
    Progress {
        /// Id of the call.
        call: CallId,
        /// Name of the tool.
        name: String,
        /// Partial result.
        partial: ToolResult,
    },
}

/// Start and failure of a compaction. Its result is a [`StoredEvent`].
#[derive(Debug, Clone, PartialEq)]
pub enum CompactionEvent {
    /// A compaction started.
    Started,
    /// A compaction failed; the history is unchanged.
    Failed {
        /// Reason.
        why: String,
    },
}

/// A part of the reply.
#[derive(Debug, Clone, PartialEq)]
pub enum ReplyEvent {
    /// A block of the reply was sent before the reply is complete.
    Block(Arc<Payload>),
    /// A text of the model is not sent, because a tool of the run has already sent it to the same chat. Does not wake
    /// readers.
    Withheld(Arc<WithheldText>),
}

/// An event that may be published without a record. [`StoredEvent`] is none:
///
/// ```compile_fail,E0277
/// fn publish_at_once(event: impl homard_events::event::LiveEvent) {}
/// publish_at_once(homard_events::event::StoredEvent::Started { session: homard_proto::SessionId::parse("s").unwrap() });
/// ```
///
/// The same call with an event of a model request compiles:
///
/// ```
/// fn publish_at_once(event: impl homard_events::event::LiveEvent) {}
/// publish_at_once(homard_events::event::RequestEvent::FirstToken);
/// ```
pub trait LiveEvent: Into<RunEvent> {}

/// Implements the conversion into [`RunEvent`] for the groups of events.
macro_rules! event_group {
    ($($group:ident($event:ty)),* $(,)?) => {
        $(impl From<$event> for RunEvent {
            fn from(event: $event) -> Self {
                Self::$group(event)
            }
        })*
    };
}

event_group!(
    Stored(StoredEvent),
    Queue(QueueEvent),
    Model(RequestEvent),
    Tool(ToolEvent),
    Compaction(CompactionEvent),
    Reply(ReplyEvent),
    HookDecision(Arc<homard_hooks::HookNote>),
);

impl From<(u64, StoredEvent)> for TapeEvent {
    fn from((at, event): (u64, StoredEvent)) -> Self {
        Self { at, kind: event.into() }
    }
}

impl LiveEvent for QueueEvent {}
impl LiveEvent for RequestEvent {}
impl LiveEvent for ToolEvent {}
impl LiveEvent for CompactionEvent {}
impl LiveEvent for ReplyEvent {}
impl LiveEvent for Arc<homard_hooks::HookNote> {}

/// Result of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunEnd {
    /// Outcome.
    pub outcome: Outcome,
    /// Replies for the user in order, without those sent as blocks.
    pub replies: Vec<Payload>,
    /// The complete reply for later requests; `None` if `replies` is complete. Differs for a run that sent blocks and
    /// for an absorbed message.
    pub complete_reply: Option<Vec<Payload>>,
    /// Parsed answer of a heartbeat; `None` for any other run and for a failed one.
    pub heartbeat: Option<HeartbeatAnswer>,
    /// Transcript entries with the model's reply to the user.
    pub entries: Vec<EntryId>,
    /// Calls of client tools, returned to the sender.
    pub calls: Vec<ToolCall>,
    /// Provider and model that answered.
    pub model: (String, String),
    /// Total token usage of all model requests.
    pub usage: Usage,
    /// Token usage of the last model request; its input is the size of the context.
    pub last_usage: Usage,
    /// Truncation of the run's message, if it did not fit into the context window.
    pub truncated_input: Option<TruncatedInput>,
    /// True if the model got a summary of the run's message instead of its text, because the queue was full.
    pub is_summarized: bool,
    /// Id of the transcript; `None` if the run never started.
    pub session: Option<SessionId>,
    /// When the run started, in milliseconds since the epoch; `None` if it never did.
    pub started_at: Option<u64>,
    /// When the run ended, in milliseconds since the epoch: after its last hook and all its commits except that of the
    /// terminal record, which contains this time.
    pub ended_at: u64,
}

/// Parsed answer of a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeartbeatAnswer {
    /// Whether there is something to report.
    pub kind: HeartbeatKind,
    /// Text of the answer, without the acknowledgement token.
    pub text: String,
}

/// Kinds of heartbeat answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeartbeatKind {
    /// No text.
    Empty,
    /// The acknowledgement token: nothing to report.
    Ok,
    /// The same text was reported within the last day.
    Duplicate,
    /// A new finding.
    Finding {
        /// True if it was queued for delivery; false if the heartbeat has no chat to report to.
        is_queued: bool,
    },
}

impl RunEnd {
    /// Returns the complete reply.
    pub fn payloads(&self) -> &[Payload] {
        self.complete_reply.as_deref().unwrap_or(&self.replies)
    }
}
