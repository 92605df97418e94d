//! However an answer is split into deltas, clients and the transcript end up with the same bytes.
#![allow(clippy::unwrap_used, reason = "tests may")]

use std::time::Duration;

use homard_model::stream::Done;
use homard_proto::{
    message::{Message, StopReason, Usage},
    transcript::Kind,
};
use homard_testkit::{Step, Trace, Turn, laws, play};
use proptest::{collection::vec, prelude::*};

/// Generates a piece of an answer: text, reasoning, or a pause.
fn piece() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => any::<String>().prop_map(Step::Text),
        2 => "\\PC{0,4}".prop_map(Step::Text),
        1 => any::<String>().prop_map(Step::Thinking),
        1 => (0..20u64).prop_map(|ms| Step::Pause(Duration::from_millis(ms))),
    ]
}

/// Returns all assistant text of the sessions.
fn stored(played: &homard_testkit::Played) -> String {
    let entries = played.sessions().iter().flat_map(|(_, session)| &session.entries);
    let text = entries.filter_map(|entry| match &entry.kind {
        Kind::Message(said) => match &said.message {
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
        ends_well in any::<bool>(),
    ) {
        // The answer must contain text: an empty one is requested again.
        let mut pieces = pieces;
        pieces.insert(0, Step::Text("Well".to_owned()));
        let text: String = pieces.iter().filter_map(|step| match step {
            Step::Text(text) => Some(text.as_str()),
            Step::Thinking(_) | Step::Call(_) | Step::Pause(_) | Step::Done(_) | Step::Fail(_) | Step::Hang
            | Step::Panic(_) => None,
        }).collect();
        let mut steps = pieces;
        if ends_well {
            steps.push(Step::Done(Done { stop: StopReason::Stop, usage: Usage::default() }));
        }
        let played = play(&Trace::one_message("go on", vec![Turn(steps)])).unwrap();
        // The invariants check that clients received what was said, and that it is stored.
        prop_assert_eq!(laws::broken(&played), Vec::<String>::new());
        prop_assert_eq!(stored(&played), text);
    }
}
