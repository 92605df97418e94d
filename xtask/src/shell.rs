//! Runs other programs (cargo, npm) in a known directory.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

/// Returns the root of the workspace.
pub(crate) fn root() -> PathBuf {
    let manifest_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest_dir.parent().unwrap_or(manifest_dir).to_owned()
}

/// Returns cargo's target directory.
pub(crate) fn target() -> Result<PathBuf> {
    let metadata = output(&mut cargo(&["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata: serde_json::Value = serde_json::from_slice(&metadata).context("cargo metadata did not write JSON")?;
    let target = metadata["target_directory"].as_str().context("cargo metadata names no target directory")?;
    Ok(PathBuf::from(target))
}

/// Returns the files of the repository, relative to its root, tracked or not, except ignored ones. Git still lists
/// deleted files; they are omitted.
pub(crate) fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"]).current_dir(root);
    let listing = output(&mut git)?;
    let names = listing.split(|&byte| byte == 0).filter(|name| !name.is_empty());
    let paths = names.map(|name| PathBuf::from(String::from_utf8_lossy(name).into_owned()));
    Ok(paths.filter(|path| root.join(path).symlink_metadata().is_ok()).collect())
}

/// Returns a cargo command at the root of the workspace.
///
/// The variables that `cargo run` sets for this program are removed: build scripts (that of `ring`, for one) compare
/// them, so that with them a build through `cargo xtask` and one by hand would each rebuild what the other has built.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.args(args).current_dir(root());
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
            command.env_remove(name);
        }
    }
    command
}

/// Runs a command to its end; anything but success is an error that names it.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let name = describe(command);
    let status = command.status().with_context(|| format!("cannot start `{name}`"))?;
    if !status.success() {
        bail!("`{name}` failed ({status})");
    }
    Ok(())
}

/// Runs a command and returns its stdout.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>> {
    let name = describe(command);
    let output = command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot start `{name}`"))?;
    if !output.status.success() {
        bail!("`{name}` failed ({})", output.status);
    }
    Ok(output.stdout)
}

/// Formats a command as a person would type it.
pub(crate) fn describe(command: &Command) -> String {
    let parts = std::iter::once(command.get_program()).chain(command.get_args());
    parts.map(|part| part.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
