//! `fuzz`: a long seeded run of mutated bytes through everything that parses external input.
//!
//! Each target is a test with many more seeds, in batches, so that progress is visible and a parser that hangs is
//! detected. A failure names its seed, and `FUZZ_FROM=<seed> FUZZ_ROUNDS=1 cargo test -p <package> <test>` reproduces
//! it. Uses an unoptimised build, because only that detects arithmetic overflow.

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
use tokio::time::Instant;

use crate::shell;

/// A parser of external input.
#[derive(Debug, Clone, Copy)]
struct FuzzTarget {
    name: &'static str,
    /// The package, without `homard-`.
    package: &'static str,
    /// The test binary that contains the test, as cargo names it.
    binary: &'static str,
    /// Name of the test.
    test: &'static str,
    /// Seeds per batch, which takes about ten seconds.
    batch: u64,
}

const TARGETS: [FuzzTarget; 13] = [
    FuzzTarget {
        name: "wire",
        package: "providers",
        binary: "corpus",
        test: "a_damaged_stream_ends_exactly_once::",
        batch: 1_000,
    },
    FuzzTarget {
        name: "frame",
        package: "gateway",
        binary: "homard_gateway",
        test: "fuzz::r50_fuzz_frame",
        batch: 200_000,
    },
    FuzzTarget {
        name: "origin",
        package: "gateway",
        binary: "homard_gateway",
        test: "fuzz::r50_fuzz_origin",
        batch: 500_000,
    },
    FuzzTarget {
        name: "host",
        package: "gateway",
        binary: "homard_gateway",
        test: "fuzz::r50_fuzz_host",
        batch: 500_000,
    },
    FuzzTarget { name: "ip", package: "gateway", binary: "homard_gateway", test: "fuzz::r50_fuzz_ip", batch: 500_000 },
    FuzzTarget {
        name: "hostname",
        package: "egress",
        binary: "homard_egress",
        test: "fuzz::r50_fuzz_hostname",
        batch: 200_000,
    },
    FuzzTarget {
        name: "exception",
        package: "egress",
        binary: "homard_egress",
        test: "fuzz::r50_fuzz_exception",
        batch: 200_000,
    },
    FuzzTarget {
        name: "gzip",
        package: "egress",
        binary: "homard_egress",
        test: "fuzz::r50_fuzz_gzip",
        batch: 200_000,
    },
    FuzzTarget {
        name: "git-config",
        package: "sandbox",
        binary: "homard_sandbox",
        test: "fuzz::fuzz_git_config",
        batch: 200_000,
    },
    FuzzTarget {
        name: "socket-table",
        package: "sandbox",
        binary: "homard_sandbox",
        test: "fuzz::fuzz_socket_table",
        batch: 500_000,
    },
    FuzzTarget {
        name: "protected-path",
        package: "sandbox",
        binary: "homard_sandbox",
        test: "fuzz::fuzz_protected_path",
        batch: 500_000,
    },
    FuzzTarget {
        name: "confinement",
        package: "sandbox",
        binary: "homard_sandbox",
        test: "fuzz::fuzz_confinement",
        batch: 200_000,
    },
    FuzzTarget {
        name: "command-line",
        package: "tools",
        binary: "homard_tools",
        test: "argv::tests::fuzz_command_line",
        batch: 200_000,
    },
];

/// Time limit of a batch, which takes about ten seconds.
const BATCH_TIMEOUT: Duration = Duration::from_secs(900);
/// Polling interval for its end.
const POLL: Duration = Duration::from_millis(200);

/// Arguments of `fuzz`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run only this target: wire (model streams), frame, origin, host, ip, hostname, exception, gzip, git-config,
    /// socket-table, protected-path, confinement or command-line
    #[arg(long, value_parser = TARGETS.map(|target| target.name))]
    target: Option<String>,
    /// Number of mutated inputs: of each recorded stream, or a hundred times as many of anything else
    #[arg(long, default_value_t = 10_000)]
    rounds: u64,
    /// Run each target for this many minutes instead of a number of rounds
    #[arg(long, value_name = "N", conflicts_with = "rounds")]
    minutes: Option<u64>,
    /// First seed
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Fuzz only this wire format, by its name in configs, such as `openai-responses`
    #[arg(long, conflicts_with = "target")]
    wire: Option<String>,
}

