//! The commands of OpenClaw in docs/import.md, typed as `homard`: each works, or says what to use instead.

use std::thread;

use crate::home::{Home, RunningGateway};

const GUIDE: &str = include_str!("../../../../docs/import.md");

/// Arguments of the commands that need some. Those with `--help` would start a process, wait, or change what is outside
/// of the home.
const ARGUMENTS: [(&str, &str); 42] = [
    ("agent", "-m hello"),
    ("backup", "--help"),
    ("channels add", "--help"),
    ("channels login", "--help"),
    ("channels logs", "--help"),
    ("channels remove", "--help"),
    ("completion", "bash"),
    ("config set", "agents.defaults.timeoutSeconds 60"),
    ("config unset", "agents.defaults.timeoutSeconds"),
    ("cron add", "--name x --every 1h -m x"),
    ("cron disable", "--help"),
    ("cron edit", "--help"),
    ("cron enable", "--help"),
    ("cron rm", "--help"),
    ("cron run", "--help"),
    ("cron runs", "--help"),
    ("cron show", "--help"),
    ("dashboard", "--help"),
    ("devices approve", "--help"),
    ("devices reject", "--help"),
    ("devices remove", "--help"),
    ("devices revoke", "--help"),
    ("doctor", "--help"),
    ("gateway call", "health"),
    ("gateway install", "--help"),
    ("gateway restart", "--help"),
    ("gateway run", "--help"),
    ("gateway start", "--help"),
    ("gateway stop", "--help"),
    ("gateway uninstall", "--help"),
    ("hooks disable", "--help"),
    ("hooks enable", "--help"),
    ("hooks info", "session-memory"),
    ("hooks install", "--help"),
    ("mcp add", "tide -- true"),
    ("mcp remove", "--help"),
    ("mcp show", "--help"),
    ("message poll", "--help"),
    ("message send", "--help"),
    ("models set", "homard/demo"),
    ("pairing approve", "--help"),
    ("setup", "--help"),
];

/// Groups whose commands take the id of something that has to be installed first.
const INSTALLED: [&str; 6] =
    ["plugins disable", "plugins enable", "plugins info", "plugins install", "skills info", "skills install"];

/// Returns the code spans of a cell that begin with a program, without it.
fn commands<'a>(cell: &'a str, program: &str) -> Vec<&'a str> {
    cell.split('`').skip(1).step_by(2).filter_map(|code| code.strip_prefix(program)).collect()
}

/// Runs a command that has the same name, which must succeed.
fn assert_works(gateway: &RunningGateway<'_>, command: &str) {
    let listed = ARGUMENTS.iter().find(|(known, _)| *known == command).map(|(_, arguments)| *arguments);
    let arguments = listed.unwrap_or(if INSTALLED.contains(&command) { "--help" } else { "" });
    let args: Vec<_> = command.split(' ').chain(arguments.split_whitespace()).collect();
    let output = gateway.run(&args);
    assert_eq!(output.code, Some(0), "{command}: {output:?}");
}

/// Runs a command that does not exist. The error must name the replacement; with several, one of the row.
fn assert_replaced(home: &Home, command: &str, replacements: &[&str]) {
    let output = home.run(&command.split(' ').collect::<Vec<_>>());
    let unknown = format!("error: unknown command `{command}`\n");
    assert!(output.code == Some(2) && output.stderr.starts_with(&unknown), "{command}: {output:?}");
    let is_named = |other: &&str| output.stderr.contains(&format!("homard {other}"));
    assert!(replacements.iter().any(is_named), "{command} -> {replacements:?}: {output:?}");
}

#[test]
fn every_command_of_the_guide_works_or_names_its_replacement() {
    let (_, section) = GUIDE.split_once("## Commands of OpenClaw").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | "));
    let home = Home::new();
    let gateway = home.gateway();
    let (mut working, mut replaced) = (Vec::new(), Vec::new());
    for (names, instead) in rows {
        let names = commands(names, "openclaw ");
        if instead.starts_with("the same") {
            working.extend(names);
        } else {
            let replacements = commands(instead, "homard ");
            replaced.extend(names.into_iter().map(|name| (name, replacements.clone())));
        }
    }
    assert!(working.len() > 70 && replaced.len() > 80, "{} and {}", working.len(), replaced.len());
    thread::scope(|scope| {
        // In order: one removes a value that another has set.
        scope.spawn(|| working.iter().for_each(|command| assert_works(&gateway, command)));
        scope.spawn(|| {
            replaced.iter().for_each(|(command, replacements)| assert_replaced(&home, command, replacements));
        });
    });
}
