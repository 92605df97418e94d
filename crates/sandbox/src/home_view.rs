//! The part of the home directory that tools can see: toolchains, package manager caches, and the git identity.
//!
//! Programs store credentials under names that no list knows completely. Therefore this is an allowlist, and the rest
//! of the home directory is hidden; the owner opens more with `tools.exec.sandbox.extraRead`. Everything in it is
//! read-only.

use std::{
    ffi::OsStr,
    fs,
    path::{Component, Path, PathBuf},
};

use crate::SandboxPolicy;

/// Paths below the home directory that tools may read. Where credentials are stored beside a cache, only the cache is
/// listed; where they are inside a listed directory, `path_rules::CREDENTIALS` hides them.
const VISIBLE: [&str; 163] = [
    // Git identity and settings of tools.
    ".gitconfig",
    ".config/git/attributes",
    ".config/git/config",
    ".config/git/ignore",
    ".gitignore_global",
    ".gitmessage",
    ".asdfrc",
    ".clang-format",
    ".editorconfig",
    ".node-version",
    ".nvmrc",
    ".python-version",
    ".ruby-version",
    ".rustfmt.toml",
    ".config/rustfmt",
    ".terminfo",
    ".tool-versions",
    // The user's programs.
    "bin",
    ".linuxbrew",
    ".local/bin",
    ".local/include",
    ".local/lib",
    ".local/opt",
    ".local/state/nix",
    ".nix-defexpr",
    ".nix-profile",
    ".guix-profile",
    // Multi-language version managers.
    ".asdf",
    ".local/share/mise",
    ".local/share/rtx",
    ".pixi/bin",
    ".pixi/envs",
    ".proto/bin",
    ".proto/shims",
    ".proto/tools",
    // C, C++ and build systems.
    ".cache/bazel",
    ".cache/bazelisk",
    ".cache/ccache",
    ".cache/pre-commit",
    ".cache/sccache",
    ".cache/zig",
    ".ccache",
    ".conan2/p",
    "emsdk",
    // Rust.
    ".cargo",
    ".rustup",
    // Go.
    ".cache/go-build",
    ".cache/golangci-lint",
    ".local/go",
    "go",
    "sdk",
    // JavaScript.
    ".bun",
    ".cache/Cypress",
    ".cache/corepack",
    ".cache/deno",
    ".cache/electron",
    ".cache/ms-playwright",
    ".cache/node",
    ".cache/node-gyp",
    ".cache/pnpm",
    ".cache/prisma",
    ".cache/puppeteer",
    ".cache/typescript",
    ".cache/yarn",
    ".deno",
    ".fnm",
    ".local/share/fnm",
    ".local/share/pnpm",
    ".n",
    ".node-gyp",
    ".nodenv",
    ".npm-global",
    ".npm-packages",
    ".npm/_cacache",
    ".npm/_npx",
    ".nvm",
    ".pnpm-store",
    ".volta",
    ".yarn",
    // Python.
    ".cache/huggingface/datasets",
    ".cache/huggingface/hub",
    ".cache/pip",
    ".cache/pipenv",
    ".cache/pypoetry",
    ".cache/torch",
    ".cache/uv",
    ".cache/virtualenv",
    ".conda/envs",
    ".conda/pkgs",
    ".local/pipx",
    ".local/share/hatch",
    ".local/share/mamba",
    ".local/share/pipx",
    ".local/share/pypoetry",
    ".local/share/rye",
    ".local/share/uv",
    ".local/share/virtualenv",
    ".local/share/virtualenvs",
    ".poetry",
    ".pyenv",
    ".rye",
    ".virtualenvs",
    "anaconda3",
    "mambaforge",
    "micromamba",
    "miniconda3",
    "miniforge3",
    // Java, Kotlin, Scala, Android.
    ".cache/coursier",
    ".gradle/caches",
    ".gradle/jdks",
    ".gradle/native",
    ".gradle/wrapper",
    ".ivy2/cache",
    ".ivy2/local",
    ".jdks",
    ".jenv",
    ".konan",
    ".m2/repository",
    ".m2/wrapper",
    ".sbt/boot",
    ".sbt/launchers",
    ".sdkman",
    "Android/Sdk",
    // .NET, PHP, Ruby, Perl, Lua.
    ".cache/composer",
    ".composer/cache",
    ".composer/vendor",
    ".config/composer/vendor",
    ".dotnet",
    ".gem/ruby",
    ".local/share/gem",
    ".luarocks/bin",
    ".luarocks/lib",
    ".luarocks/share",
    ".nuget/packages",
    ".rbenv",
    ".rvm",
    "perl5",
    // Haskell, OCaml, Lean, Elixir, Julia, R, Dart, Swift.
    ".cabal/bin",
    ".cabal/packages",
    ".cabal/store",
    ".elan",
    ".ghcup",
    ".hex/packages",
    ".julia/artifacts",
    ".julia/compiled",
    ".julia/packages",
    ".julia/registries",
    ".juliaup",
    ".mix/archives",
    ".mix/elixir",
    ".opam",
    ".pub-cache/bin",
    ".pub-cache/git",
    ".pub-cache/hosted",
    ".stack/pantry",
    ".stack/programs",
    ".stack/snapshots",
    ".swiftly",
    "R",
    // Fonts, for programs that render.
    ".cache/fontconfig",
    ".config/fontconfig",
    ".fonts",
    ".local/share/fonts",
];

