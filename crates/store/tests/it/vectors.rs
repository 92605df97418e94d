//! Vectors recorded from OpenClaw's own functions for small histories; where its result was wrong, the right one is
//! expected.

use std::{fs, path::Path, sync::Arc};

use homard_proto::message::{Assistant, Block, Message, StopReason, ToolCall, ToolResult, User};
use homard_store::repair::{self, ProviderPolicy};
use serde::Deserialize;
use serde_json::{Map, json};

use crate::{folder, format_history, samples};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Vectors {
    tool_ids: Vec<Renaming>,
    pairing: Vec<Pairing>,
}

#[derive(Deserialize)]
struct Renaming {
    ids: Vec<String>,
    strict: Vec<String>,
    strict9: Vec<String>,
}

#[derive(Deserialize)]
struct Pairing {
    r#in: String,
    out: String,
}

#[test]
fn golden_vectors_hold() {
    check(&folder("golden/loop-vectors.json"));
}

#[test]
fn every_recorded_vector_holds() {
    let Some(samples) = samples("every recorded vector") else { return };
    check(&samples.join("vectors/loop-vectors.json"));
}

fn check(path: &Path) {
    let vectors: Vectors = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    assert!(!vectors.pairing.is_empty() && !vectors.tool_ids.is_empty());
    vectors.pairing.iter().for_each(check_pairing);
    vectors.tool_ids.iter().for_each(check_ids);
}

fn check_pairing(vector: &Pairing) {
    let (stop, expected) = match vector.r#in.as_str() {
        // A result that was recorded twice must not be sent twice.
        "A(1) R(1) R(1)" => (StopReason::ToolUse, "A(1) R(1)"),
        // A reused id keeps the results of both calls.
        "A(1) R(1) U A(1) R(1)" => (StopReason::ToolUse, "A(1) R(1) U A(1) R(1)"),
        // These belong to failed messages. OpenClaw drops them later, before sending; here they are dropped at once.
        "A(1) U" | "A(1) R(1) U" => (StopReason::Error, "U"),
        _ => (StopReason::ToolUse, vector.out.as_str()),
    };
    let history: Vec<_> = vector.r#in.split(' ').map(|word| message(word, stop)).collect();
    assert_eq!(short(&repair::view(&history)), expected, "{}", vector.r#in);
}

fn message(word: &str, stop_reason: StopReason) -> Arc<Message> {
    let ids = word.trim_end_matches(')').split_once('(').map_or("", |(_, ids)| ids);
    Arc::new(match &word[..1] {
        "U" => Message::User(User::text("U", 0)),
        "A" => Message::Assistant(Assistant {
            content: ids.split(',').map(call).collect(),
            stop_reason,
            ..Assistant::default()
        }),
        "R" => Message::ToolResult(ToolResult {
            tool_call_id: ids.to_owned(),
            tool_name: "t".to_owned(),
            content: vec![Block::text("x")],
            details: None,
            is_error: false,
            timestamp: 0,
            extra: Map::new(),
        }),
        _ => panic!("{word}"),
    })
}

fn call(id: &str) -> Block {
    Block::ToolCall(ToolCall { id: id.to_owned(), name: "t".to_owned(), arguments: json!({}), extra: Map::new() })
}

/// Formats a history like the vectors: `!` marks a generated result.
fn short(history: &[Arc<Message>]) -> String {
    format_history(history)
        .replace(" | ", " ")
        .replace("a(", "A(")
        .replace("r(", "R(")
        .replace(":?", "!")
        .replace(":x", "")
}

/// OpenClaw reduces ids to letters and digits, so that two ids can collide, and uses a hash if fewer than nine remain.
/// Here ids stay distinct, and digits pad short ones; ids that OpenClaw did not have to generate are the same.
fn check_ids(vector: &Renaming) {
    let content = vector.ids.iter().map(|id| call(id)).collect();
    let history = [Arc::new(Message::Assistant(Assistant { content, ..Assistant::default() }))];
    let renamed = |policy: &ProviderPolicy| -> Vec<String> {
        let repaired_history = repair::for_model(&history, policy);
        let assistant = repaired_history.iter().find_map(|message| match &**message {
            Message::Assistant(assistant) => Some(assistant),
            Message::User(_) | Message::ToolResult(_) | Message::Other(_) => None,
        });
        assistant.unwrap().tool_calls().map(|call| call.id.clone()).collect()
    };
    let strict = renamed(&ProviderPolicy::of("google-generative-ai", "google", "gemini"));
    let strict9 = renamed(&ProviderPolicy::of("openai-completions", "mistral", "large"));
    assert!(strict9.iter().all(|id| id.len() == 9), "{strict9:?}");
    for (index, id) in vector.ids.iter().enumerate() {
        let usable_chars = id.chars().filter(char::is_ascii_alphanumeric).count();
        let is_first = !vector.strict[..index].contains(&vector.strict[index]);
        assert_eq!(strict[index] == vector.strict[index], is_first && usable_chars > 0, "{id}: {strict:?}");
        assert_eq!(strict9[index] == vector.strict9[index], is_first && usable_chars >= 9, "{id}: {strict9:?}");
    }
}
