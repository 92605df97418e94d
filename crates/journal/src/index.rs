//! In-memory index from session keys to records. The database is authoritative; `sessions.json` is an export of it.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use homard_proto::{AgentId, SessionId, SessionKey, session::Record};
use homard_store::Error;
use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::value::RawValue;
use tracing::warn;

use crate::{
    disk,
    layout::{self, SESSION_FILE},
};

/// Name of the export in a sessions folder.
pub(crate) const SESSIONS_FILE: &str = "sessions.json";

/// Session records of all agents.
#[derive(Debug, Default)]
pub(crate) struct SessionIndex(BTreeMap<AgentId, AgentSessions>);

/// Session records of one agent; serializes as its `sessions.json`.
#[derive(Debug, Clone, Default)]
pub(crate) struct AgentSessions {
    records: BTreeMap<SessionKey, Arc<Record>>,
    /// Members of `sessions.json` that this version cannot parse; written back unchanged.
    unparsed: BTreeMap<String, Box<RawValue>>,
    /// True if `sessions.json` is out of date.
    is_stale: bool,
}

impl SessionIndex {
    /// Inserts a record read from the database.
    pub(crate) fn insert(&mut self, key: SessionKey, record: Record) {
        self.0.entry(layout::agent_of(&key)).or_default().records.insert(key, Arc::new(record));
    }

    /// Inserts an unparsable value, to be written back unchanged.
    pub(crate) fn insert_unparsed(&mut self, agent: &AgentId, name: String, value: Box<RawValue>) {
        let sessions = self.0.entry(agent.clone()).or_default();
        if !sessions.records.keys().any(|key| key.as_str() == name) {
            sessions.unparsed.insert(name, value);
        }
    }

    /// Merges an agent's `sessions.json` that another program changed; returns the new and updated records.
    pub(crate) fn merge(&mut self, agent: &AgentId, external: AgentSessions) -> Vec<(SessionKey, Arc<Record>)> {
        let own = self.0.entry(agent.clone()).or_default();
        let mut changed = Vec::new();
        for (key, record) in &external.records {
            if own.records.get(key).is_none_or(|known| known.updated_at < record.updated_at) {
                changed.push((key.clone(), Arc::clone(record)));
                own.records.insert(key.clone(), Arc::clone(record));
            }
        }
        own.is_stale = external.is_stale || own.records != external.records;
        own.unparsed = external.unparsed;
        changed
    }

    pub(crate) fn get(&self, key: &SessionKey) -> Option<Arc<Record>> {
        self.0.get(&layout::agent_of(key))?.records.get(key).cloned()
    }

    pub(crate) fn put(&mut self, key: SessionKey, record: Arc<Record>) {
        let sessions = self.0.entry(layout::agent_of(&key)).or_default();
        sessions.is_stale = true;
        sessions.put(key, record);
    }

    /// Marks every `sessions.json` as out of date.
    pub(crate) fn mark_all_stale(&mut self) {
        self.0.values_mut().for_each(|sessions| sessions.is_stale = true);
    }

    pub(crate) fn remove(&mut self, key: &SessionKey) {
        let sessions = self.0.entry(layout::agent_of(key)).or_default();
        sessions.is_stale |= sessions.records.remove(key).is_some();
    }

    /// Returns the agents that have records.
    pub(crate) fn agents(&self) -> Vec<AgentId> {
        self.0.keys().cloned().collect()
    }

    pub(crate) fn all(&self) -> Vec<(SessionKey, Arc<Record>)> {
        let records = self.0.values().flat_map(|sessions| &sessions.records);
        records.map(|(key, record)| (key.clone(), Arc::clone(record))).collect()
    }

    /// Returns the key that refers to this session.
    pub(crate) fn find(&self, session: &SessionId) -> Option<SessionKey> {
        let mut records = self.0.values().flat_map(|sessions| &sessions.records);
        records.find(|(_, record)| record.session_id == *session).map(|(key, _)| key.clone())
    }

