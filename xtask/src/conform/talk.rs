//! Messages of a session, from a transcript, a history or a model request.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use serde_json::Value;

/// Messages of a transcript, in order.
#[derive(Debug, PartialEq)]
pub(super) struct Talk {
    pub(super) session: String,
    pub(super) said: Vec<Words>,
}

/// Role and text of a message.
pub(super) type Words = (String, String);

impl Talk {
    pub(super) fn read(transcript: &str) -> Self {
        let lines: Vec<Value> = transcript.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let said = lines.iter().filter(|line| line["type"] == "message").map(|line| words(&line["message"]));
        Self { session: lines.first().map(|header| text(&header["id"])).unwrap_or_default(), said: said.collect() }
    }

    /// Returns the number of user messages that contain a text.
    pub(super) fn count(&self, words: &str) -> usize {
        self.said.iter().filter(|(role, text)| role == "user" && text.contains(words)).count()
    }

    /// Returns the model's answer to a user message that contains a text.
    pub(super) fn reply_to(&self, words: &str) -> Option<&str> {
        let asked = self.said.iter().position(|(role, text)| role == "user" && text.contains(words))?;
        let mut later = self.said[asked..].iter();
        later.find(|(role, text)| role == "assistant" && !text.is_empty()).map(|(_, text)| text.as_str())
    }
}

/// Returns role and text of a message, be its content a text or blocks.
pub(super) fn words(message: &Value) -> Words {
    let blocks = message["content"].as_array().into_iter().flatten();
    let blocks = blocks.map(|block| text(&block["text"])).collect::<String>();
    (text(&message["role"]), text(&message["content"]) + &blocks)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns every transcript of the gateway.
pub(super) fn conversations(state: &Path) -> Result<Vec<Talk>> {
    let mut talks = Vec::new();
    let agents = state.join("agents");
    for agent in fs::read_dir(&agents).with_context(|| format!("cannot read {}", agents.display()))? {
        let sessions = agent?.path().join("sessions");
        for file in fs::read_dir(&sessions).into_iter().flatten() {
            let path = file?.path();
            if path.extension().is_some_and(|ending| ending == "jsonl") {
                talks.push(Talk::read(&fs::read_to_string(path)?));
            }
        }
    }
    Ok(talks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transcript_tells_who_said_what() {
        let talk = Talk::read(concat!(
            r#"{"type":"session","version":3,"id":"s1","timestamp":"t","cwd":"/w"}"#,
            "\n",
            r#"{"type":"message","id":"a","parentId":null,"message":{"role":"user","content":"hi there"}}"#,
            "\n",
            r#"{"type":"message","id":"b","parentId":"a","message":{"role":"assistant","content":[{"type":"text","text":"hello"}]}}"#,
            "\n",
        ));
        assert_eq!((talk.session.as_str(), talk.count("hi"), talk.reply_to("hi")), ("s1", 1, Some("hello")));
        assert_eq!((talk.count("hello"), talk.reply_to("bye")), (0, None));
    }
}
