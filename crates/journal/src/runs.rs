//! Runs in the database, and the rule that each is accepted once and ends once.
//!
//! [`homard_store::ledger`] implements the same rule for the memory store; the tests check both alike.

use std::collections::{HashMap, HashSet};

use homard_proto::{AgentId, CallId, EntryId, RunId, SessionId, SessionKey, message::Message, message::ToolResult};
use homard_store::{
    AbortReason, Accept, Attempt, EndRecord, Input, Options, ProcessEnd, Rec, RunRow, RunState, ToolClass, ToolRow,
    UnfinishedRun, Verdict, recovery::assistant,
};
use rusqlite::{Connection, OptionalExtension, Row, named_params, params};
use serde::{Deserialize, Serialize};

use crate::{
    db::{self, id_column, json, json_column},
    outbox,
    usage::UsageTally,
};

type Result<T> = rusqlite::Result<T>;

/// Minimum time, in milliseconds, for which ended runs are kept, together with the channel events that started them.
/// Channels redeliver an event within a day.
pub(crate) const KEEP_FOR: u64 = 24 * 60 * 60 * 1000;

/// Default number of newest runs that are kept regardless of age.
pub(crate) const KEEP_RUNS: u32 = 100_000;

/// Maximum number of rows deleted at once, because commits wait meanwhile.
pub(crate) const MAX_PRUNED_ROWS: i64 = 1000;

/// State of a batch while its records are checked.
#[derive(Debug, Default)]
pub(crate) struct BatchRuns {
    /// Runs whose [`Accept`] was refused in this batch.
    refused: HashSet<RunId>,
    /// Reason for refusing new runs, if the disk is low on space.
    refusal: Option<String>,
    /// True if a message was refused because the disk is low on space.
    pub(crate) has_refused: bool,
    /// Token usage of the runs that ended in this batch.
    pub(crate) usage_tally: UsageTally,
    /// Epoch of the writing process.
    epoch: i64,
}

impl BatchRuns {
    /// Creates the state of a batch. `tally` contains the number of the last end.
    pub(crate) fn new(refusal: Option<String>, tally: &UsageTally, epoch: i64) -> Self {
        Self { refusal, usage_tally: tally.next(), epoch, ..Self::default() }
    }
}

/// Data of a message that only an unfinished run needs.
#[derive(Serialize, Deserialize)]
struct PendingRequest {
    message: Message,
    options: Options,
}

/// Applies a record to the run tables and returns its verdict. Records with any verdict other than [`Verdict::Stored`]
/// must not be applied elsewhere.
pub(crate) fn apply(db: &Connection, rec: &Rec, batch: &mut BatchRuns) -> Result<Verdict> {
    let Some(run) = rec.run() else { return Ok(Verdict::Stored) };
    if batch.refused.contains(run) {
        return Ok(Verdict::Skipped);
    }
    let stored = match rec {
        Rec::Accept(accept) => return store_accept(db, accept, batch),
        Rec::Start(start) => {
            let sql = "UPDATE run SET st = 'running', session_id = ?2, attempts = attempts + 1,
                       started_at = coalesce(started_at, ?3),
                       taken_up = iif(started_at IS NULL, NULL, json_insert(coalesce(taken_up, '[]'), '$[#]', ?3)),
                       epochs = iif(epochs IS NULL, ?4, epochs || ' ' || ?4)
                       WHERE run_id = ?1 AND st <> 'ended'";
            execute(db, sql, params![run.as_str(), start.header.id.as_str(), start.at, batch.epoch])?
        }
        Rec::Input(input) => {
            // The message of a held run that was released is entered once more.
            let sql = "UPDATE run SET input_entry = iif(input_entry IS NULL OR (hold ->> 'releasedAt' IS NOT NULL AND
                       hold ->> 'isReentered' IS NULL), ?2, input_entry),
                       hold = iif(hold ->> 'releasedAt' IS NULL, hold, json_set(hold, '$.isReentered', json('true')))
                       WHERE run_id = ?1 AND st <> 'ended'";
            let own_entry = input.entries.last().map(|entry| entry.id.as_str());
            execute(db, sql, params![run.as_str(), own_entry])? && absorb(db, input)?
        }
        Rec::ToolIntent { call, class, .. } => is_open(db, run)? && add_tool(db, run, call, *class, None)?,
        Rec::ToolDone { result, .. } => is_open(db, run)? && store_result(db, run, result)?,
        Rec::Abort { reason, .. } => {
            let sql = "UPDATE run SET aborted = coalesce(aborted, ?2) WHERE run_id = ?1 AND st <> 'ended'";
            execute(db, sql, params![run.as_str(), json(reason)?])?
        }
        Rec::Hold { at, .. } => {
            let sql =
                "UPDATE run SET st = 'held', hold = json_object('heldAt', ?2) WHERE run_id = ?1 AND st = 'running'";
            execute(db, sql, params![run.as_str(), at])? && {
                execute(db, "DELETE FROM tool WHERE run_id = ?1", [run.as_str()])?;
                true
            }
        }
        Rec::Release { at, .. } => {
            let sql = "UPDATE run SET st = 'accepted', hold = json_set(hold, '$.releasedAt', ?2)
                       WHERE run_id = ?1 AND st = 'held'";
            execute(db, sql, params![run.as_str(), at])?
        }
        Rec::Terminal { ended, .. } => end(db, run, ended, &mut batch.usage_tally)?,
        // The calls of earlier assistant messages have results, and a model may reuse their ids.
        Rec::Entry { entry, .. } if assistant(entry).is_some() => {
            let is_open = is_open(db, run)?;
            if is_open {
                execute(db, "DELETE FROM tool WHERE run_id = ?1", [run.as_str()])?;
            }
            is_open
        }
        Rec::Entry { .. } | Rec::Patch { .. } | Rec::Delete { .. } | Rec::Queue(_) | Rec::Deliver { .. } => {
            is_open(db, run)?
        }
    };
    Ok(if stored { Verdict::Stored } else { Verdict::Skipped })
}

