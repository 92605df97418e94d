//! R12: a conversation continues with another model, from each wire format to each; see pairs/README.md.
#![allow(clippy::unwrap_used, reason = "tests may")]

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use homard_model::{ModelSpec, ReasoningLevel, Request, ToolSpec};
use homard_proto::message::{Message, StopReason, User};
use homard_providers::{ModelTarget, Wire};
use homard_store::repair;
use homard_testkit::fake_provider::{check, dialect::WireFormat};
use serde_json::{Value, json};

/// Returns the model for a wire format.
fn target(dialect: WireFormat) -> ModelTarget {
    let (provider, model, base_url) = match dialect {
        WireFormat::Anthropic => ("anthropic", "claude-opus-4-6", "https://api.anthropic.com"),
        WireFormat::Chat => ("deepseek", "deepseek-reasoner", "https://api.deepseek.com/v1"),
        WireFormat::Responses => ("openai", "gpt-5.6", "https://api.openai.com/v1"),
        WireFormat::Gemini => ("google", "gemini-3.8-flash", "https://generativelanguage.googleapis.com/v1beta"),
    };
    let spec = ModelSpec {
        provider: provider.to_owned(),
        model: model.to_owned(),
        api: dialect.api().to_owned(),
        max_output: 8_192,
        thinking: vec![ReasoningLevel::Low, ReasoningLevel::High],
        accepts_images: true,
        ..ModelSpec::default()
    };
    ModelTarget::new(spec, base_url)
}

fn folder(from: WireFormat) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pairs").join(from.api())
}

fn history(from: WireFormat) -> Vec<Arc<Message>> {
    serde_json::from_slice(&fs::read(folder(from).join("history.json")).unwrap()).unwrap()
}

fn repaired(history: &[Arc<Message>], to: WireFormat) -> Vec<Arc<Message>> {
    let ModelSpec { api, provider, model, .. } = target(to).spec;
    repair::for_model(history, &repair::ProviderPolicy::of(&api, &provider, &model))
}

fn encoded(messages: Vec<Arc<Message>>, to: WireFormat) -> Value {
    let tool = |name: &str| ToolSpec {
        name: name.to_owned(),
        description: format!("The tool {name}."),
        parameters: json!({"type": "object", "properties": {"path": {"type": "string"}}}),
    };
    let request = Request {
        system: "Be brief.".into(),
        messages,
        tools: ["ls", "read", "write"].map(tool).into(),
        thinking: ReasoningLevel::Low,
        session: Some("session-1".into()),
        ..Request::default()
    };
    let wire = Wire::from_api(to.api()).unwrap();
    serde_json::from_slice(&wire.encode(&target(to), &request).unwrap()).unwrap()
}

fn pairs() -> impl Iterator<Item = (WireFormat, WireFormat)> {
    WireFormat::ALL.into_iter().flat_map(|from| WireFormat::ALL.map(|to| (from, to)))
}

fn ids(history: &[Arc<Message>]) -> HashSet<String> {
    let call_ids = |message: &Arc<Message>| match &**message {
        Message::Assistant(answer) => answer.tool_calls().map(|call| call.id.clone()).collect(),
        Message::User(_) | Message::ToolResult(_) | Message::Other(_) => Vec::new(),
    };
    history.iter().flat_map(call_ids).collect()
}

/// Returns what a vendor rejects in a request; ids that it issued itself are accepted.
fn rejections(from: WireFormat, to: WireFormat, body: &Value) -> Vec<String> {
    let own = if from == to { ids(&history(from)) } else { HashSet::new() };
    check::violations(to, body, &own)
}

/// Compares a value with a golden file; `BLESS=1` updates the file.
#[allow(clippy::disallowed_methods, reason = "a switch for whoever runs the tests")]
fn compare(golden: &Path, actual: &Value) {
    if std::env::var_os("BLESS").is_some() {
        fs::create_dir_all(golden.parent().unwrap()).unwrap();
        fs::write(golden, format!("{actual:#}\n")).unwrap();
    }
    let expected: Value = serde_json::from_slice(&fs::read(golden).unwrap_or_default()).unwrap_or_default();
    assert!(expected == *actual, "{} should hold, if this is right:\n{actual:#}", golden.display());
}

#[test]
fn a_conversation_of_each_wire_format_can_be_sent_in_each() {
    for (from, to) in pairs() {
        let body = encoded(repaired(&history(from), to), to);
        compare(&folder(from).join("to").join(format!("{}.json", to.api())), &body);
        assert_eq!(rejections(from, to, &body), Vec::<String>::new(), "{from:?} to {to:?}");
    }
}

#[test]
fn joined_ids_are_never_sent_unchanged() {
    for to in WireFormat::ALL {
        let history = history(WireFormat::Responses);
        assert!(ids(&history).iter().all(|id| id.contains('|')));
        for messages in [history.clone(), repaired(&history, to)] {
            let body = encoded(messages, to).to_string();
            assert!(ids(&history).iter().all(|id| !body.contains(id.as_str())), "{to:?} gets {body}");
        }
    }
}

#[test]
fn a_run_interrupted_at_any_point_continues_with_any_model() {
    let next: Arc<Message> = Message::User(User::text("Go on.", 1)).into();
    for (from, to) in pairs() {
        let history = history(from);
        for end in 1..=history.len() {
            // As left by a crash, an abort and an error.
            for stop in [None, Some(StopReason::Aborted), Some(StopReason::Error)] {
                let mut interrupted = history[..end].to_vec();
                if let (Some(stop), Some(Message::Assistant(answer))) =
                    (stop, interrupted.last_mut().map(Arc::make_mut))
                {
                    answer.stop_reason = stop;
                }
                interrupted.push(next.clone());
                let body = encoded(repaired(&interrupted, to), to);
                assert_eq!(
                    rejections(from, to, &body),
                    Vec::<String>::new(),
                    "{from:?} to {to:?}, {end} messages, {stop:?}"
                );
                let unrepaired = encoded(interrupted, to);
                assert_eq!(
                    rejections(from, to, &unrepaired),
                    Vec::<String>::new(),
                    "{from:?} to {to:?}, {end}, unrepaired"
                );
            }
        }
    }
}
