//! Finds settings with which git runs programs: config, hooks and attributes of a repository.
//!
//! A rule may allow `git status` permanently, but what that runs depends on the repository. A rule only applies if the
//! settings name no program; a single approval is bound to a digest of the settings.

use std::{
    fs,
    io::Read,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use crate::repository::{is_plain, nested};

/// Maximum size of a settings file. Larger ones are not read: they count as naming a program, and the digest includes
/// the size.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Maximum number of git directories examined.
const MAX_REPOSITORIES: usize = 1_000;

/// Settings of the repository that a command works in and of the repositories nested in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitSettings {
    /// Digest of all settings.
    pub digest: String,
    /// The first file that may name a program.
    pub program: Option<PathBuf>,
}

impl GitSettings {
    /// Returns the settings that apply in a directory; `None` if it is in no repository. Blocks.
    pub fn of(directory: &Path) -> Option<Self> {
        let directory = directory.canonicalize().ok()?;
        let (top, git) = directory.ancestors().find_map(|above| Some((above, git_directory(above)?)))?;
        let mut search = SettingsSearch { digest: Sha256::new(), program: None, pending: vec![git], seen: Vec::new() };
        match nested(top) {
            // `status` and `diff` also inspect nested repositories, which have settings of their own.
            Some(below) => search
                .pending
                .extend(below.repositories.iter().filter_map(|git| git_directory(top.join(git).parent()?))),
            None => search.mark_unsafe(top),
        }
        search.file(&top.join(".gitattributes"));
        Some(search.finish())
    }
}

/// Returns the git directory of a working tree or of a bare repository, as git finds it.
fn git_directory(folder: &Path) -> Option<PathBuf> {
    let git = folder.join(".git");
    match fs::metadata(&git) {
        Ok(found) if found.is_dir() => Some(git),
        Ok(_) => {
            let link = fs::read_to_string(&git).ok();
            let target = link.as_deref().and_then(|link| link.strip_prefix("gitdir: ")).map(str::trim_end);
            // A `.git` file without `gitdir: ` is returned itself; it then counts as a setting that may name a program.
            Some(target.map_or(git, |target| folder.join(target)))
        }
        Err(_) => {
            let is_bare = ["HEAD", "objects", "refs"].iter().all(|name| folder.join(name).exists());
            is_bare.then(|| folder.to_owned())
        }
    }
}

struct SettingsSearch {
    digest: Sha256,
    program: Option<PathBuf>,
    /// Git directories still to be examined.
    pending: Vec<PathBuf>,
    seen: Vec<PathBuf>,
}

impl SettingsSearch {
    fn finish(mut self) -> GitSettings {
        self.pending.sort();
        while let Some(git) = self.pending.pop() {
            let Ok(git) = git.canonicalize() else {
                self.mark_unsafe(&git);
                continue;
            };
            if self.seen.contains(&git) {
                continue;
            }
            if self.seen.len() >= MAX_REPOSITORIES {
                self.mark_unsafe(&git);
                break;
            }
            self.seen.push(git.clone());
            self.repository(&git);
        }
        let digest = hex::encode(self.digest.finalize());
        GitSettings { digest, program: self.program }
    }

    fn repository(&mut self, git: &Path) {
        let config = git.join("config");
        let text = self.file(&config);
        if !git.is_dir() || text.is_some_and(|text| !is_plain(&text)) {
            self.mark_unsafe(&config);
        }
        let worktree_config = git.join("config.worktree");
        if self.file(&worktree_config).is_some() {
            self.mark_unsafe(&worktree_config);
        }
        self.file(&git.join("info/attributes"));
        self.hooks(&git.join("hooks"));
        if let Some(common) = self.file(&git.join("commondir")) {
            self.pending.push(git.join(common.trim_end()));
        }
        self.modules(&git.join("modules"));
    }

    /// Records hooks that git would run.
    fn hooks(&mut self, hooks: &Path) {
        for name in names(hooks) {
            let hook = hooks.join(&name);
            let is_sample = name.ends_with(".sample");
            let runs = fs::metadata(&hook).is_ok_and(|found| found.permissions().mode() & 0o111 != 0);
            if !is_sample && runs {
                self.file(&hook);
                self.mark_unsafe(&hook);
            }
        }
    }

    /// Finds the git directories of submodules, whose names may have several components.
    fn modules(&mut self, modules: &Path) {
        let mut folders = vec![modules.to_owned()];
        while let Some(folder) = folders.pop() {
            for name in names(&folder) {
                let below = folder.join(name);
                if below.join("HEAD").exists() {
                    self.pending.push(below);
                } else if fs::symlink_metadata(&below).is_ok_and(|found| found.is_dir()) {
                    folders.push(below);
                }
            }
        }
    }

