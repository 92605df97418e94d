//! Tests of the chat projection.

use std::sync::Arc;

use homard_proto::{
    AgentId, EntryId, SessionId,
    message::{Assistant, Block, Usage},
};
use proptest::{collection::vec, prelude::*};

use super::*;
use crate::event::AbortReason;

fn new_projection() -> RunProjection {
    RunProjection::new(&RunId::parse("r").unwrap(), &AgentId::main().main_session())
}

fn event(kind: RunEvent) -> TapeEvent {
    TapeEvent { at: 7, kind }
}

fn started() -> TapeEvent {
    event(RunEvent::Stored(StoredEvent::Started { session: SessionId::parse("s").unwrap() }))
}

fn text(message: u32, delta: &str) -> TapeEvent {
    event(RunEvent::Text { message, delta: delta.to_owned() })
}

fn assistant(text: &str) -> TapeEvent {
    let answer = Arc::new(Assistant { content: vec![Block::text(text)], ..Assistant::default() });
    event(RunEvent::Stored(StoredEvent::Assistant { entry: EntryId::parse("e").unwrap(), message: answer }))
}

fn ended(outcome: Outcome, replies: &[&str]) -> TapeEvent {
    let reply = |text: &&str| Payload::answer(*text);
    event(RunEvent::Stored(StoredEvent::Ended(Arc::new(RunEnd {
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
    }))))
}

/// Returns the events for clients of one generation.
fn for_generation(events: Vec<ClientEvent>, wanted: Generation) -> Vec<Value> {
    let chat = |event| match event {
        ClientEvent::Delta(generation, delta) => (generation == wanted).then(|| json!(delta)),
        ClientEvent::Chat(last) => Some(json!(last)),
        ClientEvent::Agent(_) => None,
    };
    events.into_iter().filter_map(chat).collect()
}

fn chats(events: Vec<ClientEvent>) -> Vec<Value> {
    for_generation(events, Generation::Four)
}

/// Processes events, with a delta for each generation after each of them.
fn project(projection: &mut RunProjection, events: impl IntoIterator<Item = TapeEvent>) -> Vec<ClientEvent> {
    let mut projected = Vec::new();
    for event in events {
        projected.extend(projection.push(event));
        projected.extend(
            [Generation::Three, Generation::Four].map(|generation| projection.delta(generation)).into_iter().flatten(),
        );
    }
    projected
}

fn all(events: impl IntoIterator<Item = TapeEvent>) -> Vec<Value> {
    chats(project(&mut new_projection(), events))
}

fn assistant_message(text: &str, at: u64) -> Value {
    json!({"role": "assistant", "content": [{"type": "text", "text": text}], "timestamp": at})
}

fn chat(seq: u64, state: &str, mut rest: Value) -> Value {
    let mut chat =
        json!({"runId": "r", "sessionKey": "agent:main:main", "agentId": "main", "seq": seq, "state": state});
    chat.as_object_mut().unwrap().append(rest.as_object_mut().unwrap());
    chat
}

#[test]
fn chat_text_is_that_of_the_whole_run() {
    let events = all([
        started(),
        text(0, " One"),
        assistant(" One"),
        text(1, "\nTwo \n"),
        assistant("\nTwo \n"),
        ended(Outcome::Done, &[" One", "\nTwo \n"]),
    ]);
    assert_eq!(
        events,
        [
            chat(2, "delta", json!({"deltaText": "One", "message": assistant_message("One", 7)})),
            chat(3, "delta", json!({"deltaText": "\n\nTwo", "message": assistant_message("One\n\nTwo", 7)})),
            chat(4, "final", json!({"stopReason": "stop", "message": assistant_message("One\n\nTwo", 9)})),
        ]
    );
}

// Pitfall 66.
#[test]
fn a_stopped_run_keeps_its_partial_text() {
    let stopped = Outcome::Aborted(AbortReason::User);
    assert_eq!(
        all([started(), text(0, "Half"), ended(stopped.clone(), &[])]),
        [
            chat(2, "delta", json!({"deltaText": "Half", "message": assistant_message("Half", 7)})),
            chat(3, "aborted", json!({"stopReason": "rpc", "message": assistant_message("Half", 9)})),
        ]
    );
    assert_eq!(all([ended(stopped, &[])]), [chat(1, "aborted", json!({"stopReason": "rpc"}))]);
}

