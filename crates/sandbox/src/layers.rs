//! Resolves a policy and a workspace to paths on the disk: the layers over the root directory, in order.

use std::{
    fs,
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
};

use crate::{
    home_view::{HomeView, contains_parent},
    path_rules::resolve,
    policy::{AccessMode, InStateDirectory, SandboxPolicy},
    protected::{GIT_CONTROL, GUIDE, for_commands},
    record::Names,
    relative_sockets,
    repository::{self, NestedProtection},
};

/// Directories that are private and empty for each command.
pub(crate) const PRIVATE: [&str; 3] = ["/tmp", "/var/tmp", "/run"];

/// Kind of access to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layer {
    /// An empty writable directory that is discarded afterwards.
    Private,
    /// The existing content, read-only.
    Readable,
    /// The existing content, writable.
    Writable,
    /// Hidden.
    Hidden,
}

/// Layers over a readable root directory: outer paths first; of two layers at the same path the later one applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layers {
    pub(crate) all: Vec<(PathBuf, Layer)>,
    pub(crate) has_network: bool,
    /// Protected names in the workspace that are missing or a symlink, so that no mount can protect them.
    pub(crate) names: Names,
    /// Protected files below the top level of the workspace: hooks and config of git directories, and protected names.
    /// `None` if the workspace is too large to be searched.
    pub(crate) nested: Option<NestedProtection>,
    /// The home directory and the names in it that are hidden because of their prefix, if it is a writable part of the
    /// workspace. Both are relative to the workspace.
    pub(crate) private: Option<(PathBuf, Vec<PathBuf>)>,
    /// Symlinks in hidden directories through which visible paths are reached, and their targets.
    pub(crate) links: Vec<(PathBuf, PathBuf)>,
    /// Unix sockets of the user's programs at visible paths. A read-only mount does not prevent a connection.
    pub(crate) sockets: Vec<PathBuf>,
}

impl Layers {
    /// Resolves the layers. Names in `known` are taken as recorded there, whatever exists now. Blocks.
    pub(crate) fn new(policy: &SandboxPolicy, workspace_path: &Path, known: &Names) -> std::io::Result<Self> {
        let workspace = workspace_path.canonicalize()?;
        if policy.refuses(&workspace) {
            return Err(std::io::Error::other(InStateDirectory { path: workspace }));
        }
        let private = real(PRIVATE.map(PathBuf::from)).into_iter().map(|path| (path, Layer::Private));
        let view = HomeView::of(policy, &workspace);
        let home_paths = view.iter().flat_map(|view| home_layers(view, &workspace));
        // Skills in the workspace are protected together with it.
        let skills = real(policy.skills.iter().cloned()).into_iter().filter(|path| !path.starts_with(&workspace));
        let readable = real(policy.extra_read.iter().cloned()).into_iter().chain(skills);
        let readable = readable.map(|path| (path, Layer::Readable));
        let mut all: Vec<_> = private.chain(home_paths).chain(readable).collect();
        let may_write = policy.mode != AccessMode::ReadOnly;
        let workspace_layer = if may_write { Layer::Writable } else { Layer::Readable };
        all.extend(real(policy.extra_write.iter().cloned()).into_iter().map(|path| (path, workspace_layer)));
        all.push((workspace.clone(), workspace_layer));
        all.extend(real(policy.secrets()).into_iter().map(|path| (path, Layer::Hidden)));
        // The owner chose the workspace: a secret path that contains it hides only its surroundings.
        all.retain(|(path, layer)| *layer != Layer::Hidden || *path != workspace);
        let mut layers = Self {
            all,
            has_network: policy.network,
            names: Names::new(),
            nested: None,
            private: None,
            links: Vec::new(),
            sockets: Vec::new(),
        };
        if may_write {
            layers.private = view.as_ref().and_then(|view| private_names(view, &workspace));
            layers.keep_steering(&workspace, known);
            for below in real(policy.workspaces.iter().cloned()) {
                let below = below.strip_prefix(&workspace).ok().filter(|below| !below.as_os_str().is_empty());
                below.into_iter().for_each(|below| layers.keep_all(&workspace, below, known));
            }
            layers.nested = repository::nested(&workspace);
            let nested = layers.nested.clone().unwrap_or_default();
            for git in &nested.repositories {
                layers.keep_repository(&workspace, git, known);
            }
            for name in &nested.protected {
                layers.keep(&workspace, name, known);
            }
            let programs = view.iter().filter(|view| view.is_workspace).flat_map(HomeView::programs);
            let unchanged = policy.start_files(&workspace).into_iter().chain(programs);
            for file in unchanged.flat_map(|file| resolve(&file)) {
                let name = file.strip_prefix(&workspace).ok().filter(|name| !name.as_os_str().is_empty());
                name.into_iter().for_each(|name| layers.keep(&workspace, name, known));
            }
            for secret in policy.secrets() {
                let Ok(name) = secret.strip_prefix(&workspace) else { continue };
                let is_missing = known.contains_key(name) || secret.symlink_metadata().is_err();
                if is_missing && !layers.hides(&workspace, &secret) {
                    layers.names.insert(name.to_owned(), None);
                }
            }
        }
        layers.all.sort_by_key(|(path, _)| path.components().count());
        layers.prune();
        let opened = policy.extra_read.iter().chain(&policy.extra_write).chain(&policy.skills);
        let opened = opened.map(PathBuf::as_path).chain([workspace_path]);
        let links = view.iter().flat_map(|view| links(view, policy, opened.clone()));
        layers.links = links.filter(|(link, _)| layers.at(link) == Some(Layer::Hidden)).collect();
        let is_seen = |path: &PathBuf| !matches!(layers.at(path), Some(Layer::Private | Layer::Hidden));
        let in_workspace = layers.nested.as_ref().map_or(&[][..], |nested| &nested.sockets);
        let in_workspace: Vec<_> = in_workspace.iter().map(|name| workspace.join(name)).collect();
        layers.sockets = listening(&in_workspace).filter(is_seen).collect();
        Ok(layers)
    }

