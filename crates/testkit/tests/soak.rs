//! Timelines are complete and agree with the events, for random runs in rough scenarios with errors, retries,
//! fallbacks, steering, aborts, compactions, hooks and crashes. `SOAK_SEEDS=<number>` runs more scenarios,
//! `SOAK_SEED=<number>` runs one and prints it.
//!
//! Each run is checked by the timeline invariants, which hold for every trace; here it is counted that there was
//! something to check.
#![allow(clippy::disallowed_methods, reason = "whoever runs the tests says how many seeds they want")]

use std::collections::BTreeMap;

use homard_agent::{AbortReason, Outcome, RunEvent, StoredEvent};
use homard_store::{RunRow, RunState, RunTimeline, SpanKind};
use homard_testkit::{
    TraceResult, invariants,
    simulation::{self, Severity},
    snapshot::format_snapshot,
};

/// Default number of scenarios.
const SEEDS: u64 = 200;

/// Minimum number of checked runs, and of each kind among them.
const MIN_RUNS: usize = 500;
const MIN_OF_EACH: usize = 10;

/// Kinds of runs and events that must occur.
const KINDS: &[&str] = &[
    "runs that are done",
    "runs that failed",
    "runs that a client stopped",
    "runs that a newer message stopped",
    "runs that took too long",
    "runs that joined another",
    "runs that waited in line",
    "runs that a restart took up",
    "runs that ended with a restart",
    "answers of models",
    "failures of models",
    "models asked again after a while",
    "models that others stepped in for",
    "conversations made short",
    "conversations not made short",
    "tools that answered",
    "tools that failed",
    "messages that joined",
    "decisions of hooks",
    "deaths",
];

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

#[derive(Default)]
struct Tally(BTreeMap<&'static str, usize>);

impl Tally {
    fn count(&mut self, what: &'static str, times: usize) {
        *self.0.entry(what).or_default() += times;
    }

    fn of(&self, what: &str) -> usize {
        self.0.get(what).copied().unwrap_or_default()
    }

    /// Counts what happened in a scenario.
    fn scenario(&mut self, result: &TraceResult) {
        self.count("deaths", result.restarts());
        result.rows().for_each(|row| self.run(row));
        let starts = result.runs().fold(BTreeMap::<_, usize>::new(), |mut starts, (tape, events)| {
            let has_started =
                events.iter().any(|event| matches!(event.kind, RunEvent::Stored(StoredEvent::Started { .. })));
            *starts.entry(tape.run()).or_default() += usize::from(has_started);
            starts
        });
        self.count("runs that a restart took up", starts.values().filter(|starts| **starts > 1).count());
    }

    fn run(&mut self, row: &RunRow) {
        let RunState::Ended(ended) = &row.state else { return };
        self.count("runs", 1);
        self.count(
            match &ended.outcome {
                Outcome::Done => "runs that are done",
                Outcome::Failed(failure) if failure.message.starts_with("INTERRUPTED") => {
                    "runs that ended with a restart"
                }
                Outcome::Failed(_) => "runs that failed",
                Outcome::Aborted(AbortReason::User | AbortReason::Stop) => "runs that a client stopped",
                Outcome::Aborted(AbortReason::Timeout) => "runs that took too long",
                Outcome::Aborted(AbortReason::Interrupted | AbortReason::Dropped) => {
                    "runs that a newer message stopped"
                }
            },
            1,
        );
        // The work of a run is counted once, not again for absorbed runs.
        if row.host.is_some() {
            return self.count("runs that joined another", 1);
        }
        self.steps(&ended.steps);
    }

    fn steps(&mut self, timeline: &RunTimeline) {
        for span in timeline.all() {
            let what = match &span.what {
                SpanKind::Queued { .. } => "runs that waited in line",
                SpanKind::Model(request) if request.error.is_none() => "answers of models",
                SpanKind::Model(_) => "failures of models",
                SpanKind::Retry { .. } => "models asked again after a while",
                SpanKind::Switched { .. } => "models that others stepped in for",
                SpanKind::Compaction { tokens: Some(_), .. } => "conversations made short",
                SpanKind::Compaction { tokens: None, .. } => "conversations not made short",
                SpanKind::Tool { is_error: false, .. } => "tools that answered",
                SpanKind::Tool { is_error: true, .. } => "tools that failed",
                SpanKind::Joined => "messages that joined",
                SpanKind::Placed { .. } => "messages that got another place",
                SpanKind::Busy { .. } => "messages that waited long",
                SpanKind::Summarized { .. } => "summaries of messages",
                SpanKind::Withheld { .. } => "texts that repeated a message of a tool",
                SpanKind::Hook { .. } => "decisions of hooks",
                SpanKind::Down => "times without a process",
                SpanKind::Held => "held",
                SpanKind::Prepared
                | SpanKind::Stored
                | SpanKind::Tools
                | SpanKind::Finished
                | SpanKind::FinalHooks
                | SpanKind::Block
                | SpanKind::More { .. } => continue,
            };
            self.count(what, 1);
        }
    }
}

#[test]
fn timelines_of_five_hundred_rough_runs_have_no_gaps() {
    let only_seed = number("SOAK_SEED");
    let seeds = only_seed.map_or(0..number("SOAK_SEEDS").unwrap_or(SEEDS), |seed| seed..seed + 1);
    let (mut tally, mut failures) = (Tally::default(), Vec::new());
    for seed in seeds {
        let problems = match simulation::simulate(seed, Severity::Rough) {
            Ok(result) => {
                if only_seed.is_some() {
                    println!("{}\n\n{}", simulation::generate_trace(seed, Severity::Rough), format_snapshot(&result));
                }
                // Counts are lower where the disk failed.
                if !result.has_store_fault() {
                    tally.scenario(&result);
                }
                invariants::violations(&result)
            }
            Err(error) => vec![error.to_string()],
        };
        if !problems.is_empty() {
            failures.push(format!("seed {seed}:\n  {}", problems.join("\n  ")));
        }
    }
    println!("{:#?}", tally.0);
    assert!(
        failures.is_empty(),
        "{} worlds broke a law (SOAK_SEED=n tells one):\n{}",
        failures.len(),
        failures.join("\n")
    );
    if only_seed.is_none() {
        let rare: Vec<_> = KINDS.iter().filter(|kind| tally.of(kind) < MIN_OF_EACH).collect();
        assert!(tally.of("runs") >= MIN_RUNS && rare.is_empty(), "too few of {rare:?} in {:#?}", tally.0);
    }
}
