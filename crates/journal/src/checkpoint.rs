//! Checkpoints, the last part of a commit: the transcript files that it appended to are synced, and then their rows are
//! deleted from the database.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, MutexGuard},
};

use homard_proto::{AgentId, EntryId, SessionId, SessionKey, session::Record};
use homard_store::Error;
use rusqlite::{Connection, params};
use tracing::warn;

use crate::{
    JournalInner, disk,
    layout::FileId,
    metrics, outbox, run_search, runs, sessions,
    state::{MAX_CACHED_TRANSCRIPTS, PendingRecord, PendingRename, WriterState},
    usage::UsageTally,
};

/// Number of bytes written to transcripts that triggers an early checkpoint.
pub(crate) const EARLY_CHECKPOINT_BYTES: u64 = 4 * 1024 * 1024;

/// Data that the database still holds although the files are synced. The next commit deletes it at no extra cost.
#[derive(Debug, Default)]
pub(crate) struct CheckpointedRows {
    /// Sequence numbers of rows of `redo`.
    rows: Vec<i64>,
    /// New ends of the transcripts that these rows were for.
    tails: Vec<TranscriptEnd>,
    /// Session records to move to their own table; `None` for deleted sessions.
    records: BTreeMap<SessionKey, Option<Arc<Record>>>,
    /// New names of the transcripts of deleted sessions.
    moved: Vec<FileId>,
}

#[derive(Debug)]
struct TranscriptEnd {
    agent: AgentId,
    session: SessionId,
    name: String,
    length: u64,
    leaf: Option<EntryId>,
}

impl CheckpointedRows {
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.tails.is_empty() && self.moved.is_empty()
    }

    /// Deletes the obsolete rows and stores what replaces them.
    pub(crate) fn delete(&self, db: &Connection, tally: &UsageTally, keep: u32, now_ms: u64) -> rusqlite::Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        // Before `first_open` is advanced, because runs before it are not looked at again.
        tally.store(db, now_ms)?;
        self.delete_redo_rows(db)?;
        for TranscriptEnd { agent, session, name, length, leaf } in &self.tails {
            let sql = "INSERT OR REPLACE INTO file(agent, session_id, name, len, leaf) VALUES (?1, ?2, ?3, ?4, ?5)";
            let leaf = leaf.as_ref().map(EntryId::as_str);
            db.prepare_cached(sql)?.execute(params![agent.as_str(), session.as_str(), name, length, leaf])?;
        }
        for (key, record) in &self.records {
            match record {
                Some(record) => sessions::put(db, key, record)?,
                None => sessions::remove(db, key)?,
            }
        }
        for file in &self.moved {
            let sql = "DELETE FROM moving WHERE agent = ?1 AND target = ?2";
            db.prepare_cached(sql)?.execute([file.agent.as_str(), &file.name])?;
        }
        run_search::summarize(db)?;
        runs::prune(db, keep, now_ms)?;
        outbox::prune(db, now_ms)
    }

    fn delete_redo_rows(&self, db: &Connection) -> rusqlite::Result<()> {
        let mut rows = self.rows.clone();
        rows.sort_unstable();
        let spans: Vec<_> = rows.chunk_by(|before, after| before + 1 == *after).collect();
        if let [span] = spans[..] {
            let sql = "SELECT coalesce((SELECT min(seq) FROM redo) >= ?1 AND (SELECT max(seq) FROM redo) <= ?2, 0)";
            if db.prepare_cached(sql)?.query_row(params![span.first(), span.last()], |row| row.get(0))? {
                // Without a condition, SQLite drops the pages as a whole instead of emptying each.
                db.prepare_cached("DELETE FROM redo")?.execute([])?;
                return Ok(());
            }
        }
        for span in spans {
            let sql = "DELETE FROM redo WHERE seq BETWEEN ?1 AND ?2";
            db.prepare_cached(sql)?.execute(params![span.first(), span.last()])?;
        }
        Ok(())
    }
}

impl WriterState {
    /// Renames the transcripts of deleted sessions.
    pub(crate) fn finish_moves(&mut self) -> Result<(), Error> {
        while let Some(PendingRename { from, to }) = self.pending_renames.first().cloned() {
            let (old, new) = (self.path(&from), self.path(&to));
            if !new.exists() {
                disk::missing_is_none(std::fs::rename(&old, &new)).map_err(disk::failed("rename", &old))?;
                new.parent().filter(|folder| folder.exists()).map_or(Ok(()), disk::sync_folder)?;
            }
            self.pending_renames.remove(0);
            self.done.moved.push(to);
        }
        Ok(())
    }

    /// Writes committed lines to their file. On failure, they stay in memory and in the database, and are retried.
    pub(crate) fn write_pending(&mut self, file: &FileId) -> Result<(), Error> {
        let Some(state) = self.files.get(file).filter(|state| !state.pending.is_empty()) else { return Ok(()) };
        let session = state.session.clone();
        self.finish_moves()?;
        if let Some(session) = session {
            self.touch(file, &session)?;
        }
        let path = self.path(file);
        let Some(state) = self.files.get_mut(file).filter(|state| !state.pending.is_empty()) else { return Ok(()) };
        if state.file_length == 0 {
            self.layout.make_sessions(&file.agent)?;
            state.is_new = true;
        }
        state.is_partial = true;
        disk::write_at(&path, state.file_length, &state.pending)?;
        state.is_partial = false;
        self.unsynced += state.pending.len() as u64;
        state.file_length = state.length();
        state.pending = Vec::new();
        Ok(())
    }