    /// Removes hidden paths below hidden paths, which need no mount of their own.
    fn prune(&mut self) {
        let mut pruned = Self { all: Vec::new(), ..self.clone() };
        for (path, layer) in std::mem::take(&mut self.all) {
            if layer != Layer::Hidden || pruned.at(&path) != Some(Layer::Hidden) {
                pruned.all.push((path, layer));
            }
        }
        self.all = pruned.all;
    }

    /// Protects the names that no command may change at the top of a workspace: the sandbox's own one if `below` is
    /// empty, otherwise an agent's workspace located there.
    fn keep_all(&mut self, workspace: &Path, below: &Path, known: &Names) {
        for name in for_commands() {
            self.keep(workspace, &below.join(name), known);
        }
    }

    fn keep_steering(&mut self, workspace: &Path, known: &Names) {
        self.keep_all(workspace, Path::new(""), known);
        if known.contains_key(Path::new(GUIDE)) || workspace.join(GUIDE).symlink_metadata().is_err() {
            self.keep(workspace, Path::new(GUIDE), known);
        }
        let git = Path::new(".git");
        // Without a `HEAD` it is not a repository and is kept as it is. One that a command creates is checked
        // afterwards.
        if known.contains_key(git) || !workspace.join(git).join("HEAD").exists() {
            return self.keep(workspace, git, known);
        }
        self.keep_repository(workspace, git, known);
    }

    /// Protects the files by which git runs programs; the rest of the git directory stays writable.
    fn keep_repository(&mut self, workspace: &Path, git: &Path, known: &Names) {
        let path = workspace.join(git);
        if self.hides(workspace, &path) {
            return;
        }
        if !path.symlink_metadata().is_ok_and(|found| found.is_dir()) {
            return self.keep(workspace, git, known);
        }
        // A mount point cannot be renamed, a directory that only contains mount points can.
        self.all.push((path, Layer::Writable));
        for name in GIT_CONTROL {
            self.keep(workspace, &git.join(name), known);
        }
        let worktree = path_of_worktree(workspace, git);
        for configured in
            repository::named_by_config(&workspace.join(git), &worktree).iter().flat_map(|path| resolve(path))
        {
            let name = configured.strip_prefix(workspace).ok().filter(|name| !name.as_os_str().is_empty());
            name.into_iter().for_each(|name| self.keep(workspace, name, known));
        }
        // Existing submodules are writable like other repositories. Only the owner can add the first one.
        let modules = git.join(repository::MODULES);
        let has_modules = workspace.join(&modules).symlink_metadata().is_ok_and(|found| found.is_dir());
        if known.contains_key(&modules) || !has_modules {
            self.keep(workspace, &modules, known);
        }
    }

