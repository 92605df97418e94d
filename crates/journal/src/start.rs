//! Opening of a state directory: loads the sessions, restores transcript lines that a crash kept from their files, and
//! counts recent crashes.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    sync::Arc,
};

use homard_proto::{AgentId, EntryId, SessionId};
use homard_store::Error;
use rusqlite::{Connection, params};
use tracing::{error, warn};

use crate::{
    checkpoint::CheckpointedRows,
    db::{self, DatabaseError},
    disk,
    export::{self, FileStamp},
    health::Health,
    index::{self, AgentSessions, SessionIndex},
    layout::{FileId, StateLayout},
    outbox,
    repair::{self, ReplayOutcome},
    runs, sessions,
    state::{PendingRename, TranscriptState, WriterState},
    usage::UsageTally,
};

/// Time in milliseconds for which a crash counts as recent.
const RECENT_MS: u64 = 5 * 60 * 1000;

/// Number of starts that are stored.
const KEPT_BOOTS: i64 = 100;

/// How previous processes ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BootHistory {
    /// Processes that started in the last five minutes, before this one, and did not shut down cleanly.
    pub unclean_in_5_min: u32,
}

/// Result of opening a state directory.
pub(crate) struct OpenedState {
    pub(crate) writer: WriterState,
    pub(crate) index: SessionIndex,
    pub(crate) epoch: u64,
    pub(crate) boots: BootHistory,
}

/// Content of the database at start-up.
struct StartupState {
    db: Connection,
    /// Session records of all agents.
    index: SessionIndex,
    /// Number of this start, which is the fencing token of its commits.
    epoch: u64,
    boots: BootHistory,
    /// Transcripts of deleted sessions that are not renamed yet.
    pending_renames: Vec<PendingRename>,
    /// Committed lines that may be missing in their transcripts.
    redo: BTreeMap<FileId, RedoLines>,
    /// Sequence number of the next row of `redo`.
    next_row: i64,
    usage_tally: UsageTally,
}

/// Lines of one transcript that may be missing in its file.
struct RedoLines {
    session: Option<SessionId>,
    /// Offset of the first line in the file.
    offset: u64,
    /// Last entry of the transcript once the lines are written.
    leaf: Option<EntryId>,
    lines: Vec<u8>,
    /// Sequence numbers of their rows in `redo`.
    rows: Vec<i64>,
}

/// Opens a state directory. A damaged database is moved aside; the sessions are then loaded from `sessions.json`.
pub(crate) fn start(layout: &Arc<StateLayout>, health: &Arc<Health>, now_ms: u64) -> Result<OpenedState, Error> {
    let path = layout.database();
    let found = match read_startup_state(layout, health, now_ms) {
        Err(DatabaseError::Corrupt(reason)) => {
            error!(
                path = %path.display(), reason,
                "the journal is damaged and was moved aside; run records are lost, sessions are restored from sessions.json"
            );
            db::set_aside(layout, now_ms)?;
            health.counters.repaired("journal_set_aside");
            read_startup_state(layout, health, now_ms)
        }
        found @ (Ok(_) | Err(DatabaseError::DiskFailed(_) | DatabaseError::Other(_))) => found,
    };
    let StartupState { db, index, epoch, boots, pending_renames, redo, next_row, usage_tally } =
        found.map_err(|error| error.into_error(&path))?;
    let (layout, health) = (Arc::clone(layout), Arc::clone(health));
    let mut writer = WriterState {
        db,
        layout,
        health,
        files: HashMap::new(),
        names: HashMap::new(),
        pending_renames,
        pending_records: Vec::new(),
        next_row,
        done: CheckpointedRows::default(),
        keep: runs::KEEP_RUNS,
        usage_tally,
        unsynced: 0,
        is_marked_clean: false,
    };
    if let Err(reason) = writer.finish_moves() {
        warn!(%reason, "failed to rename the transcript of a deleted session; retrying later");
    }
    for (file, redo) in redo {
        replay_redo(&mut writer, &file, redo);
    }
    Ok(OpenedState { writer, index, epoch, boots })
}

