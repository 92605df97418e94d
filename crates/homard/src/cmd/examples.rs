//! Examples in help texts: a command has its own, or inherits matching ones from its parents.

use clap::Command;

/// Gives every command without examples the matching ones of its parent commands.
pub(super) fn inherit_examples(command: Command) -> Command {
    let name = command.get_name().to_owned();
    walk(command, &name, "")
}

fn walk(mut command: Command, path: &str, parent_help: &str) -> Command {
    let own_help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    if own_help.is_empty() {
        let lines: Vec<&str> = parent_help.lines().filter(|line| is_example_of(line, path)).collect();
        if !lines.is_empty() {
            command = command.after_help(format!("Examples:\n{}", lines.join("\n")));
        }
    }
    let known = format!("{own_help}\n{parent_help}");
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    for name in names {
        let path = format!("{path} {name}");
        command = command.mut_subcommand(&name, |sub| walk(sub, &path, &known));
    }
    command
}

/// Returns true if a line is an example of this command: it has all words of the command's path, in order.
fn is_example_of(line: &str, path: &str) -> bool {
    let mut words = example(line).split(' ');
    line.starts_with("  ") && path.split(' ').all(|name| words.any(|word| word == name))
}

/// Removes the explanation, which follows after two or more spaces.
fn example(line: &str) -> &str {
    let line = line.trim();
    line.split("  ").next().unwrap_or(line)
}

/// Returns the examples in a help text without their explanations.
#[cfg(test)]
pub(super) fn of(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| !line.starts_with("Examples:")).skip(1);
    let lines = lines.take_while(|line| line.starts_with("  ")).map(example);
    lines.filter(|line| line.contains("homard")).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::cmd::Cli;

    /// Splits a line like a shell: single and double quotes, no variables.
    fn split_words(line: &str) -> Vec<String> {
        let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
        for c in line.chars() {
            match (quote, c) {
                (Some(open), _) if open == c => quote = None,
                (None, '"' | '\'') => {
                    quote = Some(c);
                    word.get_or_insert_default();
                }
                (None, ' ') => words.extend(word.take()),
                (Some(_) | None, _) => word.get_or_insert_default().push(c),
            }
        }
        words.extend(word);
        words
    }

    fn leaves(command: &Command, path: &str, found: &mut Vec<(String, String)>) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        if command.get_subcommands().next().is_none() {
            found.push((path.to_owned(), help));
        }
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            leaves(sub, &format!("{path} {}", sub.get_name()), found);
        }
    }

    #[test]
    fn every_command_has_examples_and_all_of_them_parse() {
        let mut all = Vec::new();
        leaves(&inherit_examples(Cli::command()), "homard", &mut all);
        let bare: Vec<&str> =
            all.iter().filter(|(_, help)| of(help).is_empty()).map(|(path, _)| path.as_str()).collect();
        assert_eq!(bare, [""; 0], "commands without examples");
        let examples: Vec<String> = all.iter().flat_map(|(_, help)| of(help)).collect();
        let mut failures = Vec::new();
        for example in &examples {
            // The part before a pipe is another program.
            let command = &example[example.find("homard").unwrap_or_default()..];
            let command = command.split(" > ").next().unwrap_or(command);
            if let Err(error) = Cli::try_parse_from(split_words(command)) {
                failures.push(format!("{example}: {error}"));
            }
        }
        assert_eq!(failures, [""; 0]);
    }

    #[test]
    fn a_subcommand_inherits_the_examples_of_its_parent() {
        let parent_help = "Examples:\n  homard a b   one\n  x | homard a b c --d\n  homard a bc\n  homard a x b\n\nhomard a b is not one";
        let command =
            Command::new("homard").subcommand(Command::new("a").after_help(parent_help).subcommand(Command::new("b")));
        let inherited = inherit_examples(command);
        let b = inherited.find_subcommand("a").and_then(|a| a.find_subcommand("b")).unwrap();
        let help = b.get_after_help().unwrap().to_string();
        assert_eq!(help, "Examples:\n  homard a b   one\n  x | homard a b c --d\n  homard a x b");
        assert_eq!(of(&help), ["homard a b", "x | homard a b c --d", "homard a x b"]);
    }
}
