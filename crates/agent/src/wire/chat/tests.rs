//! Tests of the chat projection.

use std::sync::Arc;

use homard_proto::{
    AgentId, EntryId, RunId, SessionId,
    message::{Assistant, Block, Usage},
};
use proptest::{collection::vec, prelude::*};
use tokio::sync::mpsc;

use super::*;
use crate::event::AbortReason;

fn telling() -> RunProjection {
    let (feed, _) = mpsc::unbounded_channel();
    RunProjection::new(&Tape::new(RunId::parse("r").unwrap(), AgentId::main().main_session(), 0, feed))
}

fn event(kind: RunEvent) -> TapeEvent {
    TapeEvent { at: 7, kind }
}

fn started() -> TapeEvent {
    event(RunEvent::Started { session: SessionId::parse("s").unwrap() })
}

fn text(message: u32, delta: &str) -> TapeEvent {
    event(RunEvent::Text { message, delta: delta.to_owned() })
}

fn assistant(text: &str) -> TapeEvent {
    let said = Arc::new(Assistant { content: vec![Block::text(text)], ..Assistant::default() });
    event(RunEvent::Assistant { entry: EntryId::parse("e").unwrap(), said })
}

fn ended(outcome: Outcome, replies: &[&str]) -> TapeEvent {
    let reply = |text: &&str| Payload::answer(*text);
    event(RunEvent::Ended(Arc::new(RunEnd {
        outcome,
        replies: replies.iter().map(reply).collect(),
        complete_reply: None,
        heartbeat: None,
        entries: Vec::new(),
        calls: Vec::new(),
        model: (String::new(), String::new()),
        usage: Usage::default(),
        last_usage: Usage::default(),
        truncated_input: None,
        is_summarized: false,
        session: None,
        started_at: None,
        ended_at: 9,
    })))
}

/// Returns the events for clients of one generation.
fn heard(news: Vec<ClientEvent>, by: Generation) -> Vec<Value> {
    let chat = |news| match news {
        ClientEvent::Delta(generation, delta) => (generation == by).then(|| json!(delta)),
        ClientEvent::Chat(last) => Some(json!(last)),
        ClientEvent::Agent(_) => None,
    };
    news.into_iter().filter_map(chat).collect()
}

fn chats(news: Vec<ClientEvent>) -> Vec<Value> {
    heard(news, Generation::Four)
}

/// Processes events, with a delta for each generation after each of them.
fn tell(telling: &mut RunProjection, events: impl IntoIterator<Item = TapeEvent>) -> Vec<ClientEvent> {
    let mut told = Vec::new();
    for event in events {
        told.extend(telling.push(event));
        told.extend(
            [Generation::Three, Generation::Four].map(|generation| telling.delta(generation)).into_iter().flatten(),
        );
    }
    told
}

fn all(events: impl IntoIterator<Item = TapeEvent>) -> Vec<Value> {
    chats(tell(&mut telling(), events))
}

fn said(text: &str, at: u64) -> Value {
    json!({"role": "assistant", "content": [{"type": "text", "text": text}], "timestamp": at})
}

fn chat(seq: u64, state: &str, mut rest: Value) -> Value {
    let mut chat =
        json!({"runId": "r", "sessionKey": "agent:main:main", "agentId": "main", "seq": seq, "state": state});
    chat.as_object_mut().unwrap().append(rest.as_object_mut().unwrap());
    chat
}

#[test]
fn the_text_is_that_of_the_whole_run() {
    let told = all([
        started(),
        text(0, " One"),
        assistant(" One"),
        text(1, "\nTwo \n"),
        assistant("\nTwo \n"),
        ended(Outcome::Done, &[" One", "\nTwo \n"]),
    ]);
    assert_eq!(
        told,
        [
            chat(2, "delta", json!({"deltaText": "One", "message": said("One", 7)})),
            chat(3, "delta", json!({"deltaText": "\n\nTwo", "message": said("One\n\nTwo", 7)})),
            chat(4, "final", json!({"stopReason": "stop", "message": said("One\n\nTwo", 9)})),
        ]
    );
}

#[test]
fn a_run_that_was_stopped_keeps_what_it_said() {
    let stopped = Outcome::Aborted(AbortReason::User);
    assert_eq!(
        all([started(), text(0, "Half"), ended(stopped.clone(), &[])]),
        [
            chat(2, "delta", json!({"deltaText": "Half", "message": said("Half", 7)})),
            chat(3, "aborted", json!({"stopReason": "rpc", "message": said("Half", 9)})),
        ]
    );
    assert_eq!(all([ended(stopped, &[])]), [chat(1, "aborted", json!({"stopReason": "rpc"}))]);
}

