//! Search for runs: the journal finds what the memory store finds, whether a run is summarized or not.

use homard_journal::Journal;
use homard_store::{
    AbortReason, Failure, FailureKind, MemoryStore, Outcome, Rec, RunFilter, RunQuery, StoreReader, StoreWriter,
};

use crate::words::*;

/// Number of runs: more than are summarized at once.
const RUNS: usize = 1_400;

/// Runs that are open until the others are summarized.
const LONG_RUNS: [usize; 3] = [3, 300, 1_100];

const SESSION: &str = "ef1b2ae6-dcdc-4790-bb70-9f5c2d629c03";

fn name(at: usize) -> String {
    format!("run-{at}")
}

fn place(at: usize) -> &'static str {
    ["main", "agent:other:telegram:direct:7", "agent:main:cron:morning"][at % 3]
}

fn outcome(at: usize) -> Outcome {
    match at % 7 {
        0 => Outcome::Failed(Failure { kind: FailureKind::Model, message: format!("HTTP 500: Overloaded {at}") }),
        1 => Outcome::Aborted(AbortReason::User),
        _ => Outcome::Done,
    }
}

fn begin(at: usize) -> Vec<Rec> {
    let Rec::Accept(mut accept) = accept(&name(at), "f") else { unreachable!() };
    accept.key = key(place(at));
    let entry = format!("u{at}");
    vec![
        Rec::Accept(accept),
        start(&name(at), place(at), SESSION),
        input(&name(at), [place(at), SESSION], &[], &[&entry]),
    ]
}

fn queries() -> Vec<RunQuery> {
    let text = |text: &str| Some(text.to_owned());
    let filters = [
        RunFilter { status: text("error"), ..RunFilter::default() },
        RunFilter { status: text("running"), ..RunFilter::default() },
        RunFilter { search: text("OVERLOADED 70"), ..RunFilter::default() },
        RunFilter { search: text("run-30"), ..RunFilter::default() },
        RunFilter { search: text("nothing like this"), ..RunFilter::default() },
        RunFilter { channel: text("telegram"), ..RunFilter::default() },
        RunFilter { agent: Some(homard_proto::AgentId::main()), status: text("aborted"), ..RunFilter::default() },
        RunFilter { model: text("P/M"), ..RunFilter::default() },
    ];
    let whole = |filter| RunQuery { filter, limit: RUNS, ..RunQuery::default() };
    let mut all: Vec<_> = filters.into_iter().map(whole).collect();
    all.push(RunQuery { key: Some(key(place(1))), limit: RUNS, ..RunQuery::default() });
    let parts: Vec<_> =
        all.iter().map(|query| RunQuery { before: Some(run(&name(700))), limit: 5, ..query.clone() }).collect();
    all.extend(parts);
    all
}

async fn assert_finds_the_same(journal: &Journal, memory: &MemoryStore) {
    for query in queries() {
        let names = |rows: Vec<homard_store::RunRow>| rows.iter().map(|row| row.run.to_string()).collect::<Vec<_>>();
        let (found, expected) = (journal.runs(&query).await.unwrap(), memory.runs(&query).await.unwrap());
        assert_eq!(names(found), names(expected), "{query:?}");
    }
}

#[tokio::test]
async fn the_journal_finds_the_runs_that_the_memory_store_finds() {
    let state = tempfile::tempdir().unwrap();
    let (mut journal, memory) = (open(state.path()), MemoryStore::default());
    for first in (0..RUNS).step_by(100) {
        let batch: Vec<_> = (first..first + 100)
            .flat_map(|at| {
                let end = (!LONG_RUNS.contains(&at)).then(|| terminal(&name(at), outcome(at)));
                begin(at).into_iter().chain(end)
            })
            .collect();
        memory.commit(&homard_store::Fence::default(), batch.clone()).await.unwrap();
        commit_all(&journal, batch).await;
        journal.flush().await.unwrap();
    }
    assert_finds_the_same(&journal, &memory).await;
    // Those that end later are found by their end.
    let ends: Vec<_> = LONG_RUNS.iter().map(|at| terminal(&name(*at), outcome(*at))).collect();
    memory.commit(&homard_store::Fence::default(), ends.clone()).await.unwrap();
    commit_all(&journal, ends).await;
    assert_finds_the_same(&journal, &memory).await;
    drop(journal);
    journal = open(state.path());
    assert_finds_the_same(&journal, &memory).await;
}
