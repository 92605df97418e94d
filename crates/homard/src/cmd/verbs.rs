//! Default subcommands, and hints for commands that OpenClaw has and Homard has not.

use std::ffi::OsString;

/// The subcommand of a command that is typed without one.
const DEFAULTS: [(&str, &str); 9] = [
    ("approvals", "list"),
    ("audit", "list"),
    ("channels", "list"),
    ("config", "get"),
    ("cron", "list"),
    ("mcp", "list"),
    ("models", "status"),
    ("pairing", "list"),
    ("sandbox", "explain"),
];

const SETUP: &str = "set up a model with: homard models auth add PROVIDER\n\
                     set up a channel with: homard channels add CHANNEL\n\
                     then start the gateway with: homard gateway";
const CHAT: &str = "send a message with: homard agent -m TEXT";
const SERVICE: &str = "homard gateway runs in the foreground; a service manager starts and stops it";

/// Commands of OpenClaw, and what to type instead.
const HINTS: [(&[&str], &str); 10] = [
    (&["onboard"], SETUP),
    (&["setup"], SETUP),
    (&["configure"], SETUP),
    (&["chat"], CHAT),
    (&["tui"], CHAT),
    (&["gateway", "install"], SERVICE),
    (&["gateway", "restart"], SERVICE),
    (&["gateway", "start"], SERVICE),
    (&["gateway", "status"], "show the status with: homard status"),
    (&["gateway", "stop"], SERVICE),
];

/// Inserts the default subcommand after a command that has none. Flags of that subcommand may follow.
pub(super) fn with_default(mut words: Vec<OsString>) -> Vec<OsString> {
    let default = words.get(1).and_then(|word| DEFAULTS.iter().find(|(command, _)| word == command));
    let is_flag = |word: &OsString| word.as_encoded_bytes().starts_with(b"-") && word != "-h" && word != "--help";
    if let Some((_, subcommand)) = default
        && words.get(2).is_none_or(is_flag)
    {
        words.insert(2, (*subcommand).into());
    }
    words
}

/// What to type instead of an unknown command.
pub(super) fn hint(words: &[OsString]) -> Option<&'static str> {
    let typed = words.get(1..)?;
    let is_typed = |command: &[&str]| command.len() <= typed.len() && command.iter().zip(typed).all(|(a, b)| b == a);
    HINTS.iter().find(|(command, _)| is_typed(command)).map(|(_, hint)| *hint)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cmd::Cli;

    fn words(typed: &str) -> Vec<OsString> {
        typed.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn a_command_without_a_subcommand_has_a_default() {
        for (typed, expected) in [
            ("homard cron", "homard cron list"),
            ("homard cron --json", "homard cron list --json"),
            ("homard models", "homard models status"),
            ("homard cron rm ID", "homard cron rm ID"),
            ("homard cron --help", "homard cron --help"),
            ("homard agent -m cron", "homard agent -m cron"),
            ("homard", "homard"),
        ] {
            assert_eq!(with_default(words(typed)), words(expected), "{typed}");
        }
    }

    #[test]
    fn defaults_exist_and_commands_with_a_hint_do_not() {
        for (command, subcommand) in DEFAULTS {
            assert!(Cli::command().try_get_matches_from(["homard", command, subcommand]).is_ok(), "{command}");
        }
        for (command, hint) in HINTS {
            let typed: Vec<OsString> = ["homard"].iter().chain(command).map(OsString::from).collect();
            let error = Cli::command().try_get_matches_from(&typed).unwrap_err();
            assert_eq!(error.kind(), clap::error::ErrorKind::InvalidSubcommand, "{command:?}");
            assert_eq!(super::hint(&typed), Some(hint));
        }
        assert_eq!(hint(&words("homard agents")), None);
    }
}
