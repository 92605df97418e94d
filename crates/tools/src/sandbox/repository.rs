//! What a repository that a command made may not bring: whatever git would run for the user.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::aside::Spot;

/// What git reads hooks and settings from, besides `hooks` and `config`.
const ELSEWHERE: [&str; 3] = ["commondir", "config.worktree", "modules"];

/// Settings that name no program, by section: those that `git init` writes and people often add.
const PLAIN: [(&str, &[&str]); 6] = [
    ("core", &["repositoryformatversion", "filemode", "bare", "logallrefupdates", "ignorecase", "symlinks"]),
    ("extensions", &["objectformat", "refstorage"]),
    ("init", &["defaultbranch"]),
    ("user", &["name", "email"]),
    ("remote", &["url", "fetch"]),
    ("branch", &["remote", "merge"]),
];

/// Longer settings are not looked through.
const LONGEST: usize = 1 << 16;

/// Names of files, and of a repository, that are nothing where they are empty directories.
const NEVER_EMPTY: [&str; 9] =
    [".git", ".envrc", ".gitmodules", ".mcp.json", "AGENTS.md", "CLAUDE.md", "HEARTBEAT.md", "MEMORY.md", "SOUL.md"];

/// Removes empty directories that something was once mounted on. They are in the way of whoever makes such a file, or
/// a repository.
pub(super) fn sweep(workspace: &Path) {
    for name in NEVER_EMPTY {
        // It removes nothing else: no file, no link, no directory that holds something. Mostly there is none.
        fs::remove_dir(workspace.join(name)).ok();
    }
}

/// What has to go of the `.git` that a command made in a workspace; all of it if it is no repository.
pub(super) fn unwanted(workspace: &Path) -> io::Result<Vec<PathBuf>> {
    let git = Path::new(".git");
    let at = |name: &Path| -> io::Result<Option<(Spot, fs::Metadata)>> {
        let Some(spot) = Spot::find(workspace, name)? else { return Ok(None) };
        let found = spot.look()?;
        Ok(found.map(|found| (spot, found)))
    };
    let Some((_, found)) = at(git)? else { return Ok(Vec::new()) };
    if !found.is_dir() || at(&git.join("HEAD"))?.is_none() {
        return Ok(vec![git.to_owned()]);
    }
    let mut all: Vec<_> = ELSEWHERE.iter().map(|name| git.join(name)).collect();
    let hooks = git.join("hooks");
    match at(&hooks)? {
        Some((spot, found)) if found.is_dir() => {
            for entry in fs::read_dir(spot.path())? {
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
    if let Some((spot, found)) = at(&config)? {
        // By another name it could be changed when it is protected by this one.
        let is_alone = found.is_file() && found.nlink() == 1;
        let text = if is_alone { spot.read(LONGEST)?.and_then(|bytes| String::from_utf8(bytes).ok()) } else { None };
        if !text.is_some_and(|text| is_plain(&text)) {
            all.push(config);
        }
    }
    Ok(all)
}

/// Whether each line is known to do no harm. One that is not understood is not.
fn is_plain(config: &str) -> bool {
    let mut keys: &[&str] = &[];
    config.lines().map(str::trim).all(|line| {
        if line.is_empty() {
            return true;
        }
        // The value would go on in the next line.
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
        let usual = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n";
        let more = "[user]\n\tname = A B\n[remote \"origin\"]\n\turl = https://example.com/a.git\n[branch \"a/b\"]\n\tmerge = x\n";
        assert!(is_plain(usual) && is_plain(&format!("{usual}{more}")));
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
        ];
        for line in bad {
            assert!(!is_plain(&format!("{usual}{line}\n")), "{line}");
        }
    }

    #[test]
    fn samples_stay_and_hooks_do_not() {
        let folder = tempfile::tempdir().unwrap();
        let git = folder.path().join(".git");
        assert_eq!(unwanted(folder.path()).unwrap(), Vec::<PathBuf>::new());
        fs::create_dir_all(git.join("hooks")).unwrap();
        assert_eq!(unwanted(folder.path()).unwrap(), [Path::new(".git")]);
        for (name, text) in [("HEAD", "ref: refs/heads/main"), ("hooks/a.sample", ""), ("hooks/pre-commit", "")] {
            fs::write(git.join(name), text).unwrap();
        }
        fs::write(git.join("config"), "[core]\n\thooksPath = evil\n").unwrap();
        let found = unwanted(folder.path()).unwrap();
        assert_eq!(found[ELSEWHERE.len()..], [Path::new(".git/hooks/pre-commit"), Path::new(".git/config")]);
    }
}
