//! Tests of commits on full and broken disks, as the database sees them.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use homard_proto::{
    AgentId, RunId,
    message::{Message, Usage, User},
    transcript::Kind,
};
use homard_store::{Accept, EndRecord, Options, Outcome, StoreReader, StoreWriter};
use rusqlite::ffi;

use super::*;
use crate::{Journal, disk_space};

fn accept(run: &str, text: &str) -> Rec {
    Rec::Accept(Box::new(Accept {
        run: RunId::parse(run).unwrap(),
        principal: "owner".to_owned(),
        method: "agent".to_owned(),
        fingerprint: "f".to_owned(),
        key: AgentId::main().main_session(),
        message: Message::User(User::text(text, 0)),
        options: Options::default(),
        origin: None,
        at: 1,
    }))
}

fn terminal(run: &str) -> Rec {
    let ended = EndRecord {
        outcome: Outcome::Done,
        replies: Vec::new(),
        model: (String::new(), String::new()),
        usage: Usage::default(),
        command_reply: None,
        payloads: None,
        steps: homard_store::RunTimeline::default(),
        ended_at: 2,
    };
    Rec::Terminal { run: RunId::parse(run).unwrap(), ended: Box::new(ended) }
}

#[tokio::test]
async fn a_transcript_evicted_from_the_cache_continues_at_its_end() {
    let state = tempfile::tempdir().unwrap();
    let journal = Journal::open(state.path(), || 1).unwrap();
    let (key, session) = (AgentId::main().main_session(), SessionId::parse("s").unwrap());
    let append = async |id: &str| {
        let entry = Entry {
            id: EntryId::parse(id).unwrap(),
            parent_id: None,
            timestamp: "2026-01-01T00:00:00.000Z".to_owned(),
            kind: Kind::message(Message::User(User::text("hi", 0))),
        };
        let rec = Rec::Entry { run: None, key: key.clone(), session: session.clone(), entry: Box::new(entry) };
        journal.commit(&journal.fence(), vec![rec]).await.unwrap()
    };
    append("00000001").await;
    journal.inner.writer().evict_idle(0);
    assert_eq!(journal.inner.writer().files.len(), 1, "its line is on its way");
    journal.inner.checkpoint().unwrap();
    journal.inner.writer().delete_checkpointed(1, None).unwrap();
    journal.inner.writer().evict_idle(1);
    assert_eq!(journal.inner.writer().files.len(), 1, "there are not many");
    journal.inner.writer().evict_idle(0);
    let cached_counts = |writer: &WriterState| (writer.files.len(), writer.names.len());
    assert_eq!(cached_counts(&journal.inner.writer()), (0, 0));
    append("00000002").await;
    let read = journal.transcript(&key, &session).await.unwrap().unwrap();
    let chain: Vec<_> = read.iter().map(|it| (it.id.as_str(), it.parent_id.as_ref().map(EntryId::as_str))).collect();
    assert_eq!(chain, [("00000001", None), ("00000002", Some("00000001"))]);
}

// R11, F10: active runs may finish, known runs are answered, new runs are refused early.
#[tokio::test]
async fn low_disk_space_refuses_messages_but_not_active_runs() {
    let state = tempfile::tempdir().unwrap();
    let free = Arc::new(AtomicU64::new(u64::MAX));
    let mut journal = Journal::open(state.path(), || 1).unwrap();
    let free_bytes = Arc::clone(&free);
    Arc::get_mut(&mut journal.inner).unwrap().disk_space = disk_space::DiskSpace::measured(move || {
        Ok(disk_space::Space { free: free_bytes.load(Ordering::Relaxed), size: u64::MAX })
    });
    let commit = async |batch| journal.commit(&journal.fence(), batch).await;
    assert_eq!(commit(vec![accept("a", "hi")]).await, Ok(vec![Verdict::Stored]));

    free.store(1, Ordering::Relaxed);
    let refused = commit(vec![accept("b", "hi")]).await.unwrap_err();
    let expected = format!(
        "disk_full: less than 64 MiB are free on the disk of {}; free some space and retry",
        state.path().display()
    );
    assert_eq!(refused, Error::Disk(expected.clone()));
    // A refused or duplicate accept causes the other records of its run in the batch to be skipped.
    let mixed = commit(vec![accept("b", "hi"), terminal("b"), accept("a", "hi"), terminal("a")]).await.unwrap();
    assert!(matches!(&mixed[..], [Verdict::Full(_), Verdict::Skipped, Verdict::Duplicate(_), Verdict::Skipped]));
    let Rec::Accept(mut other) = accept("a", "hi") else { unreachable!() };
    other.fingerprint = "other".to_owned();
    assert_eq!(commit(vec![Rec::Accept(other)]).await, Ok(vec![Verdict::Conflict]));
    // The message refused within a larger batch also gets the reason.
    let verdicts = Ok(vec![Verdict::Full(expected), Verdict::Stored]);
    assert_eq!(commit(vec![accept("c", "hi"), terminal("a")]).await, verdicts);

    // The first message after space was freed is accepted.
    free.store(u64::MAX, Ordering::Relaxed);
    assert_eq!(commit(vec![accept("b", "hi")]).await, Ok(vec![Verdict::Stored]));
}

