//! The sandbox policy of a sandboxed run, which sees only a part of the agent's workspace.

use std::path::{Path, PathBuf};

use homard_agent::sandboxing::{SandboxView, WorkspaceAccess};

use crate::sandbox::{AccessMode, SandboxPolicy};

/// Returns the policy for commands of a sandboxed run. They always run in a sandbox, and of all workspaces they see
/// only the one that they run in, and the agent's own if the run may read it.
pub(crate) fn policy_of_run(general: &SandboxPolicy, view: &SandboxView, workdir: &Path) -> SandboxPolicy {
    let mut policy = general.clone();
    if policy.mode == AccessMode::Full {
        policy.mode = AccessMode::Workspace;
    }
    let (readable, workspace) = (view.readable(), view.workspace.as_path());
    // One of these is the directory of all sandbox workspaces; everything in it but the working directory is hidden.
    let all = general.workspaces.iter().map(PathBuf::as_path).chain([workspace]);
    let is_seen = |path: &Path| {
        path == workdir || Some(path) == readable || (view.access == WorkspaceAccess::Rw && path == workspace)
    };
    policy.masked.extend(all.filter(|path| !is_seen(path)).map(Path::to_owned));
    policy.extra_read.extend(readable.map(Path::to_owned));
    policy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandboxed_run_sees_its_directory_and_readable_workspaces() {
        let policy = SandboxPolicy {
            mode: AccessMode::Full,
            workspaces: ["/ws", "/ws-ops", "/boxes"].map(PathBuf::from).into(),
            ..SandboxPolicy::default()
        };
        let within = |access, workdir: &str| {
            let view = SandboxView { workspace: "/ws".into(), access };
            let sandboxed = policy_of_run(&policy, &view, Path::new(workdir));
            assert_eq!(sandboxed.mode, AccessMode::Workspace, "it is always held");
            let mut masked = sandboxed.masked;
            masked.sort();
            masked.dedup();
            (masked, sandboxed.extra_read)
        };
        let paths = |all: &[&str]| all.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(within(WorkspaceAccess::None, "/boxes/a"), (paths(&["/boxes", "/ws", "/ws-ops"]), paths(&[])));
        assert_eq!(within(WorkspaceAccess::Ro, "/boxes/a"), (paths(&["/boxes", "/ws-ops"]), paths(&["/ws"])));
        assert_eq!(within(WorkspaceAccess::Rw, "/ws"), (paths(&["/boxes", "/ws-ops"]), paths(&[])));
    }
}
