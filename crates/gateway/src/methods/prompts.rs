//! `runs.prompt`: what a model received in one request, and how that differs from the request before.

use std::{collections::HashSet, sync::Arc};

use homard_agent::hub::{LoggedRequest, ModelRequests, RequestError, model_requests};
use homard_proto::{
    EntryId, ErrorShape,
    message::Message,
    method::{Params, runs::PromptParams},
};
use homard_request_log::{LoggedPrompt, LoggedTool};
use homard_stdx::text::beginning;
use serde_json::{Value, json};

use super::unavailable;
use crate::router::{RpcCall, RpcResult};

/// Default maximum number of characters of each text.
const DEFAULT_CHARS: usize = 20_000;

/// Maximum total size, in bytes, of the messages in a response. The newest ones are returned.
const MAX_MESSAGE_BYTES: usize = 1024 * 1024;

/// Returns the system prompt by section, the tools and the messages of a model request.
pub(crate) async fn prompt(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let PromptParams { id, request, max_chars } = call.params()?;
    let max_chars = max_chars.unwrap_or(DEFAULT_CHARS);
    let found = model_requests(&call.server.hub, &id, request).await.map_err(not_found)?;
    let entries = match &found.row.session {
        Some(session) => {
            call.server.hub.sessions().transcript_entries(&found.row.key, session).await.map_err(unavailable)?
        }
        None => None,
    };
    Ok(payload(&found, &entries.unwrap_or_default(), max_chars).into())
}

fn not_found(error: RequestError) -> ErrorShape {
    match error {
        RequestError::UnknownRun(_) => ErrorShape::invalid(error.to_string()),
        RequestError::NoRequest(_) => {
            ErrorShape::invalid(format!("invalid {} params: request: {error}", PromptParams::METHOD))
        }
        RequestError::Store(_) | RequestError::Log(_) => unavailable(error),
    }
}

fn payload(found: &ModelRequests, entries: &[(EntryId, Arc<Message>)], max_chars: usize) -> Value {
    let ModelRequests { count, request, previous, .. } = found;
    let mut payload = head(request);
    payload["requests"] = json!(count);
    payload["changed"] = json!(request.span.prompt.changed);
    payload["pruned"] = json!(request.span.prompt.pruned);
    if let Some(previous) = previous {
        payload["previous"] = head(previous);
    }
    if let Some(prompt) = &request.prompt {
        let before = previous.as_ref().and_then(|previous| previous.prompt.as_ref());
        payload["sections"] = sections(prompt, before, max_chars);
        payload["tools"] = tools(prompt, before);
    }
    let (messages, omitted) = messages(request, previous.as_ref(), entries, max_chars);
    payload["messages"] = messages.into();
    payload["omittedMessages"] = json!(omitted);
    payload
}

fn head(request: &LoggedRequest) -> Value {
    let span = &request.span;
    json!({
        "runId": request.run, "request": request.index, "at": request.at, "provider": span.provider,
        "model": span.model, "tokens": span.prompt.tokens, "isKept": request.prompt.is_some(),
    })
}

/// Returns the sections in order, and then those that the request before had in addition.
fn sections(prompt: &LoggedPrompt, before: Option<&LoggedPrompt>, max_chars: usize) -> Value {
    let text_before = |name: &str| {
        before.and_then(|before| before.sections.iter().find(|section| section.name == name)).map(|found| &*found.text)
    };
    let mut rows: Vec<Value> = Vec::new();
    for section in &prompt.sections {
        let mut row = text_row(&section.name, &section.text, max_chars);
        if before.is_some() {
            let earlier = text_before(&section.name);
            row["change"] = change(earlier, &&*section.text).into();
            if let Some(earlier) = earlier.filter(|earlier| *earlier != section.text) {
                row["previousText"] = beginning(earlier, max_chars).into();
            }
        }
        rows.push(row);
    }
    let names: HashSet<_> = prompt.sections.iter().map(|section| &section.name).collect();
    for section in before.iter().flat_map(|before| &before.sections).filter(|section| !names.contains(&section.name)) {
        let mut row = json!({"name": section.name, "chars": 0, "text": "", "change": "removed"});
        row["previousText"] = beginning(&section.text, max_chars).into();
        rows.push(row);
    }
    rows.into()
}

/// Returns the tools in order, and then those that the request before had in addition.
fn tools(prompt: &LoggedPrompt, before: Option<&LoggedPrompt>) -> Value {
    let tool_before = |name: &str| before.and_then(|before| before.tools.iter().find(|tool| tool.name == name));
    let row =
        |tool: &LoggedTool| json!({"name": tool.name, "description": tool.description, "parameters": tool.parameters});
    let mut rows: Vec<Value> = Vec::new();
    for tool in &prompt.tools {
        let mut shown = row(tool);
        if before.is_some() {
            let earlier = tool_before(&tool.name);
            shown["change"] = change(earlier, &tool).into();
            if let Some(earlier) = earlier.filter(|earlier| *earlier != tool) {
                shown["previous"] = row(earlier);
            }
        }
        rows.push(shown);
    }
    let names: HashSet<_> = prompt.tools.iter().map(|tool| &tool.name).collect();
    for tool in before.iter().flat_map(|before| &before.tools).filter(|tool| !names.contains(&tool.name)) {
        let mut shown = row(tool);
        shown["change"] = "removed".into();
        rows.push(shown);
    }
    rows.into()
}