/// Executes a statement; returns true if it changed a row.
fn execute(db: &Connection, sql: &str, values: impl rusqlite::Params) -> Result<bool> {
    Ok(db.prepare_cached(sql)?.execute(values)? > 0)
}

fn is_open(db: &Connection, run: &RunId) -> Result<bool> {
    db.prepare_cached("SELECT 1 FROM run WHERE run_id = ?1 AND st <> 'ended'")?.exists([run.as_str()])
}

fn store_accept(db: &Connection, accept: &Accept, batch: &mut BatchRuns) -> Result<Verdict> {
    if let Some(reason) = &batch.refusal {
        let known = known(db, accept)?;
        batch.refused.insert(accept.run.clone());
        batch.has_refused |= known.is_none();
        return Ok(known.unwrap_or_else(|| Verdict::Full(reason.clone())));
    }
    let request = PendingRequest { message: accept.message.clone(), options: accept.options.clone() };
    let sql = "INSERT OR IGNORE INTO run(run_id, principal, method, fingerprint, skey, accepted_at, asked, origin, st)
               VALUES (:run, :principal, :method, :fingerprint, :key, :at, :asked, :origin, 'accepted')";
    let values = named_params! {
        ":run": accept.run.as_str(), ":principal": accept.principal, ":method": accept.method,
        ":fingerprint": accept.fingerprint, ":key": accept.key.as_str(), ":at": accept.at, ":asked": json(&request)?,
        ":origin": accept.origin.as_ref().map(json).transpose()?,
    };
    if db.prepare_cached(sql)?.execute(values)? > 0 {
        return Ok(Verdict::Stored);
    }
    batch.refused.insert(accept.run.clone());
    Ok(known(db, accept)?.unwrap_or(Verdict::Conflict))
}

/// Returns the verdict for a message whose channel event or run is known; `None` if neither is.
fn known(db: &Connection, accept: &Accept) -> Result<Option<Verdict>> {
    if let Some(origin) = &accept.origin {
        let mut statement = db.prepare_cached("SELECT * FROM run WHERE origin = ?1")?;
        if let Some(row) = statement.query_row([json(origin)?], decode).optional()? {
            return Ok(Some(Verdict::Duplicate(Box::new(row))));
        }
    }
    let Some(row) = row(db, &accept.run)? else { return Ok(None) };
    let is_same_request =
        (&row.principal, &row.method, &row.fingerprint) == (&accept.principal, &accept.method, &accept.fingerprint);
    Ok(Some(if is_same_request { Verdict::Duplicate(Box::new(row)) } else { Verdict::Conflict }))
}

/// Marks queued runs as absorbed by the run that takes their messages.
fn absorb(db: &Connection, input: &Input) -> Result<bool> {
    for absorbed in &input.absorbs {
        let sql = "UPDATE run SET st = 'absorbed', absorbed_by = ?2, session_id = ?3,
                   started_at = (SELECT started_at FROM run WHERE run_id = ?2) WHERE run_id = ?1 AND run_id <> ?2 AND st = 'accepted'";
        execute(db, sql, [absorbed.as_str(), input.run.as_str(), input.session.as_str()])?;
    }
    Ok(true)
}

