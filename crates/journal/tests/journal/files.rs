//! Tests of the files on disk, byte by byte, and of the lock.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use homard_journal::{Journal, lock};
use homard_proto::{
    AgentId, SessionId, SessionKey,
    message::{Assistant, Block, Message, StopReason, ToolCall, Usage},
    session::Record,
};
use homard_store::{Error, Fence, Outcome, Rec, StoreReader, StoreWriter, Verdict};
use serde_json::json;

use crate::words::*;

fn assistant(content: Vec<Block>, stop_reason: StopReason) -> Message {
    Message::Assistant(Assistant {
        content,
        api: "openai-completions".to_owned(),
        provider: "fake".to_owned(),
        model: "fake-1".to_owned(),
        usage: Usage { input: 12, output: 3, total_tokens: 15, ..Usage::default() },
        stop_reason,
        error_message: None,
        timestamp: NOW,
        extra: serde_json::Map::new(),
    })
}

/// Commits a run with a tool call as the agent loop does.
async fn converse(journal: &Journal) {
    let mut known = record("s1");
    known.extra.insert("chatType".to_owned(), "direct".into());
    let batch = vec![
        accept("r1", "x"),
        patch("main", None, known.clone()),
        start("r1", "main", "s1"),
        input("r1", MAIN, &[], &["u1"]),
    ];
    commit_all(journal, batch).await;
    let call = ToolCall {
        id: "call-1".to_owned(),
        name: "read".to_owned(),
        arguments: json!({"path": "a.txt"}),
        extra: serde_json::Map::new(),
    };
    let result = result("call-1", "a\nb");
    for (id, message) in [
        ("a1", assistant(vec![Block::text("Let me see."), Block::ToolCall(call)], StopReason::ToolUse)),
        ("t1", Message::ToolResult(result)),
    ] {
        commit_all(
            journal,
            vec![Rec::Entry {
                run: Some(run("r1")),
                key: key("main"),
                session: session("s1"),
                entry: Box::new(line(id, message)),
            }],
        )
        .await;
    }
    let last = line("a2", assistant(vec![Block::text("“a” and “b” — done")], StopReason::Stop));
    let with_model = Record { model: Some("fake-1".to_owned()), output_tokens: Some(3), ..known };
    let batch = vec![
        Rec::Entry { run: Some(run("r1")), key: key("main"), session: session("s1"), entry: Box::new(last) },
        terminal("r1", Outcome::Done),
        patch("main", Some("s1"), with_model),
    ];
    commit_all(journal, batch).await;
}

// R16.
#[tokio::test]
async fn a_conversation_is_written_in_openclaws_format() {
    let state = tempfile::tempdir().unwrap();
    let journal = open(state.path());
    converse(&journal).await;
    journal.flush().await.unwrap();
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for (name, file) in [("conversation.jsonl", "s1.jsonl"), ("sessions.json", "sessions.json")] {
        let written = fs::read_to_string(sessions(state.path()).join(file)).unwrap();
        assert_eq!(written, fs::read_to_string(golden.join(name)).unwrap(), "{name}");
    }
}

#[tokio::test]
async fn the_next_process_finds_everything() {
    let state = tempfile::tempdir().unwrap();
    let journal = open(state.path());
    converse(&journal).await;
    commit_all(&journal, vec![patch("agent:ops:main", None, record("s2")), append(["agent:ops:main", "s2"], "b")])
        .await;
    commit_all(&journal, vec![patch("global", None, record("s3")), append(["global", "s3"], "c")]).await;
    let known = (journal.run(&run("r1")).await, journal.recover().await);
    assert_eq!(known.1, Ok(vec![]));
    let before = (journal.list().await, journal.load(&key("main")).await);
    journal.flush().await.unwrap();
    drop(journal);

    let journal = open(state.path());
    assert_eq!((journal.list().await, journal.load(&key("main")).await), before);
    assert_eq!((journal.run(&run("r1")).await, journal.recover().await), known);
    assert_eq!(lines(&journal, "agent:ops:main").await, [child_entry(None, "b")]);
    commit_all(&journal, vec![append(["global", "s3"], "d")]).await;
    assert_eq!(lines(&journal, "global").await, [child_entry(None, "c"), child_entry(Some("c"), "d")]);
    assert!(state.path().join("agents/ops/sessions/s2.jsonl").is_file());
    assert!(sessions(state.path()).join("s3.jsonl").is_file());
}

