//! Ten thousand idle sockets: how soon they are all connected, how much memory each needs, and whether the response
//! time of other clients suffers.
//!
//! R28, in full.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Result, anyhow};
use serde_json::json;
use tokio::time::Instant;

use super::{client::BenchClient, process, report::BenchReport};
use crate::gateway::{self, RunningGateway};

/// Number of idle sockets.
const SOCKETS: usize = 10_000;
/// Number of concurrent connection attempts: the gateway limits unauthenticated connections.
const AT_ONCE: usize = 16;
/// Duration of a measurement: before the sockets connect, and while they are idle.
const LISTENING: Duration = Duration::from_secs(5);
/// Interval between two requests of the probe.
const BETWEEN: Duration = Duration::from_millis(5);

/// Measurements.
#[derive(Debug)]
pub(super) struct SocketsResult {
    pub(super) sockets: usize,
    /// Time to connect all sockets.
    pub(super) connected: Duration,
    /// Additional memory of the gateway in bytes.
    pub(super) memory: u64,
    /// Response times of the probe: without other sockets, while they connect, and while they are idle.
    pub(super) alone: Vec<Duration>,
    pub(super) storm: Vec<Duration>,
    pub(super) idle: Vec<Duration>,
}

/// Measures a gateway that has no sockets yet.
pub(super) async fn measure(gateway: &RunningGateway, report: &mut BenchReport) -> Result<()> {
    let port = gateway.port();
    // Warm-up costs of the first connection must not count.
    let probe = HealthProbe::start(port);
    thread::sleep(LISTENING);
    let alone = probe.stop()?;
    let before = process::memory(gateway.pid())?;

    let probe = HealthProbe::start(port);
    let started_at = Instant::now();
    let mut clients = Vec::with_capacity(SOCKETS);
    while clients.len() < SOCKETS {
        let connecting = (0..AT_ONCE.min(SOCKETS - clients.len())).map(|_| BenchClient::connect(port, gateway::TOKEN));
        clients.extend(futures_util::future::try_join_all(connecting).await?);
    }
    let connected = started_at.elapsed();
    let storm = probe.stop()?;

    let probe = HealthProbe::start(port);
    thread::sleep(LISTENING);
    let idle = probe.stop()?;
    let memory = process::memory(gateway.pid())?.saturating_sub(before);
    report.sockets(&SocketsResult { sockets: SOCKETS, connected, memory, alone, storm, idle });
    drop(clients);
    Ok(())
}

/// A probe that requests the gateway's health repeatedly, in a thread of its own.
struct HealthProbe {
    is_over: Arc<AtomicBool>,
    thread: thread::JoinHandle<Result<Vec<Duration>>>,
}

impl HealthProbe {
    fn start(port: u16) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&is_over);
        let handle = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let mut client = BenchClient::connect(port, gateway::TOKEN).await?;
                let mut times = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    times.push(client.call("health", json!({})).await?.0);
                    tokio::time::sleep(BETWEEN).await;
                }
                Ok(times)
            })
        });
        Self { is_over, thread: handle }
    }

    /// Stops the probe and returns the response times.
    fn stop(self) -> Result<Vec<Duration>> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_panic| anyhow!("the health probe panicked"))?
    }
}
