//! One run watched by many sockets: the cost of a delivered frame, and whether a reader that does not read slows down
//! the others.

use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::{task::JoinSet, time::Instant};

use super::{client::BenchClient, process, report::BenchReport};
use crate::gateway::{self, RunningGateway};

/// Numbers of sockets, and how many runs they watch: enough frames to measure, but not too slow.
const WATCHERS: [(usize, usize); 4] = [(1, 4), (10, 4), (100, 2), (1_000, 1)];
/// Message of a run. Its answer is a steady stream of two seconds; the gateway coalesces the text of several chunks into
/// one frame.
const TEXT: &str = "pace=10 chunks=200";
/// Number of runs that are watched by a reader and by a client that does not read. Each frame contains the whole text so
/// far, so this is more than all buffers hold, and the client that does not read is disconnected meanwhile.
const BESIDE: usize = 5;
const LONG: &str = "pace=10 size=500 chunks=200";

/// Measurements of some runs.
struct FanoutResult {
    /// Average time from the request to the last frame.
    each: Duration,
    /// CPU time of the gateway for all of them.
    cpu_time: Duration,
    /// Number of delivered frames.
    frames: usize,
}

/// Measures, and checks that every reader receives everything.
pub(super) async fn measure(gateway: &RunningGateway, report: &mut BenchReport) -> Result<()> {
    let mut starter = BenchClient::connect(gateway.port(), gateway::TOKEN).await?;
    // The first run of a gateway warms it up.
    run_watched(gateway, &mut starter, &mut Vec::new(), WatchedRuns { name: "warm", runs: 1, text: TEXT }).await?;
    let mut readers = Vec::new();
    for (count, runs) in WATCHERS {
        while readers.len() < count {
            readers.push(BenchClient::connect(gateway.port(), gateway::TOKEN).await?);
        }
        let result = run_watched(
            gateway,
            &mut starter,
            &mut readers,
            WatchedRuns { name: &format!("by-{count}"), runs, text: TEXT },
        )
        .await?;
        report.fanout(count, result.cpu_time, result.frames);
    }
    readers.truncate(1);
    let before =
        run_watched(gateway, &mut starter, &mut readers, WatchedRuns { name: "before", runs: BESIDE, text: LONG })
            .await?;
    let mut silent = BenchClient::connect(gateway.port(), gateway::TOKEN).await?;
    let beside_silent =
        run_watched(gateway, &mut starter, &mut readers, WatchedRuns { name: "beside", runs: BESIDE, text: LONG })
            .await?;
    let events = silent.watch(&session("beside", BESIDE - 1)).await;
    ensure!(events.is_err(), "a client that did not read received all events: {events:?}");
    report.beside_silent(before.each, beside_silent.each);
    Ok(())
}

/// Sequential runs that are watched.
struct WatchedRuns<'a> {
    /// Beginning of the names of their sessions.
    name: &'a str,
    runs: usize,
    /// Message of each.
    text: &'a str,
}

/// Makes sequential runs that all readers watch.
async fn run_watched(
    gateway: &RunningGateway,
    starter: &mut BenchClient,
    readers: &mut Vec<BenchClient>,
    WatchedRuns { name, runs, text }: WatchedRuns<'_>,
) -> Result<FanoutResult> {
    let (before, start) = (process::threads_cpu_time(gateway.pid())?, Instant::now());
    let mut frames = 0;
    for run in 0..runs {
        let session = session(name, run);
        let mut reading: JoinSet<Result<(BenchClient, usize)>> = JoinSet::new();
        for mut reader in readers.drain(..) {
            let session = session.clone();
            reading.spawn(async move {
                let events = reader.watch(&session).await?;
                Ok((reader, events))
            });
        }
        starter.run_text(&session, text).await?;
        let mut event_counts = Vec::new();
        while let Some(joined) = reading.join_next().await {
            let (reader, events) = joined??;
            readers.push(reader);
            event_counts.push(events);
        }
        ensure!(
            event_counts.windows(2).all(|pair| pair[0] == pair[1]),
            "the subscribers of one run received different numbers of events: {event_counts:?}"
        );
        // The client that started the run received it as well.
        frames += event_counts.iter().chain(event_counts.first()).sum::<usize>();
    }
    let cpu_time = process::threads_cpu_time(gateway.pid())?.saturating_sub(before);
    Ok(FanoutResult { each: start.elapsed() / runs.try_into()?, cpu_time, frames })
}

/// Returns a session for each run, so that none has a long history.
fn session(name: &str, run: usize) -> String {
    format!("agent:main:fanout-{name}-{run}")
}
