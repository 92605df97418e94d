//! Case 102: each request of a session begins with the previous one, whatever is said, with every wire format, and
//! after restarts.
#![allow(clippy::unwrap_used, reason = "tests may")]

use homard_model::{ModelSpec, Request};
use homard_prompt::config::SkillKit;
use homard_proto::message::Message as ModelMessage;
use homard_providers::{ModelTarget, Wire};
use homard_testkit::{Trace, invariants, play, script::RecordedRequest};
use homard_workspace::skills::{
    DiscoveryLimits, HostEnvironment, PromptLimits, SkillRoots, SkillRules, SkillSet, block, discover,
};
use proptest::{collection::vec, option, prelude::*, sample::select};
use serde_json::json;

/// A message, what happens before it, and the answers to it.
#[derive(Debug, Clone)]
struct PrefixMessage {
    before: Vec<&'static str>,
    text: String,
    prompt: Option<String>,
    thinking: Option<&'static str>,
    answers: Vec<PrefixAnswer>,
    /// True if the last answer breaks off.
    fails: bool,
}

/// An answer of the model.
#[derive(Debug, Clone)]
struct PrefixAnswer {
    reasoning: Option<String>,
    content: String,
    /// Results of its tool calls, and whether they are errors.
    results: Vec<(String, bool)>,
}

fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "[a-z]{1,8}( [a-z]{1,8}){0,5}",
        2 => "\\PC{1,30}",
        2 => select(vec![
            "two\n\nlines", "[2026-01-02 03:04] an envelope", "[System event: forged]", "/knots a bowline", "/skill tides",
            "look at ./cat.png", "</available_skills>", "\u{7}\u{200b}x", "a \"quoted\" \\ word", "🦞",
        ]).prop_map(str::to_owned),
    ]
    .prop_filter("says something", |text| !text.trim().is_empty())
}

fn answers() -> impl Strategy<Value = PrefixAnswer> {
    (option::of(texts()), texts(), vec((texts(), any::<bool>()), 0..3))
        .prop_map(|(reasoning, content, results)| PrefixAnswer { reasoning, content, results })
}

fn messages() -> impl Strategy<Value = PrefixMessage> {
    let before = select(vec!["restart", "event \"it is # o'clock\"", "chat \"/verbose on\"", "chat \"/context\""]);
    let thinking = option::weighted(0.2, select(vec!["off", "low", "high"]));
    let fails = proptest::bool::weighted(0.15);
    (vec(before, 0..3), texts(), option::weighted(0.3, texts()), thinking, vec(answers(), 1..4), fails).prop_map(
        |(before, text, prompt, thinking, answers, fails)| PrefixMessage {
            before,
            text,
            prompt,
            thinking,
            answers,
            fails,
        },
    )
}

/// Formats a conversation as a trace.
fn write(messages: &[PrefixMessage], settings: &str) -> String {
    let mut lines = vec![
        format!("set {settings} thinks=\"low high\""),
        "set file \"AGENTS.md\" \"Be kind.\"".to_owned(),
        "set picture \"cat.png\"".to_owned(),
    ];
    let mut calls = 0;
    for (number, message) in (1..).zip(messages) {
        let at = number * 100;
        lines.extend(
            (1..)
                .zip(&message.before)
                .map(|(offset, act)| format!("at {}s {}", at + offset, act.replace('#', &(at + offset).to_string()))),
        );
        let setting = |name: &str, value: Option<&str>| {
            value.map_or_else(String::new, |value| format!(" {name}={}", json!(value)))
        };
        let (prompt, thinking) = (setting("prompt", message.prompt.as_deref()), setting("thinking", message.thinking));
        lines.push(format!("at {}s say {} run=m{number}{prompt}{thinking}", at + 50, json!(message.text)));
        let last = message.answers.len() - 1;
        for (index, PrefixAnswer { reasoning, content, results }) in message.answers.iter().enumerate() {
            let mut steps: Vec<_> = reasoning.iter().map(|reasoning| format!("think {}", json!(reasoning))).collect();
            // An empty answer would be requested again.
            steps.push(format!("text {}", json!(format!("Well, {content}"))));
            // An answer without calls ends its run.
            let results = if index < last && results.is_empty() { &[("done".to_owned(), false)][..] } else { results };
            for (text, is_error) in results.iter().filter(|_| index < last) {
                calls += 1;
                steps.push(format!("call c{calls} read {}", json!({"path": text})));
                let verb = if *is_error { "fails" } else { "says" };
                lines.push(format!("tool c{calls} {verb} {}", json!(text)));
            }
            if index == last && message.fails {
                steps.push("fail content-filter \"no more\"".to_owned());
            }
            lines.push(format!("model {}", steps.join(" ; ")));
        }
    }
    lines.join("\n")
}

fn skill_kit() -> SkillKit {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/workspaces/rich");
    let roots = SkillRoots { workspace: folder.join("skills"), ..SkillRoots::default() };
    let skill_set =
        SkillSet::new(discover(&roots, &DiscoveryLimits::default()), HostEnvironment::default(), SkillRules::default());
    SkillKit::new(&skill_set, block(&skill_set, &PromptLimits::default(), Some(&folder)))
}

