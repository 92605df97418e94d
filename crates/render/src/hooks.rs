//! Describes the state of hooks, with remedies.

use homard_config::path::Path;
use homard_plugins::internal::{self, DisabledReason, HookDecisionState, HookHandler, HookSource, InternalHook};
use homard_workspace::skills::SkillRequirements;

use crate::{MAX_DESCRIPTION, Table, shell_quote, strip_controls, truncate};

/// Returns the state of a hook for a table.
pub fn state(decision: &HookDecisionState) -> String {
    match (decision.disabled, decision.has_requirements()) {
        (Some(_), _) => "off".to_owned(),
        (None, true) => "on".to_owned(),
        (None, false) if decision.missing.fault.is_some() => "down".to_owned(),
        (None, false) => {
            missing_requirements(decision).replacen("it needs", "needs", 1).replacen("it works on ", "", 1)
        }
    }
}

/// Returns what a hook lacks.
pub fn missing_requirements(decision: &HookDecisionState) -> String {
    internal::describe_missing(&decision.missing)
}

/// Formats the hooks as a table.
pub fn table(hooks: &[(InternalHook, HookDecisionState)], is_verbose: bool) -> Table {
    let titles =
        ["HOOK", "STATE", "FROM", "FOR"].into_iter().chain(if is_verbose { vec!["EVENTS", "HANDLER"] } else { vec![] });
    let titles: Vec<String> = titles.map(str::to_owned).collect();
    let line = |(hook, decision): &(InternalHook, HookDecisionState)| {
        let mut cells = vec![
            hook.name.clone(),
            state(decision),
            origin(hook.source).to_owned(),
            truncate(&hook.description, MAX_DESCRIPTION),
        ];
        if is_verbose {
            cells.extend([hook.events.join(", "), handler(hook)]);
        }
        cells.into_iter().map(|cell| strip_controls(&cell)).collect()
    };
    Table::list(std::iter::once(titles).chain(hooks.iter().map(line)).collect())
}

/// Describes one hook in full.
pub fn describe(hook: &InternalHook, decision: &HookDecisionState) -> Table {
    let events = if hook.events.is_empty() { "nothing".to_owned() } else { hook.events.join(", ") };
    let mut rows = vec![
        ("hook", hook.name.clone()),
        ("state", state(decision)),
        ("for", hook.description.clone()),
        ("listens to", events),
        ("from", origin(hook.source).to_owned()),
        ("handler", handler(hook)),
        ("in the config", entry(hook).to_string()),
    ];
    if hook.source != HookSource::Bundled {
        rows.push(("file", hook.file.display().to_string()));
    }
    rows.extend(hook.homepage.iter().map(|page| ("homepage", page.clone())));
    rows.extend(blockers(hook, decision).into_iter().map(|blocker| ("to do", blocker)));
    Table::fields(rows.into_iter().map(|(name, text)| vec![name.to_owned(), strip_controls(&text)]).collect())
}

/// Returns what prevents a hook from running, each with the remedy; empty if nothing does.
pub fn blockers(hook: &InternalHook, decision: &HookDecisionState) -> Vec<String> {
    let enable_command = format!("homard hooks enable {}", shell_quote(&hook.name));
    let mut lines: Vec<String> = decision
        .disabled
        .map(|reason| match reason {
            DisabledReason::All => {
                format!(
                    "all hooks are disabled: hooks.internal.enabled is false; enable this hook with: {enable_command}"
                )
            }
            DisabledReason::Entry | DisabledReason::NotEnabled | DisabledReason::ByDefault => {
                format!("disabled; enable it with: {enable_command}")
            }
            DisabledReason::Workspace => {
                format!("disabled, as every workspace hook is by default; review the hook, then: {enable_command}")
            }
        })
        .into_iter()
        .collect();
    if !decision.missing.os.is_empty() {
        // Nothing that could be installed or set would help.
        lines.push(missing_requirements(decision));
        return lines;
    }
    lines.extend(decision.missing.fault.clone());
    let SkillRequirements { bins, any_bins, env, config } = &decision.missing.requires;
    lines.extend(bins.iter().map(|name| format!("install the program {name}")));
    if !any_bins.is_empty() {
        lines.push(format!("install one of the programs {}", any_bins.join(", ")));
    }
    lines.extend(env.iter().map(|name| {
        let key = entry(hook).key("env").key(name).to_string();
        format!("set the environment variable {name}, or: homard config set {} VALUE", shell_quote(&key))
    }));
    lines.extend(
        config.iter().map(|path| format!("set {path} in the config: homard config set {} VALUE", shell_quote(path))),
    );
    lines
}

fn entry(hook: &InternalHook) -> Path {
    Path::root().key("hooks").key("internal").key("entries").key(&hook.key)
}

fn origin(source: HookSource) -> &'static str {
    match source {
        HookSource::Extra => "extraDirs",
        HookSource::Bundled => "bundled",
        HookSource::Managed => "state directory",
        HookSource::Workspace => "workspace",
    }
}

fn handler(hook: &InternalHook) -> String {
    match &hook.handler {
        HookHandler::Script { path, .. } => format!("{} (run by Node)", path.display()),
        HookHandler::Program(path) => format!("{} (a program)", path.display()),
        HookHandler::Bundled(_) => "built in".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use homard_plugins::internal::bundled::BundledHook;
    use homard_workspace::skills::MissingRequirements;

    use super::*;

    fn texts(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn every_blocker_has_a_remedy() {
        let hook =
            InternalHook { name: "a tide".to_owned(), key: "a tide".to_owned(), ..BundledHook::SessionMemory.hook() };
        let requires = SkillRequirements {
            bins: texts(&["gps"]),
            any_bins: texts(&["a", "b"]),
            env: texts(&["KEY"]),
            config: texts(&["channels.slack"]),
        };
        let missing = MissingRequirements { requires, ..MissingRequirements::default() };
        assert_eq!(
            blockers(&hook, &HookDecisionState { disabled: Some(DisabledReason::Workspace), missing: missing.clone() }),
            [
                "disabled, as every workspace hook is by default; review the hook, then: homard hooks enable 'a tide'",
                "install the program gps",
                "install one of the programs a, b",
                "set the environment variable KEY, or: homard config set 'hooks.internal.entries[\"a tide\"].env.KEY' VALUE",
                "set channels.slack in the config: homard config set channels.slack VALUE",
            ]
        );
        assert_eq!(
            state(&HookDecisionState { disabled: None, missing: missing.clone() }),
            "needs gps, a or b, KEY, channels.slack"
        );
        let other_os =
            HookDecisionState { disabled: None, missing: MissingRequirements { os: texts(&["darwin"]), ..missing } };
        assert_eq!(
            (state(&other_os), blockers(&hook, &other_os)),
            ("darwin only".to_owned(), texts(&["it works on darwin only"]))
        );
    }
}
