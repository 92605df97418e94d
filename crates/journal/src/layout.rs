//! Paths and file names in the state directory.

use std::{
    fs,
    path::{Path, PathBuf},
};

use homard_proto::{AgentId, SessionId, SessionKey, session::Record};
use homard_store::Error;
use serde_json::Value;
use tracing::warn;

use crate::disk;

/// Name of the lock file. Its lock grants exclusive use of the state directory.
pub(crate) const LOCK: &str = "gateway.lock";

/// Name of the file that describes the process holding the lock.
pub(crate) const HOLDER: &str = "gateway.holder.json";

/// Member of a session record that contains the path of its transcript.
pub(crate) const SESSION_FILE: &str = "sessionFile";

/// Maximum length of a file name in bytes.
const MAX_NAME_BYTES: usize = 255;

/// A state directory.
#[derive(Debug)]
pub(crate) struct StateLayout(PathBuf);

impl StateLayout {
    /// Creates the directory if it does not exist.
    pub(crate) fn create(state_dir: &Path) -> Result<Self, Error> {
        let state = std::path::absolute(state_dir).map_err(disk::failed("find", state_dir))?;
        if disk::make_folder(&state)? {
            // The parent may not be readable; the directory can be used without this sync.
            if let Err(reason) = state.parent().map_or(Ok(()), disk::sync_folder) {
                warn!(%reason, "failed to sync the parent of the new state directory; a power failure may remove it");
            }
        }
        Ok(Self(state))
    }

    /// Returns the directory itself.
    pub(crate) fn state(&self) -> &Path {
        &self.0
    }

    /// Path of the lock file.
    pub(crate) fn lock(&self) -> PathBuf {
        self.0.join(LOCK)
    }

    /// Path of the file that describes the lock's holder.
    pub(crate) fn holder(&self) -> PathBuf {
        self.0.join(HOLDER)
    }

    /// Folder of the database.
    pub(crate) fn journal(&self) -> PathBuf {
        self.0.join("journal")
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.journal().join("journal.db")
    }

    /// Path of the file that reserves disk space.
    pub(crate) fn reserve(&self) -> PathBuf {
        self.journal().join("reserve.bin")
    }

    /// Folder with one folder per agent.
    pub(crate) fn agents(&self) -> PathBuf {
        self.0.join("agents")
    }

    /// Folder of an agent's transcripts and session records.
    pub(crate) fn sessions(&self, agent: &AgentId) -> PathBuf {
        self.agents().join(agent.as_str()).join("sessions")
    }

    /// Creates the sessions folder of an agent if it does not exist, and syncs the folders above it.
    pub(crate) fn make_sessions(&self, agent: &AgentId) -> Result<(), Error> {
        let sessions = self.sessions(agent);
        if disk::make_folder(&sessions)? {
            let mut parents = sessions.ancestors().skip(1).take_while(|parent| parent.starts_with(&self.0));
            if let Err(reason) = parents.try_for_each(disk::sync_folder) {
                // Remove the new folder: if it stayed, the next call would assume that it is already synced.
                fs::remove_dir(&sessions).map_err(disk::failed("remove", &sessions))?;
                return Err(reason);
            }
        }
        Ok(())
    }

    /// Returns the last archived transcript of a session: archived by us at its deletion, or by OpenClaw at a deletion
    /// or reset.
    pub(crate) fn archived_transcript(&self, agent: &AgentId, session: &SessionId) -> Result<Option<FileId>, Error> {
        let folder = self.sessions(agent);
        let listing = disk::missing_is_none(fs::read_dir(&folder)).map_err(disk::failed("list", &folder))?;
        let mut last: Option<(String, String)> = None;
        for item in listing.into_iter().flatten() {
            let name = item.map_err(disk::failed("list", &folder))?.file_name();
            if let Some((name, time)) = name.to_str().and_then(|name| Some((name, archived_at(name, session)?))) {
                last = last.max(Some((time.to_owned(), name.to_owned())));
            }
        }
        Ok(last.map(|(_, name)| FileId { agent: agent.clone(), name }))
    }

    /// Finds the transcript of a session in a thread whose id is not known: a file `<session>-topic-<thread>.jsonl`. If
    /// there are several, returns the first by name.
    pub(crate) fn of_thread(&self, agent: &AgentId, session: &SessionId) -> Result<Option<FileId>, Error> {
        let folder = self.sessions(agent);
        let listing = disk::missing_is_none(fs::read_dir(&folder)).map_err(disk::failed("list", &folder))?;
        let mut first: Option<String> = None;
        for item in listing.into_iter().flatten() {
            let name = item.map_err(disk::failed("list", &folder))?.file_name();
            let Some(name) = name.to_str().filter(|name| is_of_thread(name, session)) else { continue };
            if first.as_deref().is_none_or(|first| name < first) {
                first = Some(name.to_owned());
            }
        }
        Ok(first.map(|name| FileId { agent: agent.clone(), name }))
    }

    pub(crate) fn transcript(&self, file: &FileId) -> PathBuf {
        self.sessions(&file.agent).join(&file.name)
    }
}