/// Dot names that belong to a repository, if the home directory itself is the workspace.
const REPOSITORY: [&str; 5] = [".git", ".gitattributes", ".github", ".gitignore", ".gitmodules"];

/// Maximum size of a gitlink file.
const MAX_GITLINK_BYTES: u64 = 1 << 12;

/// What a policy shows and hides of the home directory, for runs with a given working directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HomeView {
    /// Real path of the home directory.
    pub(crate) home: PathBuf,
    /// Readable paths in it, not canonicalized: the last component, or one above it, may be a symlink.
    pub(crate) visible: Vec<PathBuf>,
    /// True if the working directory is the home directory or contains it. Names without a dot are then visible, too.
    pub(crate) is_workspace: bool,
}

impl HomeView {
    /// Builds the view for the real path of a directory. `None` if there is no home directory or the owner opened all
    /// of it. Blocks.
    pub(crate) fn of(policy: &SandboxPolicy, directory: &Path) -> Option<Self> {
        let home = policy.home.as_ref()?.canonicalize().ok()?;
        let is_home = |path: &PathBuf| path.canonicalize().is_ok_and(|path| path == home);
        let is_open = policy.extra_read.iter().chain(&policy.extra_write).any(is_home);
        if is_open || home.parent().is_none() {
            return None;
        }
        let visible = VISIBLE.map(|name| home.join(name)).into_iter().collect();
        Some(Self { is_workspace: home.starts_with(directory), home, visible })
    }

    /// True if a real path is hidden because it is in the home directory and not on the list. Only for a view whose
    /// home directory is the workspace.
    pub(crate) fn hides(&self, path: &Path) -> bool {
        let first = path.strip_prefix(&self.home).ok().and_then(|below| below.components().next());
        first.is_some_and(|first| is_private(first.as_os_str()))
    }

    /// Returns toolchain directories without a leading dot, such as `bin` and `go`. Shells put some of them into
    /// `PATH`; missing ones could be created by a command where the home directory is the workspace.
    pub(crate) fn programs(&self) -> impl Iterator<Item = PathBuf> + use<'_> {
        let is_open = |path: &&PathBuf| {
            let first = path.strip_prefix(&self.home).ok().and_then(|below| below.components().next());
            first.is_some_and(|first| !is_private(first.as_os_str()))
        };
        self.visible.iter().filter(is_open).cloned()
    }

    /// Returns what is hidden by its name in a home directory that is the workspace, as of now. Blocks.
    pub(crate) fn private_names(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.home).into_iter().flatten().flatten();
        entries.filter(|entry| is_private(&entry.file_name())).map(|entry| entry.path()).collect()
    }

    /// Returns the real path of the repository that a workspace below the home directory is part of: an enclosing
    /// directory, or the git directory of a worktree. Git and build tools look for it there. Blocks.
    pub(crate) fn repository(&self, workspace: &Path) -> Option<PathBuf> {
        if let Some(common) = worktree_of(workspace) {
            return Some(common);
        }
        let mut around =
            workspace.ancestors().take_while(|above| above.starts_with(&self.home) && **above != self.home);
        let found = around.find(|above| above.join(".git").symlink_metadata().is_ok());
        found.filter(|found| *found != workspace).map(Path::to_owned)
    }
}

/// True if programs store private files under this name in the home directory.
pub(crate) fn is_private(name: &OsStr) -> bool {
    let is_dot = name.as_encoded_bytes().starts_with(b".");
    (is_dot && !REPOSITORY.iter().any(|known| name == *known)) || name == "snap"
}

/// Returns the git directory that a worktree shares with others. That directory must list the worktree: a link alone
/// grants nothing.
fn worktree_of(workspace: &Path) -> Option<PathBuf> {
    let link = workspace.join(".git");
    let git_dir = line_of(&link)?.strip_prefix("gitdir: ").map(|path| workspace.join(path))?.canonicalize().ok()?;
    if Path::new(&line_of(&git_dir.join("gitdir"))?) != link {
        return None;
    }
    let common = git_dir.join(line_of(&git_dir.join("commondir"))?).canonicalize().ok()?;
    let is_repository = git_dir.starts_with(common.join("worktrees")) && common.join("HEAD").is_file();
    is_repository.then_some(common)
}

/// Returns the text of a short file, without trailing white space.
fn line_of(path: &Path) -> Option<String> {
    let is_short = path.symlink_metadata().is_ok_and(|found| found.is_file() && found.len() <= MAX_GITLINK_BYTES);
    let text = if is_short { fs::read_to_string(path).ok()? } else { return None };
    Some(text.trim_end().to_owned())
}

/// True if a path contains `..`.
pub(crate) fn contains_parent(path: &Path) -> bool {
    path.components().any(|part| part == Component::ParentDir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_credential_is_visible_by_default() {
        use crate::path_rules::CREDENTIALS;
        for name in VISIBLE {
            assert!(!CREDENTIALS.iter().any(|hidden| Path::new(name).starts_with(hidden)), "{name}");
        }
        let mut sorted = VISIBLE.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), VISIBLE.len());
    }

    #[test]
    fn dot_names_are_private_except_those_of_a_repository() {
        let private: Vec<_> = [".env", ".ssh", "snap", ".git", ".gitignore", "docs", "go"]
            .into_iter()
            .filter(|name| is_private(OsStr::new(name)))
            .collect();
        assert_eq!(private, [".env", ".ssh", "snap"]);
    }
}
