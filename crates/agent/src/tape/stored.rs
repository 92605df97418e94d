//! Values that the store returned. Their records are on disk, so their events are published without a commit.
//!
//! A [`StoredValue`] comes from one of the reads below or from a part of another one; no other module can make one. So
//! an event with a record is published either by a [`Commit`](super::Commit) or because its record was read.

use std::{ops::Deref, sync::Arc};

use homard_proto::{EntryId, RunId, SessionId, SessionKey, transcript::Entry};
use homard_store::{Error, RunRow, RunState, StoreReader, UnfinishedRun, branch::CompactionInfo, recovery};

use crate::{
    compact_session::{self, AfterCompaction},
    event::{RunEnd, StoredEvent},
    lane::event_of_entry,
};

/// A value that the store returned.
#[derive(Debug, Clone)]
pub(crate) struct StoredValue<T>(T);

impl<T> Deref for StoredValue<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> StoredValue<T> {
    /// Returns the value. It does not become stored by this again.
    pub(crate) fn into_inner(self) -> T {
        self.0
    }
}

/// Reads the runs that earlier processes did not finish.
pub(crate) async fn unfinished_runs(store: &dyn StoreReader) -> Result<Vec<StoredValue<UnfinishedRun>>, Error> {
    Ok(store.recover().await?.into_iter().map(StoredValue).collect())
}

/// Reads the row of a run.
pub(crate) async fn run_row(store: &dyn StoreReader, run: &RunId) -> Result<Option<StoredValue<RunRow>>, Error> {
    Ok(store.run(run).await?.map(StoredValue))
}

/// Reads an entry of a transcript.
pub(crate) async fn entry(
    store: &dyn StoreReader,
    key: &SessionKey,
    session: &SessionId,
    id: &EntryId,
) -> Result<Option<StoredValue<Entry>>, Error> {
    let entries = store.live_transcript(key, session).await?;
    Ok(entries.into_iter().find(|entry| entry.id == *id).map(StoredValue))
}

impl StoredValue<UnfinishedRun> {
    /// Returns the entries after the run's own message.
    pub(crate) fn entries(&self) -> StoredValue<Vec<Entry>> {
        StoredValue(self.0.entries.clone())
    }

    /// Returns the entries that the run itself added.
    pub(crate) fn own_entries(&self) -> StoredValue<Vec<Entry>> {
        StoredValue(recovery::own_entries(&self.0.row.run, &self.0.entries).to_vec())
    }
}

impl StoredValue<Vec<Entry>> {
    /// Returns each entry.
    pub(crate) fn each(&self) -> impl Iterator<Item = StoredValue<&Entry>> {
        self.0.iter().map(StoredValue)
    }
}

impl StoredValue<&Entry> {
    /// Returns the event that the entry records, and its time.
    pub(crate) fn event(&self, at: u64) -> Option<(u64, StoredValue<StoredEvent>)> {
        event_of_entry(self.0, at).map(|(at, event)| (at, StoredValue(event)))
    }

    /// Returns the event of the compaction that the entry records; `None` if it is another one.
    pub(crate) fn compacted(
        &self,
        compaction: CompactionInfo,
        next: AfterCompaction,
    ) -> Option<StoredValue<StoredEvent>> {
        (self.0.id == compaction.id).then(|| StoredValue(compact_session::compacted_event(compaction, next)))
    }
}

impl StoredValue<Entry> {
    /// Returns a reference to the entry.
    pub(crate) fn as_ref(&self) -> StoredValue<&Entry> {
        StoredValue(&self.0)
    }
}

impl StoredValue<RunRow> {
    /// Returns the end of the run as an event; `None` if it has not ended.
    pub(crate) fn ended(&self, end: RunEnd) -> Option<StoredValue<StoredEvent>> {
        matches!(self.0.state, RunState::Ended(_)).then(|| StoredValue(StoredEvent::Ended(Arc::new(end))))
    }
}
