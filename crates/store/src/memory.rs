//! In-memory store: for tests, and the reference implementation for the durable one.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use async_trait::async_trait;
use homard_proto::{RunId, SessionId, SessionKey, session, transcript::Entry};
use homard_stdx::sync::{Mutex, MutexGuard};

use crate::{
    DeliveryRow, Error, Fence, ProcessEnd, Rec, RunQuery, RunRow, Session, StoreReader, StoreWriter, UnfinishedRun,
    Verdict,
    ledger::{Ledger, RefusedRuns},
    outbox::Outbox,
    usage::{UsageQuery, UsageSum, UsageSums},
};

/// A store that loses everything when dropped.
#[derive(Debug, Default)]
pub struct MemoryStore {
    inner: Mutex<MemoryInner>,
}

#[derive(Debug, Default)]
struct MemoryInner {
    records: BTreeMap<SessionKey, session::Record>,
    transcripts: HashMap<SessionId, Vec<Entry>>,
    /// Transcripts of deleted sessions.
    archived: HashMap<SessionId, Vec<Entry>>,
    ledger: Ledger,
    outbox: Outbox,
    usage: UsageSums,
}

impl MemoryStore {
    /// Simulates a restart after a process that ended this way.
    pub fn restart(&self, end: ProcessEnd) {
        let mut inner = self.lock();
        inner.ledger.process_ended(end);
        inner.outbox.mark_unknown();
    }

    fn lock(&self) -> MutexGuard<'_, MemoryInner> {
        self.inner.lock()
    }
}

#[async_trait]
impl StoreWriter for MemoryStore {
    async fn commit(&self, _: &Fence, batch: Vec<Rec>) -> Result<Vec<Verdict>, Error> {
        let mut inner = self.lock();
        let mut refused = RefusedRuns::default();
        Ok(batch.into_iter().map(|rec| inner.apply(rec, &mut refused)).collect())
    }
}

#[async_trait]
impl StoreReader for MemoryStore {
    async fn load(&self, key: &SessionKey) -> Result<Option<Session>, Error> {
        let inner = self.lock();
        Ok(inner.records.get(key).map(|record| inner.session(record)))
    }

    async fn transcript(&self, _: &SessionKey, session: &SessionId) -> Result<Option<Vec<Entry>>, Error> {
        let inner = self.lock();
        Ok(inner.transcripts.get(session).or_else(|| inner.archived.get(session)).cloned())
    }

    async fn live_transcript(&self, _: &SessionKey, session: &SessionId) -> Result<Vec<Entry>, Error> {
        Ok(self.lock().transcripts.get(session).cloned().unwrap_or_default())
    }

    async fn run(&self, run: &RunId) -> Result<Option<RunRow>, Error> {
        Ok(self.lock().ledger.row(run))
    }

    async fn record(&self, key: &SessionKey) -> Result<Option<Arc<session::Record>>, Error> {
        Ok(self.lock().records.get(key).cloned().map(Arc::new))
    }

    async fn list(&self) -> Result<Vec<(SessionKey, Arc<session::Record>)>, Error> {
        Ok(self.lock().records.iter().map(|(key, record)| (key.clone(), Arc::new(record.clone()))).collect())
    }

    async fn find(&self, id: &SessionId) -> Result<Option<SessionKey>, Error> {
        let inner = self.lock();
        let found = inner.records.iter().find(|(_, record)| record.session_id == *id);
        Ok(found.map(|(key, _)| key.clone()))
    }

    async fn recover(&self) -> Result<Vec<UnfinishedRun>, Error> {
        let inner = self.lock();
        let mut found = inner.ledger.unfinished(|row, input| {
            let entries = row.session.as_ref().and_then(|session| inner.transcripts.get(session));
            let following = entries.into_iter().flatten().skip_while(|entry| entry.id != *input).skip(1);
            following.cloned().collect()
        });
        found.iter_mut().for_each(|found| found.deliveries = inner.outbox.of_run(&found.row.run));
        Ok(found)
    }

    async fn outbox(&self) -> Result<Vec<DeliveryRow>, Error> {
        Ok(self.lock().outbox.undelivered())
    }

    async fn delivery(&self, id: &str) -> Result<Option<DeliveryRow>, Error> {
        Ok(self.lock().outbox.find(id))
    }

    async fn runs(&self, query: &RunQuery) -> Result<Vec<RunRow>, Error> {
        Ok(self.lock().ledger.list(query))
    }

    async fn find_run(&self, name: &str) -> Result<Option<RunId>, Error> {
        let inner = self.lock();
        Ok(inner.ledger.find_by_event(name).or_else(|| inner.outbox.run_of(name)))
    }

    async fn deliveries_of(&self, run: &RunId) -> Result<Vec<DeliveryRow>, Error> {
        Ok(self.lock().outbox.of_run(run))
    }

    async fn usage(&self, period: &UsageQuery) -> Result<Vec<UsageSum>, Error> {
        Ok(self.lock().usage.query(period))
    }
}

impl MemoryInner {
    fn apply(&mut self, rec: Rec, refused: &mut RefusedRuns) -> Verdict {
        if let Rec::Patch { key, expect, .. } = &rec
            && self.records.get(key).map(|record| &record.session_id) != expect.as_ref()
        {
            return Verdict::Conflict;
        }
        if let Rec::Delete { key, expect } = &rec
            && self.records.get(key).map(|record| &record.session_id) != Some(expect)
        {
            return Verdict::Conflict;
        }
        let verdict = self.ledger.apply(&rec, refused);
        if verdict != Verdict::Stored {
            return verdict;
        }
        match rec {
            Rec::Input(input) => {
                for entry in input.entries {
                    self.append(&input.session, entry);
                }
            }
            Rec::Entry { session, entry, .. } => self.append(&session, *entry),
            Rec::Patch { key, record, .. } => {
                self.records.insert(key, *record);
            }
            Rec::Delete { key, expect } => {
                self.records.remove(&key);
                if let Some(entries) = self.transcripts.remove(&expect) {
                    self.archived.insert(expect, entries);
                }
                return Verdict::Archived(None);
            }
            Rec::Queue(delivery) => return stored_or_skipped(self.outbox.queue(*delivery)),
            Rec::Deliver { id, state, at } => return stored_or_skipped(self.outbox.mark(&id, &state, at)),
            Rec::Accept(_)
            | Rec::Start(_)
            | Rec::ToolIntent { .. }
            | Rec::ToolDone { .. }
            | Rec::Abort { .. }
            | Rec::Hold { .. }
            | Rec::Release { .. } => {}
            Rec::Terminal { run, ended } => {
                if let Some(row) = self.ledger.row(&run) {
                    self.usage.add(&row.key, row.session.as_ref(), &ended);
                }
            }
        }
        Verdict::Stored
    }

    fn append(&mut self, session: &SessionId, mut entry: Entry) {
        let entries = self.transcripts.entry(session.clone()).or_default();
        entry.parent_id = entries.last().map(|last| last.id.clone());
        entries.push(entry);
    }

    fn session(&self, record: &session::Record) -> Session {
        let entries = self.transcripts.get(&record.session_id).cloned().unwrap_or_default();
        Session { record: record.clone(), entries }
    }
}

fn stored_or_skipped(is_stored: bool) -> Verdict {
    if is_stored { Verdict::Stored } else { Verdict::Skipped }
}
