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

/// Plays some seeds: what went wrong, and what happened.
fn play(seeds: impl Iterator<Item = u64>) -> (Vec<String>, Tally) {
    let (mut broken, mut tally) = (Vec::new(), Tally::new());
    for seed in seeds {
        let wrong = match converse(seed) {
            Ok(conversation) => {
                for (what, count) in conversation.tally() {
                    *tally.entry(what).or_default() += count;
                }
                [conversation.complaints(), invariants::violations(&conversation.played)].concat()
            }
            Err(error) => vec![error.to_string()],
        };
        if !wrong.is_empty() {
            broken.push(format!("seed {seed}:\n  {}", wrong.join("\n  ")));
        }
    }
    (broken, tally)
}

#[test]
fn every_answer_is_read_once_and_in_order() {
    let one = number("SIM_SEED");
    let count = number("SIM_SEEDS").unwrap_or(SEEDS);
    if let Some(Ok(conversation)) = one.map(converse) {
        println!("{}\n\n{}", conversation::write(one.unwrap_or_default()), format_snapshot(&conversation.played));
        println!("\n# model said\n{}", conversation.script());
    }
    let (mut broken, mut tally) = (Vec::new(), Tally::new());
    let parts: Vec<_> = match one {
        Some(seed) => vec![play([seed].into_iter())],
        None => thread::scope(|scope| {
            let part = |first: u64| scope.spawn(move || play((first..count).step_by(THREADS as usize)));
            let started: Vec<_> = (0..THREADS).map(part).collect();
            started.into_iter().map(|thread| thread.join().unwrap()).collect()
        }),
    };
    for (wrong, happened) in parts {
        broken.extend(wrong);
        for (what, count) in happened {
            *tally.entry(what).or_default() += count;
        }
    }
    println!("{tally:#?}");
    assert!(broken.is_empty(), "{} conversations (SIM_SEED=n prints one):\n{}", broken.len(), broken.join("\n"));
    let rare: Vec<_> = tally.iter().filter(|(_, happened)| (**happened as u64) * 20 < count).collect();
    assert!(one.is_some() || rare.is_empty(), "too rare to be tested: {rare:?}");
}
