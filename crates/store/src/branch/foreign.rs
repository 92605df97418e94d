//! Converts OpenClaw's entries and messages of other roles than user, assistant and tool to the messages that a model
//! receives.

use homard_proto::message::{Assistant, Content, Message, StopReason, ToolResult, User};
use serde_json::{Map, Value, json};

use super::string_field;

/// Maximum number of characters of a command's output that a model receives: its end.
const MAX_OUTPUT_CHARS: usize = 30_000;

/// Builds the message for a compaction summary.
pub(super) fn compacted(summary: &str) -> Message {
    summarized("The conversation up to here was long. This is what matters of it:", summary)
}

/// Converts an entry that is not a message; `None` if it is not meant for models.
pub(super) fn convert_entry(fields: &Map<String, Value>) -> Option<Message> {
    match string_field(fields, "type")? {
        "branch_summary" => Some(branch_summary(string_field(fields, "summary")?)),
        "custom_message" => user_message(fields),
        _ => None,
    }
}

/// Converts a message of another role, or one with malformed fields.
pub(super) fn convert_message(fields: &Map<String, Value>) -> Option<Message> {
    match string_field(fields, "role")? {
        "custom" | "hookMessage" => user_message(fields),
        "bashExecution" => bash_execution(fields),
        "branchSummary" => Some(branch_summary(string_field(fields, "summary")?)),
        "compactionSummary" => Some(compacted(string_field(fields, "summary")?)),
        "user" => user_message(fields),
        "assistant" => salvaged_answer(fields),
        "toolResult" => salvaged_result(fields),
        _ => None,
    }
}

fn branch_summary(summary: &str) -> Message {
    summarized(
        "The conversation went another way for a while and then came back here. This is what matters of it:",
        summary,
    )
}

fn summarized(introduction: &str, summary: &str) -> Message {
    Message::User(User::text(format!("{introduction}\n\n<summary>\n{summary}\n</summary>"), 0))
}

fn user_message(fields: &Map<String, Value>) -> Option<Message> {
    let content: Content = serde_json::from_value(fields.get("content")?.clone()).ok()?;
    Some(Message::User(User { content, timestamp: time(fields), extra: Map::new() }))
}

/// Converts a command that the user ran beside the conversation, unless it is marked as excluded from the context.
fn bash_execution(fields: &Map<String, Value>) -> Option<Message> {
    let is_set = |name: &str| fields.get(name).and_then(Value::as_bool).unwrap_or(false);
    if is_set("excludeFromContext") {
        return None;
    }
    let output = string_field(fields, "output").unwrap_or("").trim_end();
    let excerpt = last_chars(output, MAX_OUTPUT_CHARS);
    let mut text = format!("Ran `{}`\n", string_field(fields, "command")?);
    if excerpt.is_empty() {
        text.push_str("(no output)");
    } else {
        let fence = fence(excerpt);
        text.push_str(&format!("{fence}\n{excerpt}\n{fence}"));
    }
    if excerpt.len() < output.len() || is_set("truncated") {
        text.push_str("\nThe beginning of the output is left out.");
        if let Some(path) = string_field(fields, "fullOutputPath") {
            text.push_str(&format!(" All of it is in {path}."));
        }
    }
    match fields.get("exitCode").and_then(Value::as_i64) {
        _ if is_set("cancelled") => text.push_str("\nThe command was stopped."),
        Some(code) if code != 0 => text.push_str(&format!("\nThe command ended with code {code}.")),
        Some(_) | None => {}
    }
    Some(Message::User(User::text(text, time(fields))))
}

/// Returns the end of a text, at most this many characters.
fn last_chars(text: &str, max_chars: usize) -> &str {
    match text.char_indices().rev().nth(max_chars.saturating_sub(1)) {
        Some((from, _)) => &text[from..],
        None => text,
    }
}

/// Returns a code fence longer than any run of backticks in the text.
fn fence(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    "`".repeat((longest + 1).max(3))
}

/// Salvages the text and calls of an assistant message with a field that this version cannot parse.
fn salvaged_answer(fields: &Map<String, Value>) -> Option<Message> {
    let stop_reason = fields.get("stopReason").cloned().unwrap_or_default();
    Some(Message::Assistant(Assistant {
        content: serde_json::from_value(blocks(fields)?).ok()?,
        api: string_field(fields, "api").unwrap_or_default().to_owned(),
        provider: string_field(fields, "provider").unwrap_or_default().to_owned(),
        model: string_field(fields, "model").unwrap_or_default().to_owned(),
        stop_reason: serde_json::from_value(stop_reason).unwrap_or(StopReason::Stop),
        timestamp: time(fields),
        ..Assistant::default()
    }))
}

/// Salvages a tool result with a field that this version cannot parse.
fn salvaged_result(fields: &Map<String, Value>) -> Option<Message> {
    Some(Message::ToolResult(ToolResult {
        tool_call_id: string_field(fields, "toolCallId").or_else(|| string_field(fields, "toolUseId"))?.to_owned(),
        tool_name: string_field(fields, "toolName").unwrap_or("unknown").to_owned(),
        content: serde_json::from_value(blocks(fields)?).ok()?,
        details: None,
        is_error: fields.get("isError").and_then(Value::as_bool).unwrap_or(false),
        timestamp: time(fields),
        extra: Map::new(),
    }))
}

/// Returns the content as a list of blocks, also if it is plain text or missing.
fn blocks(fields: &Map<String, Value>) -> Option<Value> {
    match fields.get("content") {
        Some(Value::String(text)) => Some(json!([{"type": "text", "text": text}])),
        Some(list @ Value::Array(_)) => Some(list.clone()),
        Some(Value::Null) | None => Some(json!([])),
        Some(Value::Bool(_) | Value::Number(_) | Value::Object(_)) => None,
    }
}

fn time(fields: &Map<String, Value>) -> u64 {
    fields.get("timestamp").and_then(Value::as_u64).unwrap_or(0)
}
