//! Chat commands of plugins, which are answered without a model.

use std::path::PathBuf;

use async_trait::async_trait;
use serde::Serialize;
use serde_json::Value;

use crate::HookError;

/// Maximum length of a command's arguments in characters.
const MAX_ARGUMENT_CHARS: usize = 4096;

/// A chat command.
#[async_trait]
pub trait SlashCommand: Send + Sync {
    /// Returns its name, without the slash.
    fn name(&self) -> &str;

    /// Returns a one-line description.
    fn description(&self) -> &str;

    /// Returns true if it accepts arguments.
    fn accepts_args(&self) -> bool;

    /// Executes the command; returns the reply.
    async fn run(&self, call: SlashCommandCall) -> Result<String, HookError>;
}

/// Invocation of a command.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SlashCommandCall {
    /// Id of the sender.
    pub sender_id: String,
    /// Channel it was sent on.
    pub channel: String,
    /// True if the sender is authorised.
    pub is_authorized_sender: bool,
    /// Arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args: Option<String>,
    /// The whole message.
    pub command_body: String,
    /// Session key.
    pub session_key: String,
    /// Workspace of the agent.
    pub workspace_dir: PathBuf,
    /// The gateway's config, if the command's plugin may see it.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub config: Value,
}

/// Splits `/name arguments` or `/name: arguments`; `None` if the text is not a command. The name becomes lower case;
/// control characters other than newlines are removed from the arguments.
pub(crate) fn split(text: &str) -> Option<(String, String)> {
    let command = text.trim().strip_prefix('/')?;
    let name_end = command.find(|c: char| c.is_whitespace() || c == ':').unwrap_or(command.len());
    let (name, args) = command.split_at(name_end);
    let args = args.trim_start_matches(':').trim();
    let args = args.chars().filter(|c| !c.is_control() || *c == '\n').take(MAX_ARGUMENT_CHARS).collect();
    (!name.is_empty()).then(|| (name.to_lowercase(), args))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_split_into_name_and_arguments() {
        let split_text = |text: &str| split(text).map(|(name, args)| format!("{name}|{args}"));
        assert_eq!(split_text(" /Probe a\u{7}b  c ").as_deref(), Some("probe|ab  c"));
        assert_eq!(split_text("/probe: x").as_deref(), Some("probe|x"));
        assert_eq!(split_text("/probe").as_deref(), Some("probe|"));
        assert_eq!([split_text("probe"), split_text("/"), split_text("/ x")], [None, None, None]);
        assert_eq!(split(&format!("/p {}", "x".repeat(9999))).map(|(_, args)| args.len()), Some(MAX_ARGUMENT_CHARS));
    }
}
