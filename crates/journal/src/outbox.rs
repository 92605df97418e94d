//! Deliveries in the database. The state machine is in [`homard_store::outbox`].

use homard_proto::RunId;
use homard_store::{Delivery, DeliveryRow, DeliveryState};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Deserialize;

use crate::{
    db::{self, json, json_column},
    runs::{KEEP_FOR, MAX_PRUNED_ROWS},
};

type Result<T> = rusqlite::Result<T>;

/// Queues a delivery; returns `false` if its id is known.
pub(crate) fn queue(db: &Connection, delivery: &Delivery) -> Result<bool> {
    let sql = "INSERT OR IGNORE INTO outbox(id, target, delivery, state) VALUES (?1, ?2, ?3, ?4)";
    let values = params![delivery.id, json(&delivery.target)?, json(delivery)?, json(&DeliveryState::Queued)?];
    Ok(db.prepare_cached(sql)?.execute(values)? > 0)
}

/// Changes the state of a delivery; returns `false` if the transition is not allowed. Deliveries to one target are sent
/// in queue order: sending must wait while an earlier one blocks others.
pub(crate) fn mark(db: &Connection, id: &str, wanted: &DeliveryState, at: u64) -> Result<bool> {
    let sql = "SELECT * FROM outbox WHERE id = ?1";
    let found = db.prepare_cached(sql)?.query_row([id], |row| Ok((row.get("seq")?, decode(row)?))).optional()?;
    let Some((seq, row)) = found else { return Ok(false) };
    if *wanted == DeliveryState::Sending
        && row.waits_for_others()
        && earlier_undelivered(db, seq, &row)?.iter().any(|other| other.blocks_others(at))
    {
        return Ok(false);
    }
    match row.next(wanted, at) {
        Some(next) => put(db, &next, at).map(|()| true),
        None => Ok(false),
    }
}

/// Returns undelivered rows that were queued earlier for the same target.
fn earlier_undelivered(db: &Connection, seq: i64, row: &DeliveryRow) -> Result<Vec<DeliveryRow>> {
    let sql = "SELECT * FROM outbox WHERE is_sent = 0 AND target = ?1 AND seq < ?2";
    db.prepare_cached(sql)?.query_map(params![json(&row.delivery.target)?, seq], decode)?.collect()
}

/// Stores the state of a delivery. The reason for an unknown outcome is a member of the delivery, because earlier
/// versions know no such state and ignore members that they do not know.
fn put(db: &Connection, row: &DeliveryRow, at: u64) -> Result<()> {
    if let DeliveryState::Unknown { reason: Some(reason) } = &row.state {
        let sql = "UPDATE outbox SET delivery = json_set(delivery, '$.unknownReason', ?2) WHERE id = ?1";
        db.prepare_cached(sql)?.execute(params![row.delivery.id, reason])?;
    }
    let sql = "UPDATE outbox SET state = ?2, attempts = ?3, is_sent = ?4, final_at = ?5 WHERE id = ?1";
    let is_sent = matches!(row.state, DeliveryState::Sent { .. });
    let final_at = row.state.is_final().then_some(at);
    let values = params![row.delivery.id, json(&row.state)?, row.attempts, is_sent, final_at];
    db.prepare_cached(sql)?.execute(values)?;
    Ok(())
}

/// Marks deliveries that were being sent when the last process ended as unknown; returns their number.
pub(crate) fn mark_unknown(db: &Connection, now_ms: u64) -> Result<usize> {
    let mut count = 0;
    for row in undelivered(db)?.iter().filter(|row| row.state == DeliveryState::Sending) {
        if let Some(next) = row.next(&DeliveryState::interrupted(), now_ms) {
            put(db, &next, now_ms)?;
            count += 1;
        }
    }
    Ok(count)
}

/// Returns deliveries not known to have arrived, in queue order.
pub(crate) fn undelivered(db: &Connection) -> Result<Vec<DeliveryRow>> {
    let sql = "SELECT * FROM outbox WHERE is_sent = 0 ORDER BY seq";
    db.prepare_cached(sql)?.query_map([], decode)?.collect()
}

/// Returns a delivery.
pub(crate) fn find(db: &Connection, id: &str) -> Result<Option<DeliveryRow>> {
    db.prepare_cached("SELECT * FROM outbox WHERE id = ?1")?.query_row([id], decode).optional()
}

