//! Files that make programs run code or that instruct agents: one list for commands and the file tools.
//!
//! Commands cannot change them, and those that they create are moved to the quarantine (`sandbox`). A change by a file
//! tool needs the owner's approval (`file_access`).

use std::{
    ffi::OsStr,
    path::{Component, Path, PathBuf},
};

/// Names protected at any depth, because other programs look for them in every project. `.git` is protected, too, but
/// for commands only in part: see [`GIT_CONTROL`].
///
/// A name is on the list if a program reads it automatically and then runs what it says (editors, shells, git) or obeys
/// it (agents). Files that are only read when a person names them (`CONVENTIONS.md`, `llms.txt`), and those that run
/// when a person builds or tests a project (`Makefile`, `package.json`, `.cargo/config.toml`), are not.
pub(crate) const PROTECTED_ANYWHERE: [&str; 71] = [
    // Git, shells, editors.
    ".devcontainer",
    ".envrc",
    ".exrc",
    ".gitattributes",
    ".gitmodules",
    ".husky",
    ".idea",
    ".nvim.lua",
    ".nvimrc",
    ".vscode",
    ".zed",
    // Directories and settings of agents.
    ".agent",
    ".agents",
    ".aider.conf.yml",
    ".aider.model.settings.yml",
    ".amazonq",
    ".augment",
    ".augment-guidelines",
    ".claude",
    ".cline",
    ".clinerules",
    ".codebuddy",
    ".codex",
    ".continue",
    ".continuerules",
    ".crush",
    ".crush.json",
    ".cursor",
    ".cursorrules",
    ".factory",
    ".gemini",
    ".goose",
    ".goosehints",
    ".grok",
    ".homard",
    ".iflow",
    ".junie",
    ".kilocode",
    ".kilocodemodes",
    ".kiro",
    ".mcp.json",
    ".openclaw",
    ".opencode",
    ".openhands",
    ".openhands_instructions",
    ".pi",
    ".qoder",
    ".qwen",
    ".roo",
    ".roomodes",
    ".roorules",
    ".rules",
    ".tabnine",
    ".trae",
    ".warp",
    ".windsurf",
    ".windsurfrules",
    "crush.json",
    "opencode.json",
    "opencode.jsonc",
    // Instructions for agents.
    "AGENT.md",
    "AGENTS.md",
    "AGENTS.override.md",
    "CLAUDE.local.md",
    "CLAUDE.md",
    "CRUSH.md",
    "GEMINI.md",
    "IFLOW.md",
    "QWEN.md",
    "WARP.md",
    "copilot-instructions.md",
];

/// Suffixes of names that are protected like [`PROTECTED_ANYWHERE`]: instructions for agents, in `.github` and
/// elsewhere.
const PROTECTED_SUFFIXES: [&str; 4] = [".agent.md", ".chatmode.md", ".instructions.md", ".prompt.md"];

/// Names protected at the top of a workspace: Homard loads them there, or git hooks installed by a hook manager run
/// what they name.
pub(crate) const PROTECTED_AT_TOP: [&str; 11] = [
    ".lefthook.yaml",
    ".lefthook.yml",
    ".overcommit.yml",
    ".pre-commit-config.yaml",
    "BOOT.md",
    "HEARTBEAT.md",
    "SOUL.md",
    "hooks",
    "lefthook.yaml",
    "lefthook.yml",
    "skills",
];

/// Names protected from commands below the top of a workspace, besides most of [`PROTECTED_ANYWHERE`]: the hook
/// `bootstrap-extra-files` loads them from there.
const PROTECTED_BELOW_TOP: [&str; 8] =
    ["BOOTSTRAP.md", "HEARTBEAT.md", "IDENTITY.md", "MEMORY.md", "SOUL.md", "TOOLS.md", "USER.md", "memory.md"];

/// Exceptions below the top: they only name files for git, which runs nothing because of them without a config that is
/// protected. Repositories that commands clone or check out contain them.
const HARMLESS_BELOW: [&str; 2] = [".gitattributes", ".gitmodules"];

/// Notes at the top of a workspace that an agent maintains itself with its file tools. Commands may not change them.
pub(crate) const NOTES: [&str; 6] = ["IDENTITY.md", "MEMORY.md", "TOOLS.md", "USER.md", "memory", "memory.md"];

/// The guide for the first conversation. An agent may remove it, but not create it: while it exists, the agent may
/// write its own `SOUL.md`.
pub(crate) const GUIDE: &str = "BOOTSTRAP.md";

/// Entries of a repository's `.git` because of which git runs programs. Hooks and config are read from where
/// `commondir` says. Submodules have git directories of their own.
pub(crate) const GIT_CONTROL: [&str; 4] = ["hooks", "config", "config.worktree", "commondir"];

/// A file of this name marks a directory as a repository, bare or not.
pub(crate) const HEAD: &str = "HEAD";

/// Other names that git reads in a directory with a [`HEAD`]: those that make it a repository, and those because of
/// which git runs programs.
const GIT_NAMES: [&str; 9] =
    ["objects", "refs", "commondir", "config", "config.worktree", "hooks", "info", "modules", "worktrees"];

