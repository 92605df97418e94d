//! Merges small consecutive blocks into one message.
//!
//! Time is passed in as milliseconds of any monotonic clock.

use crate::payload::Payload;

/// Merge settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Minimum number of characters of a message; a shorter one waits for more, even when idle.
    pub min: usize,
    /// Maximum number of characters of a merged message.
    pub max: usize,
    /// Idle time after which a message of at least `min` is sent; 0 for never.
    pub idle_ms: u64,
    /// Separator of two blocks; see [`CutPreference::joiner`](crate::chunk::CutPreference::joiner).
    pub joiner: &'static str,
}

/// Merges blocks until they are worth a message.
#[derive(Debug)]
pub struct Coalescer {
    settings: Settings,
    waiting: Option<PendingMessage>,
    /// Audio waits for the end, because a later voice tag applies to all of it.
    audio: Vec<Payload>,
    is_voice: bool,
}

#[derive(Debug)]
struct PendingMessage {
    payload: Payload,
    chars: usize,
    due: Option<u64>,
}

impl Coalescer {
    /// Creates an empty coalescer.
    pub fn new(settings: Settings) -> Self {
        Self { settings, waiting: None, audio: Vec::new(), is_voice: false }
    }

    /// Adds a block and returns what is to be sent now, in order.
    pub fn add(&mut self, block: Payload, now_ms: u64) -> Vec<Payload> {
        self.is_voice |= block.is_voice;
        if block.is_empty() {
            return Vec::new();
        }
        if block.media.iter().any(|source| is_audio(source)) {
            self.audio.push(block);
            return Vec::new();
        }
        if !block.media.is_empty() {
            return self.flush().into_iter().chain([block]).collect();
        }
        let chars = block.text.chars().count();
        let mut sent = Vec::new();
        if self.waiting.as_ref().is_some_and(|waiting| !waiting.takes(&block, chars, &self.settings)) {
            sent.extend(self.flush());
        }
        let due = self.due_after(now_ms);
        match &mut self.waiting {
            Some(waiting) => waiting.append(&block.text, chars, self.settings.joiner),
            None => self.waiting = Some(PendingMessage { payload: block, chars, due: None }),
        }
        if let Some(waiting) = &mut self.waiting {
            waiting.due = due;
        }
        if self.waiting.as_ref().is_some_and(|waiting| waiting.chars >= self.settings.max) {
            sent.extend(self.flush());
        }
        sent
    }

    /// Returns the time at which [`tick`](Self::tick) must be called, if nothing is added before.
    pub fn due(&self) -> Option<u64> {
        self.waiting.as_ref()?.due
    }

    /// Returns what has waited long enough. Messages below the minimum keep waiting.
    pub fn tick(&mut self, now_ms: u64) -> Option<Payload> {
        let next_due = self.due_after(now_ms);
        let waiting = self.waiting.as_mut()?;
        if waiting.due? > now_ms {
            return None;
        }
        if waiting.chars < self.settings.min {
            waiting.due = next_due;
            return None;
        }
        self.flush()
    }

    /// Returns the waiting text, however short. Audio stays.
    pub fn flush(&mut self) -> Option<Payload> {
        self.waiting.take().map(|waiting| waiting.payload)
    }

    /// Returns everything that is left: the text, then audio, as voice messages if any block had the voice tag.
    pub fn finish(&mut self) -> Vec<Payload> {
        let is_voice = std::mem::take(&mut self.is_voice);
        let audio = std::mem::take(&mut self.audio).into_iter().map(|payload| Payload { is_voice, ..payload });
        self.flush().into_iter().chain(audio).collect()
    }

    fn due_after(&self, now_ms: u64) -> Option<u64> {
        (self.settings.idle_ms > 0).then(|| now_ms.saturating_add(self.settings.idle_ms))
    }
}

impl PendingMessage {
    /// True if a block belongs to the same message and fits into it.
    fn takes(&self, block: &Payload, chars: usize, settings: &Settings) -> bool {
        let attributes = |payload: &Payload| (payload.kind, payload.is_voice);
        attributes(&self.payload) == attributes(block)
            && self.payload.reply_to == block.reply_to
            && self.chars + settings.joiner.chars().count() + chars <= settings.max
    }

    fn append(&mut self, text: &str, chars: usize, joiner: &str) {
        self.payload.text.push_str(joiner);
        self.payload.text.push_str(text);
        self.chars += joiner.chars().count() + chars;
    }
}

