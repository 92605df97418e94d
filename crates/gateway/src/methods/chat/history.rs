//! `chat.history`: the messages of a session, as shown to people.

use std::sync::Arc;

use homard_agent::{row::session_row, wire};
use homard_proto::{
    EntryId, ErrorShape, Generation, SessionKey,
    message::{Assistant, Message, STEERED_INTO, StopReason},
    method::{Params, chat::HistoryParams},
    session::Record,
};
use serde_json::{Value, json};

use super::strip_envelope::strip_envelope;
use crate::{
    methods::{session_key_of_agent, sessions::defaults, unavailable},
    router::{RpcCall, RpcResult},
};

/// Default number of messages.
const DEFAULT_MESSAGES: usize = 200;
/// Maximum total size of messages in bytes.
const MAX_BYTES: usize = 6 * 1024 * 1024;
/// Size in bytes above which a message is shortened.
const MAX_MESSAGE_BYTES: usize = 128 * 1024;
/// Maximum length, in characters, of each text in a shortened message.
const MAX_TEXT_CHARS: usize = 12_000;

/// Marks truncated text.
const TRUNCATION_MARK: &str = "…(truncated)…";

/// Returns the messages of a session, newest last.
pub(crate) async fn history(mut call: RpcCall) -> Result<RpcResult, ErrorShape> {
    let HistoryParams { session_key, agent_id, session_id, limit, offset, max_chars, max_bytes, cursor, input_run_ids } =
        call.params()?;
    let key = session_key_of_agent(&call.server, HistoryParams::METHOD, &session_key, agent_id.as_deref())?;
    // The gateway issues no cursors; a client that sends one from elsewhere starts over.
    if cursor.is_some() {
        return Ok(json!({"kind": "reset"}).into());
    }
    let found = call.server.hub.sessions().history_entries(&key).await.map_err(unavailable)?;
    let (record, messages) = found.map_or((None, Vec::new()), |(record, messages)| (Some(record), messages));
    if let Some(expected) = session_id
        && record.as_ref().is_none_or(|record| record.session_id != expected)
    {
        let why = format!(
            "invalid chat.history params: sessionId: the current session id of {session_key} is not {expected}"
        );
        return Err(ErrorShape::invalid(why).with_details(json!({"reason": "session-changed"})));
    }
    // Sequence numbers are assigned before filtering, so that they do not depend on the reader.
    let leaf = messages.last().map(|(id, _)| id.clone());
    let messages: Vec<_> = with_positions(&messages).filter(|(_, message)| is_visible(message)).collect();
    let total = messages.len();
    let offset = offset.unwrap_or(0).min(total);
    let newest = messages.iter().rev().skip(offset).take(limit.unwrap_or(DEFAULT_MESSAGES));
    let bytes = max_bytes.unwrap_or(MAX_BYTES).min(MAX_BYTES);
    let generation = call.client.generation;
    let page = newest.map(|(position, message)| add_position(display(message, max_chars), position, generation));
    let page = fit(page, bytes);
    let thinking = record.as_ref().and_then(|record| record.thinking_level.as_deref()).unwrap_or("off");
    let mut answer = json!({"sessionKey": session_key, "thinkingLevel": thinking});
    if let Some(record) = &record {
        answer["sessionId"] = json!(record.session_id);
        if let Some(level) = &record.verbose_level {
            answer["verboseLevel"] = level.as_str().into();
        }
    }
    if call.client.generation == Generation::Four {
        let next = offset + page.len();
        answer["hasMore"] = (next < total).into();
        if next < total {
            answer["nextOffset"] = next.into();
        }
        answer["totalMessages"] = total.into();
        answer["pendingInputs"] = json!({"items": [], "total": 0});
        answer["defaults"] = defaults(&call.server);
        if let Some(record) = &record {
            answer["sessionInfo"] = row(&call, &key, record);
            answer["sessionInfo"]["activeLeafEntryId"] = json!(leaf);
        }
        if input_run_ids.is_some() {
            answer["inputReceipts"] = json!([]);
            answer["inputConsumptions"] = json!([]);
        }
    }
    answer["messages"] = page.into();
    Ok(answer.into())
}

/// Builds the session's list row with its active runs.
fn row(call: &RpcCall, key: &SessionKey, record: &Record) -> Value {
    let mut row = session_row(key, record, Generation::Four);
    let runs = call.server.hub.runs().live();
    let active: Vec<_> = runs.iter().filter(|run| run.key == *key).map(|run| &run.run).collect();
    row["hasActiveRun"] = (!active.is_empty()).into();
    row["activeRunIds"] = json!(active);
    row
}

