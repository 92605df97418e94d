//! Skills as slash commands.

use std::{collections::BTreeSet, path::PathBuf};

use crate::{
    book::Book,
    prompt::cut,
    skill::{Dispatch, on_one_line},
};

/// The most characters that chat services allow in a command's name.
const NAME_CHARS: usize = 32;

/// The most characters of a command's description.
const DESCRIPTION_CHARS: usize = 100;

/// The command that takes a skill's name; no skill may have it for its own.
const BY_NAME: &str = "skill";

/// A skill that a user may call by `/name`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlashCommand {
    /// What follows the slash: one to 32 of `a`–`z`, `0`–`9` and `_`, unlike every other.
    pub name: String,
    /// The skill's name.
    pub skill: String,
    /// The skill's file.
    pub file: PathBuf,
    /// What it is for, in at most 100 characters.
    pub description: String,
    /// What it calls instead of a model.
    pub dispatch: Option<Dispatch>,
}

/// A message that calls a skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation {
    /// The command's name.
    pub command: String,
    /// The skill's name.
    pub skill: String,
    /// The skill's file.
    pub file: PathBuf,
    /// What follows the name, trimmed.
    pub args: String,
    /// What is called instead of a model.
    pub dispatch: Option<Dispatch>,
}

/// The commands of the skills that a run may use; none gets a reserved name.
pub fn commands(book: &Book, reserved: &[&str]) -> Vec<SlashCommand> {
    let mut taken: BTreeSet<String> = reserved.iter().map(|name| name.to_lowercase()).collect();
    taken.insert(BY_NAME.to_owned());
    let mut commands = Vec::new();
    for skill in book.usable().filter(|skill| skill.is_user_invocable) {
        let name = free(&plain(&skill.name), &taken);
        taken.insert(name.clone());
        commands.push(SlashCommand {
            name,
            skill: skill.name.clone(),
            file: skill.file.clone(),
            description: cut(&on_one_line(&skill.description), DESCRIPTION_CHARS),
            dispatch: skill.dispatch.clone(),
        });
    }
    commands
}

/// Finds the skill that a message calls by `/name …` or `/skill name …`.
pub fn invoke(commands: &[SlashCommand], text: &str) -> Option<Invocation> {
    let (mut name, mut args) = first_word(text.trim().strip_prefix('/')?);
    if name.eq_ignore_ascii_case(BY_NAME) {
        (name, args) = first_word(args);
    }
    let wanted = folded(name);
    let found = commands
        .iter()
        .find(|command| folded(&command.name) == wanted)
        .or_else(|| commands.iter().find(|command| folded(&command.skill) == wanted))?;
    Some(Invocation {
        command: found.name.clone(),
        skill: found.skill.clone(),
        file: found.file.clone(),
        args: args.to_owned(),
        dispatch: found.dispatch.clone(),
    })
}

/// What a model is told in place of the message. It names the file, because a skill that is not in its list may be called.
pub fn rewrite(invocation: &Invocation) -> String {
    let Invocation { skill, file, args, .. } = invocation;
    let ask = format!("Read the skill \"{skill}\" ({}) and follow it for this request.", file.display());
    if args.is_empty() { ask } else { format!("{ask}\n\nThe user wrote:\n{args}") }
}

fn first_word(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim())
}

/// A name as people type it: the case and the sign between words do not matter.
fn folded(name: &str) -> String {
    let words: Vec<_> = name.split(|c: char| c.is_whitespace() || matches!(c, '-' | '_')).collect();
    words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-").to_lowercase()
}

fn plain(name: &str) -> String {
    let name = name.to_lowercase();
    let words = name.split(|c: char| !c.is_ascii_lowercase() && !c.is_ascii_digit()).filter(|word| !word.is_empty());
    let plain: String = words.collect::<Vec<_>>().join("_").chars().take(NAME_CHARS).collect();
    let plain = plain.trim_end_matches('_');
    if plain.is_empty() { BY_NAME.to_owned() } else { plain.to_owned() }
}

/// The name itself, or with the first number that makes it free.
fn free(name: &str, taken: &BTreeSet<String>) -> String {
    let numbered = (2..).map(|number: u64| {
        let end = format!("_{number}");
        format!("{}{end}", &name[..name.len().min(NAME_CHARS - end.len())])
    });
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    names.find(|name| !taken.contains(name)).unwrap_or_default()
}
