//! Persists cooldowns: changes do not wait for the disk; the file is written at intervals.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Result;
use homard_agent::task;
use homard_model::standing::{Book, Standing, Stats};
use tokio::{sync::watch, task::JoinHandle, time::sleep};
use tokio_util::sync::CancellationToken;

use super::file;

/// Minimum time between two writes.
const PACE: Duration = Duration::from_secs(3);

/// The health state to persist, and the file.
#[derive(Debug)]
pub(crate) struct Keeper {
    path: PathBuf,
    news: watch::Receiver<Standing>,
}

/// A running keeper.
#[derive(Debug)]
pub(crate) struct Keeping {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// Creates the health state and its keeper. Until the keeper is started, it is held in memory only.
pub(super) fn book(path: &Path, standing: Standing) -> (Arc<Book>, Keeper) {
    let (tell, news) = watch::channel(standing.clone());
    let book = Book::new(standing, move |standing| {
        tell.send_replace(standing.clone());
    });
    (Arc::new(book), Keeper { path: path.to_owned(), news })
}

impl Keeper {
    /// Starts to persist changes.
    pub(crate) fn start(self) -> Keeping {
        let stop = CancellationToken::new();
        let task = task::spawn("cooldowns", keep(self, stop.clone()));
        Keeping { stop, task }
    }
}

impl Keeping {
    /// Writes pending changes and stops.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        if let Err(error) = self.task.await {
            tracing::warn!(%error, "cooldowns were not kept");
        }
    }
}

async fn keep(Keeper { path, mut news }: Keeper, stop: CancellationToken) {
    loop {
        let is_over = tokio::select! {
            biased;
            () = stop.cancelled() => true,
            changed = news.changed() => changed.is_err(),
        };
        if is_over && !news.has_changed().unwrap_or(true) {
            return;
        }
        if !is_over {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = sleep(PACE) => {}
            }
        }
        let (standing, place) = (news.borrow_and_update().clone(), path.clone());
        let written = tokio::task::spawn_blocking(move || write(&place, &standing)).await;
        match written {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!("cooldowns are not kept: {error:#}"),
            Err(error) => tracing::warn!(%error, "cooldowns are not kept"),
        }
        if is_over {
            return;
        }
    }
}

/// Writes the health of credentials. Unchanged entries keep their exact bytes.
fn write(path: &Path, standing: &Standing) -> Result<()> {
    if standing.iter().next().is_none() {
        return Ok(());
    }
    file::edit(path, |fields| {
        let mut kept = fields.object("usageStats", path)?;
        for (id, stats) in standing.iter() {
            let before = kept.get(id).and_then(|text| serde_json::from_str::<Stats>(text).ok());
            if before.as_ref() != Some(stats) {
                kept.set(id, &serde_json::to_value(stats)?, 2);
            }
        }
        fields.put("usageStats", &kept, 1);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use homard_model::{
        Error, ErrorKind,
        demo::Demo,
        failover::{Failover, Terms},
        roster::{Candidate, Credential, Order, Rank, Roster},
    };
    use serde_json::{Value, json};

    use super::*;

    /// Records a failure or a success of a credential, as a run does.
    fn run(book: &Arc<Book>, error: Option<ErrorKind>, now: u64) {
        let candidate =
            Candidate { model: Arc::new(Demo::default()), profile: "p".into(), credential: Credential::ApiKey };
        let rank = Rank { candidates: vec![candidate], order: Order::Given };
        let roster = Roster::new(vec![rank], book.clone()).unwrap();
        let mut failover = Failover::begin(roster, Terms::default(), now);
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
        let (book, keeper) = book(&path, Standing::default());
        let keeping = keeper.start();
        for now in 1..=1000 {
            run(&book, None, now);
        }
        assert!(!fs::read_to_string(&path).unwrap().contains("lastUsed"), "nothing waits for the disk");
        run(&book, Some(ErrorKind::Billing), 2000);
        keeping.end().await;
        let kept: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(kept["usageStats"]["odd"], json!({"errorCount": "x"}));
        let stats = &kept["usageStats"]["p"];
        assert_eq!((&stats["disabledReason"], &stats["disabledUntil"]), (&json!("billing"), &json!(602_000)));
    }

    #[tokio::test]
    async fn nothing_is_written_where_nothing_happened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(file::NAME);
        let (_book, keeper) = book(&path, Standing::default());
        keeper.start().end().await;
        assert!(!path.exists());
    }
}
