//! State directories of earlier formats: each is migrated completely, and its database is kept as it was.
//!
//! The golden files are dumps of databases with the tables and rows that the version wrote which introduced the format.
//! Formats 1, 3, 4, 5, 6 and 7 were written by versions of Homard; 2 existed only as a step between 1 and 3.

use std::{fs, path::Path};

use homard_journal::{
    Journal,
    checkup::{DatabaseStatus, database_status},
    state_format,
};
use homard_store::{DeliveryState, Outcome, RunState, StoreReader, usage::UsageQuery};
use rusqlite::Connection;

use crate::words::*;

/// Formats that a version of Homard wrote.
const FORMATS: [usize; 6] = [1, 3, 4, 5, 6, 7];

/// Creates a state directory of a format.
fn state_of(format: usize) -> tempfile::TempDir {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/formats");
    let state = tempfile::tempdir().unwrap();
    fs::create_dir_all(state.path().join("journal")).unwrap();
    fs::create_dir_all(sessions(state.path())).unwrap();
    fs::copy(golden.join("s1.jsonl"), sessions(state.path()).join("s1.jsonl")).unwrap();
    let database = Connection::open(state.path().join("journal/journal.db")).unwrap();
    database.execute_batch(&fs::read_to_string(golden.join(format!("{format}.sql"))).unwrap()).unwrap();
    state
}

fn format_of(database: &Path) -> usize {
    let database = Connection::open(database).unwrap();
    database.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap()
}

#[test]
fn every_format_has_a_golden_state() {
    assert_eq!(FORMATS.last(), Some(&state_format()), "add a golden state of the new format");
}

#[tokio::test]
async fn a_state_directory_of_any_format_is_migrated_completely() {
    for format in FORMATS {
        let state = state_of(format);
        // The second time there is nothing to migrate.
        for _ in 0..2 {
            let journal = open(state.path());
            let ended = journal.run(&run("r1")).await.unwrap().unwrap();
            let RunState::Ended(end) = &ended.state else { panic!("format {format}: {ended:?}") };
            assert_eq!(
                (&end.outcome, end.usage.input, end.ended_at),
                (&Outcome::Done, 10, NOW - 1000),
                "format {format}"
            );
            assert_eq!(
                end.replies.iter().map(homard_proto::EntryId::as_str).collect::<Vec<_>>(),
                ["a1"],
                "format {format}"
            );
            let open_runs = journal.recover().await.unwrap();
            let names: Vec<_> = open_runs.iter().map(|open| open.row.run.as_str().to_owned()).collect();
            assert_eq!(names, ["r2", "r3"], "format {format}");
            assert_eq!(open_runs[0].tools.len(), 1, "format {format}");
            let found = journal.list().await.unwrap();
            assert_eq!(found.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), ["agent:main:main"]);
            let session = journal.load(&key("main")).await.unwrap().unwrap();
            let entries: Vec<_> = session.entries.iter().map(|entry| entry.id.as_str()).collect();
            assert_eq!(entries, ["u1", "a1", "u2"], "format {format}");
            // Usage is summed since format 4.
            let usage = usage_sum(&journal, &UsageQuery::Session(homard_proto::SessionId::parse("s1").unwrap())).await;
            assert_eq!(usage, if format >= 4 { (1, 10) } else { (0, 0) }, "format {format}");
            let deliveries = journal.outbox().await.unwrap();
            let queued = deliveries.iter().filter(|row| row.state == DeliveryState::Queued).count();
            assert_eq!(queued, usize::from(format > 1), "format {format}");
            journal.flush().await.unwrap();
        }
        assert_eq!(database_status(state.path()), DatabaseStatus::Intact, "format {format}");
        assert_eq!(format_of(&state.path().join("journal/journal.db")), state_format());
        let copy = state.path().join(format!("journal/format-{format}.db"));
        assert_eq!(copy.exists(), format < state_format(), "format {format}");
    }
}

#[tokio::test]
async fn the_database_before_a_migration_is_kept_and_can_be_used_again() {
    let state = state_of(1);
    open(state.path()).flush().await.unwrap();
    let copy = state.path().join("journal/format-1.db");
    assert_eq!(format_of(&copy), 1);
    let runs: usize =
        Connection::open(&copy).unwrap().query_row("SELECT count(*) FROM run", [], |row| row.get(0)).unwrap();
    assert_eq!(runs, 3);
    fs::copy(&copy, state.path().join("journal/journal.db")).unwrap();
    let journal = open(state.path());
    assert_eq!(journal.recover().await.unwrap().len(), 2);
}

#[test]
fn a_migration_without_a_copy_is_refused_and_changes_nothing() {
    let state = state_of(1);
    // A directory in the place of the copy.
    fs::create_dir(state.path().join("journal/format-1.db.new")).unwrap();
    let refused = Journal::open(state.path(), || NOW).unwrap_err();
    assert!(refused.to_string().contains("format-1.db.new"), "{refused}");
    assert_eq!(format_of(&state.path().join("journal/journal.db")), 1);
}
