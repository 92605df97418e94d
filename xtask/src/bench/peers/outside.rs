//! What is visible from outside: the files that a run writes, and one message from the command line.

use std::{fs, process::Stdio, time::Duration};

use anyhow::{Context, Result, ensure};
use tokio::{
    process::Command,
    time::{Instant, sleep},
};

use super::{
    environment::{PeerEnvironment, PeerValue},
    peer::{Peer, StorageKind},
};
use crate::{
    bench::{disk, report::percentile},
    setup,
};

/// Number of runs whose writes are counted, for quick peers and others, and the chunks of each.
const RUNS: [usize; 2] = [200, 20];
const CHUNKS: usize = 20;
/// Time to wait for background work, which belongs to the runs before it.
const BACKGROUND: Duration = Duration::from_secs(4);

/// Number of messages, for quick peers and others.
const QUESTIONS: [usize; 2] = [15, 2];

/// Counts the file writes of a plain run with `strace`.
pub(super) async fn writes(environment: &PeerEnvironment, peer: &Peer) -> Result<Vec<PeerValue>> {
    ensure!(setup::is_installed("strace"), "strace is not installed");
    let home = environment.home(peer, StorageKind::Disk)?;
    // Outside of the home: the tracer's own output must not count.
    let trace = environment.folder.join("strace.txt");
    fs::write(&trace, "")?;
    let running = home.start_through(&disk::strace(&trace)).await?;
    let mut client = running.client().await?;
    let runs = RUNS[usize::from(!peer.is_quick())];
    let folder = home.folder().canonicalize()?;
    let read =
        || anyhow::Ok(disk::count(&fs::read_to_string(&trace).context("cannot read the output of strace")?, &folder));
    for _ in 0..3 {
        client.run("agent:main:writes", CHUNKS).await?;
    }
    sleep(BACKGROUND).await;
    let before = read()?;
    for _ in 0..runs {
        client.run("agent:main:writes", CHUNKS).await?;
    }
    sleep(BACKGROUND).await;
    let after = read()?;
    let each = |after: u64, before: u64| (after - before) as f64 / runs as f64;
    Ok(vec![("write-calls", each(after.calls, before.calls)), ("written", each(after.bytes, before.bytes) / 1024.0)])
}

/// Measures one message, from the start of the program to its end.
pub(super) async fn once(environment: &PeerEnvironment, peer: &Peer) -> Result<Vec<PeerValue>> {
    let home = environment.home(peer, StorageKind::Disk)?;
    let mut times = Vec::new();
    // The first one creates the home.
    for _ in 0..=QUESTIONS[usize::from(!peer.is_quick())] {
        let start = Instant::now();
        let mut command = Command::from(home.once("chunks=20"));
        let output = command.stderr(Stdio::piped()).kill_on_drop(true).output().await?;
        times.push(start.elapsed());
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        ensure!(stdout.contains("tok0 tok1 tok2"), "the answer should be on stdout: {stdout:?} {stderr:?}");
    }
    Ok(vec![("once", percentile(&times[1..], 50))])
}