fn add_tool(
    db: &Connection,
    run: &RunId,
    call: &CallId,
    class: ToolClass,
    result: Option<&ToolResult>,
) -> Result<bool> {
    let sql = "INSERT INTO tool(run_id, n, call_id, class, result)
               SELECT ?1, coalesce(max(n) + 1, 0), ?2, ?3, ?4 FROM tool WHERE run_id = ?1";
    let result = result.map(json).transpose()?;
    execute(db, sql, params![run.as_str(), call.as_str(), json(&class)?, result])
}

/// Stores a tool result with the last call of its id that has no result yet, because a model may reuse an id. If there
/// is no such call, adds one. Returns true if the record counts as stored; a result with an invalid id is ignored.
fn store_result(db: &Connection, run: &RunId, result: &ToolResult) -> Result<bool> {
    let Ok(call) = CallId::parse(&result.tool_call_id) else { return Ok(true) };
    let sql = "UPDATE tool SET result = ?3 WHERE run_id = ?1 AND n =
               (SELECT max(n) FROM tool WHERE run_id = ?1 AND call_id = ?2 AND result IS NULL)";
    let open = execute(db, sql, params![run.as_str(), call.as_str(), json(result)?])?;
    if open { Ok(true) } else { add_tool(db, run, &call, ToolClass::Read, Some(result)) }
}

fn end(db: &Connection, run: &RunId, ended: &EndRecord, tally: &mut UsageTally) -> Result<bool> {
    let (text, ended_at, number) = (json(ended)?, ended.ended_at, tally.last + 1);
    let sql =
        "UPDATE run SET st = 'ended', ended = ?2, ended_at = ?3, end_no = ?4, asked = NULL WHERE run_id = ?1 AND st <> 'ended'
         RETURNING skey, session_id";
    let session_of_row = |row: &Row<'_>| -> Result<_> {
        let key = SessionKey::parse(&row.get::<_, String>(0)?, &AgentId::main()).map_err(db::invalid_value)?;
        Ok((key, id_column(row, "session_id", SessionId::parse)?))
    };
    let values = params![run.as_str(), text, ended_at, number];
    let Some((key, session)) = db.prepare_cached(sql)?.query_row(values, session_of_row).optional()? else {
        return Ok(false);
    };
    tally.add(&key, session.as_ref(), ended);
    let end_absorbed = "UPDATE run SET st = 'ended', ended = ?2, ended_at = ?3, asked = NULL
                  WHERE absorbed_by = ?1 AND st <> 'ended'";
    execute(db, end_absorbed, params![run.as_str(), text, ended_at])?;
    let delete_tools =
        "DELETE FROM tool WHERE run_id = ?1 OR run_id IN (SELECT run_id FROM run WHERE absorbed_by = ?1)";
    execute(db, delete_tools, [run.as_str()])?;
    Ok(true)
}

pub(crate) fn row(db: &Connection, run: &RunId) -> Result<Option<RunRow>> {
    db.prepare_cached("SELECT * FROM run WHERE run_id = ?1")?.query_row([run.as_str()], decode).optional()
}

/// Returns the run with a sequence number.
pub(crate) fn row_at(db: &Connection, seq: i64) -> Result<Option<RunRow>> {
    db.prepare_cached("SELECT * FROM run WHERE seq = ?1")?.query_row([seq], decode).optional()
}

/// Returns the newest runs of all sessions.
pub(crate) fn list(db: &Connection, before: Option<&RunId>, limit: usize) -> Result<Vec<RunRow>> {
    let sql =
        "SELECT * FROM run WHERE seq < coalesce((SELECT seq FROM run WHERE run_id = ?1), iif(?1 IS NULL, 9e18, 0))
               ORDER BY seq DESC LIMIT ?2";
    db.prepare_cached(sql)?.query_map(params![before.map(RunId::as_str), limit], decode)?.collect()
}

/// Returns the run started by a channel event, or else by the message with this id. On channels whose ids are unique
/// only within a chat, an event is `<id>#[<chat>]` and its id is enough.
pub(crate) fn of_event(db: &Connection, event: &str) -> Result<Option<RunId>> {
    let sql = "SELECT run_id FROM run WHERE origin IS NOT NULL
               AND (origin ->> 'event' = ?1 OR substr(origin ->> 'event', 1, length(?1) + 2) = ?1 || '#['
                    OR origin ->> 'message' = ?1)
               ORDER BY origin ->> 'message' = ?1, seq DESC LIMIT 1";
    let found = db.prepare_cached(sql)?.query_row([event], |row| id_column(row, "run_id", RunId::parse)).optional()?;
    Ok(found.flatten())
}

