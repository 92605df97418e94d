//! Session records and key-value metadata in the database.

use homard_proto::{AgentId, SessionKey, session::Record};
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::value::RawValue;

use crate::{
    db::{self, json},
    index::SessionIndex,
};

type Result<T> = rusqlite::Result<T>;

pub(crate) fn put(db: &Connection, key: &SessionKey, record: &Record) -> Result<()> {
    let sql = "INSERT INTO sess(skey, session_id, record) VALUES (?1, ?2, ?3)
               ON CONFLICT(skey) DO UPDATE SET session_id = ?2, record = ?3";
    db.prepare_cached(sql)?.execute(params![key.as_str(), record.session_id.as_str(), json(record)?])?;
    Ok(())
}

pub(crate) fn remove(db: &Connection, key: &SessionKey) -> Result<()> {
    db.prepare_cached("DELETE FROM sess WHERE skey = ?1")?.execute([key.as_str()])?;
    Ok(())
}

/// Stores a session record, or its deletion, in `redo`.
pub(crate) fn store_pending_record(db: &Connection, row: i64, key: &SessionKey, record: Option<&Record>) -> Result<()> {
    let record = record.map(json).transpose()?.unwrap_or_default();
    let sql = "INSERT INTO redo(seq, agent, name, off, skey, line) VALUES (?1, '', '', 0, ?2, ?3)";
    db.prepare_cached(sql)?.execute(params![row, key.as_str(), record.as_bytes()])?;
    Ok(())
}

/// Moves session records from `redo` to their own table.
pub(crate) fn move_pending_records(db: &Connection) -> Result<()> {
    let mut statement = db.prepare("SELECT skey, line FROM redo WHERE skey IS NOT NULL ORDER BY seq")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let key = SessionKey::parse(row.get_ref(0)?.as_str()?, &AgentId::main()).map_err(db::invalid_value)?;
        match row.get_ref(1)?.as_blob()? {
            b"" => remove(db, &key)?,
            record => put(db, &key, &serde_json::from_slice(record).map_err(db::invalid_value)?)?,
        }
    }
    db.execute("DELETE FROM redo WHERE skey IS NOT NULL", [])?;
    Ok(())
}

/// Returns all records, and the members of `sessions.json` that could not be parsed.
pub(crate) fn all(db: &Connection) -> Result<SessionIndex> {
    let mut index = SessionIndex::default();
    let mut statement = db.prepare("SELECT skey, record FROM sess")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let key = SessionKey::parse(row.get_ref(0)?.as_str()?, &AgentId::main()).map_err(db::invalid_value)?;
        let record: Record = serde_json::from_str(row.get_ref(1)?.as_str()?).map_err(db::invalid_value)?;
        index.insert(key, record);
    }
    let mut statement = db.prepare("SELECT agent, name, value FROM strange")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let value = RawValue::from_string(row.get(2)?).map_err(db::invalid_value)?;
        index.insert_unparsed(&AgentId::normalize(row.get_ref(0)?.as_str()?), row.get(1)?, value);
    }
    Ok(index)
}

/// Stores the members of an agent's `sessions.json` that cannot be parsed.
pub(crate) fn store_unparsed<'a>(
    db: &Connection,
    agent: &AgentId,
    values: impl Iterator<Item = (&'a String, &'a Box<RawValue>)>,
) -> Result<()> {
    db.execute("DELETE FROM strange WHERE agent = ?1", [agent.as_str()])?;
    for (name, value) in values {
        let sql = "INSERT INTO strange(agent, name, value) VALUES (?1, ?2, ?3)";
        db.prepare_cached(sql)?.execute([agent.as_str(), name, value.get()])?;
    }
    Ok(())
}

/// Returns a metadata value.
pub(crate) fn meta(db: &Connection, name: &str) -> Result<Option<String>> {
    db.prepare_cached("SELECT value FROM meta WHERE name = ?1")?.query_row([name], |row| row.get(0)).optional()
}

/// Sets a metadata value.
pub(crate) fn set_meta(db: &Connection, name: &str, value: &str) -> Result<()> {
    db.prepare_cached("INSERT OR REPLACE INTO meta(name, value) VALUES (?1, ?2)")?.execute([name, value])?;
    Ok(())
}