    /// Makes a path read-only if it exists, and records it if it is missing or a symlink.
    fn keep(&mut self, workspace: &Path, name: &Path, known: &Names) {
        let path = workspace.join(name);
        if let Some(recorded) = known.get(name) {
            self.names.insert(name.to_owned(), recorded.clone());
        } else if path.symlink_metadata().is_err() {
            self.names.insert(name.to_owned(), None);
        } else if let Ok(target) = path.read_link() {
            self.names.insert(name.to_owned(), Some(target));
            // The target would be loaded in place of the symlink.
            let real = path.canonicalize().ok().filter(|real| real.starts_with(workspace) && real != workspace);
            if let Some(real) = real.filter(|real| !self.hides(workspace, real)) {
                self.all.push((real, Layer::Readable));
            }
        } else if !self.hides(workspace, &path) {
            // A hidden path must not become visible again.
            self.all.push((path, Layer::Readable));
        }
    }

    /// Returns true if a path in the workspace is hidden.
    fn hides(&self, workspace: &Path, path: &Path) -> bool {
        self.of(Layer::Hidden).any(|hidden| hidden.starts_with(workspace) && path.starts_with(hidden))
    }

    /// Returns the layer that applies to a path.
    fn at(&self, path: &Path) -> Option<Layer> {
        self.all.iter().rev().find(|(above, _)| path.starts_with(above)).map(|(_, layer)| *layer)
    }

    /// Returns the paths of one layer.
    pub(crate) fn of(&self, layer: Layer) -> impl Iterator<Item = &PathBuf> {
        self.all.iter().filter(move |(_, path_layer)| *path_layer == layer).map(|(path, _)| path)
    }
}

/// Returns the worktree of a git directory: the parent of a `.git`, or the bare repository itself.
fn path_of_worktree(workspace: &Path, git: &Path) -> PathBuf {
    let is_bare = git.file_name().is_none_or(|name| name != ".git");
    let folder = if is_bare { git } else { git.parent().unwrap_or(git) };
    workspace.join(folder)
}

/// Returns the layers over the home directory. Symlinks in it are handled by [`links`].
fn home_layers(view: &HomeView, workspace: &Path) -> Vec<(PathBuf, Layer)> {
    let mut hidden = if view.is_workspace { view.private_names() } else { vec![view.home.clone()] };
    // The target of a symlink is hidden or visible by its own name.
    let is_link = |path: &PathBuf| path.symlink_metadata().is_ok_and(|found| found.is_symlink());
    hidden.retain(|path| !is_link(path) && !view.visible.contains(path));
    let around = if view.is_workspace { None } else { view.repository(workspace) };
    let visible = real(view.visible.iter().cloned()).into_iter().chain(around);
    let hidden = hidden.into_iter().map(|path| (path, Layer::Hidden));
    hidden.chain(visible.map(|path| (path, Layer::Readable))).collect()
}

/// Returns the home directory and the names hidden in it, relative to a workspace that contains it.
fn private_names(view: &HomeView, workspace: &Path) -> Option<(PathBuf, Vec<PathBuf>)> {
    let below = |path: &Path| path.strip_prefix(workspace).map(Path::to_owned);
    let home = below(&view.home).ok()?;
    Some((home, view.private_names().iter().filter_map(|path| below(path).ok()).collect()))
}

/// Returns symlinks through which visible paths are reached, with their targets. In a hidden home directory these
/// symlinks would be missing.
fn links<'a>(
    view: &HomeView,
    policy: &SandboxPolicy,
    opened: impl Iterator<Item = &'a Path>,
) -> Vec<(PathBuf, PathBuf)> {
    let in_home = |path: &Path| {
        let below = policy.home.as_ref().and_then(|home| path.strip_prefix(home).ok());
        below.map_or_else(|| path.to_owned(), |below| view.home.join(below))
    };
    let candidates = opened.map(in_home).chain(view.visible.iter().cloned()).filter(|path| !contains_parent(path));
    let mut all: Vec<_> = candidates.filter_map(|path| Some((path.canonicalize().ok()?, path))).collect();
    all.retain(|(target, path)| target != path && path.starts_with(&view.home));
    let mut all: Vec<_> = all.into_iter().map(|(target, path)| (path, target)).collect();
    // Paths below a symlink need no symlink of their own, and cannot have one.
    all.sort();
    all.dedup_by(|(path, _), (before, _)| path.starts_with(before));
    all
}

