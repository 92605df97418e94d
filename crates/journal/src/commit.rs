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
    Room, db,
    desk::{Desk, Late, Move, State},
    layout::FileId,
    outbox,
    runs::{self, Door},
    sessions,
    spend::Tally,
};

/// Information gathered about a batch before its transaction.
#[derive(Default)]
struct Places {
    /// Transcript of every session that the batch writes to.
    files: HashMap<(SessionKey, SessionId), FileId>,
    /// Headers supplied by the batch's runs.
    headers: HashMap<FileId, Header>,
    /// Transcripts that cannot be written to at present.
    barred: HashSet<FileId>,
    /// Time at which the batch arrived.
    now_ms: u64,
}

/// Effects of a batch so far, while its transaction is open.
struct Draft<'a> {
    room: &'a Room,
    places: &'a Places,
    known: &'a HashMap<FileId, State>,
    door: Door,
    /// Lines appended per transcript.
    grown: BTreeMap<FileId, Growth>,
    /// Transcripts of deleted sessions, with the lines that the batch added to them before the deletion.
    gone: Vec<(Move, Option<Growth>)>,
    /// New session records; `None` for deleted sessions.
    records: BTreeMap<SessionKey, Option<Arc<Record>>>,
    next_row: i64,
}

/// Effects of a committed batch.
struct Written {
    verdicts: Vec<Verdict>,
    late: Vec<Late>,
    grown: BTreeMap<FileId, Growth>,
    gone: Vec<(Move, Option<Growth>)>,
    records: BTreeMap<SessionKey, Option<Arc<Record>>>,
    next_row: i64,
    tally: Tally,
}

/// Lines appended to one transcript.
struct Growth {
    session: SessionId,
    offset: u64,
    leaf: Option<EntryId>,
    text: Vec<u8>,
    row: i64,
}

impl Room {
    /// Commits a batch atomically.
    pub(crate) fn commit(&self, batch: &[Rec]) -> Result<Vec<Verdict>, Error> {
        let mut desk = self.desk();
        self.health.check()?;
        let places = self.places(&mut desk, batch)?;
        let is_shut = batch.iter().any(|rec| matches!(rec, Rec::Accept(_))) && self.volume.is_low();
        let began = Instant::now();
        let mut written = self.write(&mut desk, batch, &places, is_shut);
        if matches!(&written, Err(reason) if db::is_full(reason)) && self.reserve.release() {
            // The reserve is meant for active runs, so new runs are still refused.
            written = self.write(&mut desk, batch, &places, true);
        }
        let Some(written) = self.health.sql(written)? else { return Err(self.volume.full(self.layout.state())) };
        let Written { verdicts, late, grown, gone, records, next_row, tally } = written;
        let bytes: usize = grown.values().map(|growth| growth.text.len()).sum();
        self.health.ticks.committed(bytes as u64, began.elapsed());
        if !std::mem::take(&mut desk.done).is_empty() {
            desk.tally = desk.tally.next();
        }
        desk.tally.grow(tally);
        (desk.next_row, desk.is_marked_clean) = (next_row, false);
        desk.late.extend(late);
        self.learn(records);
        desk.apply(grown, gone);
        self.dirtied.notify_one();
        if desk.unsynced >= crate::checkpoint::EARLY {
            self.full.notify_one();
        }
        Ok(verdicts)
    }

    /// Writes a batch in one transaction. Returns `None` if nothing of it was stored because the disk is full.
    fn write(
        &self,
        desk: &mut Desk,
        batch: &[Rec],
        places: &Places,
        is_shut: bool,
    ) -> rusqlite::Result<Option<Written>> {
        let mut draft = Draft {
            room: self,
            places,
            known: &desk.files,
            door: Door::new(
                is_shut.then(|| self.volume.full(self.layout.state()).to_string()),
                &desk.tally,
                self.fence.0.cast_signed(),
            ),
            grown: BTreeMap::new(),
            gone: Vec::new(),
            records: BTreeMap::new(),
            next_row: desk.next_row,
        };
        let tx = Transaction::new(&mut desk.db, TransactionBehavior::Immediate)?;
        if desk.is_marked_clean {
            tx.execute("UPDATE boot SET clean = 0 WHERE epoch = ?1", [self.fence.0])?;
        }
        desk.done.forget(&tx, (&desk.tally, desk.keep), places.now_ms)?;
        let verdicts = batch.iter().map(|rec| draft.take(&tx, rec)).collect::<rusqlite::Result<Vec<_>>>()?;
        let is_news = |verdict: &Verdict| !matches!(verdict, Verdict::Conflict | Verdict::Full(_) | Verdict::Skipped);
        if draft.door.turned_away && !verdicts.iter().any(is_news) {
            return Ok(None);
        }
        draft.store_lines(&tx)?;
        let late = draft.store_records(&tx)?;
        tx.commit()?;
        let Draft { grown, gone, records, next_row, door, .. } = draft;
        Ok(Some(Written { verdicts, late, grown, gone, records, next_row, tally: door.tally }))
    }