/// Identifies a transcript: a file name in an agent's folder.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct FileId {
    pub(crate) agent: AgentId,
    pub(crate) name: String,
}

/// Returns the usual transcript name of a session.
pub(crate) fn plain_name(session: &SessionId) -> String {
    format!("{session}.jsonl")
}

/// Returns the transcript name of a thread's session, which contains the thread id; `None` for other sessions.
pub(crate) fn thread_name(key: &SessionKey, session: &SessionId) -> Option<String> {
    let parent = key.thread_parent()?;
    // The remainder is `:thread:<id>` or `:topic:<id>`.
    let (_, thread) = key.as_str().strip_prefix(parent.as_str())?.strip_prefix(':')?.split_once(':')?;
    let name = format!("{session}-topic-{}.jsonl", encode_component(thread));
    (name.len() <= MAX_NAME_BYTES).then_some(name)
}

/// Encodes a text for a file name as OpenClaw does, like `encodeURIComponent`.
fn encode_component(text: &str) -> String {
    let is_unescaped = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.!~*'()".contains(&byte);
    let write = |byte: u8| if is_unescaped(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(write).collect()
}

/// Returns true if a file is the transcript of a thread with this session id.
fn is_of_thread(name: &str, session: &SessionId) -> bool {
    let suffix = name.strip_prefix(session.as_str()).and_then(|suffix| suffix.strip_prefix("-topic-"));
    suffix.and_then(|suffix| suffix.strip_suffix(".jsonl")).is_some_and(|thread| !thread.is_empty())
}

/// Returns the archive time in a file name if it names an archived transcript of this session.
fn archived_at<'a>(name: &'a str, session: &SessionId) -> Option<&'a str> {
    let suffix = name.strip_prefix(session.as_str())?;
    let (topic, suffix) = suffix.split_once(".jsonl.")?;
    let time = suffix.strip_prefix("deleted.").or_else(|| suffix.strip_prefix("reset."))?;
    (topic.is_empty() || topic.starts_with("-topic-")).then_some(time)
}

/// Returns the agent whose folder holds a key's session; `global` and `unknown` belong to the default agent.
pub(crate) fn agent_of(key: &SessionKey) -> AgentId {
    key.agent().cloned().unwrap_or_else(AgentId::main)
}

/// Returns the transcript name in a session record, which OpenClaw sets for the topics of a group.
///
/// Only the last path component is used, so that a record cannot point outside its folder. It must contain the session
/// id, because a reset may leave the name of the previous transcript.
pub(crate) fn recorded_name(record: &Record) -> Option<&str> {
    let Some(Value::String(path)) = record.extra.get(SESSION_FILE) else { return None };
    let name = Path::new(path).file_name()?.to_str()?;
    let fits = name.ends_with(".jsonl") && name.contains(record.session_id.as_str()) && !name.starts_with('.');
    (fits && name.len() <= MAX_NAME_BYTES && !name.contains(['\\', '\0'])).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(session_file: &str) -> PathBuf {
        let mut record = Record::new(SessionId::parse("s1").unwrap(), 0);
        record.extra.insert("sessionFile".to_owned(), session_file.into());
        let name = recorded_name(&record).map_or_else(|| plain_name(&record.session_id), str::to_owned);
        StateLayout("/state".into()).transcript(&FileId { agent: AgentId::main(), name })
    }

    #[test]
    fn a_session_file_is_used_by_name_only() {
        let folder = Path::new("/state/agents/main/sessions");
        assert_eq!(file("/elsewhere/s1-topic-7.jsonl"), folder.join("s1-topic-7.jsonl"));
        assert_eq!(file("2026_s1.jsonl"), folder.join("2026_s1.jsonl"));
        for stray in
            ["/etc/passwd", "../../s1", "sessions.json", "s0.jsonl", ".s1.jsonl", "s1.jsonl/..", "", "..\\s1.jsonl"]
        {
            assert_eq!(file(stray), folder.join("s1.jsonl"), "{stray}");
        }
    }

    #[test]
    fn a_thread_has_its_name_in_that_of_its_transcript() {
        let name = |key: &str| {
            thread_name(&SessionKey::parse(key, &AgentId::main()).unwrap(), &SessionId::parse("s1").unwrap())
        };
        assert_eq!(name("telegram:group:-5:topic:7").as_deref(), Some("s1-topic-7.jsonl"));
        assert_eq!(name("slack:channel:c1:thread:17.5").as_deref(), Some("s1-topic-17.5.jsonl"));
        assert_eq!(name("matrix:channel:c1:thread:$ä/1").as_deref(), Some("s1-topic-%24%C3%A4%2F1.jsonl"));
        assert_eq!(name("main"), None);
        assert_eq!(name(&format!("slack:channel:c1:thread:{}", "/".repeat(90))), None);
    }

    #[test]
    fn keys_without_an_agent_belong_to_main() {
        let key = SessionKey::parse("global", &AgentId::normalize("ops")).unwrap();
        assert_eq!(agent_of(&key), AgentId::main());
    }
}
