//! Files that make programs run code or that steer agents: one list for commands and for the file tools.
//!
//! Commands cannot change them, and what they create is moved to the quarantine (`sandbox`). A change by a file tool needs
//! the owner's approval (`file_access`).

use std::{
    ffi::OsStr,
    path::{Component, Path},
};

/// Protected at any depth: other programs look for these in every project. `.git` is protected, too, but not as a whole
/// for commands: see [`GIT_CONTROL`].
pub(crate) const ANYWHERE: [&str; 27] = [
    ".agents",
    ".aider.conf.yml",
    ".claude",
    ".clinerules",
    ".codex",
    ".continue",
    ".cursor",
    ".cursorrules",
    ".devcontainer",
    ".envrc",
    ".exrc",
    ".gitattributes",
    ".gitmodules",
    ".goosehints",
    ".homard",
    ".husky",
    ".idea",
    ".mcp.json",
    ".openclaw",
    ".roo",
    ".vscode",
    ".windsurfrules",
    ".zed",
    "AGENTS.md",
    "CLAUDE.md",
    "GEMINI.md",
    "opencode.json",
];

/// Protected at the top of a workspace, where Homard loads them.
pub(crate) const AT_TOP: [&str; 5] = ["BOOT.md", "HEARTBEAT.md", "SOUL.md", "hooks", "skills"];

/// Protected from commands below the top of a workspace, besides most of [`ANYWHERE`]: the hook `bootstrap-extra-files`
/// loads them from there.
const LOADED: [&str; 8] =
    ["BOOTSTRAP.md", "HEARTBEAT.md", "IDENTITY.md", "MEMORY.md", "SOUL.md", "TOOLS.md", "USER.md", "memory.md"];

/// These only name files for git, which runs nothing by them without a config that is protected. Repositories that commands
/// clone or check out have them.
const HARMLESS_BELOW: [&str; 2] = [".gitattributes", ".gitmodules"];

/// Notes at the top of a workspace that an agent keeps itself, with its file tools. Commands do not change them.
pub(crate) const NOTES: [&str; 6] = ["IDENTITY.md", "MEMORY.md", "TOOLS.md", "USER.md", "memory", "memory.md"];

/// The guide through the first conversation. An agent may remove it, but not create it: while it exists, the agent writes
/// its own `SOUL.md`.
pub(crate) const GUIDE: &str = "BOOTSTRAP.md";

/// What a repository's `.git` runs programs by. Hooks and config are read from where `commondir` says. Submodules have git
/// directories of their own.
pub(crate) const GIT_CONTROL: [&str; 4] = ["hooks", "config", "config.worktree", "commondir"];

/// A directory is a repository, bare or not, by a file of this name.
const HEAD: &str = "HEAD";

/// What a command may not change at the top of its workspace, but for `.git` and [`GUIDE`].
pub(crate) fn for_commands() -> impl Iterator<Item = &'static str> {
    ANYWHERE.into_iter().chain(AT_TOP).chain(NOTES)
}

/// Whether a name below the top of a workspace is protected from commands.
pub(crate) fn is_protected_below(name: &OsStr) -> bool {
    let is_listed = |list: &[&str]| list.iter().any(|listed| name == *listed);
    (is_listed(&ANYWHERE) && !is_listed(&HARMLESS_BELOW)) || is_listed(&LOADED)
}

/// Whether nothing is loaded from a directory of this name, so that commands may create what they like in it: packages are
/// full of files for editors and agents.
pub(crate) fn is_skipped(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".") || name == "node_modules"
}

/// How a file tool changes a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Write,
    Remove,
}

/// Whether a change of a path below a directory needs the owner's approval. `is_new_agent` says that the directory has
/// a [`GUIDE`].
pub(crate) fn needs_approval(path: &Path, kind: Kind, is_new_agent: bool) -> bool {
    let mut parts = path.components().map(Component::as_os_str);
    if parts.clone().any(|part| part == ".git" || ANYWHERE.iter().any(|name| part == *name)) {
        return true;
    }
    if path.file_name().is_some_and(|name| name == HEAD) {
        return true;
    }
    let Some(first) = parts.next() else { return false };
    if first == GUIDE {
        return kind == Kind::Write;
    }
    if first == "SOUL.md" && is_new_agent {
        return false;
    }
    AT_TOP.iter().any(|name| first == *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c2_what_runs_code_or_steers_agents_needs_approval() {
        let needs = |path: &str| needs_approval(Path::new(path), Kind::Write, false);
        for path in [
            ".git",
            ".git/config",
            "sub/deep/.git/hooks/pre-commit",
            "bare/HEAD",
            "sub/.gitattributes",
            "sub/.vscode/tasks.json",
            "projects/a/AGENTS.md",
            ".mcp.json",
            "hooks/evil/HOOK.md",
            "skills/evil/SKILL.md",
            "SOUL.md",
            "BOOT.md",
            "BOOTSTRAP.md",
        ] {
            assert!(needs(path), "{path}");
        }
        for path in
            ["MEMORY.md", "memory/2026-01-01.md", "USER.md", "src/hooks/use.ts", "docs/skills/a.md", "git/config"]
        {
            assert!(!needs(path), "{path}");
        }
    }

    #[test]
    fn a_new_agent_writes_its_soul_and_removes_its_guide() {
        assert!(!needs_approval(Path::new("SOUL.md"), Kind::Write, true));
        assert!(needs_approval(Path::new("AGENTS.md"), Kind::Write, true));
        assert!(!needs_approval(Path::new(GUIDE), Kind::Remove, true));
        assert!(needs_approval(Path::new("sub/AGENTS.md"), Kind::Remove, false));
    }
}
