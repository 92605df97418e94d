//! Repair of transcripts: missing committed lines, torn tails, damage, old versions.

use std::{fs, path::Path};

use homard_proto::SessionId;
use homard_store::Error;
use serde_json::Value;
use tracing::warn;

use crate::{
    disk,
    layout::FileId,
    state::WriterState,
    transcript::{self, TranscriptTail},
};

/// Location of committed lines after [`replay`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReplayOutcome {
    /// The lines are at their offset and end the file.
    InPlace,
    /// The lines are elsewhere, or others follow them: the file has to be read again.
    Elsewhere,
}

/// Makes sure that `lines`, committed for position `offset`, are in a file.
pub(crate) fn replay(path: &Path, offset: u64, lines: &[u8]) -> Result<ReplayOutcome, Error> {
    // One byte more: lines can only start where another line ends.
    let bytes = disk::read_from(path, offset.saturating_sub(1))?;
    let tail = if offset == 0 { Some(&bytes[..]) } else { bytes.strip_prefix(b"\n") };
    match tail {
        Some(tail) if tail == lines => return Ok(ReplayOutcome::InPlace),
        Some(tail) if tail.starts_with(lines) => return Ok(ReplayOutcome::Elsewhere),
        Some(tail) if !is_foreign(tail, lines) => {
            disk::write_at(path, offset, lines)?;
            let is_longer = tail.len() > lines.len();
            return Ok(if is_longer { ReplayOutcome::Elsewhere } else { ReplayOutcome::InPlace });
        }
        Some(_) | None => {}
    }
    warn!(path = %path.display(), "another program rewrote a transcript; appending the pending entries");
    let bytes = disk::read(path)?.unwrap_or_default();
    let gap: &[u8] = if bytes.is_empty() || bytes.ends_with(b"\n") { b"" } else { b"\n" };
    disk::write_at(path, bytes.len() as u64, &[gap, lines].concat())?;
    Ok(ReplayOutcome::Elsewhere)
}

/// True if the tail was written by another program: its first complete line is not one of ours.
fn is_foreign(tail: &[u8], lines: &[u8]) -> bool {
    let id = |line: &[u8]| -> Option<String> {
        let line: serde_json::Map<String, Value> = serde_json::from_slice(line).ok()?;
        Some(line.get("id")?.as_str()?.to_owned())
    };
    let first = tail.split_inclusive(|&byte| byte == b'\n').next().filter(|line| line.ends_with(b"\n"));
    let Some(first) = first.and_then(id) else { return false };
    !lines.split(|&byte| byte == b'\n').filter_map(id).any(|id_in_lines| id_in_lines == first)
}

