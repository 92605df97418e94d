//! Default subcommands, and hints for commands that OpenClaw has and Homard has not.

use std::ffi::OsString;

use clap::Command;

/// The subcommand of a command that is typed without one.
const DEFAULTS: [(&[&str], &str); 17] = [
    (&["agents"], "list"),
    (&["approvals"], "list"),
    (&["audit"], "list"),
    (&["channels"], "list"),
    (&["config"], "get"),
    (&["cron"], "list"),
    (&["devices"], "list"),
    (&["hooks"], "list"),
    (&["mcp"], "list"),
    (&["models"], "status"),
    (&["models", "auth"], "list"),
    (&["pairing"], "list"),
    (&["plugins"], "list"),
    (&["runs"], "list"),
    (&["sandbox"], "explain"),
    (&["sessions"], "list"),
    (&["skills"], "list"),
];

const SETUP: &str = "set up a model and a workspace with: homard setup\n\
                     set up a channel with: homard channels add CHANNEL\n\
                     then start the gateway with: homard gateway";
const CHAT: &str = "start the interactive chat with: homard chat\n\
     send one message with: homard agent -m TEXT";
const SERVICE: &str = "install the service with: homard gateway install\nshow it with: homard gateway status";
const MODEL: &str = "choose the model with: homard models set MODEL\n\
                     more about models: homard docs models";
const AGENTS: &str = "agents are configured in agents.list; see: homard docs agents";
const APPROVALS: &str = "list what waits for approval with: homard approvals list\n\
                         more about approvals: homard docs approvals";
const SECRETS: &str = "store a key with: homard models auth add PROVIDER\n\
     the config can name files and commands with secrets; see: homard docs configuration";
const NONE: &str = "Homard does not have this command; what it has instead of OpenClaw's: homard docs import";
const BINARY: &str =
    "Homard is one program file: replace it to update, delete it to uninstall; see: homard docs operations";

/// Commands of OpenClaw, and what to type instead.
const HINTS: [(&[&str], &str); 88] = [
    (&["onboard"], SETUP),
    (&["configure"], SETUP),
    (&["tui"], CHAT),
    (&["terminal"], CHAT),
    (&["resume"], CHAT),
    (&["daemon"], SERVICE),
    (&["gateway", "health"], "check the gateway with: homard health"),
    (&["gateway", "probe"], "check the installation with: homard doctor"),
    (&["gateway", "usage-cost"], "show the cost with: homard usage"),
    (&["models", "fallbacks"], MODEL),
    (&["models", "aliases"], MODEL),
    (&["models", "set-image"], MODEL),
    (&["models", "image-fallbacks"], MODEL),
    (&["models", "scan"], "list all known models with: homard models list --all"),
    (&["cron", "status"], "list jobs with: homard cron list"),
    (&["automations"], "list jobs with: homard cron list"),
    (&["agents", "add"], AGENTS),
    (&["agents", "delete"], AGENTS),
    (&["agents", "set-identity"], AGENTS),
    (&["approvals", "get"], APPROVALS),
    (&["approvals", "set"], APPROVALS),
    (&["approvals", "allowlist"], APPROVALS),
    (&["exec-approvals"], APPROVALS),
    (&["exec-policy"], APPROVALS),
    (&["policy"], APPROVALS),
    (&["secrets", "store"], SECRETS),
    (&["secrets", "configure"], SECRETS),
    (&["secrets", "apply"], SECRETS),
    (&["secrets", "reload"], SECRETS),
    (&["channels", "logout"], "remove a channel with: homard channels remove CHANNEL"),
    (&["plugins", "update"], "install the new version with: homard plugins install PATH --force"),
    (&["hooks", "update"], "install the new version with: homard hooks install PATH --force"),
    (&["sandbox", "list"], "show the sandbox with: homard sandbox explain"),
    (&["security"], "check the installation with: homard doctor\nverify the audit log with: homard audit verify"),
    (&["migrate"], "import OpenClaw's state with: homard import openclaw"),
    (&["mcp", "set"], "replace a server with: homard mcp add NAME --force -- COMMAND"),
    (&["mcp", "unset"], "remove a server with: homard mcp remove NAME"),
    (&["mcp", "serve"], "Homard is not an MCP server; connect clients to the gateway, see: homard docs clients"),
    (&["skills", "search"], "skills are not downloaded; install one with: homard skills install DIRECTORY"),
    (&["skills", "update"], "install the new version with: homard skills install PATH --force"),
    (&["plugins", "search"], "plugins are not downloaded; install one with: homard plugins install DIRECTORY"),
    (&["plugins", "uninstall"], "disable the plugin with: homard plugins disable ID"),
    (&["devices", "rotate"], "revoke the device with: homard devices revoke ID"),
    (&["devices", "clear"], "revoke each device with: homard devices revoke ID"),
    (&["reset"], "start a session over with: homard sessions reset KEY"),
    (&["memory"], "agents search memory with a tool; show the agents with: homard agents list"),
    (&["system"], "add a system event with: homard cron add --name NAME --at 0m --event TEXT"),
    (&["webhooks"], "webhooks are configured in hooks; see: homard docs webhooks"),
    (&["browser"], NONE),
    (&["node"], NONE),
    (&["nodes"], NONE),
    (&["directory"], NONE),
    (&["dns"], NONE),
    (&["qr"], NONE),
    (&["acp"], NONE),
    (&["update"], BINARY),
    (&["uninstall"], BINARY),
    (&["attach"], CHAT),
    (&["claws"], NONE),
    (&["clawbot"], NONE),
    (&["infer"], "send one message with: homard agent -m TEXT"),
    (&["capability"], "send one message with: homard agent -m TEXT"),
    (&["connect"], "connect clients to the gateway, see: homard docs clients"),
    (&["database"], "check the stored state with: homard doctor"),
    (&["file-transfer"], NONE),
    (&["fleet"], NONE),
    (&["googlemeet"], NONE),
    (&["teamsmeetings"], NONE),
    (&["zoommeetings"], NONE),
    (&["promos"], NONE),
    (&["path"], NONE),
    (&["proxy"], NONE),
    (&["voicecall"], NONE),
    (&["wiki"], NONE),
    (&["workboard"], NONE),
    (&["tasks"], "list runs with: homard runs list\nlist jobs with: homard cron list"),
    (&["telemetry"], "Homard sends no telemetry; what it measures for you: homard docs operations"),
    (
        &["transcripts"],
        "show a conversation with: homard sessions show KEY\nexport it with: homard sessions export KEY",
    ),
    (&["triage"], NONE),
    (&["users"], "list who may write with: homard pairing list"),
    (&["worker"], NONE),
    (&["worktrees"], NONE),
    (&["config", "patch"], "change a value with: homard config set PATH VALUE"),
    (&["channels", "capabilities"], "what each channel can do: homard docs channels"),
    (&["channels", "resolve"], "list channels with: homard channels list"),
    (&["gateway", "discover"], "show the gateway of this machine with: homard status"),
    (&["sandbox", "recreate"], "the sandbox is made anew for each command; show it with: homard sandbox explain"),
    (&["cron", "heartbeat"], "heartbeats are configured in agents.defaults.heartbeat; see: homard docs schedule"),
];

