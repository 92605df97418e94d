//! A store that forgets: for tests, and the reference for what the durable one must do.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
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
    sessions: BTreeMap<SessionKey, Session>,
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
        Ok(self.lock().sessions.get(key).cloned())
    }

    async fn run(&self, run: &RunId) -> Result<Option<RunRow>, Error> {
        Ok(self.lock().ledger.row(run))
    }

    async fn list(&self) -> Result<Vec<(SessionKey, session::Record)>, Error> {
        Ok(self.lock().sessions.iter().map(|(key, session)| (key.clone(), session.record.clone())).collect())
    }

    async fn find(&self, id: &SessionId) -> Result<Option<SessionKey>, Error> {
        let inner = self.lock();
        let found = inner.sessions.iter().find(|(_, session)| session.record.session_id == *id);
        Ok(found.map(|(key, _)| key.clone()))
    }

    async fn recover(&self) -> Result<Vec<Unfinished>, Error> {
        Ok(self.lock().ledger.unfinished())
    }
}

impl Inner {
    fn apply(&mut self, rec: Rec, refused: &mut Refused) -> Verdict {
        let verdict = self.ledger.judge(&rec, refused);
        if verdict != Verdict::Stored {
            return verdict;
        }
        match rec {
            Rec::Input(input) => {
                for entry in input.entries {
                    self.append(&input.key, entry);
                }
            }
            Rec::Entry { key, entry } => self.append(&key, *entry),
            Rec::Patch { key, expect, record } => {
                let current = self.sessions.get(&key).map(|session| session.record.session_id.clone());
                if current != expect {
                    return Verdict::Conflict;
                }
                let entries = match self.sessions.remove(&key) {
                    Some(session) if session.record.session_id == record.session_id => session.entries,
                    _ => Vec::new(),
                };
                self.sessions.insert(key, Session { record: *record, entries });
            }
            Rec::Accept(_) | Rec::Start(_) | Rec::ToolIntent { .. } | Rec::ToolDone { .. } | Rec::Terminal { .. } => {}
        }
        Verdict::Stored
    }

    fn append(&mut self, key: &SessionKey, mut entry: Entry) {
        if let Some(session) = self.sessions.get_mut(key) {
            entry.parent_id = session.entries.last().map(|last| last.id.clone());
            session.entries.push(entry);
        }
    }
}
