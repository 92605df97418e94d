//! Tests of answers that are withheld after a `message` call.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::payload::Kind;

fn origin() -> Route {
    Route::new(Some("telegram"), Some("42"), None, None)
}

fn after_call(arguments: &Value) -> SentTexts {
    let mut sent = SentTexts::default();
    let call = CallId::parse("c").unwrap();
    sent.begin(&call, "message", arguments, &origin());
    sent.end(&call, false);
    sent
}

fn after_text(text: &str) -> SentTexts {
    after_call(&json!({"action": "send", "target": "42", "message": text}))
}

fn is_delivered(sent: &SentTexts, text: &str) -> bool {
    let payload = Payload::answer(text);
    match sent.withhold(payload.clone(), sent.input()) {
        (Some(remaining), None) => {
            assert_eq!(remaining, payload, "a text is said as a whole");
            true
        }
        (None, Some(withheld)) => {
            assert_eq!((withheld.text.as_str(), withheld.call.as_str()), (text, "c"));
            false
        }
        other => panic!("{other:?}"),
    }
}

const REPORT: &str = "The **report** is ready, see the shared folder. I wrote it at 7:45.";

#[test]
fn a_repetition_is_withheld() {
    for (answer, repetition) in [
        (REPORT, Repetition::Same),
        ("  the REPORT is ready;\n see _the_ shared folder! 🎉 I wrote it at 7:45", Repetition::Same),
        ("> The report is ready, see the shared folder.\n> I wrote it at 7:45.", Repetition::Same),
        ("The report is ready, see the shared folder.", Repetition::Part),
        ("I wrote it at 7:45.", Repetition::Part),
        ("Done: The report is ready, see the shared folder. I wrote it at 7:45.", Repetition::Introduced),
    ] {
        let sent = after_text(REPORT);
        assert_eq!(sent.repetition(answer, 0).map(|(_, how)| how), Some(repetition), "{answer}");
        assert!(!is_delivered(&sent, answer), "{answer}");
    }
}

/// Acceptance D1: each of these was lost before.
#[test]
fn other_answers_are_sent() {
    for (sent, answer) in [
        ("Working on it, this takes a minute.", "The result of the long computation is 42, as you expected."),
        ("Working on it, this takes a minute.", "Working on it, this takes a minute. The result is 42."),
        (
            "Working on it, this takes a minute.",
            "I told you: \"Working on it, this takes a minute.\" Now it is done, and here is what came of it.",
        ),
        // The answer follows the confirmation and is short.
        (
            "I am running all tests of the project now, which will take about a minute.",
            "I am running all tests of the project now, which will take about a minute. No, they fail.",
        ),
        // Words of a sentence are not the sentence.
        ("I will see whether the door is locked and tell you.", "The door is locked"),
        ("It is 41 degrees in the server room today.", "It is 42 degrees in the server room today."),
        ("The difference is -5 in the end.", "The difference is 5 in the end."),
        ("We have a < b for all of them.", "We have a > b for all of them."),
        ("Okay, done then.", "Done"),
        ("👍", "👎"),
    ] {
        assert!(is_delivered(&after_text(sent), answer), "{sent} / {answer}");
    }
    assert!(!is_delivered(&after_text("👍"), " 👍 "));
    assert!(!is_delivered(&after_text("Ok."), "ok"), "equal texts may be short");
}

#[test]
fn all_ways_to_send_to_the_origin_count() {
    for arguments in [
        json!({"action": "send", "target": "42", "message": "Hello there!"}),
        json!({"action": "reply", "message": "Hello there!"}),
        json!({"action": "send", "channel": "Telegram", "target": "telegram:42", "message": "Hello there!"}),
        json!({"action": "broadcast", "channel": "telegram", "targets": ["7", "42"], "message": "Hello there!"}),
    ] {
        let sent = after_call(&arguments);
        assert!(sent.is_answered() && !is_delivered(&sent, "hello there"), "{arguments}");
        assert!(is_delivered(&sent, "I have told them everything."), "{arguments}");
    }
}

