//! What is told at each point. As JSON the fields are OpenClaw's.

use std::{path::PathBuf, sync::Arc};

use homard_proto::message::{Message, Usage};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{Answer, Point};

/// What is told at a point.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub enum Event {
    /// Before it is decided who answers.
    BeforeModelResolve {
        /// What is asked.
        prompt: String,
    },
    /// Before the prompt of a run is put together.
    BeforePromptBuild(Turn),
    /// The older name of that.
    BeforeAgentStart(Turn),
    /// Before an agent answers.
    BeforeAgentReply {
        /// What is asked, without directives.
        cleaned_body: String,
    },
    /// A model is asked.
    LlmInput(LlmInput),
    /// A model has answered.
    LlmOutput(LlmOutput),
    /// Before a tool is called.
    BeforeToolCall(Called),
    /// After a tool was called.
    AfterToolCall(ToolCalled),
    /// Before a tool's result is stored.
    ToolResultPersist(Persist),
    /// Before a line of a transcript is stored.
    BeforeMessageWrite {
        /// The line's message.
        message: Value,
    },
    /// Before a conversation is made short.
    BeforeCompaction(Compacting),
    /// After it was.
    AfterCompaction(Compacted),
    /// Before a session gets a new transcript.
    BeforeReset(Reset),
    /// A session has a new transcript.
    SessionStart(SessionStart),
    /// A session's transcript is left behind.
    SessionEnd(SessionEnd),
    /// A message came in.
    MessageReceived(Received),
    /// Before a message goes out.
    MessageSending(Sending),
    /// A message went out, or could not.
    MessageSent(Sent),
    /// A run has ended.
    AgentEnd(AgentEnd),
    /// The gateway is up.
    GatewayStart {
        /// Where it listens.
        port: u16,
    },
    /// The gateway goes down.
    GatewayStop {
        /// Why.
        reason: String,
    },
}

/// A run that begins.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Turn {
    /// What is asked.
    pub prompt: String,
    /// The conversation before that.
    pub messages: Vec<Arc<Message>>,
}

/// A model that is asked.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LlmInput {
    /// The run.
    pub run_id: String,
    /// The transcript.
    pub session_id: String,
    /// Who is asked: the provider.
    pub provider: String,
    /// Who is asked: the model.
    pub model: String,
    /// What it is told before the conversation.
    pub system_prompt: String,
    /// What was said last.
    pub prompt: String,
    /// The conversation before that.
    pub history_messages: Vec<Arc<Message>>,
    /// How many pictures go along.
    pub images_count: usize,
    /// The tools that it may call.
    pub tools: Vec<Value>,
}

/// A model that has answered.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LlmOutput {
    /// The run.
    pub run_id: String,
    /// The transcript.
    pub session_id: String,
    /// Who answered: the provider.
    pub provider: String,
    /// Who answered: the model.
    pub model: String,
    /// Both in one.
    pub resolved_ref: String,
    /// What it said.
    pub assistant_texts: Vec<String>,
    /// Its whole message.
    pub last_assistant: Value,
    /// What it took.
    pub usage: Usage,
}

/// A tool that is about to be called.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Called {
    /// The tool.
    pub tool_name: String,
    /// With what.
    pub params: Map<String, Value>,
    /// The run.
    pub run_id: String,
    /// The call.
    pub tool_call_id: String,
}

/// A tool that was called.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolCalled {
    /// The tool.
    pub tool_name: String,
    /// With what.
    pub params: Map<String, Value>,
    /// The run.
    pub run_id: String,
    /// The call.
    pub tool_call_id: String,
    /// What it answered: content and details.
    pub result: Value,
    /// Why it failed, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How long it took.
    pub duration_ms: u64,
}

/// A tool's result that is about to be stored.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Persist {
    /// The tool.
    pub tool_name: String,
    /// The call.
    pub tool_call_id: String,
    /// The line's message.
    pub message: Value,
    /// Whether the house wrote it because the tool did not.
    pub is_synthetic: bool,
}

/// A conversation that is about to be made short.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Compacting {
    /// How many messages it has.
    pub message_count: usize,
    /// About how many tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_count: Option<u64>,
}

