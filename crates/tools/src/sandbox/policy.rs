//! What a sandbox is asked to do, before anybody has looked at the disk.

use std::path::{Component, Path, PathBuf};

use homard_agent::sandboxing::{SandboxView, WorkspaceAccess};

use crate::{
    path_rules::{CREDENTIALS, START_FILES, SYSTEM_SECRETS, resolve},
    protected::{GUIDE, for_commands},
};

use super::limits::ResourceLimits;

/// How much a command may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Look, but change nothing.
    ReadOnly,
    /// Change the workspace.
    #[default]
    Workspace,
    /// Change the workspace, when somebody has agreed to the command. Asking is not done here.
    Guarded,
    /// Everything that the user may do: there is no sandbox.
    Full,
}

/// What a sandbox is asked to do.
#[derive(Debug, Clone, Default)]
pub struct SandboxPolicy {
    /// How much a command may do.
    pub mode: Mode,
    /// Whether it reaches the network.
    pub network: bool,
    /// Where Homard keeps its own things: nobody's to see.
    pub state_dir: Option<PathBuf>,
    /// Workspaces of agents. Below the state directory, only these may be worked in.
    pub workspaces: Vec<PathBuf>,
    /// The home directory. Toolchains, caches and the git identity may be read in it; the rest is hidden.
    pub home: Option<PathBuf>,
    /// The directories in which the user's shells look for programs: `PATH`.
    pub search_path: Vec<PathBuf>,
    /// Paths that may be read although they are hidden. The home directory itself may be one: then credentials in it stay
    /// hidden that are known by name.
    pub extra_read: Vec<PathBuf>,
    /// Folders of skills: agents read them wherever a run works.
    pub skills: Vec<PathBuf>,
    /// What may be changed besides the workspace.
    pub extra_write: Vec<PathBuf>,
    /// What is hidden besides the usual.
    pub masked: Vec<PathBuf>,
    /// How much of the machine a command may use.
    pub limits: ResourceLimits,
}

/// Whether something at a path below a workspace steers agents or git.
pub(super) fn steers(path: &Path) -> bool {
    let first = path.components().next().map(Component::as_os_str);
    first.is_some_and(|first| first == ".git" || first == GUIDE || for_commands().any(|name| first == name))
}

impl SandboxPolicy {
    /// The policy for commands of a sandboxed run. They are always held, and of the workspaces they see the one that they
    /// work in, and the agent's own if the run may read it.
    pub(crate) fn in_sandbox(&self, view: &SandboxView, workdir: &Path) -> Self {
        let mut policy = self.clone();
        if policy.mode == Mode::Full {
            policy.mode = Mode::Workspace;
        }
        let (readable, own) = (view.readable(), view.workspace.as_path());
        // The folder with all sandbox workspaces is one of these: what is in it besides the working directory is hidden.
        let all = self.workspaces.iter().map(PathBuf::as_path).chain([own]);
        let is_seen = |path: &Path| {
            path == workdir || Some(path) == readable || (view.access == WorkspaceAccess::Rw && path == own)
        };
        policy.masked.extend(all.filter(|path| !is_seen(path)).map(Path::to_owned));
        policy.extra_read.extend(readable.map(Path::to_owned));
        policy
    }

    /// All that is hidden.
    pub(crate) fn secrets(&self) -> Vec<PathBuf> {
        let opened: Vec<_> = self.extra_read.iter().chain(&self.extra_write).collect();
        let at_home = self.home.iter().flat_map(|home| CREDENTIALS.map(|name| home.join(name)));
        // What the owner named is open; Homard's own state is not theirs to open this way.
        let at_home = at_home.filter(|path| !opened.contains(&path));
        let elsewhere = SYSTEM_SECRETS.map(PathBuf::from);
        at_home.chain(elsewhere).chain(self.state_dir.clone()).chain(self.masked.iter().cloned()).collect()
    }

    /// Files and directories that runs in a directory, given by its real path, may read but not change.
    ///
    /// Where the home directory is a part of it, the directories of `PATH` in the home directory are among them. In a
    /// project of its own, such a directory is where its builds go. Blocks.
    pub(crate) fn start_files(&self, directory: &Path) -> Vec<PathBuf> {
        let in_home = |home: &PathBuf| {
            let is_worked_in = home.canonicalize().is_ok_and(|home| home.starts_with(directory));
            let programs = self.search_path.iter().filter(|path| path.starts_with(home) && *path != home);
            let programs: Vec<_> = programs.filter(|_| is_worked_in).cloned().collect();
            START_FILES.map(|name| home.join(name)).into_iter().chain(programs).collect::<Vec<_>>()
        };
        self.home.iter().flat_map(in_home).collect()
    }

    /// Whether a run may not work in a directory, given by its real path: it belongs to the state directory, and to
    /// no agent's workspace there. Blocks.
    pub fn refuses(&self, directory: &Path) -> bool {
        let state_dirs: Vec<_> = self.state_dir.iter().flat_map(|state_dir| resolve(state_dir)).collect();
        let workspaces: Vec<_> = self.workspaces.iter().flat_map(|workspace| resolve(workspace)).collect();
        state_dirs.iter().any(|state_dir| {
            let is_own = |workspace: &PathBuf| workspace.starts_with(state_dir) && workspace != state_dir;
            directory.starts_with(state_dir)
                && !workspaces.iter().any(|workspace| is_own(workspace) && directory.starts_with(workspace))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandboxed_run_sees_its_own_directory_and_what_it_may_read_of_the_workspaces() {
        let policy = SandboxPolicy {
            mode: Mode::Full,
            workspaces: ["/ws", "/ws-ops", "/boxes"].map(PathBuf::from).into(),
            ..SandboxPolicy::default()
        };
        let within = |access, workdir: &str| {
            let view = SandboxView { workspace: "/ws".into(), access };
            let held = policy.in_sandbox(&view, Path::new(workdir));
            assert_eq!(held.mode, Mode::Workspace, "it is always held");
            let mut masked = held.masked;
            masked.sort();
            masked.dedup();
            (masked, held.extra_read)
        };
        let paths = |all: &[&str]| all.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(within(WorkspaceAccess::None, "/boxes/a"), (paths(&["/boxes", "/ws", "/ws-ops"]), paths(&[])));
        assert_eq!(within(WorkspaceAccess::Ro, "/boxes/a"), (paths(&["/boxes", "/ws-ops"]), paths(&["/ws"])));
        assert_eq!(within(WorkspaceAccess::Rw, "/ws"), (paths(&["/boxes", "/ws-ops"]), paths(&[])));
    }
}