/// Opens the database, brings it up to date in one transaction, and reads its content.
///
/// The transaction moves session records from `redo` to their own table, merges each `sessions.json` that another
/// program changed, records this start, and marks deliveries that were being sent as unknown. The transcript lines in
/// `redo` are only read here; [`start`] writes those that are missing to their files.
fn read_startup_state(layout: &StateLayout, health: &Health, now_ms: u64) -> Result<StartupState, DatabaseError> {
    let path = layout.database();
    let classify = |reason: rusqlite::Error| DatabaseError::of(&reason, &path);
    let mut db = db::open(layout)?;
    let tx = db.transaction().map_err(classify)?;
    sessions::move_pending_records(&tx).map_err(classify)?;
    let mut index = sessions::all(&tx).map_err(classify)?;
    let changed = changed_exports(layout, health, &tx, &index, now_ms)?;
    for export in changed {
        merge_export(&tx, &mut index, export).map_err(classify)?;
    }
    if !was_clean_shutdown(&tx).map_err(classify)? {
        // The previous process may have stored records after its last export to `sessions.json`: export all again.
        index.mark_all_stale();
    }
    let (epoch, boots) = count_boot(&tx, now_ms).map_err(classify)?;
    for _ in 0..outbox::mark_unknown(&tx, now_ms).map_err(classify)? {
        health.counters.repaired("delivery_unknown");
    }
    tx.commit().map_err(classify)?;
    let (pending_renames, redo) = (read_pending_renames(&db).map_err(classify)?, redo(&db).map_err(classify)?);
    let next_row = redo.values().flat_map(|redo| &redo.rows).max().map_or(1, |last| last + 1);
    let usage_tally = UsageTally::find(&db).map_err(classify)?;
    Ok(StartupState { db, index, epoch, boots, pending_renames, redo, next_row, usage_tally })
}

/// An agent's `sessions.json` that another program changed, with its content and the stamp of the file.
struct ForeignExport {
    agent: AgentId,
    folder: AgentSessions,
    stamp: Option<FileStamp>,
}

/// Reads each `sessions.json` that changed since our last export.
fn changed_exports(
    layout: &StateLayout,
    health: &Health,
    db: &Connection,
    index: &SessionIndex,
    now_ms: u64,
) -> Result<Vec<ForeignExport>, DatabaseError> {
    let mut agents = on_disk(layout).map_err(DatabaseError::Other)?;
    agents.extend(index.agents());
    agents.sort();
    agents.dedup();
    let mut changed = Vec::new();
    for agent in agents {
        let sessions = layout.sessions(&agent);
        let file = sessions.join(index::SESSIONS_FILE);
        let stamps =
            export::stored_stamps(db, &agent).map_err(|reason| DatabaseError::of(&reason, &layout.database()))?;
        if !export::is_known(&file, &stamps).map_err(DatabaseError::Other)? {
            let stamp = FileStamp::of(&file).map_err(DatabaseError::Other)?;
            let folder = AgentSessions::read(&sessions, &agent, now_ms).map_err(DatabaseError::Other)?;
            if stamp.is_some() && !file.exists() {
                health.counters.repaired("session_records_set_aside");
            }
            changed.push(ForeignExport { agent, folder, stamp });
        }
    }
    Ok(changed)
}

/// Returns the agents that have a folder in the state directory.
fn on_disk(layout: &StateLayout) -> Result<Vec<AgentId>, Error> {
    let agents = layout.agents();
    let listing = disk::missing_is_none(fs::read_dir(&agents)).map_err(disk::failed("list", &agents))?;
    let mut found = Vec::new();
    for item in listing.into_iter().flatten() {
        let item = item.map_err(disk::failed("list", &agents))?;
        let name = item.file_name();
        let agent = AgentId::normalize(&name.to_string_lossy());
        if name == agent.as_str() && item.path().is_dir() {
            found.push(agent);
        } else {
            warn!(?name, "ignoring an entry of the directory agents that does not belong to an agent");
        }
    }
    Ok(found)
}

/// Merges a changed `sessions.json` into the index and the database, and stores its stamp.
fn merge_export(
    db: &Connection,
    index: &mut SessionIndex,
    ForeignExport { agent, folder, stamp }: ForeignExport,
) -> rusqlite::Result<()> {
    sessions::store_unparsed(db, &agent, folder.unparsed())?;
    for (key, record) in index.merge(&agent, folder) {
        sessions::put(db, &key, &record)?;
    }
    export::store_stamps(db, &agent, stamp.as_slice())
}

