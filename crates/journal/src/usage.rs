//! Token usage summed by day, session and model.
//!
//! The usage of a run is stored with its end; the sums are updated at the next checkpoint, so that a run writes no
//! extra page. Ends are numbered: after a crash, those after the last summed end are added.

use homard_proto::{AgentId, SessionId, SessionKey, message::Usage};
use homard_store::{
    EndRecord,
    usage::{KEEP_DAYS, UsageQuery, UsageSubject, UsageSum, UsageSums, day_of},
};
use rusqlite::{Connection, Row, named_params, params};

use crate::{
    db::{self, id_column},
    runs,
    sessions::{meta, set_meta},
};

type Result<T> = rusqlite::Result<T>;

/// Metadata name for the number of the last end included in the sums.
const SUMMED_ENDS: &str = "summed_ends";

/// Usage of runs whose ends are on disk and not yet in the sums.
#[derive(Debug, Clone, Default)]
pub(crate) struct UsageTally {
    sums: UsageSums,
    /// Number of the last end.
    pub(crate) last: i64,
}

impl UsageTally {
    /// Reads the tally from the database when the journal is opened: the usage of run ends that were not summed before
    /// a crash.
    pub(crate) fn find(db: &Connection) -> Result<Self> {
        let last_summed: Option<String> = meta(db, SUMMED_ENDS)?;
        runs::ended_after(db, last_summed.and_then(|number| number.parse().ok()).unwrap_or(0))
    }

    /// Creates an empty tally after the end with this number.
    pub(crate) fn after(last: i64) -> Self {
        Self { sums: UsageSums::default(), last }
    }

    /// Creates an empty tally that continues the numbering.
    pub(crate) fn next(&self) -> Self {
        Self::after(self.last)
    }

    /// Adds the end of a run.
    pub(crate) fn add(&mut self, key: &SessionKey, session: Option<&SessionId>, ended: &EndRecord) {
        self.last += 1;
        self.sums.add(key, session, ended);
    }

    /// Merges a committed tally.
    pub(crate) fn merge(&mut self, other: Self) {
        self.sums.merge(other.sums);
        self.last = other.last;
    }

    /// Adds the tally to the stored sums, stores the number of the last run end that they include, and deletes old
    /// sums.
    pub(crate) fn store(&self, db: &Connection, now_ms: u64) -> Result<()> {
        if self.sums.is_empty() {
            return Ok(());
        }
        for sum in self.sums.all() {
            put(db, &sum)?;
        }
        set_meta(db, SUMMED_ENDS, &self.last.to_string())?;
        let oldest = day_of(now_ms).saturating_sub(KEEP_DAYS);
        db.prepare_cached("DELETE FROM spend WHERE day < ?1")?.execute([oldest])?;
        Ok(())
    }

    /// Queries the tally and the stored sums.
    pub(crate) fn query(&self, db: &Connection, period: &UsageQuery) -> Result<Vec<UsageSum>> {
        let mut found = self.sums.query(period);
        match period {
            UsageQuery::Days(from, to) => {
                let mut statement = db.prepare_cached("SELECT * FROM spend WHERE day BETWEEN ?1 AND ?2")?;
                found.extend(statement.query_map(params![from, to], decode)?.collect::<Result<Vec<_>>>()?);
            }
            UsageQuery::Session(session) => {
                let mut statement = db.prepare_cached("SELECT * FROM spend WHERE session_id = ?1")?;
                found.extend(statement.query_map([session.as_str()], decode)?.collect::<Result<Vec<_>>>()?);
            }
        }
        Ok(found)
    }
}

fn put(db: &Connection, UsageSum { subject, runs, usage }: &UsageSum) -> Result<()> {
    let sql =
        "INSERT INTO spend VALUES (:day, :key, :session, :provider, :model, :runs, :input, :output, :read, :write,
                   :tokens, :cost_input, :cost_output, :cost_read, :cost_write, :cost)
               ON CONFLICT DO UPDATE SET runs = runs + excluded.runs, input = input + excluded.input,
                   output = output + excluded.output, cache_read = cache_read + excluded.cache_read,
                   cache_write = cache_write + excluded.cache_write, tokens = tokens + excluded.tokens,
                   cost_input = cost_input + excluded.cost_input, cost_output = cost_output + excluded.cost_output,
                   cost_read = cost_read + excluded.cost_read, cost_write = cost_write + excluded.cost_write,
                   cost = cost + excluded.cost";
    let values = named_params! {
        ":day": subject.day, ":key": subject.key.as_str(), ":session": subject.session.as_str(), ":provider": subject.provider,
        ":model": subject.model, ":runs": runs, ":input": usage.input, ":output": usage.output, ":read": usage.cache_read,
        ":write": usage.cache_write, ":tokens": usage.total_tokens, ":cost_input": usage.cost.input,
        ":cost_output": usage.cost.output, ":cost_read": usage.cost.cache_read, ":cost_write": usage.cost.cache_write,
        ":cost": usage.cost.total,
    };
    db.prepare_cached(sql)?.execute(values)?;
    Ok(())
}

fn decode(row: &Row<'_>) -> Result<UsageSum> {
    let subject = UsageSubject {
        day: row.get("day")?,
        key: SessionKey::parse(&row.get::<_, String>("skey")?, &AgentId::main()).map_err(db::invalid_value)?,
        session: id_column(row, "session_id", SessionId::parse)?.ok_or_else(db::unexpected_null)?,
        provider: row.get("provider")?,
        model: row.get("model")?,
    };
    let mut usage = Usage {
        input: row.get("input")?,
        output: row.get("output")?,
        cache_read: row.get("cache_read")?,
        cache_write: row.get("cache_write")?,
        total_tokens: row.get("tokens")?,
        ..Usage::default()
    };
    usage.cost.input = row.get("cost_input")?;
    usage.cost.output = row.get("cost_output")?;
    usage.cost.cache_read = row.get("cost_read")?;
    usage.cost.cache_write = row.get("cost_write")?;
    usage.cost.total = row.get("cost")?;
    Ok(UsageSum { subject, runs: row.get("runs")?, usage })
}