impl WriterState {
    /// Restores missing committed lines in a file and syncs it.
    pub(crate) fn restore_lines(&mut self, file: &FileId) -> Result<(), Error> {
        let rows = || {
            let sql = "SELECT off, line FROM redo WHERE agent = ?1 AND name = ?2 ORDER BY seq";
            let mut statement = self.db.prepare_cached(sql)?;
            let rows = statement.query_map([file.agent.as_str(), &file.name], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect::<rusqlite::Result<Vec<(u64, Vec<u8>)>>>()
        };
        let rows = self.health.sql(rows())?;
        let path = self.path(file);
        if let Some((offset, _)) = rows.first() {
            let lines: Vec<u8> = rows.iter().flat_map(|(_, line)| line).copied().collect();
            self.layout.make_sessions(&file.agent)?;
            replay(&path, *offset, &lines)?;
            self.health.counters.repaired("lines_replayed");
        }
        self.sync_file(file)?;
        let session = self.files.get(file).and_then(|state| state.session.clone());
        self.read_state(file, session.as_ref())
    }

    /// Syncs a file that contains all its lines, so that the database can delete them.
    pub(crate) fn sync_file(&mut self, file: &FileId) -> Result<(), Error> {
        let path = self.path(file);
        match disk::missing_is_none(disk::sync(&path)) {
            Ok(Some(())) => path.parent().map_or(Ok(()), disk::sync_folder)?,
            Ok(None) => {}
            Err(reason) => return Err(self.health.unsynced(&path, reason)),
        }
        let sql = "DELETE FROM redo WHERE agent = ?1 AND name = ?2";
        self.health.sql(self.db.execute(sql, [file.agent.as_str(), &file.name]))?;
        Ok(())
    }

    /// Repairs a transcript, so that lines can be appended. Everything removed is kept beside it.
    pub(crate) fn repair(&mut self, file: &FileId, session: &SessionId, now_ms: u64) -> Result<(), Error> {
        self.touch(file, session)?;
        if self.files.get(file).is_some_and(|state| !state.needs_repair) {
            return Ok(());
        }
        self.write_pending(file)?;
        self.sync_file(file)?;
        let path = self.path(file);
        let bytes = fs::read(&path).map_err(disk::failed("read", &path))?;
        let parsed = transcript::read(&bytes, session);
        if parsed.must_be_rewritten() {
            let reason = if parsed.damaged > 0 { "corrupt" } else { "bak" };
            disk::set_aside_once(&path, reason, &bytes, now_ms)?;
            disk::replace(&path, &parsed.repaired_text())?;
            let kind = if parsed.damaged > 0 { "transcript_damaged" } else { "transcript_completed" };
            self.health.counters.repaired(kind);
        } else {
            match parsed.end {
                TranscriptTail::Whole => {}
                TranscriptTail::NoLineBreak => {
                    disk::write_at(&path, bytes.len() as u64, b"\n")?;
                    self.health.counters.repaired("line_end_added");
                }
                TranscriptTail::Torn(complete_length) => {
                    disk::set_aside(&path, "torn", &bytes[complete_length..], now_ms)?;
                    disk::truncate(&path, complete_length as u64)?;
                    self.health.counters.repaired("transcript_torn");
                }
            }
        }
        self.read_state(file, Some(session))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replayed(before: Option<&str>, offset: u64) -> (ReplayOutcome, String) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.jsonl");
        if let Some(before) = before {
            fs::write(&path, before).unwrap();
        }
        let outcome = replay(&path, offset, b"{\"id\":\"b\"}\n{\"id\":\"c\"}\n").unwrap();
        (outcome, fs::read_to_string(path).unwrap())
    }

    #[test]
    fn replay_restores_committed_lines_in_any_file() {
        use ReplayOutcome::{Elsewhere, InPlace};
        let complete = "{\"id\":\"a\"}\n{\"id\":\"b\"}\n{\"id\":\"c\"}\n";
        let committed = &complete[11..];
        for (before, expected) in [
            (Some(complete), (InPlace, complete.to_owned())),
            (Some(&complete[..11]), (InPlace, complete.to_owned())),
            (Some(&complete[..25]), (InPlace, complete.to_owned())),
            (Some("{\"id\":\"a\"}\n{\"id\":\"b\"}\n{\"id\":\"\0\"}\n"), (InPlace, complete.to_owned())),
            (Some("{\"id\":\"a\"}\n\0\0\0\0"), (InPlace, complete.to_owned())),
            (Some(&format!("{complete}{{\"id\":\"x\"}}\n")), (Elsewhere, format!("{complete}{{\"id\":\"x\"}}\n"))),
            (None, (Elsewhere, committed.to_owned())),
            (Some("{\"id\""), (Elsewhere, format!("{{\"id\"\n{committed}"))),
            (
                Some("{\"id\":\"a\"}\n{\"id\":\"x\"}\n"),
                (Elsewhere, format!("{{\"id\":\"a\"}}\n{{\"id\":\"x\"}}\n{committed}")),
            ),
            (Some("{\"id\":\"another\"}\n"), (Elsewhere, format!("{{\"id\":\"another\"}}\n{committed}"))),
        ] {
            assert_eq!(replayed(before, 11), expected, "{before:?}");
        }
        assert_eq!(replayed(None, 0), (InPlace, committed.to_owned()));
    }
}
