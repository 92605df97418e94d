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
    usage::UsageTally,
    writer::{PendingRecord, PendingRename, TranscriptState, WriterState},
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
    room: &'a JournalInner,
    places: &'a BatchFiles,
    known: &'a HashMap<FileId, TranscriptState>,
    door: BatchRuns,
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
    late: Vec<PendingRecord>,
    appended: BTreeMap<FileId, AppendedLines>,
    deleted: Vec<(PendingRename, Option<AppendedLines>)>,
    records: BTreeMap<SessionKey, Option<Arc<Record>>>,
    next_row: i64,
    tally: UsageTally,
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
        let mut desk = self.writer();
        self.health.check()?;
        let places = self.locate_files(&mut desk, batch)?;
        let is_shut = batch.iter().any(|rec| matches!(rec, Rec::Accept(_))) && self.disk_space.is_low();
        let began = Instant::now();
        let mut written = self.write(&mut desk, batch, &places, is_shut);
        if matches!(&written, Err(reason) if db::is_full(reason)) && self.reserve.release() {
            // The reserve is meant for active runs, so new runs are still refused.
            written = self.write(&mut desk, batch, &places, true);
        }
        let Some(written) = self.health.sql(written)? else {
            return Err(self.disk_space.full_error(self.layout.state()));
        };
        let CommittedBatch { verdicts, late, appended: grown, deleted: gone, records, next_row, tally } = written;
        let bytes: usize = grown.values().map(|growth| growth.text.len()).sum();
        self.health.counters.committed(bytes as u64, began.elapsed());
        if !std::mem::take(&mut desk.done).is_empty() {
            desk.tally = desk.tally.next();
        }
        desk.tally.merge(tally);
        (desk.next_row, desk.is_marked_clean) = (next_row, false);
        desk.pending_records.extend(late);
        self.index_records(records);
        desk.apply(grown, gone);
        self.unsynced.notify_one();
        if desk.unsynced >= crate::checkpoint::EARLY_CHECKPOINT_BYTES {
            self.checkpoint_due.notify_one();
        }
        Ok(verdicts)
    }

    /// Writes a batch in one transaction. Returns `None` if nothing of it was stored because the disk is full.
    fn write(
        &self,
        desk: &mut WriterState,
        batch: &[Rec],
        places: &BatchFiles,
        is_shut: bool,
    ) -> rusqlite::Result<Option<CommittedBatch>> {
        let mut draft = BatchDraft {
            room: self,
            places,
            known: &desk.files,
            door: BatchRuns::new(
                is_shut.then(|| self.disk_space.full_error(self.layout.state()).to_string()),
                &desk.tally,
                self.fence.0.cast_signed(),
            ),
            appended: BTreeMap::new(),
            deleted: Vec::new(),
            records: BTreeMap::new(),
            next_row: desk.next_row,
        };
        let tx = Transaction::new(&mut desk.db, TransactionBehavior::Immediate)?;
        if desk.is_marked_clean {
            tx.execute("UPDATE boot SET clean = 0 WHERE epoch = ?1", [self.fence.0])?;
        }
        desk.done.delete(&tx, (&desk.tally, desk.keep), places.now_ms)?;
        let verdicts = batch.iter().map(|rec| draft.take(&tx, rec)).collect::<rusqlite::Result<Vec<_>>>()?;
        let is_news = |verdict: &Verdict| !matches!(verdict, Verdict::Conflict | Verdict::Full(_) | Verdict::Skipped);
        if draft.door.has_refused && !verdicts.iter().any(is_news) {
            return Ok(None);
        }
        draft.store_lines(&tx)?;
        let late = draft.store_records(&tx)?;
        tx.commit()?;
        let BatchDraft { appended: grown, deleted: gone, records, next_row, door, .. } = draft;
        Ok(Some(CommittedBatch {
            verdicts,
            late,
            appended: grown,
            deleted: gone,
            records,
            next_row,
            tally: door.tally,
        }))
    }

    /// Locates the transcripts that a batch writes to and repairs them.
    fn locate_files(&self, desk: &mut WriterState, batch: &[Rec]) -> Result<BatchFiles, Error> {
        let mut places = BatchFiles { now_ms: (self.now_ms)(), ..BatchFiles::default() };
        for rec in batch {
            let (key, session) = match rec {
                Rec::Start(start) => (&start.key, &start.header.id),
                Rec::Input(input) => (&input.key, &input.session),
                Rec::Entry { key, session, .. } | Rec::Delete { key, expect: session } => (key, session),
                Rec::Accept(_)
                | Rec::ToolIntent { .. }
                | Rec::ToolDone { .. }
                | Rec::Abort { .. }
                | Rec::Hold { .. }
                | Rec::Release { .. }
                | Rec::Terminal { .. }
                | Rec::Patch { .. }
                | Rec::Queue(_)
                | Rec::Deliver { .. } => continue,
            };
            let of = (key.clone(), session.clone());
            if !places.files.contains_key(&of) {
                let record = record_in_batch(batch, key, session).or_else(|| self.index().get(key));
                let file = desk.locate(key, session, record.as_deref())?;
                if let Err(reason) = desk.repair(&file, session, places.now_ms) {
                    self.health.check()?;
                    // Lines may wait in the journal, but only if their parent entry is known.
                    let waits = desk.files.get(&file).is_some_and(|state| !state.needs_repair);
                    if !waits {
                        error!(%reason, "cannot write to a transcript; rejecting its entries");
                        places.blocked.insert(file.clone());
                    }
                }
                places.files.insert(of.clone(), file);
            }
            if let (Rec::Start(start), Some(file)) = (rec, places.files.get(&of)) {
                places.headers.entry(file.clone()).or_insert_with(|| start.header.clone());
            }
        }
        Ok(places)
    }

    /// Updates the in-memory index with committed records.
    fn index_records(&self, records: BTreeMap<SessionKey, Option<Arc<Record>>>) {
        if records.is_empty() {
            return;
        }
        let mut known = self.index();
        for (key, record) in records {
            match record {
                Some(record) => known.put(key, record),
                None => known.remove(&key),
            }
        }
        drop(known);
        self.export_stale.notify_one();
    }
}

