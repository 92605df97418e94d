//! Messages to one busy session: how long until the last of the queued ones is answered.
//!
//! Each gets a turn of its own, for which the model waits a while; the rest is the cost of ending a turn and starting
//! the next.

use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::time::Instant;

use super::{client::BenchClient, direct::DirectClient, model::BenchModel, report::BenchReport};
use crate::gateway::{self, RunningGateway};

/// Number of queued messages.
pub(super) const MESSAGES: usize = 50;
/// Their text, and the number of chunks that it requests.
const TEXT: &str = "wait=5 chunks=20";
const CHUNKS: usize = 20;
/// Message that keeps the session busy: longer than it takes to send the others.
const BUSY: &str = "wait=1000 chunks=1";

/// Measures, and checks that all are answered, each once and in order.
pub(super) async fn measure(gateway: &RunningGateway, model: &BenchModel, report: &mut BenchReport) -> Result<()> {
    let session = "agent:main:drain";
    let mut client = BenchClient::connect(gateway.port(), gateway::TOKEN).await?;
    let served = model.served();
    let busy = client.chat_send(session, BUSY, "started").await?;
    let mut queued = Vec::new();
    for _ in 0..MESSAGES {
        queued.push(client.chat_send(session, TEXT, "queued").await?);
    }
    ensure!(client.next_final().await? == busy, "another run ended before the one that kept the session busy");
    let start = Instant::now();
    let mut answered = Vec::new();
    for _ in 0..MESSAGES {
        answered.push(client.next_final().await?);
    }
    let elapsed = start.elapsed();
    ensure!(answered == queued, "the runs {queued:?} ended in the order {answered:?}");
    let requests = model.served() - served;
    ensure!(
        requests == MESSAGES + 1,
        "expected one model request for each of {MESSAGES} messages and the first one, but got {requests}"
    );
    let mut direct = DirectClient::connect(model.port()).await?;
    let mut direct_time = Duration::ZERO;
    for _ in 0..MESSAGES {
        direct_time += direct.request(TEXT, CHUNKS).await?;
    }
    report.drain(MESSAGES, elapsed, direct_time);
    Ok(())
}
