//! What a repository created by a command must not contain: anything that git would execute for the user.

use std::{
    fs, io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

use crate::{
    protected::{HEAD, is_protected_below, is_skipped},
    quarantine::{self, EntryHandle},
};

/// Entries of a git directory by which git finds hooks and settings elsewhere than in its `hooks` and `config`. They
/// are removed from every repository that a command created.
const ELSEWHERE: [&str; 3] = ["commondir", "config.worktree", MODULES];

/// Directory in a git directory that contains the git directories of submodules.
pub(crate) const MODULES: &str = "modules";

/// Settings that name no program, by section: those that `git init` writes and other common ones.
const PLAIN: [(&str, &[&str]); 13] = [
    (
        "core",
        &[
            "repositoryformatversion",
            "filemode",
            "bare",
            "logallrefupdates",
            "ignorecase",
            "symlinks",
            "autocrlf",
            "eol",
            "safecrlf",
            "quotepath",
            "precomposeunicode",
            "protecthfs",
            "protectntfs",
            "longpaths",
            "untrackedcache",
            "abbrev",
        ],
    ),
    ("extensions", &["objectformat", "refstorage"]),
    ("init", &["defaultbranch"]),
    ("user", &["name", "email", "signingkey"]),
    ("remote", &["url", "fetch", "pushurl", "tagopt", "prune"]),
    ("branch", &["remote", "merge", "rebase", "pushremote", "vscode-merge-base"]),
    ("submodule", &["url", "active", "branch", "ignore"]),
    ("pull", &["rebase", "ff"]),
    ("push", &["default", "autosetupremote"]),
    ("fetch", &["prune"]),
    ("merge", &["conflictstyle"]),
    ("diff", &["algorithm", "renames"]),
    ("gc", &["auto"]),
];

/// Maximum number of directory entries that are searched for repositories.
const MOST: usize = 1_000_000;

/// Directories without regular files, if the workspace is the root directory.
const NOT_FILES: [&str; 3] = ["/dev", "/proc", "/sys"];

/// Maximum size of a config that is parsed, in bytes.
const LONGEST: usize = 1 << 16;

/// Maximum number of included config files that are followed.
const MOST_NAMED: usize = 32;

/// Names of files, and of a repository, that have no meaning as empty directories.
const NEVER_EMPTY: [&str; 9] =
    [".git", ".envrc", ".gitmodules", ".mcp.json", "AGENTS.md", "CLAUDE.md", "HEARTBEAT.md", "MEMORY.md", "SOUL.md"];

/// Removes empty directories that were mount points. They would prevent the creation of such a file or repository.
pub(crate) fn sweep(workspace: &Path) {
    for name in NEVER_EMPTY {
        // This removes neither files nor symlinks nor directories with content. Usually there is none.
        fs::remove_dir(workspace.join(name)).ok();
    }
}

/// Paths in subdirectories of a workspace that must be protected, because they can run code or instruct agents.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct NestedProtection {
    /// Git directories, gitlinks and bare repositories, and the git directories of submodules, which are in the
    /// `modules` of another one. Without the `.git` at the top level.
    pub(crate) repositories: Vec<PathBuf>,
    /// Files and directories with a protected name.
    pub(crate) protected: Vec<PathBuf>,
    /// Sockets, including those at the top level.
    pub(crate) sockets: Vec<PathBuf>,
}

/// Searches a workspace without following symlinks. `None` if it has too many entries. Blocks.
pub(crate) fn nested(workspace: &Path) -> Option<NestedProtection> {
    search(workspace, MOST)
}

/// Like [`nested`] without a limit, for a workspace that could be searched before a command.
pub(crate) fn nested_in_all(workspace: &Path) -> NestedProtection {
    search(workspace, usize::MAX).unwrap_or_default()
}

fn search(workspace: &Path, max: usize) -> Option<NestedProtection> {
    let (mut found, mut protected, mut sockets) = (Vec::new(), Vec::new(), Vec::new());
    // Remaining directories, and whether protected names are searched for in them.
    let (mut pending, mut count) = (vec![(PathBuf::new(), true)], 0_usize);
    while let Some((folder, is_loaded)) = pending.pop() {
        let is_top = folder.as_os_str().is_empty();
        // A directory that no longer exists contains nothing.
        let Ok(entries) = quarantine::list(&workspace.join(&folder)) else { continue };
        let (mut below, mut names) = (Vec::new(), Vec::new());
        for entry in entries.flatten() {
            count += 1;
            if count > max {
                return None;
            }
            let (name, path) = (entry.file_name(), folder.join(entry.file_name()));
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if entry.file_type().is_ok_and(|kind| kind.is_socket()) {
                sockets.push(path.clone());
            }
            if name != ".git" {
                let is_protected = is_loaded && !is_top && is_protected_below(&name);
                if is_protected {
                    protected.push(path.clone());
                }
                if is_directory && !NOT_FILES.iter().any(|other| workspace.join(&path) == Path::new(other)) {
                    below.push((path, is_loaded && !is_protected && !is_skipped(&name)));
                }
            } else {
                if is_directory {
                    below.push((path.join(MODULES), false));
                    protected.extend(worktree_configs(workspace, &path));
                }
                if !is_top {
                    found.push(path);
                }
            }
            names.push(name);
        }
        let has = |wanted: &str| names.iter().any(|name| name == wanted);
        // The workspace itself is excluded, because its owner chose it. With a `commondir`, the missing parts are
        // elsewhere.
        let is_complete = has("objects") && has("refs");
        let is_shared = || has("commondir") && !is_of_worktree(workspace, &folder).unwrap_or(false);
        let is_bare = has(HEAD) && !is_top && (is_complete || is_shared());
        if is_bare {
            protected.extend(worktree_configs(workspace, &folder));
            found.push(folder);
        }
        // Also below a bare repository, because it may only look like one and contain anything.
        pending.extend(below);
    }
    found.sort();
    protected.sort();
    Some(NestedProtection { repositories: found, protected, sockets })
}