/// True if a path or URL has an audio file extension.
fn is_audio(source: &str) -> bool {
    let path = source.split(['?', '#']).next().unwrap_or(source);
    let Some((_, extension)) = path.rsplit_once('.') else { return false };
    ["aac", "caf", "flac", "m4a", "mp3", "oga", "ogg", "opus", "wav"]
        .iter()
        .any(|known| extension.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::{Kind, ReplyTo};

    fn coalescer(min: usize, max: usize) -> Coalescer {
        Coalescer::new(Settings { min, max, idle_ms: 1000, joiner: "\n\n" })
    }

    fn text(text: &str) -> Payload {
        Payload::answer(text)
    }

    fn media(source: &str) -> Payload {
        Payload { media: vec![source.to_owned()], ..Payload::default() }
    }

    /// Conformance case 134.
    #[test]
    fn small_blocks_are_merged_after_an_idle_period() {
        let mut blocks = coalescer(5, 100);
        assert_eq!(blocks.due(), None);
        assert_eq!(blocks.add(text("one"), 0), []);
        assert_eq!(blocks.add(text("two"), 600), []);
        assert_eq!(blocks.due(), Some(1600));
        assert_eq!(blocks.tick(1599), None);
        assert_eq!(blocks.tick(1600), Some(text("one\n\ntwo")));
        assert_eq!((blocks.due(), blocks.tick(9000), blocks.flush()), (None, None, None));
    }

    #[test]
    fn short_text_keeps_waiting_until_a_flush() {
        let mut blocks = coalescer(5, 100);
        assert_eq!(blocks.add(text("one"), 0), []);
        assert_eq!(blocks.tick(1000), None);
        assert_eq!(blocks.due(), Some(2000));
        assert_eq!(blocks.flush(), Some(text("one")));
    }

    #[test]
    fn without_an_idle_time_text_waits_for_a_flush() {
        let mut blocks = Coalescer::new(Settings { min: 1, max: 100, idle_ms: 0, joiner: " " });
        assert_eq!(blocks.add(text("one"), 0), []);
        assert_eq!((blocks.due(), blocks.tick(u64::MAX)), (None, None));
        assert_eq!(blocks.flush(), Some(text("one")));
    }

    #[test]
    fn a_block_that_does_not_fit_flushes_the_pending_message() {
        let mut blocks = coalescer(1, 10);
        assert_eq!(blocks.add(text("12345"), 0), []);
        assert_eq!(blocks.add(text("6789"), 0), [text("12345")]);
        assert_eq!(blocks.add(text("ähnl"), 0), [text("6789\n\nähnl")], "ten characters are full");
        assert_eq!(blocks.add(text("a"), 0), []);
        assert_eq!(blocks.add(text("much too long"), 0), [text("a"), text("much too long")]);
    }

    /// Pitfall 57: a block is not taken for a repetition of an equal one before it.
    #[test]
    fn two_equal_blocks_are_both_sent() {
        let mut blocks = coalescer(1, 100);
        assert_eq!(blocks.add(text("ok"), 0), []);
        assert_eq!(blocks.add(text("ok"), 0), []);
        assert_eq!(blocks.flush(), Some(text("ok\n\nok")));
    }

    #[test]
    fn another_target_or_voice_or_kind_is_another_message() {
        let reply = Payload { reply_to: Some(ReplyTo::Current), ..text("to you") };
        let voice = Payload { is_voice: true, ..reply.clone() };
        let reasoning = Payload { kind: Kind::Reasoning, ..voice.clone() };
        let mut blocks = coalescer(1, 100);
        assert_eq!(blocks.add(text("to all"), 0), []);
        assert_eq!(blocks.add(reply.clone(), 0), [text("to all")]);
        assert_eq!(blocks.add(voice.clone(), 0), [reply]);
        assert_eq!(blocks.add(reasoning.clone(), 0), [voice]);
        assert_eq!(blocks.finish(), [reasoning]);
    }

    #[test]
    fn media_is_sent_at_once_after_pending_text_and_blank_blocks_are_dropped() {
        let mut blocks = coalescer(1, 100);
        assert_eq!(blocks.add(text(" \n"), 0), []);
        assert_eq!(blocks.add(text("see"), 0), []);
        assert_eq!(blocks.add(media("./cat.png"), 0), [text("see"), media("./cat.png")]);
        assert_eq!(blocks.flush(), None);
    }

    #[test]
    fn audio_waits_for_the_end_so_that_a_late_voice_tag_applies() {
        let tag = Payload { is_voice: true, ..Payload::default() };
        let mut blocks = coalescer(1, 100);
        assert_eq!(blocks.add(media("./a.MP3"), 0), []);
        assert_eq!(blocks.add(text("listen"), 0), []);
        assert_eq!(blocks.flush(), Some(text("listen")));
        assert_eq!(blocks.add(media("https://x.org/b.ogg?key=1.png"), 0), []);
        assert_eq!(blocks.add(tag, 0), []);
        let voice = |source| Payload { is_voice: true, ..media(source) };
        assert_eq!(blocks.finish(), [voice("./a.MP3"), voice("https://x.org/b.ogg?key=1.png")]);
        assert_eq!(blocks.add(media("./a.mp3"), 0), []);
        assert_eq!(blocks.finish(), [media("./a.mp3")], "the tag held for the message that ended");
    }
}
