//! `homard hooks check`: enabled hooks, missing requirements, and problems with files.

use std::path::Path;

use anyhow::Result;
use homard_plugins::internal::{fingerprint, guard_problem, report};
use homard_skills::{ProblemLevel, SkillProblem};
use serde_json::{Value, json};

use super::{HookList, format, node::NodeTrial};
use crate::{
    cli_error::CliError,
    config::{Text, internal_hooks::Internal},
    render::{self, Table},
};

/// Prints the result. Problems with files do not fail the command; an enabled hook that cannot run does.
pub(super) fn run(shown: &HookList, said: &Internal, trial: Option<&NodeTrial>, wants_json: bool) -> Result<()> {
    let on = shown.hooks.iter().filter(|(_, verdict)| verdict.is_active());
    let guards = on.filter_map(|(hook, _)| guard_problem(hook, &shown.rules));
    let problems: Vec<_> = shown.problems.iter().cloned().chain(changed(said)).chain(guards).collect();
    if wants_json {
        let mut document = document(shown, &problems);
        if let Some(trial) = trial {
            (document["node"], document["handlers"]) = trial.documents();
        }
        render::print_json(&document)?;
    } else {
        render::print(&text(shown, &problems, trial))?;
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
fn changed(said: &Internal) -> impl Iterator<Item = SkillProblem> {
    said.installs.values().filter_map(|install| {
        let (path, hash) = (Path::new(install.install_path.as_ref().map(Text::as_str)?), install.hash.as_ref()?);
        let what = match fingerprint(path) {
            Ok(now) if now == *hash => return None,
            Ok(_) => "was modified after its installation; inspect it, or install it again".to_owned(),
            Err(error) => format!("is installed but cannot be read: {error}"),
        };
        Some(SkillProblem { path: path.to_owned(), message: what, level: ProblemLevel::Warning })
    })
}

/// Returns the result as JSON: OpenClaw's fields, the enabled hooks, and the problems.
fn document(shown: &HookList, problems: &[SkillProblem]) -> Value {
    let reports: Vec<Value> = shown.hooks.iter().map(|(hook, verdict)| report(hook, verdict)).collect();
    let (eligible, others): (Vec<_>, Vec<_>) = reports.iter().partition(|report| report["eligible"] == true);
    let on = shown.hooks.iter().filter(|(_, verdict)| verdict.is_active()).map(|(hook, _)| &hook.name);
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
        "on": on.collect::<Vec<_>>(),
        "problems": problems.iter().map(problem).collect::<Vec<_>>(),
    })
}

/// Formats the result for people.
fn text(shown: &HookList, problems: &[SkillProblem], trial: Option<&NodeTrial>) -> String {
    let (on, others): (Vec<_>, Vec<_>) = shown.hooks.iter().partition(|(_, verdict)| verdict.is_active());
    let node = trial.and_then(|trial| trial.node.as_ref().ok());
    let node = node.map(|node| format!(", Node: {node} (22 or newer is required)")).unwrap_or_default();
    let mut lines = vec![format!("hooks: {}, enabled: {}{node}", shown.hooks.len(), on.len())];
    lines.extend(on.iter().map(|(hook, _)| format!("  {}", hook.name)));
    let mut parts = vec![lines.join("\n")];
    let cannot: Vec<_> =
        trial.map(NodeTrial::problem_lines).unwrap_or_default().iter().map(|line| format!("  {line}")).collect();
    if !cannot.is_empty() {
        parts.push(format!("enabled, but cannot be run:\n{}", cannot.join("\n")));
    }
    let rows = others.iter().flat_map(|(hook, verdict)| {
        let obstacles = format::blockers(hook, verdict).into_iter().enumerate();
        obstacles.map(|(at, obstacle)| vec![format!("  {}", if at == 0 { hook.name.as_str() } else { "" }), obstacle])
    });
    let rows: Vec<_> = rows.collect();
    if !rows.is_empty() {
        parts.push(format!("not enabled, with remedies:\n{}", Table::fields(rows).fit(render::width())));
    }
    for (level, title) in [(ProblemLevel::Warning, "problems:"), (ProblemLevel::Info, "notes:")] {
        let told = problems.iter().filter(|problem| problem.level == level);
        let lines: Vec<_> = told.map(|problem| format!("  {problem}")).collect();
        if !lines.is_empty() {
            parts.push(format!("{title}\n{}", lines.join("\n")));
        }
    }
    render::strip_controls(&parts.join("\n\n"))
}