/// Returns the names that a command may not change at the top of its workspace, besides `.git` and [`GUIDE`].
pub(crate) fn for_commands() -> impl Iterator<Item = &'static str> {
    PROTECTED_ANYWHERE.into_iter().chain(PROTECTED_AT_TOP).chain(NOTES)
}

/// True if a name below the top of a workspace is protected from commands.
pub(crate) fn is_protected_below(name: &OsStr) -> bool {
    let is_listed = |list: &[&str]| list.iter().any(|listed| name == *listed);
    (is_anywhere(name) && !is_listed(&HARMLESS_BELOW)) || is_listed(&PROTECTED_BELOW_TOP)
}

/// True if a name is protected at any depth.
fn is_anywhere(name: &OsStr) -> bool {
    let has_ending = |ending: &&str| name.as_encoded_bytes().ends_with(ending.as_bytes());
    PROTECTED_ANYWHERE.iter().any(|listed| name == *listed) || PROTECTED_SUFFIXES.iter().any(has_ending)
}

/// True if nothing is loaded from directories of this name, so that commands may create any files in them: packages are
/// full of files for editors and agents. `.github` is an exception, because some agents read it.
pub(crate) fn is_skipped(name: &OsStr) -> bool {
    (name.as_encoded_bytes().starts_with(b".") && name != ".github") || name == "node_modules"
}

/// How a file tool changes a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// Creates it or writes to it.
    Write,
    /// Removes it.
    Remove,
}

/// True if a file tool needs the owner's approval to change this path below a workspace. `is_new_agent` is true while
/// the workspace contains the [`GUIDE`]: until the agent removes it, it may write its own `SOUL.md`.
pub(crate) fn needs_approval(path: &Path, kind: ChangeKind, is_new_agent: bool) -> bool {
    let mut parts = path.components().map(Component::as_os_str);
    if parts.clone().any(|part| part == ".git" || is_anywhere(part)) {
        return true;
    }
    if path.file_name().is_some_and(|name| name == HEAD) {
        return true;
    }
    let Some(first) = parts.next() else { return false };
    if first == GUIDE {
        return kind == ChangeKind::Write;
    }
    if first == "SOUL.md" && is_new_agent {
        return false;
    }
    PROTECTED_AT_TOP.iter().any(|name| first == *name)
}

/// True if a path below a directory is part of a bare repository: one of git's names beside a [`HEAD`], at any depth.
/// The directory itself may be one. It need not be complete, because the change could complete it. Blocks.
pub(crate) fn is_in_bare_repository(top: &Path, below: &Path) -> bool {
    let parts: Vec<_> = below.components().map(Component::as_os_str).collect();
    (0..parts.len()).any(|depth| {
        let folder: PathBuf = std::iter::once(top.as_os_str()).chain(parts[..depth].iter().copied()).collect();
        GIT_NAMES.iter().any(|name| parts[depth] == *name) && folder.join(HEAD).symlink_metadata().is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_run_code_or_instruct_agents_need_approval() {
        let needs = |path: &str| needs_approval(Path::new(path), ChangeKind::Write, false);
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
            "lefthook.yml",
            "sub/.gemini/settings.json",
            "sub/QWEN.md",
            ".github/copilot-instructions.md",
            ".github/instructions/a.instructions.md",
        ] {
            assert!(needs(path), "{path}");
        }
        for path in [
            "MEMORY.md",
            "memory/2026-01-01.md",
            "USER.md",
            "src/hooks/use.ts",
            "docs/skills/a.md",
            "git/config",
            "CONVENTIONS.md",
            ".github/workflows/ci.yml",
            "sub/lefthook.yml",
        ] {
            assert!(!needs(path), "{path}");
        }
    }

    #[test]
    fn git_names_next_to_a_head_file_belong_to_a_repository() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("deep/bare/hooks")).unwrap();
        std::fs::write(folder.path().join("deep/bare/HEAD"), "ref: refs/heads/main").unwrap();
        let is_in = |path: &str| is_in_bare_repository(folder.path(), Path::new(path));
        for path in ["deep/bare/config", "deep/bare/hooks/post-index-change", "deep/bare/refs/a", "deep/bare/commondir"]
        {
            assert!(is_in(path), "{path}");
        }
        for path in ["deep/bare/notes.txt", "deep/config", "config", "hooks/a"] {
            assert!(!is_in(path), "{path}");
        }
        std::fs::write(folder.path().join(HEAD), "ref: refs/heads/main").unwrap();
        assert!(is_in("config"));
    }

    #[test]
    fn a_new_agent_writes_its_soul_and_removes_its_guide() {
        assert!(!needs_approval(Path::new("SOUL.md"), ChangeKind::Write, true));
        assert!(needs_approval(Path::new("AGENTS.md"), ChangeKind::Write, true));
        assert!(!needs_approval(Path::new(GUIDE), ChangeKind::Remove, true));
        assert!(needs_approval(Path::new("sub/AGENTS.md"), ChangeKind::Remove, false));
    }
}
