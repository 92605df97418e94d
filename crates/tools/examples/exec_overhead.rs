//! What `exec` costs beside `sh -c true`: `cargo run --example exec_overhead -p homard-tools -- PATH-TO-SANDBOX-EXEC`.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "it is run by hand")]

use std::{
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use homard_agent::tool::{Lender, Origin, Progress, ToolCx, Variables};
use homard_proto::{AgentId, CallId, RunId};
use homard_tools::{
    ExecSettings, all_with,
    sandbox::{Mode, Tier},
};
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How often each is tried.
const ROUNDS: usize = 100;

#[tokio::main]
async fn main() {
    let helper = std::env::args_os().nth(1).map(PathBuf::from);
    let mut bare = Vec::new();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        Command::new("/bin/sh").args(["-c", "true"]).stdin(Stdio::null()).output().unwrap();
        bare.push(begun.elapsed());
    }
    tell("sh -c true", bare);
    exec("exec, bare", |settings| settings.sandbox.mode = Mode::Full).await;
    exec("exec, tier A without helper", |_| {}).await;
    if let Some(helper) = helper {
        exec("exec, tier A", |settings| settings.helper = Some(helper.clone())).await;
        exec("exec, tier B", |settings| {
            settings.tier = Some(Tier::without_namespaces(Some(&helper), "asked".to_owned()));
            settings.helper = Some(helper.clone());
        })
        .await;
    }
}

/// Runs nothing, many times.
async fn exec(name: &str, change: impl FnOnce(&mut ExecSettings)) {
    let workdir = tempfile::tempdir().unwrap();
    let mut settings = ExecSettings::from(vec![("PATH".to_owned(), "/usr/bin:/bin".to_owned())]);
    change(&mut settings);
    let tools = all_with(settings);
    let tool = tools.iter().find(|tool| tool.spec().name == "exec").unwrap();
    let mut times = Vec::new();
    for _ in 0..=ROUNDS {
        let cx = ToolCx {
            run: RunId::parse("run").unwrap(),
            session: AgentId::main().main_session(),
            call: CallId::parse("call").unwrap(),
            workdir: workdir.path().to_owned(),
            cancel: CancellationToken::new(),
            progress: Progress::silent(),
            slot: Lender::default(),
            variables: Variables::default(),
            origin: Origin::default(),
            hub: None,
        };
        let begun = Instant::now();
        let result = tool.call(cx, json!({"command": "true"})).await;
        assert!(!result.is_error, "{result:?}");
        times.push(begun.elapsed());
    }
    // The first one found out what the machine has.
    times.remove(0);
    tell(name, times);
}

fn tell(name: &str, mut times: Vec<Duration>) {
    times.sort();
    println!("{name:<30} median {:>6.2?}  p95 {:>6.2?}", times[times.len() / 2], times[times.len() * 95 / 100]);
}
