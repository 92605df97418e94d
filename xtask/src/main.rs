//! Development tasks for people and CI: `cargo xtask <command>`.
//!
//! Each command is one module: `test`, `check`, `tidy`, `bench`, `chaos`, `conform`, `channels`, `dist`, `fuzz`, `page`,
//! `rename-check`, `catalogue`. They share [`shell`] (other programs) and [`gateway`] (starts and reliably kills the
//! built gateway).
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this program talks to a terminal")]

mod bench;
mod catalogue;
mod channels;
mod chaos;
mod check;
mod conform;
mod dist;
mod fuzz;
mod gateway;
mod page;
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
    /// Run all tests of the workspace and list those that were skipped
    Test(test::Args),
    /// Run the checks that every commit must pass: format, lints, tests, docs, tidy
    Check(check::Args),
    /// Check project-specific rules, and list the longest files and functions
    Tidy,
    /// Measure the built gateway against a local model server that answers at full speed
    Bench(bench::Args),
    /// Run the full crash sweep and kill a real gateway a thousand times, or test with seeded bugs
    Chaos(chaos::Args),
    /// Build all packages for this platform, and test them in a clean Debian root
    Dist(dist::Args),
    /// Run unmodified OpenClaw clients against the built gateway (installs about 2 GB below target/conform)
    Conform(conform::Args),
    /// Run OpenClaw's channel packages against fake platforms (installs about 1 GB below target/channel-host)
    Channels(channels::Args),
    /// Fuzz everything that parses external input with mutated bytes
    Fuzz(fuzz::Args),
    /// Build the web page, check that the committed files are what it builds, and test it in Chromium
    Page(page::Args),
    /// Prove that a change since a commit renames items and edits comments, and does nothing else
    RenameCheck(rename_check::Args),
    /// Generate the model catalogue from a pinned npm package
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
        Command::Channels(args) => channels::run(&args),
        Command::Dist(args) => dist::run(&args),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Page(args) => page::run(&args),
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