/// Position of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
struct MessagePosition {
    /// Id of its transcript entry.
    id: EntryId,
    /// Sequence number in the session, from 1.
    seq: u64,
    /// Run that it belongs to, if known.
    run: Option<String>,
}

/// Assigns positions to messages. A run begins with a user message that carries its id, unless that was steered into an
/// active run, and ends with an answer without tool calls; everything in between belongs to it. A run that failed may
/// have no answer: it ends where the next one begins.
fn with_positions(messages: &[(EntryId, Arc<Message>)]) -> impl Iterator<Item = (MessagePosition, &Arc<Message>)> {
    let mut run: Option<String> = None;
    let mut is_run_over = true;
    (1_u64..).zip(messages).map(move |(seq, (id, message))| {
        match &**message {
            Message::User(user) => {
                let key = user.extra.get("idempotencyKey").and_then(Value::as_str);
                let is_steered = user.extra.contains_key(STEERED_INTO);
                if is_run_over || (key.is_some() && !is_steered) {
                    run = key.map(|key| key.strip_suffix(":user").unwrap_or(key).to_owned());
                    is_run_over = false;
                }
            }
            Message::Assistant(assistant) => is_run_over = assistant.stop_reason != StopReason::ToolUse,
            Message::ToolResult(_) | Message::Other(_) => {}
        }
        (MessagePosition { id: id.clone(), seq, run: run.clone() }, message)
    })
}

/// Adds the position to a message, by which clients of protocol 4 recognise what they already show.
fn add_position(mut message: Value, position: &MessagePosition, generation: Generation) -> Value {
    if generation == Generation::Four {
        message["__openclaw"] = json!({"id": position.id, "seq": position.seq});
        if let Some(run) = &position.run {
            message["__openclaw"]["runId"] = run.as_str().into();
        }
    }
    message
}

/// A message as shown to people, with its position.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DisplayedMessage {
    /// Id of its transcript entry.
    pub(crate) id: EntryId,
    /// Sequence number in the session, from 1.
    pub(crate) seq: u64,
    /// Run that it belongs to, if known.
    pub(crate) run: Option<String>,
    /// The message in the form of protocol 4.
    pub(crate) message: Value,
}

/// Returns the visible messages from an index on.
pub(crate) fn displayed_entries(
    messages: &[(EntryId, Arc<Message>)],
    from: usize,
) -> impl Iterator<Item = DisplayedMessage> {
    with_positions(messages).skip(from).filter(|(_, message)| is_visible(message)).map(|(position, message)| {
        let message = add_position(display(message, None), &position, Generation::Four);
        DisplayedMessage { id: position.id, seq: position.seq, run: position.run, message }
    })
}

/// Returns the visible messages of a transcript as `chat.history` returns them to clients of protocol 4, oldest first.
pub fn displayed_messages(messages: &[(EntryId, Arc<Message>)]) -> Vec<Value> {
    displayed_entries(messages, 0).map(|displayed| displayed.message).collect()
}

/// Returns as many of the newest messages as fit, at least one, oldest first.
fn fit(newest_first: impl Iterator<Item = Value>, bytes: usize) -> Vec<Value> {
    let mut remaining = Some(bytes);
    let mut page = Vec::new();
    for message in newest_first {
        remaining = remaining.and_then(|remaining| remaining.checked_sub(size(&message)));
        if remaining.is_none() && !page.is_empty() {
            break;
        }
        page.push(message);
    }
    page.reverse();
    page
}

/// True if a message is shown. An answer of which nothing is delivered, such as the silent-reply token alone, is
/// hidden.
fn is_visible(message: &Message) -> bool {
    match message {
        Message::Assistant(assistant) => {
            let is_text_only = assistant.tool_calls().next().is_none() && assistant.error_message.is_none();
            !is_text_only || assistant.text().trim().is_empty() || !wire::text_of(assistant).is_empty()
        }
        Message::User(_) | Message::ToolResult(_) | Message::Other(_) => true,
    }
}