/// Returns the deliveries queued by a run, in order.
pub(crate) fn of_run(db: &Connection, run: &RunId) -> Result<Vec<DeliveryRow>> {
    let sql = "SELECT * FROM outbox WHERE delivery ->> 'run' = ?1 ORDER BY seq";
    db.prepare_cached(sql)?.query_map([run.as_str()], decode)?.collect()
}

/// Returns the run of a delivery, by delivery id or by the channel's message id.
pub(crate) fn run_of(db: &Connection, name: &str) -> Result<Option<RunId>> {
    let sql = "SELECT delivery ->> 'run' AS run FROM outbox WHERE id = ?1 UNION ALL
               SELECT delivery ->> 'run' FROM outbox WHERE is_sent = 1 AND (state ->> '$.sent.providerId' = ?1
                   OR EXISTS (SELECT 1 FROM json_each(state, '$.sent.otherIds') WHERE value = ?1)) LIMIT 1";
    let found = db.prepare_cached(sql)?.query_row([name], |row| db::id_column(row, "run", RunId::parse)).optional()?;
    Ok(found.flatten())
}

/// Deletes a limited number of old finished deliveries. They are kept as long as runs, because a delivery with a known
/// id is not queued again.
pub(crate) fn prune(db: &Connection, now_ms: u64) -> Result<()> {
    let sql = "DELETE FROM outbox WHERE seq IN (SELECT seq FROM outbox WHERE final_at < ?1 LIMIT ?2)";
    db.prepare_cached(sql)?.execute(params![now_ms.saturating_sub(KEEP_FOR), MAX_PRUNED_ROWS])?;
    Ok(())
}

fn decode(row: &Row<'_>) -> Result<DeliveryRow> {
    let StoredDelivery { delivery, unknown_reason } = json_column(row, "delivery")?.ok_or_else(db::unexpected_null)?;
    let mut state = json_column(row, "state")?.ok_or_else(db::unexpected_null)?;
    if let DeliveryState::Unknown { reason } = &mut state {
        *reason = unknown_reason;
    }
    Ok(DeliveryRow { delivery, state, attempts: row.get("attempts")? })
}

/// The column `delivery`.
#[derive(Deserialize)]
struct StoredDelivery {
    #[serde(flatten)]
    delivery: Delivery,
    #[serde(default, rename = "unknownReason")]
    unknown_reason: Option<String>,
}

#[cfg(test)]
mod tests {
    use homard_store::DeliveryTarget;

    use super::*;

    #[test]
    fn finished_deliveries_are_deleted_after_a_day() {
        let state = tempfile::tempdir().unwrap();
        let db = db::open(&crate::layout::StateLayout::create(state.path()).unwrap()).unwrap();
        let target = |id: &str| DeliveryTarget { channel: String::new(), account: String::new(), to: id.to_owned() };
        for id in ["sent", "dead", "unknown", "waits"] {
            let (target, id, key, payload) = (target(id), id.to_owned(), String::new(), serde_json::Value::Null);
            let delivery = Delivery {
                id,
                run: None,
                target,
                part: 0,
                key,
                is_idempotent: false,
                payload,
                at: 0,
                is_immediate: false,
            };
            assert!(queue(&db, &delivery).unwrap());
        }
        for (id, state) in [
            ("sent", DeliveryState::Sending),
            ("sent", DeliveryState::sent(Vec::new())),
            ("dead", DeliveryState::Dead { reason: String::new() }),
            ("unknown", DeliveryState::Sending),
            ("unknown", DeliveryState::interrupted()),
        ] {
            assert!(mark(&db, id, &state, 5).unwrap(), "{id}");
        }
        let known = || -> Vec<String> {
            let mut statement = db.prepare("SELECT id FROM outbox ORDER BY seq").unwrap();
            statement.query_map([], |row| row.get(0)).unwrap().map(rusqlite::Result::unwrap).collect()
        };
        prune(&db, KEEP_FOR + 5).unwrap();
        assert_eq!(known(), ["sent", "dead", "unknown", "waits"]);
        prune(&db, KEEP_FOR + 6).unwrap();
        assert_eq!(known(), ["unknown", "waits"]);
    }
}
