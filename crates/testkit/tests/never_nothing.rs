//! Whatever a model says and however it fails, the sender gets an answer, a permitted silence, or an error; and
//! reasoning and control tokens are never shown.
#![allow(clippy::unwrap_used, reason = "tests may")]

use std::{collections::BTreeSet, fmt::Write as _};

use homard_agent::{
    Outcome, QueueEvent, REPLY_NUDGE, ReplyEvent, RequestEvent, RunEnd, RunEvent, StoredEvent, Tape, TapeEvent,
    wire::{ClientEvent, RunProjection},
};
use homard_proto::{
    Generation,
    event::{ChatEvent, ChatState, Stream},
    message::Message,
};
use homard_reply::payload::{Kind, Payload};
use homard_testkit::{Trace, TraceResult, invariants, play};
use proptest::{collection::vec, option, prelude::*, sample::select, strategy::ValueTree, test_runner::TestRunner};
use serde_json::json;

/// Occurs in all reasoning.
const REASONING_MARK: &str = "plotting";

/// An answer of the model in trace format.
#[derive(Debug, Clone)]
struct GeneratedAnswer {
    reasoning: bool,
    /// The text, in the deltas in which it arrives.
    pieces: Vec<String>,
    calls: Vec<GeneratedCall>,
    end: &'static str,
}

/// A tool call and its result.
#[derive(Debug, Clone)]
struct GeneratedCall {
    tool: &'static str,
    arguments: &'static str,
    result: &'static str,
}

/// A message to the agent.
#[derive(Debug, Clone)]
struct GeneratedMessage {
    verb: &'static str,
    at: u64,
    session: &'static str,
    /// True if the reply is sent in blocks.
    blocks: bool,
}

const GROUP: &str = "key=agent:main:telegram:group:7";

/// Generates text before the answer that must not be shown to the user.
fn prelude() -> impl Strategy<Value = String> {
    let fragments = vec![
        "<think>plotting</think>",
        "< Thinking >plotting `x\n</ thinking >\n",
        "<thought>plotting <b>more</b> plotting</thought>",
        "<think>plotting</think><antthinking>plotting\n\nplotting</antthinking>\n\n",
        "[[reply_to_current]]",
        "[[reply_to: 42 ]] ",
        "[[audio_as_voice]]\n",
        "\nMEDIA:./cat.png\n",
        "\nMEDIA:https://example.com/a.png\n",
        "<final>",
        " \n\t",
    ];
    vec(select(fragments), 0..3).prop_map(|parts| parts.concat())
}

/// Generates the final text of a model.
fn final_text() -> impl Strategy<Value = String> {
    let quote = select(vec!["", " ", "\n", "`", "**", "\"", "_", "("]);
    let token = select(vec!["NO_REPLY", "no_reply", "No_Reply", "HEARTBEAT_OK"]);
    let tail = select(vec!["", ".", "!", "…", "\n\n", " "]);
    let quoted_token = (quote, token, tail).prop_map(|(quote, token, tail)| {
        let close = if quote == "(" { ")" } else { quote };
        format!("{quote}{token}{close}{tail}")
    });
    prop_oneof![
        3 => Just(String::new()),
        4 => quoted_token.clone(),
        // As the whole text the token is case-insensitive, beside other text it is case-sensitive.
        1 => quoted_token.prop_filter("as it is written", |word| !word.contains("reply") && !word.contains("Reply"))
            .prop_map(|word| format!("All is done. {word}")),
        1 => select(vec!["<think>plotting", "<think>plotting </thin", "<think", "[[reply_to", "N", "NO_", "`NO_REP"])
            .prop_map(str::to_owned),
        3 => select(vec![
            "Yes.", "Yes.", "Two\n\nparagraphs.  ", "```\n<b>code</b>\n```\n", "<final>Marked.</final>", "🦞", "a < b",
            "MEDIA:/etc/passwd", "{\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"boom\"}}",
        ]).prop_map(str::to_owned),
    ]
}

/// Splits a text into deltas.
fn pieces() -> impl Strategy<Value = Vec<String>> {
    (prelude(), final_text(), vec(1..9usize, 0..12)).prop_map(|(prelude, answer, sizes)| {
        let text: Vec<_> = format!("{prelude}{answer}").chars().collect();
        let mut rest = text.as_slice();
        let mut pieces = Vec::new();
        for size in sizes {
            let (piece, after) = rest.split_at(size.min(rest.len()));
            pieces.push(piece.iter().collect());
            rest = after;
        }
        pieces.push(rest.iter().collect());
        pieces
    })
}

