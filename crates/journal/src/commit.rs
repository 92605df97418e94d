//! Commits a batch: one transaction, then its lines are written to their transcripts.

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::PathBuf,
    sync::Arc,
};

use homard_proto::{
    EntryId, SessionId, SessionKey,
    session::Record,
    transcript::{Entry, Header},
};
use homard_store::{Error, Rec, Verdict};
use rusqlite::{Connection, Transaction, TransactionBehavior, params};
use serde::Serialize;
use tokio::time::Instant;
use tracing::{error, warn};

use crate::{
    JournalInner, db,
    layout::FileId,
    outbox,
    runs::{self, BatchRuns},
    sessions,
    state::{PendingRecord, PendingRename, TranscriptState, WriterState},
    usage::UsageTally,
};

/// Information gathered about a batch before its transaction.
#[derive(Default)]
struct BatchFiles {
    /// Transcript of every session that the batch writes to.
    files: HashMap<(SessionKey, SessionId), FileId>,
    /// Headers supplied by the batch's runs.
    headers: HashMap<FileId, Header>,
    /// Transcripts that cannot be written to at present.
    blocked: HashSet<FileId>,
    /// Time at which the batch arrived.
    now_ms: u64,
}

/// Effects of a batch so far, while its transaction is open.
struct BatchDraft<'a> {
    journal: &'a JournalInner,
    batch_files: &'a BatchFiles,
    transcripts: &'a HashMap<FileId, TranscriptState>,
    batch_runs: BatchRuns,
    /// Lines appended per transcript.
    appended: BTreeMap<FileId, AppendedLines>,
    /// Transcripts of deleted sessions, with the lines that the batch added to them before the deletion.
    deleted: Vec<(PendingRename, Option<AppendedLines>)>,
    /// New session records; `None` for deleted sessions.
    records: BTreeMap<SessionKey, Option<Arc<Record>>>,
    next_row: i64,
}

/// Effects of a committed batch.
struct CommittedBatch {
    verdicts: Vec<Verdict>,
    pending_records: Vec<PendingRecord>,
    appended: BTreeMap<FileId, AppendedLines>,
    deleted: Vec<(PendingRename, Option<AppendedLines>)>,
    records: BTreeMap<SessionKey, Option<Arc<Record>>>,
    next_row: i64,
    usage_tally: UsageTally,
}

/// Lines appended to one transcript.
struct AppendedLines {
    session: SessionId,
    offset: u64,
    leaf: Option<EntryId>,
    text: Vec<u8>,
    row: i64,
}

impl JournalInner {
    /// Commits a batch atomically.
    pub(crate) fn commit(&self, batch: &[Rec]) -> Result<Vec<Verdict>, Error> {
        let mut writer = self.writer();
        self.health.check()?;
        let batch_files = self.locate_files(&mut writer, batch)?;
        let refuses_new_runs = batch.iter().any(|rec| matches!(rec, Rec::Accept(_))) && self.disk_space.is_low();
        let started_at = Instant::now();
        let mut written = self.write(&mut writer, batch, &batch_files, refuses_new_runs);
        if matches!(&written, Err(reason) if db::is_full(reason)) && self.reserve.release() {
            // The reserve is meant for active runs, so new runs are still refused.
            written = self.write(&mut writer, batch, &batch_files, true);
        }
        let Some(written) = self.health.sql(written)? else {
            return Err(self.disk_space.full_error(self.layout.state()));
        };
        let CommittedBatch { verdicts, pending_records, appended, deleted, records, next_row, usage_tally } = written;
        let bytes: usize = appended.values().map(|lines| lines.text.len()).sum();
        self.health.counters.committed(bytes as u64, started_at.elapsed());
        // The commit deleted these rows and added the tally to the stored sums, so a new tally begins.
        if !std::mem::take(&mut writer.done).is_empty() {
            writer.usage_tally = writer.usage_tally.next();
        }
        writer.usage_tally.merge(usage_tally);
        (writer.next_row, writer.is_marked_clean) = (next_row, false);
        writer.pending_records.extend(pending_records);
        self.index_records(records);
        write_lines(&mut writer, appended, deleted);
        self.unsynced.notify_one();
        if writer.unsynced >= crate::checkpoint::EARLY_CHECKPOINT_BYTES {
            self.checkpoint_due.notify_one();
        }
        Ok(verdicts)
    }

