//! `bench`: what a run costs beside the model, measured on the built binary.
//!
//! [`model`] is the model server: it answers at full speed. [`client`] asks it through the gateway and [`direct`]
//! asks it straight, in turns, so that the difference is what the gateway costs on this machine at this moment.
//! [`process`] reads what the gateway's process used; [`report`] prints it beside what is aimed at.
//!
//! [`wire`] is the reading of a stream alone. [`drain`] is a session that gets more than it can answer at once. What durability costs: [`acks`] beside the bare disk, [`disk`] for what a run writes, [`recovery`] after a kill.
//! What tools cost beside programs that do the same: [`exec`] and [`search`]. What many readers cost: [`fanout`]. What
//! long transcripts cost: [`turn`]. What hooks and plugins cost: [`hooks`]. What ten thousand cost: [`sockets`] that
//! listen, [`stopped`] readers, [`sessions`] in a list. What a long time costs: [`soak`]. And what others cost: [`peers`].

mod acks;
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
mod recovery;
mod report;
mod search;
mod sessions;
mod soak;
mod sockets;
mod stopped;
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

use self::{client::Client, direct::Direct, model::Model, process::Usage, report::Report};
use crate::gateway::{self, Gateway, Profile};

/// How often the gateway is started.
const STARTS: usize = 10;
/// How long a started gateway is left alone before its memory is read.
const IDLE: Duration = Duration::from_secs(1);
/// Warm runs, one after the other.
const RUNS: usize = 200;
/// Sessions that those runs go round, so that no history grows long.
const ROUND: usize = 20;
/// The words of a plain run.
const CHUNKS: usize = 20;
/// Chunks that each size of the linearity check streams in all: enough for a clock of 10 ms.
const STREAMED: usize = 32_000;
/// Sessions at once, and how many runs each of them makes.
const LOADS: [(usize, usize); 3] = [(1, 200), (10, 40), (100, 8)];

/// What `bench` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Measure only this
    part: Option<Part>,
    /// Which build to measure
    #[arg(long, value_enum, default_value = "dist")]
    profile: Profile,
    /// Measure this binary, and build none
    #[arg(long, value_name = "FILE", conflicts_with = "profile")]
    binary: Option<PathBuf>,
    /// Print JSON for machines
    #[arg(long)]
    json: bool,
    /// Measure OpenClaw and a floor beside it, and write docs/benchmarks.md (half an hour)
    #[arg(long, conflicts_with = "part")]
    peers: bool,
    /// Of these, only this row of the table; writes nothing
    #[arg(long, value_name = "NAME", requires = "peers", value_enum)]
    row: Vec<peers::Row>,
    /// Of these, only whose name holds this; writes nothing
    #[arg(long, value_name = "NAME", requires = "peers")]
    peer: Option<String>,
    /// A steady load for so long, and what it does to memory
    #[arg(long, value_name = "MINUTES", conflicts_with_all = ["part", "peers"])]
    soak: Option<f64>,
    /// How many runs a second that load has
    #[arg(long, value_name = "RUNS", requires = "soak", default_value_t = 50)]
    pace: u32,
}

/// Something that is measured by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// One run that many sockets watch
    Fanout,
    /// Turns in transcripts of all lengths, and making a huge one short
    Turn,
    /// Hooks in Rust, in a process and in Node, and a start with many plugins
    Hooks,
    /// Ten thousand sockets that listen (R28)
    Sockets,
    /// A thousand readers that stopped while a hundred runs stream (R26)
    Stopped,
    /// A list of ten thousand sessions
    Sessions,
    /// What a plain run writes to disk
    Disk,
    /// Idle memory, the overhead of a run, and how many runs a second
    Load,
}

