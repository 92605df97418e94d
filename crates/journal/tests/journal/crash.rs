//! Crash tests: after a process exits at any point, the next one finds everything acknowledged, exactly once.

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::FileExt,
    path::Path,
    time::Duration,
};

use homard_proto::session::Record;
use homard_store::{
    DeliveryRow, DeliveryState, Error, Outcome, ProcessEnd, Rec, RunState, StoreReader, StoreWriter, Verdict,
    usage::UsageQuery,
};
use serde_json::json;

use crate::words::*;

/// Interval of polling a condition, on a paused clock that is advanced by hand.
const TICK: Duration = Duration::from_millis(100);

/// A run in four batches.
fn batches() -> Vec<Vec<Rec>> {
    vec![
        vec![accept("r1", "x"), patch("main", None, record("s1"))],
        vec![start("r1", "main", "s1"), input("r1", MAIN, &[], &["u"])],
        vec![append_by("r1", MAIN, "a"), done("r1", "c", "result")],
        vec![append_by("r1", MAIN, "b"), terminal("r1", Outcome::Done), patch("main", Some("s1"), record("s1"))],
    ]
}

// R1, R3, R4: the journal's part. Pitfall 33: the user's message is stored before any reply.
#[tokio::test]
async fn a_copy_after_any_batch_contains_all_of_it() {
    let state = tempfile::tempdir().unwrap();
    let journal = open(state.path());
    for batch in batches() {
        commit_all(&journal, batch).await;
        let copy = crash(state.path());
        let found = open(copy.path());
        assert_eq!(found.run(&run("r1")).await, journal.run(&run("r1")).await);
        // Only the end of the process that started the run differs.
        let mut expected = journal.recover().await.unwrap();
        let attempts = expected.iter_mut().flat_map(|open| &mut open.attempts);
        attempts.for_each(|attempt| attempt.process = ProcessEnd::Crashed);
        assert_eq!(found.recover().await, Ok(expected));
        assert_eq!(found.list().await, journal.list().await);
        assert_eq!(found.load(&key("main")).await, journal.load(&key("main")).await);
    }
    let state = journal.run(&run("r1")).await.unwrap().unwrap().state;
    assert_eq!(state, RunState::Ended(Box::new(ended(Outcome::Done))));
}

#[tokio::test(start_paused = true)]
async fn usage_is_counted_once_whenever_the_process_ends() {
    let state = tempfile::tempdir().unwrap();
    let journal = open(state.path());
    let period = UsageQuery::Session(session("s1"));
    let mut copies = Vec::new();
    for number in 1..=6_u64 {
        let name = format!("r{number}");
        commit_all(&journal, vec![accept(&name, &name), start(&name, "main", "s1"), input(&name, MAIN, &[], &[&name])])
            .await;
        commit_all(&journal, vec![end_with_usage(&name, 10)]).await;
        if number % 2 == 0 {
            // Maintenance deletes what is synced to files and updates the sums.
            tokio::time::timeout(TICK * 30, journal.maintain()).await.unwrap_err();
        }
        assert_eq!(usage_sum(&journal, &period).await, (number, 10 * number));
        copies.push((number, crash(state.path())));
    }
    for (number, copy) in copies {
        let found = open(copy.path());
        assert_eq!(usage_sum(&found, &period).await, (number, 10 * number), "after {number}");
        found.flush().await.unwrap();
        drop(found);
        assert_eq!(usage_sum(&open(copy.path()), &period).await, (number, 10 * number), "after {number}, twice");
    }
}

