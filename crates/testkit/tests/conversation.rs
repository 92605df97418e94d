//! A person on a chat platform reads every answer once and in order, or is informed what happened to it: random conversations,
//! checked by a reader of the platform's log. `SIM_SEEDS=<number>` plays more of them, `SIM_SEED=<number>` plays one and
//! prints it.
#![allow(clippy::disallowed_methods, reason = "the environment chooses how many conversations are played")]

use std::{collections::BTreeMap, thread};

use homard_testkit::{
    invariants,
    simulation::conversation::{self, converse},
    snapshot::format_snapshot,
};

/// Conversations that are played by default.
const SEEDS: u64 = 1_000;

/// Conversations are independent, so several are played at once.
const THREADS: u64 = 4;

type Tally = BTreeMap<&'static str, usize>;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Plays seeds; returns the problems, and how often each kind of event occurred.
fn play(seeds: impl Iterator<Item = u64>) -> (Vec<String>, Tally) {
    let (mut failures, mut tally) = (Vec::new(), Tally::new());
    for seed in seeds {
        let problems = match converse(seed) {
            Ok(conversation) => {
                for (what, count) in conversation.tally() {
                    *tally.entry(what).or_default() += count;
                }
                [conversation.complaints(), invariants::violations(&conversation.result)].concat()
            }
            Err(error) => vec![error.to_string()],
        };
        if !problems.is_empty() {
            failures.push(format!("seed {seed}:\n  {}", problems.join("\n  ")));
        }
    }
    (failures, tally)
}

#[test]
fn every_answer_is_read_once_and_in_order() {
    let only_seed = number("SIM_SEED");
    let count = number("SIM_SEEDS").unwrap_or(SEEDS);
    if let Some(Ok(conversation)) = only_seed.map(converse) {
        println!("{}\n\n{}", conversation::write(only_seed.unwrap_or_default()), format_snapshot(&conversation.result));
        println!("\n# model said\n{}", conversation.script());
    }
    let (mut failures, mut tally) = (Vec::new(), Tally::new());
    let parts: Vec<_> = match only_seed {
        Some(seed) => vec![play([seed].into_iter())],
        None => thread::scope(|scope| {
            let part = |first: u64| scope.spawn(move || play((first..count).step_by(THREADS as usize)));
            let started: Vec<_> = (0..THREADS).map(part).collect();
            started.into_iter().map(|thread| thread.join().unwrap()).collect()
        }),
    };
    for (seed_failures, seed_tally) in parts {
        failures.extend(seed_failures);
        for (what, count) in seed_tally {
            *tally.entry(what).or_default() += count;
        }
    }
    println!("{tally:#?}");
    assert!(failures.is_empty(), "{} conversations (SIM_SEED=n prints one):\n{}", failures.len(), failures.join("\n"));
    let rare: Vec<_> = tally.iter().filter(|(_, times)| (**times as u64) * 20 < count).collect();
    assert!(only_seed.is_some() || rare.is_empty(), "too rare to be tested: {rare:?}");
}
