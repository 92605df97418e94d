//! A policy and a workspace, looked up on the disk: what is laid over the root directory, and in which order.

use std::path::{Path, PathBuf};

use super::{
    policy::{Mode, STEERING, STEERING_GIT, SandboxPolicy},
    real,
    stand_in::{LostLink, Wanted},
};

/// Where a command finds empty directories of its own.
pub(super) const PRIVATE: [&str; 3] = ["/tmp", "/var/tmp", "/run"];

/// What git reads where a directory is not shared with another: the directory itself.
const COMMON: &str = ".\n";

/// What lies at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layer {
    /// An empty directory that may be filled, and is gone afterwards.
    Private,
    /// What is there, to be read.
    Readable,
    /// What is there, to be changed.
    Writable,
    /// Nothing.
    Hidden,
}

/// What is laid over a root directory that can be read: outer paths first, and at one path the later on top.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layers {
    pub(crate) all: Vec<(PathBuf, Layer)>,
    pub(crate) has_network: bool,
    /// What is missing and must stay so.
    missing: Vec<Wanted>,
    /// What must not change, but is a link: nothing can be laid over that.
    links: Vec<PathBuf>,
}

impl Layers {
    /// Looks it up. Blocks.
    pub(crate) fn new(policy: &SandboxPolicy, workspace: &Path) -> std::io::Result<Self> {
        let workspace = workspace.canonicalize()?;
        let private = real(PRIVATE.map(PathBuf::from)).into_iter().map(|path| (path, Layer::Private));
        let readable = real(policy.extra_read.iter().cloned()).into_iter().map(|path| (path, Layer::Readable));
        let mut all: Vec<_> = private.chain(readable).collect();
        let may_write = policy.mode != Mode::ReadOnly;
        let own = if may_write { Layer::Writable } else { Layer::Readable };
        all.extend(real(policy.extra_write.iter().cloned()).into_iter().map(|path| (path, own)));
        all.push((workspace.clone(), own));
        all.extend(real(policy.secrets()).into_iter().map(|path| (path, Layer::Hidden)));
        // The workspace was chosen by the owner: a secret that contains it hides what is around it.
        all.retain(|(path, layer)| *layer != Layer::Hidden || *path != workspace);
        let mut layers = Self { all, has_network: policy.network, missing: Vec::new(), links: Vec::new() };
        if may_write {
            layers.keep_steering(&workspace);
            for secret in policy.secrets().into_iter().filter(|path| path.starts_with(&workspace)) {
                if secret.parent().is_some_and(Path::is_dir) && secret.symlink_metadata().is_err() {
                    layers.missing.push(Wanted::directory(secret));
                }
            }
        }
        layers.missing.sort();
        layers.missing.dedup();
        layers.all.extend(layers.missing.iter().map(|wanted| (wanted.path.clone(), Layer::Readable)));
        layers.all.sort_by_key(|(path, _)| path.components().count());
        Ok(layers)
    }

    fn keep_steering(&mut self, workspace: &Path) {
        for name in STEERING {
            self.keep(workspace.join(name), Wanted::directory);
        }
        let git = workspace.join(".git");
        // Without this it is no repository, and nothing of it may be made. A file that names one stays as it is.
        if !git.join("HEAD").exists() {
            return self.keep(git, Wanted::directory);
        }
        // A directory that something is mounted on cannot be moved away, one that only has mounts in it can.
        self.all.push((git.clone(), Layer::Writable));
        for name in STEERING_GIT {
            self.keep(git.join(name), Wanted::directory);
        }
        // Git reads hooks and config from where this file says.
        self.keep(git.join("commondir"), |path| Wanted::file(path, COMMON));
    }

    /// Lets nobody change what is there, nor make what is not.
    fn keep(&mut self, path: PathBuf, wanted: impl Fn(PathBuf) -> Wanted) {
        match path.symlink_metadata() {
            Ok(_) if wanted(path.clone()).is_left_over() => self.missing.push(wanted(path)),
            Ok(found) if found.is_symlink() => self.links.push(path),
            Ok(_) => self.all.push((path, Layer::Readable)),
            Err(_) => self.missing.push(wanted(path)),
        }
    }

    /// What stayed in a workspace when we were killed.
    pub(super) fn left_over(workspace: &Path) -> impl Iterator<Item = Wanted> {
        let names = STEERING.iter().copied().chain([".git"]);
        let folders = names.map(|name| Wanted::directory(workspace.join(name)));
        let file = Wanted::file(workspace.join(".git/commondir"), COMMON);
        folders.chain([file]).filter(Wanted::is_left_over)
    }

    /// What stands in for what is missing.
    pub(super) fn wanted(&self) -> &[Wanted] {
        &self.missing
    }

    /// The links that are put back when they were replaced.
    pub(super) fn links(&self) -> Vec<LostLink> {
        self.links.iter().filter_map(|path| LostLink::remember(path)).collect()
    }

    /// The paths of one kind.
    pub(super) fn of(&self, layer: Layer) -> impl Iterator<Item = &PathBuf> {
        self.all.iter().filter(move |(_, one)| *one == layer).map(|(path, _)| path)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_workspace_among_secrets_stays_visible_and_secrets_in_it_do_not() {
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
            masked: vec![workspace.join("keys")],
            ..SandboxPolicy::default()
        };
        let layers = Layers::new(&policy, &workspace).unwrap();
        let place = |path: &str| {
            let found = layers.all.iter().rev().find(|(one, _)| *one == home.join(path));
            found.map(|(_, layer)| *layer)
        };
        assert_eq!(place(".ssh"), Some(Layer::Hidden));
        assert_eq!(place(".openclaw"), Some(Layer::Hidden));
        assert_eq!(place(".openclaw/workspace"), Some(Layer::Writable));
        assert_eq!(place(".openclaw/workspace/keys"), Some(Layer::Hidden));
        assert_eq!(place(".openclaw/workspace/AGENTS.md"), Some(Layer::Readable));
        assert_eq!(place(".openclaw/workspace/.git"), Some(Layer::Writable));
        assert_eq!(place(".openclaw/workspace/.git/hooks"), Some(Layer::Readable));
        let depths: Vec<_> = layers.all.iter().map(|(path, _)| path.components().count()).collect();
        assert!(depths.is_sorted(), "{layers:?}");
    }
}