/// A conversation that was made short.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Compacted {
    /// How many messages it has now.
    pub message_count: usize,
    /// About how many tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_count: Option<u64>,
    /// How many messages were summed up.
    pub compacted_count: usize,
    /// Its transcript.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_file: Option<PathBuf>,
}

/// A session that is about to get a new transcript.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reset {
    /// The old one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_file: Option<PathBuf>,
    /// What was said in it.
    pub messages: Vec<Arc<Message>>,
    /// Why: new, reset, idle, daily.
    pub reason: String,
}

/// A session with a new transcript.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionStart {
    /// The transcript.
    pub session_id: String,
    /// The session.
    pub session_key: String,
    /// The one before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumed_from: Option<String>,
}

/// A transcript that was left behind.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionEnd {
    /// The transcript.
    pub session_id: String,
    /// The session.
    pub session_key: String,
    /// How many messages it has.
    pub message_count: usize,
    /// How long it was in use, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Why: new, reset, idle, daily, deleted.
    pub reason: String,
    /// The one after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_session_id: Option<String>,
}

/// A message that came in.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Received {
    /// Who sent it.
    pub from: String,
    /// What it says.
    pub content: String,
    /// When; milliseconds since the epoch.
    pub timestamp: u64,
    /// The session that it is for.
    pub session_key: String,
    /// The message, as the channel calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// Who sent it, as the channel calls them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender_id: Option<String>,
    /// What else is known of it.
    pub metadata: Map<String, Value>,
}

/// A message that is about to go out.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sending {
    /// To whom.
    pub to: String,
    /// What it says.
    pub content: String,
    /// The message that it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to_id: Option<String>,
    /// What else is known of it.
    pub metadata: Map<String, Value>,
}

/// A message that went out, or could not.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sent {
    /// To whom.
    pub to: String,
    /// What it says.
    pub content: String,
    /// Whether it went out.
    pub success: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What the channel calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
}

/// A run that has ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentEnd {
    /// The conversation.
    pub messages: Vec<Arc<Message>>,
    /// Whether it ended well.
    pub success: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How long it took.
    pub duration_ms: u64,
    /// The run.
    pub run_id: String,
}

impl Event {
    /// The point at which it is told.
    pub fn point(&self) -> Point {
        match self {
            Self::BeforeModelResolve { .. } => Point::BeforeModelResolve,
            Self::BeforePromptBuild(_) => Point::BeforePromptBuild,
            Self::BeforeAgentStart(_) => Point::BeforeAgentStart,
            Self::BeforeAgentReply { .. } => Point::BeforeAgentReply,
            Self::LlmInput(_) => Point::LlmInput,
            Self::LlmOutput(_) => Point::LlmOutput,
            Self::BeforeToolCall(_) => Point::BeforeToolCall,
            Self::AfterToolCall(_) => Point::AfterToolCall,
            Self::ToolResultPersist(_) => Point::ToolResultPersist,
            Self::BeforeMessageWrite { .. } => Point::BeforeMessageWrite,
            Self::BeforeCompaction(_) => Point::BeforeCompaction,
            Self::AfterCompaction(_) => Point::AfterCompaction,
            Self::BeforeReset(_) => Point::BeforeReset,
            Self::SessionStart(_) => Point::SessionStart,
            Self::SessionEnd(_) => Point::SessionEnd,
            Self::MessageReceived(_) => Point::MessageReceived,
            Self::MessageSending(_) => Point::MessageSending,
            Self::MessageSent(_) => Point::MessageSent,
            Self::AgentEnd(_) => Point::AgentEnd,
            Self::GatewayStart { .. } => Point::GatewayStart,
            Self::GatewayStop { .. } => Point::GatewayStop,
        }
    }

    /// What the next hook is told after one has answered: it sees what will be, not what was.
    pub(crate) fn follow(&mut self, answer: &Answer) {
        match self {
            Self::BeforeToolCall(called) => {
                called.params.extend(answer.params.clone().unwrap_or_default());
            }
            Self::AfterToolCall(called) => {
                called.result = answer.result.clone().unwrap_or_else(|| called.result.take());
            }
            Self::ToolResultPersist(Persist { message, .. }) | Self::BeforeMessageWrite { message } => {
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