#[tokio::test]
async fn a_started_run_has_a_transcript_whatever_the_order_in_the_batch() {
    let state = tempfile::tempdir().unwrap();
    let journal = open(state.path());
    commit_all(&journal, vec![accept("r1", "x"), start("r1", "main", "s1"), patch("main", None, record("s1"))]).await;
    let header = "{\"type\":\"session\",\"version\":3,\"id\":\"s1\",\"timestamp\":\"2026-11-15T02:32:40.355Z\",\"cwd\":\"/w\"}\n";
    let transcript = sessions(state.path()).join("s1.jsonl");
    assert_eq!(fs::read_to_string(&transcript).unwrap(), header);
    commit_all(&journal, vec![accept("r2", "x"), start("r2", "main", "s1")]).await;
    assert_eq!(fs::read_to_string(&transcript).unwrap(), header);
}

#[tokio::test]
async fn an_entry_without_a_run_gets_a_default_header() {
    let state = tempfile::tempdir().unwrap();
    let journal = open(state.path());
    commit_all(&journal, vec![patch("main", None, record("s1")), append(MAIN, "a")]).await;
    let text = fs::read_to_string(sessions(state.path()).join("s1.jsonl")).unwrap();
    let first =
        "{\"type\":\"session\",\"version\":3,\"id\":\"s1\",\"timestamp\":\"2026-11-15T02:32:41.000Z\",\"cwd\":\"\"}";
    assert_eq!(text.lines().next(), Some(first));
}

#[tokio::test]
async fn files_are_readable_by_their_owner_only() {
    let above = tempfile::tempdir().unwrap();
    let state = above.path().join("new/state");
    let journal = open(&state);
    converse(&journal).await;
    commit_all(&journal, vec![patch("main", Some("s1"), record("s1"))]).await;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let sessions = sessions(&state);
    assert_eq!((mode(&state), mode(&sessions)), (0o700, 0o700));
    journal.flush().await.unwrap();
    for file in [
        "../../../gateway.lock",
        "../../../journal/journal.db",
        "../../../journal/journal.db-wal",
        "s1.jsonl",
        "sessions.json",
    ] {
        assert_eq!(mode(&sessions.join(file)), 0o600, "{file}");
    }
}

#[tokio::test]
async fn the_database_has_no_shared_memory_and_closes_empty() {
    let state = tempfile::tempdir().unwrap();
    let journal = open(state.path());
    converse(&journal).await;
    let files =
        || files_named(&state.path().join("journal"), "").into_iter().map(|path| path.file_name().unwrap().to_owned());
    assert_eq!(files().collect::<Vec<_>>(), ["journal.db", "journal.db-wal"]);
    journal.flush().await.unwrap();
    assert_eq!(fs::metadata(state.path().join("journal/journal.db-wal")).unwrap().len(), 0);
}

#[tokio::test]
async fn a_deleted_transcript_is_archived() {
    let state = tempfile::tempdir().unwrap();
    let journal = open(state.path());
    converse(&journal).await;
    let before = fs::read(sessions(state.path()).join("s1.jsonl")).unwrap();
    commit_all(&journal, vec![patch("empty", None, record("s2"))]).await;
    let archived = sessions(state.path()).join("s1.jsonl.deleted.2026-11-15T02-32-40.355Z");
    let verdicts = journal.commit(&journal.fence(), vec![delete("main", "s1"), delete("empty", "s2")]).await;
    assert_eq!(verdicts, Ok(vec![Verdict::Archived(Some(archived.clone())), Verdict::Archived(None)]));
    assert_eq!(files_named(&sessions(state.path()), ""), std::slice::from_ref(&archived));
    assert_eq!(fs::read(&archived).unwrap(), before);
    journal.flush().await.unwrap();
    drop(journal);
    let journal = open(state.path());
    assert_eq!(list_sessions(&journal).await, Ok(vec![]));
    assert_eq!(fs::read(&archived).unwrap(), before);
    let entries = journal.transcript(&key("main"), &session("s1")).await.unwrap().unwrap();
    assert_eq!(entries.len() + 1, before.split_inclusive(|&byte| byte == b'\n').count());
    // Named as OpenClaw archives one at a reset; the last one is used.
    let reset = sessions(state.path()).join("s1-topic-7.jsonl.reset.2026-12-01T00-00-00.000Z");
    let text = [json!(header("s1")), json!(entry("r"))].map(|line| format!("{line}\n")).concat();
    fs::write(reset, text).unwrap();
    assert_eq!(journal.transcript(&key("main"), &session("s1")).await, Ok(Some(vec![entry("r")])));
    assert_eq!(journal.transcript(&key("main"), &session("s")).await, Ok(None));
}

