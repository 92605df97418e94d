//! `test`: all tests of the workspace.
//!
//! They need Rust, Node and what `setup` installs. A test that cannot do its work here writes `skipped: <what>: <why>` to stderr; those
//! lines are gathered and told again at the end, where somebody reads them.

use std::{
    io::{BufRead, BufReader, IsTerminal},
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

use crate::{setup, shell};

/// What `test` takes.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// Passed on to `cargo test`, such as a test's name
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

/// Runs the tests.
pub(crate) fn run(args: &Args) -> Result<()> {
    setup::run()?;
    let node = setup::node()?;
    host(&node)?;
    let mut command = shell::cargo(&["test", "--workspace"]);
    command.args(&args.rest).env("HOMARD_NODE", &node).stderr(Stdio::piped());
    if std::io::stderr().is_terminal() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    let name = shell::describe(&command);
    let mut child = command.spawn().with_context(|| format!("cannot start `{name}`"))?;
    let mut skipped = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        for line in BufReader::new(stderr).split(b'\n') {
            let line = String::from_utf8_lossy(&line.context("cannot read what the tests say")?).into_owned();
            eprintln!("{line}");
            skipped.extend(skip(&line));
        }
    }
    let status = child.wait().with_context(|| format!("cannot wait for `{name}`"))?;
    if !status.success() {
        bail!("`{name}` failed ({status})");
    }
    if skipped.is_empty() {
        println!("all tests passed, none was skipped");
    } else {
        println!("all tests passed; skipped:");
        skipped.iter().for_each(|what| println!("  {what}"));
    }
    Ok(())
}

/// Runs the tests of the program that runs OpenClaw's plugins.
fn host(node: &Path) -> Result<()> {
    let mut command = Command::new(node);
    command.current_dir(shell::root().join("crates/plugins/node")).args(["--test", "--test-reporter=dot"]);
    shell::run(&mut command)
}

/// What a line says was skipped.
fn skip(line: &str) -> Option<String> {
    line.strip_prefix("skipped: ").map(str::to_owned)
}
