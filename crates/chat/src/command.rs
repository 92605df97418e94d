//! The `/` commands: those of the chat itself, and those that the gateway answers.

use serde_json::Value;

/// A command that the chat executes itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LocalCommand {
    New,
    Model,
    Think,
    Sessions,
    Agents,
    Trace,
    Details,
    Stop,
    Help,
    Quit,
}

/// A command in the list of completions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandInfo {
    /// Name with the slash.
    pub(crate) name: String,
    pub(crate) description: String,
}

/// The commands of the chat. `/model` and `/think` with an argument are sent to the gateway.
const LOCAL: &[(&str, LocalCommand, &str)] = &[
    ("/new", LocalCommand::New, "start a new session"),
    ("/sessions", LocalCommand::Sessions, "continue another session"),
    ("/model", LocalCommand::Model, "choose the model"),
    ("/think", LocalCommand::Think, "choose the reasoning level"),
    ("/agents", LocalCommand::Agents, "start a session with another agent"),
    ("/trace", LocalCommand::Trace, "show the steps of the last run"),
    ("/details", LocalCommand::Details, "show the conversation with all output (Ctrl+O)"),
    ("/stop", LocalCommand::Stop, "stop the run (Esc)"),
    ("/help", LocalCommand::Help, "show commands and keys"),
    ("/quit", LocalCommand::Quit, "leave the chat (Ctrl+D)"),
];

/// Commands of the gateway that are known before it was asked.
const REMOTE: &[(&str, &str)] =
    &[("/compact", "summarize the conversation to free context"), ("/status", "show the state of the session")];

/// Other names.
const ALIASES: &[(&str, LocalCommand)] = &[
    ("/exit", LocalCommand::Quit),
    ("/q", LocalCommand::Quit),
    ("/resume", LocalCommand::Sessions),
    ("/models", LocalCommand::Model),
    ("/clear", LocalCommand::New),
];

/// Returns the local command of a message and its argument; `None` if the message is sent.
pub(crate) fn parse(message: &str) -> Option<(LocalCommand, &str)> {
    let message = message.trim();
    let (name, argument) = message.split_once(char::is_whitespace).unwrap_or((message, ""));
    let argument = argument.trim();
    let local = LOCAL.iter().map(|(name, command, _)| (*name, *command));
    let (_, command) = local.chain(ALIASES.iter().copied()).find(|(known, _)| *known == name)?;
    // The gateway changes the session and confirms it.
    let is_remote = matches!(command, LocalCommand::Model | LocalCommand::Think) && !argument.is_empty();
    (!is_remote).then_some((command, argument))
}

/// Returns all commands: the chat's own, and those of the gateway that it does not have itself.
pub(crate) fn all(gateway: &[CommandInfo]) -> Vec<CommandInfo> {
    let info =
        |(name, description): (&str, &str)| CommandInfo { name: name.to_owned(), description: description.to_owned() };
    let mut commands: Vec<_> = LOCAL.iter().map(|(name, _, description)| info((name, description))).collect();
    let remote = REMOTE.iter().copied().map(info);
    for command in gateway.iter().cloned().chain(remote) {
        let is_known = commands.iter().any(|known| known.name == command.name)
            || ALIASES.iter().any(|(alias, _)| *alias == command.name);
        if !is_known {
            commands.push(command);
        }
    }
    commands
}

/// Reads the response to `commands.list`.
pub(crate) fn from_list(payload: &Value) -> Vec<CommandInfo> {
    let rows = payload["commands"].as_array().map(Vec::as_slice).unwrap_or_default();
    let command = |row: &Value| {
        let name = row["textAliases"][0].as_str()?;
        let description = crate::sanitize::one_line(row["description"].as_str().unwrap_or_default());
        Some(CommandInfo { name: crate::sanitize::one_line(name), description })
    };
    rows.iter().filter_map(command).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn local_commands_are_recognised() {
        assert_eq!(parse("/new"), Some((LocalCommand::New, "")));
        assert_eq!(parse(" /trace  last "), Some((LocalCommand::Trace, "last")));
        assert_eq!(parse("/exit"), Some((LocalCommand::Quit, "")));
        assert_eq!(parse("/model"), Some((LocalCommand::Model, "")));
        assert_eq!(parse("/model a/b"), None);
        assert_eq!(parse("/newer"), None);
        assert_eq!(parse("tell /new"), None);
    }

    #[test]
    fn commands_of_the_gateway_are_added() {
        let listed = json!({"commands": [
            {"textAliases": ["/usage"], "description": "Show\nusage"}, {"textAliases": ["/new"], "description": "x"}, {},
        ]});
        let all = all(&from_list(&listed));
        let names: Vec<_> = all.iter().map(|command| command.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "/new",
                "/sessions",
                "/model",
                "/think",
                "/agents",
                "/trace",
                "/details",
                "/stop",
                "/help",
                "/quit",
                "/usage",
                "/compact",
                "/status"
            ]
        );
        assert_eq!(all[10].description, "Show usage");
    }
}
