//! Reads: sessions with their transcripts, and the unfinished runs that a restart finds.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::Read,
    sync::Arc,
};

use homard_proto::{SessionId, SessionKey, session::Record, transcript::Entry};
use homard_store::{Error, Session, UnfinishedRun};
use tracing::warn;

use crate::{
    JournalInner, disk,
    layout::{self, FileId},
    runs, transcript,
};

impl JournalInner {
    /// Returns the session that a key refers to, with its transcript.
    pub(crate) fn load(&self, key: &SessionKey) -> Result<Option<Session>, Error> {
        let Some(record) = self.index().get(key) else { return Ok(None) };
        let entries = self.entries(key, &record.session_id, Some(&record))?;
        Ok(Some(Session { record: Arc::unwrap_or_clone(record), entries }))
    }

    /// Returns the entries of a session's transcript, even if its key refers to another session by now; `None` if there
    /// are none.
    pub(crate) fn transcript(&self, key: &SessionKey, session: &SessionId) -> Result<Option<Vec<Entry>>, Error> {
        let entries = self.live_transcript(key, session)?;
        if !entries.is_empty() {
            return Ok(Some(entries));
        }
        let mut writer = self.writer();
        writer.finish_moves()?;
        let Some(file) = self.layout.archived_transcript(&layout::agent_of(key), session)? else { return Ok(None) };
        writer.write_pending(&file)?;
        drop(writer);
        let path = self.layout.transcript(&file);
        let bytes = fs::read(&path).map_err(disk::failed("read", &path))?;
        Ok(Some(transcript::read(&bytes, session).entries))
    }

    /// Returns the entries of a transcript that was not archived.
    pub(crate) fn live_transcript(&self, key: &SessionKey, session: &SessionId) -> Result<Vec<Entry>, Error> {
        let record = self.index().get(key);
        self.entries(key, session, record.as_deref())
    }

    /// Returns the entries of a transcript: those in the file, and committed ones that are not written yet.
    fn entries(&self, key: &SessionKey, session: &SessionId, record: Option<&Record>) -> Result<Vec<Entry>, Error> {
        let mut writer = self.writer();
        let file = writer.locate(key, session, record)?;
        writer.touch(&file, session)?;
        let path = writer.path(&file);
        let Some(state) = writer.files.get(&file) else { return Ok(Vec::new()) };
        let (length, pending) = (state.file_length, state.pending.clone());
        // Opened while the writer is locked, so that it is the file of this state even if another file takes its name.
        let opened = if length > 0 { Some(File::open(&path).map_err(disk::failed("read", &path))?) } else { None };
        drop(writer);
        let mut bytes = Vec::new();
        if let Some(opened) = opened {
            opened.take(length).read_to_end(&mut bytes).map_err(disk::failed("read", &path))?;
        }
        bytes.extend(pending);
        let parsed = transcript::read(&bytes, session);
        if !parsed.is_intact() {
            self.mark_needs_repair(&file, length);
        }
        if parsed.damaged > 0 {
            warn!(path = %path.display(), lines = parsed.damaged, "skipped damaged lines of a transcript");
            if let Err(reason) = disk::set_aside_once(&path, "corrupt", &bytes, (self.now_ms)()) {
                warn!(%reason, "failed to copy a damaged transcript");
            }
        }
        Ok(parsed.entries)
    }

    /// Marks a transcript as needing repair before lines are appended.
    fn mark_needs_repair(&self, file: &FileId, length: u64) {
        if let Some(state) = self.writer().files.get_mut(file).filter(|state| state.file_length == length) {
            state.needs_repair = true;
        }
    }

    /// Returns the unfinished runs in the order of acceptance.
    pub(crate) fn recover(&self) -> Result<Vec<UnfinishedRun>, Error> {
        let open = runs::unfinished(&self.writer().db);
        let mut read: HashMap<(SessionKey, SessionId), Vec<Entry>> = HashMap::new();
        let mut found = Vec::new();
        for (mut run, input) in self.health.sql(open)? {
            if let (Some(session), Some(input)) = (run.row.session.clone(), input) {
                let session_of_key = (run.row.key.clone(), session);
                if !read.contains_key(&session_of_key) {
                    let record = self.index().get(&session_of_key.0);
                    let entries = self.entries(&session_of_key.0, &session_of_key.1, record.as_deref());
                    // A run whose transcript cannot be read is still returned, without entries.
                    let entries = entries.inspect_err(
                        |reason| warn!(%reason, "cannot read the transcript of an unfinished run; resuming without it"),
                    );
                    read.insert(session_of_key.clone(), entries.unwrap_or_default());
                }
                let lines = read.get(&session_of_key).into_iter().flatten();
                run.entries = lines.skip_while(|entry| entry.id != input).skip(1).cloned().collect();
            }
            found.push(run);
        }
        Ok(found)
    }
}