/// True if the previous process shut down cleanly, or there was none.
fn was_clean_shutdown(db: &Connection) -> rusqlite::Result<bool> {
    db.query_row("SELECT coalesce((SELECT clean FROM boot ORDER BY epoch DESC LIMIT 1), 1)", [], |row| row.get(0))
}

/// Records this start; returns its epoch, and how many recent processes did not shut down cleanly.
fn count_boot(db: &Connection, now_ms: u64) -> rusqlite::Result<(u64, BootHistory)> {
    let sql = "SELECT count(*) FROM boot WHERE clean = 0 AND at BETWEEN ?1 AND ?2";
    let unclean = db.query_row(sql, params![now_ms.saturating_sub(RECENT_MS), now_ms], |row| row.get(0))?;
    db.execute("INSERT INTO boot(at, clean) VALUES (?1, 0)", params![now_ms])?;
    let epoch = db.last_insert_rowid();
    db.execute("DELETE FROM boot WHERE epoch <= ?1", [epoch - KEPT_BOOTS])?;
    Ok((epoch.unsigned_abs(), BootHistory { unclean_in_5_min: unclean }))
}

fn read_pending_renames(db: &Connection) -> rusqlite::Result<Vec<PendingRename>> {
    let mut statement = db.prepare("SELECT agent, name, target FROM moving")?;
    let rows = statement.query_map([], |row| {
        let agent = AgentId::normalize(&row.get::<_, String>(0)?);
        let file = |name| FileId { agent: agent.clone(), name };
        Ok(PendingRename { from: file(row.get(1)?), to: file(row.get(2)?) })
    })?;
    rows.collect()
}

/// Reads the transcript lines in `redo`, by file.
fn redo(db: &Connection) -> rusqlite::Result<BTreeMap<FileId, RedoLines>> {
    let mut statement = db.prepare("SELECT seq, agent, name, session_id, off, leaf, line FROM redo ORDER BY seq")?;
    let mut rows = statement.query([])?;
    let mut files = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let file = FileId { agent: AgentId::normalize(row.get_ref(1)?.as_str()?), name: row.get(2)? };
        let (session, offset) = (db::id_column(row, "session_id", SessionId::parse)?, row.get(4)?);
        let redo = files.entry(file).or_insert_with(|| RedoLines {
            session,
            offset,
            leaf: None,
            lines: Vec::new(),
            rows: Vec::new(),
        });
        redo.leaf = db::id_column(row, "leaf", EntryId::parse)?;
        redo.lines.extend(row.get_ref(6)?.as_blob()?);
        redo.rows.push(row.get(0)?);
    }
    Ok(files)
}

/// Writes committed lines to their file if they are missing there. The next checkpoint syncs the file. Lines that
/// cannot be written stay pending.
fn replay_redo(writer: &mut WriterState, file: &FileId, redo: RedoLines) {
    let RedoLines { session, offset, leaf, lines, rows } = redo;
    if let Some(session) = &session {
        writer.names.insert((file.agent.clone(), session.clone()), file.name.clone());
    }
    let path = writer.path(file);
    let created = writer.layout.make_sessions(&file.agent);
    if disk::length(&path).is_ok_and(|length| length < offset + lines.len() as u64) {
        writer.health.counters.repaired("lines_replayed");
    }
    let replayed = created.and_then(|()| repair::replay(&path, offset, &lines));
    let state = TranscriptState { session: session.clone(), leaf, rows, is_new: true, ..TranscriptState::default() };
    let outcome = match replayed {
        Ok(ReplayOutcome::InPlace) => {
            writer.files.insert(file.clone(), TranscriptState { file_length: offset + lines.len() as u64, ..state });
            Ok(())
        }
        Ok(ReplayOutcome::Elsewhere) => {
            writer.files.insert(file.clone(), TranscriptState { file_length: offset, ..state });
            writer.sync_file(file).and_then(|()| writer.read_state(file, session.as_ref()))
        }
        Err(reason) => {
            writer.files.insert(
                file.clone(),
                TranscriptState { file_length: offset, pending: lines, is_partial: true, ..state },
            );
            Err(reason)
        }
    };
    if let Err(reason) = outcome {
        warn!(%reason, "failed to write transcript entries; keeping them in the journal");
    }
}
