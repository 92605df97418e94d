//! R15: `sessions.json` is read continuously while sessions change.
//!
//! `GRID=all` makes ten thousand changes in ten seconds.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use homard_journal::Journal;
use homard_proto::{AgentId, SessionId, SessionKey, session::Record};
use homard_store::{Rec, StoreWriter, Verdict};
use serde_json::Value;

use crate::chaos::gateway::is_long;

/// Number of sessions that change concurrently.
const SESSIONS: u64 = 10;

#[tokio::test(flavor = "multi_thread")]
async fn r15_sessions_json_is_always_complete() {
    let state = tempfile::tempdir().unwrap();
    let journal = Arc::new(Journal::open(state.path(), || 0).unwrap());
    let rounds = if is_long() { 1_000 } else { 50 };
    change(&journal, 0).await;
    journal.flush().await.unwrap();
    let (path, done) = (state.path().join("agents/main/sessions/sessions.json"), Arc::new(AtomicBool::new(false)));
    let is_done = Arc::clone(&done);
    let reader = thread::spawn(move || {
        let (mut read_count, mut newest) = (0, 0);
        while !is_done.load(Ordering::Relaxed) {
            let all: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            let seen = all["agent:main:s0"]["updatedAt"].as_u64().unwrap();
            assert!(seen >= newest, "it never goes back");
            (read_count, newest) = (read_count + 1, seen);
        }
        (read_count, newest)
    });
    // Far more often than a gateway does.
    let (exporter, is_done) = (Arc::clone(&journal), Arc::clone(&done));
    let exporter = tokio::task::spawn_blocking(move || {
        let mut exports = 0;
        while !is_done.load(Ordering::Relaxed) {
            tokio::runtime::Handle::current().block_on(exporter.flush()).unwrap();
            exports += 1;
        }
        exports
    });
    let mut interval = tokio::time::interval(Duration::from_millis(10));
    for round in 1..=rounds {
        interval.tick().await;
        change(&journal, round).await;
    }
    done.store(true, Ordering::Relaxed);
    let (exports, (read_count, newest)) = (exporter.await.unwrap(), reader.join().unwrap());
    println!("{} changes, written {exports} times, read {read_count} times, each time whole", rounds * SESSIONS);
    assert!(exports > 1 && read_count > 1 && newest > 0, "{exports} {read_count} {newest}");
}

/// Changes all sessions; the length of their records varies with the round.
async fn change(journal: &Journal, round: u64) {
    let patch = |number: u64| {
        let session = SessionId::parse(&format!("id{number}")).unwrap();
        let mut record = Record::new(session.clone(), round);
        record.label = Some("x".repeat(usize::try_from(round % 97 * 20).unwrap()));
        let key = SessionKey::parse(&format!("s{number}"), &AgentId::main()).unwrap();
        Rec::Patch { run: None, key, expect: (round > 0).then_some(session), record: Box::new(record) }
    };
    let verdicts = journal.commit(&journal.fence(), (0..SESSIONS).map(patch).collect()).await.unwrap();
    assert_eq!(verdicts, vec![Verdict::Stored; SESSIONS as usize]);
}
