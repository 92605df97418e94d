//! Ten thousand sockets that only listen: how soon they are all in, what each of them holds in memory, and whether
//! somebody else is answered as quickly as before.
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

use super::{client::Client, process, report::Report};
use crate::gateway::{self, Gateway};

/// How many listen.
const SOCKETS: usize = 10_000;
/// How many come in at once: the gateway lets few strangers wait at its door.
const AT_ONCE: usize = 16;
/// How long they listen.
const LISTENING: Duration = Duration::from_secs(5);
/// How long somebody waits between two questions.
const BETWEEN: Duration = Duration::from_millis(5);

/// What was measured.
#[derive(Debug)]
pub(super) struct Crowd {
    pub(super) sockets: usize,
    /// From the first to the last.
    pub(super) connected: Duration,
    /// What the gateway holds more than before, in bytes.
    pub(super) memory: u64,
    /// How soon somebody else was answered: with nobody there, while they came in, and while they listened.
    pub(super) alone: Vec<Duration>,
    pub(super) storm: Vec<Duration>,
    pub(super) idle: Vec<Duration>,
}

/// Measures a gateway that has no sockets yet.
pub(super) async fn measure(gateway: &Gateway, report: &mut Report) -> Result<()> {
    let port = gateway.port();
    // What the first connection finds cold is not theirs.
    let probe = Probe::start(port);
    thread::sleep(LISTENING);
    let alone = probe.stop()?;
    let before = process::memory(gateway.pid())?;

    let probe = Probe::start(port);
    let begun = Instant::now();
    let mut crowd = Vec::with_capacity(SOCKETS);
    while crowd.len() < SOCKETS {
        let coming = (0..AT_ONCE.min(SOCKETS - crowd.len())).map(|_| Client::connect(port, gateway::TOKEN));
        crowd.extend(futures_util::future::try_join_all(coming).await?);
    }
    let connected = begun.elapsed();
    let storm = probe.stop()?;

    let probe = Probe::start(port);
    thread::sleep(LISTENING);
    let idle = probe.stop()?;
    let memory = process::memory(gateway.pid())?.saturating_sub(before);
    report.sockets(&Crowd { sockets: SOCKETS, connected, memory, alone, storm, idle });
    drop(crowd);
    Ok(())
}

/// Somebody who asks how the gateway is, again and again, from a thread of its own.
struct Probe {
    is_over: Arc<AtomicBool>,
    asking: thread::JoinHandle<Result<Vec<Duration>>>,
}

impl Probe {
    fn start(port: u16) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&is_over);
        let asking = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let mut client = Client::connect(port, gateway::TOKEN).await?;
                let mut took = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    took.push(client.call("health", json!({})).await?.0);
                    tokio::time::sleep(BETWEEN).await;
                }
                Ok(took)
            })
        });
        Self { is_over, asking }
    }

    /// How long each answer took.
    fn stop(self) -> Result<Vec<Duration>> {
        self.is_over.store(true, Ordering::Relaxed);
        self.asking.join().map_err(|_panic| anyhow!("the one who asks for the gateway's health broke off"))?
    }
}
