//! Long streams, queues and histories.

use std::{
    fs::{self, File},
    io::BufWriter,
    time::Duration,
};

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    environment::{PeerEnvironment, PeerValue},
    peer::{Peer, StorageKind},
};
use crate::bench::{
    direct::DirectClient,
    report::{milliseconds, percentile},
    turn,
};

/// Streams: number of chunks, and maximum number of streams; as many as fit into this time.
const STREAMS: [(usize, usize); 2] = [(250, 256), (4_000, 16)];
const STREAMING: Duration = Duration::from_secs(12);

/// Number of messages to one session, and their text: 20 ms of the model's time.
const MESSAGES: usize = 50;
const QUESTION: &str = "wait=20 chunks=20";

/// History: number of messages, and length of each.
const LENGTH: usize = 5_000;
const SIZE: usize = 1_000;
/// Context window that fits all of it, in tokens.
const WINDOW: u32 = 4_000_000;
/// Number of turns after it, and in a session without it.
const TURNS: usize = 10;

/// Measures the CPU time of streams.
pub(super) async fn stream(environment: &PeerEnvironment, peer: &Peer) -> Result<Vec<PeerValue>> {
    let home = environment.home(peer, StorageKind::Memory)?;
    let running = home.start().await?;
    let mut client = running.client().await?;
    client.run("agent:main:first", 20).await?;
    let mut each = Vec::new();
    for (chunks, max) in STREAMS {
        let (started_at, before, mut count) = (Instant::now(), running.cpu_time()?, 0);
        while count < max && (count == 0 || started_at.elapsed() < STREAMING) {
            client.run(&format!("agent:main:stream-{chunks}-{count}"), chunks).await?;
            count += 1;
        }
        each.push(milliseconds(running.cpu_time()?.saturating_sub(before)) / count as f64);
    }
    let [short, long] = each[..] else { bail!("expected two stream lengths") };
    Ok(vec![("stream", long), ("chunk-250", short * 1e3 / 250.0), ("chunk-4000", long * 1e3 / 4e3)])
}

/// Measures messages that arrive all at once.
pub(super) async fn busy(environment: &PeerEnvironment, peer: &Peer) -> Result<Vec<PeerValue>> {
    let home = environment.home(peer, StorageKind::Disk)?;
    let running = home.start().await?;
    let mut client = running.client().await?;
    client.run("agent:main:first", 20).await?;
    let (elapsed, misplaced) = client.burst("agent:main:busy", MESSAGES, QUESTION).await?;
    Ok(vec![("busy", elapsed.as_secs_f64()), ("disorder", misplaced as f64)])
}

/// Measures the additional time of a turn after a long history, compared with the time that the model itself needs to
/// read it.
pub(super) async fn history(environment: &PeerEnvironment, peer: &Peer) -> Result<Vec<PeerValue>> {
    match peer {
        Peer::Floor(_) => bail!("the floor has no history"),
        Peer::OpenClaw(installed) if installed.protocol > 3 => bail!("sessions are stored in a database"),
        Peer::Homard(_) | Peer::OpenClaw(_) => {}
    }
    let home = peer.home(StorageKind::Memory, environment.model.port(), WINDOW)?;
    let folder = home.state().join("agents/main/sessions");
    fs::create_dir_all(&folder)?;
    let id = "00000000-0000-4000-8000-000000000001";
    let path = folder.join(format!("{id}.jsonl"));
    turn::write(BufWriter::new(File::create(&path)?), id, LENGTH, SIZE, false)?;
    // OpenClaw requires this field.
    let usage_field = r#""usage":{"input":10,"output":250,"cacheRead":0,"cacheWrite":0,"totalTokens":260,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0}},"stopReason""#;
    fs::write(&path, fs::read_to_string(&path)?.replace(r#""stopReason""#, usage_field))?;
    let record = json!({"agent:main:long": {"sessionId": id, "updatedAt": turn::TIME}});
    fs::write(folder.join("sessions.json"), record.to_string())?;

    let running = home.start().await?;
    let (mut client, mut direct) = (running.client().await?, DirectClient::connect(environment.model.port()).await?);
    for session in ["agent:main:short", "agent:main:long"] {
        client.run(session, 1).await?;
    }
    let (short, long) = conversations();
    let (mut with, mut without, mut direct_times) = (Vec::new(), Vec::new(), [Vec::new(), Vec::new()]);
    for _ in 0..TURNS {
        without.push(client.run("agent:main:short", 1).await?);
        with.push(client.run("agent:main:long", 1).await?);
        direct_times[0].push(direct.request_all(&short, 1).await?);
        direct_times[1].push(direct.request_all(&long, 1).await?);
    }
    let received = environment.model.longest();
    ensure!(received > LENGTH * SIZE, "the model received only {received} bytes of the history");
    let additional = percentile(&with, 50) - percentile(&without, 50);
    Ok(vec![("history", additional - (percentile(&direct_times[1], 50) - percentile(&direct_times[0], 50)))])
}

/// Returns the model requests of the two sessions.
fn conversations() -> (Vec<Value>, Vec<Value>) {
    let last = json!({"role": "user", "content": "chunks=1"});
    let text = "All about the house by the sea. ".repeat(SIZE / 32 + 1);
    let message = |index: usize| {
        let role = if index.is_multiple_of(2) { "user" } else { "assistant" };
        json!({"role": role, "content": &text[..SIZE]})
    };
    (vec![last.clone()], (0..LENGTH).map(message).chain([last]).collect())
}
