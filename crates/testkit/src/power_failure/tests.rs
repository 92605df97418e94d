//! Tests of the disk model with small recordings.

use std::collections::BTreeSet;

use super::*;

/// Records the system calls of a process in the directory `/s`, without its subdirectory `workspace`.
fn recorded(trace: &str) -> DiskRecording {
    let mut recording = DiskRecording::default();
    recording.add(trace, Path::new("/s"), &["workspace"]).unwrap();
    recording
}

/// Returns the possible contents of a file after 500 random power failures; `None` if it is missing.
fn possible_contents(recording: &DiskRecording, path: &str) -> BTreeSet<Option<String>> {
    let read =
        |cut: PowerFailure| cut.files.get(Path::new(path)).map(|bytes| String::from_utf8(bytes.clone()).unwrap());
    recording.cuts(0..500).map(read).collect()
}

/// Returns the possible contents of the file `a` after power failures that follow the first sent frame.
fn contents_after_frame(trace: &str) -> BTreeSet<Vec<u8>> {
    let recording = recorded(trace);
    let after_frame = recording.cuts(0..500).filter(|cut| !cut.sent_frames.is_empty());
    after_frame.map(|cut| cut.files[Path::new("a")].clone()).collect()
}

/// A file is created, named and synced; then a frame is sent.
const SAFE: &str = r#"7 openat(AT_FDCWD, "/s/a", O_WRONLY|O_CREAT|O_CLOEXEC, 0600) = 3
7 write(3, "one", 3) = 3
7 fdatasync(3) = 0
7 openat(AT_FDCWD, "/s", O_RDONLY|O_CLOEXEC) = 4
7 fsync(4) = 0
7 sendto(9, "\201\20{\"type\":\"res\",\"n\":1}", 22, MSG_NOSIGNAL, NULL, 0) = 22
"#;

#[test]
fn synced_data_survives_a_power_failure() {
    let recording = recorded(SAFE);
    for cut in recording.cuts(0..500).filter(|cut| !cut.sent_frames.is_empty()) {
        assert_eq!(cut.sent_frames, [serde_json::json!({"type": "res", "n": 1})]);
        assert_eq!(cut.files, recording.files());
    }
    assert_eq!(recording.sent_frames(), 1);
}

#[test]
fn unsynced_data_may_be_lost() {
    let count_lost = |trace: &str| {
        let recording = recorded(trace);
        recording.cuts(0..500).filter(|cut| !cut.sent_frames.is_empty() && cut.files != recording.files()).count()
    };
    assert_eq!(count_lost(SAFE), 0);
    assert!(count_lost(&SAFE.replace("7 fdatasync(3) = 0\n", "")) > 0);
    assert!(count_lost(&SAFE.replace("7 fsync(4) = 0\n", "")) > 0);
    // A failed sync guarantees nothing.
    assert!(count_lost(&SAFE.replace("fdatasync(3) = 0", "fdatasync(3) = -1 EIO (Input/output error)")) > 0);
    let recording = recorded(SAFE).without_syncs();
    assert!(recording.cuts(0..500).any(|cut| !cut.sent_frames.is_empty() && cut.files.is_empty()));
}

#[test]
fn a_write_during_a_sync_may_be_lost() {
    let trace = r#"7 openat(AT_FDCWD, "/s/a", O_WRONLY|O_CREAT|O_CLOEXEC, 0600) = 3
7 clone3({flags=CLONE_VM|CLONE_THREAD}, 88) = 8
7 openat(AT_FDCWD, "/s", O_RDONLY|O_CLOEXEC) = 4
7 fsync(4) = 0
7 write(3, "one", 3) = 3
7 fsync(3 <unfinished ...>
8 pwrite64(3, "two", 3, 0) = 3
7 <... fsync resumed>) = 0
7 sendto(9, "{\"type\":\"res\"}", 14, MSG_NOSIGNAL, NULL, 0) = 14
"#;
    assert_eq!(contents_after_frame(trace), [b"one".to_vec(), b"two".to_vec()].into());
}

#[test]
fn sectors_survive_independently() {
    let (old, new) = ("a".repeat(1024), "b".repeat(1024));
    let trace = format!(
        r#"7 openat(AT_FDCWD, "/s/a", O_WRONLY|O_CREAT|O_CLOEXEC, 0600) = 3
7 write(3, "{old}", 1024) = 1024
7 fsync(3) = 0
7 openat(AT_FDCWD, "/s", O_RDONLY|O_CLOEXEC) = 4
7 fsync(4) = 0
7 pwrite64(3, "{new}", 1024, 0) = 1024
7 sendto(9, "{{\"type\":\"res\"}}", 14, MSG_NOSIGNAL, NULL, 0) = 14
"#
    );
    let mixed = |first: &str, second: &str| format!("{}{}", first.repeat(512), second.repeat(512)).into_bytes();
    assert_eq!(
        contents_after_frame(&trace),
        [mixed("a", "a"), mixed("a", "b"), mixed("b", "a"), mixed("b", "b")].into()
    );
}

#[test]
fn truncated_bytes_do_not_come_back() {
    let trace = r#"7 openat(AT_FDCWD, "/s/a", O_RDWR|O_CREAT|O_CLOEXEC, 0600) = 3
7 openat(AT_FDCWD, "/s", O_RDONLY|O_CLOEXEC) = 4
7 fsync(4) = 0
7 write(3, "old", 3) = 3
7 fsync(3) = 0
7 ftruncate(3, 0) = 0
7 lseek(3, 0, SEEK_SET) = 0
7 write(3, "new", 3) = 3
7 sendto(9, "{\"type\":\"res\"}", 14, MSG_NOSIGNAL, NULL, 0) = 14
"#;
    assert_eq!(contents_after_frame(trace), ["old", "", "\0\0\0", "new"].map(|text| text.as_bytes().to_vec()).into());
}

