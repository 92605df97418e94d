//! R1, R3, R6, R7, R12: random scenarios violate no invariant. `SIM_SEEDS=<number>` runs more of them,
//! `SIM_SEED=<number>` runs one and prints it.
#![allow(clippy::disallowed_methods, reason = "whoever runs the tests says how many seeds they want")]

use homard_testkit::{
    invariants,
    simulation::{self, Severity},
    snapshot::format_snapshot,
};

/// Default number of seeds.
const SEEDS: u64 = 200;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

// R81.
#[test]
fn no_seed_violates_an_invariant() {
    let seeds = match number("SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SIM_SEEDS").unwrap_or(SEEDS),
    };
    let mut failures = Vec::new();
    for seed in seeds {
        let problems = match simulation::simulate(seed, Severity::Normal) {
            Ok(result) => {
                let problems = invariants::violations(&result);
                if number("SIM_SEED").is_some() {
                    println!("{}\n\n{}", simulation::generate_trace(seed, Severity::Normal), format_snapshot(&result));
                }
                problems
            }
            Err(error) => vec![error.to_string()],
        };
        if !problems.is_empty() {
            failures.push(format!("seed {seed}:\n  {}", problems.join("\n  ")));
        }
    }
    assert!(
        failures.is_empty(),
        "{} seeds broke a law (SIM_SEED=n tells one):\n{}",
        failures.len(),
        failures.join("\n")
    );
}
