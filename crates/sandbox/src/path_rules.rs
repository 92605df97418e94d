//! Paths that no tool may open or change: one list for the sandbox and the file tools.
//!
//! The lists are constants; [`PathRules`] resolves them for the working directory of a run. Rules apply to the real
//! path of a file, as the kernel reports it for an open descriptor, so symlinks and alternative spellings do not evade
//! them.

use std::path::{Path, PathBuf};

use crate::{
    SandboxPolicy,
    home_view::HomeView,
    protected::{ChangeKind, GUIDE, is_in_bare_repository, needs_approval},
    repository::named_by_config,
};

/// Credentials, browser profiles and shell histories, relative to the home directory. Hidden from tools, even if the
/// owner opened the home directory or `home_view` shows the directories around them.
pub(crate) const CREDENTIALS: [&str; 39] = [
    ".ssh",
    ".aws",
    ".azure",
    ".gnupg",
    ".kube",
    ".docker",
    ".netrc",
    ".pgpass",
    ".git-credentials",
    ".npmrc",
    ".pypirc",
    ".terraform.d",
    ".vault-token",
    ".password-store",
    ".homard",
    ".openclaw",
    ".clawdbot",
    ".moltbot",
    ".codex",
    ".claude",
    ".claude.json",
    ".bash_history",
    ".zsh_history",
    ".python_history",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".config/git/credentials",
    ".pub-cache/credentials.json",
    ".config/environment.d",
    ".config/gh",
    ".config/gcloud",
    ".config/op",
    ".config/homard",
    ".config/google-chrome",
    ".config/chromium",
    ".config/BraveSoftware",
    ".mozilla",
    ".local/share/keyrings",
    ".thunderbird",
];

/// System files with secrets. Usually readable by root only.
pub(crate) const SYSTEM_SECRETS: [&str; 4] = ["/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-"];

/// Files executed when a shell, a session or an editor starts, relative to the home directory. Tools may read them, but
/// not change them.
pub(crate) const START_FILES: [&str; 28] = [
    ".bashrc",
    ".bash_aliases",
    ".bash_login",
    ".bash_logout",
    ".bash_profile",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".zlogout",
    ".kshrc",
    ".cshrc",
    ".tcshrc",
    ".login",
    ".inputrc",
    ".xinitrc",
    ".xprofile",
    ".xsession",
    ".xsessionrc",
    ".pam_environment",
    ".gitconfig",
    ".vimrc",
    ".config/fish",
    ".config/git",
    ".config/autostart",
    ".config/systemd",
    ".local/bin",
];

/// Rules for the paths below one directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PathRules {
    /// Paths below the directory that are never opened.
    hidden: Vec<PathBuf>,
    /// Paths below a hidden one that the config opens nevertheless.
    visible: Vec<PathBuf>,
    /// Paths below the directory that are never changed.
    read_only: Vec<PathBuf>,
    /// Visible part of the home directory, if that is the directory or below it.
    home: Option<HomeView>,
    /// Directories whose files are protected, if changes to those need approval: the directory, and workspaces in it.
    guarded: Vec<PathBuf>,
}

impl PathRules {
    /// Resolves the rules of a policy for the real path of a directory. Blocks.
    pub fn of(policy: &SandboxPolicy, directory: &Path, requires_approval: bool) -> Self {
        // Only paths below the directory can be reached. Hidden paths that contain it are ignored, because the owner
        // chose the directory; `SandboxPolicy::refuses` handles the exception, the state directory.
        let below = |paths: Vec<PathBuf>| -> Vec<PathBuf> {
            let real = paths.iter().flat_map(|path| resolve(path));
            real.filter(|path| path.starts_with(directory) && path != directory).collect()
        };
        let visible_paths: Vec<_> =
            policy.extra_read.iter().chain(&policy.skills).chain(&policy.extra_write).cloned().collect();
        let home = HomeView::of(policy, directory).filter(|view| view.is_workspace);
        let visible = below(home.iter().flat_map(|view| view.visible.clone()).collect());
        let guarded = std::iter::once(directory.to_owned()).chain(below(policy.workspaces.clone()));
        Self {
            hidden: below(policy.secrets()),
            visible: below(visible_paths).into_iter().chain(visible.clone()).collect(),
            read_only: below(policy.start_files(directory)).into_iter().chain(visible).collect(),
            home,
            guarded: if requires_approval { guarded.collect() } else { Vec::new() },
        }
    }

