//! Torn files, full disks and nonsense: nothing that was acknowledged is lost, and nothing is half done.

use std::{fs, os::unix::fs::symlink, path::Path};

use homard_journal::Journal;
use homard_store::{Error, Store};

use crate::words::*;

/// A journal with one session of two lines, and its transcript.
async fn two_lines(state: &Path) -> (Journal, std::path::PathBuf) {
    let journal = open(state);
    keep(&journal, vec![patch("main", None, record("s1")), said("main", "a"), said("main", "b")]).await;
    (journal, sessions(state).join("s1.jsonl"))
}

#[tokio::test]
async fn a_torn_last_line_is_set_aside_wherever_it_was_cut() {
    let state = tempfile::tempdir().unwrap();
    let (journal, transcript) = two_lines(state.path()).await;
    drop(journal);
    let whole = fs::read(&transcript).unwrap();
    let last = whole[..whole.len() - 1].iter().rposition(|&byte| byte == b'\n').unwrap() + 1;
    let aside = transcript.with_added_extension(format!("torn-{NOW}"));
    for cut in last + 1..whole.len() {
        fs::write(&transcript, &whole[..cut]).unwrap();
        let journal = open(state.path());
        assert_eq!(lines(&journal, "main").await, [under(None, "a")], "{cut}");
        assert_eq!(fs::read(&transcript).unwrap(), whole[..cut], "reading changes nothing");
        keep(&journal, vec![said("main", "c")]).await;
        assert_eq!(lines(&journal, "main").await, [under(None, "a"), under(Some("a"), "c")], "{cut}");
        assert_eq!(fs::read(&transcript).unwrap()[..last], whole[..last]);
        assert_eq!(fs::read(&aside).unwrap(), whole[last..cut]);
        fs::remove_file(&aside).unwrap();
    }
}

#[tokio::test]
async fn a_transcript_torn_in_its_first_line_begins_again() {
    let state = tempfile::tempdir().unwrap();
    let (journal, transcript) = two_lines(state.path()).await;
    drop(journal);
    fs::write(&transcript, "{\"type\":\"sess").unwrap();
    let journal = open(state.path());
    assert_eq!(lines(&journal, "main").await, []);
    keep(&journal, vec![said("main", "c")]).await;
    assert_eq!(lines(&journal, "main").await, [under(None, "c")]);
    let aside = transcript.with_added_extension(format!("torn-{NOW}"));
    assert_eq!(fs::read_to_string(aside).unwrap(), "{\"type\":\"sess");
}

#[tokio::test]
async fn nonsense_in_the_middle_is_passed_by_and_kept() {
    let state = tempfile::tempdir().unwrap();
    let (journal, transcript) = two_lines(state.path()).await;
    drop(journal);
    let text = fs::read_to_string(&transcript).unwrap();
    let (header, rest) = text.split_once('\n').unwrap();
    let mut damaged = format!("{header}\n{{\"type\":\n\n").into_bytes();
    damaged.extend([0xff, 0, b'\n']);
    damaged.extend(rest.as_bytes());
    fs::write(&transcript, &damaged).unwrap();
    let journal = open(state.path());
    keep(&journal, vec![said("main", "c")]).await;
    assert_eq!(lines(&journal, "main").await, [under(None, "a"), under(Some("a"), "b"), under(Some("b"), "c")]);
    assert!(fs::read(&transcript).unwrap().starts_with(&damaged));
}

#[tokio::test]
async fn a_file_that_is_no_transcript_is_never_written_to() {
    let state = tempfile::tempdir().unwrap();
    let (journal, transcript) = two_lines(state.path()).await;
    let entries_only = "{\"type\":\"message\",\"id\":\"a\"}\n";
    fs::write(&transcript, entries_only).unwrap();
    let refused = Err(Error::Corrupt(format!(
        "transcript {} does not begin with a session header; repair its first line or move the file away",
        transcript.display()
    )));
    assert_eq!(journal.load(&key("main")).await.map(drop), refused);
    assert_eq!(journal.commit(&journal.fence(), vec![said("main", "c")]).await.map(drop), refused);
    assert_eq!(fs::read_to_string(&transcript).unwrap(), entries_only);
}

#[tokio::test]
async fn a_missing_transcript_is_an_empty_one() {
    let state = tempfile::tempdir().unwrap();
    let (journal, transcript) = two_lines(state.path()).await;
    fs::remove_file(&transcript).unwrap();
    assert_eq!(lines(&journal, "main").await, []);
    keep(&journal, vec![said("main", "c")]).await;
    assert_eq!(lines(&journal, "main").await, [under(None, "c")]);
}

#[tokio::test]
async fn a_batch_that_fails_at_one_file_leaves_no_trace_in_the_others() {
    let state = tempfile::tempdir().unwrap();
    let (journal, transcript) = two_lines(state.path()).await;
    let before = fs::read(&transcript).unwrap();
    let blocked = sessions(state.path()).join("s9.jsonl");
    fs::create_dir(&blocked).unwrap();
    let batch = || {
        vec![
            accept("r1", "x"),
            said("main", "c"),
            patch("fresh", None, record("s2")),
            said("fresh", "f"),
            patch("main", Some("s1"), record("s1")),
            patch("other", None, record("s9")),
            said("other", "o"),
        ]
    };
    let refused = journal.commit(&journal.fence(), batch()).await;
    let reason = format!("cannot append to {}: Is a directory (os error 21)", blocked.display());
    assert_eq!(refused, Err(Error::Disk(reason)));
    assert_eq!(fs::read(&transcript).unwrap(), before);
    assert!(!sessions(state.path()).join("s2.jsonl").exists());
    assert_eq!(journal.run(&run("r1")).await, Ok(None));
    assert_eq!(journal.list().await, Ok(vec![(key("main"), record("s1"))]));

    keep(&journal, vec![said("main", "d")]).await;
    assert_eq!(lines(&journal, "main").await, [under(None, "a"), under(Some("a"), "b"), under(Some("b"), "d")]);
    fs::remove_dir(&blocked).unwrap();
    keep(&journal, batch()).await;
    assert_eq!(lines(&journal, "other").await, [under(None, "o")]);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_full_disk_takes_nothing_of_a_batch() {
    let state = tempfile::tempdir().unwrap();
    let (journal, transcript) = two_lines(state.path()).await;
    let before = fs::read(&transcript).unwrap();
    let log = sessions(state.path()).join("sessions.json.log");
    let aside = state.path().join("log");
    fs::rename(&log, &aside).unwrap();
    symlink("/dev/full", &log).unwrap();
    let batch = || vec![accept("r1", "x"), input("r1", "main", &[], &["c"]), patch("main", Some("s1"), record("s2"))];
    let refused = journal.commit(&journal.fence(), batch()).await;
    let reason = format!("cannot append to {}: No space left on device (os error 28)", log.display());
    assert_eq!(refused, Err(Error::Disk(reason)));
    assert_eq!(fs::read(&transcript).unwrap(), before);
    assert_eq!(journal.run(&run("r1")).await, Ok(None));
    fs::rename(&aside, &log).unwrap();
    keep(&journal, batch()).await;
    assert_eq!(journal.list().await, Ok(vec![(key("main"), record("s2"))]));
}
