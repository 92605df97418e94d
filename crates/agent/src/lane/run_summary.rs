//! What the events of a run add up to: its model, usage, compactions and tool calls.

use std::sync::Arc;

use homard_proto::{
    CallId, EntryId, SessionId,
    message::{Assistant, Block, StopReason, ToolResult, Usage},
};

use crate::event::{RequestEvent, RunEvent, StoredEvent, TapeEvent, ToolEvent, TruncatedInput};

/// A compaction's entry id, and the number of tokens after it.
pub(super) type CompactionSize = (EntryId, u64);

/// Summary of a run's events.
#[derive(Default)]
pub(super) struct RunSummary {
    pub(super) session: Option<SessionId>,
    pub(super) started_at: Option<u64>,
    /// Provider and model of the last answer.
    pub(super) model: Option<(String, String)>,
    pub(super) usage: Usage,
    pub(super) last_usage: Usage,
    /// Truncation of the run's message, if it did not fit into the context window.
    pub(super) truncated_input: Option<TruncatedInput>,
    /// Compactions with the number of tokens after each.
    pub(super) compactions: Vec<CompactionSize>,
    /// True if a model reported token usage since the last compaction.
    pub(super) is_counted: bool,
    /// Number of assistant messages.
    pub(super) assistant_count: u32,
    /// Tool calls of the last assistant message; those of earlier ones were all answered, or no later one would exist.
    pub(super) calls: Vec<CallState>,
}

pub(super) struct CallState {
    pub(super) call: CallId,
    pub(super) name: String,
    pub(super) is_started: bool,
    pub(super) answer: Option<Arc<ToolResult>>,
}

impl CallState {
    /// Builds the result of a call that got none.
    pub(super) fn missing_result(&self, at: u64) -> ToolResult {
        let text = if self.is_started {
            "The run was stopped before this call answered. Whether it took effect is not known."
        } else {
            "The run was stopped before this call was started."
        };
        ToolResult {
            tool_call_id: self.call.to_string(),
            tool_name: self.name.clone(),
            content: vec![Block::text(text)],
            details: None,
            is_error: true,
            timestamp: at,
            extra: serde_json::Map::new(),
        }
    }
}

impl RunSummary {
    pub(super) fn of(events: &[TapeEvent]) -> Self {
        let mut summary = Self::default();
        for TapeEvent { kind, at } in events {
            match kind {
                RunEvent::Stored(StoredEvent::Started { session }) => {
                    summary.session = Some(session.clone());
                    summary.started_at = Some(*at);
                }
                RunEvent::Stored(StoredEvent::Assistant { message: answer, .. }) => {
                    summary.add_answer(answer);
                }
                RunEvent::Stored(StoredEvent::ToolEnded { call, result, .. }) => {
                    let matching = summary.calls.iter_mut().filter(|call_state| call_state.call == *call);
                    matching.for_each(|call_state| call_state.answer = Some(result.clone()));
                }
                RunEvent::Tool(ToolEvent::Started { call, .. }) => {
                    let matching = summary.calls.iter_mut().filter(|call_state| call_state.call == *call);
                    matching.for_each(|call_state| call_state.is_started = true);
                }
                RunEvent::Stored(StoredEvent::Compacted { entry, after, input, .. }) => {
                    summary.truncated_input = input.or(summary.truncated_input);
                    summary.compactions.push((entry.clone(), *after));
                    summary.is_counted = false;
                }
                RunEvent::Model(RequestEvent::AnswerDropped { usage, .. }) => summary.usage += usage,
                RunEvent::Model(RequestEvent::Changed { provider, model }) => {
                    summary.model = Some((provider.clone(), model.clone()))
                }
                RunEvent::Stored(StoredEvent::Input(_) | StoredEvent::Ended(_))
                | RunEvent::Queue(_)
                | RunEvent::Model(
                    RequestEvent::MessageReset { .. }
                    | RequestEvent::NoResponse { .. }
                    | RequestEvent::Retrying { .. }
                    | RequestEvent::CandidateFailed { .. }
                    | RequestEvent::Requested(_)
                    | RequestEvent::FirstToken,
                )
                | RunEvent::Text { .. }
                | RunEvent::Thinking { .. }
                | RunEvent::Tool(ToolEvent::Progress { .. })
                | RunEvent::Compaction(_)
                | RunEvent::Reply(_)
                | RunEvent::HookDecision(_) => {}
            }
        }
        summary
    }

    fn add_answer(&mut self, answer: &Assistant) {
        self.assistant_count += 1;
        self.model = Some((answer.provider.clone(), answer.model.clone()));
        self.usage += &answer.usage;
        // A failed request says nothing about the size of the conversation.
        if answer.usage != Usage::default() {
            self.last_usage = answer.usage.clone();
            self.is_counted = true;
        }
        if answer.stop_reason == StopReason::Error {
            return;
        }
        let calls = answer.tool_calls().filter_map(|call| {
            let (call, name) = (CallId::parse(&call.id).ok()?, call.name.clone());
            Some(CallState { call, name, is_started: false, answer: None })
        });
        self.calls = calls.collect();
    }
}
