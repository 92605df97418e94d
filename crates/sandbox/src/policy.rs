//! The sandbox policy as configured, before any path is resolved on the disk.

use std::path::{Component, Path, PathBuf};

use crate::{
    limits::ResourceLimits,
    path_rules::{CREDENTIALS, START_FILES, SYSTEM_SECRETS, resolve},
    protected::{GUIDE, for_commands},
};

/// Access level of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AccessMode {
    /// Read only.
    ReadOnly,
    /// Write access to the workspace.
    #[default]
    Workspace,
    /// Write access to the workspace, after approval of the command. The approval itself is requested elsewhere.
    Guarded,
    /// Everything that the user may do, without a sandbox.
    Full,
}

/// What a command may access in the sandbox.
#[derive(Debug, Clone, Default)]
pub struct SandboxPolicy {
    /// Access level.
    pub mode: AccessMode,
    /// True if the command may use the network.
    pub network: bool,
    /// Homard's state directory, which is always hidden.
    pub state_dir: Option<PathBuf>,
    /// Workspaces of agents. Below the state directory, commands may only run in these.
    pub workspaces: Vec<PathBuf>,
    /// The home directory. Toolchains, caches and the git identity in it are readable; the rest is hidden.
    pub home: Option<PathBuf>,
    /// Directories of the user's `PATH`.
    pub search_path: Vec<PathBuf>,
    /// Hidden paths that are readable nevertheless. If the home directory itself is one, known credentials in it stay
    /// hidden.
    pub extra_read: Vec<PathBuf>,
    /// Directories of skills, readable in every run.
    pub skills: Vec<PathBuf>,
    /// Writable paths in addition to the workspace.
    pub extra_write: Vec<PathBuf>,
    /// Hidden paths in addition to the default ones.
    pub masked: Vec<PathBuf>,
    /// Resource limits of a command.
    pub limits: ResourceLimits,
}

/// Returns true if the first component of a path in the workspace is protected: agents or git act on such files.
pub(crate) fn steers(path: &Path) -> bool {
    let first = path.components().next().map(Component::as_os_str);
    first.is_some_and(|first| first == ".git" || first == GUIDE || for_commands().any(|name| first == name))
}

impl SandboxPolicy {
    /// Returns all hidden paths.
    pub(crate) fn secrets(&self) -> Vec<PathBuf> {
        let opened: Vec<_> = self.extra_read.iter().chain(&self.extra_write).collect();
        let in_home = self.home.iter().flat_map(|home| CREDENTIALS.map(|name| home.join(name)));
        // Paths that the owner has opened are visible, but Homard's state directory cannot be opened this way.
        let in_home = in_home.filter(|path| !opened.contains(&path));
        let elsewhere = SYSTEM_SECRETS.map(PathBuf::from);
        in_home.chain(elsewhere).chain(self.state_dir.clone()).chain(self.masked.iter().cloned()).collect()
    }

    /// Returns files and directories that runs in a directory, given by its real path, may read but not change.
    ///
    /// If the home directory is a part of it, this includes the directories of `PATH` in the home directory. In a
    /// separate project, such a directory is where its builds are written. Blocks.
    pub(crate) fn start_files(&self, directory: &Path) -> Vec<PathBuf> {
        let in_home = |home: &PathBuf| {
            let is_worked_in = home.canonicalize().is_ok_and(|home| home.starts_with(directory));
            let programs = self.search_path.iter().filter(|path| path.starts_with(home) && *path != home);
            let programs: Vec<_> = programs.filter(|_| is_worked_in).cloned().collect();
            START_FILES.map(|name| home.join(name)).into_iter().chain(programs).collect::<Vec<_>>()
        };
        self.home.iter().flat_map(in_home).collect()
    }

    /// Returns true if a run must not use a directory, given by its real path: it is in the state directory, but in no
    /// agent's workspace there. Blocks.
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

/// A working directory in the state directory, where tools are disabled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} is in Homard's state directory, where tools are disabled: use another directory, or an agent's workspace",
    path.display()
)]
pub struct InStateDirectory {
    /// The directory.
    pub path: PathBuf,
}
