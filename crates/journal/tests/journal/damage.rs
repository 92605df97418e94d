//! Files that are truncated, missing, blocked or in the way: nothing acknowledged is lost, and nothing is half done.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use homard_journal::Journal;
use homard_store::{Store, Verdict};

use crate::words::*;

/// Creates a journal with one session of two lines, and returns its transcript. After `flush` the files contain
/// everything.
async fn two_lines(state: &Path) -> (Journal, PathBuf) {
    let journal = open(state);
    keep(&journal, vec![patch("main", None, record("s1")), said(MAIN, "a"), said(MAIN, "b")]).await;
    (journal, sessions(state).join("s1.jsonl"))
}

#[tokio::test]
async fn a_transcript_torn_in_its_first_line_begins_again() {
    let state = tempfile::tempdir().unwrap();
    let (journal, transcript) = two_lines(state.path()).await;
    journal.flush().await.unwrap();
    drop(journal);
    fs::write(&transcript, "{\"type\":\"sess").unwrap();
    let journal = open(state.path());
    assert_eq!(lines(&journal, "main").await, []);
    keep(&journal, vec![said(MAIN, "c")]).await;
    assert_eq!(lines(&journal, "main").await, [under(None, "c")]);
    let aside = transcript.with_added_extension(format!("torn-{NOW}"));
    assert_eq!(fs::read_to_string(aside).unwrap(), "{\"type\":\"sess");
}

// Case 81.
#[tokio::test]
async fn damage_in_the_middle_is_left_out_and_kept_aside() {
    let state = tempfile::tempdir().unwrap();
    let (journal, transcript) = two_lines(state.path()).await;
    journal.flush().await.unwrap();
    drop(journal);
    let text = fs::read_to_string(&transcript).unwrap();
    let (header, rest) = text.split_once('\n').unwrap();
    let mut damaged = format!("{header}\n{{\"type\":\n\n").into_bytes();
    damaged.extend([0xff, 0, b'\n']);
    damaged.extend(rest.as_bytes());
    fs::write(&transcript, &damaged).unwrap();
    let journal = open(state.path());
    assert_eq!(lines(&journal, "main").await, [under(None, "a"), under(Some("a"), "b")]);
    assert_eq!(fs::read(&transcript).unwrap(), damaged, "reading changes nothing");
    keep(&journal, vec![said(MAIN, "c")]).await;
    assert_eq!(lines(&journal, "main").await, [under(None, "a"), under(Some("a"), "b"), under(Some("b"), "c")]);
    assert!(fs::read_to_string(&transcript).unwrap().starts_with(&text), "the rest is as it was");
    let aside = named(&sessions(state.path()), "corrupt");
    assert_eq!(aside, [transcript.with_added_extension(format!("corrupt-{NOW}"))]);
    assert_eq!(fs::read(&aside[0]).unwrap(), damaged);
}

// Case 84, on disk.
#[tokio::test]
async fn a_transcript_of_an_old_version_is_rewritten_before_it_grows() {
    let state = tempfile::tempdir().unwrap();
    let (journal, transcript) = two_lines(state.path()).await;
    journal.flush().await.unwrap();
    let old = concat!(
        "{\"type\":\"session\",\"id\":\"s1\",\"timestamp\":\"t\",\"cwd\":\"/w\"}\n",
        "{\"type\":\"message\",\"timestamp\":\"t\",\"message\":{\"role\":\"user\",\"content\":\"hi\",\"timestamp\":1}}\n"
    );
    fs::write(&transcript, old).unwrap();
    let loaded = lines(&journal, "main").await;
    assert_eq!(loaded[0].id.as_str(), "00000001");
    assert_eq!(fs::read_to_string(&transcript).unwrap(), old);
    keep(&journal, vec![said(MAIN, "c")]).await;
    assert_eq!(lines(&journal, "main").await, [loaded[0].clone(), under(Some("00000001"), "c")]);
    assert!(fs::read_to_string(&transcript).unwrap().contains("\"version\":3"));
    assert_eq!(fs::read_to_string(transcript.with_added_extension(format!("bak-{NOW}"))).unwrap(), old);
}

// Case 83: its content is kept aside, and the session starts from scratch.
#[tokio::test]
async fn a_file_that_is_no_transcript_is_kept_aside() {
    let state = tempfile::tempdir().unwrap();
    let (journal, transcript) = two_lines(state.path()).await;
    journal.flush().await.unwrap();
    fs::write(&transcript, "dear diary\n").unwrap();
    assert_eq!(lines(&journal, "main").await, []);
    keep(&journal, vec![said(MAIN, "c")]).await;
    assert_eq!(lines(&journal, "main").await, [under(None, "c")]);
    assert_eq!(fs::read_to_string(&named(&sessions(state.path()), "corrupt")[0]).unwrap(), "dear diary\n");
}

