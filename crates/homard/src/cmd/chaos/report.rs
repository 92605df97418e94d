//! The final report: a table for people, a document for programs.

use std::{path::Path, time::Duration};

use serde_json::{Value, json};

use super::{check::Findings, killer::Killed};
use crate::render;

/// The final report.
#[derive(Debug)]
pub(super) struct Report<'a> {
    pub(super) seed: u64,
    pub(super) killed: Killed,
    pub(super) found: Findings,
    /// Number of model requests.
    pub(super) requests: usize,
    pub(super) problems: Vec<String>,
    pub(super) took: Duration,
    /// Where the files are, if they were kept.
    pub(super) kept: Option<&'a Path>,
}

impl Report<'_> {
    /// Returns true if nothing was lost, doubled or otherwise wrong.
    pub(super) fn is_good(&self) -> bool {
        let Findings { lost, doubled_effects, doubled_inputs, .. } = &self.found;
        lost.is_empty() && doubled_effects.is_empty() && doubled_inputs.is_empty() && self.problems.is_empty()
    }

    /// Formats the report for people.
    pub(super) fn to_table(&self) -> String {
        let Killed { kills, restarts, .. } = &self.killed;
        let found = &self.found;
        let (median, max) = self.ready();
        let rows = [
            ("accepted", found.accepted.to_string()),
            ("finished", found.finished.to_string()),
            ("failed as interrupted", found.interrupted.to_string()),
            ("effects told as unknown", found.unknown.to_string()),
            ("lost", found.lost.len().to_string()),
            ("doubled effects", found.doubled_effects.len().to_string()),
            ("doubled inputs", found.doubled_inputs.len().to_string()),
            ("other problems", self.problems.len().to_string()),
            ("kills", kills.to_string()),
            ("restarts", restarts.to_string()),
            ("ready after a kill", format!("{median} ms median, {max} ms at most")),
            ("requests to the model", self.requests.to_string()),
            ("took", format!("{} s", self.took.as_secs())),
            ("seed", self.seed.to_string()),
        ];
        render::table(&rows.map(|(name, value)| vec![name.to_owned(), value]))
    }

    /// Formats the report for programs.
    pub(super) fn to_json(&self) -> Value {
        let Findings { accepted, finished, interrupted, unknown, lost, doubled_effects, doubled_inputs, .. } =
            &self.found;
        let (median, max) = self.ready();
        json!({
            "ok": self.is_good(), "seed": self.seed, "kills": self.killed.kills, "restarts": self.killed.restarts,
            "accepted": accepted, "finished": finished, "interrupted": interrupted, "unknownEffects": unknown,
            "lost": lost, "doubledEffects": doubled_effects, "doubledInputs": doubled_inputs,
            "problems": self.problems, "readyMs": {"median": median, "max": max}, "requests": self.requests,
            "tookMs": self.took.as_millis() as u64, "kept": self.kept,
        })
    }

    /// Returns the time to readiness after a kill: median and maximum in milliseconds.
    fn ready(&self) -> (u128, u128) {
        let mut ready = self.killed.ready.clone();
        ready.sort_unstable();
        let at = |place: usize| ready.get(place).map_or(0, Duration::as_millis);
        (at(ready.len() / 2), at(ready.len().saturating_sub(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_loss_is_enough_to_fail() {
        let report = |lost: &[&str]| Report {
            seed: 7,
            killed: Killed { kills: 2, restarts: 2, ready: vec![Duration::from_millis(9), Duration::from_millis(5)] },
            found: Findings {
                accepted: 3,
                lost: lost.iter().map(|&id| id.to_owned()).collect(),
                ..Findings::default()
            },
            requests: 9,
            problems: Vec::new(),
            took: Duration::from_secs(4),
            kept: None,
        };
        assert!(report(&[]).is_good());
        let bad = report(&["0-1"]);
        assert!(!bad.is_good());
        assert_eq!(bad.to_json()["lost"], json!(["0-1"]));
        assert_eq!(bad.to_json()["readyMs"], json!({"median": 9, "max": 9}));
        assert!(bad.to_table().contains("lost                     1\n"), "{}", bad.to_table());
    }
}
