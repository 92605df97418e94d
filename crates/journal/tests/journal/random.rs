//! Whatever a store is told, the journal answers and knows the same as the memory store.

use std::collections::BTreeMap;

use homard_store::{Fence, MemoryStore, Outcome, Rec, Store};
use proptest::{collection::vec, prelude::*};

use crate::words::*;

/// One record, before it is known which session the keys point at.
#[derive(Debug, Clone)]
enum Word {
    Accept(&'static str, &'static str),
    Start(&'static str),
    Input(&'static str, Option<&'static str>),
    End(&'static str),
    Said(&'static str),
    Patch { at: &'static str, fresh: bool, believes: bool },
}

fn word() -> impl Strategy<Value = Word> {
    let run = || prop::sample::select(&["r1", "r2", "r3"]);
    let at = || prop::sample::select(&["main", "agent:ops:main", "global"]);
    prop_oneof![
        (run(), prop::sample::select(&["x", "y"])).prop_map(|(run, print)| Word::Accept(run, print)),
        run().prop_map(Word::Start),
        (run(), prop::option::of(run())).prop_map(|(run, guest)| Word::Input(run, guest)),
        run().prop_map(Word::End),
        at().prop_map(Word::Said),
        (at(), any::<bool>(), prop::bool::weighted(0.8)).prop_map(|(at, fresh, believes)| Word::Patch {
            at,
            fresh,
            believes
        }),
    ]
}

/// Turns words into records; every line and every new session gets a name of its own.
#[derive(Default)]
struct Speaker {
    count: u32,
    current: BTreeMap<&'static str, String>,
}

impl Speaker {
    fn say(&mut self, word: &Word) -> Rec {
        self.count += 1;
        let new = format!("n{}", self.count);
        match *word {
            Word::Accept(run, print) => accept(run, print),
            Word::Start(run) => start(run, "main", self.current.get("main").unwrap_or(&new)),
            Word::Input(run, guest) => input(run, "main", guest.as_slice(), &[&new, &format!("{new}-2")]),
            Word::End(run) => terminal(run, Outcome::Done),
            Word::Said(at) => said(at, &new),
            Word::Patch { at, believes: false, .. } => patch(at, Some("nobody"), record(&new)),
            Word::Patch { at, fresh, believes: true } => {
                let current = self.current.get(at).cloned();
                let next = current.clone().filter(|_| !fresh).unwrap_or(new);
                self.current.insert(at, next.clone());
                patch(at, current.as_deref(), record(&next))
            }
        }
    }
}

async fn compare(batches: Vec<Vec<Word>>) {
    let state = tempfile::tempdir().unwrap();
    let mut journal = open(state.path());
    let memory = MemoryStore::default();
    let mut speaker = Speaker::default();
    for words in &batches {
        let batch: Vec<_> = words.iter().map(|word| speaker.say(word)).collect();
        let expected = memory.commit(&Fence::default(), batch.clone()).await;
        assert_eq!(journal.commit(&journal.fence(), batch).await, expected);
    }
    for name in ["r1", "r2", "r3"] {
        assert_eq!(journal.run(&run(name)).await, memory.run(&run(name)).await);
    }
    assert_eq!(journal.recover().await, memory.recover().await);
    // The second time as the next process finds it.
    for _ in 0..2 {
        for at in ["main", "agent:ops:main", "global"] {
            assert_eq!(journal.load(&key(at)).await, memory.load(&key(at)).await);
        }
        drop(journal);
        journal = open(state.path());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn the_journal_and_the_memory_store_agree(batches in vec(vec(word(), 0..8), 0..8)) {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(compare(batches));
    }
}
