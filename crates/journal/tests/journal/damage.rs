//! Files that are truncated, missing, blocked or in the way: nothing acknowledged is lost, and nothing is half done.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use homard_journal::Journal;
use homard_store::{StoreWriter, Verdict};

use crate::words::*;

/// Creates a journal with one session of two lines, and returns its transcript. After `flush` the files contain
/// everything.
async fn two_lines(state: &Path) -> (Journal, PathBuf) {
    let journal = open(state);
    commit_all(&journal, vec![patch("main", None, record("s1")), append(MAIN, "a"), append(MAIN, "b")]).await;
    (journal, sessions(state).join("s1.jsonl"))
}

#[tokio::test]
async fn a_transcript_torn_in_its_first_line_starts_over() {
    let state = tempfile::tempdir().unwrap();
    let (journal, transcript) = two_lines(state.path()).await;
    journal.flush().await.unwrap();
    drop(journal);
    fs::write(&transcript, "{\"type\":\"sess").unwrap();
    let journal = open(state.path());
    assert_eq!(lines(&journal, "main").await, []);
    commit_all(&journal, vec![append(MAIN, "c")]).await;
    assert_eq!(lines(&journal, "main").await, [child_entry(None, "c")]);
    let saved = transcript.with_added_extension(format!("torn-{NOW}"));
    assert_eq!(fs::read_to_string(saved).unwrap(), "{\"type\":\"sess");
}

// Case 81.
#[tokio::test]
async fn damage_in_the_middle_is_removed_and_saved() {
    let state = tempfile::tempdir().unwrap();
    let (journal, transcript) = two_lines(state.path()).await;
    journal.flush().await.unwrap();
    drop(journal);
    let text = fs::read_to_string(&transcript).unwrap();
    let (header, body) = text.split_once('\n').unwrap();
    let mut damaged = format!("{header}\n{{\"type\":\n\n").into_bytes();
    damaged.extend([0xff, 0, b'\n']);
    damaged.extend(body.as_bytes());
    fs::write(&transcript, &damaged).unwrap();
    let journal = open(state.path());
    assert_eq!(lines(&journal, "main").await, [child_entry(None, "a"), child_entry(Some("a"), "b")]);
    assert_eq!(fs::read(&transcript).unwrap(), damaged, "reading changes nothing");
    commit_all(&journal, vec![append(MAIN, "c")]).await;
    assert_eq!(
        lines(&journal, "main").await,
        [child_entry(None, "a"), child_entry(Some("a"), "b"), child_entry(Some("b"), "c")]
    );
    assert!(fs::read_to_string(&transcript).unwrap().starts_with(&text), "the rest is as it was");
    let saved = files_named(&sessions(state.path()), "corrupt");
    assert_eq!(saved, [transcript.with_added_extension(format!("corrupt-{NOW}"))]);
    assert_eq!(fs::read(&saved[0]).unwrap(), damaged);
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
    commit_all(&journal, vec![append(MAIN, "c")]).await;
    assert_eq!(lines(&journal, "main").await, [loaded[0].clone(), child_entry(Some("00000001"), "c")]);
    assert!(fs::read_to_string(&transcript).unwrap().contains("\"version\":3"));
    assert_eq!(fs::read_to_string(transcript.with_added_extension(format!("bak-{NOW}"))).unwrap(), old);
}

// Case 83: its content is kept aside, and the session starts from scratch.
#[tokio::test]
async fn a_file_that_is_not_a_transcript_is_set_aside() {
    let state = tempfile::tempdir().unwrap();
    let (journal, transcript) = two_lines(state.path()).await;
    journal.flush().await.unwrap();
    fs::write(&transcript, "dear diary\n").unwrap();
    assert_eq!(lines(&journal, "main").await, []);
    commit_all(&journal, vec![append(MAIN, "c")]).await;
    assert_eq!(lines(&journal, "main").await, [child_entry(None, "c")]);
    assert_eq!(fs::read_to_string(&files_named(&sessions(state.path()), "corrupt")[0]).unwrap(), "dear diary\n");
}

