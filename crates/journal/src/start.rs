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
    checkpoint::Done,
    db::{self, Trouble},
    desk::{Desk, Move, State},
    disk,
    export::{self, Stamp},
    health::Health,
    index::{self, Folder, Index},
    layout::{FileId, Layout},
    mend::{self, Replayed},
    outbox, runs, sessions,
    spend::Tally,
};

/// Time in milliseconds for which a crash counts as recent.
const OF_LATE: u64 = 5 * 60 * 1000;

/// Number of starts that are stored.
const BOOTS: i64 = 100;

/// How previous processes ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Boots {
    /// Processes that started in the last five minutes, before this one, and did not shut down cleanly.
    pub unclean_in_5_min: u32,
}

/// Result of opening a state directory.
pub(crate) struct Started {
    pub(crate) desk: Desk,
    pub(crate) index: Index,
    pub(crate) epoch: u64,
    pub(crate) boots: Boots,
}

/// Content of the database at start-up.
struct Found {
    db: Connection,
    index: Index,
    epoch: u64,
    boots: Boots,
    moves: Vec<Move>,
    redo: BTreeMap<FileId, Redo>,
    next_row: i64,
    tally: Tally,
}

/// Lines of one transcript that may be missing in its file.
struct Redo {
    session: Option<SessionId>,
    offset: u64,
    leaf: Option<EntryId>,
    lines: Vec<u8>,
    rows: Vec<i64>,
}

/// Opens a state directory. A damaged database is moved aside; the sessions are then loaded from `sessions.json`.
pub(crate) fn start(layout: &Arc<Layout>, health: &Arc<Health>, now_ms: u64) -> Result<Started, Error> {
    let path = layout.database();
    let found = match find(layout, health, now_ms) {
        Err(Trouble::Corrupt(reason)) => {
            error!(
                path = %path.display(), reason,
                "the journal is damaged and was moved aside; what was known of runs is lost, and sessions come from sessions.json"
            );
            db::set_aside(layout, now_ms)?;
            health.ticks.repaired("journal_set_aside");
            find(layout, health, now_ms)
        }
        found @ (Ok(_) | Err(Trouble::Broken(_) | Trouble::Other(_))) => found,
    };
    let Found { db, index, epoch, boots, moves, redo, next_row, tally } =
        found.map_err(|trouble| trouble.told(&path))?;
    let (layout, health) = (Arc::clone(layout), Arc::clone(health));
    let mut desk = Desk {
        db,
        layout,
        health,
        files: HashMap::new(),
        names: HashMap::new(),
        moves,
        late: Vec::new(),
        next_row,
        done: Done::default(),
        keep: runs::KEEP_RUNS,
        tally,
        unsynced: 0,
        is_marked_clean: false,
    };
    if let Err(reason) = desk.finish_moves() {
        warn!(%reason, "the transcript of a deleted session keeps its name for now");
    }
    for (file, redo) in redo {
        desk.redo(&file, redo);
    }
    Ok(Started { desk, index, epoch, boots })
}

fn find(layout: &Layout, health: &Health, now_ms: u64) -> Result<Found, Trouble> {
    let path = layout.database();
    let sort = |reason: rusqlite::Error| Trouble::of(&reason, &path);
    let mut db = db::open(layout)?;
    let tx = db.transaction().map_err(sort)?;
    sessions::land(&tx).map_err(sort)?;
    let mut index = sessions::all(&tx).map_err(sort)?;
    let changed = changed((layout, health), &tx, &index, now_ms)?;
    for (agent, folder, stamp) in changed {
        take_in(&tx, &mut index, (agent, folder, stamp)).map_err(sort)?;
    }
    if !ended_well(&tx).map_err(sort)? {
        // The previous process may have stored records after its last export.
        index.fall_behind();
    }
    let (epoch, boots) = count_boot(&tx, now_ms).map_err(sort)?;
    for _ in 0..outbox::lose_track(&tx, now_ms).map_err(sort)? {
        health.ticks.repaired("delivery_unknown");
    }
    tx.commit().map_err(sort)?;
    let (moves, redo) = (moves(&db).map_err(sort)?, redo(&db).map_err(sort)?);
    let next_row = redo.values().flat_map(|redo| &redo.rows).max().map_or(1, |last| last + 1);
    let tally = Tally::find(&db).map_err(sort)?;
    Ok(Found { db, index, epoch, boots, moves, redo, next_row, tally })
}

/// An agent's `sessions.json` that another program changed.
type Foreign = (AgentId, Folder, Option<Stamp>);

