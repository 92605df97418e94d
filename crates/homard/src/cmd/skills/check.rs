//! `homard skills check`: usable skills, missing requirements, and problems with files.

use anyhow::Result;
use homard_skills::{Eligibility, JudgedSkill, ProblemLevel, SkillProblem};
use serde_json::{Value, json};

use super::{SkillList, format};
use crate::render::{self, Table};

/// Prints the result. Problems with skills do not fail the command.
pub(super) fn run(shown: &SkillList, wants_json: bool) -> Result<()> {
    if wants_json { Ok(render::print_json(&document(shown))?) } else { Ok(render::print(&text(shown))?) }
}

/// Returns true if only requirements of the machine or the config are missing.
fn lacks_something(verdict: &Eligibility) -> bool {
    !verdict.is_eligible && !verdict.is_disabled && !verdict.is_blocked_by_allowlist
}

/// Returns the result as JSON: OpenClaw's fields, and the problems.
fn document(shown: &SkillList) -> Value {
    let names = |is_meant: &dyn Fn(&JudgedSkill, &Value) -> bool| {
        let meant = shown.each().filter(|(judged, state)| is_meant(judged, state));
        meant.map(|(judged, _)| judged.skill.name.clone()).collect::<Vec<_>>()
    };
    let eligible = names(&|judged, _| judged.verdict.is_eligible);
    let seen = names(&|_, state| state["modelVisible"] == true);
    let called = names(&|_, state| state["commandVisible"] == true);
    let disabled = names(&|judged, _| judged.verdict.is_disabled);
    let blocked = names(&|judged, _| judged.verdict.is_blocked_by_allowlist && !judged.verdict.is_disabled);
    let filtered = names(&|judged, _| judged.verdict.is_filtered_out && judged.verdict.is_eligible);
    let missing = shown.each().filter(|(judged, _)| lacks_something(&judged.verdict));
    let missing = missing
        .map(|(judged, state)| json!({"name": judged.skill.name, "missing": state["missing"], "install": state["install"]}))
        .collect::<Vec<_>>();
    let problem = |problem: &SkillProblem| {
        let level = match problem.level {
            ProblemLevel::Info => "info",
            ProblemLevel::Warning => "warning",
        };
        json!({"path": problem.path, "message": problem.message, "level": level})
    };
    json!({
        "agentId": shown.agent,
        "workspaceDir": shown.report["workspaceDir"],
        "managedSkillsDir": shown.report["managedSkillsDir"],
        "summary": {
            "total": shown.book.skills.len(), "eligible": eligible.len(), "modelVisible": seen.len(),
            "commandVisible": called.len(), "disabled": disabled.len(), "blocked": blocked.len(),
            "agentFiltered": filtered.len(), "missingRequirements": missing.len(),
        },
        "eligible": eligible, "modelVisible": seen, "commandVisible": called, "disabled": disabled, "blocked": blocked,
        "agentFiltered": filtered, "missingRequirements": missing,
        "problems": shown.book.problems.iter().map(problem).collect::<Vec<_>>(),
    })
}

/// Formats the result for people.
fn text(shown: &SkillList) -> String {
    let ready: Vec<_> = shown.book.usable().map(|skill| skill.name.as_str()).collect();
    let mut parts = vec![format!(
        "skills of agent {}: {}, ready: {}{}{}",
        shown.agent,
        shown.book.skills.len(),
        ready.len(),
        if ready.is_empty() { "" } else { "\n  " },
        ready.join(", ")
    )];
    let barred: Vec<_> = shown
        .each()
        .filter(|(judged, _)| !judged.is_usable())
        .flat_map(|(judged, state)| {
            let obstacles = format::blockers(judged, state, &shown.agent).into_iter().enumerate();
            obstacles.map(|(at, obstacle)| {
                let name = if at == 0 { judged.skill.name.as_str() } else { "" };
                vec![format!("  {name}"), obstacle]
            })
        })
        .collect();
    if !barred.is_empty() {
        parts.push(format!("not ready, with remedies:\n{}", Table::fields(barred).fit(render::width())));
    }
    for (level, title) in [(ProblemLevel::Warning, "problems:"), (ProblemLevel::Info, "notes:")] {
        let told = shown.book.problems.iter().filter(|problem| problem.level == level);
        let lines: Vec<_> = told.map(|problem| format!("  {problem}")).collect();
        if !lines.is_empty() {
            parts.push(format!("{title}\n{}", lines.join("\n")));
        }
    }
    render::strip_controls(&parts.join("\n\n"))
}