/// Measures and prints.
pub(crate) fn run(args: &Args) -> Result<()> {
    if (args.peers || args.soak.is_some()) && peers::is_done_by_a_quick_build()? {
        return Ok(());
    }
    if args.peers {
        let (binary, profile) = (args.binary.as_deref(), Some(args.profile));
        return peers::run(&peers::Wishes { rows: &args.row, peer: args.peer.as_deref(), binary, profile });
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

/// Measures one thing, which has to be what is aimed at.
pub(crate) fn must_meet(part: Part) -> Result<()> {
    let binary = gateway::build(Profile::Release)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let report = runtime.block_on(measure_part(part, &binary))?;
    print!("{}", report.to_table());
    ensure!(report.is_met(), "not everything is as it should be");
    Ok(())
}

async fn measure(binary: &Path) -> Result<Report> {
    let model = Model::start().context("cannot start the model server")?;
    let mut report = Report::default();
    let logs = tempfile::tempdir()?;
    let start = || Gateway::start(binary, &config(model.port()), &logs.path().join("gateway.log"));
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
    let mut client = Client::connect(gateway.port(), gateway::TOKEN).await?;
    one_after_the_other(&mut client, &model, &gateway, &mut report).await?;
    for chunks in [250, 1_000, 4_000] {
        let before = Usage::of(gateway.pid())?;
        for run in 0..STREAMED / chunks {
            client.run(&format!("agent:main:stream-{chunks}-{run}"), chunks).await?;
        }
        report.stream(chunks, Usage::of(gateway.pid())?.since(before), STREAMED / chunks * chunks);
    }
    load(&mut client, &mut report).await?;
    report.memory_after(process::memory(gateway.pid())?);
    drop(gateway);
    drain::measure(&start()?, &model, &mut report).await?;
    acks::measure(&start()?, &mut report).await?;
    fanout::measure(&start()?, &mut report).await?;
    sockets::measure(&start()?, &mut report).await?;
    let crowded = Gateway::start(binary, &stopped::config(config(model.port())), &logs.path().join("gateway.log"))?;
    stopped::measure(&crowded, &mut report).await?;
    drop(crowded);
    sessions::measure(binary, &config(model.port()), logs.path(), &mut report).await?;
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

/// One thing alone, on a gateway of its own.
async fn measure_part(part: Part, binary: &Path) -> Result<Report> {
    let model = Model::start().context("cannot start the model server")?;
    let mut report = Report::default();
    let logs = tempfile::tempdir()?;
    let config = config(model.port());
    let start = || Gateway::start(binary, &config, &logs.path().join("gateway.log"));
    match part {
        Part::Fanout => fanout::measure(&start()?, &mut report).await?,
        Part::Turn => turn::measure(binary, &config, logs.path(), &mut report).await?,
        Part::Hooks => hooks::measure(binary, &config, logs.path(), &mut report).await?,
        Part::Sockets => sockets::measure(&start()?, &mut report).await?,
        Part::Stopped => {
            let gateway = Gateway::start(binary, &stopped::config(config), &logs.path().join("gateway.log"))?;
            stopped::measure(&gateway, &mut report).await?;
        }
        Part::Sessions => sessions::measure(binary, &config, logs.path(), &mut report).await?,
        Part::Disk => disk::measure(binary, &config, logs.path(), &mut report).await?,
        Part::Load => {
            let gateway = start()?;
            thread::sleep(IDLE);
            report.idle_memory(process::memory(gateway.pid())?);
            let mut client = Client::connect(gateway.port(), gateway::TOKEN).await?;
            one_after_the_other(&mut client, &model, &gateway, &mut report).await?;
            load(&mut client, &mut report).await?;
        }
    }
    Ok(report)
}

/// Runs in many sessions at once.
async fn load(client: &mut Client, report: &mut Report) -> Result<()> {
    for (sessions, runs) in LOADS {
        let keys: Vec<String> = (0..sessions).map(|n| format!("agent:main:load-{sessions}-{n}")).collect();
        let took = client.load(&keys, runs, CHUNKS).await?;
        report.load(sessions, sessions * runs, took);
    }
    Ok(())
}

/// Warm runs through the gateway, each followed by a straight read of the same stream.
async fn one_after_the_other(client: &mut Client, model: &Model, gateway: &Gateway, report: &mut Report) -> Result<()> {
    let key = |run: usize| format!("agent:main:bench-{}", run % ROUND);
    let mut direct = Direct::connect(model.port()).await?;
    for run in 0..ROUND {
        client.run(&key(run), CHUNKS).await?;
        direct.read(CHUNKS).await?;
    }
    let (served, before) = (model.served(), Usage::of(gateway.pid())?);
    let (mut through, mut straight) = (Vec::new(), Vec::new());
    for run in 0..RUNS {
        through.push(client.run(&key(run), CHUNKS).await?);
        straight.push(direct.read(CHUNKS).await?);
    }
    let used = Usage::of(gateway.pid())?.since(before);
    ensure!(
        model.served() - served == 2 * RUNS,
        "{} runs should have asked the model {RUNS} times, but asked {} times",
        RUNS,
        model.served() - served - RUNS
    );
    report.runs(&through, &straight, used);
    Ok(())
}

fn config(model: u16) -> serde_json::Value {
    json!({
        "models": {"providers": {"fake": {
            "baseUrl": format!("http://127.0.0.1:{model}/v1"), "apiKey": "x", "api": "openai-completions",
            "models": [{"id": "fake-1", "contextWindow": 128_000, "maxTokens": 4096}],
        }}},
        "agents": {"defaults": {"model": {"primary": "fake/fake-1"}}},
        // For messages of `chat.send`; those of `agent` have runs of their own in any case.
        "messages": {"queue": {"mode": "followup", "debounceMs": 0, "cap": drain::MESSAGES}},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_straight_read_gets_as_many_chunks_as_it_asks_for() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let model = Model::start().unwrap();
            let mut direct = Direct::connect(model.port()).await.unwrap();
            for chunks in [0, 1, 20, 4_000] {
                direct.read(chunks).await.unwrap();
            }
            assert_eq!(model.served(), 4);
        });
    }
}
