//! Tests of what a user receives at the end of a run.

use proptest::prelude::*;

use super::*;
use crate::{
    parse_stream::{ParseRules, parse_message},
    payload::ReplyTo,
};

const NOTHING: &str = "The model ended without an answer. Ask again, or choose another one with /model.";

/// A run with the fields that tests need.
#[derive(Debug, Clone, Default)]
struct Run {
    messages: Vec<Payload>,
    error: Option<String>,
    tools: Vec<String>,
    reasoning: Option<String>,
    failure: Option<ToolFailure>,
    ending: ModelEnding,
    delivered: Vec<Payload>,
    is_answered: bool,
    expectation: Expectation,
}

impl Run {
    fn with_texts(texts: &[&str]) -> Self {
        Self { messages: texts.iter().map(|text| Payload::answer(*text)).collect(), ..Self::default() }
    }

    fn shape(self) -> ShapedReplies {
        shape(RunReplies {
            messages: self.messages,
            error: self.error,
            tools: self.tools,
            reasoning: self.reasoning,
            failure: self.failure,
            ending: self.ending,
            delivered: &self.delivered,
            is_answered: self.is_answered,
            expectation: self.expectation,
        })
    }
}

fn failed(error: &str) -> Option<ToolFailure> {
    Some(ToolFailure { label: "🛠️ Exec: ls".to_owned(), error: error.to_owned() })
}

fn of(kind: Kind, text: &str) -> Payload {
    Payload { kind, ..Payload::answer(text) }
}

fn answered(payloads: &[Payload]) -> ShapedReplies {
    ShapedReplies { payloads: payloads.to_vec(), status: ReplyStatus::Answered }
}

fn nothing(status: ReplyStatus) -> ShapedReplies {
    ShapedReplies { payloads: Vec::new(), status }
}

#[test]
fn the_order_is_error_tools_reasoning_texts() {
    let run = Run {
        error: Some("demo: gone".to_owned()),
        tools: vec!["📖 Read".to_owned()],
        reasoning: Some("I think".to_owned()),
        failure: failed("no such file"),
        ..Run::with_texts(&["One", " ", "Two"])
    };
    let expected = [
        of(Kind::Error, "demo: gone"),
        of(Kind::Tool, "📖 Read"),
        of(Kind::Reasoning, "Reasoning:\n_I think_"),
        Payload::answer("One"),
        Payload::answer("Two"),
    ];
    assert_eq!(run.shape(), answered(&expected));
}

#[test]
fn directives_of_a_message_are_applied() {
    for (message, ending, expected) in [
        ("NO_REPLY", ModelEnding::Silence, None),
        ("no_reply", ModelEnding::Silence, None),
        ("NO_REPLYING now", ModelEnding::Text, Some(Payload::answer("NO_REPLYING now"))),
        ("Done. NO_REPLY", ModelEnding::Text, Some(Payload::answer("Done."))),
        ("Here is the plan. NO_REPLY", ModelEnding::Text, Some(Payload::answer("Here is the plan."))),
        ("HEARTBEAT_OK all good", ModelEnding::Text, Some(Payload::answer("all good"))),
        (
            "[[reply_to:m7]] Look [[audio_as_voice]]\nMEDIA:\"./a b.mp3\"",
            ModelEnding::Text,
            Some(Payload {
                media: vec!["./a b.mp3".to_owned()],
                reply_to: Some(ReplyTo::Id("m7".to_owned())),
                is_voice: true,
                ..Payload::answer("Look")
            }),
        ),
    ] {
        let parsed = parse_message(message, ParseRules::default());
        let ended = if parsed.found.is_silent { ModelEnding::Silence } else { ModelEnding::Text };
        let run =
            Run { messages: vec![parsed.into()], ending: ended, expectation: Expectation::Free, ..Run::default() };
        let status = if expected.is_some() { ReplyStatus::Answered } else { ReplyStatus::Silent };
        let expected = ShapedReplies { payloads: expected.into_iter().collect(), status };
        assert_eq!((ended, run.shape()), (ending, expected), "{message}");
    }
}

#[test]
fn an_allowed_silence_is_silent() {
    let silent = Run {
        ending: ModelEnding::Silence,
        expectation: Expectation::Free,
        failure: failed("no such file"),
        ..Run::default()
    };
    assert_eq!(silent.shape(), nothing(ReplyStatus::Silent));
    assert_eq!(Run { expectation: Expectation::Free, ..Run::default() }.shape(), nothing(ReplyStatus::Silent));
}