/// Sums the token usage of the runs whose end number is greater than `last_summed`. The usage of runs before
/// [`first_open`] is already in the stored sums, so these are not read.
pub(crate) fn ended_after(db: &Connection, last_summed: i64) -> Result<UsageTally> {
    let sql = "SELECT * FROM run WHERE seq >= ?1 AND end_no > ?2 ORDER BY end_no";
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query(params![first_open(db)?, last_summed])?;
    let mut tally = UsageTally::after(last_summed);
    while let Some(row) = rows.next()? {
        let end_number = row.get("end_no")?;
        if let RunRow { key, session, state: RunState::Ended(ended), .. } = decode(row)? {
            tally.add(&key, session.as_ref(), &ended);
        }
        tally.last = end_number;
    }
    Ok(tally)
}

fn decode(row: &Row<'_>) -> Result<RunRow> {
    let must = |column: &str| row.get::<_, String>(column);
    let state = match must("st")?.as_str() {
        "accepted" => RunState::Accepted,
        "running" => RunState::Running,
        "absorbed" => RunState::Absorbed(id_column(row, "absorbed_by", RunId::parse)?.ok_or_else(db::unexpected_null)?),
        "held" => RunState::Held,
        _ => RunState::Ended(Box::new(json_column(row, "ended")?.ok_or_else(db::unexpected_null)?)),
    };
    Ok(RunRow {
        run: RunId::parse(&must("run_id")?).map_err(db::invalid_value)?,
        principal: must("principal")?,
        method: must("method")?,
        fingerprint: must("fingerprint")?,
        origin: json_column(row, "origin")?,
        key: SessionKey::parse(&must("skey")?, &AgentId::main()).map_err(db::invalid_value)?,
        session: id_column(row, "session_id", SessionId::parse)?,
        accepted_at: row.get("accepted_at")?,
        started_at: row.get("started_at")?,
        resumed_at: json_column(row, "taken_up")?.unwrap_or_default(),
        host: id_column(row, "absorbed_by", RunId::parse)?,
        hold: json_column(row, "hold")?,
        state,
    })
}

/// An unfinished run and the entry id of its own message.
pub(crate) type OpenRun = (UnfinishedRun, Option<EntryId>);

/// Returns the unfinished runs in the order of acceptance, without their transcript entries.
pub(crate) fn unfinished(db: &Connection) -> Result<Vec<OpenRun>> {
    let sql = "SELECT * FROM run WHERE seq >= ?1 AND st IN ('accepted', 'running', 'held') ORDER BY seq";
    let mut statement = db.prepare_cached(sql)?;
    let processes = processes(db)?;
    let open = statement.query_map([first_open(db)?], |row| {
        let PendingRequest { message, options } = json_column(row, "asked")?.ok_or_else(db::unexpected_null)?;
        let row_data = decode(row)?;
        let accept = Accept {
            run: row_data.run.clone(),
            principal: row_data.principal.clone(),
            method: row_data.method.clone(),
            fingerprint: row_data.fingerprint.clone(),
            key: row_data.key.clone(),
            message,
            options,
            origin: row_data.origin.clone(),
            at: row_data.accepted_at,
        };
        let aborted: Option<AbortReason> = json_column(row, "aborted")?;
        let (attempts, tools) = (attempts(row, &row_data, &processes)?, tools(db, &row_data.run)?);
        let absorbed = absorbed_runs(db, &row_data.run)?;
        let deliveries = outbox::of_run(db, &row_data.run)?;
        let found = UnfinishedRun {
            row: row_data,
            accept,
            attempts,
            aborted,
            entries: Vec::new(),
            tools,
            absorbed,
            deliveries,
        };
        Ok((found, id_column(row, "input_entry", EntryId::parse)?))
    })?;
    open.collect()
}

/// Returns how processes ended, by epoch. Only the newest are stored.
fn processes(db: &Connection) -> Result<HashMap<i64, ProcessEnd>> {
    let mut statement = db.prepare_cached("SELECT epoch, clean, epoch = (SELECT max(epoch) FROM boot) FROM boot")?;
    let ended = statement.query_map([], |row| {
        let end = match (row.get(1)?, row.get(2)?) {
            (_, true) => ProcessEnd::Running,
            (true, false) => ProcessEnd::Stopped,
            (false, false) => ProcessEnd::Crashed,
        };
        Ok((row.get(0)?, end))
    })?;
    ended.collect()
}