/// Returns the record that the batch itself sets for a session.
fn record_in_batch(batch: &[Rec], key: &SessionKey, session: &SessionId) -> Option<Arc<Record>> {
    batch.iter().find_map(|rec| {
        let Rec::Patch { key: at, record, .. } = rec else { return None };
        (at == key && record.session_id == *session).then(|| Arc::new(Record::clone(record)))
    })
}

impl BatchDraft<'_> {
    fn take(&mut self, db: &Connection, rec: &Rec) -> rusqlite::Result<Verdict> {
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
        let verdict = runs::apply(db, rec, &mut self.door)?;
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
            Rec::Queue(delivery) => return outbox::queue(db, delivery).map(kept),
            Rec::Deliver { id, state, at } => return outbox::mark(db, id, state, *at).map(kept),
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
        let record = self.records.get(key).cloned().unwrap_or_else(|| self.room.index().get(key));
        record.map(|record| record.session_id.clone())
    }

    fn is_blocked(&self, rec: &Rec) -> bool {
        let place = match rec {
            Rec::Start(start) => (&start.key, &start.header.id),
            Rec::Input(input) => (&input.key, &input.session),
            Rec::Entry { key, session, .. } => (key, session),
            Rec::Accept(_)
            | Rec::ToolIntent { .. }
            | Rec::ToolDone { .. }
            | Rec::Abort { .. }
            | Rec::Hold { .. }
            | Rec::Release { .. }
            | Rec::Terminal { .. }
            | Rec::Patch { .. }
            | Rec::Delete { .. }
            | Rec::Queue(_)
            | Rec::Deliver { .. } => return false,
        };
        !self.places.blocked.is_empty()
            && self.file(place.0, place.1).is_some_and(|file| self.places.blocked.contains(file))
    }

    fn file(&self, key: &SessionKey, session: &SessionId) -> Option<&FileId> {
        self.places.files.get(&(key.clone(), session.clone()))
    }

    /// Returns the lines that the batch appends to a transcript so far. An empty transcript starts with its header.
    fn appended_lines(&mut self, key: &SessionKey, session: &SessionId, timestamp: &str) -> Option<&mut AppendedLines> {
        let file = self.file(key, session)?.clone();
        let (known, headers, next_row) = (self.known, &self.places.headers, &mut self.next_row);
        let growth = self.appended.entry(file).or_insert_with_key(|file| {
            // A transcript deleted in this batch starts from scratch.
            let is_gone = self.deleted.iter().any(|(gone, _)| gone.from == *file);
            let state = known.get(file).filter(|_| !is_gone);
            let (offset, leaf) = state.map_or((0, None), |state| (state.length(), state.leaf.clone()));
            let row = *next_row;
            *next_row += 1;
            let mut text = Vec::new();
            if offset == 0 {
                // Only runs supply the agent's working directory; a first line from elsewhere leaves it empty.
                let own = || Header::new(session.clone(), timestamp.to_owned(), String::new());
                let header = headers.get(file).cloned().unwrap_or_else(own);
                text = line(&header).unwrap_or_default();
            }
            AppendedLines { session: session.clone(), offset, leaf, text, row }
        });
        Some(growth)
    }

    fn append(&mut self, key: &SessionKey, session: &SessionId, mut entry: Entry) -> rusqlite::Result<()> {
        let Some(growth) = self.appended_lines(key, session, &entry.timestamp) else { return Ok(()) };
        entry.parent_id = growth.leaf.replace(entry.id.clone());
        growth.text.extend(line(&entry)?);
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
        let growth = self.appended.remove(&from);
        let is_gone = self.deleted.iter().any(|(gone, _)| gone.from == from);
        let is_there = !is_gone && self.known.get(&from).is_some_and(|state| state.length() > 0);
        if growth.is_none() && !is_there {
            return Ok(None);
        }
        let number = if self.deleted.is_empty() { String::new() } else { format!("-{}", self.deleted.len()) };
        let name = format!("{}.deleted.{}{number}", from.name, stamp(self.places.now_ms));
        let to = FileId { agent: from.agent.clone(), name };
        let names = [from.agent.as_str(), &from.name, &to.name];
        if !is_gone {
            let sql = "UPDATE redo SET name = ?3, session_id = NULL WHERE agent = ?1 AND name = ?2";
            db.prepare_cached(sql)?.execute(names)?;
        }
        db.prepare_cached("INSERT INTO moving(agent, name, target) VALUES (?1, ?2, ?3)")?.execute(names)?;
        let sql = "DELETE FROM file WHERE agent = ?1 AND session_id = ?2";
        db.prepare_cached(sql)?.execute([from.agent.as_str(), session.as_str()])?;
        let archive = self.room.layout.transcript(&to);
        self.deleted.push((PendingRename { from, to }, growth));
        Ok(Some(archive))
    }

    /// Stores the new lines in `redo`, where they survive a crash.
    fn store_lines(&self, db: &Connection) -> rusqlite::Result<()> {
        let gone = self.deleted.iter().filter_map(|(gone, growth)| Some((&gone.to, growth.as_ref()?, None)));
        let grown = self.appended.iter().map(|(file, growth)| (file, growth, Some(growth.session.as_str())));
        for (file, growth, session) in gone.chain(grown).filter(|(_, growth, _)| !growth.text.is_empty()) {
            let sql =
                "INSERT INTO redo(seq, agent, name, session_id, off, leaf, line) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
            let leaf = growth.leaf.as_ref().map(EntryId::as_str);
            let place = (growth.row, file.agent.as_str(), &file.name);
            let values = params![place.0, place.1, place.2, session, growth.offset, leaf, growth.text];
            db.prepare_cached(sql)?.execute(values)?;
        }
        Ok(())
    }

    /// Stores session records in `redo`, on the same page as the lines; the next checkpoint moves them to their own
    /// table.
    fn store_records(&mut self, db: &Connection) -> rusqlite::Result<Vec<PendingRecord>> {
        let mut late = Vec::new();
        for (key, record) in &self.records {
            let row = self.next_row;
            self.next_row += 1;
            sessions::store_pending_record(db, row, key, record.as_deref())?;
            late.push(PendingRecord { row, key: key.clone(), record: record.clone() });
        }
        Ok(late)
    }
}

