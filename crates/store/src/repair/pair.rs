//! Pairs each call with exactly one result, directly after it.

use std::{collections::HashMap, sync::Arc};

use homard_proto::message::{Assistant, Block, Message, StopReason, ToolResult};

/// Result that a model receives for a call without a recorded result.
pub(super) const NO_RESULT: &str = "No result was recorded for this call. It may or may not have taken effect.";

/// Returns the history without failed or aborted assistant messages, every call paired with one result in the order of
/// the calls.
///
/// A valid history is returned unchanged. User messages are never lost: one between a call and its result moves behind
/// the result. A result belongs to the nearest preceding call with its id that has none; a result without such a call
/// is dropped, and a call without a result gets one that says so.
pub fn view(history: &[Arc<Message>]) -> Vec<Arc<Message>> {
    let mut answers = answers(history);
    let mut view = Vec::with_capacity(history.len());
    for (at, message) in history.iter().enumerate() {
        match &**message {
            Message::Assistant(said) if is_failed(said) => {}
            Message::Assistant(said) => {
                view.push(message.clone());
                for (place, call) in said.tool_calls().enumerate() {
                    let answer = answers.remove(&(at, place)).map(|answer| with_call_id(&call.id, answer));
                    view.push(answer.unwrap_or_else(|| Arc::new(missing(&call.id, &call.name, said.timestamp))));
                }
            }
            Message::ToolResult(_) => {}
            Message::User(_) | Message::Other(_) => view.push(message.clone()),
        }
    }
    view
}

/// True if an assistant message failed or was aborted: it is shown to people, but not to models.
fn is_failed(said: &Assistant) -> bool {
    matches!(said.stop_reason, StopReason::Error | StopReason::Aborted)
}

/// Maps each call (message index, index of the call in it) to its result.
///
/// Calls of failed messages take their results as well, so that no other call gets them.
fn answers(history: &[Arc<Message>]) -> HashMap<(usize, usize), &Arc<Message>> {
    let mut open: HashMap<&str, Vec<(usize, usize)>> = HashMap::new();
    let mut answers = HashMap::new();
    for (at, message) in history.iter().enumerate() {
        match &**message {
            Message::Assistant(said) => {
                let calls: Vec<_> = said.tool_calls().enumerate().collect();
                // Popped from the end, so that of one message's calls the first is matched first.
                for (place, call) in calls.into_iter().rev() {
                    open.entry(call.id.trim()).or_default().push((at, place));
                }
            }
            Message::ToolResult(result) => {
                let call = open.get_mut(result.tool_call_id.trim()).and_then(Vec::pop);
                answers.extend(call.map(|call| (call, message)));
            }
            Message::User(_) | Message::Other(_) => {}
        }
    }
    answers
}

/// Returns a result with exactly its call's id, because providers do not trim.
fn with_call_id(call: &str, answer: &Arc<Message>) -> Arc<Message> {
    match &**answer {
        Message::ToolResult(result) if result.tool_call_id != call => {
            Arc::new(Message::ToolResult(ToolResult { tool_call_id: call.to_owned(), ..result.clone() }))
        }
        Message::ToolResult(_) | Message::User(_) | Message::Assistant(_) | Message::Other(_) => answer.clone(),
    }
}

pub(super) fn missing(call: &str, name: &str, timestamp: u64) -> Message {
    Message::ToolResult(ToolResult {
        tool_call_id: call.to_owned(),
        tool_name: name.to_owned(),
        content: vec![Block::text(NO_RESULT)],
        details: None,
        is_error: true,
        timestamp,
        extra: serde_json::Map::new(),
    })
}