/// Actions of `openclaw message` that only chat platforms with their own clients have.
const MESSAGE_ACTIONS: [&str; 22] = [
    "ban",
    "broadcast",
    "channel",
    "delete",
    "edit",
    "emoji",
    "event",
    "kick",
    "member",
    "permissions",
    "pin",
    "pins",
    "react",
    "reactions",
    "read",
    "role",
    "search",
    "sticker",
    "thread",
    "timeout",
    "unpin",
    "voice",
];
const MESSAGE: &str = "send a text with: homard message send --to TARGET -m TEXT";

/// Inserts the default subcommand of a command that is typed without one; flags of that subcommand may follow. Returns
/// `None` if there is nothing to insert.
pub(super) fn with_default(args: &[OsString], root: &Command) -> Option<Vec<OsString>> {
    let typed_args = args.get(1..)?;
    let found = DEFAULTS.iter().filter(|(path, _)| starts_with(typed_args, path));
    let (path, subcommand) = found.max_by_key(|(path, _)| path.len())?;
    let remaining = &typed_args[path.len()..];
    let is_flag = |arg: &OsString| arg.as_encoded_bytes().starts_with(b"-") && arg != "-h" && arg != "--help";
    let command_group = path.iter().try_fold(root, |command, name| command.find_subcommand(name))?;
    let has_subcommand = remaining.iter().any(|arg| command_group.find_subcommand(arg).is_some());
    if !remaining.first().is_none_or(is_flag) || has_subcommand {
        return None;
    }
    let mut args = args.to_vec();
    args.insert(1 + path.len(), (*subcommand).into());
    Some(args)
}

fn starts_with(args: &[OsString], path: &[&str]) -> bool {
    path.len() <= args.len() && path.iter().zip(args).all(|(a, b)| b == a)
}

