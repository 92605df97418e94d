//! What a run finds out about its session that stands in no transcript. It outlives the run, however that ends: the lane
//! writes it into the session's record.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use homard_compact::prune::Cuts;
use homard_proto::session::Record;
use serde_json::{Value, json};

use super::asked::Prefix;

/// The members of a record: what was cut out of requests, and when notes were stored, after how many compactions.
pub(crate) const CUTS: &str = "homardPruning";
const FLUSHED_AT: &str = "memoryFlushAt";
const FLUSHED_AFTER: &str = "memoryFlushCompactionCount";
const COMPACTIONS: &str = "compactionCount";

/// What stands in the margin of a session. Clones are the same margin.
#[derive(Debug, Clone, Default)]
pub(crate) struct Margin(Arc<Mutex<Marks>>);

#[derive(Debug, Default)]
struct Marks {
    cuts: Cuts,
    flushed_at: Option<u64>,
    /// What the last question began with. Not kept on disk.
    asked: Option<Prefix>,
}

impl Margin {
    /// What a record says.
    pub(crate) fn of(record: &Record) -> Self {
        // Cuts that cannot be read are none: then a provider reads everything once more.
        let cuts = record.extra.get(CUTS).and_then(|cuts| serde_json::from_value(cuts.clone()).ok());
        Self(Arc::new(Mutex::new(Marks { cuts: cuts.unwrap_or_default(), ..Marks::default() })))
    }

    /// Which tool results requests show shorter than they are.
    pub(super) fn cuts(&self) -> Cuts {
        self.lock().cuts.clone()
    }

    /// Keeps which these are.
    pub(super) fn keep_cuts(&self, cuts: Cuts) {
        self.lock().cuts = cuts;
    }

    /// Keeps what a question begins with; returns what the last one did.
    pub(super) fn ask(&self, prefix: Prefix) -> Option<Prefix> {
        self.lock().asked.replace(prefix)
    }

    /// Keeps that notes were stored.
    pub(super) fn keep_flush(&self, at: u64) {
        self.lock().flushed_at = Some(at);
    }

    /// Writes it into the record, which does not count the run's own compactions yet.
    pub(crate) fn write(&self, record: &mut Record) {
        let mut marks = self.lock();
        if marks.cuts == Cuts::default() {
            record.extra.shift_remove(CUTS);
        } else {
            record.extra.insert(CUTS.to_owned(), json!(marks.cuts));
        }
        if let Some(at) = marks.flushed_at.take() {
            record.extra.insert(FLUSHED_AT.to_owned(), at.into());
            record.extra.insert(FLUSHED_AFTER.to_owned(), count(record, COMPACTIONS).unwrap_or(0).into());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Marks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts compactions that were made.
pub(crate) fn count_made(record: &mut Record, made: usize) {
    let before = count(record, COMPACTIONS).unwrap_or(0);
    record.extra.insert(COMPACTIONS.to_owned(), (before + made as u64).into());
}

/// One compaction does not count any more.
pub(crate) fn uncount(record: &mut Record) {
    let before = count(record, COMPACTIONS).unwrap_or(0);
    record.extra.insert(COMPACTIONS.to_owned(), before.saturating_sub(1).into());
}

/// Whether notes were stored since the last compaction.
pub(crate) fn is_flushed(record: &Record) -> bool {
    count(record, FLUSHED_AFTER).is_some_and(|after| after == count(record, COMPACTIONS).unwrap_or(0))
}

fn count(record: &Record, name: &str) -> Option<u64> {
    record.extra.get(name).and_then(Value::as_u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(extra: &Value) -> Record {
        let mut fields = json!({"sessionId": "s", "updatedAt": 1});
        fields.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        serde_json::from_value(fields).unwrap()
    }

    #[test]
    fn what_a_record_says_is_written_again() {
        let cuts = json!({"1-c1": {"middle": {"head": 3, "tail": 4}}, "2-c2": "whole"});
        let before = record(&json!({"homardPruning": cuts, "novel": 1}));
        let mut after = record(&json!({"novel": 1}));
        Margin::of(&before).write(&mut after);
        assert_eq!(after, record(&json!({"novel": 1, "homardPruning": cuts})));
        // What is no longer cut, or cannot be read, is forgotten.
        Margin::of(&record(&json!({"homardPruning": [1]}))).write(&mut after);
        assert_eq!(after, record(&json!({"novel": 1})));
    }

    #[test]
    fn notes_are_stored_once_between_compactions() {
        let mut kept = record(&json!({"compactionCount": 2, "memoryFlushCompactionCount": 1}));
        assert!(!is_flushed(&kept));
        let margin = Margin::of(&kept);
        margin.keep_flush(9);
        margin.write(&mut kept);
        let flushed = json!({"compactionCount": 2, "memoryFlushCompactionCount": 2, "memoryFlushAt": 9});
        assert_eq!(kept, record(&flushed));
        assert!(is_flushed(&kept));
        assert!(is_flushed(&record(&json!({"memoryFlushCompactionCount": 0}))));
        assert!(!is_flushed(&record(&json!({}))));
    }
}
