//! Tests of metrics: repairs are reported and counted, and notes survive a restart.

use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex},
};

use homard_journal::{Journal, read_note_offline};
use homard_store::DeliveryState;

use crate::words::*;

/// Collects the reported repairs, including those made at start-up.
fn collect_repairs(journal: &Journal) -> Arc<Mutex<Vec<&'static str>>> {
    let repairs = Arc::new(Mutex::new(Vec::new()));
    let callback_repairs = repairs.clone();
    journal.on_repair(move |kind| callback_repairs.lock().unwrap().push(kind));
    repairs
}

/// Creates a state directory with one session and shuts down cleanly.
async fn closed(state: &Path) {
    let journal = open(state);
    commit_all(&journal, vec![patch("main", None, record("s1")), append(MAIN, "a"), append(MAIN, "b")]).await;
    journal.flush().await.unwrap();
}

#[tokio::test]
async fn r89_every_repair_of_a_transcript_is_reported_and_counted() {
    type Harm = fn(&Path, &str);
    let cases: [(&str, Harm, &[&str]); 4] = [
        ("torn", |path, text| fs::write(path, format!("{text}{{\"type\":\"mes")).unwrap(), &["transcript_torn"]),
        (
            "damaged",
            |path, text| fs::write(path, format!("{text}no line\n{}", text.lines().last().unwrap())).unwrap(),
            &["transcript_damaged"],
        ),
        (
            "short",
            |path, text| fs::write(path, &text[..text.trim_end().rfind('\n').unwrap() + 1]).unwrap(),
            &["transcript_shorter"],
        ),
        ("no end", |path, text| fs::write(path, text.trim_end()).unwrap(), &["transcript_shorter", "line_end_added"]),
    ];
    for (name, damage, expected) in cases {
        let state = tempfile::tempdir().unwrap();
        closed(state.path()).await;
        let path = sessions(state.path()).join("s1.jsonl");
        damage(&path, &fs::read_to_string(&path).unwrap());
        let journal = open(state.path());
        let reported = collect_repairs(&journal);
        commit_all(&journal, vec![append(MAIN, "c")]).await;
        assert_eq!(*reported.lock().unwrap(), expected, "{name}");
        let counted: Vec<_> = journal.metrics().unwrap().repairs.into_iter().collect();
        let mut expected: Vec<_> = expected.iter().map(|kind| (*kind, 1)).collect();
        expected.sort_unstable();
        assert_eq!(counted, expected, "{name}");
    }
}

#[tokio::test]
async fn r89_repairs_at_start_are_reported_to_a_later_callback() {
    let state = tempfile::tempdir().unwrap();
    closed(state.path()).await;
    fs::write(sessions(state.path()).join("sessions.json"), "no json").unwrap();
    assert_eq!(*collect_repairs(&open(state.path())).lock().unwrap(), ["session_records_set_aside"]);

    let state = tempfile::tempdir().unwrap();
    closed(state.path()).await;
    let database = state.path().join("journal").join("journal.db");
    fs::write(&database, vec![7; 4096]).unwrap();
    assert_eq!(*collect_repairs(&open(state.path())).lock().unwrap(), ["journal_set_aside"]);

    // The file never received the committed lines.
    let state = tempfile::tempdir().unwrap();
    let journal = open(state.path());
    commit_all(&journal, vec![patch("main", None, record("s1")), append(MAIN, "a")]).await;
    let after = crash(state.path());
    let path = sessions(after.path()).join("s1.jsonl");
    fs::write(&path, "").unwrap();
    assert_eq!(*collect_repairs(&open(after.path())).lock().unwrap(), ["lines_replayed"]);

    // It is unknown whether the channel received the delivery.
    let state = tempfile::tempdir().unwrap();
    let journal = open(state.path());
    commit_all(&journal, vec![queue(&delivery("d", "x", None)), deliver("d", DeliveryState::Sending)]).await;
    let after = crash(state.path());
    let journal = open(after.path());
    assert_eq!(*collect_repairs(&journal).lock().unwrap(), ["delivery_unknown"]);
    assert_eq!(journal.metrics().unwrap().outbox.into_iter().collect::<Vec<_>>(), [("unknown".to_owned(), 1)]);
}

#[tokio::test]
async fn notes_are_readable_before_and_after_a_restart() {
    let state = tempfile::tempdir().unwrap();
    assert_eq!(read_note_offline(state.path(), "audit").unwrap(), None);
    let journal = open(state.path());
    assert_eq!(journal.read_note("audit").await.unwrap(), None);
    journal.set_note("audit", "1:a".to_owned());
    journal.set_note("audit", "2:b".to_owned());
    assert_eq!(journal.read_note("audit").await.unwrap().as_deref(), Some("2:b"));
    assert!(read_note_offline(state.path(), "audit").is_err(), "a process has it");
    journal.flush().await.unwrap();
    drop(journal);
    assert_eq!(read_note_offline(state.path(), "audit").unwrap().as_deref(), Some("2:b"));
    assert_eq!(open(state.path()).read_note("audit").await.unwrap().as_deref(), Some("2:b"));
}

#[tokio::test]
async fn commits_are_counted() {
    let state = tempfile::tempdir().unwrap();
    let journal = open(state.path());
    commit_all(&journal, vec![patch("main", None, record("s1")), append(MAIN, "a")]).await;
    commit_all(&journal, vec![append(MAIN, "b")]).await;
    let figures = journal.metrics().unwrap();
    assert_eq!((figures.commits, figures.bytes > 0, figures.duration.is_zero()), (2, true, false));
}
