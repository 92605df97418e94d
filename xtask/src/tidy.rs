//! `tidy`: checks project-specific rules.
//!
//! [`dependencies`] holds the table of allowed dependencies between crates, [`source`] the rules for files, [`size`] the list
//! of the longest files and functions, which is informative and never fails. [`language`] counts words and names that
//! hide what happens, and fails when a count grows. [`commits`] checks the messages of new commits, [`mutants`] that the
//! seeded bugs apply, [`compatibility`] that the page on compatibility names existing tests, [`supply`] the crates of others.

mod commits;
mod compatibility;
mod dependencies;
mod language;
mod mutants;
mod size;
mod source;
mod supply;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use crate::shell;

/// Number of longest files and functions that are listed.
const LISTED: usize = 10;

/// A text file of the repository.
#[derive(Debug)]
struct SourceFile {
    /// Path relative to the root.
    path: PathBuf,
    text: String,
}

impl SourceFile {
    fn is_rust(&self) -> bool {
        self.path.extension().is_some_and(|ending| ending == "rs")
    }
}

/// Checks the rules and lists the longest files and functions.
pub(crate) fn run() -> Result<()> {
    let root = shell::root();
    let metadata = shell::output(&mut shell::cargo(&["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata = serde_json::from_slice(&metadata).context("cargo metadata did not write JSON")?;
    let files = read_files(&root)?;
    let lock = fs::read_to_string(root.join("Cargo.lock")).context("cannot read Cargo.lock")?;

    let mut problems = dependencies::check(&metadata);
    problems.extend(supply::check(&all_packages()?, &lock));
    problems.extend(files.iter().flat_map(source::check));
    problems.extend(language::check(&files));
    problems.extend(commits::check(&root)?);
    problems.extend(mutants::check(&root)?);
    problems.extend(compatibility::check(&root)?);
    list("longest files", size::files(&files));
    list("longest functions", size::functions(&files));
    if problems.is_empty() {
        return Ok(());
    }
    problems.iter().for_each(|problem| println!("{problem}"));
    bail!("{} found", if problems.len() == 1 { "1 problem".to_owned() } else { format!("{} problems", problems.len()) })
}

/// Returns the metadata of all crates that are used on this platform.
fn all_packages() -> Result<serde_json::Value> {
    let rustc = shell::output(std::process::Command::new("rustc").arg("-vV"))?;
    let rustc = String::from_utf8_lossy(&rustc);
    let host = rustc.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc -vV names no host")?;
    let args = ["metadata", "--locked", "--filter-platform", host, "--format-version", "1"];
    serde_json::from_slice(&shell::output(&mut shell::cargo(&args))?).context("cargo metadata did not write JSON")
}

fn list(title: &str, mut sized: Vec<(usize, String)>) {
    sized.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    println!("{title}:");
    sized.iter().take(LISTED).for_each(|(lines, name)| println!("  {lines:>5}  {name}"));
}

/// Returns every text file of the repository.
fn read_files(root: &Path) -> Result<Vec<SourceFile>> {
    // Test inputs of tools are not our source, whatever their names are, and neither are built files.
    let is_ours = |path: &PathBuf| {
        !path.starts_with("page/dist")
            && !path.components().any(|part| part.as_os_str() == "cases" || part.as_os_str() == "web")
    };
    Ok(shell::files(root)?.into_iter().filter(is_ours).filter_map(|path| read_file(root, path)).collect())
}

/// Reads a regular text file. Symlinks are not followed: a test case may link to an endless device. A file that is not
/// text is skipped without an error.
fn read_file(root: &Path, path: PathBuf) -> Option<SourceFile> {
    let full_path = root.join(&path);
    let is_file = fs::symlink_metadata(&full_path).is_ok_and(|metadata| metadata.is_file());
    let text = is_file.then(|| fs::read_to_string(full_path).ok()).flatten()?;
    Some(SourceFile { path, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_not_followed() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("file"), "words").unwrap();
        std::os::unix::fs::symlink("file", root.path().join("link")).unwrap();
        let read = |name: &str| read_file(root.path(), name.into()).map(|file| file.text);
        assert_eq!((read("file"), read("link"), read("absent")), (Some("words".to_owned()), None, None));
    }
}