#[tokio::test]
async fn a_deletion_interrupted_by_a_crash_is_finished() {
    let state = tempfile::tempdir().unwrap();
    let journal = open(state.path());
    converse(&journal).await;
    journal.flush().await.unwrap();
    let transcript = sessions(state.path()).join("s1.jsonl");
    let before = fs::read_to_string(&transcript).unwrap();
    let batch = vec![append(MAIN, "late"), delete("main", "s1"), append(MAIN, "new")];
    journal.commit(&journal.fence(), batch).await.unwrap();
    let copy = crash(state.path());
    let folder = sessions(copy.path());
    let archived = folder.join("s1.jsonl.deleted.2026-11-15T02-32-40.355Z");
    fs::write(folder.join("s1.jsonl"), &before).unwrap();
    fs::remove_file(&archived).unwrap();

    let journal = open(copy.path());
    let archived_text = fs::read_to_string(&archived).unwrap();
    assert!(
        archived_text.starts_with(&before) && archived_text.contains("\"late\"") && !archived_text.contains("\"new\""),
        "{archived_text}"
    );
    commit_all(&journal, vec![patch("main", None, record("s1"))]).await;
    assert_eq!(lines(&journal, "main").await, [child_entry(None, "new")]);
}

// Case 87, R82 (D15): fails at once, naming the process and the directory.
#[test]
fn a_state_directory_has_one_owner() {
    let state = tempfile::tempdir().unwrap();
    let journal = open(state.path());
    let expected = format!(
        "state directory {} is in use by process {} (since 2026-11-15T02:32:40.355Z); \
         stop it or choose another directory with HOMARD_STATE_DIR",
        state.path().display(),
        std::process::id()
    );
    assert_eq!(Journal::open(state.path(), || NOW).unwrap_err(), Error::Locked(expected));
    drop(journal);
    open(state.path());
}

// Case 88 (D15): the lock is the system's, so a leftover file blocks no process.
#[test]
fn the_lock_of_a_dead_process_is_acquired_at_once() {
    let state = tempfile::tempdir().unwrap();
    let mut process = std::process::Command::new("true").spawn().unwrap();
    process.wait().unwrap();
    let file = state.path().join("gateway.lock");
    fs::write(&file, json!({"pid": process.id(), "startedAt": NOW, "started": 1}).to_string()).unwrap();
    let _journal = open(state.path());
    assert_eq!(lock::holder(state.path()).map(|holder| holder.pid), Some(std::process::id()));
}

// Case 89, pitfall 28, pitfall 29 (D15): the holder of the lock counts, not the content of the file.
#[test]
fn a_lock_is_held_before_its_file_names_the_holder() {
    let state = tempfile::tempdir().unwrap();
    let file = fs::File::create(state.path().join("gateway.lock")).unwrap();
    file.lock().unwrap();
    let expected = format!(
        "state directory {} is in use by another process; stop it or choose another directory with HOMARD_STATE_DIR",
        state.path().display()
    );
    assert_eq!(Journal::open(state.path(), || NOW).unwrap_err(), Error::Locked(expected));
    drop(file);
    open(state.path());
}

// Pitfall 31 (D15), in addition to the lane's check.
#[tokio::test]
async fn a_writer_with_a_foreign_fence_is_rejected() {
    let state = tempfile::tempdir().unwrap();
    let journal = open(state.path());
    let refused = journal.commit(&Fence(7), vec![patch("main", None, record("s1"))]).await;
    assert!(matches!(refused, Err(Error::Locked(_))), "{refused:?}");
    assert_eq!(list_sessions(&journal).await, Ok(vec![]));
}

// R82.
#[tokio::test]
async fn the_fence_of_the_previous_process_is_invalid() {
    let state = tempfile::tempdir().unwrap();
    let old = open(state.path()).fence();
    let journal = open(state.path());
    let refused = journal.commit(&old, vec![patch("main", None, record("s1"))]).await;
    assert!(matches!(refused, Err(Error::Locked(_))), "{refused:?}");
}

