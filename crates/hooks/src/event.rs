//! Events passed to hooks, one per point. The JSON field names are OpenClaw's.

use std::{path::PathBuf, sync::Arc};

use homard_proto::message::{Message, Usage};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{HookPoint, HookResult};

/// Event at a hook point.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub enum HookEvent {
    /// Before the model is selected.
    BeforeModelResolve {
        /// The user's message.
        prompt: String,
    },
    /// Before the prompt of a run is built.
    BeforePromptBuild(RunStart),
    /// Older name of `BeforePromptBuild`.
    BeforeAgentStart(RunStart),
    /// Before an agent replies.
    BeforeAgentReply {
        /// The user's message, without directives.
        cleaned_body: String,
    },
    /// A model is requested.
    LlmInput(LlmInput),
    /// A model has answered.
    LlmOutput(LlmOutput),
    /// Before a tool call.
    BeforeToolCall(ToolCallStart),
    /// After a tool call.
    AfterToolCall(ToolCallEnd),
    /// Before a tool result is stored.
    ToolResultPersist(ToolResultWrite),
    /// Before a transcript entry is stored.
    BeforeMessageWrite {
        /// The entry's message.
        message: Value,
    },
    /// Before compaction of a session.
    BeforeCompaction(CompactionStart),
    /// After compaction of a session.
    AfterCompaction(CompactionEnd),
    /// Before a session is reset.
    BeforeReset(SessionReset),
    /// A session has a new transcript.
    SessionStart(SessionStart),
    /// A session's transcript has ended.
    SessionEnd(SessionEnd),
    /// A message was received.
    MessageReceived(ReceivedMessage),
    /// Before a message is sent.
    MessageSending(OutgoingMessage),
    /// A message was sent, or sending failed.
    MessageSent(SentMessage),
    /// A run has ended.
    AgentEnd(AgentEnd),
    /// The gateway has started.
    GatewayStart {
        /// Its port.
        port: u16,
    },
    /// The gateway is stopping.
    GatewayStop {
        /// The reason.
        reason: String,
    },
}

/// A run that is about to start.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunStart {
    /// The user's message.
    pub prompt: String,
    /// Preceding messages.
    pub messages: Vec<Arc<Message>>,
}

/// A model request.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LlmInput {
    /// Run id.
    pub run_id: String,
    /// Session id.
    pub session_id: String,
    /// Provider.
    pub provider: String,
    /// Model.
    pub model: String,
    /// System prompt.
    pub system_prompt: String,
    /// Last user message.
    pub prompt: String,
    /// Preceding messages.
    pub history_messages: Vec<Arc<Message>>,
    /// Number of images.
    pub images_count: usize,
    /// Available tools.
    pub tools: Vec<Value>,
}

/// A model's answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LlmOutput {
    /// Run id.
    pub run_id: String,
    /// Session id.
    pub session_id: String,
    /// Provider.
    pub provider: String,
    /// Model.
    pub model: String,
    /// Provider and model in one string.
    pub resolved_ref: String,
    /// Texts of the answer.
    pub assistant_texts: Vec<String>,
    /// The complete message.
    pub last_assistant: Value,
    /// Token usage.
    pub usage: Usage,
}

/// A tool call that is about to be made.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolCallStart {
    /// Tool name.
    pub tool_name: String,
    /// Arguments.
    pub params: Map<String, Value>,
    /// Run id.
    pub run_id: String,
    /// Tool call id.
    pub tool_call_id: String,
}

/// A completed tool call.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolCallEnd {
    /// Tool name.
    pub tool_name: String,
    /// Arguments.
    pub params: Map<String, Value>,
    /// Run id.
    pub run_id: String,
    /// Tool call id.
    pub tool_call_id: String,
    /// Result: content and details.
    pub result: Value,
    /// Error, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Duration in milliseconds.
    pub duration_ms: u64,
}

/// A tool result that is about to be stored.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolResultWrite {
    /// Tool name.
    pub tool_name: String,
    /// Tool call id.
    pub tool_call_id: String,
    /// The message to store.
    pub message: Value,
    /// True if the gateway wrote the result because the tool returned none.
    pub is_synthetic: bool,
}

/// A session that is about to be compacted.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CompactionStart {
    /// Number of messages.
    pub message_count: usize,
    /// Approximate number of tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_count: Option<u64>,
}

/// A session that was compacted.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CompactionEnd {
    /// Number of messages after compaction.
    pub message_count: usize,
    /// Approximate number of tokens after compaction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_count: Option<u64>,
    /// Number of messages that were summarized.
    pub compacted_count: usize,
    /// Transcript of the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_file: Option<PathBuf>,
}

/// A session that is about to be reset.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionReset {
    /// The old transcript.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_file: Option<PathBuf>,
    /// Messages of the old transcript.
    pub messages: Vec<Arc<Message>>,
    /// Reason: new, reset, idle, daily.
    pub reason: String,
}

