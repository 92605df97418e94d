//! Messages to one busy session: how long until the last of the queued ones is answered.
//!
//! Each gets a turn of its own, for which the model waits a while; the rest is the cost of ending a turn and starting
//! the next.

use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::time::Instant;

use super::{client::Client, direct::Direct, model::Model, report::Report};
use crate::gateway::{self, Gateway};

/// Number of queued messages.
pub(super) const MESSAGES: usize = 50;
/// Their text, and the number of chunks that it requests.
const TEXT: &str = "wait=5 chunks=20";
const CHUNKS: usize = 20;
/// Message that keeps the session busy: longer than it takes to send the others.
const BUSY: &str = "wait=1000 chunks=1";

/// Measures, and checks that all are answered, each once and in order.
pub(super) async fn measure(gateway: &Gateway, model: &Model, report: &mut Report) -> Result<()> {
    let session = "agent:main:drain";
    let mut client = Client::connect(gateway.port(), gateway::TOKEN).await?;
    let served = model.served();
    let busy = client.say(session, BUSY, "started").await?;
    let mut waiting = Vec::new();
    for _ in 0..MESSAGES {
        waiting.push(client.say(session, TEXT, "queued").await?);
    }
    ensure!(client.over().await? == busy, "another run ended before the one that kept the session busy");
    let start = Instant::now();
    let mut answered = Vec::new();
    for _ in 0..MESSAGES {
        answered.push(client.over().await?);
    }
    let took = start.elapsed();
    ensure!(answered == waiting, "the messages {waiting:?} were answered as {answered:?}");
    let asked = model.served() - served;
    ensure!(asked == MESSAGES + 1, "the model was asked {asked} times for {MESSAGES} messages and the one before");
    let mut direct = Direct::connect(model.port()).await?;
    let mut straight = Duration::ZERO;
    for _ in 0..MESSAGES {
        straight += direct.ask(TEXT, CHUNKS).await?;
    }
    report.drain(MESSAGES, took, straight);
    Ok(())
}
