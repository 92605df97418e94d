//! State of the single writer: the SQLite connection and a cache of the transcripts that were touched.
//!
//! A transcript is read when it is first touched, and again whenever its length is not the expected one: another
//! program then wrote, truncated or removed it.

use std::{collections::HashMap, fs, path::PathBuf, sync::Arc};

use homard_proto::{AgentId, EntryId, SessionId, SessionKey, session::Record};
use homard_store::Error;
use rusqlite::{Connection, OptionalExtension};
use tracing::{info, warn};

use crate::{
    checkpoint::CheckpointedRows,
    disk,
    health::Health,
    layout::{self, FileId, StateLayout},
    transcript,
    usage::UsageTally,
};

/// Cache size above which idle transcripts are dropped; the database stores their ends.
pub(crate) const MAX_CACHED_TRANSCRIPTS: usize = 1_024;

/// State of the single writer.
#[derive(Debug)]
pub(crate) struct WriterState {
    pub(crate) db: Connection,
    pub(crate) layout: Arc<StateLayout>,
    pub(crate) health: Arc<Health>,
    pub(crate) files: HashMap<FileId, TranscriptState>,
    /// File names of the transcripts that were touched.
    pub(crate) names: HashMap<(AgentId, SessionId), String>,
    /// Transcripts of deleted sessions that are not renamed yet.
    pub(crate) pending_renames: Vec<PendingRename>,
    /// Session records that are in `redo` and not yet in their own table.
    pub(crate) pending_records: Vec<PendingRecord>,
    /// Sequence number of the next row of `redo`; never reused during the life of a process.
    pub(crate) next_row: i64,
    /// Rows that the next commit deletes because the files are synced.
    pub(crate) done: CheckpointedRows,
    /// Number of newest runs to keep.
    pub(crate) keep: u32,
    /// Token usage of the runs that ended since the sums were last stored.
    pub(crate) usage_tally: UsageTally,
    /// Bytes written to transcripts since the last checkpoint.
    pub(crate) unsynced: u64,
    /// True if the database marks this process as cleanly stopped.
    pub(crate) is_marked_clean: bool,
}

/// Cached state of a transcript.
#[derive(Debug, Default)]
pub(crate) struct TranscriptState {
    /// Session of the transcript; `None` once it was deleted.
    pub(crate) session: Option<SessionId>,
    /// Length of the file according to the last read or write.
    pub(crate) file_length: u64,
    /// Committed lines that are not in the file yet; they belong at its end.
    pub(crate) pending: Vec<u8>,
    /// Last entry: the parent of the next one.
    pub(crate) leaf: Option<EntryId>,
    /// True if a write failed, so that a part of `pending` may be in the file.
    pub(crate) is_partial: bool,
    /// True if the file must be repaired before lines are appended.
    pub(crate) needs_repair: bool,
    /// True if the file is new, so that its folder must be synced as well.
    pub(crate) is_new: bool,
    /// Rows of `redo` whose lines may not be synced to the file yet.
    pub(crate) rows: Vec<i64>,
}

impl TranscriptState {
    /// Offset at which the next line will be written.
    pub(crate) fn length(&self) -> u64 {
        self.file_length + self.pending.len() as u64
    }

    /// True if the cached state can be dropped, because the database and the file contain all of it.
    fn is_idle(&self) -> bool {
        self.rows.is_empty() && self.pending.is_empty() && !self.is_partial && !self.needs_repair
    }

    fn fits(&self, actual: u64) -> bool {
        actual == self.file_length || (self.is_partial && (self.file_length..=self.length()).contains(&actual))
    }
}

/// A session record, or its deletion, that is not yet in its own table.
#[derive(Debug)]
pub(crate) struct PendingRecord {
    pub(crate) row: i64,
    pub(crate) key: SessionKey,
    pub(crate) record: Option<Arc<Record>>,
}

/// A pending rename of a deleted session's transcript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PendingRename {
    pub(crate) from: FileId,
    pub(crate) to: FileId,
}

impl WriterState {
    /// Returns the path of a transcript.
    pub(crate) fn path(&self, file: &FileId) -> PathBuf {
        self.layout.transcript(file)
    }

