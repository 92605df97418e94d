//! Property tests: for random records and crashes, the journal answers and stores the same as the memory store.

use std::collections::BTreeMap;

use homard_journal::Journal;
use homard_store::{
    AbortReason, Delivery, DeliveryState, Fence, MemoryStore, Outcome, ProcessEnd, Rec, StoreReader, StoreWriter,
    ToolClass,
};
use proptest::{collection::vec, prelude::*};
use tempfile::TempDir;

use crate::words::*;

type Name = &'static str;

/// A record in which keys are not resolved to sessions yet.
#[derive(Debug, Clone)]
enum RandomRecord {
    Accept(Name, Name),
    AcceptEvent(Name, Name),
    Start(Name),
    Input(Name, Option<Name>),
    Intent(Name, Name),
    Done(Name, Name),
    Abort(Name),
    Hold(Name),
    Release(Name),
    End(Name),
    Append(Option<Name>, Name),
    Patch { at: Name, fresh: bool, expects_current: bool },
    Delete { at: Name, expects_current: bool },
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

const KEYS: [Name; 3] = ["main", "agent:ops:main", "global"];

fn random_record() -> impl Strategy<Value = RandomRecord> {
    let run = || prop::sample::select(&["r1", "r2", "r3"]);
    let at = || prop::sample::select(&KEYS);
    let call = || prop::sample::select(&["c1", "c2"]);
    let expects_current = || prop::bool::weighted(0.8);
    let id = || prop::sample::select(&["d1", "d2", "d3"]);
    let delivery_fields = (id(), prop::option::of(run()), any::<bool>());
    let states = vec![
        DeliveryState::Sending,
        DeliveryState::Sending,
        DeliveryState::Unknown { reason: Some("a reset".to_owned()) },
        DeliveryState::Failed { retry_at: NOW, reason: "busy".to_owned() },
        DeliveryState::Dead { reason: "gone".to_owned() },
        sent(),
    ];
    prop_oneof![
        3 => (run(), prop::sample::select(&["x", "y"])).prop_map(|(run, fingerprint)| RandomRecord::Accept(run, fingerprint)),
        1 => (run(), prop::sample::select(&["e1", "e2"])).prop_map(|(run, event)| RandomRecord::AcceptEvent(run, event)),
        2 => run().prop_map(RandomRecord::Start),
        2 => (run(), prop::option::of(run())).prop_map(|(run, absorbed)| RandomRecord::Input(run, absorbed)),
        1 => (run(), call()).prop_map(|(run, call)| RandomRecord::Intent(run, call)),
        1 => (run(), call()).prop_map(|(run, call)| RandomRecord::Done(run, call)),
        1 => run().prop_map(RandomRecord::Abort),
        1 => run().prop_map(RandomRecord::Hold),
        1 => run().prop_map(RandomRecord::Release),
        1 => run().prop_map(RandomRecord::End),
        3 => (prop::option::of(run()), at()).prop_map(|(run, at)| RandomRecord::Append(run, at)),
        3 => (at(), any::<bool>(), expects_current()).prop_map(|(at, fresh, expects_current)| RandomRecord::Patch { at, fresh, expects_current }),
        1 => (at(), expects_current()).prop_map(|(at, expects_current)| RandomRecord::Delete { at, expects_current }),
        2 => delivery_fields.prop_map(|(id, run, is_idempotent)| RandomRecord::Queue { id, run, is_idempotent }),
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

/// Resolves random records to store records; every entry and every new session gets a unique name.
#[derive(Default)]
struct RecordResolver {
    count: u32,
    current: BTreeMap<Name, String>,
    /// Last session of a key, which may have been deleted.
    last: BTreeMap<Name, String>,
}

impl RecordResolver {
    fn resolve(&mut self, template: &RandomRecord) -> Rec {
        self.count += 1;
        let new = format!("n{}", self.count);
        let session_of = |at: Name| self.last.get(at).unwrap_or(&new).clone();
        match *template {
            RandomRecord::Accept(run, fingerprint) => accept(run, fingerprint),
            RandomRecord::AcceptEvent(run, event) => accept_event(run, event),
            RandomRecord::Start(run) => start(run, "main", &session_of("main")),
            RandomRecord::Input(run, absorbed) => {
                input(run, ["main", &session_of("main")], absorbed.as_slice(), &[&new, &format!("{new}-2")])
            }
            RandomRecord::Intent(run, call) => intent(run, call, ToolClass::Effect),
            RandomRecord::Done(run, call) => done(run, call, &new),
            RandomRecord::Abort(run) => abort(run, AbortReason::User),
            RandomRecord::Hold(name) => Rec::Hold { run: run(name), at: NOW + 1 },
            RandomRecord::Release(name) => Rec::Release { run: run(name), at: NOW + 2 },
            RandomRecord::End(run) => terminal(run, Outcome::Done),
            RandomRecord::Append(None, at) => append([at, &session_of(at)], &new),
            RandomRecord::Append(Some(run), at) => append_by(run, [at, &session_of(at)], &new),
            RandomRecord::Patch { at, expects_current: false, .. } => patch(at, Some("nobody"), record(&new)),
            RandomRecord::Patch { at, fresh, expects_current: true } => {
                let current = self.current.get(at).cloned();
                let next = current.clone().filter(|_| !fresh).unwrap_or(new);
                self.current.insert(at, next.clone());
                self.last.insert(at, next.clone());
                patch(at, current.as_deref(), record(&next))
            }
            RandomRecord::Delete { at, expects_current: true } => match self.current.remove(at) {
                Some(current) => delete(at, &current),
                None => delete(at, "nobody"),
            },
            RandomRecord::Delete { at, expects_current: false } => delete(at, "nobody"),
            RandomRecord::Queue { id, run, is_idempotent } => {
                queue(&Delivery { is_idempotent, ..delivery(id, "ann", run) })
            }
            RandomRecord::Deliver(id, ref state) => deliver(id, state.clone()),
        }
    }
}

async fn assert_same(journal: &Journal, memory: &MemoryStore) {
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
    for at in KEYS {
        assert_eq!(journal.load(&key(at)).await, memory.load(&key(at)).await);
    }
}

async fn compare(steps: Vec<(Vec<RandomRecord>, Between)>) {
    let mut state: TempDir = tempfile::tempdir().unwrap();
    let mut journal = open(state.path());
    let memory = MemoryStore::default();
    let (mut resolver, mut end) = (RecordResolver::default(), ProcessEnd::Crashed);
    for (records, between) in &steps {
        let batch: Vec<_> = records.iter().map(|record| resolver.resolve(record)).collect();
        let expected = memory.commit(&Fence::default(), batch.clone()).await;
        assert_eq!(journal.commit(&journal.fence(), batch).await.map(without_archive_paths), expected);
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
    assert_same(&journal, &memory).await;
    // Once more, as the next process finds it.
    drop(journal);
    memory.restart(end);
    assert_same(&open(state.path()), &memory).await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn the_journal_and_the_memory_store_agree(steps in vec((vec(random_record(), 0..8), between()), 0..8)) {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(compare(steps));
    }
}