    /// Adds a file to the digest and returns its text, if it exists. An unreadable file counts as naming a program.
    fn file(&mut self, path: &Path) -> Option<String> {
        let found = fs::metadata(path).ok()?;
        let mut bytes = Vec::new();
        let is_read = found.is_file()
            && found.len() <= MAX_FILE_BYTES
            && fs::File::open(path).and_then(|file| file.take(MAX_FILE_BYTES).read_to_end(&mut bytes)).is_ok();
        for part in [path.as_os_str().as_encoded_bytes(), &found.len().to_le_bytes(), &bytes] {
            self.digest.update((part.len() as u64).to_le_bytes());
            self.digest.update(part);
        }
        let text = String::from_utf8(bytes).ok().filter(|_| is_read);
        if text.is_none() {
            self.mark_unsafe(path);
        }
        text
    }

    fn mark_unsafe(&mut self, path: &Path) {
        self.program.get_or_insert_with(|| path.to_owned());
    }
}

/// Returns the names in a directory, sorted; empty if it does not exist.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = "[core]\n\trepositoryformatversion = 0\n";

    fn put(top: &Path, name: &str, text: &str) -> PathBuf {
        let path = top.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn repository(top: &Path, git: &str) {
        put(top, &format!("{git}/HEAD"), "ref: refs/heads/main\n");
        put(top, &format!("{git}/config"), PLAIN);
        put(top, &format!("{git}/hooks/pre-commit.sample"), "#!/bin/sh\n");
        fs::create_dir_all(top.join(git).join("objects")).unwrap();
        fs::create_dir_all(top.join(git).join("refs")).unwrap();
    }

    fn program(top: &Path) -> Option<String> {
        let program = GitSettings::of(top).unwrap().program?;
        Some(program.strip_prefix(top.canonicalize().unwrap()).unwrap().display().to_string())
    }

    #[test]
    fn settings_that_may_name_a_program_are_found_wherever_git_reads_them() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(GitSettings::of(&folder.path().join("none")), None);
        let cases: [(&str, &str); 8] = [
            (".git/config", "[core]\n\tfsmonitor = sh evil.sh\n"),
            (".git/config", "[diff \"x\"]\n\tcommand = sh evil.sh\n"),
            (".git/config", "[filter \"x\"]\n\tclean = sh evil.sh\n"),
            (".git/config", "[core]\n\teditor = sh evil.sh\n"),
            (".git/config", "[include]\n\tpath = ../more\n"),
            (".git/config.worktree", "[core]\n\tfsmonitor = sh evil.sh\n"),
            (".git/modules/a/b/config", "[core]\n\tfsmonitor = sh evil.sh\n"),
            ("sub/.git/config", "[core]\n\tfsmonitor = sh evil.sh\n"),
        ];
        for (at, (name, text)) in cases.into_iter().enumerate() {
            let top = folder.path().join(at.to_string());
            for git in [".git", ".git/modules/a/b", "sub/.git"] {
                repository(&top, git);
            }
            assert_eq!(program(&top), None, "{name}");
            let before = GitSettings::of(&top.join("sub")).unwrap().digest;
            let plain = GitSettings::of(&top).unwrap().digest;
            put(&top, name, text);
            assert_eq!(program(&top).as_deref(), Some(name));
            assert_ne!(GitSettings::of(&top).unwrap().digest, plain, "{name}");
            assert_eq!(GitSettings::of(&top.join("sub")).unwrap().digest == before, !name.starts_with("sub"));
        }
    }

    #[test]
    fn hooks_links_and_bare_repositories_count() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path();
        repository(top, ".git");
        let hook = put(top, ".git/hooks/post-index-change", "#!/bin/sh\n");
        assert_eq!(program(top), None, "git passes over a hook that cannot be run");
        fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(program(top).as_deref(), Some(".git/hooks/post-index-change"));
        fs::remove_file(hook).unwrap();
        let before = GitSettings::of(top).unwrap().digest;
        put(top, ".gitattributes", "* diff=x\n");
        assert_ne!(GitSettings::of(top).unwrap().digest, before);

        repository(top, "work/elsewhere");
        put(top, "work/.git", "gitdir: elsewhere\n");
        assert_eq!(program(top), None);
        put(top, "work/elsewhere/config", "[alias]\n\tst = !evil\n");
        assert_eq!(program(top).as_deref(), Some("work/elsewhere/config"));
        assert!(GitSettings::of(&top.join("work/elsewhere/refs")).unwrap().program.is_some());
        put(top, "work/elsewhere/config", PLAIN);
        put(top, "work/.git", "gitdir: nowhere\n");
        assert_eq!(program(top).as_deref(), Some("work/nowhere"));
    }
}