#[test]
fn a_command_is_answered_by_one_event() {
    let mut message = said("Fine.", 9);
    message["stopReason"] = "stop".into();
    message["usage"] = json!({"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0});
    assert_eq!(
        all([text(0, "Fine."), ended(Outcome::Done, &["Fine."])]),
        [chat(1, "final", json!({"stopReason": "stop", "message": message}))]
    );
}

#[test]
fn a_message_that_became_a_part_of_another_run_ends_once_and_without_words() {
    let by = RunId::parse("host").unwrap();
    let absorbed = event(RunEvent::Absorbed { by });
    assert_eq!(all([absorbed, ended(Outcome::Done, &[])]), [chat(1, "final", json!({}))]);
}

#[test]
fn words_from_before_a_restart_are_a_part_of_the_text() {
    let told = all([started(), assistant("Before"), text(1, "after"), ended(Outcome::Done, &["Before", "after"])]);
    assert_eq!(
        told,
        [
            chat(1, "delta", json!({"deltaText": "Before", "message": said("Before", 7)})),
            chat(2, "delta", json!({"deltaText": "\n\nafter", "message": said("Before\n\nafter", 7)})),
            chat(3, "final", json!({"stopReason": "stop", "message": said("Before\n\nafter", 9)})),
        ]
    );
}

#[test]
fn words_that_are_void_are_replaced() {
    let mut telling = telling();
    let rewound = || event(RunEvent::MessageReset { message: 1 });
    let mut told = tell(&mut telling, [started(), text(0, "One"), assistant("One"), text(1, "Two, no")]);
    told.extend(telling.flush());
    // Discarded text that was never emitted, too.
    told.extend(tell(&mut telling, [text(1, "t"), rewound(), text(1, "Tw"), rewound(), text(1, "2"), assistant("2")]));
    told.extend(tell(&mut telling, [text(2, "Three, yes"), assistant("Three, yes")]));
    told.extend(telling.push(ended(Outcome::Done, &["One", "2", "Three, yes"])));
    let last = chat(6, "final", json!({"stopReason": "stop", "message": said("One\n\n2\n\nThree, yes", 9)}));
    let delta = |seq, new: &str, whole: &str| chat(seq, "delta", json!({"deltaText": new, "message": said(whole, 7)}));
    let mut replacing = delta(3, "One", "One");
    replacing["replace"] = true.into();
    assert_eq!(
        heard(told.clone(), Generation::Four),
        [
            delta(2, "One", "One"),
            delta(3, "\n\nTwo, no", "One\n\nTwo, no"),
            replacing,
            delta(4, "\n\n2", "One\n\n2"),
            delta(5, "\n\nThree, yes", "One\n\n2\n\nThree, yes"),
            last.clone(),
        ]
    );
    // Clients without support for replacement get nothing until the text is longer.
    let whole = "One\n\n2\n\nThree, yes";
    let mut longer = delta(5, whole, whole);
    longer["replace"] = true.into();
    assert_eq!(
        heard(told, Generation::Three),
        [delta(2, "One", "One"), delta(3, "\n\nTwo, no", "One\n\nTwo, no"), longer, last]
    );
}

#[test]
fn words_that_are_void_and_followed_by_nothing_go_away() {
    let rewound = || event(RunEvent::MessageReset { message: 0 });
    let begun = || {
        let mut telling = telling();
        let mut told = tell(&mut telling, [started(), text(0, "One, no")]);
        told.extend(telling.flush());
        told.extend(
            [Generation::Three, Generation::Four].map(|generation| telling.delta(generation)).into_iter().flatten(),
        );
        // More may follow: clients are not shown less in the meantime.
        told.extend(tell(&mut telling, [rewound()]));
        (telling, told)
    };
    let said_first = chat(2, "delta", json!({"deltaText": "One, no", "message": said("One, no", 7)}));
    let gone = chat(3, "delta", json!({"deltaText": "", "replace": true, "message": said("", 7)}));
    for (rest, state, more) in [
        // The message ends without text, and the run continues.
        (vec![assistant(""), ended(Outcome::Done, &[])], "final", json!({"stopReason": "stop"})),
        // The run ends in the middle of it.
        (vec![ended(Outcome::Done, &[])], "final", json!({"stopReason": "stop"})),
        (vec![ended(Outcome::Aborted(AbortReason::User), &[])], "aborted", json!({"stopReason": "rpc"})),
    ] {
        let (mut telling, mut told) = begun();
        told.extend(tell(&mut telling, rest));
        let last = chat(4, state, more);
        assert_eq!(heard(told.clone(), Generation::Four), [said_first.clone(), gone.clone(), last.clone()]);
        // Clients without support for replacement get it with the final event, which has no text.
        assert_eq!(heard(told, Generation::Three), [said_first.clone(), last]);
    }
}

#[test]
fn what_is_read_of_a_stored_message_is_what_its_end_said() {
    let read = |text: &str, api: &str| {
        text_of(&Assistant { content: vec![Block::text(text)], api: api.to_owned(), ..Assistant::default() })
    };
    assert_eq!(read("<think>hm</think>[[reply_to_current]] Look.\nMEDIA: ./a.png", "x"), "Look.\n./a.png");
    assert_eq!((read("NO_REPLY", "x"), read("HEARTBEAT_OK", "x")), (String::new(), String::new()));
    assert_eq!(read("write NO_REPLY or [[reply_to_current]]", "homard"), "write NO_REPLY or [[reply_to_current]]");
}

#[test]
fn each_generation_hears_all_at_its_own_pace() {
    let mut telling = telling();
    let mut told = telling.push(started());
    for (place, word) in ["a", "b", "c", "d"].into_iter().enumerate() {
        told.extend(telling.push(text(0, word)));
        told.extend(telling.flush());
        told.extend((place % 2 == 0).then(|| telling.delta(Generation::Four)).flatten());
        told.extend((place == 0).then(|| telling.delta(Generation::Three)).flatten());
    }
    // The rest is emitted before the end.
    told.extend(telling.push(ended(Outcome::Done, &["abcd"])));
    let bits = |generation| -> Vec<Value> {
        heard(told.clone(), generation).iter().map(|chat| json!([chat["seq"], chat["deltaText"]])).collect()
    };
    assert_eq!(bits(Generation::Three), [json!([2, "a"]), json!([5, "bcd"]), json!([6, null])]);
    assert_eq!(bits(Generation::Four), [json!([2, "a"]), json!([4, "bc"]), json!([5, "d"]), json!([6, null])]);
}

#[test]
fn a_conversation_hears_no_more_than_the_steps_have_told() {
    let mut telling = telling();
    telling.push(started());
    telling.push(text(0, "Hi"));
    assert_eq!((telling.delta(Generation::Four), telling.so_far()), (None, None));
    telling.flush();
    telling.push(text(0, " there"));
    assert_eq!(telling.so_far(), Some(said("Hi", 7)));
    let delta = telling.delta(Generation::Four).into_iter().collect();
    assert_eq!(chats(delta), [chat(2, "delta", json!({"deltaText": "Hi", "message": said("Hi", 7)}))]);
}

#[test]
fn whoever_was_away_is_told_everything_in_place_of_what_it_knows() {
    let mut telling = telling();
    let told = tell(&mut telling, [started(), text(0, "One"), assistant("One"), text(1, "Two"), assistant("Two")]);
    let Some(ClientEvent::Delta(_, delta)) = told.last() else { panic!("{told:?}") };
    assert_eq!(
        json!(whole(delta)),
        chat(3, "delta", json!({"deltaText": "One\n\nTwo", "replace": true, "message": said("One\n\nTwo", 7)}))
    );
}

#[test]
fn a_story_that_breaks_off_says_why_once() {
    let mut telling = telling();
    telling.push(started());
    telling.push(text(0, "Half"));
    assert_eq!(
        chats(telling.break_off("the disk is full")),
        [
            chat(2, "delta", json!({"deltaText": "Half", "message": said("Half", 7)})),
            chat(3, "error", json!({"errorMessage": "the disk is full"})),
        ]
    );
    assert_eq!(telling.break_off("the disk is full"), []);
}

proptest! {
    #[test]
    fn what_was_told_bit_by_bit_is_what_is_told_at_the_end(
        messages in vec(vec(("[ a\n\u{e9}]{0,4}", any::<bool>()), 0..5), 0..5),
    ) {
        let mut telling = telling();
        let mut news = telling.push(started());
        let texts: Vec<String> =
            messages.iter().map(|pieces| pieces.iter().map(|(piece, _)| piece.as_str()).collect()).collect();
        for (message, (pieces, whole)) in (0..).zip(messages.iter().zip(&texts)) {
            for (piece, is_flushed) in pieces {
                // A tape has no empty text.
                if !piece.is_empty() {
                    news.extend(telling.push(text(message, piece)));
                }
                if *is_flushed {
                    news.extend(telling.flush());
                    news.extend(telling.delta(Generation::Four));
                }
            }
            news.extend(telling.push(assistant(whole)));
        }
        let replies: Vec<_> = texts.iter().map(String::as_str).filter(|text| !text.trim().is_empty()).collect();
        news.extend(telling.push(ended(Outcome::Done, &replies)));
        let told = chats(news);
        let bits: String = told.iter().filter_map(|chat| chat["deltaText"].as_str()).collect();
        let trimmed: Vec<_> = replies.iter().map(|reply| reply.trim()).collect();
        let last = &told.last().unwrap()["message"]["content"][0]["text"];
        prop_assert_eq!(last.as_str().unwrap_or_default(), &bits);
        prop_assert_eq!(bits, trimmed.join("\n\n"));
    }
}
