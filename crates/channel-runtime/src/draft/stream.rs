//! Follows a run and streams its reply into a draft, or its reasoning if the session streams that.

use std::{sync::Arc, time::Duration};

use homard_agent::{RequestEvent, RunEvent, StoredEvent, Subscriber, Tape};
use homard_channels::Channel;
use homard_reply::reasoning;
use homard_runtime::task;
use homard_settings::channels::StreamingMode;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{DraftUpdate, Drafts, has_reply};

/// Minimum characters before anything is shown: fewer are useless and cause a notification.
const MIN_CHARS: usize = 30;
/// Characters per update if the draft grows by blocks.
const BLOCK_CHARS: usize = 200;
/// Maximum pause demanded by the platform that is honoured.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Content of a draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum DraftContent {
    /// The reply, by words or by blocks.
    Answer(StreamingMode),
    /// The model's reasoning. The complete reply replaces it.
    Reasoning,
}

/// How a draft is updated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct DraftSettings {
    pub content: DraftContent,
    /// Minimum time between two edits.
    pub interval: Duration,
    /// Maximum characters of a message.
    pub max_chars: usize,
}

/// Updates a draft until its run ends.
pub(in super::super) fn stream_draft(
    drafts: Arc<Drafts>,
    channel: Arc<dyn Channel>,
    settings: DraftSettings,
    tape: Arc<Tape>,
    stop: CancellationToken,
) {
    // Ends with the run.
    drop(task::spawn("draft", async move {
        let run = tape.run().clone();
        let mut subscriber = Subscriber::new(tape);
        let (mut streamed, mut shown) = (StreamedText::default(), String::new());
        let mut next = Instant::now();
        let mut is_growing = true;
        loop {
            let text = streamed.shown(settings);
            let is_due = is_growing && !text.is_empty() && text != shown;
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = sleep_until(next), if is_due => {
                    let wait = match drafts.show(channel.as_ref(), &run, &text).await {
                        DraftUpdate::Sent => {
                            shown = text;
                            settings.interval
                        }
                        DraftUpdate::RetryAfter(after) if after <= MAX_PAUSE => after.max(settings.interval),
                        DraftUpdate::RetryAfter(_) | DraftUpdate::Closed => {
                            is_growing = false;
                            settings.interval
                        }
                    };
                    next = Instant::now() + wait;
                }
                events = subscriber.next() => {
                    let Some(events) = events else { return };
                    for event in events {
                        streamed.apply(&event.kind);
                        if let RunEvent::Stored(StoredEvent::Ended(end)) = &event.kind {
                            let is_answered = has_reply(&end.outcome, &end.replies);
                            return drafts.finish(channel.as_ref(), &run, is_answered).await;
                        }
                    }
                }
            }
        }
    }));
}

/// Text and reasoning of a run so far.
#[derive(Debug, Default)]
struct StreamedText {
    /// By message.
    text: Vec<(u32, String)>,
    /// By message.
    reasoning: Vec<(u32, String)>,
}

impl StreamedText {
    fn apply(&mut self, event: &RunEvent) {
        if let RunEvent::Text { message, delta } = event {
            append(&mut self.text, *message, delta);
        } else if let RunEvent::Thinking { message, delta } = event {
            append(&mut self.reasoning, *message, delta);
        } else if let RunEvent::Model(RequestEvent::MessageReset { message }) = event {
            self.text.retain(|(index, _)| index < message);
            self.reasoning.retain(|(index, _)| index < message);
        }
    }

    /// Returns the part that is shown.
    fn shown(&self, settings: DraftSettings) -> String {
        // Reserves space for the ellipsis.
        let max_chars = settings.max_chars.saturating_sub(2);
        match settings.content {
            DraftContent::Answer(mode) => {
                let text: String = joined(&self.text).chars().take(max_chars).collect();
                match mode {
                    StreamingMode::Words if text.chars().count() >= MIN_CHARS => text,
                    StreamingMode::Blocks => whole_blocks(&text).to_owned(),
                    StreamingMode::Words => String::new(),
                }
            }
            DraftContent::Reasoning => {
                let reasoning = joined(&self.reasoning);
                // The quote marks on each line need space, too; the newest part is shown.
                let skipped = reasoning.chars().count().saturating_sub(max_chars / 2);
                let newest: String = reasoning.chars().skip(skipped).collect();
                let text = reasoning::message(&newest).map(|payload| payload.text).unwrap_or_default();
                if reasoning.chars().count() < MIN_CHARS {
                    String::new()
                } else {
                    text.chars().take(max_chars).collect()
                }
            }
        }
    }
}

