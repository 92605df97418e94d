//! Tracks whether the journal can still be written to: after a failed sync it is unknown what is on the disk.

use std::{
    io,
    path::{Path, PathBuf},
};

use homard_store::Error;
use tokio::sync::watch;
use tracing::error;

use crate::{
    db::{self, DatabaseError},
    disk,
    metrics::Counters,
};

/// Health of the journal. A failure is permanent.
#[derive(Debug)]
pub(crate) struct Health {
    failed: watch::Sender<Option<Error>>,
    database: PathBuf,
    /// Metrics. Kept here because all code that writes to disk holds a `Health`.
    pub(crate) counters: Counters,
}

impl Health {
    pub(crate) fn new(database: PathBuf) -> Self {
        Self { failed: watch::Sender::new(None), database, counters: Counters::default() }
    }

    /// Returns the error once the journal has failed.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.failed.borrow().clone().map_or(Ok(()), Err)
    }

    /// Waits until the journal has failed.
    pub(crate) async fn failed(&self) -> Error {
        let mut failed = self.failed.subscribe();
        match failed.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(error)) => error.clone(),
            Ok(None) | Err(_) => Error::Disk("the journal was closed".to_owned()),
        }
    }

    /// Converts an SQLite error and records failures that are permanent.
    pub(crate) fn sql<T>(&self, outcome: rusqlite::Result<T>) -> Result<T, Error> {
        outcome.map_err(|reason| {
            let trouble = DatabaseError::of(&reason, &self.database);
            if matches!(trouble, DatabaseError::Corrupt(_)) {
                db::mark_suspect(&self.database);
            }
            let is_final = !matches!(trouble, DatabaseError::Other(_));
            let error = trouble.into_error(&self.database);
            if is_final {
                self.fail(error.clone());
            }
            error
        })
    }

    /// Builds an error for a failed sync. An I/O error is a permanent failure.
    pub(crate) fn unsynced(&self, path: &Path, reason: io::Error) -> Error {
        let is_final = reason.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error());
        let error = disk::failed("sync", path)(reason);
        if is_final {
            self.fail(error.clone());
        }
        error
    }

    /// Marks the journal as failed; all later writes are refused.
    pub(crate) fn fail(&self, reason: Error) {
        error!(%reason, "the journal has failed");
        self.failed.send_if_modified(|failed| {
            let is_first = failed.is_none();
            failed.get_or_insert(reason);
            is_first
        });
    }
}
