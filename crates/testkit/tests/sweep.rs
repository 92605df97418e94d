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

use homard_testkit::{Trace, invariants, rng::SeededRng, snapshot::format_snapshot, sweep::RehearsedTrace};

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

#[test]
fn a_death_at_any_commit_breaks_no_law() {
    let whole = std::env::var("SWEEP").is_ok_and(|how| how == "all");
    let seed = std::env::var("SWEEP_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(3);
    let mut dice = SeededRng::new(seed);
    let (mut count, mut broken) = (0, Vec::new());
    let room = std::env::var("SWEEP_ROOM").unwrap_or_default();
    for path in traces(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces").join(room)) {
        let name = path.display().to_string();
        let rehearsed = RehearsedTrace::new(&Trace::read(&name, &fs::read_to_string(&path).unwrap()).unwrap()).unwrap();
        let drawn = rehearsed.points().into_iter().filter(|_| whole || dice.percent(SAMPLE));
        for point in drawn.collect::<Vec<_>>() {
            count += 1;
            let played = rehearsed.crash(point).unwrap_or_else(|error| panic!("{name} at {point:?}: {error}"));
            let wrong = invariants::violations(&played);
            if !wrong.is_empty() {
                broken.push(format!("{name} at {point:?}:\n  {}\n\n{}", wrong.join("\n  "), format_snapshot(&played)));
            }
        }
    }
    println!("{count} crash points");
    assert!(count > 100, "only {count} crash points");
    assert!(broken.is_empty(), "{} of {count} crash points broke a law; the first:\n{}", broken.len(), broken[0]);
}
