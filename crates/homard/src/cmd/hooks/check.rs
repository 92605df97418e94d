//! `homard hooks check`: enabled hooks, missing requirements, and problems with files.

use std::path::Path;

use anyhow::Result;
use homard_plugins::internal::{fingerprint, guard_problem, report};
use homard_skills::{Level, Problem};
use serde_json::{Value, json};

use super::{Shown, node::Trial, words};
use crate::{
    config::{Text, internal_hooks::Internal},
    failure::Failure,
    render,
};

/// Prints the result. Problems with files do not fail the command; an enabled hook that cannot run does.
pub(super) fn run(shown: &Shown, said: &Internal, trial: Option<&Trial>, wants_json: bool) -> Result<()> {
    let on = shown.hooks.iter().filter(|(_, verdict)| verdict.takes_part());
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
            let text = "hooks that are on cannot be run; switch them off with: homard hooks disable NAME, or mend them";
            Err(Failure::new("hooks", text).into())
        }
        Some(_) | None => Ok(()),
    }
}

/// Returns installed hooks whose files have changed.
fn changed(said: &Internal) -> impl Iterator<Item = Problem> {
    said.installs.values().filter_map(|install| {
        let (path, hash) = (Path::new(install.install_path.as_ref().map(Text::as_str)?), install.hash.as_ref()?);
        let what = match fingerprint(path) {
            Ok(now) if now == *hash => return None,
            Ok(_) => "is not what was installed: somebody has changed it; look at it, or install it again".to_owned(),
            Err(error) => format!("was installed and cannot be read: {error}"),
        };
        Some(Problem { path: path.to_owned(), what, level: Level::Warning })
    })
}

/// Returns the result as JSON: OpenClaw's fields, the enabled hooks, and the problems.
fn document(shown: &Shown, problems: &[Problem]) -> Value {
    let reports: Vec<Value> = shown.hooks.iter().map(|(hook, verdict)| report(hook, verdict)).collect();
    let (eligible, others): (Vec<_>, Vec<_>) = reports.iter().partition(|report| report["eligible"] == true);
    let on = shown.hooks.iter().filter(|(_, verdict)| verdict.takes_part()).map(|(hook, _)| &hook.name);
    let problem = |problem: &Problem| {
        let level = match problem.level {
            Level::Info => "info",
            Level::Warning => "warning",
        };
        json!({"path": problem.path, "message": problem.what, "level": level})
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
fn text(shown: &Shown, problems: &[Problem], trial: Option<&Trial>) -> String {
    let (on, others): (Vec<_>, Vec<_>) = shown.hooks.iter().partition(|(_, verdict)| verdict.takes_part());
    let node = trial.and_then(|trial| trial.node.as_ref().ok());
    let node = node.map(|node| format!(", Node: {node} (22 or newer is needed)")).unwrap_or_default();
    let mut lines = vec![format!("hooks: {}, on: {}{node}", shown.hooks.len(), on.len())];
    lines.extend(on.iter().map(|(hook, _)| format!("  {}", hook.name)));
    let mut parts = vec![lines.join("\n")];
    let cannot: Vec<_> = trial.map(Trial::told).unwrap_or_default().iter().map(|line| format!("  {line}")).collect();
    if !cannot.is_empty() {
        parts.push(format!("on, and cannot be run:\n{}", cannot.join("\n")));
    }
    let rows = others.iter().flat_map(|(hook, verdict)| {
        let obstacles = words::obstacles(hook, verdict).into_iter().enumerate();
        obstacles.map(|(at, obstacle)| vec![format!("  {}", if at == 0 { hook.name.as_str() } else { "" }), obstacle])
    });
    let rows: Vec<_> = rows.collect();
    if !rows.is_empty() {
        parts.push(format!("not on, and what to do:\n{}", render::table(&rows)));
    }
    for (level, title) in [(Level::Warning, "wrong:"), (Level::Info, "good to know:")] {
        let told = problems.iter().filter(|problem| problem.level == level);
        let lines: Vec<_> = told.map(|problem| format!("  {problem}")).collect();
        if !lines.is_empty() {
            parts.push(format!("{title}\n{}", lines.join("\n")));
        }
    }
    render::harmless(&parts.join("\n\n"))
}
