//! Tests of `session-memory`: what is saved, and under which name.

use std::{os::unix::fs::symlink, sync::Arc};

use futures_util::FutureExt as _;
use serde_json::json;

use super::*;

struct MemoryFixture {
    _temp: tempfile::TempDir,
    state: PathBuf,
    workspace: PathBuf,
}

impl MemoryFixture {
    fn new(messages: &[(&str, &str)]) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let (state, workspace) = (temp.path().join("state"), temp.path().join("workspace"));
        let sessions = state.join("agents/main/sessions");
        fs::create_dir_all(&sessions).unwrap();
        fs::create_dir(&workspace).unwrap();
        let line = |(role, text): &(&str, &str)| json!({"type": "message", "message": {"role": role, "content": text}});
        let lines: Vec<_> = messages.iter().map(|messages| line(messages).to_string()).collect();
        fs::write(sessions.join("old-1.jsonl"), lines.join("\n")).unwrap();
        Self { _temp: temp, state, workspace }
    }

    fn listener(&self, config: &Value, slug: Option<TextFunction>) -> SessionMemory {
        let (state, workspace) = (self.state.clone(), self.workspace.clone());
        let services = BundledServices { slug, ..BundledServices::default() };
        SessionMemory::new(Vec::new(), state, workspace, config.as_object().unwrap(), &services)
    }

    fn memory_files(&self) -> Vec<(String, String)> {
        let files =
            fs::read_dir(self.workspace.join("memory")).into_iter().flatten().map(|entry| entry.unwrap().path());
        let read =
            |path: PathBuf| (path.file_name().unwrap().display().to_string(), fs::read_to_string(&path).unwrap());
        let mut all_files: Vec<_> = files.map(read).collect();
        all_files.sort();
        all_files
    }
}

fn command_event(context: &Value) -> InternalEvent {
    InternalEvent {
        kind: "command".to_owned(),
        action: "new".to_owned(),
        session_key: "agent:main:main".to_owned(),
        context: context.as_object().unwrap().clone(),
        timestamp: 1_794_709_957_598,
        messages: Vec::new(),
    }
}

fn new_conversation() -> InternalEvent {
    let old = json!({"sessionId": "old-1", "sessionFile": "/moved/agents/main/sessions/old-1.jsonl"});
    command_event(
        &json!({"sessionEntry": {"sessionId": "new-1"}, "previousSessionEntry": old, "commandSource": "webchat"}),
    )
}

#[tokio::test]
async fn the_end_of_a_conversation_is_saved_in_openclaws_format() {
    let fixture = MemoryFixture::new(&[("user", "hello"), ("assistant", "aye"), ("user", "/new")]);
    fixture.listener(&json!({}), None).handle(&new_conversation()).await.unwrap();
    let text = "# Session: 2026-11-15 02:32:37 UTC\n\n- **Session Key**: agent:main:main\n- **Session ID**: old-1\n\
                - **Source**: webchat\n\n## Conversation Summary\n\nuser: hello\nassistant: aye\n";
    assert_eq!(fixture.memory_files(), [("2026-11-15-0232.md".to_owned(), text.to_owned())]);
}

#[tokio::test]
async fn the_transcript_path_of_the_event_takes_precedence() {
    let fixture = MemoryFixture::new(&[("user", "hello")]);
    let other_transcript = fixture.state.join("elsewhere.jsonl");
    fs::rename(fixture.state.join("agents/main/sessions/old-1.jsonl"), &other_transcript).unwrap();
    let context = json!({"previousSessionEntry": {"sessionId": "old-1"}, "sessionFile": other_transcript});
    fixture.listener(&json!({}), None).handle(&command_event(&context)).await.unwrap();
    assert_eq!(fixture.memory_files().len(), 1);
}

#[tokio::test]
async fn no_file_is_overwritten_and_only_the_last_messages_are_saved() {
    let messages: Vec<_> = (0..40).map(|number| ("user", format!("word {number}"))).collect();
    let messages: Vec<_> = messages.iter().map(|(role, text)| (*role, text.as_str())).collect();
    let fixture = MemoryFixture::new(&messages);
    let listener = fixture.listener(&json!({}), None);
    for _ in 0..2 {
        listener.handle(&new_conversation()).await.unwrap();
    }
    fixture.listener(&json!({"messages": 1}), None).handle(&new_conversation()).await.unwrap();
    let memory_files = fixture.memory_files();
    let names: Vec<_> = memory_files.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["2026-11-15-0232-2.md", "2026-11-15-0232-3.md", "2026-11-15-0232.md"]);
    let message_count = |at: usize| memory_files[at].1.lines().filter(|line| line.starts_with("user: ")).count();
    assert_eq!([message_count(0), message_count(1), message_count(2)], [15, 1, 15]);
    assert!(memory_files[1].1.ends_with("user: word 39\n"));
}

#[tokio::test]
async fn a_model_names_the_file_if_configured() {
    let fixture = MemoryFixture::new(&[("user", "when is the water high?")]);
    let model_with = |answer: Result<&str, &str>| -> TextFunction {
        let answer = answer.map(ToOwned::to_owned).map_err(ToOwned::to_owned);
        Arc::new(move |prompt: String| {
            assert!(prompt.ends_with("user: when is the water high?"));
            std::future::ready(answer.clone()).boxed()
        })
    };
    let wanted = json!({"llmSlug": true});
    fixture.listener(&wanted, Some(model_with(Ok(" The **Tides**/../x\n")))).handle(&new_conversation()).await.unwrap();
    fixture.listener(&wanted, Some(model_with(Ok("…")))).handle(&new_conversation()).await.unwrap();
    fixture.listener(&wanted, Some(model_with(Err("no key")))).handle(&new_conversation()).await.unwrap();
    fixture.listener(&json!({}), Some(model_with(Ok("unasked")))).handle(&new_conversation()).await.unwrap();
    let names: Vec<_> = fixture.memory_files().into_iter().map(|(name, _)| name).collect();
    let expected = ["2026-11-15-0232-2.md", "2026-11-15-0232-3.md", "2026-11-15-0232.md", "2026-11-15-the-tides-x.md"];
    assert_eq!(names, expected);
}

#[tokio::test]
async fn nothing_is_saved_without_messages() {
    let fixture = MemoryFixture::new(&[("user", "/status"), ("toolResult", "x")]);
    let listener = fixture.listener(&json!({}), None);
    listener.handle(&new_conversation()).await.unwrap();
    for context in [
        json!({}),
        json!({"previousSessionEntry": {"sessionId": "gone"}}),
        json!({"previousSessionEntry": {"sessionId": "../../../etc/passwd"}}),
        json!({"previousSessionEntry": {"sessionId": "old-1"}, "agentId": ".."}),
    ] {
        assert_eq!(listener.handle(&command_event(&context)).await, Ok(ListenerResult::default()), "{context}");
    }
    assert_eq!(fixture.memory_files(), []);
}

#[tokio::test]
async fn a_memory_directory_that_is_a_link_out_of_the_workspace_is_not_used() {
    let fixture = MemoryFixture::new(&[("user", "hello")]);
    let outside_dir = fixture.state.join("elsewhere");
    fs::create_dir(&outside_dir).unwrap();
    symlink(&outside_dir, fixture.workspace.join("memory")).unwrap();
    let error = fixture.listener(&json!({}), None).handle(&new_conversation()).await.unwrap_err().to_string();
    assert!(error.ends_with("memory: it is a link that leads out of the workspace"), "{error}");
    assert_eq!(fs::read_dir(outside_dir).unwrap().count(), 0);
}