fn calls() -> impl Strategy<Value = GeneratedCall> {
    let tool =
        select(vec![("read", r#"{"path":"x"}"#), ("exec", r#"{"cmd":"make"}"#), ("nosuch", "{}"), ("read", "{}")]);
    let result = select(vec![
        "says \"fine\"",
        "says \"\"",
        "fails \"no such file\"",
        "fails \"path is required\"",
        "fails \"\"",
        "panics \"bug\"",
        "takes 3s says \"late\"",
    ]);
    (tool, result).prop_map(|((tool, arguments), result)| GeneratedCall { tool, arguments, result })
}

fn answers() -> impl Strategy<Value = GeneratedAnswer> {
    let end = prop_oneof![
        12 => Just(""),
        2 => select(vec!["stop length", "stop stop", "stop error", "stop aborted", "cut", "hang", "panic \"bug\""]),
        3 => select(vec![
            "fail connect \"refused\"", "fail timeout \"slow\"", "fail rate-limit \"429\"", "fail overloaded \"529\"",
            "fail server \"500\"", "fail auth \"401\"", "fail billing \"402\"", "fail rejected \"400\"",
            "fail overflow \"prompt is too long\"", "fail content-filter \"no\"", "fail malformed \"<html>\"",
            "fail truncated \"eof\"", "fail rejected \"\"",
        ]),
    ];
    let calls = prop_oneof![2 => Just(Vec::new()), 1 => vec(calls(), 1..3)];
    (proptest::bool::weighted(0.3), option::weighted(0.9, pieces()), calls, end).prop_map(
        |(reasoning, pieces, calls, end)| GeneratedAnswer { reasoning, pieces: pieces.unwrap_or_default(), calls, end },
    )
}

fn messages() -> impl Strategy<Value = GeneratedMessage> {
    let verb = select(vec!["say", "chat", "chat", "chat mode=steer", "chat mode=collect", "chat mode=interrupt"]);
    let session = select(vec!["", "", GROUP]);
    (verb, 0..4_000u64, session, proptest::bool::weighted(0.3))
        .prop_map(|(verb, at, session, blocks)| GeneratedMessage { verb, at, session, blocks })
}

/// Formats the conversation as a trace.
fn write(settings: &str, messages: &[GeneratedMessage], answers: &[GeneratedAnswer], abort: Option<u64>) -> String {
    let mut text = format!("set {settings} turns=6\n");
    for (number, GeneratedMessage { verb, at, session, blocks }) in (1..).zip(messages) {
        let at = if number == 1 { 0 } else { *at };
        let (verb, mode) = verb.split_once(' ').unwrap_or((verb, ""));
        let blocks = if *blocks && verb == "chat" { "blocks=\"5..60\" channel=slack to=c1" } else { "" };
        writeln!(text, "at {at}ms {verb} \"go {number}\" run=k{number} {session} {mode} {blocks}").unwrap();
    }
    if let Some(at) = abort {
        writeln!(text, "at {at}ms abort k1").unwrap();
    }
    let mut number = 0;
    for GeneratedAnswer { reasoning, pieces, calls, end } in answers {
        let mut steps = Vec::new();
        if *reasoning {
            steps.push(format!("think {}", json!(REASONING_MARK)));
        }
        if !pieces.is_empty() {
            let pieces: Vec<_> = pieces.iter().map(|piece| json!(piece).to_string()).collect();
            steps.push(format!("text {}", pieces.join(" | 200ms | ")));
        }
        for GeneratedCall { tool, arguments, result } in calls {
            number += 1;
            steps.push(format!("call c{number} {tool} {arguments}"));
            writeln!(text, "tool c{number} {result}").unwrap();
        }
        steps.push("usage in=1".to_owned());
        steps.extend((!end.is_empty()).then(|| (*end).to_owned()));
        writeln!(text, "model {}", steps.join(" ; ")).unwrap();
    }
    text
}

/// Returns violations, except those caused by random turns that are missing or unused.
fn violations(result: &TraceResult) -> Vec<String> {
    let is_random = |problem: &str| {
        ["were never asked for", "was never called", "no turn is left for it"].iter().any(|end| problem.ends_with(end))
    };
    // Another model receives reasoning as text.
    let is_reasoning =
        |problem: &str| problem.contains("a line that is not on disk") && problem.contains(REASONING_MARK);
    invariants::violations(result).into_iter().filter(|problem| !is_random(problem) && !is_reasoning(problem)).collect()
}

/// A run as a client sees it.
#[derive(Default)]
struct ClientView {
    /// Every text in an `assistant` or `chat` event.
    shown: Vec<String>,
    /// Concatenation of the `chat` deltas.
    chat_text: String,
    last: Option<ChatEvent>,
}

fn view(tape: &Tape, events: &[TapeEvent]) -> ClientView {
    let mut projection = RunProjection::new(tape.run(), tape.key());
    let mut view = ClientView::default();
    for event in events {
        let mut client_events = projection.push(event.clone());
        client_events.extend(projection.flush());
        client_events.extend([Generation::Three, Generation::Four].into_iter().filter_map(|it| projection.delta(it)));
        client_events.into_iter().for_each(|client_event| view.see(client_event));
    }
    view
}

impl ClientView {
    fn see(&mut self, event: ClientEvent) {
        let text =
            |chat: &ChatEvent| chat.message.as_ref().map(|it| it["content"][0]["text"].as_str().unwrap().to_owned());
        match event {
            ClientEvent::Agent(step) if step.stream == Stream::Assistant => self.shown.push(step.data.to_string()),
            ClientEvent::Agent(_) => {}
            ClientEvent::Delta(generation, delta) => {
                self.shown.extend(text(&delta));
                if generation == Generation::Four {
                    let delta_text = delta.delta_text.unwrap();
                    self.chat_text = if delta.replace == Some(true) {
                        delta_text
                    } else {
                        format!("{}{delta_text}", self.chat_text)
                    };
                }
            }
            ClientEvent::Chat(chat) => {
                self.shown.extend(text(&chat));
                self.last = Some(chat);
            }
        }
    }
}

/// True if it was absorbed, so that its reply is that of another run.
fn is_absorbed(events: &[TapeEvent]) -> bool {
    events.iter().any(|event| matches!(event.kind, RunEvent::Queue(QueueEvent::Absorbed { .. })))
}

/// Removes white space.
fn without_whitespace(text: &str) -> String {
    text.split_whitespace().collect()
}

/// True if the reply is readable.
fn is_answer(reply: &Payload) -> bool {
    matches!(reply.kind, Kind::Answer | Kind::Error) && !reply.is_empty()
}

/// Returns the replies sent in blocks, followed by those at the end.
fn delivered(events: &[TapeEvent], end: &RunEnd) -> Vec<Payload> {
    let blocks = events.iter().filter_map(|event| {
        let RunEvent::Reply(ReplyEvent::Block(block)) = &event.kind else { return None };
        Some((**block).clone())
    });
    blocks.chain(end.replies.iter().cloned()).collect()
}

/// Returns what is wrong with the end of a run, from the sender's point of view.
fn end_violation(tape: &Tape, end: &RunEnd, replies: &[Payload], view: &ClientView) -> Option<&'static str> {
    let last = view.last.as_ref()?;
    match &end.outcome {
        Outcome::Failed(_) if last.error_message.as_ref().is_none_or(|why| why.trim().is_empty()) => {
            Some("failed, and nobody is told why")
        }
        Outcome::Failed(_) | Outcome::Aborted(_) => None,
        Outcome::Done if replies.iter().any(is_answer) => {
            (last.state != ChatState::Final || last.message.is_none()).then_some("answers and does not tell")
        }
        Outcome::Done if !replies.is_empty() => Some("has replies, and none is an answer"),
        Outcome::Done if last.message.is_some() => Some("tells of an answer and has none"),
        Outcome::Done => (tape.key().kind() != "group").then_some("says nothing"),
    }
}

/// True if the model was asked again after an empty answer, and then chose silence explicitly.
fn chose_silence(result: &TraceResult, events: &[TapeEvent]) -> bool {
    let last_messages = result.requests().iter().filter_map(|recorded| recorded.request.messages.last());
    let is_nudge = |message: &Message| matches!(message, Message::User(user) if user.content.text() == REPLY_NUDGE);
    let last_text = events.iter().rev().find_map(|event| {
        let RunEvent::Stored(StoredEvent::Assistant { message: answer, .. }) = &event.kind else { return None };
        Some(answer.text())
    });
    last_messages.into_iter().any(|message| is_nudge(message))
        && last_text.is_some_and(|text| text.to_lowercase().contains("no_reply"))
}

/// Generates a conversation.
fn conversations() -> impl Strategy<Value = String> {
    let settings = select(vec![
        "retries=0",
        "retries=2",
        "retries=1 fallback=40000",
        "reasoning=on thinks=\"low\"",
        "reasoning=stream",
        "provider=ollama",
        "verbose=full tools=sequential",
        "timeout=5s",
    ]);
    let abort = option::weighted(0.1, 0..2_000u64);
    (settings, vec(messages(), 1..3), vec(answers(), 1..8), abort)
        .prop_map(|(settings, messages, answers, abort)| write(settings, &messages, &answers, abort))
}

/// Classifies the end of a conversation, from the sender's point of view.
fn ending(result: &TraceResult, tape: &Tape, events: &[TapeEvent]) -> &'static str {
    let Some(TapeEvent { kind: RunEvent::Stored(StoredEvent::Ended(end)), .. }) = events.last() else { return "none" };
    let replies = delivered(events, end);
    let has = |kind: Kind| replies.iter().any(|reply| reply.kind == kind);
    match &end.outcome {
        Outcome::Failed(_) => "failure",
        Outcome::Aborted(_) => "stop",
        Outcome::Done if is_absorbed(events) => "guest",
        Outcome::Done if has(Kind::Error) => "error",
        Outcome::Done if has(Kind::Answer) => "answer",
        Outcome::Done if tape.key().kind() == "group" => "silence of a group",
        Outcome::Done if chose_silence(result, events) => "silence that is meant",
        Outcome::Done => "nothing",
    }
}

// The property below proves little unless the generator reaches all of these.
#[test]
fn random_conversations_reach_every_allowed_ending_and_no_other() {
    let mut runner = TestRunner::deterministic();
    let mut endings = BTreeSet::new();
    for _ in 0..300 {
        let text = conversations().new_tree(&mut runner).unwrap().current();
        let result = play(&Trace::read("here", &text).unwrap()).unwrap();
        endings.extend(result.runs().map(|(tape, events)| ending(&result, tape, events)));
    }
    let allowed = ["answer", "error", "failure", "guest", "silence of a group", "silence that is meant", "stop"];
    assert_eq!(endings, BTreeSet::from(allowed));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_sender_gets_an_answer_a_chosen_silence_or_an_error(text in conversations()) {
        let result = play(&Trace::read("here", &text).unwrap()).unwrap();
        prop_assert_eq!(violations(&result), Vec::<String>::new(), "{}", text);
        for (tape, events) in result.runs() {
            let Some(TapeEvent { kind: RunEvent::Stored(StoredEvent::Ended(end)), .. }) = events.last() else { continue };
            let view = view(tape, events);
            let is_absorbed_run = is_absorbed(events);
            let replies = delivered(events, end);
            let problem = end_violation(tape, end, &replies, &view).filter(|_| !is_absorbed_run);
            let problem = problem.filter(|problem| *problem != "says nothing" || !chose_silence(&result, events));
            prop_assert_eq!(problem, None, "{}\n{}", tape.run(), text);

            let has_reasoning = replies.iter().any(|reply| reply.kind == Kind::Reasoning);
            let texts = replies.iter().filter(|reply| reply.kind != Kind::Reasoning).map(|reply| &reply.text);
            let visible = view.shown.iter().filter(|_| !has_reasoning).chain(texts);
            for visible in visible.map(|text| text.to_lowercase()) {
                for word in [REASONING_MARK, "no_reply", "heartbeat_ok"] {
                    prop_assert!(!visible.contains(word), "{}\n{}", visible, text);
                }
            }

            let answers = replies.iter().filter(|reply| reply.kind == Kind::Answer).map(|reply| reply.text.trim());
            let answer_text = answers.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n\n");
            let is_whole = end.outcome == Outcome::Done && replies.iter().all(|reply| reply.kind != Kind::Error);
            // Between blocks there is white space in the text. If discarded text is followed by none, only the last
            // event says so, and blocks that were already sent stay although they were discarded.
            let has_blocks = replies.len() > end.replies.len();
            let has_reset = events.iter().any(|event| matches!(event.kind, RunEvent::Model(RequestEvent::MessageReset { .. })));
            let is_same = if has_blocks {
                without_whitespace(&answer_text) == without_whitespace(&view.chat_text)
            } else {
                answer_text == view.chat_text
            };
            let is_exempt = is_absorbed_run || has_reset && (has_blocks || answer_text.is_empty());
            prop_assert!(!is_whole || is_exempt || is_same, "{:?} {:?}\n{}", answer_text, view.chat_text, text);
        }
    }
}