// Pitfall 30 (D15).
#[test]
fn the_lock_holder_is_identified_by_more_than_its_process_id() {
    let state = tempfile::tempdir().unwrap();
    assert_eq!(lock::holder(state.path()), None);
    let journal = open(state.path());
    let (pid, started) = (std::process::id(), lock::process_start_time(std::process::id()));
    let holder = lock::LockHolder { pid, started_at: NOW, started };
    assert_eq!(lock::holder(state.path()), Some(holder.clone()));
    drop(journal);
    let other_process = lock::LockHolder { started: started.map(|started| started + 1), ..holder };
    for name in ["gateway.lock", "gateway.holder.json"] {
        fs::write(state.path().join(name), serde_json::to_vec(&other_process).unwrap()).unwrap();
    }
    assert_eq!(lock::holder(state.path()), None);
}

#[tokio::test]
async fn a_process_that_crashed_is_counted() {
    let state = tempfile::tempdir().unwrap();
    let clock = Arc::new(AtomicU64::new(NOW));
    let boot = || {
        let clock = Arc::clone(&clock);
        Journal::open(state.path(), move || clock.load(Ordering::Relaxed)).unwrap()
    };
    let unclean = |journal: &Journal| journal.boots().unclean_in_5_min;
    assert_eq!(unclean(&boot()), 0);
    assert_eq!(unclean(&boot()), 1);
    let journal = boot();
    assert_eq!(unclean(&journal), 2);
    journal.flush().await.unwrap();
    drop(journal);
    let journal = boot();
    assert_eq!(unclean(&journal), 2);
    journal.flush().await.unwrap();
    commit_all(&journal, vec![patch("main", None, record("s1"))]).await;
    drop(journal);
    assert_eq!(unclean(&boot()), 3);
    clock.store(NOW + 5 * 60 * 1000 + 1, Ordering::Relaxed);
    assert_eq!(unclean(&boot()), 0);
}

// Pitfall: OpenClaw finds a thread's transcript only through the path in the record.
#[tokio::test]
async fn a_thread_has_a_transcript_that_openclaw_finds() {
    let state = tempfile::tempdir().unwrap();
    let (thread, plain) = ("telegram:group:-5:topic:7", "slack:channel:c1:thread:9");
    fs::create_dir_all(sessions(state.path())).unwrap();
    fs::write(sessions(state.path()).join("s2.jsonl"), format!("{}\n", serde_json::json!(header("s2")))).unwrap();
    let journal = open(state.path());
    for (at, id) in [(thread, "s1"), (plain, "s2")] {
        commit_all(&journal, vec![patch(at, None, record(id)), append([at, id], "a")]).await;
    }
    journal.flush().await.unwrap();
    let transcript = sessions(state.path()).join("s1-topic-7.jsonl");
    assert!(transcript.exists() && !sessions(state.path()).join("s1.jsonl").exists());
    let exported: serde_json::Value =
        serde_json::from_slice(&fs::read(sessions(state.path()).join("sessions.json")).unwrap()).unwrap();
    assert_eq!(exported[key(thread).as_str()]["sessionFile"], transcript.display().to_string());
    assert_eq!(exported[key(plain).as_str()].get("sessionFile"), None, "a file that is there keeps its name");
    drop(journal);

    // Also without the database, which stores the name as well.
    fs::remove_dir_all(state.path().join("journal")).unwrap();
    let journal = open(state.path());
    for at in [thread, plain] {
        assert_eq!(lines(&journal, at).await, [child_entry(None, "a")]);
    }
    drop(journal);

    // By its id alone, when no session points at it any more.
    fs::remove_dir_all(state.path().join("journal")).unwrap();
    fs::remove_file(sessions(state.path()).join("sessions.json")).unwrap();
    fs::write(sessions(state.path()).join("s1-topic-7.jsonl.deleted.2026-12-01T00-00-00.000Z"), "").unwrap();
    let journal = open(state.path());
    for (id, count) in [("s1", 1), ("s2", 1), ("s", 0)] {
        let id = SessionId::parse(id).unwrap();
        let found = journal.live_transcript(&SessionKey::explicit(&AgentId::main(), &id), &id).await.unwrap();
        assert_eq!(found.len(), count, "{id}");
    }
}
