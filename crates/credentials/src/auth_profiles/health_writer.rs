//! Persists cooldowns: changes do not wait for the disk; the file is written at intervals.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use homard_model::profile_health::{HealthStats, HealthTracker, ProfileHealth};
use homard_runtime::task;
use tokio::{sync::watch, task::JoinHandle, time::sleep};
use tokio_util::sync::CancellationToken;

use super::file;
use crate::Error;

/// Minimum time between two writes.
const WRITE_INTERVAL: Duration = Duration::from_secs(3);

/// The health state to persist, and the file.
#[derive(Debug)]
pub struct HealthWriter {
    path: PathBuf,
    changes: watch::Receiver<ProfileHealth>,
}

/// A running writer.
#[derive(Debug)]
pub struct HealthWriterTask {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// Creates the health state and its writer. Until the writer is started, the state is held in memory only.
pub(super) fn health_with_writer(path: &Path, health: ProfileHealth) -> (Arc<HealthTracker>, HealthWriter) {
    let (sender, receiver) = watch::channel(health.clone());
    let tracker = HealthTracker::new(health, move |health| {
        sender.send_replace(health.clone());
    });
    (Arc::new(tracker), HealthWriter { path: path.to_owned(), changes: receiver })
}

impl HealthWriter {
    /// Starts to persist changes.
    pub fn start(self) -> HealthWriterTask {
        let stop = CancellationToken::new();
        let task = task::spawn("cooldowns", write_loop(self, stop.clone()));
        HealthWriterTask { stop, task }
    }
}

impl HealthWriterTask {
    /// Writes pending changes and stops.
    pub async fn stop(self) {
        self.stop.cancel();
        if let Err(error) = self.task.await {
            tracing::warn!(%error, "failed to save the cooldowns");
        }
    }
}

async fn write_loop(HealthWriter { path, changes: mut receiver }: HealthWriter, stop: CancellationToken) {
    loop {
        let is_last = tokio::select! {
            biased;
            () = stop.cancelled() => true,
            changed = receiver.changed() => changed.is_err(),
        };
        if is_last && !receiver.has_changed().unwrap_or(true) {
            return;
        }
        if !is_last {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = sleep(WRITE_INTERVAL) => {}
            }
        }
        let (health, target) = (receiver.borrow_and_update().clone(), path.clone());
        let written = tokio::task::spawn_blocking(move || write(&target, &health)).await;
        match written {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!("failed to save the cooldowns: {error:#}"),
            Err(error) => tracing::warn!(%error, "failed to save the cooldowns"),
        }
        if is_last {
            return;
        }
    }
}

/// Writes the health of credentials. Unchanged entries keep their exact bytes.
fn write(path: &Path, health: &ProfileHealth) -> Result<(), Error> {
    if health.iter().next().is_none() {
        return Ok(());
    }
    file::edit(path, |fields| {
        let mut stored = fields.object("usageStats", path)?;
        for (id, stats) in health.iter() {
            let previous = stored.get(id).and_then(|text| serde_json::from_str::<HealthStats>(text).ok());
            if previous.as_ref() != Some(stats) {
                stored.set(id, &serde_json::to_value(stats)?, 2);
            }
        }
        fields.put("usageStats", &stored, 1);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use homard_model::{
        Error, ErrorKind,
        candidates::{Candidate, CandidateRank, Candidates, Credential, CredentialOrder},
        demo::Demo,
        failover::{Failover, FailoverTerms},
    };
    use serde_json::{Value, json};

    use super::*;

    /// Records a failure or a success of a credential, as a run does.
    fn run(tracker: &Arc<HealthTracker>, error: Option<ErrorKind>, now: u64) {
        let candidate =
            Candidate { model: Arc::new(Demo::default()), profile: "p".into(), credential: Credential::ApiKey };
        let rank = CandidateRank { candidates: vec![candidate], order: CredentialOrder::Configured };
        let candidates = Candidates::new(vec![rank], tracker.clone()).unwrap();
        let mut failover = Failover::begin(candidates, FailoverTerms::default(), now);
        match error {
            Some(kind) => drop(failover.failed(&Error::new(kind, "no"), now)),
            None => failover.succeeded(now),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_changes_are_few_writes_and_the_last_one_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(file::NAME);
        fs::write(&path, "{\"profiles\": {}, \"usageStats\": {\"odd\": {\"errorCount\": \"x\"}}}").unwrap();
        let (tracker, writer) = health_with_writer(&path, ProfileHealth::default());
        let task = writer.start();
        for now in 1..=1000 {
            run(&tracker, None, now);
        }
        assert!(!fs::read_to_string(&path).unwrap().contains("lastUsed"), "nothing waits for the disk");
        run(&tracker, Some(ErrorKind::Billing), 2000);
        task.stop().await;
        let stored: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(stored["usageStats"]["odd"], json!({"errorCount": "x"}));
        let stats = &stored["usageStats"]["p"];
        assert_eq!((&stats["disabledReason"], &stats["disabledUntil"]), (&json!("billing"), &json!(602_000)));
    }

    #[tokio::test]
    async fn no_file_is_written_without_changes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(file::NAME);
        let (_tracker, writer) = health_with_writer(&path, ProfileHealth::default());
        writer.start().stop().await;
        assert!(!path.exists());
    }
}
