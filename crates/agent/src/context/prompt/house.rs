//! Prompt sections about the environment: workspace, sandbox, owners, time, files.

use super::{
    super::scene::{Access, Browser},
    Stable, capped, known, line, pages, path, tool,
};

/// Maximum number of model aliases.
const ALIASES: usize = 50;
/// Maximum number of owner names.
const OWNERS: usize = 20;

pub(super) fn aliases(stable: &Stable<'_>) -> Option<String> {
    if stable.aliases.is_empty() {
        return None;
    }
    let head =
        ["## Model Aliases", "Where a model is to be named, these short names will do; provider/model will, too."];
    let aliases = stable.aliases.iter().map(|(alias, model)| format!("- {}: {}", line(alias), line(model)));
    let lines = head.map(str::to_owned).into_iter().chain(capped(aliases, ALIASES));
    Some(lines.collect::<Vec<_>>().join("\n"))
}

pub(super) fn workspace(stable: &Stable<'_>) -> Option<String> {
    let mut text = format!(
        "## Workspace\n\
         You work in the directory {}. Relative paths start there, and files belong there unless you are told otherwise.",
        path(stable.workspace)
    );
    if pages::has(stable, "BOOTSTRAP.md") {
        text.push_str("\nIf this directory is a git repository, commit what you change in it.");
    }
    Some(text)
}

pub(super) fn short_workspace(stable: &Stable<'_>) -> Option<String> {
    Some(format!("## Workspace\nYou work in the directory {}. Relative paths start there.", path(stable.workspace)))
}

pub(super) fn documentation(stable: &Stable<'_>) -> Option<String> {
    let docs = path(stable.docs?);
    Some(format!(
        "## Documentation\n\
         Homard's documentation is in {docs}. For questions about Homard itself, its settings or its commands, read there \
         before you answer."
    ))
}

pub(super) fn sandbox(stable: &Stable<'_>) -> Option<String> {
    let sandbox = stable.sandbox?;
    let mut lines = vec![
        "## Sandbox".to_owned(),
        format!("Your tools run in a sandbox, in {}. Some may be missing or refused there.", path(sandbox.dir)),
    ];
    let mount = sandbox.mount.map_or_else(String::new, |mount| format!(", at {}", path(mount)));
    lines.push(match sandbox.access {
        Access::None => "It has its own copy of the workspace; the real one is out of reach.".to_owned(),
        Access::Read => format!("The real workspace can be read{mount}, not changed."),
        Access::Write => format!("The real workspace can be read and changed{mount}."),
    });
    match sandbox.browser {
        Browser::None => {}
        Browser::Inside => lines.push("There is a browser inside; the machine's own is out of reach.".to_owned()),
        Browser::InsideAndHost => {
            lines.push("There is a browser inside; the machine's own can be used, too.".to_owned())
        }
    }
    lines.push(match known(sandbox.elevated) {
        Some(level) => format!(
            "Elevated commands run outside, on the machine; the person switches that with /elevated (now: {level})."
        ),
        None => "Nothing runs outside of it. If a task needs that, ask the person.".to_owned(),
    });
    Some(lines.join("\n"))
}

pub(super) fn owners(stable: &Stable<'_>) -> Option<String> {
    let owners: Vec<_> = stable.owners.iter().filter_map(|owner| known(Some(owner))).collect();
    if owners.is_empty() {
        return None;
    }
    let more = owners.len().saturating_sub(OWNERS);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let first = owners[..owners.len().min(OWNERS)].join(", ");
    Some(format!("## User Identity\nThe person you work for writes as: {first}{more}."))
}

pub(super) fn time(stable: &Stable<'_>) -> Option<String> {
    let zone = known(stable.zone)?;
    let mut text =
        format!("## Current Date & Time\nTime zone: {zone}\nA message begins with the time at which it was written.");
    if let Some(status) = tool(stable.tools, "session_status") {
        text.push_str(&format!(" For the time right now use {}.", line(status)));
    }
    Some(text)
}

pub(super) fn files(stable: &Stable<'_>) -> Option<String> {
    if stable.pages.is_empty() {
        return None;
    }
    let text = "## Workspace Files (injected)\n\
                The person and you can edit these files of the workspace; they follow under Project Context.";
    Some(text.to_owned())
}
