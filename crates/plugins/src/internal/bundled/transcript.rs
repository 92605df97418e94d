//! Reads the last messages of a transcript.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
    path::Path,
};

use serde_json::Value;

/// Number of bytes read from the end of a transcript.
const TAIL_BYTES: u64 = 4 * 1024 * 1024;

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TranscriptMessage {
    /// `user` or `assistant`.
    pub(super) role: String,
    pub(super) text: String,
}

struct TranscriptLine {
    parent: Parent,
    message: Option<TranscriptMessage>,
}

enum Parent {
    /// The preceding line.
    Preceding,
    /// The entry with this id.
    Line(String),
    None,
}

/// Returns the last messages of a transcript, without commands, oldest first. Blocks.
pub(super) fn tail(path: &Path, max_messages: usize) -> io::Result<Vec<TranscriptMessage>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    // The first line may be cut and is then skipped, like every line that is not JSON.
    Ok(last_messages(&String::from_utf8_lossy(&bytes), max_messages))
}

fn last_messages(text: &str, max_messages: usize) -> Vec<TranscriptMessage> {
    let mut lines: Vec<TranscriptLine> = Vec::new();
    let mut by_id: HashMap<String, usize> = HashMap::new();
    for value in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let parent = match value.get("parentId") {
            Some(Value::String(id)) => Parent::Line(id.clone()),
            Some(_) => Parent::None,
            None => Parent::Preceding,
        };
        if let Some(id) = value["id"].as_str() {
            by_id.insert(id.to_owned(), lines.len());
        }
        let message = (value["type"] == "message").then(|| message_of(&value["message"])).flatten();
        lines.push(TranscriptLine { parent, message });
    }
    // Rewound entries are in the file, too, but are not reachable from the last one.
    let mut messages = Vec::new();
    let mut index = lines.len().checked_sub(1);
    while let Some(line) = index.and_then(|index| lines.get(index)).filter(|_| messages.len() < max_messages) {
        messages.extend(line.message.clone());
        let parent_index = match &line.parent {
            Parent::Preceding => index.and_then(|index| index.checked_sub(1)),
            Parent::Line(id) => by_id.get(id).copied(),
            Parent::None => None,
        };
        // Only ever towards the start, so that a corrupt file terminates.
        index = parent_index.filter(|parent_index| Some(*parent_index) < index);
    }
    messages.reverse();
    messages
}

/// Returns the text of a message, if it is meant for people.
fn message_of(message: &Value) -> Option<TranscriptMessage> {
    let role = message["role"].as_str().filter(|role| matches!(*role, "user" | "assistant"))?;
    let blocks = message["content"].as_array().into_iter().flatten();
    let blocks = blocks.filter(|block| block["type"] == "text").filter_map(|block| block["text"].as_str());
    let text = message["content"].as_str().into_iter().chain(blocks).collect::<Vec<_>>().join("\n");
    let text = text.trim();
    (!text.is_empty() && !text.starts_with('/'))
        .then(|| TranscriptMessage { role: role.to_owned(), text: text.to_owned() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(id: &str, parent: &Value, role: &str, text: &str) -> String {
        let message = json!({"role": role, "content": [{"type": "text", "text": text}, {"type": "toolCall"}]});
        json!({"type": "message", "id": id, "parentId": parent, "message": message}).to_string()
    }

    fn texts(lines: &[String], max_messages: usize) -> Vec<String> {
        last_messages(&lines.join("\n"), max_messages)
            .into_iter()
            .map(|message| format!("{}: {}", message.role, message.text))
            .collect()
    }

    #[test]
    fn only_entries_reachable_from_the_last_line_are_read() {
        let lines = [
            json!({"type": "session", "id": "s"}).to_string(),
            message("a", &Value::Null, "user", "hello"),
            message("b", &json!("a"), "assistant", "taken back"),
            "half a li".to_owned(),
            message("c", &json!("a"), "assistant", "aye"),
            message("d", &json!("c"), "toolResult", "files"),
            message("e", &json!("d"), "user", "/status"),
            message("f", &json!("e"), "user", " bye\n"),
        ];
        assert_eq!(texts(&lines, 15), ["user: hello", "assistant: aye", "user: bye"]);
        assert_eq!(texts(&lines, 2), ["assistant: aye", "user: bye"]);
    }

    #[test]
    fn corrupt_and_old_transcripts_terminate() {
        let cycle = [message("a", &json!("b"), "user", "one"), message("b", &json!("a"), "user", "two")];
        assert_eq!(texts(&cycle, 15), ["user: one", "user: two"]);
        let old =
            [r#"{"type": "message", "message": {"role": "user", "content": "plain"}}"#.to_owned(), "[1]".to_owned()];
        assert_eq!(texts(&old, 15), ["user: plain"]);
        assert_eq!(texts(&[], 15), Vec::<String>::new());
    }
}
