//! Where things lie in the state directory.

use std::{
    fs,
    path::{Path, PathBuf},
};

use homard_proto::{AgentId, SessionId, SessionKey, session::Record};
use homard_store::Error;
use serde_json::Value;
use tracing::warn;

use crate::disk;

/// The name of the file whose lock is the right to a state directory.
pub(crate) const LOCK: &str = "gateway.lock";

/// The name of the file that says which process has that right.
pub(crate) const HOLDER: &str = "gateway.holder.json";

/// Where a record tells the path of its transcript.
pub(crate) const SESSION_FILE: &str = "sessionFile";

/// How long a file's name may be, in bytes.
const LONGEST: usize = 255;

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

    /// The file that says which process has the right to the directory.
    pub(crate) fn holder(&self) -> PathBuf {
        self.0.join(HOLDER)
    }

    /// The folder of the database.
    pub(crate) fn journal(&self) -> PathBuf {
        self.0.join("journal")
    }

    /// The database.
    pub(crate) fn database(&self) -> PathBuf {
        self.journal().join("journal.db")
    }

    /// The file that keeps some room for a full disk.
    pub(crate) fn reserve(&self) -> PathBuf {
        self.journal().join("reserve.bin")
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
            let mut above = sessions.ancestors().skip(1).take_while(|above| above.starts_with(&self.0));
            if let Err(reason) = above.try_for_each(disk::sync_folder) {
                // Not there for the next one either, or nobody would make sure of it again.
                fs::remove_dir(&sessions).map_err(disk::failed("remove", &sessions))?;
                return Err(reason);
            }
        }
        Ok(())
    }

    /// The last transcript of a session that was put aside: by us when it was deleted, by OpenClaw also at a reset.
    pub(crate) fn put_aside(&self, agent: &AgentId, session: &SessionId) -> Result<Option<FileId>, Error> {
        let folder = self.sessions(agent);
        let listing = disk::missing_is_none(fs::read_dir(&folder)).map_err(disk::failed("list", &folder))?;
        let mut last: Option<(String, String)> = None;
        for item in listing.into_iter().flatten() {
            let name = item.map_err(disk::failed("list", &folder))?.file_name();
            if let Some((name, at)) = name.to_str().and_then(|name| Some((name, aside_since(name, session)?))) {
                last = last.max(Some((at.to_owned(), name.to_owned())));
            }
        }
        Ok(last.map(|(_, name)| FileId { agent: agent.clone(), name }))
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

/// The name of a transcript as it is for most sessions.
pub(crate) fn plain_name(session: &SessionId) -> String {
    format!("{session}.jsonl")
}

/// The name of a thread's transcript, which tells the thread; `None` for other sessions.
pub(crate) fn thread_name(key: &SessionKey, session: &SessionId) -> Option<String> {
    let parent = key.thread_parent()?;
    // What is left is `:thread:<id>` or `:topic:<id>`.
    let (_, thread) = key.as_str().strip_prefix(parent.as_str())?.strip_prefix(':')?.split_once(':')?;
    let name = format!("{session}-topic-{}.jsonl", encoded(thread));
    (name.len() <= LONGEST).then_some(name)
}

/// A text as a part of a file name, as OpenClaw writes it: in the way of a URL's component.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.!~*'()".contains(&byte);
    let write = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(write).collect()
}

/// Since when a file is put aside, if it is a transcript of this session that was.
fn aside_since<'a>(name: &'a str, session: &SessionId) -> Option<&'a str> {
    let rest = name.strip_prefix(session.as_str())?;
    let (topic, rest) = rest.split_once(".jsonl.")?;
    let at = rest.strip_prefix("deleted.").or_else(|| rest.strip_prefix("reset."))?;
    (topic.is_empty() || topic.starts_with("-topic-")).then_some(at)
}

/// The agent in whose folder a key's session lies: `global` and `unknown` are with the default agent.
pub(crate) fn home(key: &SessionKey) -> AgentId {
    key.agent().cloned().unwrap_or_else(AgentId::main)
}

/// The file name that the record tells, as OpenClaw's do for the topics of a group.
///
/// Only the name counts, so a record cannot point out of its folder; and it must hold the session id, because a
/// reset may leave the name of the transcript before.
pub(crate) fn told_name(record: &Record) -> Option<&str> {
    let Some(Value::String(path)) = record.extra.get(SESSION_FILE) else { return None };
    let name = Path::new(path).file_name()?.to_str()?;
    let fits = name.ends_with(".jsonl") && name.contains(record.session_id.as_str()) && !name.starts_with('.');
    (fits && name.len() <= LONGEST && !name.contains(['\\', '\0'])).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(session_file: &str) -> PathBuf {
        let mut record = Record::new(SessionId::parse("s1").unwrap(), 0);
        record.extra.insert("sessionFile".to_owned(), session_file.into());
        let name = told_name(&record).map_or_else(|| plain_name(&record.session_id), str::to_owned);
        Layout("/state".into()).transcript(&FileId { agent: AgentId::main(), name })
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
    fn keys_without_an_agent_live_with_main() {
        let key = SessionKey::parse("global", &AgentId::normalize("ops")).unwrap();
        assert_eq!(home(&key), AgentId::main());
    }
}