/// A session with a new transcript.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionStart {
    /// Session id.
    pub session_id: String,
    /// Session key.
    pub session_key: String,
    /// Previous session id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumed_from: Option<String>,
}

/// A transcript that has ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionEnd {
    /// Session id.
    pub session_id: String,
    /// Session key.
    pub session_key: String,
    /// Number of messages.
    pub message_count: usize,
    /// Duration of use in milliseconds, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Reason: new, reset, idle, daily, deleted.
    pub reason: String,
    /// Next session id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_session_id: Option<String>,
}

/// A received message.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReceivedMessage {
    /// The sender.
    pub from: String,
    /// The text.
    pub content: String,
    /// Time in milliseconds since the epoch.
    pub timestamp: u64,
    /// Session key that it is for.
    pub session_key: String,
    /// Message id on the channel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// Sender id on the channel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender_id: Option<String>,
    /// Further data.
    pub metadata: Map<String, Value>,
}

/// A message that is about to be sent.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OutgoingMessage {
    /// The recipient.
    pub to: String,
    /// The text.
    pub content: String,
    /// Id of the message that it replies to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to_id: Option<String>,
    /// Further data.
    pub metadata: Map<String, Value>,
}

/// A message that was sent, or could not be.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SentMessage {
    /// The recipient.
    pub to: String,
    /// The text.
    pub content: String,
    /// True if the message was sent.
    pub success: bool,
    /// Error, if the message could not be sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Message id on the channel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
}

/// A run that has ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentEnd {
    /// Messages of the session.
    pub messages: Vec<Arc<Message>>,
    /// True if it succeeded.
    pub success: bool,
    /// Error, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Duration in milliseconds.
    pub duration_ms: u64,
    /// Run id.
    pub run_id: String,
}

impl HookEvent {
    /// Returns the point of the event.
    pub fn point(&self) -> HookPoint {
        match self {
            Self::BeforeModelResolve { .. } => HookPoint::BeforeModelResolve,
            Self::BeforePromptBuild(_) => HookPoint::BeforePromptBuild,
            Self::BeforeAgentStart(_) => HookPoint::BeforeAgentStart,
            Self::BeforeAgentReply { .. } => HookPoint::BeforeAgentReply,
            Self::LlmInput(_) => HookPoint::LlmInput,
            Self::LlmOutput(_) => HookPoint::LlmOutput,
            Self::BeforeToolCall(_) => HookPoint::BeforeToolCall,
            Self::AfterToolCall(_) => HookPoint::AfterToolCall,
            Self::ToolResultPersist(_) => HookPoint::ToolResultPersist,
            Self::BeforeMessageWrite { .. } => HookPoint::BeforeMessageWrite,
            Self::BeforeCompaction(_) => HookPoint::BeforeCompaction,
            Self::AfterCompaction(_) => HookPoint::AfterCompaction,
            Self::BeforeReset(_) => HookPoint::BeforeReset,
            Self::SessionStart(_) => HookPoint::SessionStart,
            Self::SessionEnd(_) => HookPoint::SessionEnd,
            Self::MessageReceived(_) => HookPoint::MessageReceived,
            Self::MessageSending(_) => HookPoint::MessageSending,
            Self::MessageSent(_) => HookPoint::MessageSent,
            Self::AgentEnd(_) => HookPoint::AgentEnd,
            Self::GatewayStart { .. } => HookPoint::GatewayStart,
            Self::GatewayStop { .. } => HookPoint::GatewayStop,
        }
    }

    /// Applies a hook's result, so that the next hook sees the changed values.
    pub(crate) fn apply(&mut self, answer: &HookResult) {
        match self {
            Self::BeforeToolCall(call) => {
                call.params.extend(answer.params.clone().unwrap_or_default());
            }
            Self::AfterToolCall(call) => {
                call.result = answer.result.clone().unwrap_or_else(|| call.result.take());
            }
            Self::ToolResultPersist(ToolResultWrite { message, .. }) | Self::BeforeMessageWrite { message } => {
                *message = answer.message.clone().unwrap_or_else(|| message.take());
            }
            Self::MessageSending(sending) => {
                sending.content = answer.content.clone().unwrap_or_else(|| std::mem::take(&mut sending.content));
            }
            Self::BeforeModelResolve { .. }
            | Self::BeforePromptBuild(_)
            | Self::BeforeAgentStart(_)
            | Self::BeforeAgentReply { .. }
            | Self::LlmInput(_)
            | Self::LlmOutput(_)
            | Self::BeforeCompaction(_)
            | Self::AfterCompaction(_)
            | Self::BeforeReset(_)
            | Self::SessionStart(_)
            | Self::SessionEnd(_)
            | Self::MessageReceived(_)
            | Self::MessageSent(_)
            | Self::AgentEnd(_)
            | Self::GatewayStart { .. }
            | Self::GatewayStop { .. } => {}
        }
    }
}