/// Returns the canonical paths of those that exist.
fn real(paths: impl IntoIterator<Item = PathBuf>) -> Vec<PathBuf> {
    paths.into_iter().filter_map(|path| path.canonicalize().ok()).collect()
}

/// Returns the existing Unix sockets with a path that processes of this machine have bound.
fn listening(in_workspace: &[PathBuf]) -> impl Iterator<Item = PathBuf> + use<> {
    let table = fs::read("/proc/net/unix").unwrap_or_default();
    let table = String::from_utf8_lossy(&table).into_owned();
    // Seven columns of numbers, then the path, which may contain spaces.
    let paths = table.lines().filter_map(|line| line.find(" /").map(|at| PathBuf::from(&line[at + 1..])));
    let is_socket = |path: &PathBuf| path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket());
    let relative = relative_sockets::find(&table, in_workspace);
    let mut paths: Vec<_> = real(paths.filter(is_socket).chain(relative));
    paths.sort();
    paths.dedup();
    paths.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_in_a_secret_path_is_visible_and_its_secrets_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().canonicalize().unwrap();
        for path in [".openclaw/workspace/.git", ".openclaw/workspace/keys", ".ssh"] {
            fs::create_dir_all(home.join(path)).unwrap();
        }
        let workspace = home.join(".openclaw/workspace");
        fs::write(workspace.join(".git/HEAD"), "").unwrap();
        fs::write(workspace.join("AGENTS.md"), "").unwrap();
        let policy = SandboxPolicy {
            home: Some(home.clone()),
            state_dir: Some(home.join(".openclaw")),
            workspaces: vec![workspace.clone()],
            masked: vec![workspace.join("keys")],
            ..SandboxPolicy::default()
        };
        let layers = Layers::new(&policy, &workspace, &Names::new()).unwrap();
        let layer_of = |path: &str| {
            let found = layers.all.iter().rev().find(|(layer_path, _)| *layer_path == home.join(path));
            found.map(|(_, layer)| *layer)
        };
        assert_eq!(layer_of(""), Some(Layer::Hidden));
        // Hidden together with the home directory.
        assert_eq!((layer_of(".ssh"), layer_of(".openclaw")), (None, None));
        assert_eq!(layer_of(".openclaw/workspace"), Some(Layer::Writable));
        assert_eq!(layer_of(".openclaw/workspace/keys"), Some(Layer::Hidden));
        assert_eq!(layer_of(".openclaw/workspace/AGENTS.md"), Some(Layer::Readable));
        assert_eq!(layer_of(".openclaw/workspace/.git"), Some(Layer::Writable));
        assert_eq!(layer_of(".openclaw/workspace/.git/hooks"), None);
        assert_eq!(layers.names.get(Path::new(".git/hooks")), Some(&None));
        let depths: Vec<_> = layers.all.iter().map(|(path, _)| path.components().count()).collect();
        assert!(depths.is_sorted(), "{layers:?}");
    }
    #[test]
    fn hidden_paths_stay_hidden_if_the_home_directory_is_the_workspace() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().canonicalize().unwrap();
        fs::create_dir_all(home.join(".openclaw")).unwrap();
        let policy = SandboxPolicy {
            home: Some(home.clone()),
            state_dir: Some(home.join(".openclaw")),
            masked: vec![home.join(".openclaw/openclaw.json"), home.join("key")],
            ..SandboxPolicy::default()
        };
        let layers = Layers::new(&policy, &home, &Names::new()).unwrap();
        let found = layers.all.iter().filter(|(path, _)| *path == home.join(".openclaw"));
        assert!(found.clone().count() > 0 && found.clone().all(|(_, layer)| *layer == Layer::Hidden), "{layers:?}");
        assert_eq!(layers.names.get(Path::new(".openclaw/openclaw.json")), None);
        assert_eq!(layers.names.get(Path::new("key")), Some(&None));
    }
}