/// Returns the configs of the worktrees of a git directory. Git reads them if `extensions.worktreeConfig` is set.
fn worktree_configs(workspace: &Path, git: &Path) -> Vec<PathBuf> {
    let worktrees = git.join("worktrees");
    let entries = quarantine::list(&workspace.join(&worktrees)).into_iter().flatten().flatten();
    let configs = entries.map(|entry| worktrees.join(entry.file_name()).join("config.worktree"));
    configs.filter(|config| workspace.join(config).symlink_metadata().is_ok()).collect()
}

/// Returns true if `git worktree add` created a gitlink for the repository at the top level, whose hooks and config it
/// uses.
pub(crate) fn is_worktree(workspace: &Path, link: &Path) -> io::Result<bool> {
    let Some(text) = text_of(workspace, link)? else { return Ok(false) };
    let worktrees = workspace.join(".git/worktrees");
    let link_target =
        text.strip_prefix("gitdir: ").map(str::trim_end).and_then(|path| Path::new(path).strip_prefix(&worktrees).ok());
    let Some(name) = link_target.filter(|name| name.components().count() == 1 && name.file_name().is_some()) else {
        return Ok(false);
    };
    let common = text_of(workspace, &Path::new(".git/worktrees").join(name).join("commondir"))?;
    Ok(common.is_some_and(|common| common.trim_end() == "../.."))
}

/// Returns true if a directory is the one that `git worktree add` creates in the git directory of a repository, which
/// is checked separately.
fn is_of_worktree(workspace: &Path, folder: &Path) -> io::Result<bool> {
    let worktrees = folder.parent().filter(|parent| parent.file_name().is_some_and(|name| name == "worktrees"));
    let Some(git) = worktrees.and_then(Path::parent) else { return Ok(false) };
    let common = text_of(workspace, &folder.join("commondir"))?;
    let is_there = |name: &str| workspace.join(git).join(name).symlink_metadata().is_ok();
    let leads_up = common.is_some_and(|common| common.trim_end() == "../..");
    Ok(leads_up && [HEAD, "objects", "refs"].into_iter().all(is_there))
}

/// Returns files and directories that the config of a git directory includes in the settings: included files, and the
/// hooks directory. They are referenced by name, so write access to them decides what git executes. Blocks.
pub(crate) fn named_by_config(git: &Path, worktree: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    let mut pending = vec![git.join("config"), git.join("config.worktree")];
    while let Some(config) = pending.pop() {
        let Ok(text) = quarantine::read_file(&config, LONGEST) else { continue };
        let mut section = String::new();
        for line in text.lines().map(str::trim) {
            let header = line.strip_prefix('[').and_then(|line| line.split_once(']'));
            let rest = header.map_or(line, |(name, rest)| {
                section = name.split([' ', '\t', '.']).next().unwrap_or_default().to_ascii_lowercase();
                rest.trim()
            });
            let Some((key, value)) = rest.split_once('=') else { continue };
            let value = value.trim().trim_matches('"');
            match (section.as_str(), key.trim().to_ascii_lowercase().as_str()) {
                ("include" | "includeif", "path") => {
                    let path = config.parent().unwrap_or(git).join(value);
                    if all.len() < MOST_NAMED && !all.contains(&path) {
                        pending.push(path.clone());
                        all.push(path);
                    }
                }
                ("core", "hookspath") => all.push(worktree.join(value)),
                _ => {}
            }
        }
    }
    all
}

/// Returns the text of a short file with only one hard link, if it exists.
pub(crate) fn text_of(workspace: &Path, name: &Path) -> io::Result<Option<String>> {
    let Some(handle) = EntryHandle::find(workspace, name)? else { return Ok(None) };
    let is_alone = handle.metadata()?.is_some_and(|found| found.is_file() && found.nlink() == 1);
    let bytes = if is_alone { handle.read(LONGEST)? } else { None };
    Ok(bytes.and_then(|bytes| String::from_utf8(bytes).ok()))
}

