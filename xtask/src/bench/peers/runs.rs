//! Runs: overhead of one, throughput, and what many leave behind.

use std::time::Duration;

use anyhow::{Result, ensure};
use futures_util::future::try_join_all;
use tokio::time::{Instant, sleep};

use super::{
    environment::{PeerEnvironment, PeerValue, megabytes},
    peer::{Peer, RunningPeer, StorageKind},
};
use crate::bench::{
    acks,
    direct::DirectClient,
    report::{milliseconds, percentile},
};

/// Number of sessions that warm runs use in turn.
const ROUND: usize = 10;
/// Chunks of a plain run, and the message that requests them.
const CHUNKS: usize = 20;
const PLAIN: &str = "chunks=20";
/// Maximum and minimum number of warm runs; in between, as many as fit into this time.
const MAX_RUNS: usize = 1_000;
const MIN_RUNS: usize = 20;
const WARM_TIME: Duration = Duration::from_secs(15);

/// Numbers of concurrent sessions, each with the key of its line in the table.
const LOADS: [(usize, &str); 4] = [(1, "load-1"), (10, "load-10"), (100, "load-100"), (1_000, "load-1000")];
/// Number of sessions that share a socket: a gateway may limit concurrent requests per client.
const SESSIONS_PER_SOCKET: usize = 100;
/// Duration of each load.
const LOAD_TIME: Duration = Duration::from_secs(12);

/// Runs before memory is read: this many in ten sessions, or as many as fit into this time, in slices.
const RUNS_BEFORE_MEMORY: usize = 10_000;
const TIME_BEFORE_MEMORY: Duration = Duration::from_secs(60);
const SLICE: Duration = Duration::from_secs(5);
/// Idle time afterwards.
const SETTLE: Duration = Duration::from_secs(2);

/// Warm runs: times through the gateway and without, and the gateway's CPU time.
struct WarmRuns {
    through: Vec<Duration>,
    direct: Vec<Duration>,
    cpu_time: Duration,
}

impl WarmRuns {
    fn overhead(&self, percent: usize) -> f64 {
        percentile(&self.through, percent) - percentile(&self.direct, percent)
    }
}

async fn warm(environment: &PeerEnvironment, running: &RunningPeer) -> Result<WarmRuns> {
    let key = |run: usize| format!("agent:main:warm-{}", run % ROUND);
    let (mut client, mut direct) = (running.client().await?, DirectClient::connect(environment.model.port()).await?);
    for run in 0..ROUND {
        client.run(&key(run), CHUNKS).await?;
        direct.read(CHUNKS).await?;
    }
    let (served, before, started_at) = (environment.model.served(), running.cpu_time()?, Instant::now());
    let (mut through, mut direct_times) = (Vec::new(), Vec::new());
    while through.len() < MAX_RUNS && (through.len() < MIN_RUNS || started_at.elapsed() < WARM_TIME) {
        through.push(client.run(&key(through.len()), CHUNKS).await?);
        direct_times.push(direct.read(CHUNKS).await?);
    }
    let cpu_time = running.cpu_time()?.saturating_sub(before);
    let (requests, runs) = (environment.model.served() - served - direct_times.len(), through.len());
    ensure!(requests >= runs, "{runs} runs sent only {requests} model requests");
    Ok(WarmRuns { through, direct: direct_times, cpu_time })
}

/// Measures without the disk: the files are in memory.
pub(super) async fn runs(environment: &PeerEnvironment, peer: &Peer) -> Result<Vec<PeerValue>> {
    let home = environment.home(peer, StorageKind::Memory)?;
    let warm = warm(environment, &home.start().await?).await?;
    Ok(vec![
        ("overhead-50", warm.overhead(50)),
        ("overhead-95", warm.overhead(95)),
        ("overhead-99", warm.overhead(99)),
        ("cpu", milliseconds(warm.cpu_time) / warm.through.len() as f64),
    ])
}

/// Measures with commits: the files are on the disk.
pub(super) async fn commit(environment: &PeerEnvironment, peer: &Peer) -> Result<Vec<PeerValue>> {
    let home = environment.home(peer, StorageKind::Disk)?;
    let sync = 1e3 / acks::bare_syncs(home.folder())?;
    let warm = warm(environment, &home.start().await?).await?;
    Ok(vec![("commit-50", warm.overhead(50)), ("commit-99", warm.overhead(99)), ("sync", sync)])
}

/// Measures throughput. Each number of sessions gets a gateway of its own, which is killed with its unfinished runs.
pub(super) async fn load(environment: &PeerEnvironment, peer: &Peer) -> Result<Vec<PeerValue>> {
    let mut values = Vec::new();
    let mut failed = 0;
    for (sessions, line) in LOADS {
        let home = environment.home(peer, StorageKind::Disk)?;
        let running = home.start().await?;
        let mut client = running.client().await?;
        client.run("agent:main:first", CHUNKS).await?;
        let mut clients = vec![client];
        while clients.len() * SESSIONS_PER_SOCKET < sessions {
            clients.push(running.client().await?);
        }
        let tasks = clients.iter_mut().enumerate().map(|(number, client)| {
            let share = SESSIONS_PER_SOCKET.min(sessions - number * SESSIONS_PER_SOCKET);
            async move { client.load_for(share, &format!("load-{number}"), LOAD_TIME, PLAIN).await }
        });
        let loads = try_join_all(tasks).await?;
        values.push((line, loads.iter().map(|load| load.succeeded as f64 / load.elapsed.as_secs_f64()).sum()));
        failed += loads.iter().map(|load| load.failed).sum::<usize>();
    }
    values.push(("load-bad", failed as f64));
    Ok(values)
}

/// Measures memory and CPU time after many runs.
pub(super) async fn after(environment: &PeerEnvironment, peer: &Peer) -> Result<Vec<PeerValue>> {
    let home = environment.home(peer, StorageKind::Disk)?;
    let running = home.start().await?;
    let mut client = running.client().await?;
    let (started_at, mut succeeded, mut slice) = (Instant::now(), 0, 0);
    while succeeded < RUNS_BEFORE_MEMORY && started_at.elapsed() < TIME_BEFORE_MEMORY {
        succeeded += client.load_for(10, &format!("after-{slice}"), SLICE, PLAIN).await?.succeeded;
        slice += 1;
    }
    let before = running.cpu_time()?;
    let last = client.load_for(10, "last", 2 * SLICE, PLAIN).await?;
    let cpu_time = running.cpu_time()?.saturating_sub(before);
    ensure!(last.succeeded > 0, "no run ended within {:?}", last.elapsed);
    sleep(SETTLE).await;
    Ok(vec![
        ("rss-after", megabytes(running.memory()?)),
        ("runs-before", (succeeded + last.succeeded) as f64),
        ("cpu-after", milliseconds(cpu_time) / last.succeeded as f64),
    ])
}
