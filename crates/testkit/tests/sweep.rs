//! R1, R3, R7, R12: every trace, with a crash at every commit; a seeded sample by default, everything with `SWEEP=all`.
//!
//! `SWEEP_SEED=<number>` draws another sample, `SWEEP_ROOM=<folder>` runs only the traces there; a failure names its
//! trace and crash point.
#![allow(clippy::unwrap_used, reason = "tests may")]
#![allow(clippy::disallowed_methods, reason = "whoever runs the tests says how much of the sweep they want")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use homard_stdx::SeededRng;
use homard_testkit::{Trace, invariants, snapshot::format_snapshot, sweep::RehearsedTrace};

/// Size of the sample in percent.
const SAMPLE: u64 = 20;

fn traces(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(traces(&path));
        } else if path.extension().is_some_and(|end| end == "trace") {
            found.push(path);
        }
    }
    found.sort();
    found
}

// R14, R81.
#[test]
fn a_crash_at_any_commit_violates_no_invariant() {
    let is_full = std::env::var("SWEEP").is_ok_and(|value| value == "all");
    let seed = std::env::var("SWEEP_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(3);
    let mut rng = SeededRng::new(seed);
    let (mut count, mut failures) = (0, Vec::new());
    let topic = std::env::var("SWEEP_ROOM").unwrap_or_default();
    for path in traces(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces").join(topic)) {
        let name = path.display().to_string();
        let rehearsed = RehearsedTrace::new(&Trace::read(&name, &fs::read_to_string(&path).unwrap()).unwrap()).unwrap();
        let sample = rehearsed.points().into_iter().filter(|_| is_full || rng.percent(SAMPLE));
        for point in sample.collect::<Vec<_>>() {
            count += 1;
            let result = rehearsed.crash(point).unwrap_or_else(|error| panic!("{name} at {point:?}: {error}"));
            let problems = invariants::violations(&result);
            if !problems.is_empty() {
                failures.push(format!(
                    "{name} at {point:?}:\n  {}\n\n{}",
                    problems.join("\n  "),
                    format_snapshot(&result)
                ));
            }
        }
    }
    println!("{count} crash points");
    assert!(count > 100, "only {count} crash points");
    assert!(failures.is_empty(), "{} of {count} crash points broke a law; the first:\n{}", failures.len(), failures[0]);
}
