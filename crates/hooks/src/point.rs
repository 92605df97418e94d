//! The points of the loop at which others are asked or told.

use std::time::Duration;

/// How long a hook may take to answer, if it does not say itself.
pub const DEADLINE: Duration = Duration::from_secs(5);

/// How long it may take where a line is about to be written: everything waits for that.
const WRITING: Duration = Duration::from_secs(1);

/// A point of the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Point {
    /// Before it is decided who answers.
    BeforeModelResolve,
    /// Before the prompt of a run is put together.
    BeforePromptBuild,
    /// The older name of that.
    BeforeAgentStart,
    /// Before an agent answers: somebody else may.
    BeforeAgentReply,
    /// A model is asked.
    LlmInput,
    /// A model has answered.
    LlmOutput,
    /// Before a tool is called.
    BeforeToolCall,
    /// After a tool was called.
    AfterToolCall,
    /// Before a tool's result is stored.
    ToolResultPersist,
    /// Before a line of a transcript is stored.
    BeforeMessageWrite,
    /// Before a conversation is made short.
    BeforeCompaction,
    /// After it was.
    AfterCompaction,
    /// Before a session gets a new transcript.
    BeforeReset,
    /// A session has a new transcript.
    SessionStart,
    /// A session's transcript is left behind.
    SessionEnd,
    /// A message came in.
    MessageReceived,
    /// Before a message goes out.
    MessageSending,
    /// A message went out, or could not.
    MessageSent,
    /// A run has ended.
    AgentEnd,
    /// The gateway is up.
    GatewayStart,
    /// The gateway goes down.
    GatewayStop,
}

impl Point {
    /// All of them, in the order in which a run passes them.
    pub const ALL: [Self; 21] = [
        Self::GatewayStart,
        Self::MessageReceived,
        Self::BeforeReset,
        Self::SessionEnd,
        Self::SessionStart,
        Self::BeforeAgentReply,
        Self::BeforeModelResolve,
        Self::BeforePromptBuild,
        Self::BeforeAgentStart,
        Self::BeforeCompaction,
        Self::AfterCompaction,
        Self::LlmInput,
        Self::LlmOutput,
        Self::BeforeToolCall,
        Self::AfterToolCall,
        Self::ToolResultPersist,
        Self::BeforeMessageWrite,
        Self::AgentEnd,
        Self::MessageSending,
        Self::MessageSent,
        Self::GatewayStop,
    ];

    /// Its name in plugins.
    pub fn name(self) -> &'static str {
        match self {
            Self::BeforeModelResolve => "before_model_resolve",
            Self::BeforePromptBuild => "before_prompt_build",
            Self::BeforeAgentStart => "before_agent_start",
            Self::BeforeAgentReply => "before_agent_reply",
            Self::LlmInput => "llm_input",
            Self::LlmOutput => "llm_output",
            Self::BeforeToolCall => "before_tool_call",
            Self::AfterToolCall => "after_tool_call",
            Self::ToolResultPersist => "tool_result_persist",
            Self::BeforeMessageWrite => "before_message_write",
            Self::BeforeCompaction => "before_compaction",
            Self::AfterCompaction => "after_compaction",
            Self::BeforeReset => "before_reset",
            Self::SessionStart => "session_start",
            Self::SessionEnd => "session_end",
            Self::MessageReceived => "message_received",
            Self::MessageSending => "message_sending",
            Self::MessageSent => "message_sent",
            Self::AgentEnd => "agent_end",
            Self::GatewayStart => "gateway_start",
            Self::GatewayStop => "gateway_stop",
        }
    }

    /// The point of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|point| point.name() == name)
    }

    /// How long a hook may take here, if it does not say itself.
    pub fn deadline(self) -> Duration {
        if matches!(self, Self::ToolResultPersist | Self::BeforeMessageWrite) { WRITING } else { DEADLINE }
    }

    /// Whether a refusal has an effect here, so that a guard can stand here.
    pub fn can_refuse(self) -> bool {
        self.is_asked() && !matches!(self, Self::BeforeCompaction | Self::BeforeReset)
    }

    /// Whether the loop waits for what is answered here. Elsewhere it only tells, and goes on.
    pub fn is_asked(self) -> bool {
        match self {
            Self::BeforeModelResolve
            | Self::BeforePromptBuild
            | Self::BeforeAgentStart
            | Self::BeforeAgentReply
            | Self::BeforeToolCall
            | Self::AfterToolCall
            | Self::ToolResultPersist
            | Self::BeforeMessageWrite
            | Self::BeforeCompaction
            | Self::BeforeReset
            | Self::MessageSending => true,
            Self::LlmInput
            | Self::LlmOutput
            | Self::AfterCompaction
            | Self::SessionStart
            | Self::SessionEnd
            | Self::MessageReceived
            | Self::MessageSent
            | Self::AgentEnd
            | Self::GatewayStart
            | Self::GatewayStop => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_point_is_found_by_its_own_name() {
        assert!(Point::ALL.into_iter().all(|point| Point::named(point.name()) == Some(point)));
        assert_eq!(Point::ALL.into_iter().collect::<HashSet<_>>().len(), Point::ALL.len());
        assert_eq!(Point::named("before_lunch"), None);
    }
}
