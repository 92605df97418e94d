//! Chat commands of others: a word that is answered without a model.

use std::path::PathBuf;

use async_trait::async_trait;
use serde::Serialize;
use serde_json::Value;

use crate::HookError;

/// How long what follows a command may be, in characters.
const LONGEST: usize = 4096;

/// A chat command.
#[async_trait]
pub trait SlashCommand: Send + Sync {
    /// Its word, without the slash.
    fn name(&self) -> &str;

    /// What it does, in a line.
    fn description(&self) -> &str;

    /// Whether words may follow it.
    fn takes_words(&self) -> bool;

    /// Does it; returns what is said.
    async fn run(&self, asked: Asked) -> Result<String, HookError>;
}

/// How a command was given.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Asked {
    /// Who gave it.
    pub sender_id: String,
    /// Where.
    pub channel: String,
    /// Whether they may.
    pub is_authorized_sender: bool,
    /// What followed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args: Option<String>,
    /// All of it.
    pub command_body: String,
    /// The session.
    pub session_key: String,
    /// Where the agent lives.
    pub workspace_dir: PathBuf,
    /// The house's settings, if the command's owner may see them.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub config: Value,
}

/// A text as a command's word and what follows it, without control characters.
pub(crate) fn split(text: &str) -> Option<(String, String)> {
    let rest = text.trim().strip_prefix('/')?;
    let end = rest.find(|letter: char| letter.is_whitespace() || letter == ':').unwrap_or(rest.len());
    let (word, words) = rest.split_at(end);
    let words = words.trim_start_matches(':').trim();
    let words = words.chars().filter(|letter| !letter.is_control() || *letter == '\n').take(LONGEST).collect();
    (!word.is_empty()).then(|| (word.to_lowercase(), words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_a_word_and_what_follows_it() {
        let of = |text: &str| split(text).map(|(word, words)| format!("{word}|{words}"));
        assert_eq!(of(" /Probe a\u{7}b  c ").as_deref(), Some("probe|ab  c"));
        assert_eq!(of("/probe: x").as_deref(), Some("probe|x"));
        assert_eq!(of("/probe").as_deref(), Some("probe|"));
        assert_eq!([of("probe"), of("/"), of("/ x")], [None, None, None]);
        assert_eq!(split(&format!("/p {}", "x".repeat(9999))).map(|(_, words)| words.len()), Some(LONGEST));
    }
}
