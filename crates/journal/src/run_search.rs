//! Search for runs.
//!
//! A row of `run` holds the whole timeline, so reading 100,000 of them takes seconds. `run_summary` holds what conditions
//! look at. It is written for many runs at once, at a checkpoint, so that a plain run writes no page for it. The newest
//! runs, and those that had not ended when their neighbours were summarized, are examined in `run`.

use homard_proto::RunId;
use homard_store::{Error, Outcome, RunQuery, RunRow, run_filter::RunSummary};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};

use crate::{
    JournalInner, db, runs,
    sessions::{meta, set_meta},
};

type Result<T> = rusqlite::Result<T>;

/// Metadata name for [`SummaryProgress`].
const SUMMARIZED_RUNS: &str = "summarized_runs";

/// Number of new runs that are summarized together. Fewer are not worth a page.
const MIN_SUMMARIZED: i64 = 256;

/// Maximum number of runs that are summarized at once, because commits wait meanwhile.
const MAX_SUMMARIZED: i64 = 1_000;

/// Number of sequence numbers that are searched at once, because commits wait meanwhile: of summarized runs, and of
/// others.
const SEARCHED_SUMMARIES: i64 = 10_000;
const SEARCHED_ROWS: i64 = 500;

/// The parts of an end that a summary needs.
#[derive(Deserialize)]
struct EndSummary {
    outcome: Outcome,
    model: (String, String),
}

/// Which runs have a summary.
#[derive(Debug, Default, Serialize, Deserialize)]
struct SummaryProgress {
    /// All up to this sequence number ...
    to: i64,
    /// ... but these: they had not ended.
    open: Vec<i64>,
}

/// Position of a search: runs before this sequence number have not been examined.
struct SearchPosition {
    before: i64,
    summarized: SummaryProgress,
}

impl SummaryProgress {
    fn read(db: &Connection) -> Result<Self> {
        let Some(stored) = meta(db, SUMMARIZED_RUNS)? else { return Ok(Self::default()) };
        serde_json::from_str(&stored).map_err(db::invalid_value)
    }
}

/// Summarizes the runs that ended since the last time, if there are enough new ones.
pub(crate) fn summarize(db: &Connection) -> Result<()> {
    let (done, last) = (SummaryProgress::read(db)?, last_run(db)?);
    if last - done.to < MIN_SUMMARIZED {
        return Ok(());
    }
    let to = last.min(done.to + MAX_SUMMARIZED);
    let mut read = db.prepare_cached("SELECT run_id, skey, ended FROM run WHERE seq = ?1")?;
    let sql = "INSERT INTO run_summary(seq, run_id, skey, status, model, error) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let mut write = db.prepare_cached(sql)?;
    let mut open = Vec::new();
    for seq in done.open.into_iter().chain(done.to + 1..=to) {
        let columns =
            |row: &Row<'_>| -> Result<(String, String, Option<String>)> { Ok((row.get(0)?, row.get(1)?, row.get(2)?)) };
        let Some((run, key, ended)) = read.query_row([seq], columns).optional()? else { continue };
        let Some(ended) = ended else {
            open.push(seq);
            continue;
        };
        let EndSummary { outcome, model: (provider, model) } =
            serde_json::from_str(&ended).map_err(db::invalid_value)?;
        write.execute(params![seq, run, key, outcome.status(), format!("{provider}/{model}"), outcome.error()])?;
    }
    db.prepare_cached("DELETE FROM run_summary WHERE seq < (SELECT min(seq) FROM run)")?.execute([])?;
    set_meta(db, SUMMARIZED_RUNS, &db::json(&SummaryProgress { to, open })?)
}

fn last_run(db: &Connection) -> Result<i64> {
    db.prepare_cached("SELECT coalesce(max(seq), 0) FROM run")?.query_row([], |row| row.get(0))
}

/// Returns the runs that meet the conditions of a query, newest first. The writer is locked for a part of the search at a
/// time.
pub(crate) fn search(journal: &JournalInner, query: &RunQuery) -> std::result::Result<Vec<RunRow>, Error> {
    let mut position = {
        let writer = journal.writer();
        journal.health.sql(SearchPosition::start(&writer.db, query.before.as_ref()))?
    };
    let mut found = Vec::new();
    while position.before > 1 && found.len() < query.limit {
        let writer = journal.writer();
        found.extend(journal.health.sql(position.step(&writer.db, query, query.limit - found.len()))?);
    }
    Ok(found)
}

impl SearchPosition {
    fn start(db: &Connection, before: Option<&RunId>) -> Result<Self> {
        let before = match before {
            Some(run) => {
                let mut statement = db.prepare_cached("SELECT seq FROM run WHERE run_id = ?1")?;
                statement.query_row([run.as_str()], |row| row.get(0)).optional()?.unwrap_or(0)
            }
            None => last_run(db)? + 1,
        };
        Ok(Self { before, summarized: SummaryProgress::read(db)? })
    }

    /// Examines the next runs. Returns up to `limit` that meet the conditions.
    fn step(&mut self, db: &Connection, query: &RunQuery, limit: usize) -> Result<Vec<RunRow>> {
        let summarized_to = self.summarized.to;
        let (from, mut examined) = if self.before > summarized_to + 1 {
            let from = (self.before - SEARCHED_ROWS).max(summarized_to + 1);
            (from, (from..self.before).collect())
        } else {
            let from = self.before - SEARCHED_SUMMARIES;
            (from, summaries(db, query, from, self.before)?)
        };
        examined.extend(self.summarized.open.iter().filter(|seq| (from..self.before).contains(seq)));
        examined.sort_unstable_by(|left, right| right.cmp(left));
        let mut found = Vec::new();
        for seq in examined {
            if let Some(row) = runs::row_at(db, seq)?.filter(|row| is_match(query, row)) {
                found.push(row);
            }
            if found.len() == limit {
                break;
            }
        }
        self.before = from;
        Ok(found)
    }
}

fn is_match(query: &RunQuery, row: &RunRow) -> bool {
    query.key.as_ref().is_none_or(|key| row.key == *key) && query.filter.matches(row)
}

/// Returns the runs in a range whose summaries meet the conditions.
fn summaries(db: &Connection, query: &RunQuery, from: i64, before: i64) -> Result<Vec<i64>> {
    let sql = "SELECT seq, run_id, skey, status, model, error FROM run_summary WHERE seq >= ?1 AND seq < ?2";
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query(params![from, before])?;
    let RunQuery { key, filter, .. } = query;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let text = |column: usize| -> Result<&str> { Ok(row.get_ref(column)?.as_str_or_null()?.unwrap_or_default()) };
        let summary = RunSummary { run: text(1)?, key: text(2)?, status: text(3)?, model: text(4)?, error: text(5)? };
        if key.as_ref().is_none_or(|key| summary.key == key.as_str()) && filter.matches_summary(&summary) {
            found.push(row.get(0)?);
        }
    }
    Ok(found)
}
