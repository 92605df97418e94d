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
    let mut results = results(history);
    let mut view = Vec::with_capacity(history.len());
    for (index, message) in history.iter().enumerate() {
        match &**message {
            Message::Assistant(assistant) if is_failed(assistant) => {}
            Message::Assistant(assistant) => {
                view.push(message.clone());
                for (call_index, call) in assistant.tool_calls().enumerate() {
                    let result = results.remove(&(index, call_index)).map(|result| with_call_id(&call.id, result));
                    view.push(result.unwrap_or_else(|| Arc::new(missing(&call.id, &call.name, assistant.timestamp))));
                }
            }
            Message::ToolResult(_) => {}
            Message::User(_) | Message::Other(_) => view.push(message.clone()),
        }
    }
    view
}

/// True if an assistant message failed or was aborted: it is shown to people, but not to models.
fn is_failed(assistant: &Assistant) -> bool {
    matches!(assistant.stop_reason, StopReason::Error | StopReason::Aborted)
}

/// Maps each call (message index, index of the call in it) to its result.
///
/// Calls of failed messages take their results as well, so that no other call gets them.
fn results(history: &[Arc<Message>]) -> HashMap<(usize, usize), &Arc<Message>> {
    let mut open: HashMap<&str, Vec<(usize, usize)>> = HashMap::new();
    let mut results = HashMap::new();
    for (index, message) in history.iter().enumerate() {
        match &**message {
            Message::Assistant(assistant) => {
                let calls: Vec<_> = assistant.tool_calls().enumerate().collect();
                // Popped from the end, so that of one message's calls the first is matched first.
                for (call_index, call) in calls.into_iter().rev() {
                    open.entry(call.id.trim()).or_default().push((index, call_index));
                }
            }
            Message::ToolResult(result) => {
                let call = open.get_mut(result.tool_call_id.trim()).and_then(Vec::pop);
                results.extend(call.map(|call| (call, message)));
            }
            Message::User(_) | Message::Other(_) => {}
        }
    }
    results
}

/// Returns a result with exactly its call's id. Calls and results are paired even if their ids differ in surrounding
/// whitespace, but providers compare the ids as they are.
fn with_call_id(call: &str, message: &Arc<Message>) -> Arc<Message> {
    match &**message {
        Message::ToolResult(result) if result.tool_call_id != call => {
            Arc::new(Message::ToolResult(ToolResult { tool_call_id: call.to_owned(), ..result.clone() }))
        }
        Message::ToolResult(_) | Message::User(_) | Message::Assistant(_) | Message::Other(_) => message.clone(),
    }
}

/// Builds the result of a call without a recorded one.
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
