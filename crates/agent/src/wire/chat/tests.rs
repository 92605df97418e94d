//! What a conversation shows of a run, whatever is said in it.

use std::sync::Arc;

use homard_proto::{
    AgentId, EntryId, RunId, SessionId,
    message::{Assistant, Block, Usage},
};
use proptest::{collection::vec, prelude::*};
use tokio::sync::mpsc;

use super::*;
use crate::event::{AbortReason, Reply};

fn telling() -> Telling {
    let (feed, _) = mpsc::unbounded_channel();
    Telling::new(&Tape::new(RunId::parse("r").unwrap(), AgentId::main().main_session(), 0, feed))
}

fn event(kind: RunEvent) -> Event {
    Event { at: 7, kind }
}

fn started() -> Event {
    event(RunEvent::Started { session: SessionId::parse("s").unwrap() })
}

fn text(message: u32, delta: &str) -> Event {
    event(RunEvent::Text { message, delta: delta.to_owned() })
}

fn assistant(text: &str) -> Event {
    let said = Arc::new(Assistant { content: vec![Block::text(text)], ..Assistant::default() });
    event(RunEvent::Assistant { entry: EntryId::parse("e").unwrap(), said })
}

fn ended(outcome: Outcome, replies: &[&str]) -> Event {
    let reply = |text: &&str| Reply::words(*text);
    event(RunEvent::Ended(Arc::new(End {
        outcome,
        replies: replies.iter().map(reply).collect(),
        calls: Vec::new(),
        model: (String::new(), String::new()),
        usage: Usage::default(),
        last_usage: Usage::default(),
        session: None,
        started_at: None,
        ended_at: 9,
    })))
}

fn chats(news: Vec<News>) -> Vec<Value> {
    let chat = |news| match news {
        News::Chat(chat) => Some(json!(chat)),
        News::Agent(_) => None,
    };
    news.into_iter().filter_map(chat).collect()
}

fn all(events: impl IntoIterator<Item = Event>) -> Vec<Value> {
    let mut telling = telling();
    let news = events.into_iter().flat_map(|event| telling.push(event)).collect();
    chats(news)
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
            chat(2, "delta", json!({"deltaText": "Before\n\nafter", "message": said("Before\n\nafter", 7)})),
            chat(3, "final", json!({"stopReason": "stop", "message": said("Before\n\nafter", 9)})),
        ]
    );
}

#[test]
fn words_that_are_void_are_replaced() {
    let mut telling = telling();
    let mut told = telling.push(started());
    let rewound = || event(RunEvent::Rewound { message: 1 });
    for event in [text(0, "One"), assistant("One"), text(1, "Two, no")] {
        told.extend(telling.push(event));
    }
    told.extend(telling.flush());
    // Some words that nobody has heard are void, too.
    for event in [text(1, "t"), rewound(), text(1, "Tw"), rewound(), text(1, "2"), assistant("2")] {
        told.extend(telling.push(event));
    }
    told.extend(telling.push(ended(Outcome::Done, &["One", "2"])));
    assert_eq!(
        chats(told),
        [
            chat(2, "delta", json!({"deltaText": "One", "message": said("One", 7)})),
            chat(3, "delta", json!({"deltaText": "\n\nTwo, no", "message": said("One\n\nTwo, no", 7)})),
            chat(4, "delta", json!({"deltaText": "One\n\n2", "replace": true, "message": said("One\n\n2", 7)})),
            chat(5, "final", json!({"stopReason": "stop", "message": said("One\n\n2", 9)})),
        ]
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
