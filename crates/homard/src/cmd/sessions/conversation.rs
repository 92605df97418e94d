//! The messages of a session: from the gateway, or from the state directory if none runs. Both return the same.

use anyhow::{Context, Result};
use homard_agent::row::session_row;
use homard_client::{ConnectResult, GatewayClient};
use homard_gateway::displayed_messages;
use homard_journal::Journal;
use homard_proto::Generation;
use homard_runtime::{Ambient, ambient::iso};
use homard_store::{StoreReader, branch};
use serde_json::{Value, json};

use super::lookup::named;
use crate::{cmd::query::CommandContext, render};

/// Maximum number of messages in a page of the gateway.
const PAGE: usize = 1000;
/// Characters that change the direction of the text around them, with which a text can look like another one.
const DIRECTION_CHARS: [char; 11] = [
    '\u{61c}', '\u{200e}', '\u{200f}', '\u{202a}', '\u{202b}', '\u{202c}', '\u{202d}', '\u{202e}', '\u{2066}',
    '\u{2067}', '\u{2068}',
];

/// Where messages are read.
pub(in crate::cmd) enum MessageSource<'a> {
    Gateway(Box<GatewayClient>),
    State(Box<Journal>, &'a CommandContext),
    /// There is no state directory yet.
    Nothing,
}

/// A session with its messages, oldest first.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::cmd) struct Conversation {
    pub(in crate::cmd) key: String,
    pub(in crate::cmd) session_id: String,
    /// Number of all its messages.
    pub(super) total: usize,
    /// The newest ones, as in `chat.history`.
    pub(in crate::cmd) messages: Vec<Value>,
}

impl Conversation {
    /// Returns the document that `--json` prints.
    pub(super) fn document(&self) -> Value {
        json!({
            "ok": true, "key": self.key, "sessionId": self.session_id, "totalMessages": self.total,
            "messages": self.messages,
        })
    }
}

impl<'a> MessageSource<'a> {
    /// Connects to the gateway or, if none runs, opens the state directory.
    pub(in crate::cmd) async fn open(setup: &'a CommandContext) -> Result<Self> {
        if let ConnectResult::Gateway(client) = GatewayClient::connect(&setup.target, &["operator.read"], &[]).await? {
            return Ok(Self::Gateway(client));
        }
        if !setup.target.is_own {
            return Err(setup.not_running().into());
        }
        // Reading must not create the directory.
        if !setup.paths.state.exists() {
            return Ok(Self::Nothing);
        }
        let opened = Journal::open(&setup.paths.state, || Ambient::system().now_ms());
        let journal = opened.with_context(|| {
            format!("no gateway answers at {}, and the state directory cannot be read directly", setup.target.url)
        })?;
        Ok(Self::State(Box::new(journal), setup))
    }

    /// Returns true if messages come from a running gateway.
    pub(super) fn is_live(&self) -> bool {
        matches!(self, Self::Gateway(..))
    }

    /// Returns the keys of all sessions, the most recently updated first.
    pub(super) async fn keys(&mut self) -> Result<Vec<String>> {
        let mut rows: Vec<Value> = match self {
            Self::Gateway(client) => {
                let params = json!({"includeGlobal": true, "includeUnknown": true, "archived": "all"});
                let mut listed = client.call("sessions.list", params).await?;
                listed["sessions"].as_array_mut().map(std::mem::take).unwrap_or_default()
            }
            Self::State(journal, _) => {
                let sessions = journal.list().await?;
                sessions.iter().map(|(key, record)| session_row(key, record, Generation::Four)).collect()
            }
            Self::Nothing => Vec::new(),
        };
        rows.sort_by_key(|row| (std::cmp::Reverse(row["updatedAt"].as_u64()), row["key"].to_string()));
        Ok(rows.iter().filter_map(|row| row["key"].as_str().map(str::to_owned)).collect())
    }

    /// Returns a session with its newest messages, all without a limit; `None` if there is no such session.
    pub(in crate::cmd) async fn conversation(
        &mut self,
        key: &str,
        limit: Option<usize>,
    ) -> Result<Option<Conversation>> {
        let limit = limit.unwrap_or(usize::MAX);
        match self {
            Self::Gateway(client) => from_gateway(client, key, limit).await,
            Self::State(journal, setup) => {
                let Some(session) = journal.load(&named(setup, key)?).await? else { return Ok(None) };
                let mut messages = displayed_messages(&branch::all_message_entries(&session.entries));
                let total = messages.len();
                messages.drain(..total.saturating_sub(limit));
                let session_id = session.record.session_id.to_string();
                Ok(Some(Conversation { key: key.to_owned(), session_id, total, messages }))
            }
            Self::Nothing => Ok(None),
        }
    }

    /// Closes the state directory. Without this, it would count as a crash.
    pub(in crate::cmd) async fn close(self) -> Result<()> {
        match self {
            Self::State(journal, _) => Ok(journal.flush().await?),
            Self::Gateway(..) | Self::Nothing => Ok(()),
        }
    }
}

