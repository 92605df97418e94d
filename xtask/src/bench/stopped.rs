//! Readers that stopped: what a thousand of them hold in memory while a hundred runs stream, and whether somebody who
//! reads notices.
//!
//! R26, in full.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{client::Client, process, report::Report};
use crate::gateway::{self, Gateway};

/// How many do not read.
const STOPPED: usize = 1_000;
/// How many come in at once.
const AT_ONCE: usize = 16;
/// How many runs are at work at once.
const RUNS: usize = 100;
/// What each of them says, for two seconds.
const TEXT: &str = "pace=20 size=20 chunks=100";

/// What was measured.
#[derive(Debug)]
pub(super) struct Stopped {
    pub(super) readers: usize,
    /// What the gateway held more than before, at most, in bytes.
    pub(super) memory: u64,
    /// The times between two pieces of one answer, as somebody heard them who reads: alone, and beside the others.
    pub(super) alone: Vec<Duration>,
    pub(super) beside: Vec<Duration>,
}

/// The config with room for all runs at once.
pub(super) fn config(mut config: Value) -> Value {
    config["agents"]["defaults"]["maxConcurrent"] = json!(RUNS);
    config
}

/// Measures a gateway that nobody has used.
pub(super) async fn measure(gateway: &Gateway, report: &mut Report) -> Result<()> {
    let mut reader = Client::connect(gateway.port(), gateway::TOKEN).await?;
    // The first time everything is cold.
    hear(&mut reader, "first").await?;
    let alone = hear(&mut reader, "alone").await?;
    let mut stopped = Vec::new();
    while stopped.len() < STOPPED {
        let coming = (0..AT_ONCE.min(STOPPED - stopped.len())).map(|_| Client::connect(gateway.port(), gateway::TOKEN));
        stopped.extend(futures_util::future::try_join_all(coming).await?);
    }
    let before = process::peak_memory(gateway.pid())?;
    let beside = hear(&mut reader, "beside").await?;
    let memory = process::peak_memory(gateway.pid())?.saturating_sub(before);
    report.stopped(&Stopped { readers: STOPPED, memory, alone, beside });
    drop(stopped);
    Ok(())
}

/// Starts all runs and hears them to their ends.
async fn hear(reader: &mut Client, name: &str) -> Result<Vec<Duration>> {
    let sessions: Vec<_> = (0..RUNS).map(|run| format!("agent:main:stopped-{name}-{run}")).collect();
    let (gaps, ends) = reader.hear(&sessions, TEXT).await?;
    ensure!(ends == RUNS, "of {RUNS} runs somebody who reads heard {ends} to their ends");
    Ok(gaps)
}