/// Returns the paths that must be removed from a git directory that a command created, so that git runs no program: the
/// names of [`ELSEWHERE`], which need not exist, hooks other than samples, and a config that is not [plain](is_plain).
/// The whole directory if it is no repository.
pub(crate) fn unwanted(workspace: &Path, git: &Path) -> io::Result<Vec<PathBuf>> {
    let at = |name: &Path| -> io::Result<Option<(EntryHandle, fs::Metadata)>> {
        let Some(handle) = EntryHandle::find(workspace, name)? else { return Ok(None) };
        let found = handle.metadata()?;
        Ok(found.map(|found| (handle, found)))
    };
    let Some((_, found)) = at(git)? else { return Ok(Vec::new()) };
    if !found.is_dir() || at(&git.join(HEAD))?.is_none() {
        return Ok(vec![git.to_owned()]);
    }
    let mut all: Vec<_> = ELSEWHERE.iter().map(|name| git.join(name)).collect();
    let hooks = git.join("hooks");
    match at(&hooks)? {
        Some((handle, found)) if found.is_dir() => {
            for entry in fs::read_dir(handle.path())? {
                let name = entry?.file_name();
                if !name.as_encoded_bytes().ends_with(b".sample") {
                    all.push(hooks.join(name));
                }
            }
        }
        Some(_) => all.push(hooks),
        None => {}
    }
    let config = git.join("config");
    if let Some((handle, found)) = at(&config)? {
        // Through another hard link, the file could be changed although this name is protected.
        let is_alone = found.is_file() && found.nlink() == 1;
        let text = if is_alone { handle.read(LONGEST)?.and_then(|bytes| String::from_utf8(bytes).ok()) } else { None };
        if !text.is_some_and(|text| is_plain(&text)) {
            all.push(config);
        }
    }
    Ok(all)
}

/// Returns true if a git config contains only settings of [`PLAIN`], which name no program. A line that cannot be
/// parsed counts as another setting.
pub(crate) fn is_plain(config: &str) -> bool {
    let mut keys: &[&str] = &[];
    config.lines().map(str::trim).all(|line| {
        if line.is_empty() {
            return true;
        }
        // The value would continue in the next line.
        if line.ends_with('\\') {
            return false;
        }
        if let Some(section) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            let (name, below) = section.split_once(' ').unwrap_or((section, "\"\""));
            let quoted = below.strip_prefix('"').and_then(|below| below.strip_suffix('"'));
            let found = PLAIN.iter().find(|(plain, _)| name.eq_ignore_ascii_case(plain));
            let is_name = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c));
            keys = found.map_or(&[], |(_, keys)| keys);
            return found.is_some() && quoted.is_some_and(is_name);
        }
        let key = line.split_once('=').map_or(line, |(key, _)| key).trim();
        keys.iter().any(|plain| key.eq_ignore_ascii_case(plain))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_may_name_a_program_are_not_plain() {
        let default_config = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n";
        let more = "[user]\n\tname = A B\n[remote \"origin\"]\n\turl = https://example.com/a.git\n[branch \"a/b\"]\n\tmerge = x\n";
        assert!(is_plain(default_config) && is_plain(&format!("{default_config}{more}")));
        let bad = [
            "fsmonitor = ./evil",
            "hooksPath = evil",
            "[core] fsmonitor = ./evil",
            "[core]fsmonitor=[]",
            "[remote \"a\"] url = x\n\tvcs = evil",
            "filemode = \\\n x",
            "[filter \"a\"]\n\tclean = evil",
            "[include]\n\tpath = evil",
            "[alias]\n\tst = !evil",
            "[remote \"a\"]\n\tuploadpack = evil",
            "[submodule \"a\"]\n\tupdate = !evil",
            "[diff \"a\"]\n\tcommand = evil",
            "[merge \"a\"]\n\tdriver = evil",
        ];
        for line in bad {
            assert!(!is_plain(&format!("{default_config}{line}\n")), "{line}");
        }
    }

    #[test]
    fn many_files_hide_no_repository() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("sub/.git")).unwrap();
        for name in ["a", "b", "c", "sub/.git/HEAD"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(search(folder.path(), 3), None);
        assert_eq!(nested_in_all(folder.path()).repositories, [Path::new("sub/.git")]);
    }

    #[test]
    fn sample_hooks_stay_and_other_hooks_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let git = folder.path().join(".git");
        assert_eq!(unwanted(folder.path(), Path::new(".git")).unwrap(), Vec::<PathBuf>::new());
        fs::create_dir_all(git.join("hooks")).unwrap();
        // Without `HEAD` it is not a repository, so all of it is removed.
        assert_eq!(unwanted(folder.path(), Path::new(".git")).unwrap(), [Path::new(".git")]);
        for (name, text) in [("HEAD", "ref: refs/heads/main"), ("hooks/a.sample", ""), ("hooks/pre-commit", "")] {
            fs::write(git.join(name), text).unwrap();
        }
        fs::write(git.join("config"), "[core]\n\thooksPath = evil\n").unwrap();
        let found = unwanted(folder.path(), Path::new(".git")).unwrap();
        // The list starts with the names of `ELSEWHERE`, which are removed from every repository.
        assert_eq!(found[ELSEWHERE.len()..], [Path::new(".git/hooks/pre-commit"), Path::new(".git/config")]);
    }
}
