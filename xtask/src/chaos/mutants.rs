//! Mutation tests: applies seeded bugs and checks that the tests detect them.
//!
//! A mutant is a patch in `chaos/mutants`. The lines above the patch describe the bug and the checks that must detect
//! it:
//!
//! ```text
//! bug: the acknowledgement leaves before the commit
//! check: cargo test --package homard-testkit --test sweep
//! check: homard chaos --kills 40 --seed 1
//! ```
//!
//! One check that fails is sufficient. All of them must pass without the patch, and the patched tree must build.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use tokio::time::Instant;

use super::tree::PatchedTree;
use crate::shell;

/// Time limit of a check; one that hangs counts as having detected the bug.
const CHECK_TIMEOUT: Duration = Duration::from_secs(600);
/// Polling interval for the end of a check.
const POLL: Duration = Duration::from_millis(50);

/// A seeded bug.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mutant {
    name: String,
    patch: PathBuf,
    bug: String,
    checks: Vec<String>,
}

impl Mutant {
    fn read(patch: &Path) -> Result<Self> {
        let text = fs::read_to_string(patch).with_context(|| format!("cannot read {}", patch.display()))?;
        let name = patch.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let (bug, checks) = header(&text).with_context(|| format!("{} has no header", patch.display()))?;
        Ok(Self { name, patch: patch.to_owned(), bug, checks })
    }
}

/// Parses the lines above a patch.
fn header(text: &str) -> Option<(String, Vec<String>)> {
    let head = || text.lines().take_while(|line| !line.starts_with("diff ") && !line.starts_with("--- "));
    let values_of =
        |key: &'static str| head().filter_map(move |line| line.strip_prefix(key)).map(|rest| rest.trim().to_owned());
    let checks: Vec<_> = values_of("check:").collect();
    let bug = values_of("bug:").next()?;
    (!checks.is_empty()).then_some((bug, checks))
}

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CheckResult {
    Passed,
    Failed,
    Hung,
}

/// Applies every bug, one at a time, and reports which were detected.
pub(super) fn run(only: Option<&str>) -> Result<()> {
    let mutants = all(only)?;
    let tree = PatchedTree::new()?;
    let mut checked = BTreeSet::new();
    for check in mutants.iter().flat_map(|mutant| &mutant.checks) {
        if checked.insert(check) {
            build(&tree, check).context("the tree does not build")?;
            let verdict = run_check(&tree, check)?;
            ensure!(verdict == CheckResult::Passed, "`{check}` fails on the unmodified tree ({verdict:?})");
            println!("ok      unmodified tree: {check}");
        }
    }
    let mut escaped = Vec::new();
    for mutant in &mutants {
        let start = Instant::now();
        tree.restore()?;
        let line = match first_detection(&tree, mutant) {
            Ok(Some((check, verdict))) => format!("caught  {}: {} — {verdict:?} by `{check}`", mutant.name, mutant.bug),
            Ok(None) => {
                escaped.push(mutant.name.clone());
                format!("ESCAPED {}: {}", mutant.name, mutant.bug)
            }
            Err(error) => {
                escaped.push(mutant.name.clone());
                format!("BROKEN  {}: {error:#}", mutant.name)
            }
        };
        println!("{line} ({:.0} s)", start.elapsed().as_secs_f64());
    }
    tree.restore()?;
    if !escaped.is_empty() {
        bail!("{} of {} seeded bugs were not detected: {}", escaped.len(), mutants.len(), escaped.join(", "));
    }
    println!("all {} seeded bugs were detected", mutants.len());
    Ok(())
}

fn all(only: Option<&str>) -> Result<Vec<Mutant>> {
    let folder = shell::root().join("chaos").join("mutants");
    let listing = fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut patches = Vec::new();
    for item in listing {
        let path = item?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.ends_with(".patch") && only.is_none_or(|only| name.contains(only)) {
            patches.push(path);
        }
    }
    patches.sort();
    ensure!(!patches.is_empty(), "no such mutant in {}", folder.display());
    patches.iter().map(|patch| Mutant::read(patch)).collect()
}

/// Returns the first check that detects a bug.
fn first_detection<'a>(tree: &PatchedTree, mutant: &'a Mutant) -> Result<Option<(&'a str, CheckResult)>> {
    tree.apply(&mutant.patch)?;
    for check in &mutant.checks {
        // A patch that does not build is not a valid mutant.
        build(tree, check).context("the tree with the bug does not build")?;
        let verdict = run_check(tree, check)?;
        if verdict != CheckResult::Passed {
            return Ok(Some((check, verdict)));
        }
    }
    Ok(None)
}

/// Builds what a check needs.
fn build(tree: &PatchedTree, check: &str) -> Result<()> {
    let args: Vec<&str> = check.split_whitespace().collect();
    let mut command = tree.command("cargo");
    match args.as_slice() {
        ["cargo", "test", rest @ ..] => {
            let cargo_args = rest.iter().take_while(|word| **word != "--");
            command.arg("test").args(cargo_args).arg("--no-run")
        }
        ["homard", ..] => command.args(["build", "--package", "homard"]),
        _ => bail!("`{check}` is neither `cargo test …` nor `homard …`"),
    };
    let built = command.output().with_context(|| format!("cannot start `{}`", shell::describe(&command)))?;
    let stderr = String::from_utf8_lossy(&built.stderr);
    let errors: Vec<_> = stderr.lines().filter(|line| line.starts_with("error")).collect();
    ensure!(built.status.success(), "{}", errors.join("; "));
    Ok(())
}

/// Runs a check.
fn run_check(tree: &PatchedTree, check: &str) -> Result<CheckResult> {
    let (variables, args): (Vec<&str>, Vec<&str>) =
        check.split_whitespace().partition(|word| word.split_once('=').is_some_and(|(name, _)| is_variable(name)));
    let mut command = match args.as_slice() {
        ["homard", rest @ ..] => {
            let mut command = tree.command(tree.binary());
            command.args(rest);
            command
        }
        [program, rest @ ..] => {
            let mut command = tree.command(program);
            command.args(rest);
            command
        }
        [] => bail!("an empty check"),
    };
    command.envs(variables.iter().filter_map(|word| word.split_once('=')));
    quiet(&mut command);
    let mut child = command.spawn().with_context(|| format!("cannot start `{check}`"))?;
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(if status.success() { CheckResult::Passed } else { CheckResult::Failed });
        }
        if start.elapsed() > CHECK_TIMEOUT {
            child.kill()?;
            child.wait()?;
            return Ok(CheckResult::Hung);
        }
        thread::sleep(POLL);
    }
}

fn is_variable(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_')
}

fn quiet(command: &mut Command) {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_names_the_bug_and_its_checks() {
        let text =
            "bug: no sync\ncheck: cargo test -p x\ncheck: homard chaos --kills 1\n\ndiff --git a/a b/a\n+check: no";
        let checks = vec!["cargo test -p x".to_owned(), "homard chaos --kills 1".to_owned()];
        assert_eq!(header(text), Some(("no sync".to_owned(), checks)));
        assert_eq!(header("bug: x\n--- a\ncheck: y"), None);
    }

    #[test]
    fn every_mutant_has_a_header() {
        let mutants = all(None).unwrap();
        assert!(mutants.iter().all(|mutant| !mutant.bug.is_empty()), "{mutants:?}");
    }
}