/// Reads each `sessions.json` that changed since our last export.
fn changed(
    (layout, health): (&Layout, &Health),
    db: &Connection,
    index: &Index,
    now_ms: u64,
) -> Result<Vec<Foreign>, Trouble> {
    let mut agents = on_disk(layout).map_err(Trouble::Other)?;
    agents.extend(index.agents());
    agents.sort();
    agents.dedup();
    let mut changed = Vec::new();
    for agent in agents {
        let sessions = layout.sessions(&agent);
        let file = sessions.join(index::FILE);
        let known = export::known(db, &agent).map_err(|reason| Trouble::of(&reason, &layout.database()))?;
        if !export::is_known(&file, &known).map_err(Trouble::Other)? {
            let stamp = Stamp::of(&file).map_err(Trouble::Other)?;
            let folder = Folder::read(&sessions, &agent, now_ms).map_err(Trouble::Other)?;
            if stamp.is_some() && !file.exists() {
                health.ticks.repaired("session_records_set_aside");
            }
            changed.push((agent, folder, stamp));
        }
    }
    Ok(changed)
}

/// Returns the agents that have a folder.
fn on_disk(layout: &Layout) -> Result<Vec<AgentId>, Error> {
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
            warn!(?name, "something that is no agent's folder was passed by");
        }
    }
    Ok(found)
}

fn take_in(db: &Connection, index: &mut Index, (agent, folder, stamp): Foreign) -> rusqlite::Result<()> {
    sessions::put_strange(db, &agent, folder.strange())?;
    for (key, record) in index.merge(&agent, folder) {
        sessions::put(db, &key, &record)?;
    }
    export::remember(db, &agent, stamp.as_slice())
}

/// True if the previous process shut down cleanly, or there was none.
fn ended_well(db: &Connection) -> rusqlite::Result<bool> {
    db.query_row("SELECT coalesce((SELECT clean FROM boot ORDER BY epoch DESC LIMIT 1), 1)", [], |row| row.get(0))
}

fn count_boot(db: &Connection, now_ms: u64) -> rusqlite::Result<(u64, Boots)> {
    let sql = "SELECT count(*) FROM boot WHERE clean = 0 AND at BETWEEN ?1 AND ?2";
    let unclean = db.query_row(sql, params![now_ms.saturating_sub(OF_LATE), now_ms], |row| row.get(0))?;
    db.execute("INSERT INTO boot(at, clean) VALUES (?1, 0)", params![now_ms])?;
    let epoch = db.last_insert_rowid();
    db.execute("DELETE FROM boot WHERE epoch <= ?1", [epoch - BOOTS])?;
    Ok((epoch.unsigned_abs(), Boots { unclean_in_5_min: unclean }))
}

fn moves(db: &Connection) -> rusqlite::Result<Vec<Move>> {
    let mut statement = db.prepare("SELECT agent, name, target FROM moving")?;
    let rows = statement.query_map([], |row| {
        let agent = AgentId::normalize(&row.get::<_, String>(0)?);
        let file = |name| FileId { agent: agent.clone(), name };
        Ok(Move { from: file(row.get(1)?), to: file(row.get(2)?) })
    })?;
    rows.collect()
}

fn redo(db: &Connection) -> rusqlite::Result<BTreeMap<FileId, Redo>> {
    let mut statement = db.prepare("SELECT seq, agent, name, session_id, off, leaf, line FROM redo ORDER BY seq")?;
    let mut rows = statement.query([])?;
    let mut files = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let file = FileId { agent: AgentId::normalize(row.get_ref(1)?.as_str()?), name: row.get(2)? };
        let (session, offset) = (db::named(row, "session_id", SessionId::parse)?, row.get(4)?);
        let redo = files.entry(file).or_insert_with(|| Redo {
            session,
            offset,
            leaf: None,
            lines: Vec::new(),
            rows: Vec::new(),
        });
        redo.leaf = db::named(row, "leaf", EntryId::parse)?;
        redo.lines.extend(row.get_ref(6)?.as_blob()?);
        redo.rows.push(row.get(0)?);
    }
    Ok(files)
}

impl Desk {
    /// Makes sure that committed lines are in their file. The next checkpoint syncs it.
    fn redo(&mut self, file: &FileId, redo: Redo) {
        let Redo { session, offset, leaf, lines, rows } = redo;
        if let Some(session) = &session {
            self.names.insert((file.agent.clone(), session.clone()), file.name.clone());
        }
        let path = self.path(file);
        let made = self.layout.make_sessions(&file.agent);
        if disk::length(&path).is_ok_and(|length| length < offset + lines.len() as u64) {
            self.health.ticks.repaired("lines_replayed");
        }
        let replayed = made.and_then(|()| mend::replay(&path, offset, &lines));
        let state = State { session: session.clone(), leaf, rows, is_new: true, ..State::default() };
        let outcome = match replayed {
            Ok(Replayed::InPlace) => {
                self.files.insert(file.clone(), State { disk: offset + lines.len() as u64, ..state });
                Ok(())
            }
            Ok(Replayed::Elsewhere) => {
                self.files.insert(file.clone(), State { disk: offset, ..state });
                self.settle(file).and_then(|()| self.look(file, session.as_ref()))
            }
            Err(reason) => {
                self.files.insert(file.clone(), State { disk: offset, pending: lines, is_partial: true, ..state });
                Err(reason)
            }
        };
        if let Err(reason) = outcome {
            warn!(%reason, "lines of a transcript wait in the journal");
        }
    }
}
