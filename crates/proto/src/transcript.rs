//! Transcript of a session: JSONL, version 3, in OpenClaw's format.
//!
//! The first line is the [`Header`]; every other line is an [`Entry`] that names its parent, so a file is a tree.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{EntryId, Extra, SessionId, message::Message};

/// Version that this crate writes.
pub const VERSION: u32 = 3;

/// The first line of a transcript.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// Type of the line.
    pub r#type: HeaderType,
    /// Always [`VERSION`] when written here.
    pub version: u32,
    /// Session id.
    pub id: SessionId,
    /// ISO 8601, UTC.
    pub timestamp: String,
    /// Working directory of the agent.
    pub cwd: String,
    /// Transcript that this one continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_session: Option<String>,
    /// Fields of other versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The `type` of a header; there is only one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HeaderType {
    /// `session`.
    Session,
}

impl Header {
    /// Creates the header of a new transcript.
    pub fn new(id: SessionId, timestamp: String, cwd: String) -> Self {
        let (r#type, version) = (HeaderType::Session, VERSION);
        Self { r#type, version, id, timestamp, cwd, parent_session: None, extra: Extra::new() }
    }
}

/// Any line but the first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Content of the entry.
    #[serde(flatten)]
    pub kind: Kind,
    /// Entry id.
    pub id: EntryId,
    /// Preceding entry of the conversation; `None` for a root.
    pub parent_id: Option<EntryId>,
    /// ISO 8601, UTC.
    pub timestamp: String,
}

/// Content of an entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Kind {
    /// A message.
    Message(Box<MessageEntry>),
    /// A change of the model from here on.
    ModelChange(ModelChange),
    /// An entry that does not change what the model sees, or one of another version: kept unchanged.
    #[serde(untagged)]
    Other(Map<String, Value>),
}

/// A message entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MessageEntry {
    /// The message.
    pub message: Message,
    /// Fields of other versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A change of the model from here on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelChange {
    /// Provider name in the config.
    pub provider: String,
    /// Model name at that provider.
    pub model_id: String,
    /// Fields of other versions.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Kind {
    /// Creates a message entry.
    pub fn message(message: Message) -> Self {
        Self::Message(Box::new(MessageEntry { message, extra: Extra::new() }))
    }

    /// Creates an entry that replaces everything before `first_kept` by a summary.
    pub fn compaction(summary: &str, first_kept: &EntryId, tokens_before: u64, details: Value) -> Self {
        Self::Other(fields([
            ("type", "compaction".into()),
            ("summary", summary.into()),
            ("firstKeptEntryId", first_kept.as_str().into()),
            ("tokensBefore", tokens_before.into()),
            ("details", details),
        ]))
    }

    /// Creates an entry that undoes a compaction: the original messages count again. Other programs ignore it.
    pub fn compaction_undone(compaction: &EntryId) -> Self {
        let data = json!({"compactionId": compaction});
        Self::Other(fields([("type", "custom".into()), ("customType", COMPACTION_UNDONE.into()), ("data", data)]))
    }

    /// Returns the compaction that this entry undoes, if it is such an entry.
    pub fn undoes(&self) -> Option<&str> {
        let Self::Other(fields) = self else { return None };
        let is_one = fields.get("customType").and_then(Value::as_str) == Some(COMPACTION_UNDONE);
        fields.get("data").filter(|_| is_one)?.get("compactionId")?.as_str()
    }

    /// Creates an entry that excludes earlier entries from the model's context: those from `first` up to this one. They
    /// stay in the transcript. Other programs ignore it.
    pub fn exclusion(first: &EntryId) -> Self {
        let data = json!({"firstEntryId": first});
        Self::Other(fields([("type", "custom".into()), ("customType", EXCLUSION.into()), ("data", data)]))
    }

    /// Returns the first entry that this entry excludes from the model's context, if it is such an entry.
    pub fn excluded_from(&self) -> Option<&str> {
        let Self::Other(fields) = self else { return None };
        let is_one = fields.get("customType").and_then(Value::as_str) == Some(EXCLUSION);
        fields.get("data").filter(|_| is_one)?.get("firstEntryId")?.as_str()
    }
}

/// Custom type of an entry that undoes a compaction.
const COMPACTION_UNDONE: &str = "homard.compaction-undone";

/// Custom type of an entry that excludes earlier entries from the model's context.
const EXCLUSION: &str = "homard.left-out";

fn fields<const N: usize>(fields: [(&str, Value); N]) -> Map<String, Value> {
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// A line of a transcript.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Line {
    /// The first line.
    Header(Header),
    /// Any other line.
    Entry(Box<Entry>),
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_fields_blocks_and_kinds_are_preserved() {
        for line in [
            json!({"type":"session","version":3,"id":"s1","timestamp":"t","cwd":"/w","novel":1}),
            json!({"type":"label","id":"a1","parentId":null,"timestamp":"t","targetId":"x","label":"l"}),
            json!({"type":"message","id":"a1","parentId":"b2","timestamp":"t","message":{
                "role":"assistant","content":[{"type":"text","text":"hi","sig":2},{"type":"hologram","x":1},
                {"type":"thinking","thinking":"hm","thinkingSignature":"s","redacted":true},
                {"type":"toolCall","id":"c","name":"read","arguments":{"path":"a"},"thoughtSignature":"z"}],
                "api":"a","provider":"p","model":"m","usage":{"input":1,"output":2,"cacheRead":0,"cacheWrite":0,
                "totalTokens":3,"cost":{"input":0,"output":0.5,"cacheRead":0,"cacheWrite":0,"total":0.5},"novel":1},
                "stopReason":"toolUse","timestamp":5,"responseId":"r"}}),
            json!({"type":"message","id":"a1","parentId":"b2","timestamp":"t",
                "novel":true,"message":{"role":"bashExecution","command":"ls","timestamp":5}}),
            json!({"type":"model_change","id":"a1","parentId":null,"timestamp":"t","provider":"p","modelId":"m","novel":1}),
            json!({"type":"message","id":"a1","parentId":"b2","timestamp":"t",
                "message":{"role":"user","content":"plain","timestamp":5,"idempotencyKey":"k:user"}}),
        ] {
            let decoded: Line = serde_json::from_value(line.clone()).unwrap();
            assert_eq!(serde_json::to_value(&decoded).unwrap(), line);
        }
    }
}