fn append(texts: &mut Vec<(u32, String)>, message: u32, delta: &str) {
    match texts.last_mut() {
        Some((last, text)) if *last == message => text.push_str(delta),
        Some(_) | None => texts.push((message, delta.to_owned())),
    }
}

fn joined(texts: &[(u32, String)]) -> String {
    let texts: Vec<&str> = texts.iter().map(|(_, text)| text.trim()).filter(|text| !text.is_empty()).collect();
    texts.join("\n\n")
}

/// Returns the prefix of a text that ends at a line or sentence boundary, in steps of at least one block.
fn whole_blocks(text: &str) -> &str {
    let mut end = 0;
    loop {
        let rest = &text[end..];
        let Some((min_end, _)) = rest.char_indices().nth(BLOCK_CHARS) else { return &text[..end] };
        let break_at =
            |separator: &str| rest[min_end..].find(separator).map(|at| min_end + at + separator.trim_end().len());
        let ends = ["\n", ". ", "! ", "? "].iter().filter_map(|separator| break_at(separator));
        match ends.min() {
            Some(at) => end += at.max(1),
            None => return &text[..end],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(message: u32, delta: &str) -> RunEvent {
        RunEvent::Text { message, delta: delta.to_owned() }
    }

    fn preview(mode: StreamingMode, max_chars: usize, events: &[RunEvent]) -> String {
        let mut streamed = StreamedText::default();
        events.iter().for_each(|event| streamed.apply(event));
        streamed.shown(DraftSettings { content: DraftContent::Answer(mode), interval: Duration::ZERO, max_chars })
    }

    #[test]
    fn short_text_is_not_shown_and_long_text_is_truncated() {
        let long = "a".repeat(100);
        assert_eq!(preview(StreamingMode::Words, 4000, &[text(0, &long[..29])]), "");
        assert_eq!(
            preview(StreamingMode::Words, 4000, &[text(0, &long[..29]), text(0, "b")]),
            format!("{}b", &long[..29])
        );
        assert_eq!(preview(StreamingMode::Words, 52, &[text(0, &long)]).len(), 50);
    }

    #[test]
    fn messages_are_joined_and_a_reset_message_is_dropped() {
        let first = "This is said before a tool is called.";
        let events = [
            text(0, first),
            text(1, "And this"),
            RunEvent::Model(RequestEvent::MessageReset { message: 1 }),
            text(1, "After it."),
        ];
        assert_eq!(preview(StreamingMode::Words, 4000, &events), format!("{first}\n\nAfter it."));
    }

    /// Acceptance D18: a session that streams its reasoning showed nothing.
    #[test]
    fn reasoning_is_shown_in_place_of_the_answer() {
        let thinks = |message, delta: &str| RunEvent::Thinking { message, delta: delta.to_owned() };
        let shown = |events: &[RunEvent], max_chars: usize| {
            let mut streamed = StreamedText::default();
            events.iter().for_each(|event| streamed.apply(event));
            streamed.shown(DraftSettings { content: DraftContent::Reasoning, interval: Duration::ZERO, max_chars })
        };
        let first = "The user wants to know how far it is.";
        let answer = text(0, "It is seventeen kilometres from here to there.");
        let events = [
            thinks(0, "short"),
            thinks(0, " one"),
            RunEvent::Model(RequestEvent::MessageReset { message: 0 }),
            thinks(0, first),
            answer,
        ];
        assert_eq!(shown(&events[..2], 4000), "");
        assert_eq!(shown(&events, 4000), format!("Reasoning:\n_{first}_"));
        let long = shown(&[thinks(0, &"word \n".repeat(1000)), thinks(0, "newest")], 400);
        assert!(long.len() < 400 && long.contains("newest"), "{long}");
    }

    #[test]
    fn blocks_end_at_a_sentence_or_line_end() {
        let sentence = format!("{}. ", "é".repeat(150));
        let three_sentences = sentence.repeat(3);
        assert_eq!(whole_blocks(&sentence), "");
        assert_eq!(whole_blocks(&three_sentences), three_sentences[..sentence.len() * 2].trim_end());
        assert_eq!(whole_blocks(&format!("{}\nmore", "x".repeat(300))).trim_end().len(), 300);
        assert_eq!(whole_blocks(&"x".repeat(1000)), "");
    }
}
