//! `bench`: measures the overhead of a run, without the model, on the built binary.
//!
//! [`model`] is the model server: it answers at full speed. [`client`] uses it through the gateway and [`direct`]
//! without, interleaved, so that the difference is the gateway's cost on this machine at this moment. [`process`] reads
//! the resource usage of the gateway's process; [`report`] prints it beside the targets.
//!
//! [`wire`] measures parsing of a stream alone, [`drain`] a session with many queued messages. Durability: [`acks`]
//! compared with the bare disk, [`disk`] for what a run writes, [`recovery`] after a kill. Tools compared with
//! equivalent programs: [`exec`] and [`search`]. Many subscribers: [`fanout`]. Long transcripts: [`turn`]. Hooks and
//! plugins: [`hooks`]. Ten thousand of something: [`sockets`] that subscribe, [`stalled`] readers, [`sessions`] in a
//! list, [`runs`] to search. Long load: [`soak`]. The interactive [`chat`] on a [`pseudo_terminal`]. Other gateways:
//! [`peers`].

mod acks;
mod chat;
mod client;
mod direct;
mod disk;
mod drain;
mod exec;
mod fanout;
mod hooks;
mod model;
mod peers;
mod process;
mod pseudo_terminal;
mod recovery;
mod report;
mod runs;
mod search;
mod sessions;
mod soak;
mod sockets;
mod stalled;
mod turn;
mod wire;

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use self::{client::BenchClient, direct::DirectClient, model::BenchModel, process::CpuTime, report::BenchReport};
use crate::gateway::{self, BuildProfile, RunningGateway};

/// Number of starts of the gateway.
const STARTS: usize = 10;
/// Idle time of a started gateway before its memory is read.
const IDLE: Duration = Duration::from_secs(1);
/// Sequential warm runs.
const RUNS: usize = 200;
/// Number of sessions that those runs use in turn, so that no history grows long.
const SESSION_COUNT: usize = 20;
/// Chunks of a plain run.
const CHUNKS: usize = 20;
/// Total number of chunks for each size of the linearity check: enough for a clock resolution of 10 ms.
const TOTAL_CHUNKS: usize = 32_000;
/// Concurrent sessions, and the number of runs in each.
const LOADS: [(usize, usize); 3] = [(1, 200), (10, 40), (100, 8)];

/// Arguments of `bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Measure only this part
    part: Option<BenchPart>,
    /// Which build to measure
    #[arg(long, value_enum, default_value = "dist")]
    profile: BuildProfile,
    /// Measure this binary instead of building one
    #[arg(long, value_name = "FILE", conflicts_with = "profile")]
    binary: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Also measure OpenClaw and a minimal gateway, and write docs/benchmarks.md (half an hour)
    #[arg(long, conflicts_with = "part")]
    peers: bool,
    /// With --peers: only this row of the table; writes nothing
    #[arg(long, value_name = "NAME", requires = "peers", value_enum)]
    row: Vec<peers::PeerRow>,
    /// With --peers: only gateways whose name contains this; writes nothing
    #[arg(long, value_name = "NAME", requires = "peers")]
    peer: Option<String>,
    /// Apply a steady load for this many minutes and watch memory
    #[arg(long, value_name = "MINUTES", conflicts_with_all = ["part", "peers"])]
    soak: Option<f64>,
    /// With --soak: runs per second
    #[arg(long, value_name = "RUNS", requires = "soak", default_value_t = 50)]
    pace: u32,
}

/// A part that can be measured alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum BenchPart {
    /// One run watched by many sockets
    Fanout,
    /// Turns in transcripts of all lengths, and compaction of a huge one
    Turn,
    /// Hooks in Rust, in a process and in Node, and startup with many plugins
    Hooks,
    /// Ten thousand idle sockets (R28)
    Sockets,
    /// A thousand stalled readers while a hundred runs stream (R26)
    Stopped,
    /// Listing ten thousand sessions
    Sessions,
    /// Listing and searching a hundred thousand runs, and a session of five thousand messages
    Runs,
    /// Disk writes of a plain run
    Disk,
    /// Idle memory, overhead of a run, and runs per second
    Load,
    /// The interactive chat: first frame, keystrokes during a stream, memory; beside other terminal programs
    Chat,
}