#[test]
fn silence_where_an_answer_is_required_is_missing() {
    for ending in [ModelEnding::Silence, ModelEnding::Text] {
        let run = Run { ending, ..Run::default() };
        assert_eq!(run.clone().shape(), nothing(ReplyStatus::Missing), "{ending:?}");
        let again = Run { expectation: Expectation::LastAnswer, ..run };
        assert_eq!(again.shape(), answered(&[of(Kind::Error, NOTHING)]), "{ending:?}");
    }
    let silent = Run { ending: ModelEnding::Silence, failure: failed("no such file"), ..Run::default() };
    assert_eq!(silent.shape(), nothing(ReplyStatus::Missing));
}

#[test]
fn silence_with_an_image_sends_the_image() {
    let image = Payload { media: vec!["./a.png".to_owned()], ..Payload::default() };
    let run = Run { messages: vec![image.clone()], ending: ModelEnding::Silence, ..Run::default() };
    assert_eq!(run.shape(), answered(&[image]));
}

#[test]
fn reasoning_alone_is_no_answer() {
    let run = Run { reasoning: Some("Hm".to_owned()), ..Run::default() };
    let reasoning = of(Kind::Reasoning, "Reasoning:\n_Hm_");
    assert_eq!(run.clone().shape(), ShapedReplies { payloads: vec![reasoning], status: ReplyStatus::Missing });
    // If no answer is expected, nothing is sent.
    for ending in [ModelEnding::Text, ModelEnding::Silence] {
        assert_eq!(Run { ending, expectation: Expectation::Free, ..run.clone() }.shape(), nothing(ReplyStatus::Silent));
    }
}

#[test]
fn calls_for_the_caller_need_no_text() {
    assert_eq!(Run { ending: ModelEnding::Calls, ..Run::default() }.shape(), nothing(ReplyStatus::Silent));
}

#[test]
fn an_answer_after_a_message_to_the_same_chat_is_sent() {
    let run = Run { is_answered: true, ..Run::with_texts(&["The result is 42."]) };
    assert_eq!(run.shape(), answered(&[Payload::answer("The result is 42.")]));
    // Without an answer of the model, the message that its tool sent suffices.
    for expectation in [Expectation::Answer, Expectation::LastAnswer, Expectation::Free] {
        assert_eq!(Run { is_answered: true, expectation, ..Run::default() }.shape(), nothing(ReplyStatus::Answered));
    }
}

#[test]
fn an_error_is_sent_although_a_message_was_sent() {
    let run = Run { error: Some("demo: gone".to_owned()), is_answered: true, ..Run::default() };
    assert_eq!(run.shape(), answered(&[of(Kind::Error, "demo: gone")]));
}

#[test]
fn a_failed_tool_is_named_when_nothing_else_is_sent() {
    let run = Run { failure: failed("no such file\n"), ..Run::default() };
    let warning = of(Kind::Error, "⚠️ 🛠️ Exec: ls failed: no such file");
    assert_eq!(run.clone().shape(), answered(std::slice::from_ref(&warning)));
    assert_eq!(Run { expectation: Expectation::Free, ..run.clone() }.shape(), answered(&[warning]));
    let with_answer = Run { messages: vec![Payload::answer("It is not there.")], ..run.clone() };
    assert_eq!(with_answer.shape(), answered(&[Payload::answer("It is not there.")]));
    assert_eq!(Run { delivered: vec![Payload::answer("Hm")], ..run.clone() }.shape(), nothing(ReplyStatus::Answered));
    assert_eq!(Run { is_answered: true, ..run }.shape(), nothing(ReplyStatus::Answered));
}

#[test]
fn an_invalid_call_is_reported_only_if_nothing_else_is() {
    let run = Run { failure: failed("Missing parameter: path"), ..Run::default() };
    assert_eq!(run.clone().shape(), nothing(ReplyStatus::Missing));
    assert_eq!(Run { expectation: Expectation::Free, ..run.clone() }.shape(), nothing(ReplyStatus::Silent));
    let warning = of(Kind::Error, "⚠️ 🛠️ Exec: ls failed: Missing parameter: path");
    assert_eq!(Run { expectation: Expectation::LastAnswer, ..run }.shape(), answered(&[warning]));
}

const RAW: &str = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;

