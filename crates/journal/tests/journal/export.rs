//! Tests of `sessions.json`: it follows the records, and a crash before an export loses none of them.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use homard_proto::session::Record;
use homard_store::{StoreReader, StoreWriter};
use serde_json::{Value, json};

use crate::words::*;

fn exported(state: &std::path::Path) -> Value {
    serde_json::from_slice(&fs::read(sessions(state).join("sessions.json")).unwrap()).unwrap()
}

fn at(id: &str, updated_at: u64) -> Record {
    Record::new(session(id), updated_at)
}

#[tokio::test]
async fn a_crash_before_the_export_loses_no_record() {
    let state = tempfile::tempdir().unwrap();
    let journal = open(state.path());
    commit_all(&journal, vec![patch("main", None, at("s1", 1))]).await;
    journal.flush().await.unwrap();
    commit_all(&journal, vec![patch("main", Some("s1"), at("s1", 2)), patch("new", None, at("s2", 2))]).await;
    commit_all(&journal, vec![patch("main", Some("s1"), at("s3", 3))]).await;
    let before = list_sessions(&journal).await;
    let state = crash(state.path());
    assert_eq!(exported(state.path()), json!({"agent:main:main": {"sessionId": "s1", "updatedAt": 1}}));
    let journal = open(state.path());
    assert_eq!(list_sessions(&journal).await, before);
    journal.flush().await.unwrap();
    drop(journal);
    assert_eq!(exported(state.path()).as_object().unwrap().len(), 2);
    assert_eq!(list_sessions(&open(state.path())).await, before);
}

#[tokio::test]
async fn a_deleted_session_does_not_come_back_from_our_own_export() {
    let state = tempfile::tempdir().unwrap();
    let journal = open(state.path());
    commit_all(&journal, vec![patch("main", None, at("s1", 1)), patch("kept", None, at("s2", 1))]).await;
    journal.flush().await.unwrap();
    journal.commit(&journal.fence(), vec![delete("main", "s1")]).await.unwrap();
    drop(journal);
    assert_eq!(exported(state.path()).as_object().unwrap().len(), 2);
    let journal = open(state.path());
    assert_eq!(list_sessions(&journal).await, Ok(vec![(key("kept"), at("s2", 1))]));
    journal.flush().await.unwrap();
    assert_eq!(exported(state.path()).as_object().unwrap().len(), 1);
}

#[tokio::test]
async fn imported_records_are_not_written_again() {
    let state = tempfile::tempdir().unwrap();
    fs::create_dir_all(sessions(state.path())).unwrap();
    let text = "{\"agent:main:main\":{\"sessionId\":\"s1\",\"updatedAt\":1}}";
    let file = sessions(state.path()).join("sessions.json");
    fs::write(&file, text).unwrap();
    let journal = open(state.path());
    journal.flush().await.unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    fs::remove_file(&file).unwrap();
    drop(journal);
    let journal = open(state.path());
    assert_eq!(list_sessions(&journal).await, Ok(vec![(key("main"), at("s1", 1))]));
    journal.flush().await.unwrap();
    assert_eq!(exported(state.path()), serde_json::from_str::<Value>(text).unwrap());
}

// R15
#[tokio::test]
async fn sessions_json_can_be_read_at_any_instant() {
    let state = tempfile::tempdir().unwrap();
    let journal = open(state.path());
    commit_all(&journal, vec![patch("main", None, at("s1", 0))]).await;
    journal.flush().await.unwrap();
    let (path, done) = (sessions(state.path()).join("sessions.json"), Arc::new(AtomicBool::new(false)));
    let is_done = Arc::clone(&done);
    let reader = std::thread::spawn(move || {
        let (mut reads, mut newest) = (0, 0);
        while !is_done.load(Ordering::Relaxed) {
            let text = fs::read(&path).unwrap();
            let value: Value = serde_json::from_slice(&text).unwrap();
            let updated_at = value["agent:main:main"]["updatedAt"].as_u64().unwrap();
            assert!(updated_at >= newest, "it never goes back");
            (reads, newest) = (reads + 1, updated_at);
        }
        reads
    });
    for second in 1..=60 {
        let mut record = at("s1", second);
        record.label = Some("x".repeat(usize::try_from(second).unwrap() * 150));
        commit_all(&journal, vec![patch("main", Some("s1"), record)]).await;
        journal.flush().await.unwrap();
    }
    done.store(true, Ordering::Relaxed);
    assert!(reader.join().unwrap() > 60);
}

