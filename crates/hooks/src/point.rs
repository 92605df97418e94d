//! Hook points of the agent loop.

use std::time::Duration;

/// Default deadline of a hook.
pub const DEADLINE: Duration = Duration::from_secs(5);

/// Default deadline where an entry is about to be written, because the commit waits for it.
const WRITE_DEADLINE: Duration = Duration::from_secs(1);

/// A hook point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HookPoint {
    /// Before the model is selected.
    BeforeModelResolve,
    /// Before the prompt of a run is built.
    BeforePromptBuild,
    /// Older name of `BeforePromptBuild`.
    BeforeAgentStart,
    /// Before an agent replies; a hook may reply instead.
    BeforeAgentReply,
    /// A model is requested.
    LlmInput,
    /// A model has answered.
    LlmOutput,
    /// Before a tool call.
    BeforeToolCall,
    /// After a tool call.
    AfterToolCall,
    /// Before a tool result is stored.
    ToolResultPersist,
    /// Before a transcript entry is stored.
    BeforeMessageWrite,
    /// Before compaction of a session.
    BeforeCompaction,
    /// After compaction of a session.
    AfterCompaction,
    /// Before a session is reset.
    BeforeReset,
    /// A session has a new transcript.
    SessionStart,
    /// A session's transcript has ended.
    SessionEnd,
    /// A message was received.
    MessageReceived,
    /// Before a message is sent.
    MessageSending,
    /// A message was sent, or sending failed.
    MessageSent,
    /// A run has ended.
    AgentEnd,
    /// The gateway has started.
    GatewayStart,
    /// The gateway is stopping.
    GatewayStop,
}

impl HookPoint {
    /// All points, in the order in which a run reaches them.
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

    /// Returns its name as used by plugins.
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

    /// Finds a point by name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|point| point.name() == name)
    }

    /// Returns the default deadline of a hook at this point.
    pub fn deadline(self) -> Duration {
        if matches!(self, Self::ToolResultPersist | Self::BeforeMessageWrite) { WRITE_DEADLINE } else { DEADLINE }
    }

    /// Returns true if a hook can block the operation here, so that guards are possible.
    pub fn can_block(self) -> bool {
        self.waits_for_result() && !matches!(self, Self::BeforeCompaction | Self::BeforeReset)
    }

    /// Returns true if the loop waits for results here. At other points it only notifies.
    pub fn waits_for_result(self) -> bool {
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
        assert!(HookPoint::ALL.into_iter().all(|point| HookPoint::named(point.name()) == Some(point)));
        assert_eq!(HookPoint::ALL.into_iter().collect::<HashSet<_>>().len(), HookPoint::ALL.len());
        assert_eq!(HookPoint::named("before_lunch"), None);
    }
}
