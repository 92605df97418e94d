//! Durable acknowledgements per second, compared with the bare disk at the same moment.
//!
//! The model never answers here, so the runs stay queued, and only the path of a message to disk is measured.

use std::{fs::OpenOptions, io::Write, path::Path, time::Duration};

use anyhow::{Context, Result};
use futures_util::future::try_join_all;
use tokio::time::Instant;

use super::{client::Client, report::Report};
use crate::gateway::{self, Gateway};

/// Numbers of concurrent clients.
const CLIENTS: [usize; 3] = [1, 16, 256];
/// Time during which each number of clients sends.
const SENDING: Duration = Duration::from_secs(3);
/// Time during which the bare disk is measured before each.
const SYNCING: Duration = Duration::from_secs(1);
/// Length of a message.
const MESSAGE: usize = 1024;

/// Measures with each number of clients.
pub(super) async fn measure(gateway: &Gateway, report: &mut Report) -> Result<()> {
    for clients in CLIENTS {
        let syncs = bare_syncs(&gateway.state())?;
        let mut connected = Vec::new();
        for _ in 0..clients {
            connected.push(Client::connect(gateway.port(), gateway::TOKEN).await?);
        }
        let text = format!("hang {}", "x".repeat(MESSAGE));
        let (begun, end) = (Instant::now(), Instant::now() + SENDING);
        let sending = connected.iter_mut().enumerate().map(|(number, client)| {
            let session = format!("agent:main:acks-{clients}-{number}");
            let text = &text;
            async move { client.send_until(end, &session, text).await }
        });
        let took = try_join_all(sending).await?.concat();
        report.acks(clients, &took, begun.elapsed(), syncs);
    }
    Ok(())
}

/// Returns how often per second a line can be appended to a file and synced.
pub(super) fn bare_syncs(folder: &Path) -> Result<f64> {
    let path = folder.join("bare-syncs.tmp");
    let mut file =
        OpenOptions::new().create(true).append(true).open(&path).context("cannot write beside the journal")?;
    let (begun, line, mut count) = (Instant::now(), vec![b'x'; MESSAGE], 0u32);
    while begun.elapsed() < SYNCING {
        file.write_all(&line).and_then(|()| file.sync_data())?;
        count += 1;
    }
    let rate = f64::from(count) / begun.elapsed().as_secs_f64();
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
