//! Many at once: sockets that watch one run, and idle sockets and sessions.

use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::{task::JoinSet, time::sleep};

use super::{
    environment::{PeerEnvironment, PeerValue},
    peer::{Peer, RunningPeer, StorageKind},
};
use crate::bench::client::BenchClient;

/// Number of watching sockets, for quick peers and others, and the run: two seconds of a steady stream.
const WATCHERS: [usize; 2] = [1_000, 100];
const WATCHED: &str = "pace=10 chunks=200";
/// Number of concurrent connection attempts.
const AT_ONCE: usize = 16;

/// Number of idle sockets, for quick peers and others.
const LISTENERS: [usize; 2] = [2_000, 200];
const SETTLE: Duration = Duration::from_secs(2);
/// Sessions with one run each: those that warm up a gateway, and those that are measured.
const SESSIONS: [usize; 2] = [2_000, 4_000];
/// Time after which a session counts as idle.
const IDLE: Duration = Duration::from_secs(35);

async fn connect_many(running: &RunningPeer, size: usize) -> Result<Vec<BenchClient>> {
    let mut clients = Vec::with_capacity(size);
    while clients.len() < size {
        let connecting = (0..AT_ONCE.min(size - clients.len())).map(|_| running.client());
        clients.extend(futures_util::future::try_join_all(connecting).await?);
    }
    Ok(clients)
}

/// Measures one run that all sockets watch to its end.
pub(super) async fn fanout(environment: &PeerEnvironment, peer: &Peer) -> Result<Vec<PeerValue>> {
    let home = environment.home(peer, StorageKind::Memory)?;
    let running = home.start().await?;
    let mut starter = running.client().await?;
    starter.run("agent:main:first", 20).await?;
    let sockets = WATCHERS[usize::from(!peer.is_quick())];
    let readers = connect_many(&running, sockets).await?;
    sleep(SETTLE).await;
    let session = "agent:main:watched";
    let before = running.cpu_time()?;
    let mut reading: JoinSet<Result<usize>> = JoinSet::new();
    for mut reader in readers {
        reading.spawn(async move { reader.watch(session).await });
    }
    starter.run_text(session, WATCHED).await?;
    let mut frames = 0;
    while let Some(events) = reading.join_next().await {
        frames += events??;
    }
    let cpu_time = running.cpu_time()?.saturating_sub(before);
    ensure!(frames > 0, "no client received a frame");
    Ok(vec![("fanout", cpu_time.as_secs_f64() * 1e6 / frames as f64), ("sockets", sockets as f64)])
}

/// Measures the memory of idle sockets and sessions.
pub(super) async fn idle(environment: &PeerEnvironment, peer: &Peer) -> Result<Vec<PeerValue>> {
    let home = environment.home(peer, StorageKind::Memory)?;
    let running = home.start().await?;
    let mut client = running.client().await?;
    client.run("agent:main:first", 20).await?;
    let sockets = LISTENERS[usize::from(!peer.is_quick())];
    sleep(SETTLE).await;
    let before = running.memory()?;
    let idle_clients = connect_many(&running, sockets).await?;
    sleep(SETTLE).await;
    let socket = kilobytes(running.memory()?, before, sockets);
    drop(idle_clients);
    let mut values = vec![("socket", socket)];
    if matches!(peer, Peer::Homard(_)) {
        let [first, more] = SESSIONS;
        make_sessions(&mut client, 0..first).await?;
        sleep(IDLE).await;
        let (before, files) = (running.memory()?, running.open_files()?);
        make_sessions(&mut client, first..first + more).await?;
        sleep(IDLE).await;
        values.push(("session", kilobytes(running.memory()?, before, more)));
        values.push(("session-files", running.open_files()?.saturating_sub(files) as f64 / more as f64));
    }
    Ok(values)
}

async fn make_sessions(client: &mut BenchClient, numbers: std::ops::Range<usize>) -> Result<()> {
    let keys: Vec<String> = numbers.map(|number| format!("agent:main:idle-{number}")).collect();
    // No more at once than a gateway accepts.
    for keys in keys.chunks(100) {
        client.load(keys, 1, 20).await?;
    }
    Ok(())
}

fn kilobytes(after: u64, before: u64, count: usize) -> f64 {
    after.saturating_sub(before) as f64 / 1024.0 / count as f64
}