fn change<T: PartialEq>(before: Option<T>, now: &T) -> &'static str {
    match before {
        None => "added",
        Some(before) if before == *now => "same",
        Some(_) => "changed",
    }
}

/// Returns the conversation of a request, oldest first, and the number of messages that are left out. They are read from
/// the transcript: the newest ones when the request was sent, as many as it had. Old tool results may have been shortened
/// in the request.
fn messages(
    request: &LoggedRequest,
    previous: Option<&LoggedRequest>,
    entries: &[(EntryId, Arc<Message>)],
    max_chars: usize,
) -> (Vec<Value>, usize) {
    let count = usize::try_from(request.span.prompt.messages).unwrap_or(usize::MAX);
    let sent = entries.iter().filter(|(_, message)| timestamp(message) <= request.at);
    let newest: Vec<_> = sent.rev().take(count).collect();
    let mut remaining = Some(MAX_MESSAGE_BYTES);
    let mut rows = Vec::new();
    for (_, message) in newest {
        let text = text_of(message);
        let mut row = text_row(role(message), &text, max_chars);
        row["at"] = timestamp(message).into();
        row["isNew"] = previous.is_none_or(|previous| timestamp(message) > previous.at).into();
        remaining = remaining.and_then(|remaining| remaining.checked_sub(row.to_string().len()));
        if remaining.is_none() {
            break;
        }
        rows.push(row);
    }
    rows.reverse();
    let omitted = count.saturating_sub(rows.len());
    (rows, omitted)
}

fn role(message: &Message) -> &'static str {
    match message {
        Message::User(_) => "user",
        Message::Assistant(_) => "assistant",
        Message::ToolResult(_) => "toolResult",
        Message::Other(_) => "other",
    }
}

fn timestamp(message: &Message) -> u64 {
    match message {
        Message::User(user) => user.timestamp,
        Message::Assistant(assistant) => assistant.timestamp,
        Message::ToolResult(result) => result.timestamp,
        // Entries of other programs have no time of their own, and no model receives them.
        Message::Other(_) => u64::MAX,
    }
}

/// Returns the text of a message as a model reads it; images are only named.
fn text_of(message: &Message) -> String {
    let content = &json!(message)["content"];
    let block = |block: &Value| match block["type"].as_str().unwrap_or_default() {
        "text" => block["text"].as_str().unwrap_or_default().to_owned(),
        "thinking" => format!("[reasoning] {}", block["thinking"].as_str().unwrap_or_default()),
        "toolCall" => format!("[tool call] {} {}", block["name"].as_str().unwrap_or_default(), block["arguments"]),
        other => format!("[{other}]"),
    };
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks.iter().map(block).collect::<Vec<_>>().join("\n"),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => String::new(),
    }
}

fn text_row(name: &str, text: &str, max_chars: usize) -> Value {
    json!({"name": name, "chars": text.chars().count(), "text": beginning(text, max_chars)})
}

#[cfg(test)]
mod tests {
    use homard_request_log::LoggedSection;

    use super::*;

    fn prompt(sections: &[(&str, &str)], tools: &[&str]) -> LoggedPrompt {
        let section = |(name, text): &(&str, &str)| LoggedSection { name: (*name).into(), text: (*text).into() };
        let tool = |name: &&str| LoggedTool {
            name: (*name).into(),
            description: "does it".into(),
            parameters: json!({"type": "object"}),
        };
        LoggedPrompt { sections: sections.iter().map(section).collect(), tools: tools.iter().map(tool).collect() }
    }

    #[test]
    fn sections_say_how_they_differ_from_the_previous_request() {
        let before = prompt(&[("Identity", "you"), ("Skills", "old"), ("Runtime", "a")], &[]);
        let now = prompt(&[("Identity", "you"), ("Memory", "new"), ("Runtime", "abc")], &[]);
        assert_eq!(
            sections(&now, Some(&before), 2),
            json!([
                {"name": "Identity", "chars": 3, "text": "yo", "change": "same"},
                {"name": "Memory", "chars": 3, "text": "ne", "change": "added"},
                {"name": "Runtime", "chars": 3, "text": "ab", "change": "changed", "previousText": "a"},
                {"name": "Skills", "chars": 0, "text": "", "change": "removed", "previousText": "ol"},
            ])
        );
        assert_eq!(sections(&now, None, 9)[0], json!({"name": "Identity", "chars": 3, "text": "you"}));
    }

    #[test]
    fn tools_say_how_they_differ_from_the_previous_request() {
        let (before, mut now) = (prompt(&[], &["read", "exec", "web"]), prompt(&[], &["read", "exec", "edit"]));
        now.tools[1].description = "differs".into();
        let rows = tools(&now, Some(&before));
        let changes: Vec<_> =
            rows.as_array().unwrap().iter().map(|row| (row["name"].clone(), row["change"].clone())).collect();
        let expected = [("read", "same"), ("exec", "changed"), ("edit", "added"), ("web", "removed")];
        assert_eq!(changes, expected.map(|(name, change)| (json!(name), json!(change))));
        assert_eq!(rows[1]["previous"]["description"], "does it");
    }
}