#[tokio::test]
async fn a_failed_export_is_retried() {
    let state = tempfile::tempdir().unwrap();
    let journal = open(state.path());
    commit_all(&journal, vec![patch("main", None, at("s1", 1))]).await;
    let blocker = sessions(state.path()).join("sessions.json");
    fs::create_dir_all(&blocker).unwrap();
    journal.flush().await.unwrap_err();
    journal.flush().await.unwrap_err();
    commit_all(&journal, vec![patch("new", None, at("s2", 2))]).await;
    journal.flush().await.unwrap_err();
    let before = list_sessions(&journal).await;
    drop(journal);

    fs::remove_dir(&blocker).unwrap();
    let journal = open(state.path());
    assert_eq!(list_sessions(&journal).await, before);
    journal.flush().await.unwrap();
    let all = json!({"agent:main:main": {"sessionId": "s1", "updatedAt": 1}, "agent:main:new": {"sessionId": "s2", "updatedAt": 2}});
    assert_eq!(exported(state.path()), all);
}

#[tokio::test]
async fn a_newer_sessions_file_replaces_the_records() {
    let state = tempfile::tempdir().unwrap();
    let journal = open(state.path());
    commit_all(&journal, vec![patch("main", None, at("s1", 5)), patch("new", None, at("s2", 5))]).await;
    drop(journal);
    fs::create_dir_all(sessions(state.path())).unwrap();
    let external = json!({
        "agent:main:main": {"sessionId": "s7", "updatedAt": 6, "theirs": true},
        "agent:main:new": {"sessionId": "s8", "updatedAt": 4},
    });
    fs::write(sessions(state.path()).join("sessions.json"), external.to_string()).unwrap();
    let mut newer = at("s7", 6);
    newer.extra.insert("theirs".to_owned(), true.into());
    let expected = vec![(key("main"), newer), (key("new"), at("s2", 5))];
    assert_eq!(list_sessions(&open(state.path())).await, Ok(expected));
}

#[tokio::test]
async fn a_sessions_file_that_cannot_be_read_is_moved_aside() {
    for text in ["{\"agent:main:main\": {\"sessionId\"", "[]", ""] {
        let state = tempfile::tempdir().unwrap();
        let file = sessions(state.path()).join("sessions.json");
        fs::create_dir_all(sessions(state.path())).unwrap();
        fs::write(&file, text).unwrap();
        let journal = open(state.path());
        assert_eq!(list_sessions(&journal).await, Ok(vec![]));
        assert!(!file.exists());
        assert_eq!(fs::read_to_string(file.with_added_extension(format!("corrupt-{NOW}"))).unwrap(), text);
        commit_all(&journal, vec![patch("main", None, at("s1", 1))]).await;
        journal.flush().await.unwrap();
        assert_eq!(exported(state.path()), json!({"agent:main:main": {"sessionId": "s1", "updatedAt": 1}}));
    }
}

#[tokio::test]
async fn unusable_records_are_ignored_and_written_back() {
    let state = tempfile::tempdir().unwrap();
    fs::create_dir_all(sessions(state.path())).unwrap();
    let original = json!({
        "agent:main:bad": {"sessionId": "../x", "updatedAt": 1},
        "agent:main:replaced": {"sessionId": ".y", "updatedAt": 1},
        "agent:main:good": {"sessionId": "s1", "updatedAt": 1, "novel": {"deep": [1, 2]}},
        "agent:ops:stray": {"sessionId": "s2", "updatedAt": 1},
        "agent:main:dm:Ann": {"sessionId": "s3", "updatedAt": 1},
        "": 7,
    });
    fs::write(sessions(state.path()).join("sessions.json"), original.to_string()).unwrap();
    let journal = open(state.path());
    let mut good = at("s1", 1);
    good.extra.insert("novel".to_owned(), json!({"deep": [1, 2]}));
    let expected = vec![(key("direct:ann"), at("s3", 1)), (key("good"), good)];
    assert_eq!(list_sessions(&journal).await, Ok(expected));
    assert_eq!(journal.load(&key("bad")).await, Ok(None));

    commit_all(&journal, vec![patch("replaced", None, at("s4", 2))]).await;
    journal.flush().await.unwrap();
    let mut expected = original;
    expected["agent:main:replaced"] = json!({"sessionId": "s4", "updatedAt": 2});
    expected["agent:main:direct:ann"] = expected.as_object_mut().unwrap().remove("agent:main:dm:Ann").unwrap();
    assert_eq!(exported(state.path()), expected);
}

#[tokio::test(start_paused = true)]
async fn changes_are_exported_at_most_every_five_seconds() {
    let state = tempfile::tempdir().unwrap();
    let journal = open(state.path());
    let started_at = tokio::time::Instant::now();
    let scenario = async {
        let mut versions = Vec::new();
        for second in 0..12 {
            let expect = (second > 0).then_some("s1");
            commit_all(&journal, vec![patch("main", expect, at("s1", second))]).await;
            tokio::time::sleep_until(started_at + Duration::from_secs(second) + Duration::from_millis(500)).await;
            versions.push(exported(state.path())["agent:main:main"]["updatedAt"].as_u64().unwrap());
        }
        versions
    };
    let versions = tokio::select! {
        versions = scenario => versions,
        () = journal.maintain() => unreachable!("it has no end"),
    };
    assert_eq!(versions, [0, 0, 0, 0, 0, 5, 5, 5, 5, 5, 10, 10]);
}
