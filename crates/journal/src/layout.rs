//! Where things lie in the state directory.

use std::path::{Path, PathBuf};

use homard_proto::{AgentId, SessionId, SessionKey, session::Record};
use homard_store::Error;
use serde_json::Value;
use tracing::warn;

use crate::disk;

/// The name of the file whose lock is the right to a state directory.
pub(crate) const LOCK: &str = "gateway.lock";

/// A state directory.
#[derive(Debug)]
pub(crate) struct Layout(PathBuf);

impl Layout {
    /// Makes the directory if it is not there.
    pub(crate) fn create(state_dir: &Path) -> Result<Self, Error> {
        let state = std::path::absolute(state_dir).map_err(disk::failed("find", state_dir))?;
        if disk::make_folder(&state)? {
            // Not all may read the folder above; the directory is as good without.
            if let Err(reason) = state.parent().map_or(Ok(()), disk::sync_folder) {
                warn!(%reason, "a power cut may take the new state directory with it");
            }
        }
        Ok(Self(state))
    }

    /// The directory itself.
    pub(crate) fn state(&self) -> &Path {
        &self.0
    }

    /// The file whose lock is the right to the directory.
    pub(crate) fn lock(&self) -> PathBuf {
        self.0.join(LOCK)
    }

    /// The folder of the database.
    pub(crate) fn journal(&self) -> PathBuf {
        self.0.join("journal")
    }

    /// The database.
    pub(crate) fn database(&self) -> PathBuf {
        self.journal().join("journal.db")
    }

    /// The folder that holds one folder per agent.
    pub(crate) fn agents(&self) -> PathBuf {
        self.0.join("agents")
    }

    /// The folder of an agent's transcripts and records.
    pub(crate) fn sessions(&self, agent: &AgentId) -> PathBuf {
        self.agents().join(agent.as_str()).join("sessions")
    }

    /// Makes an agent's folder if it is not there.
    pub(crate) fn make_sessions(&self, agent: &AgentId) -> Result<(), Error> {
        let sessions = self.sessions(agent);
        if disk::make_folder(&sessions)? {
            for above in sessions.ancestors().skip(1).take_while(|above| above.starts_with(&self.0)) {
                disk::sync_folder(above)?;
            }
        }
        Ok(())
    }

    /// Where a transcript is.
    pub(crate) fn transcript(&self, file: &FileId) -> PathBuf {
        self.sessions(&file.agent).join(&file.name)
    }
}

/// A transcript's place: a file in an agent's folder.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct FileId {
    pub(crate) agent: AgentId,
    pub(crate) name: String,
}

/// The name of a session's transcript, by its record.
pub(crate) fn file_name(record: &Record) -> String {
    named_file(record).map_or_else(|| default_name(&record.session_id), str::to_owned)
}

/// The name of a transcript of which only the session is known.
pub(crate) fn default_name(session: &SessionId) -> String {
    format!("{session}.jsonl")
}

/// The agent in whose folder a key's session lies: `global` and `unknown` are with the default agent.
pub(crate) fn home(key: &SessionKey) -> AgentId {
    key.agent().cloned().unwrap_or_else(AgentId::main)
}

/// The file name that OpenClaw wrote into the record, as for the topics of a group.
///
/// Only the name counts, so a record cannot point out of its folder; and it must hold the session id, because a
/// reset may leave the name of the transcript before.
fn named_file(record: &Record) -> Option<&str> {
    let Some(Value::String(path)) = record.extra.get("sessionFile") else { return None };
    let name = Path::new(path).file_name()?.to_str()?;
    let fits = name.ends_with(".jsonl") && name.contains(record.session_id.as_str()) && !name.starts_with('.');
    (fits && name.len() <= 255 && !name.contains(['\\', '\0'])).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(session_file: &str) -> PathBuf {
        let mut record = Record::new(SessionId::parse("s1").unwrap(), 0);
        record.extra.insert("sessionFile".to_owned(), session_file.into());
        Layout("/state".into()).transcript(&FileId { agent: AgentId::main(), name: file_name(&record) })
    }

    #[test]
    fn a_session_file_counts_by_its_name_only() {
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
    fn keys_without_an_agent_live_with_main() {
        let key = SessionKey::parse("global", &AgentId::normalize("ops")).unwrap();
        assert_eq!(home(&key), AgentId::main());
    }
}