/// Replaces the text of an answer by its delivered form, without tags, directives and control tokens, and with its
/// media listed at the end. It is put in place of the first text block.
fn replace_text(blocks: &mut Vec<Value>, assistant: &Assistant) {
    let mut text = Some(wire::text_of(assistant)).filter(|text| !text.is_empty());
    blocks.retain_mut(|block| {
        if block["type"] != "text" {
            return true;
        }
        let Some(text) = text.take() else { return false };
        block["text"] = text.into();
        true
    });
}

/// Converts a message to its displayed form: user text without envelope, answers as delivered, without images, and
/// limited in size.
pub(crate) fn display(message: &Message, max_chars: Option<usize>) -> Value {
    let mut json = json!(message);
    let is_user = matches!(message, Message::User(_));
    match &mut json["content"] {
        Value::String(text) if is_user => *text = strip_envelope(text).into_owned(),
        Value::Array(blocks) => {
            blocks.iter_mut().for_each(|block| display_block(block, is_user));
            if let Message::Assistant(assistant) = message {
                replace_text(blocks, assistant);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {}
    }
    if let Some(limit) = max_chars {
        truncate_text(&mut json["content"], limit);
    }
    if size(&json) > MAX_MESSAGE_BYTES {
        truncate(&mut json, MAX_TEXT_CHARS);
    }
    if size(&json) > MAX_MESSAGE_BYTES {
        json["content"] = json!([{"type": "text", "text": TRUNCATION_MARK}]);
        if let Some(fields) = json.as_object_mut() {
            fields.retain(|_, value| size(value) <= MAX_TEXT_CHARS);
        }
    }
    json
}

fn display_block(block: &mut Value, is_user: bool) {
    if block["type"] == "image" {
        if let Some(fields) = block.as_object_mut()
            && let Some(Value::String(data)) = fields.shift_remove("data")
        {
            fields.insert("bytes".to_owned(), data.len().into());
            fields.insert("omitted".to_owned(), true.into());
        }
    } else if let (true, Some(text)) = (is_user, block["text"].as_str()) {
        block["text"] = strip_envelope(text).into();
    }
}

/// Truncates the visible text of a message.
fn truncate_text(content: &mut Value, max_chars: usize) {
    let Value::Array(blocks) = content else { return truncate(content, max_chars) };
    for block in blocks.iter_mut().filter_map(Value::as_object_mut) {
        for name in ["text", "thinking"] {
            if let Some(text) = block.get_mut(name) {
                truncate(text, max_chars);
            }
        }
    }
}

/// Truncates every text in a value.
fn truncate(value: &mut Value, max_chars: usize) {
    match value {
        Value::String(text) => {
            if let Some((at, _)) = text.char_indices().nth(max_chars) {
                text.truncate(at);
                *text += "\n";
                *text += TRUNCATION_MARK;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| truncate(item, max_chars)),
        Value::Object(fields) => fields.values_mut().for_each(|field| truncate(field, max_chars)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn size(value: &Value) -> usize {
    value.to_string().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn displayed(message: Value, max_chars: Option<usize>) -> Value {
        display(&serde_json::from_value(message).unwrap(), max_chars)
    }

    #[test]
    fn the_oldest_messages_are_dropped_when_the_limit_is_exceeded() {
        let newest_first = || ["cc", "b", "aaaa"].into_iter().map(Value::from);
        assert_eq!(fit(newest_first(), 13), ["aaaa", "b", "cc"].map(Value::from));
        assert_eq!(fit(newest_first(), 12), ["b", "cc"].map(Value::from));
        assert_eq!(fit(newest_first(), 3), ["cc"].map(Value::from));
        assert_eq!(fit(std::iter::empty(), 3), [] as [Value; 0]);
    }

    #[test]
    fn a_message_belongs_to_its_run_also_after_a_run_without_an_answer() {
        let user = |key: &str, steered: Option<&str>| {
            let mut message =
                json!({"role": "user", "timestamp": 1, "content": "x", "idempotencyKey": format!("{key}:user")});
            if let Some(run) = steered {
                message[STEERED_INTO] = run.into();
            }
            message
        };
        let answer = |reason: &str| json!({"role": "assistant", "timestamp": 1, "content": [], "stopReason": reason});
        let messages = [
            user("failed", None),
            user("next", None),
            answer("toolUse"),
            user("absorbed", Some("next")),
            answer("stop"),
            user("last", None),
        ];
        let messages: Vec<_> = messages
            .into_iter()
            .zip('a'..)
            .map(|(message, id)| {
                (EntryId::parse(&id.to_string()).unwrap(), Arc::new(serde_json::from_value(message).unwrap()))
            })
            .collect();
        let runs: Vec<_> = with_positions(&messages).map(|(position, _)| position.run.unwrap()).collect();
        assert_eq!(runs, ["failed", "next", "next", "next", "next", "last"]);
    }

    #[test]
    fn history_shows_the_text_and_the_size_of_images() {
        let stored = json!({
            "role": "user", "timestamp": 1, "idempotencyKey": "k:user", "content": [
                {"type": "text", "text": "[Signal Ann 2026-02-09 10:00] look"},
                {"type": "image", "mimeType": "image/png", "data": "AAAA"},
            ],
        });
        let expected = json!({
            "role": "user", "timestamp": 1, "idempotencyKey": "k:user", "content": [
                {"type": "text", "text": "look"},
                {"type": "image", "mimeType": "image/png", "bytes": 4, "omitted": true},
            ],
        });
        assert_eq!(displayed(stored, None), expected);
        let plain = json!({"role": "user", "timestamp": 1, "content": "[Signal Ann] look"});
        assert_eq!(displayed(plain, None)["content"], "look");
        // A model's text is not treated as an envelope.
        let content = json!([{"type": "text", "text": "[Signal Ann] look"}]);
        assert_eq!(displayed(json!({"role": "assistant", "content": content}), None)["content"], content);
    }

    #[test]
    fn assistant_messages_are_shown_as_delivered() {
        let assistant = |content: Value| json!({"role": "assistant", "content": content});
        let text = |text: &str| json!({"type": "text", "text": text});
        let call = json!({"type": "toolCall", "id": "c", "name": "read", "arguments": {}});
        let thinking = json!({"type": "thinking", "thinking": "hm"});
        for (stored, expected) in [
            (json!([text("[[reply_to_current]] Hi <think>x</think>there")]), json!([text("Hi there")])),
            (json!([text("[[audio_as_voice]]\nMEDIA: ./a.ogg")]), json!([text("./a.ogg")])),
            (json!([thinking, text("One"), call, text("Two")]), json!([thinking, text("OneTwo"), call])),
            (json!([text("NO_REPLY"), call]), json!([call])),
            (json!([text("`[[reply_to_current]]`")]), json!([text("`[[reply_to_current]]`")])),
        ] {
            assert_eq!(displayed(assistant(stored), None)["content"], expected);
        }
        let is_shown = |message: Value| is_visible(&serde_json::from_value(message).unwrap());
        for silent in
            [json!([text("NO_REPLY")]), json!([thinking, text("no_reply.")]), json!([text("**HEARTBEAT_OK**")])]
        {
            assert!(!is_shown(assistant(silent.clone())), "{silent}");
        }
        for visible in
            [json!([]), json!([thinking]), json!([text("NO_REPLY"), call]), json!([text("Say NO_REPLY to it")])]
        {
            assert!(is_shown(assistant(visible.clone())), "{visible}");
        }
        let failed =
            json!({"role": "assistant", "content": [text("NO_REPLY")], "errorMessage": "x", "stopReason": "error"});
        assert!(is_shown(failed));
    }

    #[test]
    fn a_long_message_is_truncated_until_it_fits() {
        let message = |parts: usize| {
            let part = json!({"type": "text", "text": "é".repeat(MAX_MESSAGE_BYTES / 2)});
            json!({"role": "user", "timestamp": 1, "content": vec![part; parts]})
        };
        let text = |chars: usize| json!({"type": "text", "text": format!("{}\n{TRUNCATION_MARK}", "é".repeat(chars))});
        assert_eq!(displayed(message(2), None)["content"], json!([text(MAX_TEXT_CHARS), text(MAX_TEXT_CHARS)]));
        assert_eq!(displayed(message(2), Some(3))["content"], json!([text(3), text(3)]));
        assert_eq!(
            displayed(message(20), None),
            json!({
                "role": "user", "timestamp": 1, "content": [{"type": "text", "text": TRUNCATION_MARK}],
            })
        );
        let call = json!({"role": "assistant", "content": [{"type": "toolCall", "id": "call-1", "name": "read"}]});
        assert_eq!(displayed(call, Some(1))["content"][0]["id"], "call-1");
        let short = json!({"role": "user", "timestamp": 1, "content": "é".repeat(MAX_TEXT_CHARS + 1)});
        assert_eq!(displayed(short.clone(), None), short);
    }
}
