//! Test helpers: sample conversations.

use std::sync::Arc;

use homard_proto::{
    EntryId, Extra,
    message::{Assistant, Block, ImageBlock, Message, StopReason, ToolCall, ToolResult, Usage, User},
};
use serde_json::{Value, json};

use crate::HistoryLine;

pub(crate) fn user(text: &str) -> Message {
    Message::User(User::text(text, 0))
}

pub(crate) fn assistant(text: &str) -> Message {
    Message::Assistant(Assistant { content: vec![Block::text(text)], ..Assistant::default() })
}

pub(crate) fn calls(calls: &[(&str, &str, Value)]) -> Message {
    let content = calls.iter().map(|(id, name, arguments)| {
        let (id, name, arguments) = ((*id).to_owned(), (*name).to_owned(), arguments.clone());
        Block::ToolCall(ToolCall { id, name, arguments, extra: Extra::new() })
    });
    let stop_reason = StopReason::ToolUse;
    Message::Assistant(Assistant { content: content.collect(), stop_reason, ..Assistant::default() })
}

pub(crate) fn call(id: &str) -> Message {
    calls(&[(id, "exec", json!({"command": "ls"}))])
}

pub(crate) fn result(id: &str, text: &str) -> Message {
    Message::ToolResult(ToolResult {
        tool_call_id: id.to_owned(),
        tool_name: "exec".to_owned(),
        content: vec![Block::text(text)],
        details: None,
        is_error: false,
        timestamp: 0,
        extra: Extra::new(),
    })
}

pub(crate) fn failed(id: &str, text: &str) -> Message {
    let Message::ToolResult(result) = result(id, text) else { unreachable!("a result is one") };
    Message::ToolResult(ToolResult { is_error: true, ..result })
}

pub(crate) fn image() -> Block {
    Block::Image(ImageBlock { data: "A".repeat(4096), mime_type: "image/png".to_owned(), extra: Extra::new() })
}

/// An assistant message that reports token usage.
pub(crate) fn reporting(input: u64, output: u64) -> Message {
    let usage = Usage { input, output, ..Usage::default() };
    Message::Assistant(Assistant { content: vec![Block::text("ok")], usage, ..Assistant::default() })
}

/// Lines named `l0`, `l1` and so on.
pub(crate) fn lines(messages: impl IntoIterator<Item = Message>) -> Vec<HistoryLine> {
    let line = |(index, message)| HistoryLine::new(EntryId::parse(&format!("l{index}")).unwrap(), Arc::new(message));
    messages.into_iter().enumerate().map(line).collect()
}

/// A text of about this many tokens.
pub(crate) fn filler(tokens: usize) -> String {
    "word ".repeat(tokens).trim_end().to_owned()
}

/// A valid summary.
pub(crate) const CHECKPOINT: &str = "\
## Goal
Port the harbour to Rust.
## Constraints
none
## Progress
### Done
Half of it.
## Decisions
Keep SQLite.
## Next steps
The other half.
## Critical context
It is in /srv/harbour.";

/// A valid summary of the beginning of a turn.
pub(crate) const TURN: &str = "\
## Request
Port it.
## So far
Read all of the sources of the harbour and listed them, with the size of each and the date of its last change.
## Needed for the rest
The list is in /tmp/list.txt; of the files in it the first forty were counted.";
