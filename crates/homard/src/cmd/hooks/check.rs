//! `homard hooks check`: enabled hooks, missing requirements, and problems with files.

use std::path::Path;

use anyhow::Result;
use homard_plugins::internal::{fingerprint, guard_problem, report};
use homard_settings::{Text, internal_hooks::Internal};
use homard_workspace::skills::{ProblemLevel, SkillProblem};
use serde_json::{Value, json};

use super::{HookList, node::NodeTrial};
use crate::{
    cli_error::CliError,
    render::{self, Table},
};

/// Prints the result. Problems with files do not fail the command; an enabled hook that cannot run does.
pub(super) fn run(list: &HookList, section: &Internal, trial: Option<&NodeTrial>, wants_json: bool) -> Result<()> {
    let active = list.hooks.iter().filter(|(_, decision)| decision.is_active());
    let guards = active.filter_map(|(hook, _)| guard_problem(hook, &list.rules));
    let problems: Vec<_> = list.problems.iter().cloned().chain(changed(section)).chain(guards).collect();
    if wants_json {
        let mut document = document(list, &problems);
        if let Some(trial) = trial {
            (document["node"], document["handlers"]) = trial.documents();
        }
        render::print_json(&document)?;
    } else {
        render::print(&text(list, &problems, trial))?;
    }
    match trial {
        Some(trial) if !trial.is_good() => {
            let text = "some enabled hooks cannot be run; fix them, or disable them with: homard hooks disable NAME";
            Err(CliError::new("hooks", text).into())
        }
        Some(_) | None => Ok(()),
    }
}

/// Returns installed hooks whose files have changed.
fn changed(section: &Internal) -> impl Iterator<Item = SkillProblem> {
    section.installs.values().filter_map(|install| {
        let (path, hash) = (Path::new(install.install_path.as_ref().map(Text::as_str)?), install.hash.as_ref()?);
        let message = match fingerprint(path) {
            Ok(now) if now == *hash => return None,
            Ok(_) => "was modified after its installation; inspect it, or install it again".to_owned(),
            Err(error) => format!("is installed but cannot be read: {error}"),
        };
        Some(SkillProblem { path: path.to_owned(), message, level: ProblemLevel::Warning })
    })
}

/// Returns the result as JSON: OpenClaw's fields, the enabled hooks, and the problems.
fn document(list: &HookList, problems: &[SkillProblem]) -> Value {
    let reports: Vec<Value> = list.hooks.iter().map(|(hook, decision)| report(hook, decision)).collect();
    let (eligible, others): (Vec<_>, Vec<_>) = reports.iter().partition(|report| report["eligible"] == true);
    let active = list.hooks.iter().filter(|(_, decision)| decision.is_active()).map(|(hook, _)| &hook.name);
    let problem = |problem: &SkillProblem| {
        let level = match problem.level {
            ProblemLevel::Info => "info",
            ProblemLevel::Warning => "warning",
        };
        json!({"path": problem.path, "message": problem.message, "level": level})
    };
    json!({
        "total": reports.len(), "eligible": eligible.len(), "notEligible": others.len(),
        "hooks": {
            "eligible": eligible.iter().map(|report| &report["name"]).collect::<Vec<_>>(),
            "notEligible":
                others.iter().map(|report| json!({"name": report["name"], "missing": report["missing"]})).collect::<Vec<_>>(),
        },
        "on": active.collect::<Vec<_>>(),
        "problems": problems.iter().map(problem).collect::<Vec<_>>(),
    })
}

/// Formats the result for people.
fn text(list: &HookList, problems: &[SkillProblem], trial: Option<&NodeTrial>) -> String {
    let (active, others): (Vec<_>, Vec<_>) = list.hooks.iter().partition(|(_, decision)| decision.is_active());
    let node = trial.and_then(|trial| trial.node.as_ref().ok());
    let node = node.map(|node| format!(", Node: {node} (22 or newer is required)")).unwrap_or_default();
    let mut lines = vec![format!("hooks: {}, enabled: {}{node}", list.hooks.len(), active.len())];
    lines.extend(active.iter().map(|(hook, _)| format!("  {}", hook.name)));
    let mut parts = vec![lines.join("\n")];
    let failing: Vec<_> =
        trial.map(NodeTrial::problem_lines).unwrap_or_default().iter().map(|line| format!("  {line}")).collect();
    if !failing.is_empty() {
        parts.push(format!("enabled, but cannot be run:\n{}", failing.join("\n")));
    }
    let rows = others.iter().flat_map(|(hook, decision)| {
        let blockers = render::hooks::blockers(hook, decision).into_iter().enumerate();
        blockers.map(|(at, blocker)| vec![format!("  {}", if at == 0 { hook.name.as_str() } else { "" }), blocker])
    });
    let rows: Vec<_> = rows.collect();
    if !rows.is_empty() {
        parts.push(format!("not enabled, with remedies:\n{}", Table::fields(rows).fit(render::width())));
    }
    for (level, title) in [(ProblemLevel::Warning, "problems:"), (ProblemLevel::Info, "notes:")] {
        let at_level = problems.iter().filter(|problem| problem.level == level);
        let lines: Vec<_> = at_level.map(|problem| format!("  {problem}")).collect();
        if !lines.is_empty() {
            parts.push(format!("{title}\n{}", lines.join("\n")));
        }
    }
    render::strip_controls(&parts.join("\n\n"))
}
