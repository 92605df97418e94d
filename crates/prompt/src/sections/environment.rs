//! Prompt sections about the environment: workspace, sandbox, time, files.

use super::{StableInput, capped, files, path, sanitize, sanitized, tool};
use crate::input::SandboxAccess;

/// Maximum number of model aliases.
const MAX_ALIASES: usize = 50;

pub(super) fn aliases(stable: &StableInput<'_>) -> Option<String> {
    if stable.aliases.is_empty() {
        return None;
    }
    let head = ["## Model Aliases", "Use these short names or provider/model wherever a model is named."];
    let aliases = stable.aliases.iter().map(|(alias, model)| format!("- {}: {}", sanitize(alias), sanitize(model)));
    let lines = head.map(str::to_owned).into_iter().chain(capped(aliases, MAX_ALIASES));
    Some(lines.collect::<Vec<_>>().join("\n"))
}

pub(super) fn workspace(stable: &StableInput<'_>) -> Option<String> {
    let mut text = format!(
        "## Workspace\n\
         You work in the directory {}. Relative paths start there, and files belong there unless you are told otherwise.",
        path(stable.workspace)
    );
    if files::has(stable, "BOOTSTRAP.md") {
        text.push_str("\nIf this directory is a git repository, commit what you change in it.");
    }
    Some(text)
}

pub(super) fn short_workspace(stable: &StableInput<'_>) -> Option<String> {
    Some(format!("## Workspace\nYou work in the directory {}. Relative paths start there.", path(stable.workspace)))
}

pub(super) fn sandbox(stable: &StableInput<'_>) -> Option<String> {
    let sandbox = stable.sandbox?;
    let mut lines = vec![
        "## Sandbox".to_owned(),
        format!("Your tools run in a sandbox, in {}. Some may be missing or refused there.", path(sandbox.dir)),
    ];
    let mount = sandbox.mount.map_or_else(String::new, |mount| format!(", at {}", path(mount)));
    lines.push(match sandbox.access {
        SandboxAccess::None => "It has its own copy of the workspace; the real one is out of reach.".to_owned(),
        SandboxAccess::Read => format!("The real workspace can be read{mount}, not changed."),
        SandboxAccess::Write => format!("The real workspace can be read and changed{mount}."),
    });
    lines.push("Nothing runs outside of it. If a task needs that, ask the person.".to_owned());
    Some(lines.join("\n"))
}

pub(super) fn time(stable: &StableInput<'_>) -> Option<String> {
    let zone = sanitized(stable.zone)?;
    let mut text =
        format!("## Current Date & Time\nTime zone: {zone}\nA message begins with the time at which it was written.");
    if let Some(status) = tool(stable.tools, "session_status") {
        text.push_str(&format!(" For the time right now use {}.", sanitize(status)));
    }
    Some(text)
}

pub(super) fn files(stable: &StableInput<'_>) -> Option<String> {
    if stable.files.is_empty() {
        return None;
    }
    let text = "## Workspace Files (injected)\n\
                The person and you can edit these files of the workspace; they follow under Project Context.";
    Some(text.to_owned())
}
