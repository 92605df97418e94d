//! `grep` and `find` compared with ripgrep and fd, on a tree of many small files. The example `bench_tools` of the
//! tools crate runs both, interleaved, and checks that they find the same.
//!
//! Ripgrep and fd are started as processes each time, which is a few milliseconds of their time.

use std::{fmt::Write as _, fs, path::Path, process::Command};

use anyhow::{Context, Result, bail};

use super::{exec, report::BenchReport};
use crate::setup;

/// Number of files in the tree, including ignored ones.
const FILES: usize = 50_000;
/// Number of files per folder, and of folders per parent.
const FILES_PER_FOLDER: usize = 25;
const FOLDERS_PER_PARENT: usize = 20;
/// One file in this many contains what `grep` looks for.
const MATCH_EVERY: usize = 977;
/// The tree's `.gitignore`.
const IGNORED: &str = "*.log\n/package_2/source_7/\nbuild/\n!keep.log\n";

/// Creates the tree, searches it, and reports the measurements.
pub(super) fn measure(bench_tools: &Path, report: &mut BenchReport) -> Result<()> {
    let rg = find_or_install(&["rg"], "ripgrep")?;
    // Debian has another program named `fd`.
    let fd = find_or_install(&["fdfind", "fd"], "fd-find")?;
    let folder = tempfile::tempdir()?;
    create_tree(folder.path(), FILES).context("cannot write the files to search")?;
    for comparison in exec::run(Command::new(bench_tools).arg("search").arg(folder.path()).args([rg, fd]))? {
        report.search(&comparison);
    }
    Ok(())
}

/// Returns the first of these programs that is installed; if none is, installs a Debian package.
fn find_or_install<'a>(programs: &[&'a str], package: &str) -> Result<&'a str> {
    let found = || programs.iter().copied().find(|program| setup::is_installed(program));
    if let Some(program) = found() {
        return Ok(program);
    }
    println!("the benchmark needs {package}; installing");
    setup::install(&[package])?;
    match found() {
        Some(program) => Ok(program),
        None => bail!("{package} is installed, but {} is missing", programs.join(" or ")),
    }
}

/// Writes a tree of this many files. Deterministic.
fn create_tree(root: &Path, files: usize) -> Result<()> {
    // Makes it a repository, so that ripgrep and fd apply the ignore rules.
    fs::create_dir(root.join(".git"))?;
    fs::write(root.join(".gitignore"), IGNORED)?;
    let mut rng = TreeRng(7);
    let mut text = String::new();
    for number in 0..files {
        let folder = number / FILES_PER_FOLDER;
        let (package, module) =
            (folder / FOLDERS_PER_PARENT / FOLDERS_PER_PARENT, folder / FOLDERS_PER_PARENT % FOLDERS_PER_PARENT);
        let part = if folder % FOLDERS_PER_PARENT == 3 {
            "build".to_owned()
        } else {
            format!("part_{}", folder % FOLDERS_PER_PARENT)
        };
        let folder_path = root.join(format!("package_{package}/source_{module}/{part}"));
        if number.is_multiple_of(FILES_PER_FOLDER) {
            fs::create_dir_all(&folder_path)?;
        }
        let ending = match number % FILES_PER_FOLDER {
            0 if folder.is_multiple_of(FOLDERS_PER_PARENT) => "toml",
            1 => "log",
            2 => "md",
            _ => "rs",
        };
        text.clear();
        for line in 0..5 + rng.roll(60) {
            let (one, other) = (rng.roll(1_000), rng.roll(1_000));
            writeln!(text, "    let straw_{one} = haystack.take({line}, hay_{other}); // dry, yellow, and long")?;
        }
        if number % MATCH_EVERY == MATCH_EVERY / 2 {
            writeln!(text, "    straw_{number}(needle_in_a_haystack);")?;
        }
        fs::write(folder_path.join(format!("module_{}.{ending}", number % FILES_PER_FOLDER)), &text)?;
    }
    Ok(())
}

/// A deterministic random number generator.
#[derive(Debug)]
struct TreeRng(u64);

impl TreeRng {
    /// Returns a number below `end`.
    fn roll(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_the_same_each_time() {
        let trees = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [one, other] = trees.each_ref().map(|tree| {
            create_tree(tree.path(), 600).unwrap();
            let mut files = Vec::new();
            let mut folders = vec![tree.path().to_owned()];
            while let Some(folder) = folders.pop() {
                for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
                    match entry.file_type().unwrap().is_dir() {
                        true => folders.push(entry.path()),
                        false => {
                            let path = entry.path().strip_prefix(tree.path()).unwrap().to_owned();
                            files.push((path, fs::read_to_string(entry.path()).unwrap()));
                        }
                    }
                }
            }
            files.sort();
            files
        });
        assert_eq!(one.len(), 601, "600 files and the rules");
        assert_eq!(one, other);
    }
}
