//! What is said again and what is not.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn origin() -> Route {
    Route::new(Some("telegram"), Some("42"), None, None)
}

fn after(arguments: &Value) -> Sent {
    let mut sent = Sent::default();
    let call = CallId::parse("c").unwrap();
    sent.begin(&call, "message", arguments, &origin());
    sent.end(&call, false);
    sent
}

fn is_said(sent: &Sent, text: &str) -> bool {
    let payload = Payload::answer(text);
    match sent.left(payload.clone(), &origin()) {
        Some(left) => {
            assert_eq!(left, payload, "a text is said as a whole");
            true
        }
        None => false,
    }
}

const ELSEWHERE: &str = "The report is ready, see the shared folder.";

fn elsewhere() -> Sent {
    after(&json!({"action": "send", "channel": "slack", "target": "C1", "message": ELSEWHERE}))
}

#[test]
fn what_was_sent_is_not_said_again() {
    let sent = elsewhere();
    for said in [
        ELSEWHERE,
        "  the REPORT is ready,\n see the shared folder. 🎉",
        "the report is ready",
        "Done: The report is ready, see the shared folder.",
    ] {
        assert!(!is_said(&sent, said), "{said}");
    }
}

#[test]
fn a_new_answer_that_quotes_what_was_sent_is_said() {
    let said = format!("I wrote to them: \"{ELSEWHERE}\". They will look at it on Monday, so let us wait until then.");
    for said in [said.as_str(), "ready", "Something else altogether."] {
        assert!(is_said(&elsewhere(), said), "{said}");
    }
}

#[test]
fn an_answer_that_a_tool_gave_in_the_conversation_is_the_answer() {
    for arguments in [
        json!({"action": "send", "target": "42", "message": "Hello there!"}),
        json!({"action": "reply", "message": "Hello there!"}),
        json!({"action": "send", "channel": "Telegram", "target": "telegram:42", "message": "Hello there!"}),
        json!({"action": "broadcast", "channel": "telegram", "targets": ["7", "42"], "message": "Hello there!"}),
    ] {
        let sent = after(&arguments);
        assert!(!is_said(&sent, "I have told them everything."), "{arguments}");
        for kind in [Kind::Error, Kind::Tool, Kind::Notice] {
            let said = Payload { kind, ..Payload::answer("Hello there!") };
            assert_eq!(sent.left(said.clone(), &origin()), Some(said), "{arguments}");
        }
    }
}

#[test]
fn media_that_no_tool_sent_goes_out() {
    let sent = after(&json!({"action": "send", "target": "42", "message": "Look at this", "media": "a.png"}));
    let look = |media: &[&str]| Payload {
        media: media.iter().map(|&media| media.to_owned()).collect(),
        ..Payload::answer("Look")
    };
    assert_eq!(sent.left(look(&["a.png"]), &origin()), None);
    let fresh = Payload { text: String::new(), ..look(&["b.png"]) };
    assert_eq!(sent.left(look(&["a.png", "b.png"]), &origin()), Some(fresh));
    let others = after(&json!({"action": "send", "target": "7", "message": "Look at this", "media": "a.png"}));
    let shown = Payload { text: String::new(), ..look(&["a.png"]) };
    let said = Payload { text: "Look at this".to_owned(), ..shown.clone() };
    assert_eq!(others.left(said, &origin()), Some(shown), "others have seen it, nobody here");
}

#[test]
fn elsewhere_is_not_here() {
    for arguments in [
        json!({"action": "send", "target": "43", "message": "Hello there!"}),
        json!({"action": "send", "channel": "slack", "target": "42", "message": "Hello there!"}),
        json!({"action": "send", "target": "42", "message": "Hello there!", "dryRun": true}),
        json!({"action": "react", "target": "42", "emoji": "x"}),
    ] {
        assert!(is_said(&after(&arguments), "What I have to say."), "{arguments}");
    }
    let threads = after(&json!({"action": "send", "target": "42", "threadId": "9", "message": "Hello there!"}));
    let here = Route { thread: Some("8".to_owned()), ..origin() };
    assert_eq!((threads.answered(&here), threads.answered(&origin())), (false, true));
}

#[test]
fn a_call_that_failed_or_went_to_a_session_said_nothing() {
    let call = CallId::parse("c").unwrap();
    let arguments = json!({"action": "send", "target": "42", "message": "Hello out there!"});
    let mut sent = Sent::default();
    sent.begin(&call, "message", &arguments, &origin());
    sent.end(&call, true);
    sent.end(&call, false);
    sent.begin(&call, "sessions_send", &json!({"message": "Hello out there!", "sessionKey": "main"}), &origin());
    sent.end(&call, false);
    assert!(is_said(&sent, "Hello out there!"));
}

#[test]
fn only_so_much_is_remembered() {
    let mut sent = Sent::default();
    for number in 0..=MOST {
        let call = CallId::parse("c").unwrap();
        let message = format!("This is message {number:05}.");
        sent.begin(&call, "message", &json!({"action": "send", "target": "x", "message": message}), &origin());
        sent.end(&call, false);
    }
    assert_eq!((sent.texts.len(), sent.places.len()), (MOST, MOST));
    assert!(!sent.repeats("This is message 00000.") && sent.repeats("This is message 00001."));
}

/// What the original makes of two texts: how the first is compared, and whether one repeats the other.
#[test]
fn recorded_comparisons_hold() {
    for (text, sent, compared, is_repeated) in [
        ("Done! 🎉  Sent it.", "done! sent it.", "done! sent it.", true),
        ("short", "short", "short", false),
        ("I sent the report to Bob", "Sent: I sent the report to Bob today", "i sent the report to bob", true),
        ("Totally different text here", "I sent the report", "totally different text here", false),
        // FIX: the original finds the third pair in this direction as well; but two thirds of a text are not the text.
        (
            "Sent: I sent the report to Bob today",
            "I sent the report to Bob",
            "sent: i sent the report to bob today",
            false,
        ),
    ] {
        let after = after(&json!({"action": "send", "channel": "slack", "target": "C1", "message": sent}));
        assert_eq!((plain(text).as_str(), after.repeats(text)), (compared, is_repeated), "{text}");
    }
}

proptest! {
    #[test]
    fn errors_are_always_said(sent in "\\PC{0,40}", said in "\\PC{0,40}") {
        let sent = after(&json!({"action": "send", "target": "42", "message": sent}));
        let payload = Payload { kind: Kind::Error, ..Payload::answer(said) };
        prop_assert_eq!(sent.left(payload.clone(), &origin()), Some(payload));
    }
}
