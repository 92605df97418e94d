//! Durable acknowledgements per second, compared with the bare disk at the same moment.
//!
//! The model never answers here, so the runs stay queued, and only the path of a message to disk is measured.

use std::{fs::OpenOptions, io::Write, path::Path, time::Duration};

use anyhow::{Context, Result};
use futures_util::future::try_join_all;
use tokio::time::Instant;

use super::{client::BenchClient, report::BenchReport};
use crate::gateway::{self, RunningGateway};

/// Numbers of concurrent clients.
const CLIENTS: [usize; 3] = [1, 16, 256];
/// Time during which each number of clients sends.
const SEND_TIME: Duration = Duration::from_secs(3);
/// Time during which the bare disk is measured before each.
const SYNC_TIME: Duration = Duration::from_secs(1);
/// Length of a message.
const MESSAGE_BYTES: usize = 1024;

/// R18: measures the time until a message is acknowledged, and the acknowledgements per second, with each number of clients.
pub(super) async fn measure(gateway: &RunningGateway, report: &mut BenchReport) -> Result<()> {
    for clients in CLIENTS {
        let syncs = bare_syncs(&gateway.state())?;
        let mut connected = Vec::new();
        for _ in 0..clients {
            connected.push(BenchClient::connect(gateway.port(), gateway::TOKEN).await?);
        }
        let text = format!("hang {}", "x".repeat(MESSAGE_BYTES));
        let (started_at, end) = (Instant::now(), Instant::now() + SEND_TIME);
        let sends = connected.iter_mut().enumerate().map(|(number, client)| {
            let session = format!("agent:main:acks-{clients}-{number}");
            let text = &text;
            async move { client.send_until(end, &session, text).await }
        });
        let times = try_join_all(sends).await?.concat();
        report.acks(clients, &times, started_at.elapsed(), syncs);
    }
    Ok(())
}

/// Returns how often per second a line can be appended to a file and synced.
pub(super) fn bare_syncs(folder: &Path) -> Result<f64> {
    let path = folder.join("bare-syncs.tmp");
    let mut file =
        OpenOptions::new().create(true).append(true).open(&path).context("cannot write to the journal's directory")?;
    let (started_at, line, mut count) = (Instant::now(), vec![b'x'; MESSAGE_BYTES], 0u32);
    while started_at.elapsed() < SYNC_TIME {
        file.write_all(&line).and_then(|()| file.sync_data())?;
        count += 1;
    }
    let rate = f64::from(count) / started_at.elapsed().as_secs_f64();
    std::fs::remove_file(&path)?;
    Ok(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bare_disk_syncs_and_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        assert!(bare_syncs(folder.path()).unwrap() > 0.0);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
