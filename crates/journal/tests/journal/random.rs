//! Property tests: for random records and crashes, the journal answers and stores the same as the memory store.

use std::collections::BTreeMap;

use homard_journal::Journal;
use homard_store::{
    AbortReason, Delivery, DeliveryState, Fence, MemoryStore, Outcome, ProcessEnd, Rec, Store, ToolClass,
};
use proptest::{collection::vec, prelude::*};
use tempfile::TempDir;

use crate::words::*;

type Name = &'static str;

/// A record in which keys are not resolved to sessions yet.
#[derive(Debug, Clone)]
enum RandomRecord {
    Accept(Name, Name),
    Heard(Name, Name),
    Start(Name),
    Input(Name, Option<Name>),
    Intent(Name, Name),
    Done(Name, Name),
    Abort(Name),
    Hold(Name),
    Release(Name),
    End(Name),
    Said(Option<Name>, Name),
    Patch { at: Name, fresh: bool, believes: bool },
    Delete { at: Name, believes: bool },
    Queue { id: Name, run: Option<Name>, is_idempotent: bool },
    Deliver(Name, DeliveryState),
}

/// Event between two batches.
#[derive(Debug, Clone, Copy)]
enum Between {
    Nothing,
    Flush,
    Reopen,
    Crash,
}

const PLACES: [Name; 3] = ["main", "agent:ops:main", "global"];

fn word() -> impl Strategy<Value = RandomRecord> {
    let run = || prop::sample::select(&["r1", "r2", "r3"]);
    let at = || prop::sample::select(&PLACES);
    let call = || prop::sample::select(&["c1", "c2"]);
    let believes = || prop::bool::weighted(0.8);
    let id = || prop::sample::select(&["d1", "d2", "d3"]);
    let said = (id(), prop::option::of(run()), any::<bool>());
    let states = vec![
        DeliveryState::Sending,
        DeliveryState::Sending,
        DeliveryState::Unknown,
        DeliveryState::Failed { retry_at: NOW, reason: "busy".to_owned() },
        DeliveryState::Dead { reason: "gone".to_owned() },
        sent(),
    ];
    prop_oneof![
        3 => (run(), prop::sample::select(&["x", "y"])).prop_map(|(run, print)| RandomRecord::Accept(run, print)),
        1 => (run(), prop::sample::select(&["e1", "e2"])).prop_map(|(run, event)| RandomRecord::Heard(run, event)),
        2 => run().prop_map(RandomRecord::Start),
        2 => (run(), prop::option::of(run())).prop_map(|(run, guest)| RandomRecord::Input(run, guest)),
        1 => (run(), call()).prop_map(|(run, call)| RandomRecord::Intent(run, call)),
        1 => (run(), call()).prop_map(|(run, call)| RandomRecord::Done(run, call)),
        1 => run().prop_map(RandomRecord::Abort),
        1 => run().prop_map(RandomRecord::Hold),
        1 => run().prop_map(RandomRecord::Release),
        1 => run().prop_map(RandomRecord::End),
        3 => (prop::option::of(run()), at()).prop_map(|(run, at)| RandomRecord::Said(run, at)),
        3 => (at(), any::<bool>(), believes()).prop_map(|(at, fresh, believes)| RandomRecord::Patch { at, fresh, believes }),
        1 => (at(), believes()).prop_map(|(at, believes)| RandomRecord::Delete { at, believes }),
        2 => said.prop_map(|(id, run, is_idempotent)| RandomRecord::Queue { id, run, is_idempotent }),
        4 => (id(), prop::sample::select(states)).prop_map(|(id, state)| RandomRecord::Deliver(id, state)),
    ]
}

fn between() -> impl Strategy<Value = Between> {
    prop_oneof![
        4 => Just(Between::Nothing),
        1 => Just(Between::Flush),
        1 => Just(Between::Reopen),
        1 => Just(Between::Crash),
    ]
}

/// Turns words into records; every entry and every new session gets a unique name.
#[derive(Default)]
struct Speaker {
    count: u32,
    current: BTreeMap<Name, String>,
    /// Last session of a key, which may have been deleted.
    last: BTreeMap<Name, String>,
}

