//! `page`: builds the gateway's web page and checks it.
//!
//! The built files are committed, so that `cargo build` needs no Node. A rebuild must give the same bytes. Then follow
//! the size budgets, the unit tests, and the browser tests, which run against the built gateway.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use crate::{setup, shell};

/// Chromium, and the Debian package that contains it.
const CHROMIUM: &str = "chromium";

/// Arguments of `page`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Replace the committed files with the rebuilt ones instead of comparing them
    #[arg(long)]
    update: bool,
    /// Skip the tests in a browser
    #[arg(long)]
    no_browser: bool,
    /// Passed on to Playwright, such as `-g stream`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

/// Builds and checks the page.
pub(crate) fn run(args: &Args) -> Result<()> {
    let source = shell::root().join("page");
    install(&source)?;
    let built = shell::target()?.join("page");
    shell::run(npm(&source).args(["run", "--silent", "types"]))?;
    shell::run(npm(&source).args(["run", "--silent", "build", "--", "--logLevel", "warn", "--outDir"]).arg(&built))?;
    let committed = source.join("dist");
    if args.update {
        replace(&built, &committed)?;
    }
    compare(&built, &committed)?;
    shell::run(Command::new("node").arg(source.join("budget.mjs")).arg(&committed))?;
    shell::run(npm(&source).args(["run", "--silent", "unit"]))?;
    if args.no_browser {
        return Ok(());
    }
    if !setup::is_installed(CHROMIUM) {
        setup::install(&[CHROMIUM]).context("the browser tests need Chromium")?;
    }
    shell::run(&mut shell::cargo(&["build", "--package", "homard"]))?;
    let gateway = shell::target()?.join("debug/homard");
    shell::run(npm(&source).args(["run", "--silent", "browser", "--"]).args(&args.rest).env("HOMARD_BIN", gateway))
}

fn npm(folder: &Path) -> Command {
    let mut command = Command::new("npm");
    command.current_dir(folder).env("PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD", "1");
    command
}

/// Installs the pinned packages, unless they are installed already.
fn install(source: &Path) -> Result<()> {
    let lock = source.join("package-lock.json");
    let installed = source.join("node_modules/.homard-lock.json");
    let wanted = fs::read(&lock).with_context(|| format!("cannot read {}", lock.display()))?;
    if fs::read(&installed).is_ok_and(|found| found == wanted) {
        return Ok(());
    }
    shell::run(npm(source).args(["ci", "--no-audit", "--no-fund", "--loglevel=error"]))?;
    fs::write(&installed, wanted).with_context(|| format!("cannot write {}", installed.display()))
}

/// Fails if the files of two folders differ.
fn compare(built: &Path, committed: &Path) -> Result<()> {
    let (built, committed) = (read(built)?, read(committed)?);
    let names = built.keys().chain(committed.keys());
    let mut differing: Vec<_> = names.filter(|name| built.get(*name) != committed.get(*name)).collect();
    differing.sort();
    differing.dedup();
    if differing.is_empty() {
        return Ok(());
    }
    let list = differing.iter().map(|name| name.display().to_string()).collect::<Vec<_>>().join(", ");
    bail!("page/dist is not what page/src builds: {list}; run `cargo xtask page --update --no-browser` and commit it")
}

fn replace(built: &Path, committed: &Path) -> Result<()> {
    if committed.exists() {
        fs::remove_dir_all(committed).with_context(|| format!("cannot remove {}", committed.display()))?;
    }
    for (name, bytes) in read(built)? {
        let path = committed.join(name);
        let folder = path.parent().unwrap_or(committed);
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Returns all files below a folder with their content.
fn read(folder: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(current) = folders.pop() {
        for entry in fs::read_dir(&current).with_context(|| format!("cannot read {}", current.display()))? {
            let path = entry.with_context(|| format!("cannot read {}", current.display()))?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
                files.insert(path.strip_prefix(folder).unwrap_or(&path).to_owned(), bytes);
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_differs_is_named() {
        let temporary = tempfile::tempdir().unwrap();
        let (built, committed) = (temporary.path().join("built"), temporary.path().join("committed"));
        fs::create_dir_all(built.join("assets")).unwrap();
        fs::write(built.join("assets/a.js"), "new").unwrap();
        fs::create_dir_all(&committed).unwrap();
        fs::write(committed.join("old.js"), "old").unwrap();
        let error = compare(&built, &committed).unwrap_err().to_string();
        assert!(error.contains("assets/a.js, old.js"), "{error}");
        replace(&built, &committed).unwrap();
        compare(&built, &committed).unwrap();
    }
}
