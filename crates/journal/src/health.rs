//! Whether the journal can still be written to: after a failed sync nobody knows what is on the disk.

use std::{
    io,
    path::{Path, PathBuf},
};

use homard_store::Error;
use tokio::sync::watch;
use tracing::error;

use crate::{
    db::{self, Trouble},
    disk,
    figures::Ticks,
};

/// Well until it has failed, and never well again after.
#[derive(Debug)]
pub(crate) struct Health {
    failed: watch::Sender<Option<Error>>,
    database: PathBuf,
    /// What it has done so far. Here, because whoever works on the disk holds this.
    pub(crate) ticks: Ticks,
}

impl Health {
    pub(crate) fn new(database: PathBuf) -> Self {
        Self { failed: watch::Sender::new(None), database, ticks: Ticks::default() }
    }

    /// An error once the journal has failed.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.failed.borrow().clone().map_or(Ok(()), Err)
    }

    /// Waits until the journal has failed.
    pub(crate) async fn failed(&self) -> Error {
        let mut failed = self.failed.subscribe();
        match failed.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(error)) => error.clone(),
            Ok(None) | Err(_) => Error::Disk("the journal is gone".to_owned()),
        }
    }

    /// Turns what SQLite says into what callers are told.
    pub(crate) fn sql<T>(&self, outcome: rusqlite::Result<T>) -> Result<T, Error> {
        outcome.map_err(|reason| {
            let trouble = Trouble::of(&reason, &self.database);
            if matches!(trouble, Trouble::Corrupt(_)) {
                db::mark_suspect(&self.database);
            }
            let is_final = !matches!(trouble, Trouble::Other(_));
            let error = trouble.told(&self.database);
            if is_final {
                self.fail(error.clone());
            }
            error
        })
    }

    /// An error for a file that could not be synced; a disk that fails there is not trusted any more.
    pub(crate) fn unsynced(&self, path: &Path, reason: io::Error) -> Error {
        let is_final = reason.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error());
        let error = disk::failed("sync", path)(reason);
        if is_final {
            self.fail(error.clone());
        }
        error
    }

    /// From here on nothing is taken in any more.
    pub(crate) fn fail(&self, reason: Error) {
        error!(%reason, "the journal has failed");
        self.failed.send_if_modified(|failed| {
            let is_first = failed.is_none();
            failed.get_or_insert(reason);
            is_first
        });
    }
}
