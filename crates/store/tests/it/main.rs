//! Tests of transcripts as providers see them: broken ones from the field, and recorded behaviour of OpenClaw.
#![cfg(test)]

mod orphans;
mod provider;
mod vectors;

use std::{
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
};

use homard_proto::message::{Message, join_text};

/// Beginning of the generated result for a call without one.
const MADE_UP: &str = "No result was recorded";

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

/// Returns the path of the full recordings, if present. Writes past the test harness, which hides the output of passing
/// tests.
fn samples(check: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/samples");
    if path.is_dir() {
        return Some(path);
    }
    let line = format!("skipped: {check}: ../shared/samples is not here\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    None
}

/// Formats a history as one line: a user's text, `<text>` for a summary, `a(ids)` or `a:text` for assistant messages,
/// `r(id:text)` for results, with `?` for a generated one.
fn format_history(history: &[Arc<Message>]) -> String {
    let format_message = |message: &Arc<Message>| match &**message {
        Message::User(user) => {
            let text = user.content.text();
            let summary =
                text.split_once("<summary>\n").and_then(|(_, after_tag)| after_tag.strip_suffix("\n</summary>"));
            summary.map_or_else(|| text.clone(), |summary| format!("<{summary}>"))
        }
        Message::Assistant(assistant) if assistant.tool_calls().next().is_none() => format!("a:{}", assistant.text()),
        Message::Assistant(assistant) => {
            format!("a({})", assistant.tool_calls().map(|call| call.id.as_str()).collect::<Vec<_>>().join(","))
        }
        Message::ToolResult(result) => {
            let text = join_text(&result.content);
            format!("r({}:{})", result.tool_call_id, if text.starts_with(MADE_UP) { "?" } else { &text })
        }
        Message::Other(fields) => panic!("{fields:?} is not for models"),
    };
    history.iter().map(format_message).collect::<Vec<_>>().join(" | ")
}