#[test]
fn a_command_is_answered_by_one_event() {
    let mut message = assistant_message("Fine.", 9);
    message["stopReason"] = "stop".into();
    message["usage"] = json!({"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0});
    assert_eq!(
        all([text(0, "Fine."), ended(Outcome::Done, &["Fine."])]),
        [chat(1, "final", json!({"stopReason": "stop", "message": message}))]
    );
}

#[test]
fn an_absorbed_message_ends_once_and_without_text() {
    let by = RunId::parse("host").unwrap();
    let absorbed = event(RunEvent::Queue(QueueEvent::Absorbed { by }));
    assert_eq!(all([absorbed, ended(Outcome::Done, &[])]), [chat(1, "final", json!({}))]);
}

#[test]
fn text_from_before_a_restart_is_part_of_the_chat_text() {
    let events = all([started(), assistant("Before"), text(1, "after"), ended(Outcome::Done, &["Before", "after"])]);
    assert_eq!(
        events,
        [
            chat(1, "delta", json!({"deltaText": "Before", "message": assistant_message("Before", 7)})),
            chat(2, "delta", json!({"deltaText": "\n\nafter", "message": assistant_message("Before\n\nafter", 7)})),
            chat(3, "final", json!({"stopReason": "stop", "message": assistant_message("Before\n\nafter", 9)})),
        ]
    );
}

#[test]
fn discarded_text_is_replaced() {
    let mut projection = new_projection();
    let reset = || event(RunEvent::Model(RequestEvent::MessageReset { message: 1 }));
    let mut events = project(&mut projection, [started(), text(0, "One"), assistant("One"), text(1, "Two, no")]);
    events.extend(projection.flush());
    // Discarded text that was never emitted, too.
    events.extend(project(
        &mut projection,
        [text(1, "t"), reset(), text(1, "Tw"), reset(), text(1, "2"), assistant("2")],
    ));
    events.extend(project(&mut projection, [text(2, "Three, yes"), assistant("Three, yes")]));
    events.extend(projection.push(ended(Outcome::Done, &["One", "2", "Three, yes"])));
    let last =
        chat(6, "final", json!({"stopReason": "stop", "message": assistant_message("One\n\n2\n\nThree, yes", 9)}));
    let delta = |seq, new: &str, whole: &str| {
        chat(seq, "delta", json!({"deltaText": new, "message": assistant_message(whole, 7)}))
    };
    let mut replacing = delta(3, "One", "One");
    replacing["replace"] = true.into();
    assert_eq!(
        for_generation(events.clone(), Generation::Four),
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
        for_generation(events, Generation::Three),
        [delta(2, "One", "One"), delta(3, "\n\nTwo, no", "One\n\nTwo, no"), longer, last]
    );
}

#[test]
fn discarded_text_without_a_replacement_is_removed() {
    let reset = || event(RunEvent::Model(RequestEvent::MessageReset { message: 0 }));
    let streamed = || {
        let mut projection = new_projection();
        let mut events = project(&mut projection, [started(), text(0, "One, no")]);
        events.extend(projection.flush());
        events.extend(
            [Generation::Three, Generation::Four].map(|generation| projection.delta(generation)).into_iter().flatten(),
        );
        // More may follow: clients are not shown less in the meantime.
        events.extend(project(&mut projection, [reset()]));
        (projection, events)
    };
    let first_delta = chat(2, "delta", json!({"deltaText": "One, no", "message": assistant_message("One, no", 7)}));
    let cleared = chat(3, "delta", json!({"deltaText": "", "replace": true, "message": assistant_message("", 7)}));
    for (rest, state, more) in [
        // The message ends without text, and the run continues.
        (vec![assistant(""), ended(Outcome::Done, &[])], "final", json!({"stopReason": "stop"})),
        // The run ends in the middle of it.
        (vec![ended(Outcome::Done, &[])], "final", json!({"stopReason": "stop"})),
        (vec![ended(Outcome::Aborted(AbortReason::User), &[])], "aborted", json!({"stopReason": "rpc"})),
    ] {
        let (mut projection, mut events) = streamed();
        events.extend(project(&mut projection, rest));
        let last = chat(4, state, more);
        assert_eq!(
            for_generation(events.clone(), Generation::Four),
            [first_delta.clone(), cleared.clone(), last.clone()]
        );
        // Clients without support for replacement get it with the final event, which has no text.
        assert_eq!(for_generation(events, Generation::Three), [first_delta.clone(), last]);
    }
}

#[test]
fn the_text_of_a_stored_message_equals_that_of_its_final_event() {
    let stored_text = |text: &str, api: &str| {
        text_of(&Assistant { content: vec![Block::text(text)], api: api.to_owned(), ..Assistant::default() })
    };
    assert_eq!(stored_text("<think>hm</think>[[reply_to_current]] Look.\nMEDIA: ./a.png", "x"), "Look.\n./a.png");
    assert_eq!((stored_text("NO_REPLY", "x"), stored_text("HEARTBEAT_OK", "x")), (String::new(), String::new()));
    assert_eq!(
        stored_text("write NO_REPLY or [[reply_to_current]]", "homard"),
        "write NO_REPLY or [[reply_to_current]]"
    );
}

#[test]
fn each_generation_receives_all_text_at_its_own_pace() {
    let mut projection = new_projection();
    let mut events = projection.push(started());
    for (index, word) in ["a", "b", "c", "d"].into_iter().enumerate() {
        events.extend(projection.push(text(0, word)));
        events.extend(projection.flush());
        events.extend((index % 2 == 0).then(|| projection.delta(Generation::Four)).flatten());
        events.extend((index == 0).then(|| projection.delta(Generation::Three)).flatten());
    }
    // The rest is emitted before the end.
    events.extend(projection.push(ended(Outcome::Done, &["abcd"])));
    let deltas = |generation| -> Vec<Value> {
        for_generation(events.clone(), generation).iter().map(|chat| json!([chat["seq"], chat["deltaText"]])).collect()
    };
    assert_eq!(deltas(Generation::Three), [json!([2, "a"]), json!([5, "bcd"]), json!([6, null])]);
    assert_eq!(deltas(Generation::Four), [json!([2, "a"]), json!([4, "bc"]), json!([5, "d"]), json!([6, null])]);
}

#[test]
fn chat_text_does_not_precede_the_emitted_steps() {
    let mut projection = new_projection();
    projection.push(started());
    projection.push(text(0, "Hi"));
    assert_eq!((projection.delta(Generation::Four), projection.so_far()), (None, None));
    projection.flush();
    projection.push(text(0, " there"));
    assert_eq!(projection.so_far(), Some(assistant_message("Hi", 7)));
    let delta = projection.delta(Generation::Four).into_iter().collect();
    assert_eq!(chats(delta), [chat(2, "delta", json!({"deltaText": "Hi", "message": assistant_message("Hi", 7)}))]);
}

#[test]
fn a_client_that_missed_deltas_gets_the_whole_text_as_a_replacement() {
    let mut projection = new_projection();
    let events =
        project(&mut projection, [started(), text(0, "One"), assistant("One"), text(1, "Two"), assistant("Two")]);
    let Some(ClientEvent::Delta(_, delta)) = events.last() else { panic!("{events:?}") };
    assert_eq!(
        json!(whole(delta)),
        chat(
            3,
            "delta",
            json!({"deltaText": "One\n\nTwo", "replace": true, "message": assistant_message("One\n\nTwo", 7)})
        )
    );
}

#[test]
fn a_broken_run_reports_its_error_once() {
    let mut projection = new_projection();
    projection.push(started());
    projection.push(text(0, "Half"));
    assert_eq!(
        chats(projection.break_off("the disk is full")),
        [
            chat(2, "delta", json!({"deltaText": "Half", "message": assistant_message("Half", 7)})),
            chat(3, "error", json!({"errorMessage": "the disk is full"})),
        ]
    );
    assert_eq!(projection.break_off("the disk is full"), []);
}

proptest! {
    #[test]
    fn the_deltas_add_up_to_the_final_text(
        messages in vec(vec(("[ a\n\u{e9}]{0,4}", any::<bool>()), 0..5), 0..5),
    ) {
        let mut projection = new_projection();
        let mut events = projection.push(started());
        let texts: Vec<String> =
            messages.iter().map(|pieces| pieces.iter().map(|(piece, _)| piece.as_str()).collect()).collect();
        for (message, (pieces, whole)) in (0..).zip(messages.iter().zip(&texts)) {
            for (piece, is_flushed) in pieces {
                // A tape has no empty text.
                if !piece.is_empty() {
                    events.extend(projection.push(text(message, piece)));
                }
                if *is_flushed {
                    events.extend(projection.flush());
                    events.extend(projection.delta(Generation::Four));
                }
            }
            events.extend(projection.push(assistant(whole)));
        }
        let replies: Vec<_> = texts.iter().map(String::as_str).filter(|text| !text.trim().is_empty()).collect();
        events.extend(projection.push(ended(Outcome::Done, &replies)));
        let payloads = chats(events);
        let deltas: String = payloads.iter().filter_map(|chat| chat["deltaText"].as_str()).collect();
        let trimmed: Vec<_> = replies.iter().map(|reply| reply.trim()).collect();
        let last = &payloads.last().unwrap()["message"]["content"][0]["text"];
        prop_assert_eq!(last.as_str().unwrap_or_default(), &deltas);
        prop_assert_eq!(deltas, trimmed.join("\n\n"));
    }
}