/// Runs all batches.
pub(crate) fn run(args: &Args) -> Result<()> {
    let only = args.target.as_deref().or(args.wire.as_ref().map(|_| "wire"));
    for target in TARGETS.iter().filter(|target| only.is_none_or(|only| only == target.name)) {
        fuzz(target, args)?;
    }
    Ok(())
}

fn fuzz(target: &FuzzTarget, args: &Args) -> Result<()> {
    let binary = build(target)?;
    let test = format!("{}{}", target.test, args.wire.as_deref().unwrap_or_default());
    let tests = tests(target, &binary, &test)?;
    if tests == 0 {
        let corpus = shell::root().join("crates/providers/tests/corpus");
        bail!("no recorded stream of this wire; the wires are the directories of {}", corpus.display());
    }
    let rounds = if target.name == "wire" { args.rounds } else { args.rounds.saturating_mul(100) };
    let started = Instant::now();
    let limit = args.minutes.map(|minutes| Duration::from_secs(minutes.saturating_mul(60)));
    let mut done = 0;
    while limit.map_or(done < rounds, |limit| started.elapsed() < limit) {
        let count = if limit.is_some() { target.batch } else { target.batch.min(rounds - done) };
        batch(command(target, &binary, &test), args.from + done, count)?;
        done += count;
        let goal =
            limit.map_or_else(|| format!(" of {rounds}"), |limit| format!(" in {:?} of {limit:?}", elapsed(started)));
        println!("{}: {done}{goal} rounds of {tests}: no panic, no hang, no invalid input accepted", target.name);
    }
    Ok(())
}

/// Returns whole seconds since `started`, for a line of progress.
fn elapsed(started: Instant) -> Duration {
    Duration::from_secs(started.elapsed().as_secs())
}

/// Builds the tests of a target and returns the path of the test binary.
fn build(target: &FuzzTarget) -> Result<PathBuf> {
    // The whole workspace, because a single package has other features, and its dependencies would be rebuilt.
    let selection: &[&str] = if target.name == "wire" { &["--test", "corpus"] } else { &["--lib"] };
    let args = [&["test", "--workspace"], selection, &["--no-run", "--message-format", "json"]].concat();
    let output = shell::output(&mut shell::cargo(&args))?;
    let messages = output.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice::<Value>(line).ok());
    let is_test_binary =
        |message: &Value| message["target"]["name"] == target.binary && message["executable"].is_string();
    let built = messages
        .rev()
        .find(is_test_binary)
        .with_context(|| format!("cargo built no tests of homard-{}", target.package))?;
    Ok(PathBuf::from(built["executable"].as_str().unwrap_or_default()))
}

/// Returns the command that runs one test of the binary.
fn command(target: &FuzzTarget, binary: &PathBuf, test: &str) -> Command {
    let mut command = Command::new(binary);
    command.arg(test).current_dir(shell::root().join("crates").join(target.package));
    command
}

fn tests(target: &FuzzTarget, binary: &PathBuf, test: &str) -> Result<usize> {
    let listed = shell::output(command(target, binary, test).arg("--list"))?;
    Ok(String::from_utf8_lossy(&listed).lines().filter(|line| line.ends_with(": test")).count())
}

fn batch(mut command: Command, from: u64, count: u64) -> Result<()> {
    // Output goes to a file, which cannot fill up like a pipe.
    let mut log = tempfile::tempfile()?;
    command.env("FUZZ_FROM", from.to_string()).env("FUZZ_ROUNDS", count.to_string());
    let mut child = command.stdout(log.try_clone()?).stderr(Stdio::from(log.try_clone()?)).spawn()?;
    let mut waited = Duration::ZERO;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if waited > BATCH_TIMEOUT {
            child.kill().context("a batch hangs and cannot be killed")?;
            child.wait()?;
            bail!("seeds {from} to {} hang; output:\n{}", from + count, text(&mut log)?);
        }
        thread::sleep(POLL);
        waited += POLL;
    };
    if !status.success() {
        bail!("{}\nseeds {from} to {} failed", text(&mut log)?, from + count);
    }
    Ok(())
}

fn text(file: &mut File) -> Result<String> {
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    Ok(text)
}
