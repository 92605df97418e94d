//! The text of a run as an append-only stream: what was sent cannot be retracted.

use homard_agent::{RequestEvent, RunEvent, StoredEvent};

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
            RunEvent::Model(RequestEvent::MessageReset { message }) if self.message == Some(*message) => {
                self.valid.discard_message();
                self.sent.pending_whitespace.clear();
                self.retry_prefix = self.sent.begin.map(|_| 0);
            }
            RunEvent::Stored(StoredEvent::Assistant { .. }) => {
                self.message = None;
                self.start();
            }
            RunEvent::Model(_)
            | RunEvent::Stored(
                StoredEvent::Started { .. }
                | StoredEvent::Input(_)
                | StoredEvent::ToolEnded { .. }
                | StoredEvent::Compacted { .. }
                | StoredEvent::Ended(_),
            )
            | RunEvent::Queue(_)
            | RunEvent::Thinking { .. }
            | RunEvent::Tool(_)
            | RunEvent::Compaction(_)
            | RunEvent::Reply(_)
            | RunEvent::HookDecision(_) => {}
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
        let sent = &mut self.sent;
        let (Some(begin), Some(matched)) = (sent.begin, self.retry_prefix) else { return sent.add(delta) };
        let unmatched = &sent.all[begin + matched..];
        if unmatched.starts_with(delta) {
            self.retry_prefix = Some(matched + delta.len());
        } else if let Some(rest) = delta.strip_prefix(unmatched) {
            self.retry_prefix = None;
            sent.add(rest);
        } else {
            // The retried message differs, so it is appended as a separate one and the sent text stays.
            let restarted = format!("{}{delta}", &sent.all[begin..begin + matched]);
            self.retry_prefix = None;
            sent.start();
            sent.add(&restarted);
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
        let trimmed = delta.trim_end();
        if trimmed.is_empty() {
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
        self.all.push_str(trimmed);
        self.pending_whitespace.push_str(&delta[trimmed.len()..]);
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
        RunEvent::Stored(StoredEvent::Assistant {
            entry: EntryId::parse("e").unwrap(),
            message: Arc::new(Assistant::default()),
        })
    }

    const REWOUND: RunEvent = RunEvent::Model(RequestEvent::MessageReset { message: 0 });

    /// Returns what is sent after each event, and the final text.
    fn stream_events(events: &[RunEvent]) -> (Vec<String>, String) {
        let mut stream = TextStream::default();
        let deltas = events.iter().map(|event| stream.push_event(event)).collect();
        (deltas, stream.whole().to_owned())
    }

    fn expected(deltas: &[&str], whole: &str) -> (Vec<String>, String) {
        (deltas.iter().map(|&text| text.to_owned()).collect(), whole.to_owned())
    }

    #[test]
    fn messages_are_separated_by_a_blank_line_and_trimmed() {
        assert_eq!(
            stream_events(&[text(0, "\n one"), text(0, " two \n"), complete(), text(1, " "), text(1, "three")]),
            expected(&["one", " two", "", "", "\n\nthree"], "one two\n\nthree")
        );
        assert_eq!(stream_events(&[text(0, "a "), text(0, " b")]), expected(&["a", "  b"], "a  b"));
    }

    #[test]
    fn a_repeated_prefix_after_a_retry_is_sent_once() {
        assert_eq!(
            stream_events(&[text(0, "one two"), REWOUND, text(0, "one"), text(0, " two three"), text(0, " four")]),
            expected(&["one two", "", "", " three", " four"], "one two three four")
        );
    }

    #[test]
    fn a_different_answer_after_a_retry_is_a_new_paragraph() {
        assert_eq!(
            stream_events(&[text(0, "one two"), REWOUND, text(0, "one "), text(0, "hundred"), REWOUND, text(0, "x")]),
            expected(&["one two", "", "", "\n\none hundred", "", "\n\nx"], "x")
        );
    }

    #[test]
    fn a_retried_blank_message_repeats_nothing() {
        assert_eq!(stream_events(&[text(0, "  "), REWOUND, text(0, "one")]), expected(&["", "", "one"], "one"));
    }

    proptest! {
        #[test]
        fn deltas_add_up_to_the_full_text(
            messages in proptest::collection::vec(proptest::collection::vec("[ a\né]{0,3}", 0..6), 0..4),
        ) {
            let mut stream = TextStream::default();
            let mut sent = String::new();
            for (number, deltas) in (0..).zip(&messages) {
                for delta in deltas {
                    sent.push_str(&stream.push_event(&text(number, delta)));
                }
                sent.push_str(&stream.push_event(&complete()));
            }
            let whole: Vec<_> = messages.iter().map(|deltas| deltas.concat()).collect();
            let whole = join(whole.iter().map(String::as_str));
            prop_assert_eq!(sent, whole.as_str());
            prop_assert_eq!(stream.whole(), whole);
        }
    }
}
