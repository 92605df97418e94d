//! The one front door for people and CI: `cargo xtask <command>`.
//!
//! Each command is one module: `test`, `check`, `tidy`, `bench`, `chaos`, `conform`, `fuzz`, `rename-check`, `catalogue`. They share [`shell`]
//! (other programs) and [`gateway`] (the built gateway, started and surely stopped again).
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this program talks to a terminal")]

mod bench;
mod catalogue;
mod chaos;
mod check;
mod conform;
mod fuzz;
mod gateway;
mod rename_check;
mod setup;
mod shell;
mod test;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Test, check, measure and compare Homard.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run all tests of the workspace, and say what was skipped
    Test(test::Args),
    /// The gate that every commit passes: format, lints, tests, docs, tidy
    Check(check::Args),
    /// Check the rules that no other tool knows, and list the longest files and functions
    Tidy,
    /// Measure the built gateway against a local model server that answers at full speed
    Bench(bench::Args),
    /// Run the whole crash sweep and kill a real gateway a thousand times, or try the seeded bugs
    Chaos(chaos::Args),
    /// Run unmodified OpenClaw clients against the built gateway (installs about 2 GB below target/conform)
    Conform(conform::Args),
    /// Read many damaged copies of each recorded stream with each wire's decoder
    Fuzz(fuzz::Args),
    /// Prove that a change since a commit renames items and edits comments, and does nothing else
    RenameCheck(rename_check::Args),
    /// Write the catalogue of models from the npm package that it is pinned to
    Catalogue,
}

fn main() -> ExitCode {
    let result = match Args::parse().command {
        Command::Test(args) => test::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Tidy => tidy::run(),
        Command::Bench(args) => bench::run(&args),
        Command::Chaos(args) => chaos::run(&args),
        Command::Conform(args) => conform::run(&args),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::RenameCheck(args) => rename_check::run(&args),
        Command::Catalogue => catalogue::run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