    /// Writes a batch in one transaction. Returns `None` if nothing of it was stored because the disk is full.
    fn write(
        &self,
        writer: &mut WriterState,
        batch: &[Rec],
        batch_files: &BatchFiles,
        refuses_new_runs: bool,
    ) -> rusqlite::Result<Option<CommittedBatch>> {
        let mut draft = BatchDraft {
            journal: self,
            batch_files,
            transcripts: &writer.files,
            batch_runs: BatchRuns::new(
                refuses_new_runs.then(|| self.disk_space.full_error(self.layout.state()).to_string()),
                &writer.usage_tally,
                self.fence.0.cast_signed(),
            ),
            appended: BTreeMap::new(),
            deleted: Vec::new(),
            records: BTreeMap::new(),
            next_row: writer.next_row,
        };
        let tx = Transaction::new(&mut writer.db, TransactionBehavior::Immediate)?;
        if writer.is_marked_clean {
            tx.execute("UPDATE boot SET clean = 0 WHERE epoch = ?1", [self.fence.0])?;
        }
        writer.done.delete(&tx, &writer.usage_tally, writer.keep, batch_files.now_ms)?;
        let verdicts = batch.iter().map(|rec| draft.apply_record(&tx, rec)).collect::<rusqlite::Result<Vec<_>>>()?;
        let is_effective =
            |verdict: &Verdict| !matches!(verdict, Verdict::Conflict | Verdict::Full(_) | Verdict::Skipped);
        if draft.batch_runs.has_refused && !verdicts.iter().any(is_effective) {
            return Ok(None);
        }
        draft.store_lines(&tx)?;
        let pending_records = draft.store_records(&tx)?;
        tx.commit()?;
        let BatchDraft { appended, deleted, records, next_row, batch_runs, .. } = draft;
        Ok(Some(CommittedBatch {
            verdicts,
            pending_records,
            appended,
            deleted,
            records,
            next_row,
            usage_tally: batch_runs.usage_tally,
        }))
    }

    /// Locates the transcripts that a batch writes to and repairs them.
    fn locate_files(&self, writer: &mut WriterState, batch: &[Rec]) -> Result<BatchFiles, Error> {
        let mut batch_files = BatchFiles { now_ms: (self.now_ms)(), ..BatchFiles::default() };
        for rec in batch {
            let Some((key, session)) = rec.transcript() else { continue };
            let session_of_key = (key.clone(), session.clone());
            if !batch_files.files.contains_key(&session_of_key) {
                let record = record_in_batch(batch, key, session).or_else(|| self.index().get(key));
                let file = writer.locate(key, session, record.as_deref())?;
                if let Err(reason) = writer.repair(&file, session, batch_files.now_ms) {
                    self.health.check()?;
                    // Lines may wait in the journal, but only if their parent entry is known.
                    let can_wait = writer.files.get(&file).is_some_and(|state| !state.needs_repair);
                    if !can_wait {
                        error!(%reason, "cannot write to a transcript; rejecting its entries");
                        batch_files.blocked.insert(file.clone());
                    }
                }
                batch_files.files.insert(session_of_key.clone(), file);
            }
            if let (Rec::Start(start), Some(file)) = (rec, batch_files.files.get(&session_of_key)) {
                batch_files.headers.entry(file.clone()).or_insert_with(|| start.header.clone());
            }
        }
        Ok(batch_files)
    }

    /// Updates the in-memory index with committed records.
    fn index_records(&self, records: BTreeMap<SessionKey, Option<Arc<Record>>>) {
        if records.is_empty() {
            return;
        }
        let mut index = self.index();
        for (key, record) in records {
            match record {
                Some(record) => index.put(key, record),
                None => index.remove(&key),
            }
        }
        drop(index);
        self.export_stale.notify_one();
    }
}

/// Returns the record that the batch itself sets for a session.
fn record_in_batch(batch: &[Rec], key: &SessionKey, session: &SessionId) -> Option<Arc<Record>> {
    batch.iter().find_map(|rec| {
        let Rec::Patch { key: patched_key, record, .. } = rec else { return None };
        (patched_key == key && record.session_id == *session).then(|| Arc::new(Record::clone(record)))
    })
}

