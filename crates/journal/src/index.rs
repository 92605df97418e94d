//! Which session each key points at: read from every agent's `sessions.json` at start, in memory from then on.

use std::{collections::BTreeMap, fs, io::ErrorKind, path::Path, sync::Arc};

use homard_proto::{AgentId, SessionId, SessionKey, session::Record};
use homard_store::Error;
use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::value::RawValue;
use tracing::warn;

use crate::{
    disk,
    layout::{self, Layout},
    log,
};

/// The name of the export in a sessions folder.
pub(crate) const FILE: &str = "sessions.json";

/// The records of all agents.
#[derive(Debug, Default)]
pub(crate) struct Index(BTreeMap<AgentId, Folder>);

/// The records of one agent, which serialize as its `sessions.json`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Folder {
    records: BTreeMap<SessionKey, Arc<Record>>,
    /// What `sessions.json` holds that this version cannot use, to be written back as it was.
    strange: BTreeMap<String, Box<RawValue>>,
    /// Whether `sessions.json` is behind.
    behind: bool,
}

impl Index {
    /// Reads what is in a state directory.
    pub(crate) fn read(layout: &Layout, now_ms: u64) -> Result<Self, Error> {
        let agents = layout.agents();
        let listing = match fs::read_dir(&agents) {
            Ok(listing) => listing,
            Err(reason) if reason.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            Err(reason) => return Err(disk::failed("list", &agents)(reason)),
        };
        let mut index = BTreeMap::new();
        for item in listing {
            let item = item.map_err(disk::failed("list", &agents))?;
            let name = item.file_name();
            let agent = AgentId::normalize(&name.to_string_lossy());
            if name != agent.as_str() || !item.path().is_dir() {
                warn!(?name, "something that is no agent's folder was passed by");
                continue;
            }
            let folder = Folder::read(&layout.sessions(&agent), &agent, now_ms)?;
            index.insert(agent, folder);
        }
        Ok(Self(index))
    }

    /// The record of a key.
    pub(crate) fn get(&self, key: &SessionKey) -> Option<Arc<Record>> {
        self.0.get(&layout::home(key))?.records.get(key).cloned()
    }

    /// Sets the record of a key.
    pub(crate) fn put(&mut self, key: SessionKey, record: Arc<Record>) {
        let folder = self.0.entry(layout::home(&key)).or_default();
        folder.behind = true;
        folder.put(key, record);
    }

    /// All records.
    pub(crate) fn all(&self) -> Vec<(SessionKey, Arc<Record>)> {
        let records = self.0.values().flat_map(|folder| &folder.records);
        records.map(|(key, record)| (key.clone(), Arc::clone(record))).collect()
    }

    /// The key whose session has this id.
    pub(crate) fn find(&self, session: &SessionId) -> Option<SessionKey> {
        let mut records = self.0.values().flat_map(|folder| &folder.records);
        records.find(|(_, record)| record.session_id == *session).map(|(key, _)| key.clone())
    }

    /// The agents whose `sessions.json` is behind.
    pub(crate) fn behind(&self) -> Vec<AgentId> {
        self.0.iter().filter(|(_, folder)| folder.behind).map(|(agent, _)| agent.clone()).collect()
    }

    /// Remembers whether an agent's `sessions.json` is behind, and returns what belongs in it.
    pub(crate) fn snapshot(&mut self, agent: &AgentId, behind: bool) -> Folder {
        let folder = self.0.entry(agent.clone()).or_default();
        folder.behind = behind;
        folder.clone()
    }
}

impl Folder {
    fn read(sessions: &Path, agent: &AgentId, now_ms: u64) -> Result<Self, Error> {
        let mut folder = Self::default();
        let path = sessions.join(FILE);
        if let Some(bytes) = disk::read(&path)? {
            match serde_json::from_slice::<BTreeMap<String, Box<RawValue>>>(&bytes) {
                Ok(values) => values.into_iter().for_each(|(name, value)| folder.adopt(agent, name, value)),
                Err(reason) => {
                    let aside = path.with_added_extension(format!("corrupt-{now_ms}"));
                    fs::rename(&path, &aside).map_err(disk::failed("move aside", &path))?;
                    disk::sync_folder(sessions)?;
                    warn!(path = %path.display(), aside = %aside.display(), %reason, "a file of session records cannot be read and was moved aside");
                }
            }
        }
        if let Some(changes) = log::replay(sessions, agent)? {
            folder.behind = true;
            changes.into_iter().for_each(|(key, record)| folder.merge(key, record));
        }
        Ok(folder)
    }

    /// Takes in one value of `sessions.json`.
    fn adopt(&mut self, agent: &AgentId, name: String, value: Box<RawValue>) {
        let key = SessionKey::parse(&name, agent).map_err(|reason| reason.to_string());
        let key = key.and_then(|key| match layout::home(&key) {
            home if home == *agent => Ok(key),
            home => Err(format!("it belongs to agent {home}")),
        });
        let record = serde_json::from_str(value.get()).map_err(|reason| reason.to_string());
        match key.and_then(|key| Ok((key, record?))) {
            Ok((key, record)) => self.merge(key, record),
            Err(reason) => {
                warn!(%agent, key = name, reason, "a session record cannot be used; it is left as it is");
                self.strange.insert(name, value);
            }
        }
    }

    /// Takes in a record unless the one that is there is newer: somebody else may have written `sessions.json` since.
    fn merge(&mut self, key: SessionKey, record: Record) {
        match self.records.get(&key) {
            Some(there) if there.updated_at > record.updated_at => {
                if there.session_id != record.session_id {
                    warn!(%key, session = %record.session_id, "two sessions have one key; the newer one counts");
                }
            }
            _ => self.put(key, Arc::new(record)),
        }
    }

    fn put(&mut self, key: SessionKey, record: Arc<Record>) {
        // One name, one value: a record that can be used takes the place of one that cannot.
        self.strange.remove(key.as_str());
        self.records.insert(key, record);
    }
}

impl Serialize for Folder {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.records.len() + self.strange.len()))?;
        for (key, record) in &self.records {
            map.serialize_entry(key, &**record)?;
        }
        for (name, value) in &self.strange {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}