/// What to type instead of an unknown command.
pub(super) fn hint(args: &[OsString]) -> Option<&'static str> {
    let typed_args = args.get(1..)?;
    if let [command, action, ..] = typed_args
        && command == "message"
        && MESSAGE_ACTIONS.iter().any(|known| action == known)
    {
        return Some(MESSAGE);
    }
    HINTS.iter().find(|(command, _)| starts_with(typed_args, command)).map(|(_, hint)| *hint)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cmd::Cli;

    fn split_args(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn a_command_without_a_subcommand_has_a_default() {
        for (line, expected) in [
            ("homard cron", "homard cron list"),
            ("homard cron --all --json", "homard cron list --all --json"),
            ("homard models", "homard models status"),
            ("homard models auth --json", "homard models auth list --json"),
            ("homard runs -n 5", "homard runs list -n 5"),
            ("homard cron --json list", "homard cron --json list"),
            ("homard cron rm ID", "homard cron rm ID"),
            ("homard agent -m cron", "homard agent -m cron"),
        ] {
            let (parsed, matches) = Cli::parse_args(split_args(line));
            assert_eq!(parsed, split_args(expected), "{line}");
            assert!(matches.is_ok(), "{line}: {}", matches.unwrap_err());
        }
        for line in ["homard cron --help", "homard cron --json rm", "homard"] {
            let (parsed, matches) = Cli::parse_args(split_args(line));
            assert_eq!((parsed, matches.is_err()), (split_args(line), true), "{line}");
        }
    }

    #[test]
    fn every_command_group_with_a_list_lists_by_default() {
        fn walk(command: &Command, path: &[&str]) {
            if !path.is_empty() && command.find_subcommand("list").is_some() {
                assert!(DEFAULTS.iter().any(|(known, _)| *known == path), "{path:?}");
            }
            for sub in command.get_subcommands() {
                walk(sub, &[path, &[sub.get_name()]].concat());
            }
        }
        walk(&Cli::command(), &[]);
    }

    #[test]
    fn defaults_exist_and_commands_with_a_hint_do_not() {
        for (path, subcommand) in DEFAULTS {
            let args = [&["homard"], path, &[subcommand]].concat();
            assert!(Cli::command().try_get_matches_from(&args).is_ok(), "{args:?}");
        }
        for (command, hint) in HINTS {
            let args: Vec<OsString> = ["homard"].iter().chain(command).map(OsString::from).collect();
            let error = Cli::command().try_get_matches_from(&args).unwrap_err();
            assert_eq!(error.kind(), clap::error::ErrorKind::InvalidSubcommand, "{command:?}");
            assert_eq!(super::hint(&args), Some(hint));
            for hint_command in hint.lines().filter_map(|line| line.split_once(": homard ")) {
                let hint_command = format!("homard {}", hint_command.1);
                assert!(Cli::command().try_get_matches_from(hint_command.split(' ')).is_ok(), "{hint_command}");
            }
        }
        assert_eq!(hint(&split_args("homard agents")), None);
    }

    /// The commands of OpenClaw 2026.2.9 and 2026.9.6 that have subcommands, with the subcommands that people type.
    const OPENCLAW_GROUPS: [(&str, &str); 21] = [
        ("agents", "list add delete set-identity"),
        ("approvals", "get set allowlist"),
        ("channels", "list status capabilities resolve logs add remove login logout"),
        ("config", "get set unset file patch schema validate"),
        ("cron", "status list add edit rm enable disable runs run"),
        ("devices", "list approve reject rotate revoke"),
        ("gateway", "run status start stop restart install uninstall call health probe discover usage-cost"),
        ("hooks", "list info check enable disable install update"),
        ("mcp", "list show set unset serve"),
        ("memory", "status index search"),
        (
            "message",
            "send broadcast poll react reactions read edit delete pin unpin pins permissions search thread emoji sticker \
             role channel member voice event timeout kick ban",
        ),
        ("models", "list status set set-image aliases fallbacks image-fallbacks scan auth"),
        ("pairing", "list approve"),
        ("plugins", "list info enable disable install update doctor"),
        ("sandbox", "list recreate explain"),
        ("secrets", "store audit configure apply reload"),
        ("security", "audit"),
        ("skills", "list info check"),
        ("system", "event heartbeat presence"),
        ("webhooks", "gmail"),
        ("exec-approvals", "get"),
    ];
    /// Their other commands.
    const OPENCLAW_COMMANDS: &str = "acp agent attach audit automations backup browser capability chat clawbot claws completion \
        configure connect daemon dashboard database directory dns docs doctor exec-policy file-transfer fleet googlemeet \
        health infer logs migrate node nodes onboard path policy promos proxy qr reset resume secrets sessions setup status tasks \
        teamsmeetings telemetry terminal transcripts triage tui uninstall update users voicecall wiki workboard worker worktrees zoommeetings";

    #[test]
    fn every_command_of_openclaw_exists_or_has_a_hint() {
        let root = Cli::command();
        let groups = OPENCLAW_GROUPS.iter().flat_map(|(group, subcommands)| {
            subcommands.split(' ').map(move |subcommand| format!("{group} {subcommand}"))
        });
        let missing = groups.chain(OPENCLAW_COMMANDS.split(' ').map(str::to_owned)).filter(|line| {
            let known = line.split(' ').try_fold(&root, |command, word| command.find_subcommand(word));
            known.is_none() && hint(&split_args(&format!("homard {line}"))).is_none()
        });
        assert_eq!(missing.collect::<Vec<_>>(), Vec::<String>::new());
    }
}