#[test]
fn a_replaced_file_has_the_old_or_the_new_content() {
    let trace = r#"7 openat(AT_FDCWD, "/s/a", O_WRONLY|O_CREAT|O_CLOEXEC, 0600) = 3
7 write(3, "old", 3) = 3
7 fsync(3) = 0
7 openat(AT_FDCWD, "/s", O_RDONLY|O_CLOEXEC) = 4
7 fsync(4) = 0
7 close(3) = 0
7 mkdir("/s/workspace", 0700) = 0
7 openat(AT_FDCWD, "/s/workspace/b", O_WRONLY|O_CREAT|O_CLOEXEC, 0600) = 3
7 close(3) = 0
7 openat(AT_FDCWD, "/s/a.tmp", O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC, 0600) = 3
7 write(3, "new", 3) = 3
7 fsync(3) = 0
7 rename("/s/a.tmp", "/s/a") = 0
"#;
    let text = |text: &str| Some(text.to_owned());
    let contents_of = |trace: &str| possible_contents(&recorded(trace), "a");
    assert_eq!(
        contents_of(trace),
        [None, text(""), text("\0\0\0"), text("old"), text("new")].into(),
        "before it is safe"
    );
    let frame = r#"7 sendto(9, "{\"type\":\"res\"}", 14, MSG_NOSIGNAL, NULL, 0) = 14"#;
    let with_frame = trace.replace("7 mkdir", &format!("{frame}\n7 mkdir"));
    assert_eq!(contents_after_frame(&with_frame), [b"old".to_vec(), b"new".to_vec()].into());
    let without_sync = with_frame.replace("7 fsync(3) = 0\n7 rename", "7 rename");
    assert!(contents_after_frame(&without_sync).contains(&b"\0\0\0"[..]), "a draft that was not synced is noticed");
    assert_eq!(recorded(trace).files(), [(PathBuf::from("a"), b"new".to_vec())].into());
}

#[test]
fn an_unfinished_sync_guarantees_nothing() {
    let trace = r#"7 openat(AT_FDCWD, "/s/a", O_WRONLY|O_CREAT|O_CLOEXEC, 0600) = 3
7 clone3({flags=CLONE_VM|CLONE_THREAD}, 88) = 8
7 openat(AT_FDCWD, "/s", O_RDONLY|O_CLOEXEC) = 4
7 fsync(4) = 0
7 write(3, "one", 3) = 3
7 fsync(3 <unfinished ...>
8 sendto(9, "{\"type\":\"res\"}", 14, MSG_NOSIGNAL, NULL, 0) = 14
7 <... fsync resumed>) = 0
"#;
    assert!(contents_after_frame(trace).contains(&b""[..]));
}

#[test]
fn an_existing_folder_needs_no_sync() {
    let mut recording = DiskRecording::with_folders(&["b", "b/c"]).unwrap();
    let trace = "7 openat(AT_FDCWD, \"/s/b/c/a\", O_WRONLY|O_CREAT|O_CLOEXEC, 0600) = 3\n";
    recording.add(trace, Path::new("/s"), &["workspace"]).unwrap();
    // In every power failure that the file survives, the directories that existed before the recording survive, too.
    let folders: BTreeSet<_> =
        recording.cuts(0..500).filter(|cut| !cut.files.is_empty()).map(|cut| cut.folders).collect();
    assert_eq!(folders, [vec![PathBuf::from("b"), PathBuf::from("b/c")]].into());
}

#[test]
fn a_descriptor_may_be_reused_before_its_close_returns() {
    let trace = r#"7 openat(AT_FDCWD, "/s/a", O_WRONLY|O_CREAT|O_CLOEXEC, 0600) = 3
7 clone3({flags=CLONE_VM|CLONE_THREAD}, 88) = 8
7 close(3 <unfinished ...>
8 openat(AT_FDCWD, "/s/b", O_WRONLY|O_CREAT|O_CLOEXEC, 0600) = 3
7 <... close resumed>) = 0
8 write(3, "two", 3) = 3
"#;
    let files = [("a", ""), ("b", "two")].map(|(path, text)| (PathBuf::from(path), text.as_bytes().to_vec()));
    assert_eq!(recorded(trace).files(), files.into());
}

#[test]
fn a_read_only_open_changes_nothing_and_reuses_the_descriptor() {
    let trace = r#"7 openat(AT_FDCWD, "/s/a", O_RDWR|O_CREAT|O_CLOEXEC, 0600) = 3
7 openat(AT_FDCWD, "/s/b", O_RDWR|O_CREAT|O_CLOEXEC, 0600) = 4
7 openat2(3, ".", {flags=O_RDONLY|O_CLOEXEC|O_DIRECTORY, resolve=RESOLVE_BENEATH}, 24) = 4
7 write(4, "x", 1) = 1
"#;
    let files = ["a", "b"].map(|path| (PathBuf::from(path), Vec::new()));
    assert_eq!(recorded(trace).files(), files.into());
}

#[test]
fn a_call_that_the_replay_does_not_know_is_an_error() {
    let mut recording = DiskRecording::default();
    let trace = "7 openat(AT_FDCWD, \"/s/a\", O_RDWR|O_CREAT|O_CLOEXEC, 0600) = 3\n7 fallocate(3, 0, 0, 9) = 0\n";
    let error = recording.add(trace, Path::new("/s"), &["workspace"]).unwrap_err();
    assert_eq!(format!("{error:#}"), "in fallocate(3, 0, 0, 9): nobody has taught a power cut what fallocate does");
}