    /// True if a change of a real path needs the owner's approval. Blocks.
    pub fn needs_approval(&self, path: &Path, kind: ChangeKind) -> bool {
        self.guarded.iter().any(|top| {
            let needs = |below| {
                needs_approval(below, kind, top.join(GUIDE).is_file())
                    || is_in_bare_repository(top, below)
                    || is_named_by_config(top, path)
            };
            path.strip_prefix(top).is_ok_and(needs)
        })
    }

    /// True if there are no rules, in which case real paths need not be looked up.
    pub fn is_empty(&self) -> bool {
        self.hidden.is_empty() && self.read_only.is_empty() && self.guarded.is_empty() && self.home.is_none()
    }

    /// True if tools may not open a real path.
    pub fn hides(&self, path: &Path) -> bool {
        let depth = |all: &[PathBuf]| {
            let above = all.iter().filter(|above| path.starts_with(above));
            above.map(|above| above.components().count()).max()
        };
        let visible_depth = depth(&self.visible);
        depth(&self.hidden).is_some_and(|hidden| visible_depth.is_none_or(|visible_depth| visible_depth <= hidden))
            || (visible_depth.is_none() && self.home.as_ref().is_some_and(|view| view.hides(path)))
    }

    /// True if tools may not change a real path that they may open.
    pub fn is_read_only(&self, path: &Path) -> bool {
        self.read_only.iter().any(|above| path.starts_with(above))
    }
}

/// True if the config of an enclosing repository, at or below `top`, names a real path as an include or as its hooks.
fn is_named_by_config(top: &Path, path: &Path) -> bool {
    let around = path.ancestors().skip(1).take_while(|above| above.starts_with(top));
    let mut configured = around.flat_map(|above| named_by_config(&above.join(".git"), above));
    configured.any(|configured| resolve(&configured).iter().any(|configured| path.starts_with(configured)))
}

/// Returns the real paths of a path that may be missing or a symlink: its target and its location.
pub(crate) fn resolve(path: &Path) -> Vec<PathBuf> {
    let found = path.ancestors().find_map(|above| {
        let rest = path.strip_prefix(above).ok()?;
        Some(above.canonicalize().ok()?.join(rest))
    });
    let itself = path.parent().and_then(|parent| Some(parent.canonicalize().ok()?.join(path.file_name()?)));
    let mut all: Vec<_> = found.into_iter().chain(itself).collect();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn a_hidden_symlink_hides_its_target_too() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().canonicalize().unwrap();
        fs::create_dir_all(home.join("keys/deep")).unwrap();
        symlink("keys", home.join(".ssh")).unwrap();
        let policy = SandboxPolicy {
            home: Some(home.clone()),
            extra_read: vec![home.join("keys/deep")],
            ..SandboxPolicy::default()
        };
        let rules = PathRules::of(&policy, &home, false);
        let hidden = |path: &str| rules.hides(&home.join(path));
        assert!(hidden(".ssh") && hidden("keys/id") && hidden(".aws/credentials"));
        assert!(!hidden("keys/deep/known_hosts") && !hidden("keys2") && !hidden(""));
        assert!(
            rules.is_read_only(&home.join(".config/fish/config.fish")) && !rules.is_read_only(&home.join(".config"))
        );
        assert!(PathRules::of(&policy, &home.join("keys/deep"), false).is_empty());
    }
}
