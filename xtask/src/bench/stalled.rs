//! Stalled readers: how much memory a thousand of them need while a hundred runs stream, and whether an active reader
//! is affected.
//!
//! R26, in full.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{client::BenchClient, process, report::BenchReport};
use crate::gateway::{self, RunningGateway};

/// Number of stalled readers.
const STALLED: usize = 1_000;
/// Number of concurrent connection attempts.
const AT_ONCE: usize = 16;
/// Number of concurrent runs.
const RUNS: usize = 100;
/// Message of each: two seconds of a stream.
const TEXT: &str = "pace=20 size=20 chunks=100";

/// Measurements.
#[derive(Debug)]
pub(super) struct StalledResult {
    pub(super) readers: usize,
    /// Maximum additional memory of the gateway in bytes.
    pub(super) memory: u64,
    /// Intervals between deltas of one answer, as an active reader sees them: alone, and beside the stalled ones.
    pub(super) alone: Vec<Duration>,
    pub(super) beside: Vec<Duration>,
}

/// Returns the config with enough slots for all runs.
pub(super) fn config(mut config: Value) -> Value {
    config["agents"]["defaults"]["maxConcurrent"] = json!(RUNS);
    config
}

/// Measures the intervals between deltas for an active reader, first alone and then beside the stalled ones, and the
/// memory that the stalled ones cost. The gateway must be new, because its peak memory counts.
pub(super) async fn measure(gateway: &RunningGateway, report: &mut BenchReport) -> Result<()> {
    let mut reader = BenchClient::connect(gateway.port(), gateway::TOKEN).await?;
    // Warm-up.
    read_runs(&mut reader, "first").await?;
    let alone = read_runs(&mut reader, "alone").await?;
    // These clients never read from their sockets.
    let mut stalled = Vec::new();
    while stalled.len() < STALLED {
        let connecting =
            (0..AT_ONCE.min(STALLED - stalled.len())).map(|_| BenchClient::connect(gateway.port(), gateway::TOKEN));
        stalled.extend(futures_util::future::try_join_all(connecting).await?);
    }
    let peak_before = process::peak_memory(gateway.pid())?;
    let beside = read_runs(&mut reader, "beside").await?;
    let memory = process::peak_memory(gateway.pid())?.saturating_sub(peak_before);
    report.stopped(&StalledResult { readers: STALLED, memory, alone, beside });
    drop(stalled);
    Ok(())
}

/// Starts all runs and reads them to their ends.
async fn read_runs(reader: &mut BenchClient, name: &str) -> Result<Vec<Duration>> {
    let sessions: Vec<_> = (0..RUNS).map(|run| format!("agent:main:stopped-{name}-{run}")).collect();
    let (gaps, ends) = reader.stream_all(&sessions, TEXT).await?;
    ensure!(ends == RUNS, "the reading client received the end of {ends} of {RUNS} runs");
    Ok(gaps)
}