// R11
#[tokio::test]
async fn a_full_disk_rejects_a_whole_batch_and_recovers() {
    let state = tempfile::tempdir().unwrap();
    let journal = Journal::open(state.path(), || 1).unwrap();
    let commit = async |batch| journal.commit(&journal.fence(), batch).await;
    let pages = |limit: i64| journal.inner.writer().db.pragma_update(None, "max_page_count", limit).unwrap();
    for _ in 0..20 {
        pages(1);
        let refused = commit(vec![accept("small", "hi"), accept("large", &"x".repeat(100_000))]).await.unwrap_err();
        assert!(matches!(&refused, Error::Disk(text) if text.starts_with("disk_full: ")), "{refused:?}");
        assert_eq!(journal.run(&RunId::parse("small").unwrap()).await, Ok(None));
        pages(1_000_000);
    }
    let stored = commit(vec![accept("small", "hi"), accept("large", &"x".repeat(100_000))]).await;
    assert_eq!(stored, Ok(vec![Verdict::Stored; 2]));
}

#[tokio::test]
async fn a_full_disk_releases_the_reserve_until_space_is_free() {
    let state = tempfile::tempdir().unwrap();
    let journal = Journal::open(state.path(), || 1).unwrap();
    let commit = async |batch| journal.commit(&journal.fence(), batch).await;
    let reserve = state.path().join("journal/reserve.bin");
    assert_eq!(commit(vec![accept("a", "hi")]).await, Ok(vec![Verdict::Stored]));
    assert!(!reserve.exists(), "nobody waits for it");
    journal.inner.maintain_once().unwrap();
    assert!(reserve.exists());
    let pages = |limit: i64| journal.inner.writer().db.pragma_update(None, "max_page_count", limit).unwrap();
    pages(1);
    commit(vec![accept("large", &"x".repeat(100_000))]).await.unwrap_err();
    assert!(!reserve.exists());
    pages(1_000_000);
    assert_eq!(commit(vec![terminal("a")]).await, Ok(vec![Verdict::Stored]));
    journal.inner.maintain_once().unwrap();
    assert!(reserve.exists());
}

// R10: the journal's part.
#[tokio::test]
async fn after_a_failed_sync_nothing_is_accepted() {
    let state = tempfile::tempdir().unwrap();
    let journal = Journal::open(state.path(), || 1).unwrap();
    let broken = rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_IOERR_FSYNC), None);
    let error = journal.inner.health.sql::<()>(Err(broken)).unwrap_err();
    assert!(matches!(&error, Error::Disk(text) if text.starts_with("I/O error while writing ")), "{error:?}");
    assert_eq!(journal.commit(&journal.fence(), vec![accept("a", "hi")]).await, Err(error.clone()));
    assert_eq!(journal.flush().await, Err(error.clone()));
    assert_eq!(journal.failed().await, error);
    drop(journal);
    let journal = Journal::open(state.path(), || 1).unwrap();
    assert_eq!(journal.commit(&journal.fence(), vec![accept("a", "hi")]).await, Ok(vec![Verdict::Stored]));
    assert_eq!(journal.boots().unclean_in_5_min, 1);
}