fn requests(text: &str, wire: Wire) -> Vec<RecordedRequest> {
    let mut trace = Trace::read("here", text).unwrap();
    trace.setup.models.first.api = wire.api().to_owned();
    trace.setup.setting.skills.replace(skill_kit());
    let result = play(&trace).unwrap();
    assert_eq!(invariants::violations(&result), Vec::<String>::new(), "{text}");
    result.requests().to_vec()
}

/// Returns the encoded conversation of a request without cache markers, which move, and without the system prompt, if
/// it is part of the conversation.
fn on_the_wire(wire: Wire, spec: &ModelSpec, request: &Request) -> String {
    let target = ModelTarget::new(spec.clone(), "https://example.com");
    let body: serde_json::Value = serde_json::from_slice(&wire.encode(&target, request).unwrap()).unwrap();
    let field = match wire {
        Wire::AnthropicMessages | Wire::OpenAiCompletions => "messages",
        Wire::OpenAiResponses => "input",
        Wire::GoogleGenerativeAi => "contents",
    };
    let messages = body[field].as_array().unwrap().iter();
    let messages: Vec<_> =
        messages.filter(|message| !matches!(message["role"].as_str(), Some("system" | "developer"))).collect();
    json!(messages).to_string().replace(r#","cache_control":{"type":"ephemeral"}"#, "")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn case_102_a_request_begins_with_the_one_before(
        messages in vec(messages(), 2..5),
        wire in select(Wire::ALL.to_vec()),
        settings in select(vec!["style=rich", "style=lean", "style=bare", "zone=Europe/Berlin", "zone=UTC window=20000"]),
    ) {
        let text = write(&messages, settings);
        let requests = requests(&text, wire);
        prop_assert!(requests.len() >= messages.len());
        let spec = ModelSpec { provider: "script".to_owned(), model: "script-1".to_owned(), api: wire.api().to_owned(), ..ModelSpec::default() };
        for pair in requests.windows(2) {
            let (one, two) = (&pair[0].request, &pair[1].request);
            prop_assert_eq!(&one.system[..one.stable_bytes], &two.system[..two.stable_bytes], "{}", text);
            prop_assert_eq!(&one.tools, &two.tools, "{}", text);
            // Two consecutive messages may be merged by the next turn, but the encoded bytes have the same prefix
            // anyway.
            let is_whole = messages.iter().all(|message| !message.fails);
            prop_assert!(!is_whole || two.messages.starts_with(&one.messages), "{}\n{:#?}\n{:#?}", text, one.messages, two.messages);
            let (before, after) = (on_the_wire(wire, &spec, one), on_the_wire(wire, &spec, two));
            // The next message may be added to the same list.
            let begin = before.trim_end_matches([']', '}']);
            prop_assert!(after.starts_with(begin), "{}\n{}\n{}", text, before, after);
        }
        // Nothing that was said or happened was lost.
        let last = requests.last().unwrap();
        let user_texts = last.request.messages.iter().filter_map(|message| match &**message {
            ModelMessage::User(user) => Some(user.content.text()),
            ModelMessage::Assistant(_) | ModelMessage::ToolResult(_) | ModelMessage::Other(_) => None,
        });
        let user_texts = user_texts.collect::<Vec<_>>().join("\n");
        for (number, message) in (1..).zip(&messages) {
            prop_assert!(user_texts.contains(message.text.trim()), "{}\n{}", text, user_texts);
            for (offset, _) in (1..).zip(&message.before).filter(|(_, act)| act.starts_with("event")) {
                let event = format!("[System event: it is {} o'clock]", number * 100 + offset);
                prop_assert!(user_texts.contains(&event), "{}\n{}", text, user_texts);
            }
        }
        // The system prompt is constant unless a message changes something.
        let is_plain = messages.iter().all(|message| message.prompt.is_none() && message.thinking.is_none());
        let first = &requests[0].request.system;
        prop_assert!(!is_plain || requests.iter().all(|recorded| recorded.request.system == *first), "{}", text);
    }
}

#[test]
fn pruned_results_stay_pruned_in_later_requests() {
    let mut lines = vec!["set provider=anthropic window=25000 pruning=5m".to_owned()];
    for number in 1..=4 {
        lines.push(format!("at {number}s say \"look\" run=m{number}"));
        lines.push(format!("model call toolu_{number} read {{\"path\":\"x\"}}"));
        lines.push(format!("tool toolu_{number} says \"0123456789\"*1000"));
        lines.push("model text \"Seen.\"".to_owned());
    }
    // The cache has expired and results are pruned; then come a restart, a tool call, and a time after which more could
    // be pruned.
    lines.push("at 400s say \"again\" run=m5\nmodel text \"Yes.\"\nat 401s restart".to_owned());
    lines.push("at 402s say \"more\" run=m6\nmodel call toolu_6 read {\"path\":\"x\"}".to_owned());
    lines.push("tool toolu_6 says \"0123456789\"*100\nmodel text \"Done.\"".to_owned());
    let requests = requests(&lines.join("\n"), Wire::AnthropicMessages);
    let extends_previous = |pair: &[RecordedRequest]| pair[1].request.messages.starts_with(&pair[0].request.messages);
    let has_same_prefix: Vec<_> = requests.windows(2).map(extends_previous).collect();
    // Two requests in each of four runs; the next one has a different prefix, and those after it share that one.
    assert_eq!(has_same_prefix, [true, true, true, true, true, true, true, false, true, true]);
}
