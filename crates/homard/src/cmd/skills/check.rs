//! `homard skills check`: usable skills, missing requirements, and problems with files.

use anyhow::Result;
use homard_workspace::skills::{Eligibility, JudgedSkill, ProblemLevel, SkillProblem};
use serde_json::{Value, json};

use super::SkillList;
use crate::render::{self, Table};

/// Prints the result. Problems with skills do not fail the command.
pub(super) fn run(list: &SkillList, wants_json: bool) -> Result<()> {
    if wants_json { Ok(render::print_json(&document(list))?) } else { Ok(render::print(&text(list))?) }
}

/// Returns true if only requirements of the machine or the config are missing.
fn lacks_something(eligibility: &Eligibility) -> bool {
    !eligibility.is_eligible && !eligibility.is_disabled && !eligibility.is_blocked_by_allowlist
}

/// Returns the result as JSON: OpenClaw's fields, and the problems.
fn document(list: &SkillList) -> Value {
    let names = |is_match: &dyn Fn(&JudgedSkill, &Value) -> bool| {
        let matching = list.each().filter(|(judged, state)| is_match(judged, state));
        matching.map(|(judged, _)| judged.skill.name.clone()).collect::<Vec<_>>()
    };
    let eligible = names(&|judged, _| judged.verdict.is_eligible);
    let model_visible = names(&|_, state| state["modelVisible"] == true);
    let command_visible = names(&|_, state| state["commandVisible"] == true);
    let disabled = names(&|judged, _| judged.verdict.is_disabled);
    let blocked = names(&|judged, _| judged.verdict.is_blocked_by_allowlist && !judged.verdict.is_disabled);
    let filtered = names(&|judged, _| judged.verdict.is_filtered_out && judged.verdict.is_eligible);
    let missing = list.each().filter(|(judged, _)| lacks_something(&judged.verdict));
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
        "agentId": list.agent,
        "workspaceDir": list.report["workspaceDir"],
        "managedSkillsDir": list.report["managedSkillsDir"],
        "summary": {
            "total": list.set.skills.len(), "eligible": eligible.len(), "modelVisible": model_visible.len(),
            "commandVisible": command_visible.len(), "disabled": disabled.len(), "blocked": blocked.len(),
            "agentFiltered": filtered.len(), "missingRequirements": missing.len(),
        },
        "eligible": eligible, "modelVisible": model_visible, "commandVisible": command_visible,
        "disabled": disabled, "blocked": blocked,
        "agentFiltered": filtered, "missingRequirements": missing,
        "problems": list.set.problems.iter().map(problem).collect::<Vec<_>>(),
    })
}

/// Formats the result for people.
fn text(list: &SkillList) -> String {
    let ready: Vec<_> = list.set.usable().map(|skill| skill.name.as_str()).collect();
    let mut parts = vec![format!(
        "skills of agent {}: {}, ready: {}{}{}",
        list.agent,
        list.set.skills.len(),
        ready.len(),
        if ready.is_empty() { "" } else { "\n  " },
        ready.join(", ")
    )];
    let blocked: Vec<_> = list
        .each()
        .filter(|(judged, _)| !judged.is_usable())
        .flat_map(|(judged, state)| {
            let blockers = render::skills::blockers(judged, state, &list.agent).into_iter().enumerate();
            blockers.map(|(at, blocker)| {
                let name = if at == 0 { judged.skill.name.as_str() } else { "" };
                vec![format!("  {name}"), blocker]
            })
        })
        .collect();
    if !blocked.is_empty() {
        parts.push(format!("not ready, with remedies:\n{}", Table::fields(blocked).fit(render::width())));
    }
    for (level, title) in [(ProblemLevel::Warning, "problems:"), (ProblemLevel::Info, "notes:")] {
        let at_level = list.set.problems.iter().filter(|problem| problem.level == level);
        let lines: Vec<_> = at_level.map(|problem| format!("  {problem}")).collect();
        if !lines.is_empty() {
            parts.push(format!("{title}\n{}", lines.join("\n")));
        }
    }
    render::strip_controls(&parts.join("\n\n"))
}