fn kept(is_kept: bool) -> Verdict {
    if is_kept { Verdict::Stored } else { Verdict::Skipped }
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
    let at = i64::try_from(now_ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok()).unwrap_or_default();
    format!("{at:.3}").replace(':', "-")
}

impl WriterState {
    /// Writes the lines of a committed batch to their transcripts.
    fn apply(&mut self, grown: BTreeMap<FileId, AppendedLines>, gone: Vec<(PendingRename, Option<AppendedLines>)>) {
        for (moved, growth) in gone {
            let mut state = self.files.remove(&moved.from).unwrap_or_default();
            self.names.retain(|(agent, _), name| *agent != moved.from.agent || *name != moved.from.name);
            state.session = None;
            let to = moved.to.clone();
            self.pending_renames.push(moved);
            if let Some(growth) = growth {
                state.append(growth);
            }
            self.files.insert(to.clone(), state);
            let brought = self.finish_moves().and_then(|()| self.write_pending(&to));
            note(brought);
        }
        for (file, growth) in grown {
            let state = self.files.entry(file.clone()).or_default();
            state.session = Some(growth.session.clone());
            state.append(growth);
            let written = self.write_pending(&file);
            note(written);
        }
    }
}

fn note(outcome: Result<(), Error>) {
    if let Err(reason) = outcome {
        warn!(%reason, "failed to write transcript entries; keeping them in the journal");
    }
}

impl TranscriptState {
    fn append(&mut self, growth: AppendedLines) {
        self.leaf = growth.leaf;
        if !growth.text.is_empty() {
            self.pending.extend(growth.text);
            self.rows.push(growth.row);
        }
    }
}
