//! `page`: builds the gateway's web page and checks it.
//!
//! The built files are committed, so that `cargo build` needs no Node. A rebuild must give the same bytes. Then follow
//! the size budgets, the unit tests, and the browser tests, which run against the built gateway. `--figures` measures an
//! optimised gateway with many runs instead.

use std::{
    collections::BTreeMap,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};

use crate::{setup, shell};

/// Chromium, and the Debian package that contains it.
const CHROMIUM: &str = "chromium";

/// The list of the files that the gateway embeds.
const LIST: &str = "crates/gateway/src/control_ui/page_files.rs";

/// Number of stored runs, and of messages of the long session, with `--figures`.
const SEEDED_RUNS: u32 = 100_000;
const SEEDED_MESSAGES: u32 = 5_000;

/// Arguments of `page`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Replace the committed files with the rebuilt ones instead of comparing them
    #[arg(long)]
    update: bool,
    /// Skip the tests in a browser
    #[arg(long)]
    no_browser: bool,
    /// Measure an optimised gateway with 100,000 runs instead: times of lists and searches, frames, memory, sizes
    #[arg(long, conflicts_with_all = ["update", "no_browser"])]
    figures: bool,
    /// With --figures: measure this gateway instead of building one
    #[arg(long, value_name = "PATH", requires = "figures")]
    binary: Option<PathBuf>,
    /// Passed on to Playwright, such as `-g stream`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

/// Builds and checks the page.
pub(crate) fn run(args: &Args) -> Result<()> {
    let source = shell::root().join("page");
    install(&source)?;
    if args.figures {
        return measure(&source, args);
    }
    let built = shell::target()?.join("page");
    shell::run(npm(&source).args(["run", "--silent", "types"]))?;
    shell::run(npm(&source).args(["run", "--silent", "build", "--", "--logLevel", "warn", "--outDir"]).arg(&built))?;
    let committed = source.join("dist");
    let list = shell::root().join(LIST);
    if args.update {
        replace(&built, &committed)?;
        fs::write(&list, file_list(&built)?).with_context(|| format!("cannot write {}", list.display()))?;
    }
    compare(&built, &committed)?;
    if fs::read_to_string(&list).with_context(|| format!("cannot read {}", list.display()))? != file_list(&built)? {
        bail!(
            "{LIST} does not list the files of page/dist; run `cargo xtask page --update --no-browser` and commit it"
        );
    }
    shell::run(Command::new("node").arg(source.join("budget.mjs")).arg(&committed))?;
    shell::run(npm(&source).args(["run", "--silent", "unit"]))?;
    if args.no_browser {
        return Ok(());
    }
    install_browser()?;
    shell::run(&mut shell::cargo(&["build", "--package", "homard"]))?;
    let gateway = shell::target()?.join("debug/homard");
    shell::run(npm(&source).args(["run", "--silent", "browser", "--"]).args(&args.rest).env("HOMARD_BIN", gateway))
}

fn install_browser() -> Result<()> {
    if setup::is_installed(CHROMIUM) {
        return Ok(());
    }
    setup::install(&[CHROMIUM]).context("the browser tests need Chromium")
}

/// Measures a gateway.
fn measure(source: &Path, args: &Args) -> Result<()> {
    install_browser()?;
    let target = shell::target()?;
    let seeded = seed(&target)?;
    let gateway = match &args.binary {
        Some(binary) => fs::canonicalize(binary).with_context(|| format!("there is no {}", binary.display()))?,
        None => {
            shell::run(&mut shell::cargo(&["build", "--package", "homard", "--profile", "dist"]))?;
            target.join("dist/homard")
        }
    };
    shell::run(
        npm(source)
            .args(["run", "--silent", "figures", "--"])
            .args(&args.rest)
            .env("HOMARD_BIN", gateway)
            .env("HOMARD_SEED", seeded),
    )
}

/// Returns a state directory with many runs. It takes minutes to fill, so it is kept until the program that fills it
/// changes.
fn seed(target: &Path) -> Result<PathBuf> {
    shell::run(&mut shell::cargo(&["build", "--package", "homard-journal", "--example", "seed_runs"]))?;
    let program = target.join("debug/examples/seed_runs");
    let (state, marker) = (target.join("page-figures/state"), target.join("page-figures/seeded-by"));
    let modified = |path: &Path| fs::metadata(path).and_then(|found| found.modified());
    let is_current = modified(&marker).is_ok_and(|seeded| modified(&program).is_ok_and(|built| built < seeded));
    let wanted = format!("{SEEDED_RUNS} runs, {SEEDED_MESSAGES} messages");
    if is_current && fs::read_to_string(&marker).is_ok_and(|found| found == wanted) {
        return Ok(state);
    }
    if state.exists() {
        fs::remove_dir_all(&state).with_context(|| format!("cannot remove {}", state.display()))?;
    }
    fs::create_dir_all(&state).with_context(|| format!("cannot create {}", state.display()))?;
    let counts = [SEEDED_RUNS, SEEDED_MESSAGES].map(|count| count.to_string());
    shell::run(Command::new(&program).arg(&state).args(counts))?;
    fs::write(&marker, wanted).with_context(|| format!("cannot write {}", marker.display()))?;
    Ok(state)
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
    // `npm ci` also wants the optional packages of all other platforms in the lock file, and some of them cannot be
    // resolved. This installs the locked versions, too, and leaves the lock file alone.
    shell::run(npm(source).args(["install", "--no-save", "--no-audit", "--no-fund", "--loglevel=error"]))?;
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

/// Returns the source of the list of embedded files.
fn file_list(built: &Path) -> Result<String> {
    let mut text = "//! The built files of the page in `page`. Generated by `cargo xtask page --update`.\n\n\
                    /// Name and content of each file.\n#[rustfmt::skip]\n\
                    pub(super) const FILES: &[(&str, &[u8])] = &[\n"
        .to_owned();
    for name in read(built)?.keys().map(|name| name.display().to_string()) {
        writeln!(text, "    (\"{name}\", include_bytes!(\"../../../../page/dist/{name}\")),")?;
    }
    text.push_str("];\n");
    Ok(text)
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
