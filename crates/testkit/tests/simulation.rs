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

#[test]
fn no_seed_breaks_a_law() {
    let seeds = match number("SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SIM_SEEDS").unwrap_or(SEEDS),
    };
    let mut broken = Vec::new();
    for seed in seeds {
        let wrong = match simulation::simulate(seed, Severity::Normal) {
            Ok(played) => {
                let wrong = invariants::violations(&played);
                if number("SIM_SEED").is_some() {
                    println!("{}\n\n{}", simulation::generate_trace(seed, Severity::Normal), format_snapshot(&played));
                }
                wrong
            }
            Err(error) => vec![error.to_string()],
        };
        if !wrong.is_empty() {
            broken.push(format!("seed {seed}:\n  {}", wrong.join("\n  ")));
        }
    }
    assert!(broken.is_empty(), "{} seeds broke a law (SIM_SEED=n tells one):\n{}", broken.len(), broken.join("\n"));
}
