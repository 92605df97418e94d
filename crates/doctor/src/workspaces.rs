//! Checks that every agent has a usable workspace of its own.

use std::path::{Path, PathBuf};

use homard_settings::agent_directories::workspace;

use crate::{
    CheckContext,
    finding::{CheckReport, DoctorFinding},
};

/// Examines the workspaces of all agents without creating any.
pub fn check(context: &CheckContext) -> CheckReport {
    let Some(loaded) = &context.loaded else { return CheckReport::without_config() };
    let members = loaded.config.agents.members();
    let all: Vec<_> =
        members.iter().map(|agent| (agent.id.to_string(), workspace(&loaded.config, &context.paths, agent))).collect();
    evaluate(&all, |path| path.ancestors().find(|ancestor| ancestor.exists()).is_none_or(Path::is_dir))
}

/// Evaluates the workspaces. `can_create` returns true if a directory exists or can be created.
fn evaluate(all: &[(String, PathBuf)], can_create: impl Fn(&Path) -> bool) -> CheckReport {
    let mut findings = Vec::new();
    for (id, path) in all {
        let displayed = path.display();
        if !can_create(path) {
            let message =
                format!("agent {id}: the workspace {displayed} cannot be created, because a file is in the way");
            findings.push(DoctorFinding::problem(
                message,
                "move that file, or choose another directory: agents.list[].workspace",
            ));
        }
        let parent = all.iter().find(|(other, parent)| other != id && path != parent && path.starts_with(parent));
        if let Some((other, parent)) = parent {
            let sibling =
                parent.with_file_name(format!("{}-{id}", parent.file_name().unwrap_or_default().to_string_lossy()));
            let message =
                format!("agent {id} has its workspace {displayed} inside that of agent {other}, which can change it");
            let remedy = format!(
                "stop the gateway, then move the workspace: mv {displayed} {}; if the config contains its path, change that too",
                sibling.display()
            );
            findings.push(DoctorFinding::note(message, remedy));
        }
    }
    let summary: Vec<_> = all.iter().map(|(id, path)| format!("{id}: {}", path.display())).collect();
    CheckReport::new(summary.join(", "), findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nested_workspace_is_a_note_and_one_that_cannot_be_created_a_problem() {
        let all = |pairs: &[(&str, &str)]| -> Vec<(String, PathBuf)> {
            pairs.iter().map(|&(id, path)| (id.to_owned(), path.into())).collect()
        };
        let report = evaluate(&all(&[("main", "/ws"), ("third", "/ws/third"), ("ops", "/ws-ops")]), |_| true);
        assert!(!report.needs_action());
        let text = format!("{report:?}");
        assert!(text.contains("mv /ws/third /ws-third") && !text.contains("agent ops"), "{text}");
        assert!(evaluate(&all(&[("main", "/file/sub")]), |_| false).needs_action());
    }
}