impl BatchDraft<'_> {
    fn apply_record(&mut self, db: &Connection, rec: &Rec) -> rusqlite::Result<Verdict> {
        if let Rec::Patch { key, expect, .. } = rec
            && self.current(key) != *expect
        {
            return Ok(Verdict::Conflict);
        }
        if let Rec::Delete { key, expect } = rec
            && self.current(key).as_ref() != Some(expect)
        {
            return Ok(Verdict::Conflict);
        }
        if self.is_blocked(rec) {
            return Ok(Verdict::Skipped);
        }
        let verdict = runs::apply(db, rec, &mut self.batch_runs)?;
        if verdict != Verdict::Stored {
            return Ok(verdict);
        }
        match rec {
            Rec::Start(start) => {
                self.appended_lines(&start.key, &start.header.id, "");
            }
            Rec::Input(input) => {
                for entry in &input.entries {
                    self.append(&input.key, &input.session, entry.clone())?;
                }
            }
            Rec::Entry { key, session, entry, .. } => self.append(key, session, Entry::clone(entry))?,
            Rec::Patch { key, record, .. } => {
                self.records.insert(key.clone(), Some(Arc::new(Record::clone(record))));
            }
            Rec::Delete { key, expect } => {
                let archive = self.archive_transcript(db, key, expect)?;
                self.records.insert(key.clone(), None);
                return Ok(Verdict::Archived(archive));
            }
            Rec::Queue(delivery) => return outbox::queue(db, delivery).map(stored_or_skipped),
            Rec::Deliver { id, state, at } => return outbox::mark(db, id, state, *at).map(stored_or_skipped),
            Rec::Accept(_)
            | Rec::ToolIntent { .. }
            | Rec::ToolDone { .. }
            | Rec::Abort { .. }
            | Rec::Hold { .. }
            | Rec::Release { .. }
            | Rec::Terminal { .. } => {}
        }
        Ok(Verdict::Stored)
    }

    /// Returns the session that a key refers to, including changes made by this batch.
    fn current(&self, key: &SessionKey) -> Option<SessionId> {
        let record = self.records.get(key).cloned().unwrap_or_else(|| self.journal.index().get(key));
        record.map(|record| record.session_id.clone())
    }

    fn is_blocked(&self, rec: &Rec) -> bool {
        // A session can be deleted although nothing can be written to its transcript.
        let session_of_key = rec.transcript().filter(|_| !matches!(rec, Rec::Delete { .. }));
        !self.batch_files.blocked.is_empty()
            && session_of_key
                .and_then(|(key, session)| self.file(key, session))
                .is_some_and(|file| self.batch_files.blocked.contains(file))
    }

    fn file(&self, key: &SessionKey, session: &SessionId) -> Option<&FileId> {
        self.batch_files.files.get(&(key.clone(), session.clone()))
    }

    /// Returns the lines that the batch appends to a transcript so far. An empty transcript starts with its header.
    fn appended_lines(&mut self, key: &SessionKey, session: &SessionId, timestamp: &str) -> Option<&mut AppendedLines> {
        let file = self.file(key, session)?.clone();
        let (transcripts, headers, next_row) = (self.transcripts, &self.batch_files.headers, &mut self.next_row);
        let lines = self.appended.entry(file).or_insert_with_key(|file| {
            // A transcript deleted in this batch starts from scratch.
            let is_deleted = self.deleted.iter().any(|(rename, _)| rename.from == *file);
            let state = transcripts.get(file).filter(|_| !is_deleted);
            let (offset, leaf) = state.map_or((0, None), |state| (state.length(), state.leaf.clone()));
            let row = *next_row;
            *next_row += 1;
            let mut text = Vec::new();
            if offset == 0 {
                // Only runs supply the agent's working directory; a first line from elsewhere leaves it empty.
                let default_header = || Header::new(session.clone(), timestamp.to_owned(), String::new());
                let header = headers.get(file).cloned().unwrap_or_else(default_header);
                text = line(&header).unwrap_or_default();
            }
            AppendedLines { session: session.clone(), offset, leaf, text, row }
        });
        Some(lines)
    }

    fn append(&mut self, key: &SessionKey, session: &SessionId, mut entry: Entry) -> rusqlite::Result<()> {
        let Some(lines) = self.appended_lines(key, session, &entry.timestamp) else { return Ok(()) };
        entry.parent_id = lines.leaf.replace(entry.id.clone());
        lines.text.extend(line(&entry)?);
        Ok(())
    }

    /// Schedules the rename of a deleted session's transcript. Lines not yet written move with it.
    fn archive_transcript(
        &mut self,
        db: &Connection,
        key: &SessionKey,
        session: &SessionId,
    ) -> rusqlite::Result<Option<PathBuf>> {
        let Some(from) = self.file(key, session).cloned() else { return Ok(None) };
        let lines = self.appended.remove(&from);
        let is_deleted = self.deleted.iter().any(|(rename, _)| rename.from == from);
        let has_content = !is_deleted && self.transcripts.get(&from).is_some_and(|state| state.length() > 0);
        if lines.is_none() && !has_content {
            return Ok(None);
        }
        let suffix = if self.deleted.is_empty() { String::new() } else { format!("-{}", self.deleted.len()) };
        let name = format!("{}.deleted.{}{suffix}", from.name, stamp(self.batch_files.now_ms));
        let to = FileId { agent: from.agent.clone(), name };
        let names = [from.agent.as_str(), &from.name, &to.name];
        if !is_deleted {
            let sql = "UPDATE redo SET name = ?3, session_id = NULL WHERE agent = ?1 AND name = ?2";
            db.prepare_cached(sql)?.execute(names)?;
        }
        db.prepare_cached("INSERT INTO moving(agent, name, target) VALUES (?1, ?2, ?3)")?.execute(names)?;
        let sql = "DELETE FROM file WHERE agent = ?1 AND session_id = ?2";
        db.prepare_cached(sql)?.execute([from.agent.as_str(), session.as_str()])?;
        let archive = self.journal.layout.transcript(&to);
        self.deleted.push((PendingRename { from, to }, lines));
        Ok(Some(archive))
    }

    /// Stores the new lines in `redo`, where they survive a crash.
    fn store_lines(&self, db: &Connection) -> rusqlite::Result<()> {
        let deleted = self.deleted.iter().filter_map(|(rename, lines)| Some((&rename.to, lines.as_ref()?, None)));
        let appended = self.appended.iter().map(|(file, lines)| (file, lines, Some(lines.session.as_str())));
        for (file, lines, session) in deleted.chain(appended).filter(|(_, lines, _)| !lines.text.is_empty()) {
            let sql =
                "INSERT INTO redo(seq, agent, name, session_id, off, leaf, line) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
            let leaf = lines.leaf.as_ref().map(EntryId::as_str);
            let target = (lines.row, file.agent.as_str(), &file.name);
            let values = params![target.0, target.1, target.2, session, lines.offset, leaf, lines.text];
            db.prepare_cached(sql)?.execute(values)?;
        }
        Ok(())
    }

    /// Stores session records in `redo`, on the same page as the lines; the next checkpoint moves them to their own
    /// table.
    fn store_records(&mut self, db: &Connection) -> rusqlite::Result<Vec<PendingRecord>> {
        let mut pending_records = Vec::new();
        for (key, record) in &self.records {
            let row = self.next_row;
            self.next_row += 1;
            sessions::store_pending_record(db, row, key, record.as_deref())?;
            pending_records.push(PendingRecord { row, key: key.clone(), record: record.clone() });
        }
        Ok(pending_records)
    }
}

