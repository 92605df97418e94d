//! Session statistics that a run collects and that are in no transcript. The lane writes them into the session's
//! record, however the run ends.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use homard_compact::prune::ResultCuts;
use homard_proto::session::Record;
use serde_json::{Value, json};

use super::prompt_fingerprint::PromptFingerprint;

/// Fields of a record: tool results pruned from requests; time of the last memory flush, and number of compactions
/// before it.
pub(crate) const PRUNING_FIELD: &str = "homardPruning";
const FLUSHED_AT: &str = "memoryFlushAt";
const FLUSHED_AFTER: &str = "memoryFlushCompactionCount";
const COMPACTIONS: &str = "compactionCount";

/// Statistics of a session. Clones share the same state.
#[derive(Debug, Clone, Default)]
pub(crate) struct SessionStats(Arc<Mutex<SessionStatsInner>>);

#[derive(Debug, Default)]
struct SessionStatsInner {
    cuts: ResultCuts,
    flushed_at: Option<u64>,
    /// Fingerprint of the last request. Not stored.
    fingerprint: Option<PromptFingerprint>,
}

impl SessionStats {
    /// Reads the statistics from a record.
    pub(crate) fn of(record: &Record) -> Self {
        // Unreadable cuts are dropped; the provider then reads everything once more.
        let cuts = record.extra.get(PRUNING_FIELD).and_then(|cuts| serde_json::from_value(cuts.clone()).ok());
        Self(Arc::new(Mutex::new(SessionStatsInner { cuts: cuts.unwrap_or_default(), ..SessionStatsInner::default() })))
    }

    /// Returns which tool results are shortened in requests.
    pub(super) fn cuts(&self) -> ResultCuts {
        self.lock().cuts.clone()
    }

    /// Sets which tool results are shortened.
    pub(super) fn set_cuts(&self, cuts: ResultCuts) {
        self.lock().cuts = cuts;
    }

    /// Returns the fingerprint of the last request.
    pub(super) fn fingerprint(&self) -> Option<PromptFingerprint> {
        self.lock().fingerprint.clone()
    }

    /// Sets the fingerprint of a request. Returns the previous one.
    pub(super) fn set_fingerprint(&self, fingerprint: PromptFingerprint) -> Option<PromptFingerprint> {
        self.lock().fingerprint.replace(fingerprint)
    }

    /// Records a memory flush.
    pub(super) fn set_flushed(&self, at: u64) {
        self.lock().flushed_at = Some(at);
    }

    /// Writes the statistics into the record, whose count does not include the run's own compactions yet.
    pub(crate) fn write(&self, record: &mut Record) {
        let mut inner = self.lock();
        if inner.cuts == ResultCuts::default() {
            record.extra.shift_remove(PRUNING_FIELD);
        } else {
            record.extra.insert(PRUNING_FIELD.to_owned(), json!(inner.cuts));
        }
        if let Some(at) = inner.flushed_at.take() {
            record.extra.insert(FLUSHED_AT.to_owned(), at.into());
            record.extra.insert(FLUSHED_AFTER.to_owned(), count(record, COMPACTIONS).unwrap_or(0).into());
        }
    }

    fn lock(&self) -> MutexGuard<'_, SessionStatsInner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds compactions to the record's count.
pub(crate) fn add_compactions(record: &mut Record, added: usize) {
    let before = count(record, COMPACTIONS).unwrap_or(0);
    record.extra.insert(COMPACTIONS.to_owned(), (before + added as u64).into());
}

/// Subtracts an undone compaction from the record's count.
pub(crate) fn subtract_compaction(record: &mut Record) {
    let before = count(record, COMPACTIONS).unwrap_or(0);
    record.extra.insert(COMPACTIONS.to_owned(), before.saturating_sub(1).into());
}

/// True if a memory flush was made since the last compaction.
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
    fn pruned_results_of_a_record_are_written_back() {
        let cuts = json!({"1-c1": {"middle": {"head": 3, "tail": 4}}, "2-c2": "whole"});
        let before = record(&json!({"homardPruning": cuts, "novel": 1}));
        let mut after = record(&json!({"novel": 1}));
        SessionStats::of(&before).write(&mut after);
        assert_eq!(after, record(&json!({"novel": 1, "homardPruning": cuts})));
        // Cuts that no longer apply or cannot be read are dropped.
        SessionStats::of(&record(&json!({"homardPruning": [1]}))).write(&mut after);
        assert_eq!(after, record(&json!({"novel": 1})));
    }

    #[test]
    fn a_memory_flush_is_made_once_between_compactions() {
        let mut updated = record(&json!({"compactionCount": 2, "memoryFlushCompactionCount": 1}));
        assert!(!is_flushed(&updated));
        let stats = SessionStats::of(&updated);
        stats.set_flushed(9);
        stats.write(&mut updated);
        let flushed = json!({"compactionCount": 2, "memoryFlushCompactionCount": 2, "memoryFlushAt": 9});
        assert_eq!(updated, record(&flushed));
        assert!(is_flushed(&updated));
        assert!(is_flushed(&record(&json!({"memoryFlushCompactionCount": 0}))));
        assert!(!is_flushed(&record(&json!({}))));
    }
}