    /// Returns the agents whose `sessions.json` is out of date.
    pub(crate) fn stale_agents(&self) -> Vec<AgentId> {
        self.0.iter().filter(|(_, sessions)| sessions.is_stale).map(|(agent, _)| agent.clone()).collect()
    }

    /// Sets whether an agent's `sessions.json` is out of date and returns its content.
    pub(crate) fn snapshot(&mut self, agent: &AgentId, is_stale: bool) -> AgentSessions {
        let sessions = self.0.entry(agent.clone()).or_default();
        sessions.is_stale = is_stale;
        sessions.clone()
    }
}

impl AgentSessions {
    /// Reads an agent's `sessions.json`; moves it aside if it cannot be parsed.
    pub(crate) fn read(folder: &Path, agent: &AgentId, now_ms: u64) -> Result<Self, Error> {
        let mut sessions = Self::default();
        let path = folder.join(SESSIONS_FILE);
        if let Some(bytes) = disk::read(&path)? {
            match serde_json::from_slice::<BTreeMap<String, Box<RawValue>>>(&bytes) {
                Ok(values) => values.into_iter().for_each(|(name, value)| sessions.insert_member(agent, name, value)),
                Err(reason) => {
                    let target = path.with_added_extension(format!("corrupt-{now_ms}"));
                    fs::rename(&path, &target).map_err(disk::failed("move aside", &path))?;
                    disk::sync_folder(folder)?;
                    sessions.is_stale = true;
                    warn!(path = %path.display(), aside = %target.display(), %reason, "cannot parse a file of session records; moved it aside");
                }
            }
        }
        Ok(sessions)
    }

    /// Adds the path of the transcript to the records of threads, because OpenClaw does not find it otherwise.
    pub(crate) fn name_threads(&mut self, folder: &Path) {
        for (key, record) in &mut self.records {
            if record.extra.contains_key(SESSION_FILE) {
                continue;
            }
            let path = layout::thread_name(key, &record.session_id).map(|name| folder.join(name));
            if let Some(path) = path.filter(|path| path.exists()) {
                Arc::make_mut(record).extra.insert(SESSION_FILE.to_owned(), path.display().to_string().into());
            }
        }
    }

    /// Returns the values that cannot be parsed.
    pub(crate) fn unparsed(&self) -> impl Iterator<Item = (&String, &Box<RawValue>)> {
        self.unparsed.iter()
    }

    /// Parses and inserts one member of `sessions.json`.
    fn insert_member(&mut self, agent: &AgentId, name: String, value: Box<RawValue>) {
        let key = SessionKey::parse(&name, agent).map_err(|reason| reason.to_string());
        let key = key.and_then(|key| match layout::agent_of(&key) {
            home if home == *agent => Ok(key),
            home => Err(format!("the key belongs to agent {home}")),
        });
        let record = serde_json::from_str(value.get()).map_err(|reason| reason.to_string());
        match key.and_then(|key| Ok((key, record?))) {
            Ok((key, record)) => self.merge(key, record),
            Err(reason) => {
                warn!(%agent, key = name, reason, "ignoring an invalid session record; leaving it unchanged");
                self.unparsed.insert(name, value);
            }
        }
    }

    /// Inserts a record unless the present one is newer, because another program may have written `sessions.json`
    /// since.
    fn merge(&mut self, key: SessionKey, record: Record) {
        match self.records.get(&key) {
            Some(existing) if existing.updated_at > record.updated_at => {
                if existing.session_id != record.session_id {
                    warn!(%key, session = %record.session_id, "two sessions have the same key; using the newer one");
                }
            }
            _ => self.put(key, Arc::new(record)),
        }
    }

    fn put(&mut self, key: SessionKey, record: Arc<Record>) {
        // A key has one value: a valid record replaces an unparsable one.
        self.unparsed.remove(key.as_str());
        self.records.insert(key, record);
    }
}

impl Serialize for AgentSessions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.records.len() + self.unparsed.len()))?;
        for (key, record) in &self.records {
            map.serialize_entry(key, &**record)?;
        }
        for (name, value) in &self.unparsed {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}
