//! D71: gateways and local turns that follow one another on one state directory lose nothing and keep the order,
//! wherever they are killed. `SIM_SEEDS=<number>` runs more schedules, `SIM_SEED=<number>` runs one and prints it.
#![allow(clippy::disallowed_methods, reason = "the environment chooses how many schedules are played")]

use homard_store::{Outcome, RunRow, RunState};
use homard_testkit::{TraceResult, invariants, simulation::processes, snapshot::format_snapshot};

/// Default number of schedules.
const SEEDS: u64 = 1_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Returns accepted runs that were not answered.
fn unanswered_runs(result: &TraceResult) -> Vec<String> {
    let is_answered = |row: &&RunRow| matches!(&row.state, RunState::Ended(ended) if ended.outcome == Outcome::Done);
    let unanswered = result.rows().filter(|row| !is_answered(row));
    unanswered.map(|row| format!("run {} got no answer: {:?}", row.run, row.state)).collect()
}

#[test]
fn no_schedule_of_processes_loses_or_reorders_a_message() {
    let seeds = match number("SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SIM_SEEDS").unwrap_or(SEEDS),
    };
    let (mut failures, mut runs, mut resumed) = (Vec::new(), 0, 0);
    for seed in seeds.clone() {
        let problems = match processes::simulate(seed) {
            Ok(result) => {
                if number("SIM_SEED").is_some() {
                    println!("{}\n\n{}", processes::write(seed), format_snapshot(&result));
                }
                runs += result.rows().count();
                resumed += result.rows().filter(|row| !row.resumed_at.is_empty()).count();
                [invariants::violations(&result), unanswered_runs(&result)].concat()
            }
            Err(error) => vec![error.to_string()],
        };
        if !problems.is_empty() {
            failures.push(format!("seed {seed}:\n  {}", problems.join("\n  ")));
        }
    }
    println!("{runs} runs, {resumed} of them resumed by another process");
    assert!(resumed * 10 > runs || seeds.count() == 1, "only {resumed} of {runs} runs were resumed");
    assert!(failures.is_empty(), "{} schedules (SIM_SEED=n prints one):\n{}", failures.len(), failures.join("\n"));
}
