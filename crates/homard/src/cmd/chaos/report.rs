//! The final report: a table for people, a document for programs.

use std::{path::Path, time::Duration};

use homard_chaos::{ChaosFindings, KillStats, ScenarioResult};
use serde_json::{Value, json};

use crate::render::{Table, duration};

/// The final report.
#[derive(Debug)]
pub(super) struct ChaosReport<'a> {
    pub(super) outcome: &'a ScenarioResult,
    /// Where the files are, if they were kept.
    pub(super) kept: Option<&'a Path>,
}

impl ChaosReport<'_> {
    /// Formats the report for people.
    pub(super) fn to_table(&self) -> Table {
        let KillStats { kills, restarts, .. } = &self.outcome.killed;
        let found = &self.outcome.found;
        let (median, max) = self.ready();
        let rows = [
            ("accepted", found.accepted.to_string()),
            ("finished", found.finished.to_string()),
            ("failed as interrupted", found.interrupted.to_string()),
            ("effects reported as unknown", found.unknown.to_string()),
            ("lost", found.lost.len().to_string()),
            ("duplicated effects", found.doubled_effects.len().to_string()),
            ("duplicated messages", found.doubled_inputs.len().to_string()),
            ("other problems", self.outcome.problems.len().to_string()),
            ("kills", kills.to_string()),
            ("restarts", restarts.to_string()),
            ("ready after a kill", format!("{} median, {} at most", duration(median), duration(max))),
            ("model requests", self.outcome.requests.to_string()),
            ("duration", duration(Duration::from_secs(self.outcome.took.as_secs()))),
            ("seed", self.outcome.seed.to_string()),
        ];
        Table::fields(rows.map(|(name, value)| vec![name.to_owned(), value]).to_vec())
    }

    /// Formats the report for programs.
    pub(super) fn to_json(&self) -> Value {
        let ChaosFindings { accepted, finished, interrupted, unknown, lost, doubled_effects, doubled_inputs, .. } =
            &self.outcome.found;
        let (median, max) = self.ready();
        json!({
            "ok": self.outcome.is_good(), "seed": self.outcome.seed, "kills": self.outcome.killed.kills, "restarts": self.outcome.killed.restarts,
            "accepted": accepted, "finished": finished, "interrupted": interrupted, "unknownEffects": unknown,
            "lost": lost, "doubledEffects": doubled_effects, "doubledInputs": doubled_inputs,
            "problems": self.outcome.problems, "readyMs": {"median": median.as_millis() as u64, "max": max.as_millis() as u64}, "requests": self.outcome.requests,
            "tookMs": self.outcome.took.as_millis() as u64, "kept": self.kept,
        })
    }

    /// Returns the time to readiness after a kill: median and maximum.
    fn ready(&self) -> (Duration, Duration) {
        let mut ready = self.outcome.killed.ready.clone();
        ready.sort_unstable();
        let at = |index: usize| ready.get(index).copied().unwrap_or_default();
        (at(ready.len() / 2), at(ready.len().saturating_sub(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_loss_is_enough_to_fail() {
        let outcome = |lost: &[&str]| ScenarioResult {
            seed: 7,
            killed: KillStats {
                kills: 2,
                restarts: 2,
                ready: vec![Duration::from_millis(9), Duration::from_millis(5)],
            },
            found: ChaosFindings {
                accepted: 3,
                lost: lost.iter().map(|&id| id.to_owned()).collect(),
                ..ChaosFindings::default()
            },
            requests: 9,
            problems: Vec::new(),
            took: Duration::from_secs(4),
        };
        assert!(outcome(&[]).is_good());
        let failed = outcome(&["0-1"]);
        assert!(!failed.is_good());
        let failed = ChaosReport { outcome: &failed, kept: None };
        assert_eq!(failed.to_json()["lost"], json!(["0-1"]));
        assert_eq!(failed.to_json()["readyMs"], json!({"median": 9, "max": 9}));
        assert!(failed.to_table().to_string().contains("lost                         1\n"), "{}", failed.to_table());
    }
}
