//! Benchmark of tools against equivalent programs, interleaved. Run by `cargo xtask bench`:
//!
//! `bench_tools exec HELPER` runs a no-op command, with and without a sandbox, against `sh -c true`.
//! `bench_tools secrets` redacts many secrets from a long text, and serializes it as JSON, as is done with each result.
//! `bench_tools search FOLDER RG FD` searches a folder with `grep` and `find`, and with ripgrep and fd.
//!
//! Each output line is a JSON object: the task, and the times of each contestant in microseconds. The order changes
//! with each round, and a first warm-up round is not reported.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program for one's own terminal")]

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use homard_agent::tool::{Lender, ProgressSender, RunOrigin, Tool, ToolCx, ToolResult};
use homard_proto::{AgentId, CallId, RunId, message::Block};
use homard_sandbox::{AccessMode, Tier};
use homard_secrets::Secrets;
use homard_tools::{ExecSettings, all, all_with};
use homard_workspace::skills::Variables;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Number of rounds per way to run a command.
const COMMANDS: usize = 100;
/// Number of redaction rounds.
const REDACTIONS: usize = 100;
/// Length of that text, and number of secrets.
const TEXT: usize = 1 << 20;
const SECRETS: usize = 200;
/// Number of rounds per search.
const SEARCHES: usize = 15;
/// Patterns, and whether the search is case-sensitive. None has enough matches to stop `grep` early.
const PATTERNS: [(&str, bool); 3] =
    [("needle_in_a_haystack", true), (r"straw_\d+\(needle", true), ("NEEDLE_IN_A", false)];
/// File name patterns.
const NAMES: [&str; 2] = ["*.toml", "part_1[0-4]"];
/// `PATH` of commands.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["exec", helper] => exec(Path::new(helper)).await,
        ["secrets"] => secrets(),
        ["search", folder, rg, fd] => search(Path::new(folder), rg, fd).await,
        _ => panic!("bench_tools exec HELPER, bench_tools secrets, or bench_tools search FOLDER RG FD"),
    }
}

/// Benchmarks a no-op command.
async fn exec(helper: &Path) {
    let workdir = tempfile::tempdir().unwrap();
    let settings_with = |change: &dyn Fn(&mut ExecSettings)| {
        let mut settings = ExecSettings::from(vec![("PATH".to_owned(), PATH.to_owned())]);
        settings.helper = Some(helper.to_owned());
        change(&mut settings);
        tool(all_with(settings), "exec")
    };
    let mut variants = vec![("bare", settings_with(&|settings| settings.sandbox.mode = AccessMode::Full))];
    let tier_a = Tier::detect(Some(helper), PATH);
    if matches!(tier_a, Tier::A { .. }) {
        variants.push(("tier A", settings_with(&|settings| settings.tier = Some(tier_a.clone()))));
    }
    let tier_b = Tier::without_namespaces(Some(helper), "the benchmark asks for it".to_owned());
    if matches!(tier_b, Tier::B { .. }) {
        variants.push(("tier B", settings_with(&|settings| settings.tier = Some(tier_b.clone()))));
    }
    let mut times = vec![Vec::new(); variants.len() + 1];
    for round in 0..=COMMANDS {
        for turn in 0..times.len() {
            let variant = (round + turn) % times.len();
            let started = Instant::now();
            match variants.get(variant) {
                Some((_, tool)) => {
                    let result = call(tool, workdir.path(), json!({"command": "true"})).await;
                    assert!(!result.is_error, "{result:?}");
                }
                None => {
                    let output = Command::new("/bin/sh").args(["-c", "true"]).stdin(Stdio::null()).output().unwrap();
                    assert!(output.status.success(), "{output:?}");
                }
            }
            times[variant].push(started.elapsed());
        }
    }
    let names = variants.iter().map(|(name, _)| *name).chain(["sh -c true"]);
    print_times("exec", names.zip(times));
}