/// Returns the starts of a run whose process was recorded; versions before format 6 did not record it. A process that
/// is no longer stored counts as stopped cleanly.
fn attempts(row: &Row<'_>, run: &RunRow, processes: &HashMap<i64, ProcessEnd>) -> Result<Vec<Attempt>> {
    let epochs: Option<String> = row.get("epochs")?;
    let epochs: Vec<i64> =
        epochs.iter().flat_map(|all| all.split(' ')).filter_map(|epoch| epoch.parse().ok()).collect();
    let starts: Vec<_> = run.started_at.into_iter().chain(run.resumed_at.iter().copied()).collect();
    let recorded = starts.into_iter().rev().zip(epochs.into_iter().rev());
    let mut attempts: Vec<_> = recorded
        .map(|(started_at, epoch)| {
            let process = processes.get(&epoch).copied().unwrap_or(ProcessEnd::Stopped);
            Attempt { started_at, process }
        })
        .collect();
    attempts.reverse();
    Ok(attempts)
}

fn absorbed_runs(db: &Connection, run: &RunId) -> Result<Vec<RunRow>> {
    let mut statement =
        db.prepare_cached("SELECT * FROM run WHERE absorbed_by = ?1 AND st = 'absorbed' ORDER BY seq")?;
    statement.query_map([run.as_str()], decode)?.collect()
}

fn tools(db: &Connection, run: &RunId) -> Result<Vec<ToolRow>> {
    let mut statement = db.prepare_cached("SELECT * FROM tool WHERE run_id = ?1 ORDER BY n")?;
    let rows = statement.query_map([run.as_str()], |row| {
        let call = id_column(row, "call_id", CallId::parse)?.ok_or_else(db::unexpected_null)?;
        let class = json_column(row, "class")?.ok_or_else(db::unexpected_null)?;
        Ok(ToolRow { call, class, result: json_column(row, "result")? })
    })?;
    rows.collect()
}

/// Returns a lower bound for the sequence numbers of runs that have not ended. It is advanced by [`prune`], so that
/// queries for such runs need not scan the whole table.
fn first_open(db: &Connection) -> Result<i64> {
    let stored: Option<String> = crate::sessions::meta(db, "first_open")?;
    Ok(stored.and_then(|stored| stored.parse().ok()).unwrap_or(0))
}

/// Updates `first_open` and deletes a limited number of old runs.
pub(crate) fn prune(db: &Connection, keep: u32, now_ms: u64) -> Result<()> {
    let before = first_open(db)?;
    let sql = "SELECT coalesce((SELECT seq FROM run WHERE seq >= ?1 AND st <> 'ended' ORDER BY seq LIMIT 1),
                               (SELECT max(seq) FROM run), 0)";
    let now: i64 = db.prepare_cached(sql)?.query_row([before], |row| row.get(0))?;
    if now != before {
        crate::sessions::set_meta(db, "first_open", &now.to_string())?;
    }
    // Only the oldest rows are examined, so that the cost does not depend on their total number.
    let sql = "DELETE FROM run WHERE seq IN (SELECT seq FROM
                   (SELECT * FROM run WHERE seq <= (SELECT max(seq) FROM run) - ?1 ORDER BY seq LIMIT ?3)
               WHERE st = 'ended' AND ended_at < ?2)";
    execute(db, sql, params![keep, now_ms.saturating_sub(KEEP_FOR), MAX_PRUNED_ROWS])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    // D33
    #[test]
    fn old_runs_are_deleted_in_batches_except_new_and_open_ones() {
        let state = tempfile::tempdir().unwrap();
        let db = db::open(&crate::layout::StateLayout::create(state.path()).unwrap()).unwrap();
        let keep = i64::from(KEEP_RUNS);
        let count = keep + 2 * MAX_PRUNED_ROWS;
        let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
                   INSERT INTO run(run_id, principal, method, fingerprint, skey, accepted_at, st, ended_at)
                   SELECT 'r' || i, '', '', '', '', i, iif(i = 7, 'running', 'ended'), i FROM n";
        db.execute(sql, [count]).unwrap();
        let left = || -> (i64, i64) {
            db.query_row("SELECT count(*), min(seq) FROM run", [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
        };
        prune(&db, KEEP_RUNS, KEEP_FOR).unwrap();
        assert_eq!(left(), (count, 1), "all are young");
        let later = KEEP_FOR + u64::try_from(count).unwrap() + 1;
        prune(&db, KEEP_RUNS, later).unwrap();
        assert_eq!(left(), (count - MAX_PRUNED_ROWS + 1, 7));
        for _ in 0..4 {
            prune(&db, KEEP_RUNS, later).unwrap();
        }
        assert_eq!(left(), (keep + 1, 7));
        assert_eq!(first_open(&db).unwrap(), 7);
    }
}