#[test]
fn an_error_that_is_also_the_text_appears_once() {
    let explained = failure::explain(RAW);
    let run = Run { error: Some(RAW.to_owned()), ..Run::with_texts(&[RAW, &explained, "Half an ans"]) };
    assert_eq!(run.shape(), answered(&[of(Kind::Error, &explained), Payload::answer("Half an ans")]));
    assert_eq!(Run::with_texts(&[RAW]).shape(), answered(&[of(Kind::Error, &explained)]));
}

#[test]
fn answers_about_errors_are_not_changed() {
    for text in [
        "A context overflow: the prompt is too long for the model, so it exceeds the context window.",
        "Your billing plan has no credits left; upgrade it for more.",
        "HTTP 429 means too many requests.",
    ] {
        assert_eq!(Run::with_texts(&[text]).shape(), answered(&[Payload::answer(text)]));
    }
}

#[test]
fn text_sent_in_blocks_is_not_sent_again() {
    let run = Run::with_texts(&["One.\n\nTwo.", "Three."]);
    let after = |texts: &[&str]| {
        let delivered = texts.iter().map(|text| Payload::answer(*text)).collect();
        Run { delivered, ..run.clone() }.shape()
    };
    assert_eq!(after(&["One.", "Two.", "Three."]), nothing(ReplyStatus::Answered));
    // A send hung: the later text remains to be sent.
    assert_eq!(after(&["One."]), answered(&[Payload::answer("Two."), Payload::answer("Three.")]));
    // Another model started differently.
    assert_eq!(after(&["Well,"]), answered(&[Payload::answer("One.\n\nTwo."), Payload::answer("Three.")]));
}

#[test]
fn an_error_after_blocks_is_sent() {
    let run = Run {
        error: Some("demo: gone".to_owned()),
        delivered: vec![Payload::answer("One.")],
        ..Run::with_texts(&["One.\n\nTw"])
    };
    assert_eq!(run.shape(), answered(&[of(Kind::Error, "demo: gone"), Payload::answer("Tw")]));
}

#[test]
fn reasoning_that_was_sent_is_not_sent_again() {
    let reasoning = of(Kind::Reasoning, "Reasoning:\n_Hm_");
    let run = Run { reasoning: Some("Hm".to_owned()), delivered: vec![reasoning], ..Run::with_texts(&["One."]) };
    assert_eq!(run.shape(), answered(&[Payload::answer("One.")]));
}

#[test]
fn one_voice_tag_makes_all_media_voice() {
    let audio = Payload { media: vec!["./a.mp3".to_owned()], ..Payload::default() };
    let run = Run {
        messages: vec![audio.clone(), Payload { is_voice: true, ..Payload::answer("Listen") }],
        ..Run::default()
    };
    let expected = [Payload { is_voice: true, ..audio }, Payload { is_voice: true, ..Payload::answer("Listen") }];
    assert_eq!(run.shape(), answered(&expected));
}

fn any_run() -> impl Strategy<Value = Run> {
    let text = prop::sample::select(vec!["", " ", "One.", "Two. Three.", "Dinner is at eight.", RAW]);
    let texts = prop::collection::vec(text.clone(), 0..4);
    let maybe = prop::option::of(text);
    let ending = prop::sample::select(vec![ModelEnding::Text, ModelEnding::Silence, ModelEnding::Calls]);
    let failure = prop::option::of(prop::sample::select(vec!["missing path", "broken", ""]));
    (texts.clone(), texts, maybe, any::<bool>(), ending, failure).prop_map(
        |(answers, delivered, error, is_answered, ending, failure)| Run {
            delivered: delivered.into_iter().map(Payload::answer).collect(),
            error: error.map(str::to_owned),
            is_answered,
            failure: failure.and_then(failed),
            ending,
            ..Run::with_texts(&answers)
        },
    )
}

proptest! {
    #[test]
    fn a_user_always_gets_an_answer(run in any_run()) {
        let has = |payloads: &[Payload]| payloads.iter().any(is_answer);
        let (before, was_answered) = (has(&run.delivered), run.is_answered);
        let (first, has_calls) = (run.clone().shape(), run.ending == ModelEnding::Calls);
        prop_assert_eq!(first.status == ReplyStatus::Answered, has(&first.payloads) || before || was_answered);
        prop_assert!(first.payloads.iter().all(|payload| !payload.is_empty()));
        let last = Run { expectation: Expectation::LastAnswer, ..run }.shape();
        prop_assert_eq!(has(&last.payloads) || before || was_answered || has_calls, true);
        prop_assert_ne!(last.status, ReplyStatus::Missing);
    }
}
