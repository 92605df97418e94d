//! However an answer is split into deltas, clients and the transcript end up with the same bytes.
#![allow(clippy::unwrap_used, reason = "tests may")]

use std::time::Duration;

use homard_model::stream::AnswerEnd;
use homard_proto::{
    message::{Message, StopReason, Usage},
    transcript::Kind,
};
use homard_testkit::{AnswerStep, ScriptedAnswer, Trace, invariants, play};
use proptest::{collection::vec, prelude::*};

/// Generates a piece of an answer: text, reasoning, or a pause.
fn piece() -> impl Strategy<Value = AnswerStep> {
    prop_oneof![
        6 => any::<String>().prop_map(AnswerStep::Text),
        2 => "\\PC{0,4}".prop_map(AnswerStep::Text),
        1 => any::<String>().prop_map(AnswerStep::Thinking),
        1 => (0..20u64).prop_map(|ms| AnswerStep::Pause(Duration::from_millis(ms))),
    ]
}

/// Returns all assistant text of the sessions.
fn stored(result: &homard_testkit::TraceResult) -> String {
    let entries = result.sessions().iter().flat_map(|(_, session)| &session.entries);
    let text = entries.filter_map(|entry| match &entry.kind {
        Kind::Message(entry_message) => match &entry_message.message {
            Message::Assistant(assistant) => Some(assistant.text()),
            Message::User(_) | Message::ToolResult(_) | Message::Other(_) => None,
        },
        Kind::ModelChange(_) | Kind::Other(_) => None,
    });
    text.collect()
}

proptest! {
    #[test]
    fn pieces_become_the_same_text_for_clients_and_on_disk(
        pieces in vec(piece(), 0..12),
        is_complete in any::<bool>(),
    ) {
        // The answer must contain text: an empty one is requested again.
        let mut pieces = pieces;
        pieces.insert(0, AnswerStep::Text("Well".to_owned()));
        let text: String = pieces.iter().filter_map(|step| match step {
            AnswerStep::Text(text) => Some(text.as_str()),
            AnswerStep::Thinking(_) | AnswerStep::Call(_) | AnswerStep::Pause(_) | AnswerStep::Done(_) | AnswerStep::Fail(_) | AnswerStep::Hang
            | AnswerStep::Panic(_) => None,
        }).collect();
        let mut steps = pieces;
        if is_complete {
            steps.push(AnswerStep::Done(AnswerEnd { stop: StopReason::Stop, usage: Usage::default() }));
        }
        let result = play(&Trace::one_message("go on", vec![ScriptedAnswer(steps)])).unwrap();
        // The invariants check that clients received what was said, and that it is stored.
        prop_assert_eq!(invariants::violations(&result), Vec::<String>::new());
        prop_assert_eq!(stored(&result), text);
    }
}
