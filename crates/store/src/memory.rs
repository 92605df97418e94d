//! A store that forgets: for tests, and the reference for what the durable one must do.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use homard_proto::{RunId, SessionId, SessionKey, session, transcript::Entry};

use crate::{
    Error, Fence, Rec, RunRow, Session, Store, Unfinished, Verdict,
    ledger::{Ledger, Refused},
};

/// A store that forgets.
#[derive(Debug, Default)]
pub struct MemoryStore {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    records: BTreeMap<SessionKey, session::Record>,
    transcripts: HashMap<SessionId, Vec<Entry>>,
    ledger: Ledger,
}

impl MemoryStore {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn commit(&self, _: &Fence, batch: Vec<Rec>) -> Result<Vec<Verdict>, Error> {
        let mut inner = self.lock();
        let mut refused = Refused::default();
        Ok(batch.into_iter().map(|rec| inner.apply(rec, &mut refused)).collect())
    }

    async fn load(&self, key: &SessionKey) -> Result<Option<Session>, Error> {
        let inner = self.lock();
        Ok(inner.records.get(key).map(|record| inner.session(record)))
    }

    async fn run(&self, run: &RunId) -> Result<Option<RunRow>, Error> {
        Ok(self.lock().ledger.row(run))
    }

    async fn list(&self) -> Result<Vec<(SessionKey, Arc<session::Record>)>, Error> {
        Ok(self.lock().records.iter().map(|(key, record)| (key.clone(), Arc::new(record.clone()))).collect())
    }

    async fn find(&self, id: &SessionId) -> Result<Option<SessionKey>, Error> {
        let inner = self.lock();
        let found = inner.records.iter().find(|(_, record)| record.session_id == *id);
        Ok(found.map(|(key, _)| key.clone()))
    }

    async fn recover(&self) -> Result<Vec<Unfinished>, Error> {
        let inner = self.lock();
        Ok(inner.ledger.unfinished(|row, input| {
            let entries = row.session.as_ref().and_then(|session| inner.transcripts.get(session));
            let behind = entries.into_iter().flatten().skip_while(|entry| entry.id != *input).skip(1);
            behind.cloned().collect()
        }))
    }
}

impl Inner {
    fn apply(&mut self, rec: Rec, refused: &mut Refused) -> Verdict {
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
        let verdict = self.ledger.judge(&rec, refused);
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
                self.transcripts.remove(&expect);
            }
            Rec::Accept(_)
            | Rec::Start(_)
            | Rec::ToolIntent { .. }
            | Rec::ToolDone { .. }
            | Rec::Abort { .. }
            | Rec::Terminal { .. } => {}
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
