//! The text of a run as an append-only stream: what was sent cannot be retracted.

use homard_agent::RunEvent;

/// Separator between two messages of a run.
const SEPARATOR: &str = "\n\n";

/// Text of a run so far, and the part that was sent. Each delta is processed once.
#[derive(Debug, Default)]
pub(super) struct TextStream {
    /// Index of the current message.
    message: Option<u32>,
    valid: JoinedText,
    sent: JoinedText,
    /// Length of the common prefix while a retried message repeats what was sent; `None` when it no longer does.
    retry_prefix: Option<usize>,
}

impl TextStream {
    /// Processes an event; returns the new text.
    pub(super) fn push_event(&mut self, event: &RunEvent) -> String {
        let from = self.sent.all.len();
        match event {
            RunEvent::Text { message, delta } => {
                if self.message.replace(*message) != Some(*message) {
                    self.start();
                }
                self.valid.add(delta);
                self.send(delta);
            }
            RunEvent::MessageReset { message } if self.message == Some(*message) => {
                self.valid.discard_message();
                self.sent.pending_whitespace.clear();
                self.retry_prefix = self.sent.begin.map(|_| 0);
            }
            RunEvent::Assistant { .. } => {
                self.message = None;
                self.start();
            }
            RunEvent::MessageReset { .. }
            | RunEvent::Started { .. }
            | RunEvent::SlotWaited(_)
            | RunEvent::DispositionChanged(_)
            | RunEvent::Busy(_)
            | RunEvent::Summarized(_)
            | RunEvent::Input(_)
            | RunEvent::Absorbed { .. }
            | RunEvent::Thinking { .. }
            | RunEvent::ModelChanged { .. }
            | RunEvent::Retrying { .. }
            | RunEvent::CandidateFailed { .. }
            | RunEvent::ToolStarted { .. }
            | RunEvent::ToolProgress { .. }
            | RunEvent::ToolEnded { .. }
            | RunEvent::Compacting
            | RunEvent::Compacted { .. }
            | RunEvent::NotCompacted { .. }
            | RunEvent::Block(_)
            | RunEvent::ModelRequested(_)
            | RunEvent::FirstToken
            | RunEvent::AnswerDropped { .. }
            | RunEvent::HookDecision(_)
            | RunEvent::Withheld(_)
            | RunEvent::Ended(_) => {}
        }
        self.sent.all[from..].to_owned()
    }

    /// Returns the text that is valid so far.
    pub(super) fn whole(&self) -> &str {
        &self.valid.all
    }

    fn start(&mut self) {
        self.valid.start();
        self.sent.start();
        self.retry_prefix = None;
    }

    fn send(&mut self, delta: &str) {
        let told = &mut self.sent;
        let (Some(begin), Some(same)) = (told.begin, self.retry_prefix) else { return told.add(delta) };
        let before = &told.all[begin + same..];
        if before.starts_with(delta) {
            self.retry_prefix = Some(same + delta.len());
        } else if let Some(new) = delta.strip_prefix(before) {
            self.retry_prefix = None;
            told.add(new);
        } else {
            // The retried message differs, so it is appended as a separate one and the sent text stays.
            let another = format!("{}{delta}", &told.all[begin..begin + same]);
            self.retry_prefix = None;
            told.start();
            told.add(&another);
        }
    }
}

/// The messages of a run as one text, each trimmed.
#[derive(Debug, Default)]
struct JoinedText {
    all: String,
    /// Start of the current message, if it has text, and length of the text before it.
    begin: Option<usize>,
    before: usize,
    /// Whitespace that is held back until more text follows.
    pending_whitespace: String,
}

impl JoinedText {
    /// Starts a new message.
    fn start(&mut self) {
        self.begin = None;
        self.pending_whitespace.clear();
    }

    /// Discards the current message.
    fn discard_message(&mut self) {
        if self.begin.is_some() {
            self.all.truncate(self.before);
        }
        self.start();
    }