/// Benchmarks redaction of build output in which a few lines contain secrets.
fn secrets() {
    let key = |n: usize| format!("sk-{:016x}{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15), n);
    let redactor = Secrets::new((0..SECRETS).map(key));
    let line = |n: usize| match n % 1000 {
        0 => format!("export TOKEN_{n}={}\n", key(n / 1000 % SECRETS)),
        _ => format!("{n:06} Compiling part-{} v0.{}.1 (/home/me/project/parts/{n})\n", n * 7, n % 13),
    };
    let mut text: String = (0..TEXT / 40).map(line).collect();
    text.truncate(TEXT);
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..=REDACTIONS {
        for turn in 0..2 {
            let variant = (round + turn) % 2;
            let started = Instant::now();
            let length = if variant == 0 { redactor.mask(&text).len() } else { json!(text).to_string().len() };
            times[variant].push(started.elapsed());
            assert_ne!(length, text.len());
        }
    }
    print_times("secrets, 200 in 1 MiB", ["ours", "JSON"].into_iter().zip(times));
}

/// Benchmarks searches against ripgrep and fd.
async fn search(folder: &Path, rg: &str, fd: &str) {
    let grep = tool(all(Vec::new()), "grep");
    for (pattern, case_matters) in PATTERNS {
        let case = if case_matters { "--case-sensitive" } else { "--ignore-case" };
        let reference_tools = [
            "--no-config --hidden --no-heading --with-filename --line-number --color never",
            case,
            "--regexp",
            pattern,
            "./",
        ];
        let arguments = json!({"pattern": pattern, "ignoreCase": !case_matters});
        compare(
            &format!("grep {pattern}"),
            folder,
            Searches { tool: &grep, arguments: &arguments, program: rg, words: &words(&reference_tools) },
        )
        .await;
    }
    let find = tool(all(Vec::new()), "find");
    for pattern in NAMES {
        let reference_tools = ["--hidden --color never --case-sensitive --glob", pattern, "./"];
        let arguments = json!({"pattern": pattern});
        compare(
            &format!("find {pattern}"),
            folder,
            Searches { tool: &find, arguments: &arguments, program: fd, words: &words(&reference_tools) },
        )
        .await;
    }
}

/// Splits the first part at spaces; the others are single words.
fn words<'a>(lines: &[&'a str]) -> Vec<&'a str> {
    lines[0].split(' ').chain(lines[1..].iter().copied()).collect()
}

/// A search with a tool, and the same with another program.
#[derive(Clone, Copy)]
struct Searches<'a> {
    tool: &'a Arc<dyn Tool>,
    arguments: &'a Value,
    program: &'a str,
    words: &'a [&'a str],
}

/// Runs both, interleaved, and asserts that they find the same.
async fn compare(label: &str, folder: &Path, searches: Searches<'_>) {
    let Searches { tool, arguments, program, words } = searches;
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..=SEARCHES {
        let mut found = [BTreeSet::new(), BTreeSet::new()];
        for turn in 0..2 {
            let variant = (round + turn) % 2;
            let started = Instant::now();
            let text = if variant == 0 {
                let result = call(tool, folder, arguments.clone()).await;
                result.content.iter().filter_map(Block::as_text).collect()
            } else {
                let mut command = Command::new(program);
                command.args(words).current_dir(folder).stdin(Stdio::null());
                String::from_utf8(command.output().unwrap().stdout).unwrap()
            };
            times[variant].push(started.elapsed());
            found[variant] = text.lines().map(location).collect();
        }
        assert!(!found[0].is_empty(), "{label} found nothing");
        assert_eq!(found[0], found[1], "{label} and {program} should find the same");
    }
    let program = PathBuf::from(program);
    let program = program.file_name().unwrap().to_string_lossy();
    print_times(label, ["ours", &program].into_iter().zip(times));
}

/// Returns the file and line number of a result line.
fn location(line: &str) -> String {
    let line = line.strip_prefix("./").unwrap_or(line);
    line.splitn(3, ':').take(2).collect::<Vec<_>>().join(":")
}

fn tool(tools: Vec<Arc<dyn Tool>>, name: &str) -> Arc<dyn Tool> {
    tools.into_iter().find(|tool| tool.spec().name == name).unwrap()
}

async fn call(tool: &Arc<dyn Tool>, workdir: &Path, arguments: Value) -> ToolResult {
    let cx = ToolCx {
        run: RunId::parse("run").unwrap(),
        session: AgentId::main().main_session(),
        call: CallId::parse("call").unwrap(),
        workdir: workdir.to_owned(),
        sandbox: None,
        cancel: CancellationToken::new(),
        progress: ProgressSender::silent(),
        slot: Lender::default(),
        variables: Variables::default(),
        origin: RunOrigin::default(),
        hub: None,
    };
    tool.call(cx, arguments).await
}

fn print_times<'a>(label: &str, times: impl Iterator<Item = (&'a str, Vec<Duration>)>) {
    // The first round warmed up and detected the sandbox tier.
    let micros = |times: Vec<Duration>| times[1..].iter().map(|time| time.as_secs_f64() * 1e6).collect::<Vec<_>>();
    let summary: serde_json::Map<_, _> = times.map(|(name, times)| (name.to_owned(), json!(micros(times)))).collect();
    println!("{}", json!({"what": label, "took": summary}));
}