/// Measures and prints.
pub(crate) fn run(args: &Args) -> Result<()> {
    if (args.peers || args.soak.is_some()) && peers::rerun_in_release()? {
        return Ok(());
    }
    if args.peers {
        let (binary, profile) = (args.binary.as_deref(), Some(args.profile));
        return peers::run(&peers::PeerOptions { rows: &args.row, peer: args.peer.as_deref(), binary, profile });
    }
    let binary = match &args.binary {
        Some(binary) => fs::canonicalize(binary).with_context(|| format!("cannot find {}", binary.display()))?,
        None => gateway::build(args.profile)?,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if let Some(minutes) = args.soak {
        return runtime.block_on(soak::run(&binary, minutes, args.pace));
    }
    let report = match args.part {
        None => runtime.block_on(measure(&binary))?,
        Some(part) => runtime.block_on(measure_part(part, &binary))?,
    };
    if args.json {
        println!("{:#}", report.to_json());
    } else {
        print!("{}", report.to_table());
    }
    Ok(())
}

/// Measures one part; fails if a target is missed.
pub(crate) fn require_targets(part: BenchPart) -> Result<()> {
    let binary = gateway::build(BuildProfile::Release)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(measure_part(part, &binary))?;
    print!("{}", report.to_table());
    ensure!(report.is_met(), "a benchmark target was missed");
    Ok(())
}

async fn measure(binary: &Path) -> Result<BenchReport> {
    let model = BenchModel::start().context("cannot start the model server")?;
    let mut report = BenchReport::default();
    let logs = tempfile::tempdir()?;
    let start = || RunningGateway::start(binary, &config(model.port()), &logs.path().join("gateway.log"));
    let mut starts = Vec::new();
    for _ in 1..STARTS {
        starts.push(start()?.ready_after());
    }
    let gateway = start()?;
    starts.push(gateway.ready_after());
    report.start(&starts);
    thread::sleep(IDLE);
    report.idle_memory(process::memory(gateway.pid())?);

    wire::measure(binary, &model, &mut report)?;
    let mut client = BenchClient::connect(gateway.port(), gateway::TOKEN).await?;
    sequential_runs(&mut client, &model, &gateway, &mut report).await?;
    for chunks in [250, 1_000, 4_000] {
        let before = CpuTime::of(gateway.pid())?;
        for run in 0..TOTAL_CHUNKS / chunks {
            client.run(&format!("agent:main:stream-{chunks}-{run}"), chunks).await?;
        }
        report.stream(chunks, CpuTime::of(gateway.pid())?.since(before), TOTAL_CHUNKS / chunks * chunks);
    }
    load(&mut client, &mut report).await?;
    report.memory_after(process::memory(gateway.pid())?);
    drop(gateway);
    drain::measure(&start()?, &model, &mut report).await?;
    acks::measure(&start()?, &mut report).await?;
    fanout::measure(&start()?, &mut report).await?;
    sockets::measure(&start()?, &mut report).await?;
    let stalled_gateway =
        RunningGateway::start(binary, &stalled::config(config(model.port())), &logs.path().join("gateway.log"))?;
    stalled::measure(&stalled_gateway, &mut report).await?;
    drop(stalled_gateway);
    sessions::measure(binary, &config(model.port()), logs.path(), &mut report).await?;
    runs::measure(binary, &config(model.port()), logs.path(), &mut report).await?;
    disk::measure(binary, &config(model.port()), logs.path(), &mut report).await?;
    recovery::measure(binary, &config(model.port()), logs.path(), &mut report).await?;
    turn::measure(binary, &config(model.port()), logs.path(), &mut report).await?;
    let bench_tools = exec::build(binary)?;
    exec::measure(&bench_tools, binary, &mut report)?;
    exec::secrets(&bench_tools, &mut report)?;
    search::measure(&bench_tools, &mut report)?;
    hooks::measure(binary, &config(model.port()), logs.path(), &mut report).await?;
    Ok(report)
}

/// Measures one part, on a gateway of its own.
async fn measure_part(part: BenchPart, binary: &Path) -> Result<BenchReport> {
    let model = BenchModel::start().context("cannot start the model server")?;
    let mut report = BenchReport::default();
    let logs = tempfile::tempdir()?;
    let config = config(model.port());
    let start = || RunningGateway::start(binary, &config, &logs.path().join("gateway.log"));
    match part {
        BenchPart::Fanout => fanout::measure(&start()?, &mut report).await?,
        BenchPart::Turn => turn::measure(binary, &config, logs.path(), &mut report).await?,
        BenchPart::Hooks => hooks::measure(binary, &config, logs.path(), &mut report).await?,
        BenchPart::Sockets => sockets::measure(&start()?, &mut report).await?,
        BenchPart::Stopped => {
            let gateway = RunningGateway::start(binary, &stalled::config(config), &logs.path().join("gateway.log"))?;
            stalled::measure(&gateway, &mut report).await?;
        }
        BenchPart::Sessions => sessions::measure(binary, &config, logs.path(), &mut report).await?,
        BenchPart::Runs => runs::measure(binary, &config, logs.path(), &mut report).await?,
        BenchPart::Disk => disk::measure(binary, &config, logs.path(), &mut report).await?,
        BenchPart::Chat => chat::measure(binary, &config, logs.path(), &mut report)?,
        BenchPart::Load => {
            let gateway = start()?;
            thread::sleep(IDLE);
            report.idle_memory(process::memory(gateway.pid())?);
            let mut client = BenchClient::connect(gateway.port(), gateway::TOKEN).await?;
            sequential_runs(&mut client, &model, &gateway, &mut report).await?;
            load(&mut client, &mut report).await?;
        }
    }
    Ok(report)
}

/// Measures runs in many concurrent sessions.
async fn load(client: &mut BenchClient, report: &mut BenchReport) -> Result<()> {
    for (sessions, runs) in LOADS {
        let keys: Vec<String> = (0..sessions).map(|n| format!("agent:main:load-{sessions}-{n}")).collect();
        let elapsed = client.load(&keys, runs, CHUNKS).await?;
        report.load(sessions, sessions * runs, elapsed);
    }
    Ok(())
}

/// Measures warm runs through the gateway, each followed by a direct read of the same stream.
async fn sequential_runs(
    client: &mut BenchClient,
    model: &BenchModel,
    gateway: &RunningGateway,
    report: &mut BenchReport,
) -> Result<()> {
    let key = |run: usize| format!("agent:main:bench-{}", run % SESSION_COUNT);
    let mut direct = DirectClient::connect(model.port()).await?;
    for run in 0..SESSION_COUNT {
        client.run(&key(run), CHUNKS).await?;
        direct.read(CHUNKS).await?;
    }
    let (served, before) = (model.served(), CpuTime::of(gateway.pid())?);
    let (mut gateway_times, mut direct_times) = (Vec::new(), Vec::new());
    for run in 0..RUNS {
        gateway_times.push(client.run(&key(run), CHUNKS).await?);
        direct_times.push(direct.read(CHUNKS).await?);
    }
    let cpu_time = CpuTime::of(gateway.pid())?.since(before);
    ensure!(
        model.served() - served == 2 * RUNS,
        "{} runs should have sent {RUNS} model requests, but sent {}",
        RUNS,
        model.served() - served - RUNS
    );
    report.runs(&gateway_times, &direct_times, cpu_time);
    Ok(())
}

fn config(model: u16) -> serde_json::Value {
    json!({
        "models": {"providers": {"fake": {
            "baseUrl": format!("http://127.0.0.1:{model}/v1"), "apiKey": "x", "api": "openai-completions",
            "models": [{"id": "fake-1", "contextWindow": 128_000, "maxTokens": 4096}],
        }}},
        "agents": {"defaults": {"model": {"primary": "fake/fake-1"}}},
        // Applies to `chat.send`; messages of `agent` get runs of their own anyway.
        "messages": {"queue": {"mode": "followup", "debounceMs": 0, "cap": drain::MESSAGES}},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_direct_read_gets_the_requested_number_of_chunks() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let model = BenchModel::start().unwrap();
            let mut direct = DirectClient::connect(model.port()).await.unwrap();
            for chunks in [0, 1, 20, 4_000] {
                direct.read(chunks).await.unwrap();
            }
            assert_eq!(model.served(), 4);
        });
    }
}