    fn add(&mut self, delta: &str) {
        let delta = if self.begin.is_some() { delta } else { delta.trim_start() };
        let words = delta.trim_end();
        if words.is_empty() {
            self.pending_whitespace.push_str(delta);
            return;
        }
        if self.begin.is_none() {
            self.before = self.all.len();
            if !self.all.is_empty() {
                self.all.push_str(SEPARATOR);
            }
            self.begin = Some(self.all.len());
        }
        self.all.push_str(&std::mem::take(&mut self.pending_whitespace));
        self.all.push_str(words);
        self.pending_whitespace.push_str(&delta[words.len()..]);
    }
}

/// Joins several texts.
pub(super) fn join<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    texts.map(str::trim).filter(|text| !text.is_empty()).collect::<Vec<_>>().join(SEPARATOR)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use homard_proto::{EntryId, message::Assistant};
    use proptest::prelude::*;

    use super::*;

    fn text(message: u32, delta: &str) -> RunEvent {
        RunEvent::Text { message, delta: delta.to_owned() }
    }

    fn complete() -> RunEvent {
        RunEvent::Assistant { entry: EntryId::parse("e").unwrap(), said: Arc::new(Assistant::default()) }
    }

    const REWOUND: RunEvent = RunEvent::MessageReset { message: 0 };

    /// Returns what is sent after each event, and the final text.
    fn told(events: &[RunEvent]) -> (Vec<String>, String) {
        let mut words = TextStream::default();
        let told = events.iter().map(|event| words.push_event(event)).collect();
        (told, words.whole().to_owned())
    }

    fn as_told(told: &[&str], whole: &str) -> (Vec<String>, String) {
        (told.iter().map(|&text| text.to_owned()).collect(), whole.to_owned())
    }

    #[test]
    fn messages_are_apart_by_a_blank_line_and_blanks_at_their_ends_are_not_told() {
        assert_eq!(
            told(&[text(0, "\n one"), text(0, " two \n"), complete(), text(1, " "), text(1, "three")]),
            as_told(&["one", " two", "", "", "\n\nthree"], "one two\n\nthree")
        );
        assert_eq!(told(&[text(0, "a "), text(0, " b")]), as_told(&["a", "  b"], "a  b"));
    }

    #[test]
    fn what_is_said_again_in_the_same_words_is_told_once() {
        assert_eq!(
            told(&[text(0, "one two"), REWOUND, text(0, "one"), text(0, " two three"), text(0, " four")]),
            as_told(&["one two", "", "", " three", " four"], "one two three four")
        );
    }

    #[test]
    fn another_answer_in_the_place_of_one_that_was_told_is_a_paragraph_of_its_own() {
        assert_eq!(
            told(&[text(0, "one two"), REWOUND, text(0, "one "), text(0, "hundred"), REWOUND, text(0, "x")]),
            as_told(&["one two", "", "", "\n\none hundred", "", "\n\nx"], "x")
        );
    }

    #[test]
    fn nothing_is_said_again_of_a_message_that_had_only_blanks() {
        assert_eq!(told(&[text(0, "  "), REWOUND, text(0, "one")]), as_told(&["", "", "one"], "one"));
    }

    proptest! {
        #[test]
        fn deltas_add_up_to_the_text_however_it_is_cut(
            messages in proptest::collection::vec(proptest::collection::vec("[ a\né]{0,3}", 0..6), 0..4),
        ) {
            let mut words = TextStream::default();
            let mut told = String::new();
            for (number, deltas) in (0..).zip(&messages) {
                for delta in deltas {
                    told.push_str(&words.push_event(&text(number, delta)));
                }
                told.push_str(&words.push_event(&complete()));
            }
            let whole: Vec<_> = messages.iter().map(|deltas| deltas.concat()).collect();
            let whole = join(whole.iter().map(String::as_str));
            prop_assert_eq!(told, whole.as_str());
            prop_assert_eq!(words.whole(), whole);
        }
    }
}
