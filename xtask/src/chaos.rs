//! `chaos`: the long test grids. Every trace with a crash at every commit, many random scenarios, a real gateway that
//! is killed a thousand times, power failures, failing and full disks, commands that are hard to kill and paths that
//! lead outside; with `--mutants`, whether the tests detect seeded bugs.

mod mutants;
mod tree;

use std::{ffi::OsStr, path::PathBuf};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use tokio::time::Instant;

use crate::{
    bench,
    gateway::{self, BuildProfile},
    shell,
};

/// Arguments of `chaos`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How often the real gateway is killed
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    kills: u32,
    /// Number of random scenarios
    #[arg(long, value_name = "N", default_value_t = 5_000)]
    worlds: u32,
    /// Run only this grid; may be repeated
    #[arg(long, value_name = "NAME", conflicts_with = "mutants")]
    step: Vec<Grid>,
    /// With the hand-overs: programs that take turns instead of a release build; may be repeated. One whose format of the
    /// state directory is older than that of the one before it must be refused
    #[arg(long, value_name = "PATH")]
    program: Vec<PathBuf>,
    /// Apply the seeded bugs of chaos/mutants instead, one at a time, and check that each is detected
    #[arg(long)]
    mutants: bool,
    /// With --mutants: only those whose file name contains this
    #[arg(long, value_name = "TEXT", requires = "mutants")]
    only: Option<String>,
}

/// A test grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Grid {
    /// Every trace with a crash at every commit
    Sweep,
    /// Random scenarios
    Worlds,
    /// R1: kills of the real gateway
    Kills,
    /// R2: ten thousand power failures in a recorded day
    PowerCuts,
    /// R4: waiting for a thousand runs after a kill
    Waits,
    /// R6: ten thousand requests, half of them repeated, and twenty kills
    Repetitions,
    /// R7: five hundred kills around commands with side effects
    Effects,
    /// R10: each of the first fifty syncs fails
    FailingDisk,
    /// R11: a disk that is full twenty times
    FullDisk,
    /// R15: sessions.json is read for ten seconds while a thousand sessions change each second
    Export,
    /// R26: a thousand stalled readers while a hundred runs stream
    StoppedReaders,
    /// R28: ten thousand connections
    Sockets,
    /// R29, R30: ten thousand messages at once, which of them are answered, and whether other sessions get their turn
    Flood,
    /// R56: two hundred process families in each sandbox, none of which survives its command
    Families,
    /// R60: a million paths while a directory and a symlink to the outside are swapped
    Paths,
    /// Five hundred messages and twenty-five kills: timelines have no gaps and agree with the events
    Trace,
    /// A hundred hand-overs with two hundred active runs, fifty streaming clients and two channels
    Handover,
    /// R92: two hundred kills on each chat platform, and a thousand replies to webhooks with a kill among every ten; R48: no person reads another's messages
    Channels,
}

/// Runs the grids or the mutants.
pub(crate) fn run(args: &Args) -> Result<()> {
    if args.mutants {
        return mutants::run(args.only.as_deref());
    }
    let started_at = Instant::now();
    let is_wanted = |step: &&Grid| args.step.is_empty() || args.step.contains(step);
    for step in Grid::value_variants().iter().filter(is_wanted) {
        let start = Instant::now();
        let name = step.about();
        println!("     {name} …");
        step.run(args).with_context(|| format!("failed: {name}"))?;
        println!("ok   {name} ({:.0} s)", start.elapsed().as_secs_f64());
    }
    println!("all crash tests passed ({:.0} s)", started_at.elapsed().as_secs_f64());
    Ok(())
}

impl Grid {
    /// Returns its help text.
    fn about(self) -> String {
        let value = self.to_possible_value();
        value.and_then(|value| value.get_help().map(ToString::to_string)).unwrap_or_default()
    }

    fn run(self, args: &Args) -> Result<()> {
        match self {
            Self::Sweep => {
                let tests = ["test", "--package", "homard-testkit", "--test", "sweep", "--", "--nocapture"];
                shell::run(shell::cargo(&tests).env("SWEEP", "all"))
            }
            Self::Worlds => {
                let tests = ["test", "--package", "homard-testkit", "--test", "simulation"];
                shell::run(shell::cargo(&tests).env("SIM_SEEDS", args.worlds.to_string()))
            }
            Self::Kills => {
                let binary = gateway::build(BuildProfile::Release)?;
                let mut command = std::process::Command::new(binary);
                shell::run(command.args(["chaos", "--kills", &args.kills.to_string()]))
            }
            Self::PowerCuts => grid("homard", "it", "chaos::power::r2"),
            Self::Waits => grid("homard", "it", "chaos::r4"),
            Self::Repetitions => grid("homard", "it", "chaos::storm::r6"),
            Self::Effects => grid("homard", "it", "chaos::effects::r7"),
            Self::FailingDisk => grid("homard", "it", "chaos::disk::r10"),
            Self::FullDisk => grid("homard", "it", "chaos::disk::r11"),
            Self::Export => grid("homard", "it", "chaos::export::r15"),
            Self::StoppedReaders => bench::require_targets(bench::BenchPart::Stopped),
            Self::Sockets => bench::require_targets(bench::BenchPart::Sockets),
            Self::Flood => {
                grid("homard-testkit", "fairness", "r29").and_then(|()| grid("homard-testkit", "fairness", "r30"))
            }
            Self::Families => grid("homard-tools", "sandbox_grids", "r56"),
            Self::Paths => grid("homard-tools", "sandbox_grids", "r60"),
            Self::Trace => {
                grid("homard-testkit", "soak", "timelines_of_five_hundred")?;
                grid("homard", "it", "chaos::soak")
            }
            Self::Handover => handovers(&args.program),
            Self::Channels => {
                grid("homard", "it", "channels::kill_grid")?;
                grid("homard", "it", "channels::kills")?;
                grid("homard", "it", "channels::two_users")
            }
        }
    }
}

/// Runs the hand-overs with a build as it is installed: a debug build takes longer to start.
fn handovers(programs: &[PathBuf]) -> Result<()> {
    let built = if programs.is_empty() { vec![gateway::build(BuildProfile::Release)?] } else { Vec::new() };
    let programs = programs.iter().map(std::path::absolute).collect::<Result<Vec<_>, _>>()?;
    let listed = std::env::join_paths(programs.iter().chain(&built)).context("a path of a program has a colon")?;
    grid_with("homard", "it", "handover::load", &[("HANDOVER_PROGRAMS", listed.as_os_str())])
}

/// Runs the full grid of which the tests run a sample.
fn grid(package: &str, file: &str, tests: &str) -> Result<()> {
    grid_with(package, file, tests, &[])
}

/// Same as `grid`, with these variables.
fn grid_with(package: &str, file: &str, tests: &str, variables: &[(&str, &OsStr)]) -> Result<()> {
    let tests = ["test", "--package", package, "--test", file, tests, "--"];
    let found = shell::output(shell::cargo(&tests).arg("--list"))?;
    // Cargo accepts a name that matches no test.
    if !String::from_utf8_lossy(&found).contains(": test") {
        bail!("no such test: {}", tests[5]);
    }
    shell::run(
        shell::cargo(&tests)
            .args(["--nocapture", "--test-threads", "1"])
            .env("GRID", "all")
            .envs(variables.iter().copied()),
    )
}
