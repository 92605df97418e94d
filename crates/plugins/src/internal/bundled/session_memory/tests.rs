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
    fn new(said: &[(&str, &str)]) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let (state, workspace) = (temp.path().join("state"), temp.path().join("workspace"));
        let sessions = state.join("agents/main/sessions");
        fs::create_dir_all(&sessions).unwrap();
        fs::create_dir(&workspace).unwrap();
        let line = |(role, text): &(&str, &str)| json!({"type": "message", "message": {"role": role, "content": text}});
        let lines: Vec<_> = said.iter().map(|said| line(said).to_string()).collect();
        fs::write(sessions.join("old-1.jsonl"), lines.join("\n")).unwrap();
        Self { _temp: temp, state, workspace }
    }

    fn listener(&self, config: &Value, slug: Option<TextFunction>) -> SessionMemory {
        let places = (self.state.clone(), self.workspace.clone());
        let house = BundledServices { slug, ..BundledServices::default() };
        SessionMemory::new(Vec::new(), places, config.as_object().unwrap(), &house)
    }

    fn kept(&self) -> Vec<(String, String)> {
        let files =
            fs::read_dir(self.workspace.join("memory")).into_iter().flatten().map(|entry| entry.unwrap().path());
        let read =
            |path: PathBuf| (path.file_name().unwrap().display().to_string(), fs::read_to_string(&path).unwrap());
        let mut kept: Vec<_> = files.map(read).collect();
        kept.sort();
        kept
    }
}

fn signal(context: &Value) -> InternalEvent {
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
    signal(&json!({"sessionEntry": {"sessionId": "new-1"}, "previousSessionEntry": old, "commandSource": "webchat"}))
}

#[tokio::test]
async fn the_end_of_a_conversation_is_kept_as_openclaw_keeps_it() {
    let place = MemoryFixture::new(&[("user", "hello"), ("assistant", "aye"), ("user", "/new")]);
    place.listener(&json!({}), None).handle(&new_conversation()).await.unwrap();
    let text = "# Session: 2026-11-15 02:32:37 UTC\n\n- **Session Key**: agent:main:main\n- **Session ID**: old-1\n\
                - **Source**: webchat\n\n## Conversation Summary\n\nuser: hello\nassistant: aye\n";
    assert_eq!(place.kept(), [("2026-11-15-0232.md".to_owned(), text.to_owned())]);
}

#[tokio::test]
async fn the_house_says_best_where_a_transcript_is() {
    let place = MemoryFixture::new(&[("user", "hello")]);
    let elsewhere = place.state.join("elsewhere.jsonl");
    fs::rename(place.state.join("agents/main/sessions/old-1.jsonl"), &elsewhere).unwrap();
    let context = json!({"previousSessionEntry": {"sessionId": "old-1"}, "sessionFile": elsewhere});
    place.listener(&json!({}), None).handle(&signal(&context)).await.unwrap();
    assert_eq!(place.kept().len(), 1);
}

#[tokio::test]
async fn nothing_is_overwritten_and_only_the_last_words_are_kept() {
    let said: Vec<_> = (0..40).map(|number| ("user", format!("word {number}"))).collect();
    let said: Vec<_> = said.iter().map(|(role, text)| (*role, text.as_str())).collect();
    let place = MemoryFixture::new(&said);
    let listener = place.listener(&json!({}), None);
    for _ in 0..2 {
        listener.handle(&new_conversation()).await.unwrap();
    }
    place.listener(&json!({"messages": 1}), None).handle(&new_conversation()).await.unwrap();
    let kept = place.kept();
    let names: Vec<_> = kept.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["2026-11-15-0232-2.md", "2026-11-15-0232-3.md", "2026-11-15-0232.md"]);
    let words = |at: usize| kept[at].1.lines().filter(|line| line.starts_with("user: ")).count();
    assert_eq!([words(0), words(1), words(2)], [15, 1, 15]);
    assert!(kept[1].1.ends_with("user: word 39\n"));
}

#[tokio::test]
async fn a_model_may_find_the_name_if_the_owner_wants_it() {
    let place = MemoryFixture::new(&[("user", "when is the water high?")]);
    let says = |answer: Result<&str, &str>| -> TextFunction {
        let answer = answer.map(ToOwned::to_owned).map_err(ToOwned::to_owned);
        Arc::new(move |question: String| {
            assert!(question.ends_with("user: when is the water high?"));
            std::future::ready(answer.clone()).boxed()
        })
    };
    let wanted = json!({"llmSlug": true});
    place.listener(&wanted, Some(says(Ok(" The **Tides**/../x\n")))).handle(&new_conversation()).await.unwrap();
    place.listener(&wanted, Some(says(Ok("…")))).handle(&new_conversation()).await.unwrap();
    place.listener(&wanted, Some(says(Err("no key")))).handle(&new_conversation()).await.unwrap();
    place.listener(&json!({}), Some(says(Ok("unasked")))).handle(&new_conversation()).await.unwrap();
    let names: Vec<_> = place.kept().into_iter().map(|(name, _)| name).collect();
    let expected = ["2026-11-15-0232-2.md", "2026-11-15-0232-3.md", "2026-11-15-0232.md", "2026-11-15-the-tides-x.md"];
    assert_eq!(names, expected);
}

#[tokio::test]
async fn where_nothing_was_said_nothing_is_kept() {
    let place = MemoryFixture::new(&[("user", "/status"), ("toolResult", "x")]);
    let listener = place.listener(&json!({}), None);
    listener.handle(&new_conversation()).await.unwrap();
    for context in [
        json!({}),
        json!({"previousSessionEntry": {"sessionId": "gone"}}),
        json!({"previousSessionEntry": {"sessionId": "../../../etc/passwd"}}),
        json!({"previousSessionEntry": {"sessionId": "old-1"}, "agentId": ".."}),
    ] {
        assert_eq!(listener.handle(&signal(&context)).await, Ok(ListenerResult::default()), "{context}");
    }
    assert_eq!(place.kept(), []);
}

#[tokio::test]
async fn a_memory_folder_that_leads_elsewhere_is_left_alone() {
    let place = MemoryFixture::new(&[("user", "hello")]);
    let elsewhere = place.state.join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, place.workspace.join("memory")).unwrap();
    let told = place.listener(&json!({}), None).handle(&new_conversation()).await.unwrap_err().to_string();
    assert!(told.ends_with("memory: it is a link that leads out of the workspace"), "{told}");
    assert_eq!(fs::read_dir(elsewhere).unwrap().count(), 0);
}
