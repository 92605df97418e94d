//! Tests of answers that are withheld after a `message` call.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::payload::Kind;

fn origin() -> Route {
    Route::new(Some("telegram"), Some("42"), None, None)
}

fn after(arguments: &Value) -> SentTexts {
    let mut sent = SentTexts::default();
    let call = CallId::parse("c").unwrap();
    sent.begin(&call, "message", arguments, &origin());
    sent.end(&call, false);
    sent
}

fn after_text(text: &str) -> SentTexts {
    after(&json!({"action": "send", "target": "42", "message": text}))
}

fn is_said(sent: &SentTexts, text: &str) -> bool {
    let payload = Payload::answer(text);
    match sent.withhold(payload.clone(), sent.input()) {
        (Some(left), None) => {
            assert_eq!(left, payload, "a text is said as a whole");
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
    for (said, repetition) in [
        (REPORT, Repetition::Same),
        ("  the REPORT is ready;\n see _the_ shared folder! 🎉 I wrote it at 7:45", Repetition::Same),
        ("> The report is ready, see the shared folder.\n> I wrote it at 7:45.", Repetition::Same),
        ("The report is ready, see the shared folder.", Repetition::Part),
        ("I wrote it at 7:45.", Repetition::Part),
        ("Done: The report is ready, see the shared folder. I wrote it at 7:45.", Repetition::Introduced),
    ] {
        let sent = after_text(REPORT);
        assert_eq!(sent.repetition(said, 0).map(|(_, how)| how), Some(repetition), "{said}");
        assert!(!is_said(&sent, said), "{said}");
    }
}

/// Acceptance D1: each of these was lost before.
#[test]
fn everything_else_arrives() {
    for (sent, said) in [
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
        assert!(is_said(&after_text(sent), said), "{sent} / {said}");
    }
    assert!(!is_said(&after_text("👍"), " 👍 "));
    assert!(!is_said(&after_text("Ok."), "ok"), "equal texts may be short");
}

#[test]
fn every_way_to_send_here_counts() {
    for arguments in [
        json!({"action": "send", "target": "42", "message": "Hello there!"}),
        json!({"action": "reply", "message": "Hello there!"}),
        json!({"action": "send", "channel": "Telegram", "target": "telegram:42", "message": "Hello there!"}),
        json!({"action": "broadcast", "channel": "telegram", "targets": ["7", "42"], "message": "Hello there!"}),
    ] {
        let sent = after(&arguments);
        assert!(sent.is_answered() && !is_said(&sent, "hello there"), "{arguments}");
        assert!(is_said(&sent, "I have told them everything."), "{arguments}");
    }
}

#[test]
fn media_that_no_tool_sent_goes_out() {
    let left = |sent: &SentTexts, payload: Payload| sent.withhold(payload, 0).0;
    let sent = after(&json!({"action": "send", "target": "42", "message": "Look at this", "media": "a.png"}));
    let look = |media: &[&str]| Payload {
        media: media.iter().map(|&media| media.to_owned()).collect(),
        ..Payload::answer("Look at this!")
    };
    assert_eq!(left(&sent, look(&["a.png"])), None);
    let fresh = Payload { text: String::new(), ..look(&["b.png"]) };
    assert_eq!(left(&sent, look(&["a.png", "b.png"])), Some(fresh));
    let others = after(&json!({"action": "send", "target": "7", "message": "Look at this", "media": "a.png"}));
    assert_eq!(left(&others, look(&["a.png"])), Some(look(&["a.png"])), "others have seen it, nobody here");
}

#[test]
fn a_message_to_another_conversation_withholds_nothing() {
    for arguments in [
        json!({"action": "send", "target": "43", "message": "Hello there!"}),
        json!({"action": "send", "channel": "slack", "target": "42", "message": "Hello there!"}),
        json!({"action": "send", "target": "42", "message": "Hello there!", "dryRun": true}),
        json!({"action": "react", "target": "42", "emoji": "x", "message": "Hello there!"}),
    ] {
        let sent = after(&arguments);
        assert!(is_said(&sent, "Hello there!") && !sent.is_answered(), "{arguments}");
    }
    let arguments = json!({"action": "send", "target": "42", "threadId": "9", "message": "Hello there!"});
    for (thread, is_here) in [(Some("8"), false), (Some("9"), true), (None, true)] {
        let mut sent = SentTexts::default();
        let call = CallId::parse("c").unwrap();
        sent.begin(&call, "message", &arguments, &Route { thread: thread.map(str::to_owned), ..origin() });
        sent.end(&call, false);
        assert_eq!(sent.is_answered(), is_here, "{thread:?}");
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
    assert!(is_said(&sent, "Hello out there!"));
}

#[test]
fn the_answer_to_a_later_message_may_be_the_same() {
    let mut sent = after_text("It is done.");
    assert!(!is_said(&sent, "It is done."));
    sent.next_input();
    assert!(is_said(&sent, "It is done."));
    assert!(!sent.may_repeat("It is"));
    assert!(sent.repetition("It is done.", 0).is_some(), "what was said before the message stays a repetition");
}

#[test]
fn only_so_much_is_remembered() {
    let mut sent = SentTexts::default();
    for number in 0..=MAX_STORED {
        let call = CallId::parse("c").unwrap();
        let message = format!("This is message {number:05}.");
        sent.begin(&call, "message", &json!({"action": "send", "target": "42", "message": message}), &origin());
        sent.end(&call, false);
    }
    assert_eq!(sent.texts.len(), MAX_STORED);
    assert!(is_said(&sent, "This is message 00000.") && !is_said(&sent, "This is message 00001."));
}

/// OpenClaw's comparisons of two texts, where they cannot lose an answer.
#[test]
fn recorded_comparisons_hold() {
    for (text, sent, is_repeated) in [
        ("Done! 🎉  Sent it.", "done! sent it.", true),
        ("Totally different text here", "I sent the report", false),
        // FIX: OpenClaw matches these two in both directions; but a part of a sentence can mean something else.
        ("I sent the report to Bob", "Sent: I sent the report to Bob today", false),
        ("Sent: I sent the report to Bob today", "I sent the report to Bob", false),
        // FIX: OpenClaw never compares short texts; an equal one is still a repetition.
        ("short", "short", true),
    ] {
        assert_eq!(!is_said(&after_text(sent), text), is_repeated, "{text}");
    }
}

/// Sentences of words.
fn sentences(letters: &'static str) -> impl Strategy<Value = Vec<String>> {
    let word = proptest::string::string_regex(letters).unwrap();
    let sentence = prop::collection::vec(word, 1..6).prop_map(|words| format!("{}.", words.join(" ")));
    prop::collection::vec(sentence, 1..5)
}

/// The same words with other decoration.
fn dress(text: &str, seed: &[u8]) -> String {
    let mut dressed = String::new();
    for (at, word) in text.split(' ').enumerate() {
        dressed += match seed[at % seed.len()] % 5 {
            0 => "\n",
            1 => "  ",
            2 => " 🎉 ",
            _ => " ",
        };
        match seed[at % seed.len()] % 4 {
            0 => dressed += &word.to_uppercase(),
            1 => dressed += &format!("**{word}**"),
            2 => dressed += word.trim_end_matches('.'),
            _ => dressed += &format!("\"{word}\""),
        }
    }
    dressed
}

proptest! {
    #[test]
    fn dress_makes_no_difference(text in sentences("[a-e]{1,6}"), seed in prop::collection::vec(any::<u8>(), 1..20)) {
        let text = text.join(" ");
        let dressed = dress(&text, &seed);
        prop_assert!(!is_said(&after_text(&text), &dressed), "{}", dressed);
        prop_assert!(!is_said(&after_text(&dressed), &text), "{}", dressed);
    }

    #[test]
    fn a_text_with_a_new_word_behind_it_is_said(sent in sentences("[a-e]{1,6}"), more in "[v-z]{1,6}", gap in "[ \n:.]{1,3}") {
        let sent = sent.join(" ");
        let said = format!("{sent}{gap} {more}");
        prop_assert!(is_said(&after_text(&sent), &said), "{}", said);
    }

    #[test]
    fn a_text_that_was_not_sent_is_said(sent in sentences("[a-e]{1,6}"), said in sentences("[v-z]{1,6}")) {
        prop_assert!(is_said(&after_text(&sent.join(" ")), &said.join(" ")));
    }

    #[test]
    fn a_long_answer_with_a_quotation_is_said(
        before in sentences("[v-z]{3,6}"), sent in sentences("[a-e]{1,6}"), after in sentences("[v-z]{3,6}"),
    ) {
        let said = format!("{}\n> {}\n{}", before.join(" "), sent.join(" "), after.join(" "));
        prop_assert!(is_said(&after_text(&sent.join(" ")), &said), "{}", said);
    }

    /// A text that is withheld in the end is held back from its first word on, unless it has an introduction.
    #[test]
    fn a_repetition_is_seen_from_its_first_word_on(
        text in sentences("[a-e]{1,6}"), from in 0usize..4, until in 1usize..5, end in 0usize..80,
    ) {
        let sent = after_text(&text.join(" "));
        let until = until.min(text.len());
        let part = text[from.min(until - 1)..until].join(" ");
        let so_far = part.chars().take(end).collect::<String>();
        prop_assert!(sent.may_repeat(&so_far), "{:?} of {:?}", so_far, text);
    }

    #[test]
    fn errors_are_shaped_elsewhere_and_answers_are_never_changed(sent in "\\PC{0,40}", said in "\\PC{0,40}") {
        let payload = Payload { kind: Kind::Answer, ..Payload::answer(said) };
        let (left, withheld) = after_text(&sent).withhold(payload.clone(), 0);
        prop_assert_eq!(left.is_some(), withheld.is_none() && !(payload.text.trim().is_empty() && sent.trim().is_empty()));
        prop_assert!(left.is_none_or(|left| left == payload));
    }
}
