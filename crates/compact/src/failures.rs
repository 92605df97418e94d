//! Failed tool calls: the newest ones with their messages, and the total number.

use std::collections::VecDeque;

use homard_proto::message::{Message, ToolResult, join_text};
use serde_json::Value;

use crate::cut;

/// Maximum number of listed failures.
const MAX_LISTED: usize = 8;

/// Maximum number of characters of a listed failure.
const MAX_CHARS: usize = 240;

/// Failed tool calls of the compacted messages, listed in the summary.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ToolFailures {
    newest: VecDeque<String>,
    count: u64,
}

impl ToolFailures {
    /// Restores the failures from the details of an earlier compaction.
    pub(crate) fn from_details(details: &Value) -> Self {
        let list = details.get("toolFailures").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let newest: VecDeque<_> =
            list.iter().filter_map(Value::as_str).take(MAX_LISTED).map(|text| cut::one_line(text, MAX_CHARS)).collect();
        let count = details.get("toolFailureCount").and_then(Value::as_u64).unwrap_or(0);
        Self { count: count.max(newest.len() as u64), newest }
    }

    pub(crate) fn note(&mut self, message: &Message) {
        let Message::ToolResult(result) = message else { return };
        if !result.is_error {
            return;
        }
        self.count += 1;
        self.newest.push_back(describe(result));
        if self.newest.len() > MAX_LISTED {
            self.newest.pop_front();
        }
    }

    /// Returns the listed failures, oldest first.
    pub(crate) fn newest(&self) -> impl Iterator<Item = &str> {
        self.newest.iter().map(String::as_str)
    }

    /// Returns the number of failures, listed or not.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }
}

fn describe(result: &ToolResult) -> String {
    let detail = |name: &str| result.details.as_ref().and_then(|details| details.get(name));
    let code = detail("exitCode").and_then(Value::as_i64).map(|code| format!(" (exit code {code})"));
    let status = || detail("status").and_then(Value::as_str).map(|status| format!(" ({status})"));
    let status_text = code.or_else(status).unwrap_or_default();
    cut::one_line(&format!("{}{status_text}: {}", result.tool_name, join_text(&result.content)), MAX_CHARS)
}

#[cfg(test)]
mod tests {
    use homard_proto::{Extra, message::Block};
    use serde_json::json;

    use super::*;

    fn failed(text: &str, details: Option<Value>) -> Message {
        Message::ToolResult(ToolResult {
            tool_call_id: "c".to_owned(),
            tool_name: "exec".to_owned(),
            content: vec![Block::text(text)],
            details,
            is_error: true,
            timestamp: 0,
            extra: Extra::new(),
        })
    }

    #[test]
    fn the_newest_failures_are_listed_and_the_others_counted() {
        let mut failures =
            ToolFailures::from_details(&json!({"toolFailures": ["edit: no such text"], "toolFailureCount": 3}));
        failures.note(&failed("not\nfound", Some(json!({"exitCode": 127}))));
        failures.note(&failed("gone", Some(json!({"status": "timeout"}))));
        assert_eq!(
            failures.newest().collect::<Vec<_>>(),
            ["edit: no such text", "exec (exit code 127): not found", "exec (timeout): gone"]
        );
        assert_eq!(failures.count(), 5);
        (0..9).for_each(|_| failures.note(&failed(&"x".repeat(999), None)));
        let long = format!("exec: {}…", "x".repeat(234));
        assert_eq!(failures.newest().collect::<Vec<_>>(), [long.as_str(); 8]);
        assert_eq!(failures.count(), 14);
    }
}