// Case 86, pitfall 35: when another program writes to the file, no line of ours or theirs is left on another branch.
#[tokio::test]
async fn lines_written_by_another_program_are_kept() {
    let state = tempfile::tempdir().unwrap();
    let (journal, transcript) = two_lines(state.path()).await;
    let foreign_line =
        |id: &str, parent: &str| format!("{}\n", serde_json::to_string(&child_entry(Some(parent), id)).unwrap());
    let add = |text: &str| {
        let before = fs::read_to_string(&transcript).unwrap();
        fs::write(&transcript, before + text).unwrap();
    };
    // While the journal is open, before and after our lines are synced.
    add(&foreign_line("x", "b"));
    commit_all(&journal, vec![append(MAIN, "c")]).await;
    journal.flush().await.unwrap();
    add(&foreign_line("y", "c"));
    commit_all(&journal, vec![append(MAIN, "d")]).await;
    // And between two processes, with and without pending lines of ours, and with a torn line of theirs.
    drop(journal);
    add(&foreign_line("z", "d"));
    let journal = open(state.path());
    commit_all(&journal, vec![append(MAIN, "e")]).await;
    journal.flush().await.unwrap();
    drop(journal);
    add(&(foreign_line("w", "e") + "{\"type\":\"mess"));
    let journal = open(state.path());
    commit_all(&journal, vec![append(MAIN, "f")]).await;
    let order = ["a", "b", "x", "c", "y", "d", "z", "e", "w", "f"];
    let expected: Vec<_> =
        (0..order.len()).map(|at| child_entry(at.checked_sub(1).map(|at| order[at]), order[at])).collect();
    assert_eq!(lines(&journal, "main").await, expected);
    assert_eq!(fs::read_to_string(&files_named(&sessions(state.path()), "torn")[0]).unwrap(), "{\"type\":\"mess");
}

#[tokio::test]
async fn a_transcript_removed_after_its_sync_is_empty() {
    let state = tempfile::tempdir().unwrap();
    let (journal, transcript) = two_lines(state.path()).await;
    journal.flush().await.unwrap();
    fs::remove_file(&transcript).unwrap();
    assert_eq!(lines(&journal, "main").await, []);
    commit_all(&journal, vec![append(MAIN, "c")]).await;
    assert_eq!(lines(&journal, "main").await, [child_entry(None, "c")]);
    assert!(fs::read_to_string(&transcript).unwrap().starts_with("{\"type\":\"session\""));
}

#[tokio::test]
async fn a_transcript_removed_before_its_sync_is_restored() {
    let state = tempfile::tempdir().unwrap();
    let (journal, transcript) = two_lines(state.path()).await;
    let before = fs::read(&transcript).unwrap();
    fs::remove_file(&transcript).unwrap();
    assert_eq!(lines(&journal, "main").await, [child_entry(None, "a"), child_entry(Some("a"), "b")]);
    assert_eq!(fs::read(&transcript).unwrap(), before);
    commit_all(&journal, vec![append(MAIN, "c")]).await;
    fs::remove_file(&transcript).unwrap();
    journal.flush().await.unwrap();
    assert_eq!(lines(&journal, "main").await.last(), Some(&child_entry(Some("b"), "c")));
}

// R11, the part about transcripts.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn lines_that_do_not_fit_on_the_disk_are_written_later() {
    let state = tempfile::tempdir().unwrap();
    let (journal, _) = two_lines(state.path()).await;
    let full = sessions(state.path()).join("s9.jsonl");
    symlink("/dev/full", &full).unwrap();
    let target = ["other", "s9"];
    commit_all(&journal, vec![patch("other", None, record("s9")), append(target, "c")]).await;
    commit_all(&journal, vec![append(MAIN, "x"), append(target, "d")]).await;
    let expected = [child_entry(None, "c"), child_entry(Some("c"), "d")];
    assert_eq!(lines(&journal, "other").await, expected);
    journal.flush().await.unwrap();
    assert_eq!(lines(&journal, "main").await.len(), 3);

    // Another process finds them on a disk that is not full.
    let copy = tempfile::tempdir().unwrap();
    fs::rename(&full, state.path().join("full")).unwrap();
    copy_folder(&state.path().join("journal"), &copy.path().join("journal"));
    assert_eq!(lines(&open(copy.path()), "other").await, expected);
    // This process writes them as soon as it can.
    commit_all(&journal, vec![append(target, "e")]).await;
    assert_eq!(lines(&journal, "other").await, [expected.to_vec(), vec![child_entry(Some("d"), "e")]].concat());
    assert_eq!(fs::read_to_string(&full).unwrap().lines().count(), 4);
}

#[tokio::test]
async fn an_unwritable_transcript_does_not_block_others() {
    let state = tempfile::tempdir().unwrap();
    let (journal, _) = two_lines(state.path()).await;
    let blocked = sessions(state.path()).join("s9.jsonl");
    fs::create_dir(&blocked).unwrap();
    fs::write(blocked.join("x"), "").unwrap();
    let batch = || vec![accept("r1", "x"), append(MAIN, "c"), append(["other", "s9"], "o")];
    let verdicts = journal.commit(&journal.fence(), batch()).await;
    assert_eq!(verdicts, Ok(vec![Verdict::Stored, Verdict::Stored, Verdict::Skipped]));
    assert_eq!(lines(&journal, "main").await.len(), 3);
    fs::remove_dir_all(&blocked).unwrap();
    commit_all(&journal, vec![append(["other", "s9"], "o"), patch("other", None, record("s9"))]).await;
    assert_eq!(lines(&journal, "other").await, [child_entry(None, "o")]);
}