#[test]
fn media_that_no_tool_sent_is_sent() {
    let remaining = |sent: &SentTexts, payload: Payload| sent.withhold(payload, 0).0;
    let sent = after_call(&json!({"action": "send", "target": "42", "message": "Look at this", "media": "a.png"}));
    let with_media = |media: &[&str]| Payload {
        media: media.iter().map(|&media| media.to_owned()).collect(),
        ..Payload::answer("Look at this!")
    };
    assert_eq!(remaining(&sent, with_media(&["a.png"])), None);
    let unsent = Payload { text: String::new(), ..with_media(&["b.png"]) };
    assert_eq!(remaining(&sent, with_media(&["a.png", "b.png"])), Some(unsent));
    let to_other = after_call(&json!({"action": "send", "target": "7", "message": "Look at this", "media": "a.png"}));
    assert_eq!(
        remaining(&to_other, with_media(&["a.png"])),
        Some(with_media(&["a.png"])),
        "others have seen it, nobody here"
    );
}

#[test]
fn a_message_to_another_conversation_withholds_nothing() {
    for arguments in [
        json!({"action": "send", "target": "43", "message": "Hello there!"}),
        json!({"action": "send", "channel": "slack", "target": "42", "message": "Hello there!"}),
        json!({"action": "send", "target": "42", "message": "Hello there!", "dryRun": true}),
        json!({"action": "react", "target": "42", "emoji": "x", "message": "Hello there!"}),
    ] {
        let sent = after_call(&arguments);
        assert!(is_delivered(&sent, "Hello there!") && !sent.is_answered(), "{arguments}");
    }
    let arguments = json!({"action": "send", "target": "42", "threadId": "9", "message": "Hello there!"});
    for (thread, is_same) in [(Some("8"), false), (Some("9"), true), (None, true)] {
        let mut sent = SentTexts::default();
        let call = CallId::parse("c").unwrap();
        sent.begin(&call, "message", &arguments, &Route { thread: thread.map(str::to_owned), ..origin() });
        sent.end(&call, false);
        assert_eq!(sent.is_answered(), is_same, "{thread:?}");
    }
}

#[test]
fn a_call_that_failed_or_went_to_a_session_withholds_nothing() {
    let call = CallId::parse("c").unwrap();
    let arguments = json!({"action": "send", "target": "42", "message": "Hello out there!"});
    let mut sent = SentTexts::default();
    sent.begin(&call, "message", &arguments, &origin());
    sent.end(&call, true);
    sent.end(&call, false);
    sent.begin(&call, "sessions_send", &json!({"message": "Hello out there!", "sessionKey": "main"}), &origin());
    sent.end(&call, false);
    assert!(is_delivered(&sent, "Hello out there!"));
}

#[test]
fn the_answer_to_a_later_message_may_be_the_same() {
    let mut sent = after_text("It is done.");
    assert!(!is_delivered(&sent, "It is done."));
    sent.next_input();
    assert!(is_delivered(&sent, "It is done."));
    assert!(!sent.may_repeat("It is"));
    assert!(sent.repetition("It is done.", 0).is_some(), "what was said before the message stays a repetition");
}

#[test]
fn the_number_of_stored_texts_is_bounded() {
    let mut sent = SentTexts::default();
    for number in 0..=MAX_STORED {
        let call = CallId::parse("c").unwrap();
        let message = format!("This is message {number:05}.");
        sent.begin(&call, "message", &json!({"action": "send", "target": "42", "message": message}), &origin());
        sent.end(&call, false);
    }
    assert_eq!(sent.texts.len(), MAX_STORED);
    assert!(is_delivered(&sent, "This is message 00000.") && !is_delivered(&sent, "This is message 00001."));
}

/// OpenClaw's comparisons of two texts, where they cannot lose an answer.
#[test]
fn recorded_comparisons_match_openclaw() {
    for (text, sent, is_repeated) in [
        ("Done! 🎉  Sent it.", "done! sent it.", true),
        ("Totally different text here", "I sent the report", false),
        // FIX: OpenClaw matches these two in both directions; but a part of a sentence can mean something else.
        ("I sent the report to Bob", "Sent: I sent the report to Bob today", false),
        ("Sent: I sent the report to Bob today", "I sent the report to Bob", false),
        // FIX: OpenClaw never compares short texts; an equal one is still a repetition.
        ("short", "short", true),
    ] {
        assert_eq!(!is_delivered(&after_text(sent), text), is_repeated, "{text}");
    }
}