fn stored_or_skipped(is_stored: bool) -> Verdict {
    if is_stored { Verdict::Stored } else { Verdict::Skipped }
}

/// Serializes a value as one line of JSON.
fn line(value: &impl Serialize) -> rusqlite::Result<Vec<u8>> {
    let text = serde_json::to_vec(value);
    let mut text = text.map_err(|reason| rusqlite::Error::ToSqlConversionFailure(Box::new(reason)))?;
    text.push(b'\n');
    Ok(text)
}

/// Formats a time for use in a file name.
fn stamp(now_ms: u64) -> String {
    let time = i64::try_from(now_ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok()).unwrap_or_default();
    format!("{time:.3}").replace(':', "-")
}

/// Writes the lines of a committed batch to their transcripts.
fn write_lines(
    writer: &mut WriterState,
    appended: BTreeMap<FileId, AppendedLines>,
    deleted: Vec<(PendingRename, Option<AppendedLines>)>,
) {
    for (rename, lines) in deleted {
        let mut state = writer.files.remove(&rename.from).unwrap_or_default();
        writer.names.retain(|(agent, _), name| *agent != rename.from.agent || *name != rename.from.name);
        state.session = None;
        let to = rename.to.clone();
        writer.pending_renames.push(rename);
        if let Some(lines) = lines {
            state.append(lines);
        }
        writer.files.insert(to.clone(), state);
        let brought = writer.finish_moves().and_then(|()| writer.write_pending(&to));
        log_failure(brought);
    }
    for (file, lines) in appended {
        let state = writer.files.entry(file.clone()).or_default();
        state.session = Some(lines.session.clone());
        state.append(lines);
        let written = writer.write_pending(&file);
        log_failure(written);
    }
}

fn log_failure(outcome: Result<(), Error>) {
    if let Err(reason) = outcome {
        warn!(%reason, "failed to write transcript entries; keeping them in the journal");
    }
}

impl TranscriptState {
    /// Adds committed lines that are to be written to the file. Without text, only the leaf changes.
    fn append(&mut self, lines: AppendedLines) {
        self.leaf = lines.leaf;
        if !lines.text.is_empty() {
            self.pending.extend(lines.text);
            self.rows.push(lines.row);
        }
    }
}