// Case 86, pitfall 35: when another program writes to the file, no line of ours or theirs is left on another branch.
#[tokio::test]
async fn lines_of_another_program_count() {
    let state = tempfile::tempdir().unwrap();
    let (journal, transcript) = two_lines(state.path()).await;
    let theirs = |id: &str, parent: &str| format!("{}\n", serde_json::to_string(&under(Some(parent), id)).unwrap());
    let add = |text: &str| {
        let before = fs::read_to_string(&transcript).unwrap();
        fs::write(&transcript, before + text).unwrap();
    };
    // While the journal is open, before and after our lines are synced.
    add(&theirs("x", "b"));
    keep(&journal, vec![said(MAIN, "c")]).await;
    journal.flush().await.unwrap();
    add(&theirs("y", "c"));
    keep(&journal, vec![said(MAIN, "d")]).await;
    // And between two processes, with and without pending lines of ours, and with a torn line of theirs.
    drop(journal);
    add(&theirs("z", "d"));
    let journal = open(state.path());
    keep(&journal, vec![said(MAIN, "e")]).await;
    journal.flush().await.unwrap();
    drop(journal);
    add(&(theirs("w", "e") + "{\"type\":\"mess"));
    let journal = open(state.path());
    keep(&journal, vec![said(MAIN, "f")]).await;
    let order = ["a", "b", "x", "c", "y", "d", "z", "e", "w", "f"];
    let expected: Vec<_> = (0..order.len()).map(|at| under(at.checked_sub(1).map(|at| order[at]), order[at])).collect();
    assert_eq!(lines(&journal, "main").await, expected);
    assert_eq!(fs::read_to_string(&named(&sessions(state.path()), "torn")[0]).unwrap(), "{\"type\":\"mess");
}

#[tokio::test]
async fn a_transcript_that_was_removed_after_it_was_safe_is_an_empty_one() {
    let state = tempfile::tempdir().unwrap();
    let (journal, transcript) = two_lines(state.path()).await;
    journal.flush().await.unwrap();
    fs::remove_file(&transcript).unwrap();
    assert_eq!(lines(&journal, "main").await, []);
    keep(&journal, vec![said(MAIN, "c")]).await;
    assert_eq!(lines(&journal, "main").await, [under(None, "c")]);
    assert!(fs::read_to_string(&transcript).unwrap().starts_with("{\"type\":\"session\""));
}

#[tokio::test]
async fn a_transcript_that_was_removed_before_it_was_safe_comes_back() {
    let state = tempfile::tempdir().unwrap();
    let (journal, transcript) = two_lines(state.path()).await;
    let before = fs::read(&transcript).unwrap();
    fs::remove_file(&transcript).unwrap();
    assert_eq!(lines(&journal, "main").await, [under(None, "a"), under(Some("a"), "b")]);
    assert_eq!(fs::read(&transcript).unwrap(), before);
    keep(&journal, vec![said(MAIN, "c")]).await;
    fs::remove_file(&transcript).unwrap();
    journal.flush().await.unwrap();
    assert_eq!(lines(&journal, "main").await.last(), Some(&under(Some("b"), "c")));
}

// R11, the part about transcripts.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn lines_that_a_full_disk_does_not_take_are_kept_and_written_later() {
    let state = tempfile::tempdir().unwrap();
    let (journal, _) = two_lines(state.path()).await;
    let full = sessions(state.path()).join("s9.jsonl");
    symlink("/dev/full", &full).unwrap();
    let at = ("other", "s9");
    keep(&journal, vec![patch("other", None, record("s9")), said(at, "c")]).await;
    keep(&journal, vec![said(MAIN, "x"), said(at, "d")]).await;
    let expected = [under(None, "c"), under(Some("c"), "d")];
    assert_eq!(lines(&journal, "other").await, expected);
    journal.flush().await.unwrap();
    assert_eq!(lines(&journal, "main").await.len(), 3);

    // Another process finds them on a disk that is not full.
    let copy = tempfile::tempdir().unwrap();
    fs::rename(&full, state.path().join("full")).unwrap();
    copy_folder(&state.path().join("journal"), &copy.path().join("journal"));
    assert_eq!(lines(&open(copy.path()), "other").await, expected);
    // This process writes them as soon as it can.
    keep(&journal, vec![said(at, "e")]).await;
    assert_eq!(lines(&journal, "other").await, [expected.to_vec(), vec![under(Some("d"), "e")]].concat());
    assert_eq!(fs::read_to_string(&full).unwrap().lines().count(), 4);
}

#[tokio::test]
async fn a_transcript_that_cannot_be_written_stops_nobody_else() {
    let state = tempfile::tempdir().unwrap();
    let (journal, _) = two_lines(state.path()).await;
    let blocked = sessions(state.path()).join("s9.jsonl");
    fs::create_dir(&blocked).unwrap();
    fs::write(blocked.join("x"), "").unwrap();
    let batch = || vec![accept("r1", "x"), said(MAIN, "c"), said(("other", "s9"), "o")];
    let verdicts = journal.commit(&journal.fence(), batch()).await;
    assert_eq!(verdicts, Ok(vec![Verdict::Stored, Verdict::Stored, Verdict::Skipped]));
    assert_eq!(lines(&journal, "main").await.len(), 3);
    fs::remove_dir_all(&blocked).unwrap();
    keep(&journal, vec![said(("other", "s9"), "o"), patch("other", None, record("s9"))]).await;
    assert_eq!(lines(&journal, "other").await, [under(None, "o")]);
}
