//! `chaos`: the long grids. Every trace with a death at every commit, many worlds made by chance, and a real gateway that
//! is killed a thousand times; with `--mutants`, whether the tests notice bugs that were put in on purpose.

mod mutants;
mod tree;

use anyhow::{Context, Result};
use tokio::time::Instant;

use crate::{
    gateway::{self, Profile},
    shell,
};

/// What `chaos` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How often the real gateway is killed
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    kills: u32,
    /// How many worlds are made by chance
    #[arg(long, value_name = "N", default_value_t = 5_000)]
    worlds: u32,
    /// Put in the bugs of chaos/mutants instead, one at a time, and see whether each is noticed
    #[arg(long)]
    mutants: bool,
    /// With --mutants: only those whose file name contains this
    #[arg(long, value_name = "TEXT", requires = "mutants")]
    only: Option<String>,
}

/// Runs the grids, or tries the mutants.
pub(crate) fn run(args: &Args) -> Result<()> {
    if args.mutants {
        return mutants::run(args.only.as_deref());
    }
    let whole = Instant::now();
    step("a death at every commit of every trace", || {
        let tests = ["test", "--package", "homard-testkit", "--test", "sweep", "--", "--nocapture"];
        shell::run(shell::cargo(&tests).env("SWEEP", "all"))
    })?;
    step("worlds made by chance", || {
        let tests = ["test", "--package", "homard-testkit", "--test", "simulation"];
        shell::run(shell::cargo(&tests).env("SIM_SEEDS", args.worlds.to_string()))
    })?;
    step("kills of the real gateway", || {
        let binary = gateway::build(Profile::Release)?;
        let mut command = std::process::Command::new(binary);
        shell::run(command.args(["chaos", "--kills", &args.kills.to_string()]))
    })?;
    println!("nothing was lost ({:.0} s)", whole.elapsed().as_secs_f64());
    Ok(())
}

fn step(name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let start = Instant::now();
    println!("     {name} …");
    work().with_context(|| format!("failed: {name}"))?;
    println!("ok   {name} ({:.0} s)", start.elapsed().as_secs_f64());
    Ok(())
}
