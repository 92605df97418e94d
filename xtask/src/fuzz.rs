//! `fuzz`: a long seeded run of damaged streams through each wire's decoder.
//!
//! It is the corpus test `a_damaged_stream_ends_exactly_once` with many more seeds, in batches, so that one sees how far
//! it has come and a decoder that hangs is found. What fails names its stream and its seed, and
//! `FUZZ_FROM=<seed> FUZZ_ROUNDS=1 cargo test -p homard-providers --test corpus <stream>` fails again. It runs unoptimised,
//! because only that build notices arithmetic that overflows.

use std::{
    fs::File,
    io::{Read, Seek},
    path::PathBuf,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::shell;

/// The test, as its binary calls it.
const TEST: &str = "a_damaged_stream_ends_exactly_once::";
/// Seeds of a batch.
const BATCH: u64 = 1_000;
/// How long a batch may take. It takes some ten seconds.
const PATIENCE: Duration = Duration::from_secs(900);
/// How often one looks whether it is over.
const LOOK: Duration = Duration::from_millis(200);

/// What `fuzz` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many damaged copies of each recorded stream are read
    #[arg(long, default_value_t = 10_000)]
    rounds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Only this wire, by its name in configs, such as `openai-responses`
    #[arg(long)]
    wire: Option<String>,
}

/// Runs all batches.
pub(crate) fn run(args: &Args) -> Result<()> {
    let binary = build()?;
    let streams = streams(&binary, args.wire.as_deref())?;
    if streams == 0 {
        let corpus = shell::root().join("crates/providers/tests/corpus");
        bail!("no recorded stream is of this wire; the wires are the folders of {}", corpus.display());
    }
    let mut done = 0;
    while done < args.rounds {
        let count = BATCH.min(args.rounds - done);
        batch(&binary, args, args.from + done, count)?;
        done += count;
        println!("{done} of {} rounds of {streams} streams: no panic, no hang, no silent success", args.rounds);
    }
    Ok(())
}

/// Builds the corpus test and says where it is.
fn build() -> Result<PathBuf> {
    let args = ["test", "-p", "homard-providers", "--test", "corpus", "--no-run", "--message-format", "json"];
    let told = shell::output(&mut shell::cargo(&args))?;
    let messages = told.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    let is_corpus = |message: &Value| message["target"]["name"] == "corpus" && message["executable"].is_string();
    let built = messages.rev().find(is_corpus).context("cargo built no corpus test")?;
    Ok(PathBuf::from(built["executable"].as_str().unwrap_or_default()))
}

/// The test binary, told to do only what is asked here.
fn test(binary: &PathBuf, wire: Option<&str>) -> Command {
    let mut command = Command::new(binary);
    command.arg(format!("{TEST}{}", wire.unwrap_or_default())).current_dir(shell::root().join("crates/providers"));
    command
}

fn streams(binary: &PathBuf, wire: Option<&str>) -> Result<usize> {
    let listed = shell::output(test(binary, wire).arg("--list"))?;
    Ok(String::from_utf8_lossy(&listed).lines().filter(|line| line.ends_with(": test")).count())
}

fn batch(binary: &PathBuf, args: &Args, from: u64, count: u64) -> Result<()> {
    // Into a file, which never fills up as a pipe does.
    let mut said = tempfile::tempfile()?;
    let mut command = test(binary, args.wire.as_deref());
    command.env("FUZZ_FROM", from.to_string()).env("FUZZ_ROUNDS", count.to_string());
    let mut child = command.stdout(said.try_clone()?).stderr(Stdio::from(said.try_clone()?)).spawn()?;
    let mut waited = Duration::ZERO;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if waited > PATIENCE {
            child.kill().context("a batch hangs and cannot be stopped")?;
            child.wait()?;
            bail!("seeds {from} to {} hang; these streams were read:\n{}", from + count, text(&mut said)?);
        }
        thread::sleep(LOOK);
        waited += LOOK;
    };
    if !status.success() {
        bail!("{}\nseeds {from} to {} found something", text(&mut said)?, from + count);
    }
    Ok(())
}

fn text(file: &mut File) -> Result<String> {
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    Ok(text)
}