impl Speaker {
    fn say(&mut self, word: &RandomRecord) -> Rec {
        self.count += 1;
        let new = format!("n{}", self.count);
        let place = |at: Name| self.last.get(at).unwrap_or(&new).clone();
        match *word {
            RandomRecord::Accept(run, print) => accept(run, print),
            RandomRecord::Heard(run, event) => heard(run, event),
            RandomRecord::Start(run) => start(run, "main", &place("main")),
            RandomRecord::Input(run, guest) => {
                input(run, ("main", &place("main")), guest.as_slice(), &[&new, &format!("{new}-2")])
            }
            RandomRecord::Intent(run, call) => intent(run, call, ToolClass::Effect),
            RandomRecord::Done(run, call) => done(run, call, &new),
            RandomRecord::Abort(run) => abort(run, AbortReason::User),
            RandomRecord::Hold(name) => Rec::Hold { run: run(name), at: NOW + 1 },
            RandomRecord::Release(name) => Rec::Release { run: run(name), at: NOW + 2 },
            RandomRecord::End(run) => terminal(run, Outcome::Done),
            RandomRecord::Said(None, at) => said((at, &place(at)), &new),
            RandomRecord::Said(Some(run), at) => said_by(run, (at, &place(at)), &new),
            RandomRecord::Patch { at, believes: false, .. } => patch(at, Some("nobody"), record(&new)),
            RandomRecord::Patch { at, fresh, believes: true } => {
                let current = self.current.get(at).cloned();
                let next = current.clone().filter(|_| !fresh).unwrap_or(new);
                self.current.insert(at, next.clone());
                self.last.insert(at, next.clone());
                patch(at, current.as_deref(), record(&next))
            }
            RandomRecord::Delete { at, believes: true } => match self.current.remove(at) {
                Some(current) => delete(at, &current),
                None => delete(at, "nobody"),
            },
            RandomRecord::Delete { at, believes: false } => delete(at, "nobody"),
            RandomRecord::Queue { id, run, is_idempotent } => {
                queue(&Delivery { is_idempotent, ..delivery(id, "ann", run) })
            }
            RandomRecord::Deliver(id, ref state) => deliver(id, state.clone()),
        }
    }
}

async fn same(journal: &Journal, memory: &MemoryStore) {
    for name in ["r1", "r2", "r3"] {
        assert_eq!(journal.run(&run(name)).await, memory.run(&run(name)).await);
    }
    assert_eq!(journal.recover().await, memory.recover().await);
    assert_eq!(journal.outbox().await, memory.outbox().await);
    let sorted = |mut records: Vec<_>| {
        records.sort_by(|a: &(homard_proto::SessionKey, _), b| a.0.cmp(&b.0));
        records
    };
    assert_eq!(sorted(journal.list().await.unwrap()), sorted(memory.list().await.unwrap()));
    for at in PLACES {
        assert_eq!(journal.load(&key(at)).await, memory.load(&key(at)).await);
    }
}

async fn compare(story: Vec<(Vec<RandomRecord>, Between)>) {
    let mut state: TempDir = tempfile::tempdir().unwrap();
    let mut journal = open(state.path());
    let memory = MemoryStore::default();
    let (mut speaker, mut end) = (Speaker::default(), ProcessEnd::Crashed);
    for (words, between) in &story {
        let batch: Vec<_> = words.iter().map(|word| speaker.say(word)).collect();
        let expected = memory.commit(&Fence::default(), batch.clone()).await;
        assert_eq!(journal.commit(&journal.fence(), batch).await.map(anywhere), expected);
        end = ProcessEnd::Crashed;
        match between {
            Between::Nothing => {}
            Between::Flush => {
                journal.flush().await.unwrap();
                end = ProcessEnd::Stopped;
            }
            Between::Reopen => {
                drop(journal);
                journal = open(state.path());
                memory.restart(std::mem::replace(&mut end, ProcessEnd::Crashed));
            }
            Between::Crash => {
                let copy = crash(state.path());
                drop(journal);
                state = copy;
                journal = open(state.path());
                memory.restart(std::mem::replace(&mut end, ProcessEnd::Crashed));
            }
        }
    }
    same(&journal, &memory).await;
    // Once more, as the next process finds it.
    drop(journal);
    memory.restart(end);
    same(&open(state.path()), &memory).await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn the_journal_and_the_memory_store_agree(story in vec((vec(word(), 0..8), between()), 0..8)) {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(compare(story));
    }
}
