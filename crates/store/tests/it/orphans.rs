//! R13: every provider accepts a corpus of broken transcripts, each followed by a new message.
//!
//! A file of `orphans/` contains the lines after the header (a string for a garbled line), and what a lenient provider
//! sees.

use std::{fs, path::Path, sync::Arc};

use homard_proto::{
    message::{Message, User},
    transcript::{Entry, Line},
};
use homard_store::{branch, repair};
use serde::Deserialize;
use serde_json::Value;

use crate::{folder, format_history, provider::PROVIDERS, samples};

#[derive(Deserialize)]
struct Case {
    lines: Vec<Value>,
    seen: String,
}

/// Builds the history of these lines followed by a new user message. Lines that cannot be parsed are skipped.
fn next_turn(lines: impl Iterator<Item = Value>) -> Vec<Arc<Message>> {
    let entries: Vec<Entry> = lines.filter_map(|line| serde_json::from_value(line).ok()).collect();
    let mut history = branch::messages(&entries);
    history.push(Arc::new(Message::User(User::text("next", 0))));
    history
}

fn user_text(history: &[Arc<Message>]) -> String {
    let texts = history.iter().filter_map(|message| match &**message {
        Message::User(user) => Some(user.content.text()),
        Message::Assistant(_) | Message::ToolResult(_) | Message::Other(_) => None,
    });
    texts.collect()
}

/// Checks that every provider accepts the repaired history, and that no user message is missing.
fn accepted_everywhere(history: &[Arc<Message>], path: &Path) {
    for provider in PROVIDERS {
        let request = repair::for_model(history, &provider.policy());
        if let Err(reason) = provider.check(&request) {
            panic!("{}: {reason}\n{}", path.display(), format_history(&request));
        }
        assert!(user_text(&request).ends_with(&user_text(history)), "{}: {}", path.display(), format_history(&request));
    }
}

#[test]
fn r13_every_orphan_shape_accepts_another_turn() {
    let mut paths: Vec<_> = fs::read_dir(folder("orphans")).unwrap().map(|item| item.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() >= 30, "{} shapes are not a corpus", paths.len());
    for path in paths {
        let case: Case = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let history = next_turn(case.lines.into_iter());
        let lenient = repair::for_model(&history, &PROVIDERS[0].policy());
        assert_eq!(format_history(&lenient), case.seen, "{}", path.display());
        accepted_everywhere(&history, &path);
    }
}

#[test]
fn the_fake_providers_reject_a_broken_history() {
    let path = folder("orphans/killed_while_the_tool_was_at_work.json");
    let case: Case = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let history = next_turn(case.lines.into_iter());
    let reason = PROVIDERS[0].check(&history).unwrap_err();
    assert_eq!(reason, "openai-completions/openai/gpt-5: message 2: calls [\"t1\"] have no result right behind them");
    assert!(PROVIDERS.iter().all(|provider| provider.check(&history).is_err()));
}

#[test]
fn every_recorded_transcript_accepts_another_turn() {
    let Some(samples) = samples("every recorded transcript takes another turn") else { return };
    let mut folders = vec![samples.join("state")];
    let mut transcripts = 0;
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(&folder).unwrap().map(|item| item.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "jsonl") {
                let text = fs::read_to_string(&path).unwrap();
                let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
                assert!(matches!(serde_json::from_value(lines[0].clone()).unwrap(), Line::Header(_)));
                accepted_everywhere(&next_turn(lines.into_iter().skip(1)), &path);
                transcripts += 1;
            }
        }
    }
    assert!(transcripts >= 6, "{transcripts} transcripts");
}