    /// Returns the transcript file of a session, which may be older than the current session of `key`. `record`, if it
    /// belongs to this session, may name the file.
    pub(crate) fn locate(
        &mut self,
        key: &SessionKey,
        session: &SessionId,
        record: Option<&Record>,
    ) -> Result<FileId, Error> {
        let agent = layout::agent_of(key);
        let cache_key = (agent.clone(), session.clone());
        if let Some(name) = self.names.get(&cache_key) {
            return Ok(FileId { agent, name: name.clone() });
        }
        let stored = self.row(&agent, session)?.map(|row| FileId { agent: agent.clone(), name: row.name });
        let stored = stored.filter(|file| self.path(file).exists());
        let recorded = record.filter(|record| record.session_id == *session).and_then(layout::recorded_name);
        let default_file = FileId { agent: agent.clone(), name: layout::plain_name(session) };
        let file = match (stored, recorded) {
            (Some(stored), _) => stored,
            (None, Some(recorded)) => FileId { agent, name: recorded.to_owned() },
            (None, None) if self.path(&default_file).exists() => default_file,
            // A request by session id alone does not name the thread.
            (None, None) if *key == SessionKey::explicit(&agent, session) => {
                self.layout.of_thread(&agent, session)?.unwrap_or(default_file)
            }
            (None, None) => layout::thread_name(key, session).map_or(default_file, |name| FileId { agent, name }),
        };
        self.names.insert(cache_key, file.name.clone());
        Ok(file)
    }

    /// Makes sure that the cached state of a transcript matches the file. Changes the file only if it lacks committed
    /// lines.
    pub(crate) fn touch(&mut self, file: &FileId, session: &SessionId) -> Result<(), Error> {
        let actual = disk::length(&self.path(file))?;
        match self.files.get(file) {
            Some(state) if state.fits(actual) => Ok(()),
            Some(state) => {
                let (expected, has_rows) = (state.file_length, !state.rows.is_empty());
                warn!(path = %self.path(file).display(), expected, actual, "another program changed a transcript");
                self.health.counters.repaired("transcript_changed");
                if has_rows { self.restore_lines(file) } else { self.read_state(file, Some(session)) }
            }
            None => self.meet(file, session, actual),
        }
    }

    fn meet(&mut self, file: &FileId, session: &SessionId, actual: u64) -> Result<(), Error> {
        match self.row(&file.agent, session)?.filter(|row| row.name == file.name) {
            Some(row) if row.length == actual => {
                let session = Some(session.clone());
                self.files.insert(
                    file.clone(),
                    TranscriptState { session, file_length: actual, leaf: row.leaf, ..TranscriptState::default() },
                );
                return Ok(());
            }
            Some(row) if row.length > actual => {
                let (path, expected) = (self.path(file), row.length);
                warn!(path = %path.display(), expected, actual, "a transcript is shorter than expected; entries were lost");
                self.health.counters.repaired("transcript_shorter");
            }
            Some(_) => {
                info!(path = %self.path(file).display(), "another program appended to a transcript; reading its entries")
            }
            None => {}
        }
        self.read_state(file, Some(session))
    }

    /// Drops idle transcripts from the cache if it holds more than `limit`. Must be called when the database knows
    /// their ends.
    pub(crate) fn evict_idle(&mut self, limit: usize) {
        if self.names.len().max(self.files.len()) <= limit {
            return;
        }
        self.files.retain(|_, state| !state.is_idle());
        let files = &self.files;
        let is_known =
            |agent: &AgentId, name: &str| files.contains_key(&FileId { agent: agent.clone(), name: name.to_owned() });
        self.names.retain(|(agent, _), name| is_known(agent, name));
    }

    /// Reads the state of a transcript from the file itself.
    pub(crate) fn read_state(&mut self, file: &FileId, session: Option<&SessionId>) -> Result<(), Error> {
        let path = self.path(file);
        let mut state = TranscriptState { session: session.cloned(), ..TranscriptState::default() };
        match session {
            // An empty transcript may not exist as a file.
            Some(session) if disk::length(&path)? > 0 => {
                let bytes = fs::read(&path).map_err(disk::failed("read", &path))?;
                let parsed = transcript::read(&bytes, session);
                state.file_length = bytes.len() as u64;
                state.needs_repair = !parsed.is_intact();
                state.leaf = parsed.leaf();
            }
            Some(_) => {}
            None => state.file_length = disk::length(&path)?,
        }
        self.files.insert(file.clone(), state);
        Ok(())
    }

    /// Returns the stored end of a synced transcript.
    fn row(&self, agent: &AgentId, session: &SessionId) -> Result<Option<StoredEnd>, Error> {
        let find = || {
            let sql = "SELECT name, len, leaf FROM file WHERE agent = ?1 AND session_id = ?2";
            let mut statement = self.db.prepare_cached(sql)?;
            let row = statement.query_row([agent.as_str(), session.as_str()], |row| {
                let leaf = crate::db::id_column(row, "leaf", EntryId::parse)?;
                Ok(StoredEnd { name: row.get("name")?, length: row.get("len")?, leaf })
            });
            row.optional()
        };
        self.health.sql(find())
    }
}

struct StoredEnd {
    name: String,
    length: u64,
    leaf: Option<EntryId>,
}
