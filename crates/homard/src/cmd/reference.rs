//! The command line reference in docs/cli.md, generated from the commands.

use std::fmt::Write as _;

use clap::{Arg, Command, CommandFactory};

use super::{Cli, examples};

/// Returns every command with its flags and examples, as Markdown.
fn reference() -> String {
    let mut command = examples::inherit_examples(Cli::command());
    command.build();
    let mut text = String::new();
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help" && !sub.is_hide_set()) {
        section(sub, &format!("homard {}", sub.get_name()), &mut text);
    }
    text.trim_end().to_owned() + "\n"
}

fn section(command: &Command, path: &str, text: &mut String) {
    let depth = "#".repeat(path.split(' ').count().min(4));
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    writeln!(text, "{depth} {path}\n\n{about}.\n").unwrap();
    let aliases: Vec<String> = command.get_visible_aliases().map(|alias| format!("`{alias}`")).collect();
    if !aliases.is_empty() {
        writeln!(text, "Also: {}.\n", aliases.join(", ")).unwrap();
    }
    let subs: Vec<&Command> =
        command.get_subcommands().filter(|sub| sub.get_name() != "help" && !sub.is_hide_set()).collect();
    let is_listed = |arg: &&Arg| !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str());
    let args: Vec<&Arg> = command.get_arguments().filter(is_listed).collect();
    // Global arguments are listed at the subcommands.
    if !args.is_empty() && (subs.is_empty() || args.iter().any(|arg| !arg.is_global_set())) {
        text.push_str("| Argument | Meaning |\n|---|---|\n");
        for arg in args {
            let help = arg.get_help().map(|help| help.to_string().replace('|', "\\|")).unwrap_or_default();
            writeln!(text, "| `{}` | {help} |", syntax(arg).replace('|', "\\|")).unwrap();
        }
        text.push('\n');
    }
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    if subs.is_empty() && !help.is_empty() {
        let lines: Vec<&str> = help.lines().filter(|line| line.starts_with("  ")).map(str::trim).collect();
        writeln!(text, "```text\n{}\n```\n", lines.join("\n")).unwrap();
    }
    for sub in subs {
        section(sub, &format!("{path} {}", sub.get_name()), text);
    }
}

/// Returns the syntax of an argument.
fn syntax(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let value: Vec<String> = names.iter().map(ToString::to_string).collect();
    let value = if arg.get_action().takes_values() { value.join(" ") } else { String::new() };
    let long = arg.get_long().map(|long| format!("--{long}"));
    let short = arg.get_short().map(|short| format!("-{short}"));
    let flag = short.into_iter().chain(long).collect::<Vec<_>>().join(", ");
    let value = if flag.is_empty() && !arg.is_required_set() { format!("[{value}]") } else { value };
    [flag, value].iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join(" ")
}

/// Asserts that a file has the expected content. With `UPDATE_DOCS` set, it writes the file first.
#[cfg(test)]
pub(super) fn assert_up_to_date(file: &str, expected: &str, command: &str) {
    if homard_settings::paths::env("UPDATE_DOCS").is_some() {
        std::fs::write(file, expected).unwrap();
    }
    let actual = std::fs::read_to_string(file).unwrap_or_default();
    assert!(actual == expected, "{file} is out of date; regenerate it with: {command}");
}

#[test]
fn the_reference_of_commands_is_up_to_date() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md");
    let text = std::fs::read_to_string(file).unwrap();
    let command = "UPDATE_DOCS=1 cargo test -p homard the_reference_of_commands_is_up_to_date";
    let marker = format!("<!-- Generated from here on; regenerate with: {command} -->\n\n");
    let (by_hand, _) = text.split_once(&marker).expect("docs/cli.md has lost its mark");
    assert_up_to_date(file, &format!("{by_hand}{marker}{}", reference()), command);
}

/// Calls `check` with every command and its path.
#[cfg(test)]
fn visit(command: &Command, path: &str, check: &mut impl FnMut(&Command, &str)) {
    check(command, path);
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help" && !sub.is_hide_set()) {
        visit(sub, &format!("{path} {}", sub.get_name()), check);
    }
}

#[test]
fn a_flag_is_the_same_everywhere() {
    let mut root = Cli::command();
    root.build();
    visit(&root, "homard", &mut |command, path| {
        let arg = |name: &str| command.get_arguments().find(|arg| arg.get_long() == Some(name));
        let value = |arg: &Arg| arg.get_value_names().unwrap_or_default().first().map(ToString::to_string);
        if let Some(limit) = arg("limit") {
            assert_eq!((limit.get_short(), value(limit)), (Some('n'), Some("N".to_owned())), "{path}");
        }
        if let Some(follow) = arg("follow") {
            assert_eq!(follow.get_short(), Some('f'), "{path}");
        }
        for duration in [arg("timeout"), arg("reconnect")].into_iter().flatten() {
            assert_eq!(value(duration), Some("DURATION".to_owned()), "{path}");
        }
        let is_leaf = command.get_subcommands().all(|sub| sub.get_name() == "help");
        let has_none = ["homard gateway run", "homard completions", "homard chat"].contains(&path);
        assert!(!is_leaf || has_none || arg("json").is_some(), "{path} has no --json");
    });
}

#[test]
fn removing_commands_are_named_remove_with_alias_rm() {
    let mut root = Cli::command();
    root.build();
    visit(&root, "homard", &mut |command, path| {
        let mut names: Vec<&str> = command.get_visible_aliases().collect();
        names.push(command.get_name());
        if ["remove", "rm", "revoke", "unset"].iter().any(|name| names.contains(name)) {
            assert!(names.contains(&"remove") && names.contains(&"rm"), "{path}");
        }
    });
}
