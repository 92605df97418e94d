//! `test`: runs all tests of the workspace.
//!
//! They need Rust, and some of them Node and what `setup` installs. A test that cannot run here writes `skipped:
//! <what>: <why>` to stderr; these lines are collected and listed at the end. With `--expect-all`, as in CI, a skip
//! fails the run unless `.ci/allowed-skips.txt` names it.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, IsTerminal},
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

use crate::{setup, shell};

/// Skips that are permitted with `--expect-all`, each with its reason.
const ALLOWED: &str = ".ci/allowed-skips.txt";

/// Arguments of `test`.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// Fail if a test is skipped that .ci/allowed-skips.txt does not name
    #[arg(long)]
    expect_all: bool,
    /// Passed on to `cargo test`, such as a test's name
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

/// Runs the tests.
pub(crate) fn run(args: &Args) -> Result<()> {
    setup::run();
    let mut command = shell::cargo(&["test", "--workspace"]);
    let mut skipped = BTreeMap::new();
    match setup::node() {
        Some(node) => {
            host(&node)?;
            command.env("HOMARD_NODE", &node);
        }
        None => drop(skipped.insert("the plugin host: no sufficiently recent version of Node was found".to_owned(), 1)),
    }
    command.args(&args.rest).stderr(Stdio::piped());
    if std::io::stderr().is_terminal() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    let name = shell::describe(&command);
    let mut child = command.spawn().with_context(|| format!("cannot start `{name}`"))?;
    if let Some(stderr) = child.stderr.take() {
        for line in BufReader::new(stderr).split(b'\n') {
            let line = String::from_utf8_lossy(&line.context("cannot read the output of the tests")?).into_owned();
            eprintln!("{line}");
            if let Some(skip) = skip(&line) {
                *skipped.entry(skip).or_insert(0) += 1;
            }
        }
    }
    let status = child.wait().with_context(|| format!("cannot wait for `{name}`"))?;
    if !status.success() {
        bail!("`{name}` failed ({status})");
    }
    report(&skipped);
    if args.expect_all {
        let allowed =
            fs::read_to_string(shell::root().join(ALLOWED)).with_context(|| format!("cannot read {ALLOWED}"))?;
        let unexpected = unexpected(skipped.keys().map(String::as_str), &allowed);
        if !unexpected.is_empty() {
            bail!("skipped, but not listed in {ALLOWED}:\n  {}", unexpected.join("\n  "));
        }
    }
    Ok(())
}

/// Prints the skips, each with its number of occurrences.
fn report(skipped: &BTreeMap<String, usize>) {
    if skipped.is_empty() {
        return println!("all tests passed, none was skipped");
    }
    println!("all tests passed; skipped:");
    for (skip, count) in skipped {
        let times = if *count > 1 { format!(" ({count} times)") } else { String::new() };
        println!("  {skip}{times}");
    }
}

/// Returns the skips that match no line of the list. Lines that begin with `#` give reasons.
fn unexpected<'a>(skipped: impl Iterator<Item = &'a str>, allowed: &str) -> Vec<&'a str> {
    let allowed: Vec<_> =
        allowed.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    skipped.filter(|skip| !allowed.iter().any(|allowed| skip.contains(allowed))).collect()
}

/// Runs the tests of the Node plugin host.
fn host(node: &Path) -> Result<()> {
    for folder in ["crates/plugins/node", "crates/channel-host/node"] {
        let mut command = Command::new(node);
        command.current_dir(shell::root().join(folder)).args(["--test", "--test-reporter=dot"]);
        shell::run(&mut command)?;
    }
    Ok(())
}

/// Returns what a line reports as skipped.
fn skip(line: &str) -> Option<String> {
    line.strip_prefix("skipped: ").map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skip_is_expected_only_if_the_list_names_it() {
        let allowed = "# not in a clone\nno samples\n\nr11: ";
        let skipped = ["every recorded vector: no samples", "r11: no mount", "exec in namespaces: no bwrap"];
        assert_eq!(unexpected(skipped.into_iter(), allowed), ["exec in namespaces: no bwrap"]);
    }
}