// R2: whatever part of the transcript's unsynced bytes survives a power cut, the journal restores the rest.
#[tokio::test]
async fn lines_are_restored_whatever_happened_to_the_file() {
    let state = tempfile::tempdir().unwrap();
    let journal = open(state.path());
    for batch in batches() {
        commit_all(&journal, batch).await;
    }
    let expected = journal.load(&key("main")).await;
    let transcript = |state: &Path| sessions(state).join("s1.jsonl");
    let complete = fs::read(transcript(state.path())).unwrap();
    let mut contents: Vec<Vec<u8>> = (0..complete.len()).step_by(37).map(|cut| complete[..cut].to_vec()).collect();
    for start in (0..complete.len()).step_by(53) {
        let mut garbled = complete.clone();
        let end = (start + 40).min(garbled.len());
        garbled[start..end].fill(0);
        contents.push(garbled);
    }
    for content in contents {
        let copy = crash(state.path());
        fs::write(transcript(copy.path()), &content).unwrap();
        assert_eq!(open(copy.path()).load(&key("main")).await, expected);
        assert_eq!(fs::read(transcript(copy.path())).unwrap(), complete);
    }
    let copy = crash(state.path());
    fs::remove_dir_all(sessions(copy.path())).unwrap();
    assert_eq!(open(copy.path()).load(&key("main")).await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_deletes_rows_that_the_files_contain() {
    let state = tempfile::tempdir().unwrap();
    let journal = open(state.path());
    let rows = || {
        let copy = crash(state.path());
        let db = rusqlite::Connection::open(copy.path().join("journal/journal.db")).unwrap();
        let count = |table: &str| {
            db.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get::<_, i64>(0)).unwrap()
        };
        (count("redo"), count("file"), count("run"))
    };
    let scenario = async {
        for batch in batches() {
            commit_all(&journal, batch).await;
        }
        // Three batches with lines, and two session records that are not in their table yet.
        assert_eq!(rows(), (5, 0, 1));
        // Once the files are synced, the next batch deletes the rows.
        let mut runs = 1;
        while rows() != (0, 1, runs) {
            runs += 1;
            commit_all(&journal, vec![accept(&format!("r{runs}"), "x")]).await;
            tokio::time::sleep(TICK).await;
        }
        // Without a further batch, a checkpoint deletes them.
        commit_all(&journal, vec![append(MAIN, "c")]).await;
        assert_eq!(rows(), (1, 1, runs));
        while rows() != (0, 1, runs) {
            tokio::time::sleep(TICK).await;
        }
    };
    let scenario = tokio::time::timeout(Duration::from_secs(60), scenario);
    tokio::select! {
        result = scenario => result.expect("a checkpoint comes"),
        () = journal.maintain() => unreachable!("it has no end"),
    }
    // A synced end is trusted, so the next line is appended without reading the file.
    let copy = crash(state.path());
    let next = open(copy.path());
    commit_all(&next, vec![append(MAIN, "d")]).await;
    assert_eq!(lines(&next, "main").await.last(), Some(&child_entry(Some("c"), "d")));
}

// R6: the journal's part.
#[tokio::test]
async fn a_duplicate_message_is_detected_across_restarts() {
    let mut state = tempfile::tempdir().unwrap();
    let mut journal = open(state.path());
    let mut stored = 0;
    for round in 0..10 {
        let names: Vec<_> = (0..20).map(|at| format!("r{}", (round * 7 + at) % 50)).collect();
        let batch = names.iter().map(|name| accept(name, "x")).collect();
        for (verdict, name) in journal.commit(&journal.fence(), batch).await.unwrap().into_iter().zip(&names) {
            match verdict {
                Verdict::Stored => stored += 1,
                Verdict::Duplicate(row) => assert_eq!(row.run, run(name)),
                other @ (Verdict::Conflict | Verdict::Full(_) | Verdict::Skipped | Verdict::Archived(_)) => {
                    panic!("{other:?}")
                }
            }
        }
        let others = names.iter().map(|name| accept(name, "y")).collect();
        assert_eq!(journal.commit(&journal.fence(), others).await, Ok(vec![Verdict::Conflict; 20]));
        let copy = crash(state.path());
        drop(journal);
        state = copy;
        journal = open(state.path());
    }
    assert_eq!(stored, 50);
    assert_eq!(journal.recover().await.unwrap().len(), 50);
}

// R5: the journal's part.
#[tokio::test]
async fn queued_runs_are_found_in_the_order_of_acceptance() {
    let state = tempfile::tempdir().unwrap();
    let journal = open(state.path());
    let names: Vec<_> = (0..200).map(|at| format!("r{}", (at * 73) % 200)).collect();
    for batch in names.chunks(7) {
        commit_all(&journal, batch.iter().map(|name| accept(name, "x")).collect()).await;
    }
    let copy = crash(state.path());
    let found = open(copy.path()).recover().await.unwrap();
    let found: Vec<_> = found.iter().map(|found| found.row.run.to_string()).collect();
    assert_eq!(found, names);
}

// F13
#[tokio::test]
async fn a_damaged_database_is_moved_aside_and_the_sessions_are_rebuilt() {
    let state = tempfile::tempdir().unwrap();
    let journal = open(state.path());
    for batch in batches() {
        commit_all(&journal, batch).await;
    }
    journal.flush().await.unwrap();
    let (list, loaded) = (list_sessions(&journal).await, journal.load(&key("main")).await);
    drop(journal);
    let database = state.path().join("journal/journal.db");
    let length = fs::metadata(&database).unwrap().len();
    let damages: [&dyn Fn(&Path); 3] = [
        &|path| fs::write(path, "not a database at all").unwrap(),
        &|path| OpenOptions::new().write(true).open(path).unwrap().write_all_at(&[0x5a; 4096], 0).unwrap(),
        &|path| {
            let garbage = vec![0x5a; usize::try_from(length).unwrap() - 4096];
            OpenOptions::new().write(true).open(path).unwrap().write_all_at(&garbage, 4096).unwrap();
        },
    ];
    for damage in damages {
        let copy = crash(state.path());
        damage(&copy.path().join("journal/journal.db"));
        let journal = open(copy.path());
        assert_eq!(list_sessions(&journal).await, list);
        assert_eq!(journal.load(&key("main")).await, loaded);
        assert_eq!(journal.run(&run("r1")).await, Ok(None));
        assert_eq!(files_named(&copy.path().join("journal"), "corrupt").len(), 1);
        commit_all(&journal, vec![accept("r2", "x"), append(MAIN, "next")]).await;
    }
}

#[tokio::test]
async fn damage_found_later_fails_the_journal_until_the_next_start() {
    let state = tempfile::tempdir().unwrap();
    let journal = open(state.path());
    for batch in batches() {
        commit_all(&journal, batch).await;
    }
    journal.flush().await.unwrap();
    drop(journal);
    // Damages the index of runs, which start-up does not read.
    let database = state.path().join("journal/journal.db");
    let db = rusqlite::Connection::open(&database).unwrap();
    let sql = "SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_run_1'";
    let page: u64 = db.query_row(sql, [], |row| row.get(0)).unwrap();
    let size: u64 = db.pragma_query_value(None, "page_size", |row| row.get(0)).unwrap();
    drop(db);
    let file = OpenOptions::new().write(true).open(&database).unwrap();
    file.write_all_at(&vec![0x5a; size as usize], (page - 1) * size).unwrap();

    let journal = open(state.path());
    let failed = journal.commit(&journal.fence(), vec![accept("r2", "x")]).await.unwrap_err();
    assert!(matches!(&failed, Error::Corrupt(text) if text.contains("is damaged")), "{failed:?}");
    assert_eq!(journal.failed().await, failed);
    assert_eq!(journal.commit(&journal.fence(), vec![append(MAIN, "c")]).await, Err(failed));
    drop(journal);
    let journal = open(state.path());
    commit_all(&journal, vec![accept("r2", "x")]).await;
    assert_eq!(list_sessions(&journal).await, Ok(vec![(key("main"), record("s1"))]));
}

#[test]
fn a_journal_of_a_newer_version_is_left_alone() {
    let state = tempfile::tempdir().unwrap();
    drop(open(state.path()));
    let database = state.path().join("journal/journal.db");
    rusqlite::Connection::open(&database).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let refused = homard_journal::Journal::open(state.path(), || NOW).unwrap_err();
    assert!(
        matches!(&refused, Error::Corrupt(text) if text.contains("has format 99") && text.contains("homard restore")),
        "{refused:?}"
    );
    assert_eq!(files_named(&state.path().join("journal"), "corrupt"), Vec::<std::path::PathBuf>::new());
}

// R20, D37: the duration is only printed, because a test machine is not representative.
#[tokio::test]
async fn ten_thousand_sessions_open_at_once() {
    let state = tempfile::tempdir().unwrap();
    fs::create_dir_all(sessions(state.path())).unwrap();
    let record = |at: usize| {
        let mut record = Record::new(session(&format!("s{at}")), NOW);
        record.label = Some("a session with some words to its name".to_owned());
        record.extra.insert("deliveryContext".to_owned(), json!({"channel": "webchat", "to": format!("peer-{at}")}));
        record
    };
    let all: serde_json::Map<_, _> = (0..10_000).map(|at| (format!("agent:main:k{at}"), json!(record(at)))).collect();
    fs::write(sessions(state.path()).join("sessions.json"), json!(all).to_string()).unwrap();
    let open_timed = |label: &str| {
        let started_at = tokio::time::Instant::now();
        let journal = open(state.path());
        println!("{label}: {:?}", started_at.elapsed());
        journal
    };
    let journal = open_timed("import of 10,000 sessions");
    for chunk in 0..2 {
        let runs = (0..500).flat_map(|at| {
            let (name, key, id) =
                (format!("r{chunk}-{at}"), format!("k{}", chunk * 500 + at), format!("s{}", chunk * 500 + at));
            [accept(&name, "x"), start(&name, &key, &id), input(&name, [&key, &id], &[], &[&format!("e{at}")])]
        });
        commit_all(&journal, runs.collect()).await;
    }
    drop(journal);
    let journal = open_timed("start with 10,000 sessions and 1,000 open runs");
    assert_eq!(list_sessions(&journal).await.unwrap().len(), 10_000);
    let started_at = tokio::time::Instant::now();
    assert_eq!(journal.recover().await.unwrap().len(), 1000);
    println!("recovery of 1,000 runs: {:?}", started_at.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn commits_and_checkpoints_do_not_disturb_each_other() {
    let state = tempfile::tempdir().unwrap();
    let journal = std::sync::Arc::new(open(state.path()));
    let writers = (0..8).map(|writer| {
        let journal = std::sync::Arc::clone(&journal);
        async move {
            let (key, id) = (format!("k{writer}"), format!("s{writer}"));
            commit_all(&journal, vec![patch(&key, None, record(&id))]).await;
            for at in 0..25 {
                commit_all(&journal, vec![append([&key, &id], &format!("e{at}"))]).await;
                assert_eq!(lines(&*journal, &key).await.len(), at + 1);
            }
        }
    });
    let mut tasks: tokio::task::JoinSet<()> = writers.collect();
    let flusher = async {
        loop {
            journal.flush().await.unwrap();
        }
    };
    tokio::select! {
        () = flusher => unreachable!("it has no end"),
        () = async { while let Some(done) = tasks.join_next().await { done.unwrap() } } => {}
    }
    let copy = crash(state.path());
    let next = open(copy.path());
    let name = |at: usize| format!("e{at}");
    let expected: Vec<_> =
        (0..25_usize).map(|at| child_entry(at.checked_sub(1).map(name).as_deref(), &name(at))).collect();
    for writer in 0..8 {
        assert_eq!(lines(&*journal, &format!("k{writer}")).await, expected);
        assert_eq!(lines(&next, &format!("k{writer}")).await, expected);
    }
}

#[tokio::test]
async fn a_delivery_in_flight_is_unknown_or_requeued_after_a_crash() {
    let state = tempfile::tempdir().unwrap();
    let journal = open(state.path());
    let [mut matrix, mut waits] = [("d1", "ann"), ("d2", "ann")].map(|(id, to)| delivery(id, to, None));
    (matrix.is_idempotent, waits.is_idempotent) = (true, true);
    let telegram = delivery("d3", "bob", None);
    commit_all(&journal, vec![queue(&matrix), queue(&waits), queue(&telegram)]).await;
    commit_all(&journal, vec![deliver("d1", DeliveryState::Sending), deliver("d3", DeliveryState::Sending)]).await;
    let copy = crash(state.path());
    let journal = open(copy.path());
    let tried = |delivery, state| DeliveryRow { delivery, state, attempts: 1 };
    let expected = vec![
        tried(matrix, DeliveryState::Queued),
        DeliveryRow::new(waits),
        tried(telegram.clone(), DeliveryState::interrupted()),
    ];
    assert_eq!(journal.outbox().await, Ok(expected));
    // A sent delivery is known after the next crash.
    commit_all(&journal, vec![deliver("d3", sent())]).await;
    let copy = crash(copy.path());
    let journal = open(copy.path());
    assert_eq!(journal.outbox().await.unwrap().len(), 2);
    let verdicts = journal.commit(&journal.fence(), vec![queue(&telegram)]).await;
    assert_eq!(verdicts, Ok(vec![Verdict::Skipped]));
}

#[tokio::test]
async fn a_channel_event_is_deduplicated_across_restarts() {
    let state = tempfile::tempdir().unwrap();
    let journal = open(state.path());
    commit_all(&journal, vec![accept_event("r1", "e1")]).await;
    let copy = crash(state.path());
    let journal = open(copy.path());
    let known = Box::new(journal.run(&run("r1")).await.unwrap().unwrap());
    let verdicts = journal.commit(&journal.fence(), vec![accept_event("r2", "e1")]).await;
    assert_eq!(verdicts, Ok(vec![Verdict::Duplicate(known)]));
}