    /// Deletes from the database, in a commit of its own, the rows whose lines are synced to their files. At shutdown,
    /// `ending_epoch` is the epoch of this process, whose boot is then marked as clean.
    pub(crate) fn delete_checkpointed(&mut self, now_ms: u64, ending_epoch: Option<u64>) -> Result<(), Error> {
        let mut delete = || {
            let tx = self.db.transaction()?;
            self.done.delete(&tx, &self.usage_tally, self.keep, now_ms)?;
            if let Some(epoch) = ending_epoch {
                tx.execute("UPDATE boot SET clean = 1 WHERE epoch = ?1", [epoch])?;
            }
            tx.commit()
        };
        let deleted = delete();
        self.health.sql(deleted)?;
        self.is_marked_clean |= ending_epoch.is_some();
        if !std::mem::take(&mut self.done).is_empty() {
            // The tally was added to the stored sums.
            self.usage_tally = self.usage_tally.next();
        }
        Ok(())
    }

    /// Returns the files with lines that may not be synced, after retrying the lines that could not be written before.
    fn unsynced_files(&mut self) -> Vec<FileId> {
        let open: Vec<_> =
            self.files.iter().filter(|(_, state)| !state.rows.is_empty()).map(|(file, _)| file.clone()).collect();
        for file in &open {
            if let Err(reason) = self.write_pending(file) {
                warn!(%reason, "failed to write transcript entries; keeping them in the journal");
            }
        }
        let is_written = |file: &FileId| self.files.get(file).is_some_and(|state| state.pending.is_empty());
        self.unsynced = 0;
        open.into_iter().filter(is_written).collect()
    }
}

/// A file that is being synced, and its state when the sync began.
struct SyncJob {
    file: FileId,
    rows: Vec<i64>,
    is_new: bool,
    tail: Option<TranscriptEnd>,
}

impl JournalInner {
    /// Syncs the transcripts that were written to. Commits continue meanwhile. Returns true if more work is left.
    pub(crate) fn checkpoint(&self) -> Result<bool, Error> {
        let now = (self.now_ms)();
        let mut writer = self.writer();
        self.health.check()?;
        if !writer.done.is_empty() {
            // No commit has deleted these rows since the last checkpoint.
            writer.delete_checkpointed(now, None)?;
        }
        writer.evict_idle(MAX_CACHED_TRANSCRIPTS);
        writer.finish_moves()?;
        let syncing: Vec<_> =
            writer.unsynced_files().into_iter().filter_map(|file| begin_sync(&mut writer, file)).collect();
        drop(writer);
        let outcomes: Vec<_> = syncing.into_iter().map(|job| (self.sync(&job), job)).collect();
        let mut writer = self.writer();
        for (outcome, job) in outcomes {
            self.finish(&mut writer, outcome, job)?;
        }
        for PendingRecord { row, key, record } in std::mem::take(&mut writer.pending_records) {
            writer.done.rows.push(row);
            writer.done.records.insert(key, record);
        }
        Ok(!writer.done.is_empty()
            || !writer.pending_renames.is_empty()
            || writer.files.values().any(|state| !state.rows.is_empty()))
    }

    fn sync(&self, job: &SyncJob) -> io::Result<()> {
        let path = self.layout.transcript(&job.file);
        disk::sync(&path)?;
        let folder = path.parent().filter(|_| job.is_new);
        folder.map_or(Ok(()), |folder| std::fs::File::open(folder)?.sync_all())
    }

    fn finish(
        &self,
        writer: &mut MutexGuard<'_, WriterState>,
        outcome: io::Result<()>,
        job: SyncJob,
    ) -> Result<(), Error> {
        let path = self.layout.transcript(&job.file);
        match outcome {
            Ok(()) => {
                writer.done.rows.extend(job.rows);
                writer.done.tails.extend(job.tail);
                Ok(())
            }
            Err(reason) => {
                let is_gone = reason.kind() == io::ErrorKind::NotFound;
                let error = self.health.unsynced(&path, reason);
                self.health.check()?;
                warn!(reason = %error, "failed to sync a transcript; retrying");
                let Some(state) = writer.files.get_mut(&job.file) else { return Ok(()) };
                state.rows.splice(0..0, job.rows);
                state.is_new |= job.is_new;
                if is_gone && let Err(reason) = writer.restore_lines(&job.file) {
                    warn!(%reason, "failed to write transcript entries; keeping them in the journal");
                }
                Ok(())
            }
        }
    }

    /// Syncs everything and leaves no redo rows in the database. Called at shutdown.
    pub(crate) fn sync_all(&self) -> Result<(), Error> {
        metrics::flush_notes(self)?;
        self.checkpoint()?;
        let now = (self.now_ms)();
        let mut writer = self.writer();
        writer.delete_checkpointed(now, Some(self.fence.0))?;
        let close = |db: &Connection| db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        self.health.sql(close(&writer.db))
    }
}

fn begin_sync(writer: &mut WriterState, file: FileId) -> Option<SyncJob> {
    let state = writer.files.get_mut(&file)?;
    let tail = state.session.clone().map(|session| TranscriptEnd {
        agent: file.agent.clone(),
        session,
        name: file.name.clone(),
        length: state.file_length,
        leaf: state.leaf.clone(),
    });
    let (rows, is_new) = (std::mem::take(&mut state.rows), std::mem::take(&mut state.is_new));
    Some(SyncJob { file, rows, is_new, tail })
}
