//! Results of client tools.
//!
//! A call of a client tool ends its run with a placeholder result, because every call in the transcript has one result.
//! The real result arrives with the sender's next message. It is stored beside the text of that message and sent to
//! models as the result of the call.

use std::sync::Arc;

use homard_proto::message::{Block, Content, Message, ToolResult, User};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Placeholder result of a client tool call, until the result arrives.
const PENDING: &str = "The call was passed to the client, which runs it. Its result arrives with the next message.";

/// Field of a message with the results.
const RESULTS_FIELD: &str = "clientResults";

/// Result of one call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientResult {
    /// Id of the call.
    pub tool_call_id: String,
    /// Text of the result.
    pub text: String,
    /// The result as prose, for a history that does not contain the call.
    #[serde(rename = "told")]
    pub prose: String,
}

/// Results of a message, and its own text.
#[derive(Debug, Serialize, Deserialize)]
struct AttachedResults {
    results: Vec<ClientResult>,
    text: String,
}

/// Returns text and details of the placeholder result.
pub fn placeholder(tool: &str) -> (&'static str, Value) {
    (PENDING, json!({"status": "pending", "tool": tool}))
}

/// Builds the placeholder result for a transcript.
pub fn placeholder_result(id: &str, tool: &str, timestamp: u64) -> ToolResult {
    let (text, details) = placeholder(tool);
    ToolResult {
        tool_call_id: id.to_owned(),
        tool_name: tool.to_owned(),
        content: vec![Block::text(text)],
        details: Some(details),
        is_error: false,
        timestamp,
        extra: serde_json::Map::new(),
    }
}

/// Adds results to a message; `text` is the message's own text.
pub fn attach(message: &mut User, results: Vec<ClientResult>, text: String) {
    if !results.is_empty() {
        message.extra.insert(RESULTS_FIELD.to_owned(), json!(AttachedResults { results, text }));
    }
}

/// Moves every result to its call, as sent to a model. A message that consists only of moved results is removed.
pub(crate) fn place_results(messages: Vec<Arc<Message>>) -> Vec<Arc<Message>> {
    let has_results =
        |message: &Arc<Message>| matches!(&**message, Message::User(user) if user.extra.contains_key(RESULTS_FIELD));
    if !messages.iter().any(has_results) {
        return messages;
    }
    let mut placed: Vec<Arc<Message>> = Vec::with_capacity(messages.len());
    for message in messages {
        let Some((user, mut attached)) = results_of(&message) else {
            placed.push(message);
            continue;
        };
        let count = attached.results.len();
        attached.results.retain(|result| !replace_placeholder(&mut placed, result));
        let has_placed = attached.results.len() < count;
        if let Some(rest) = without_results(user, attached).filter(|rest| !has_placed || has_other_content(rest)) {
            placed.push(Arc::new(Message::User(rest)));
        }
    }
    placed
}

fn results_of(message: &Message) -> Option<(&User, AttachedResults)> {
    let Message::User(user) = message else { return None };
    Some((user, AttachedResults::deserialize(user.extra.get(RESULTS_FIELD)?).ok()?))
}

/// Replaces the placeholder result of a call. Returns true if there was one.
fn replace_placeholder(placed: &mut [Arc<Message>], result: &ClientResult) -> bool {
    let is_open = |pending: &ToolResult| {
        let status = pending.details.as_ref().and_then(|details| details.get("status"));
        pending.tool_call_id.trim() == result.tool_call_id.trim() && status == Some(&json!("pending"))
    };
    let found = placed.iter_mut().rev().find_map(|message| match &**message {
        Message::ToolResult(pending) if is_open(pending) => {
            let content = vec![Block::text(&result.text)];
            Some((ToolResult { content, details: None, ..pending.clone() }, message))
        }
        Message::ToolResult(_) | Message::User(_) | Message::Assistant(_) | Message::Other(_) => None,
    });
    let Some((replaced, slot)) = found else { return false };
    *slot = Arc::new(Message::ToolResult(replaced));
    true
}

/// Returns the message as sent to a model, without the results that were moved to their calls. The `remaining` results,
/// whose calls are not in the history, are put as prose before the message's own text.
fn without_results(user: &User, remaining: AttachedResults) -> Option<User> {
    let texts = remaining.results.into_iter().map(|result| result.prose).chain([remaining.text]);
    let text = texts.filter(|text| !text.trim().is_empty()).collect::<Vec<_>>().join("\n\n");
    let mut rest = user.clone();
    let images = user.content.images().cloned().map(Block::Image);
    let text_block = (!text.is_empty()).then(|| Block::text(text));
    rest.content = Content::Blocks(text_block.into_iter().chain(images).collect());
    Some(rest)
}

/// True if a message contains more than results: text, pictures or notes.
fn has_other_content(rest: &User) -> bool {
    let is_empty = matches!(&rest.content, Content::Blocks(blocks) if blocks.is_empty());
    !is_empty || rest.extra.contains_key(super::notes::NOTES)
}

#[cfg(test)]
mod tests {
    use homard_proto::message::{Assistant, StopReason, ToolCall};

    use super::*;

    fn call(id: &str) -> Arc<Message> {
        let call = ToolCall { id: id.to_owned(), name: "weather".to_owned(), ..ToolCall::default() };
        let content = vec![Block::ToolCall(call)];
        Arc::new(Message::Assistant(Assistant { content, stop_reason: StopReason::ToolUse, ..Assistant::default() }))
    }

    fn pending_result(id: &str) -> Arc<Message> {
        Arc::new(Message::ToolResult(placeholder_result(id, "weather", 1)))
    }

    fn with_results(ids: &[&str], text: &str) -> Arc<Message> {
        let result = |id: &&str| ClientResult {
            tool_call_id: (*id).to_owned(),
            text: "18".to_owned(),
            prose: format!("[Result of {id}]\n18"),
        };
        let mut user = User::text("as written", 2);
        attach(&mut user, ids.iter().map(result).collect(), text.to_owned());
        Arc::new(Message::User(user))
    }

    fn describe(messages: Vec<Arc<Message>>) -> Vec<String> {
        let line = |message: &Arc<Message>| match &**message {
            Message::User(user) => format!("user {}", user.content.text()),
            Message::Assistant(_) => "call".to_owned(),
            Message::ToolResult(result) => {
                format!("result {} {}", result.tool_call_id, homard_proto::message::join_text(&result.content))
            }
            Message::Other(_) => "other".to_owned(),
        };
        place_results(messages).iter().map(line).collect()
    }

    #[test]
    fn a_result_replaces_the_placeholder_of_its_call() {
        assert_eq!(
            describe(vec![call("c1"), pending_result("c1"), with_results(&["c1"], "")]),
            ["call", "result c1 18"]
        );
        let both = describe(vec![call("c1"), pending_result("c1"), with_results(&["c1"], "And Rome?")]);
        assert_eq!(both, ["call", "result c1 18", "user And Rome?"]);
    }

    #[test]
    fn a_result_without_its_call_becomes_text() {
        assert_eq!(describe(vec![with_results(&["c9"], "")]), ["user [Result of c9]\n18"]);
        let twice =
            describe(vec![call("c1"), pending_result("c1"), with_results(&["c1"], ""), with_results(&["c1"], "")]);
        assert_eq!(twice, ["call", "result c1 18", "user [Result of c1]\n18"], "a call has one result");
    }
}
