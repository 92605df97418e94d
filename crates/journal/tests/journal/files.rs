//! What is on disk, byte by byte, and who may touch it.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use homard_journal::Journal;
use homard_proto::{
    message::{Assistant, Block, Message, StopReason, ToolCall, ToolResult, Usage},
    session::Record,
};
use homard_store::{Error, Fence, Outcome, Rec, Store};
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

/// A run with a tool, as the loop would tell it.
async fn converse(journal: &Journal) {
    let mut known = record("s1");
    known.extra.insert("chatType".to_owned(), "direct".into());
    let batch = vec![
        accept("r1", "x"),
        patch("main", None, known.clone()),
        start("r1", "main", "s1"),
        input("r1", "main", &[], &["u1"]),
    ];
    keep(journal, batch).await;
    let call = ToolCall {
        id: "call-1".to_owned(),
        name: "read".to_owned(),
        arguments: json!({"path": "a.txt"}),
        extra: serde_json::Map::new(),
    };
    let result = ToolResult {
        tool_call_id: "call-1".to_owned(),
        tool_name: "read".to_owned(),
        content: vec![Block::text("a\nb")],
        details: None,
        is_error: false,
        timestamp: NOW,
        extra: serde_json::Map::new(),
    };
    for (id, message) in [
        ("a1", assistant(vec![Block::text("Let me see."), Block::ToolCall(call)], StopReason::ToolUse)),
        ("t1", Message::ToolResult(result)),
    ] {
        keep(journal, vec![Rec::Entry { key: key("main"), entry: Box::new(line(id, message)) }]).await;
    }
    let last = line("a2", assistant(vec![Block::text("“a” and “b” — done")], StopReason::Stop));
    let told = Record { model: Some("fake-1".to_owned()), output_tokens: Some(3), ..known };
    let batch = vec![
        Rec::Entry { key: key("main"), entry: Box::new(last) },
        terminal("r1", Outcome::Done),
        patch("main", Some("s1"), told),
    ];
    keep(journal, batch).await;
}

#[tokio::test]
async fn a_conversation_is_written_as_openclaw_would() {
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
    keep(&journal, vec![patch("agent:ops:main", None, record("s2")), said("agent:ops:main", "b")]).await;
    keep(&journal, vec![patch("global", None, record("s3")), said("global", "c")]).await;
    let before = (journal.list().await, journal.load(&key("main")).await);
    journal.flush().await.unwrap();
    drop(journal);

    let journal = open(state.path());
    assert_eq!((journal.list().await, journal.load(&key("main")).await), before);
    assert_eq!(journal.recover().await, Ok(vec![]));
    assert_eq!(lines(&journal, "agent:ops:main").await, [under(None, "b")]);
    keep(&journal, vec![said("global", "d")]).await;
    assert_eq!(lines(&journal, "global").await, [under(None, "c"), under(Some("c"), "d")]);
    assert!(state.path().join("agents/ops/sessions/s2.jsonl").is_file());
    assert!(sessions(state.path()).join("s3.jsonl").is_file());
}

#[tokio::test]
async fn a_run_that_begins_has_a_transcript_wherever_its_record_stands_in_the_batch() {
    let state = tempfile::tempdir().unwrap();
    let journal = open(state.path());
    keep(&journal, vec![accept("r1", "x"), start("r1", "main", "s1"), patch("main", None, record("s1"))]).await;
    let header = "{\"type\":\"session\",\"version\":3,\"id\":\"s1\",\"timestamp\":\"2026-11-15T02:32:40.355Z\",\"cwd\":\"/w\"}\n";
    let transcript = sessions(state.path()).join("s1.jsonl");
    assert_eq!(fs::read_to_string(&transcript).unwrap(), header);
    keep(&journal, vec![accept("r2", "x"), start("r2", "main", "s1")]).await;
    assert_eq!(fs::read_to_string(&transcript).unwrap(), header);
}

#[tokio::test]
async fn a_line_from_nowhere_brings_a_header_of_its_own() {
    let state = tempfile::tempdir().unwrap();
    let journal = open(state.path());
    keep(&journal, vec![patch("main", None, record("s1")), said("main", "a")]).await;
    let text = fs::read_to_string(sessions(state.path()).join("s1.jsonl")).unwrap();
    let first =
        "{\"type\":\"session\",\"version\":3,\"id\":\"s1\",\"timestamp\":\"2026-11-15T02:32:41.000Z\",\"cwd\":\"\"}";
    assert_eq!(text.lines().next(), Some(first));
}

#[tokio::test]
async fn only_the_owner_may_look() {
    let above = tempfile::tempdir().unwrap();
    let state = above.path().join("new/state");
    let journal = open(&state);
    converse(&journal).await;
    keep(&journal, vec![patch("main", Some("s1"), record("s1"))]).await;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let sessions = sessions(&state);
    assert_eq!((mode(&state), mode(&sessions)), (0o700, 0o700));
    assert_eq!(mode(&sessions.join("sessions.json.log")), 0o600);
    journal.flush().await.unwrap();
    for file in ["../../../gateway.lock", "s1.jsonl", "sessions.json"] {
        assert_eq!(mode(&sessions.join(file)), 0o600, "{file}");
    }
}

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

#[tokio::test]
async fn a_writer_with_the_right_of_another_is_refused() {
    let state = tempfile::tempdir().unwrap();
    let journal = open(state.path());
    let refused = journal.commit(&Fence(7), vec![patch("main", None, record("s1"))]).await;
    assert!(matches!(refused, Err(Error::Locked(_))), "{refused:?}");
    assert_eq!(journal.list().await, Ok(vec![]));
}
