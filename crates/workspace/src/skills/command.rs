//! Skills as slash commands.

use std::{collections::BTreeSet, path::PathBuf};

use homard_stdx::text::fit;

use crate::skills::{
    skill::{ToolDispatch, on_one_line},
    skill_set::SkillSet,
};

/// Maximum number of characters of a command name on chat services.
const NAME_CHARS: usize = 32;

/// Maximum number of characters of a command's description.
const DESCRIPTION_CHARS: usize = 100;

/// Name of the command `/skill <name>`, which invokes a skill by name. No skill's own command may have this name.
const BY_NAME: &str = "skill";

/// A skill that a user may invoke as `/name`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlashCommand {
    /// Command name: one to 32 of `a`–`z`, `0`–`9` and `_`; unique.
    pub name: String,
    /// Name of the skill.
    pub skill: String,
    /// File of the skill.
    pub file: PathBuf,
    /// Description of at most 100 characters.
    pub description: String,
    /// Tool that it calls instead of a model.
    pub dispatch: Option<ToolDispatch>,
}

/// A message that invokes a skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation {
    /// Command name.
    pub command: String,
    /// Name of the skill.
    pub skill: String,
    /// File of the skill.
    pub file: PathBuf,
    /// Text after the name, trimmed.
    pub args: String,
    /// Tool that is called instead of a model.
    pub dispatch: Option<ToolDispatch>,
}

/// Returns the slash commands of the skills that a run may use. Each has a unique name that is neither in `reserved`
/// nor `skill`.
pub fn commands(skills: &SkillSet, reserved: &[&str]) -> Vec<SlashCommand> {
    let mut used_names: BTreeSet<String> = reserved.iter().map(|name| name.to_lowercase()).collect();
    used_names.insert(BY_NAME.to_owned());
    let mut commands = Vec::new();
    for skill in skills.usable().filter(|skill| skill.is_user_invocable) {
        let name = unique_name(&command_name(&skill.name), &used_names);
        used_names.insert(name.clone());
        commands.push(SlashCommand {
            name,
            skill: skill.name.clone(),
            file: skill.file.clone(),
            description: fit(&on_one_line(&skill.description), DESCRIPTION_CHARS),
            dispatch: skill.dispatch.clone(),
        });
    }
    commands
}

/// Finds the skill that a message invokes with `/name …` or `/skill name …`.
pub fn invoke(commands: &[SlashCommand], text: &str) -> Option<Invocation> {
    let (mut name, mut args) = first_word(text.trim().strip_prefix('/')?);
    if name.eq_ignore_ascii_case(BY_NAME) {
        (name, args) = first_word(args);
    }
    let wanted = normalize_name(name);
    let found = commands
        .iter()
        .find(|command| normalize_name(&command.name) == wanted)
        .or_else(|| commands.iter().find(|command| normalize_name(&command.skill) == wanted))?;
    Some(Invocation {
        command: found.name.clone(),
        skill: found.skill.clone(),
        file: found.file.clone(),
        args: args.to_owned(),
        dispatch: found.dispatch.clone(),
    })
}

/// Returns the text for the model in place of the message. It names the file, because a skill that is not in the
/// model's list may be invoked.
pub fn rewrite(invocation: &Invocation) -> String {
    let Invocation { skill, file, args, .. } = invocation;
    let instruction = format!("Read the skill \"{skill}\" ({}) and follow it for this request.", file.display());
    if args.is_empty() { instruction } else { format!("{instruction}\n\nThe user wrote:\n{args}") }
}

fn first_word(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim())
}

/// Normalizes a name: case and the separator between words do not matter.
fn normalize_name(name: &str) -> String {
    let words: Vec<_> = name.split(|c: char| c.is_whitespace() || matches!(c, '-' | '_')).collect();
    words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-").to_lowercase()
}

fn command_name(name: &str) -> String {
    let name = name.to_lowercase();
    let words = name.split(|c: char| !c.is_ascii_lowercase() && !c.is_ascii_digit()).filter(|word| !word.is_empty());
    let command_name: String = words.collect::<Vec<_>>().join("_").chars().take(NAME_CHARS).collect();
    let command_name = command_name.trim_end_matches('_');
    if command_name.is_empty() { BY_NAME.to_owned() } else { command_name.to_owned() }
}

/// Returns the name itself, or with the first numeric suffix that makes it unique.
fn unique_name(name: &str, used_names: &BTreeSet<String>) -> String {
    let numbered = (2..).map(|number: u64| {
        let end = format!("_{number}");
        format!("{}{end}", &name[..name.len().min(NAME_CHARS - end.len())])
    });
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    names.find(|name| !used_names.contains(name)).unwrap_or_default()
}
