//! Messages of a session, from a transcript, a history or a model request.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use serde_json::Value;

/// Messages of a transcript, in order.
#[derive(Debug, PartialEq)]
pub(super) struct SessionMessages {
    pub(super) session: String,
    pub(super) messages: Vec<RoleAndText>,
}

/// Role and text of a message.
pub(super) type RoleAndText = (String, String);

impl SessionMessages {
    pub(super) fn read(transcript: &str) -> Self {
        let lines: Vec<Value> = transcript.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let messages =
            lines.iter().filter(|line| line["type"] == "message").map(|line| role_and_text(&line["message"]));
        Self {
            session: lines.first().map(|header| text(&header["id"])).unwrap_or_default(),
            messages: messages.collect(),
        }
    }

    /// Returns the number of user messages that contain a text.
    pub(super) fn count(&self, needle: &str) -> usize {
        self.messages.iter().filter(|(role, text)| role == "user" && text.contains(needle)).count()
    }

    /// Returns the model's answer to a user message that contains a text.
    pub(super) fn reply_to(&self, needle: &str) -> Option<&str> {
        let position = self.messages.iter().position(|(role, text)| role == "user" && text.contains(needle))?;
        let mut later = self.messages[position..].iter();
        later.find(|(role, text)| role == "assistant" && !text.is_empty()).map(|(_, text)| text.as_str())
    }
}

/// Returns role and text of a message, be its content a text or blocks.
pub(super) fn role_and_text(message: &Value) -> RoleAndText {
    let blocks = message["content"].as_array().into_iter().flatten();
    let blocks = blocks.map(|block| text(&block["text"])).collect::<String>();
    (text(&message["role"]), text(&message["content"]) + &blocks)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns every transcript of the gateway.
pub(super) fn all_sessions(state: &Path) -> Result<Vec<SessionMessages>> {
    let mut all = Vec::new();
    let agents = state.join("agents");
    for agent in fs::read_dir(&agents).with_context(|| format!("cannot read {}", agents.display()))? {
        let sessions = agent?.path().join("sessions");
        for file in fs::read_dir(&sessions).into_iter().flatten() {
            let path = file?.path();
            if path.extension().is_some_and(|ending| ending == "jsonl") {
                all.push(SessionMessages::read(&fs::read_to_string(path)?));
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transcript_yields_messages_and_replies() {
        let session = SessionMessages::read(concat!(
            r#"{"type":"session","version":3,"id":"s1","timestamp":"t","cwd":"/w"}"#,
            "\n",
            r#"{"type":"message","id":"a","parentId":null,"message":{"role":"user","content":"hi there"}}"#,
            "\n",
            r#"{"type":"message","id":"b","parentId":"a","message":{"role":"assistant","content":[{"type":"text","text":"hello"}]}}"#,
            "\n",
        ));
        assert_eq!((session.session.as_str(), session.count("hi"), session.reply_to("hi")), ("s1", 1, Some("hello")));
        assert_eq!((session.count("hello"), session.reply_to("bye")), (0, None));
    }
}