/// Reads pages, newest first, until there are enough messages.
async fn from_gateway(client: &mut GatewayClient, key: &str, limit: usize) -> Result<Option<Conversation>> {
    let mut found: Option<Conversation> = None;
    let mut offset = 0;
    loop {
        let loaded = found.as_ref().map_or(0, |conversation| conversation.messages.len());
        let params = json!({"sessionKey": key, "limit": (limit - loaded).clamp(1, PAGE), "offset": offset});
        let mut page = client.call("chat.history", params).await?;
        let Some(session_id) = page["sessionId"].as_str().map(str::to_owned) else { return Ok(None) };
        let mut messages = page["messages"].as_array_mut().map(std::mem::take).unwrap_or_default();
        let total = page["totalMessages"].as_u64().and_then(|total| usize::try_from(total).ok()).unwrap_or_default();
        let conversation =
            found.get_or_insert_with(|| Conversation { key: key.to_owned(), session_id, total, messages: Vec::new() });
        // Messages that came in between shift the pages.
        if let Some(oldest) = conversation.messages.first().map(sequence_number) {
            messages.retain(|message| sequence_number(message) < oldest);
        }
        conversation.messages.splice(..0, messages);
        let next = page["nextOffset"].as_u64().and_then(|next| usize::try_from(next).ok());
        match next {
            Some(next) if next > offset && conversation.messages.len() < limit => offset = next,
            Some(_) | None => return Ok(found),
        }
    }
}

/// Returns the position of a message in its session.
pub(super) fn sequence_number(message: &Value) -> u64 {
    message["__openclaw"]["seq"].as_u64().unwrap_or_default()
}

/// A message, prepared for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ShownMessage {
    /// Who wrote it: `user`, `assistant`, or the name of a tool and `result`.
    pub(super) author: String,
    /// Time, model and failure, if known.
    pub(super) details: Vec<String>,
    pub(super) text: String,
    /// Tool calls: the name, and the arguments in short.
    pub(super) calls: Vec<String>,
}

impl ShownMessage {
    pub(super) fn new(message: &Value) -> Self {
        let field = |name: &str| message[name].as_str().filter(|text| !text.is_empty()).map(plain);
        let author = match field("role").as_deref() {
            Some("toolResult") => format!("{} result", field("toolName").unwrap_or_default()),
            Some(role) => role.to_owned(),
            None => "other".to_owned(),
        };
        let mut details: Vec<String> =
            message["timestamp"].as_u64().filter(|at| *at > 0).map(iso).into_iter().collect();
        if let (Some(provider), Some(model)) = (field("provider"), field("model")) {
            details.push(format!("{provider}/{model}"));
        }
        if message["isError"] == true || message["stopReason"] == "error" {
            details.push("failed".to_owned());
        }
        let (mut texts, mut calls) = (Vec::new(), Vec::new());
        match &message["content"] {
            Value::String(text) => texts.push(plain(text)),
            Value::Array(blocks) => {
                for block in blocks {
                    match block["type"].as_str() {
                        Some("text") => texts.push(plain(block["text"].as_str().unwrap_or_default())),
                        Some("toolCall") => {
                            let arguments = render::tool_arguments(&block["arguments"]);
                            calls.push(plain(&format!("{} {arguments}", block["name"].as_str().unwrap_or_default())));
                        }
                        Some("image") => texts.push("[image]".to_owned()),
                        Some(_) | None => {}
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {}
        }
        texts.extend(field("errorMessage").map(|error| format!("[error: {error}]")));
        texts.retain(|text| !text.trim().is_empty());
        Self { author, details, text: texts.join("\n\n"), calls }
    }

    /// Returns the author and the details on one line.
    pub(super) fn title(&self) -> String {
        std::iter::once(&self.author).chain(&self.details).cloned().collect::<Vec<_>>().join("  ")
    }
}

/// Removes what could change the terminal, or how the text around it looks.
pub(super) fn plain(text: &str) -> String {
    render::strip_controls(text).replace(|c| DIRECTION_CHARS.contains(&c) || c == '\u{2069}', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_prepared_for_people() {
        let message = json!({
            "role": "assistant", "provider": "p", "model": "m\u{1b}[2J", "timestamp": 1_000, "stopReason": "toolUse",
            "content": [
                {"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "I \u{202e}look"},
                {"type": "toolCall", "id": "c", "name": "exec", "arguments": {"command": "ls\u{7}"}}, {"type": "image"},
            ],
        });
        let expected = ShownMessage {
            author: "assistant".to_owned(),
            details: vec!["1970-01-01T00:00:01.000Z".to_owned(), "p/m[2J".to_owned()],
            text: "I look\n\n[image]".to_owned(),
            calls: vec!["exec ls".to_owned()],
        };
        assert_eq!(ShownMessage::new(&message), expected);
        let failed = json!({"role": "toolResult", "toolName": "exec", "isError": true, "content": [], "timestamp": 0});
        assert_eq!(ShownMessage::new(&failed).title(), "exec result  failed");
        assert_eq!(ShownMessage::new(&json!({"role": "user", "content": "hi"})).text, "hi");
    }
}