    /// Locates the transcripts that a batch writes to and repairs them.
    fn places(&self, desk: &mut Desk, batch: &[Rec]) -> Result<Places, Error> {
        let mut places = Places { now_ms: (self.now_ms)(), ..Places::default() };
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
                let record = told(batch, key, session).or_else(|| self.known().get(key));
                let file = desk.place(key, session, record.as_deref())?;
                if let Err(reason) = desk.put_right(&file, session, places.now_ms) {
                    self.health.check()?;
                    // Lines may wait in the journal, but only if their parent entry is known.
                    let waits = desk.files.get(&file).is_some_and(|state| !state.is_flawed);
                    if !waits {
                        error!(%reason, "a transcript cannot be written to; what belongs there is refused");
                        places.barred.insert(file.clone());
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
    fn learn(&self, records: BTreeMap<SessionKey, Option<Arc<Record>>>) {
        if records.is_empty() {
            return;
        }
        let mut known = self.known();
        for (key, record) in records {
            match record {
                Some(record) => known.put(key, record),
                None => known.remove(&key),
            }
        }
        drop(known);
        self.changed.notify_one();
    }
}

/// Returns the record that the batch itself sets for a session.
fn told(batch: &[Rec], key: &SessionKey, session: &SessionId) -> Option<Arc<Record>> {
    batch.iter().find_map(|rec| {
        let Rec::Patch { key: at, record, .. } = rec else { return None };
        (at == key && record.session_id == *session).then(|| Arc::new(Record::clone(record)))
    })
}

impl Draft<'_> {
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
        if self.is_barred(rec) {
            return Ok(Verdict::Skipped);
        }
        let verdict = runs::judge(db, rec, &mut self.door)?;
        if verdict != Verdict::Stored {
            return Ok(verdict);
        }
        match rec {
            Rec::Start(start) => {
                self.growth(&start.key, &start.header.id, "");
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
                let archive = self.part_with(db, key, expect)?;
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
        let record = self.records.get(key).cloned().unwrap_or_else(|| self.room.known().get(key));
        record.map(|record| record.session_id.clone())
    }

    fn is_barred(&self, rec: &Rec) -> bool {
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
        !self.places.barred.is_empty()
            && self.file(place.0, place.1).is_some_and(|file| self.places.barred.contains(file))
    }

    fn file(&self, key: &SessionKey, session: &SessionId) -> Option<&FileId> {
        self.places.files.get(&(key.clone(), session.clone()))
    }

    /// Returns the lines that the batch appends to a transcript so far. An empty transcript starts with its header.
    fn growth(&mut self, key: &SessionKey, session: &SessionId, timestamp: &str) -> Option<&mut Growth> {
        let file = self.file(key, session)?.clone();
        let (known, headers, next_row) = (self.known, &self.places.headers, &mut self.next_row);
        let growth = self.grown.entry(file).or_insert_with_key(|file| {
            // A transcript deleted in this batch starts from scratch.
            let is_gone = self.gone.iter().any(|(gone, _)| gone.from == *file);
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
            Growth { session: session.clone(), offset, leaf, text, row }
        });
        Some(growth)
    }

    fn append(&mut self, key: &SessionKey, session: &SessionId, mut entry: Entry) -> rusqlite::Result<()> {
        let Some(growth) = self.growth(key, session, &entry.timestamp) else { return Ok(()) };
        entry.parent_id = growth.leaf.replace(entry.id.clone());
        growth.text.extend(line(&entry)?);
        Ok(())
    }

    /// Schedules the rename of a deleted session's transcript. Lines not yet written move with it.
    fn part_with(
        &mut self,
        db: &Connection,
        key: &SessionKey,
        session: &SessionId,
    ) -> rusqlite::Result<Option<PathBuf>> {
        let Some(from) = self.file(key, session).cloned() else { return Ok(None) };
        let growth = self.grown.remove(&from);
        let is_gone = self.gone.iter().any(|(gone, _)| gone.from == from);
        let is_there = !is_gone && self.known.get(&from).is_some_and(|state| state.length() > 0);
        if growth.is_none() && !is_there {
            return Ok(None);
        }
        let number = if self.gone.is_empty() { String::new() } else { format!("-{}", self.gone.len()) };
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
        self.gone.push((Move { from, to }, growth));
        Ok(Some(archive))
    }

    /// Stores the new lines in `redo`, where they survive a crash.
    fn store_lines(&self, db: &Connection) -> rusqlite::Result<()> {
        let gone = self.gone.iter().filter_map(|(gone, growth)| Some((&gone.to, growth.as_ref()?, None)));
        let grown = self.grown.iter().map(|(file, growth)| (file, growth, Some(growth.session.as_str())));
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
    fn store_records(&mut self, db: &Connection) -> rusqlite::Result<Vec<Late>> {
        let mut late = Vec::new();
        for (key, record) in &self.records {
            let row = self.next_row;
            self.next_row += 1;
            sessions::note_late(db, row, key, record.as_deref())?;
            late.push(Late { row, key: key.clone(), record: record.clone() });
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

impl Desk {
    /// Writes the lines of a committed batch to their transcripts.
    fn apply(&mut self, grown: BTreeMap<FileId, Growth>, gone: Vec<(Move, Option<Growth>)>) {
        for (moved, growth) in gone {
            let mut state = self.files.remove(&moved.from).unwrap_or_default();
            self.names.retain(|(agent, _), name| *agent != moved.from.agent || *name != moved.from.name);
            state.session = None;
            let to = moved.to.clone();
            self.moves.push(moved);
            if let Some(growth) = growth {
                state.grow(growth);
            }
            self.files.insert(to.clone(), state);
            let brought = self.finish_moves().and_then(|()| self.write_pending(&to));
            note(brought);
        }
        for (file, growth) in grown {
            let state = self.files.entry(file.clone()).or_default();
            state.session = Some(growth.session.clone());
            state.grow(growth);
            let written = self.write_pending(&file);
            note(written);
        }
    }
}

fn note(outcome: Result<(), Error>) {
    if let Err(reason) = outcome {
        warn!(%reason, "lines of a transcript wait in the journal");
    }
}

impl State {
    fn grow(&mut self, growth: Growth) {
        self.leaf = growth.leaf;
        if !growth.text.is_empty() {
            self.pending.extend(growth.text);
            self.rows.push(growth.row);
        }
    }
}
