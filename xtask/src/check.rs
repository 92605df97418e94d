//! `check`: the checks that every commit must pass.

use anyhow::{Context, Result};
use tokio::time::Instant;

use crate::{shell, test, tidy};

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Skip the tests, for a caller that has just run them
    #[arg(long)]
    no_test: bool,
}

/// Runs the checks, up to the first one that fails.
pub(crate) fn run(args: &Args) -> Result<()> {
    let started_at = Instant::now();
    step("fmt", || shell::run(&mut shell::cargo(&["fmt", "--all", "--check"])))?;
    step("clippy", || {
        shell::run(&mut shell::cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
    })?;
    if !args.no_test {
        step("test", || test::run(&test::Args::default()))?;
    }
    step("doc", || shell::run(shell::cargo(&["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings")))?;
    step("tidy", tidy::run)?;
    println!("all checks passed ({:.1} s)", started_at.elapsed().as_secs_f64());
    Ok(())
}

fn step(name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let start = Instant::now();
    println!("     {name} …");
    let result = work().with_context(|| format!("check failed: {name}"));
    let verdict = if result.is_ok() { "ok  " } else { "FAIL" };
    println!("{verdict} {name} ({:.1} s)", start.elapsed().as_secs_f64());
    result
}
