//! Checks that every agent has a usable workspace of its own.

use std::path::{Path, PathBuf};

use super::{
    CheckContext,
    finding::{CheckReport, DoctorFinding},
};
use crate::assemble::factory::workspace;

/// Examines the workspaces of all agents without creating any.
pub(super) fn check(scene: &CheckContext) -> CheckReport {
    let Some(loaded) = &scene.loaded else { return CheckReport::without_config() };
    let members = loaded.config.agents.members();
    let all: Vec<_> =
        members.iter().map(|agent| (agent.id.to_string(), workspace(&loaded.config, &scene.paths, agent))).collect();
    evaluate(&all, |path| path.ancestors().find(|above| above.exists()).is_none_or(Path::is_dir))
}

/// Evaluates the workspaces. `can_be` says whether a directory exists or can be created.
fn evaluate(all: &[(String, PathBuf)], can_be: impl Fn(&Path) -> bool) -> CheckReport {
    let mut findings = Vec::new();
    for (id, path) in all {
        let shown = path.display();
        if !can_be(path) {
            let what = format!("agent {id}: the workspace {shown} cannot be created, because a file is in the way");
            findings.push(DoctorFinding::problem(
                what,
                "move that file, or choose another directory: agents.list[].workspace",
            ));
        }
        let around = all.iter().find(|(other, around)| other != id && path != around && path.starts_with(around));
        if let Some((other, around)) = around {
            let beside =
                around.with_file_name(format!("{}-{id}", around.file_name().unwrap_or_default().to_string_lossy()));
            let what =
                format!("agent {id} has its workspace {shown} inside that of agent {other}, which can change it");
            let to_do = format!(
                "stop the gateway, then move the workspace: mv {shown} {}; if the config contains its path, change that too",
                beside.display()
            );
            findings.push(DoctorFinding::note(what, to_do));
        }
    }
    let summary: Vec<_> = all.iter().map(|(id, path)| format!("{id}: {}", path.display())).collect();
    CheckReport::new(summary.join(", "), findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_inside_another_is_told_with_the_way_out_and_one_that_cannot_be_needs_a_hand() {
        let all = |pairs: &[(&str, &str)]| -> Vec<(String, PathBuf)> {
            pairs.iter().map(|&(id, path)| (id.to_owned(), path.into())).collect()
        };
        let report = evaluate(&all(&[("main", "/ws"), ("third", "/ws/third"), ("ops", "/ws-ops")]), |_| true);
        assert!(!report.needs_action());
        let told = format!("{report:?}");
        assert!(told.contains("mv /ws/third /ws-third") && !told.contains("agent ops"), "{told}");
        assert!(evaluate(&all(&[("main", "/file/sub")]), |_| false).needs_action());
    }
}