/// Sentences of words.
fn sentences(letters: &'static str) -> impl Strategy<Value = Vec<String>> {
    let word = proptest::string::string_regex(letters).unwrap();
    let sentence = prop::collection::vec(word, 1..6).prop_map(|words| format!("{}.", words.join(" ")));
    prop::collection::vec(sentence, 1..5)
}

/// The same words with other decoration.
fn decorate(text: &str, seed: &[u8]) -> String {
    let mut decorated = String::new();
    for (at, word) in text.split(' ').enumerate() {
        decorated += match seed[at % seed.len()] % 5 {
            0 => "\n",
            1 => "  ",
            2 => " 🎉 ",
            _ => " ",
        };
        match seed[at % seed.len()] % 4 {
            0 => decorated += &word.to_uppercase(),
            1 => decorated += &format!("**{word}**"),
            2 => decorated += word.trim_end_matches('.'),
            _ => decorated += &format!("\"{word}\""),
        }
    }
    decorated
}

proptest! {
    #[test]
    fn decoration_makes_no_difference(text in sentences("[a-e]{1,6}"), seed in prop::collection::vec(any::<u8>(), 1..20)) {
        let text = text.join(" ");
        let decorated = decorate(&text, &seed);
        prop_assert!(!is_delivered(&after_text(&text), &decorated), "{}", decorated);
        prop_assert!(!is_delivered(&after_text(&decorated), &text), "{}", decorated);
    }

    #[test]
    fn a_text_with_a_new_word_after_it_is_sent(sent in sentences("[a-e]{1,6}"), more in "[v-z]{1,6}", gap in "[ \n:.]{1,3}") {
        let sent = sent.join(" ");
        let answer = format!("{sent}{gap} {more}");
        prop_assert!(is_delivered(&after_text(&sent), &answer), "{}", answer);
    }

    #[test]
    fn a_new_text_is_sent(sent in sentences("[a-e]{1,6}"), answer in sentences("[v-z]{1,6}")) {
        prop_assert!(is_delivered(&after_text(&sent.join(" ")), &answer.join(" ")));
    }

    #[test]
    fn a_long_answer_with_a_quotation_is_sent(
        before in sentences("[v-z]{3,6}"), sent in sentences("[a-e]{1,6}"), after in sentences("[v-z]{3,6}"),
    ) {
        let answer = format!("{}\n> {}\n{}", before.join(" "), sent.join(" "), after.join(" "));
        prop_assert!(is_delivered(&after_text(&sent.join(" ")), &answer), "{}", answer);
    }

    /// A text that is withheld in the end is held back from its first word on, unless it has an introduction.
    #[test]
    fn a_repetition_is_detected_from_its_first_word(
        text in sentences("[a-e]{1,6}"), from in 0usize..4, until in 1usize..5, end in 0usize..80,
    ) {
        let sent = after_text(&text.join(" "));
        let until = until.min(text.len());
        let part = text[from.min(until - 1)..until].join(" ");
        let so_far = part.chars().take(end).collect::<String>();
        prop_assert!(sent.may_repeat(&so_far), "{:?} of {:?}", so_far, text);
    }

    #[test]
    fn answers_are_withheld_or_sent_unchanged(sent in "\\PC{0,40}", answer in "\\PC{0,40}") {
        let payload = Payload { kind: Kind::Answer, ..Payload::answer(answer) };
        let (remaining, withheld) = after_text(&sent).withhold(payload.clone(), 0);
        prop_assert_eq!(remaining.is_some(), withheld.is_none() && !(payload.text.trim().is_empty() && sent.trim().is_empty()));
        prop_assert!(remaining.is_none_or(|remaining| remaining == payload));
    }
}
