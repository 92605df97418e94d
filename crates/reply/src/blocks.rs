//! Block streaming: sends a reply in blocks while it is generated, and completely before a tool starts.
//!
//! Time is passed in as milliseconds of any monotonic clock. Returned payloads are final and cannot be taken back.

use crate::{
    chunk::{ChunkBounds, Chunker},
    coalesce::{self, Coalescer},
    parse_stream::MessageDirectives,
    payload::Payload,
};

/// Block streaming settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockRules {
    /// When the first block may be sent.
    pub from: BlockBreak,
    /// How blocks are cut.
    pub bounds: ChunkBounds,
    /// How small blocks are merged into one message; `None` if they are not.
    pub coalesce: Option<coalesce::Settings>,
}

/// When blocks may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BlockBreak {
    /// While the text arrives.
    #[default]
    TextEnd,
    /// When the message is complete.
    MessageEnd,
}

/// Block stream of one run.
#[derive(Debug)]
pub struct BlockStream {
    from: BlockBreak,
    chunker: Chunker,
    coalescer: Option<Coalescer>,
    /// Idle time after which complete lines and paragraphs are sent; `None` for never.
    idle_ms: Option<u64>,
    /// Time of the last text that was not checked for idleness since.
    last_text_at: Option<u64>,
    /// Number of the message's media already attached to a block.
    media: usize,
    /// True if a block of the current message was sent.
    has_sent: bool,
}

impl BlockStream {
    /// Creates the stream of a run.
    pub fn new(rules: BlockRules) -> Self {
        let BlockRules { from, bounds, coalesce } = rules;
        let idle_ms = coalesce.as_ref().map(|settings| settings.idle_ms).filter(|&idle_ms| idle_ms > 0);
        let (coalescer, chunker) = (coalesce.map(Coalescer::new), Chunker::new(bounds));
        Self { from, chunker, coalescer, idle_ms, last_text_at: None, media: 0, has_sent: false }
    }

    /// Adds text for the user; whitespace that is still held back is not in `text`. `found` contains the directives of
    /// the message so far.
    pub fn push_text(&mut self, text: &str, found: &MessageDirectives, now_ms: u64) -> Vec<Payload> {
        match self.from {
            BlockBreak::TextEnd => {
                self.last_text_at = Some(now_ms);
                let cut = self.chunker.push(text);
                self.send(cut, found, now_ms)
            }
            BlockBreak::MessageEnd => {
                self.chunker.hold(text);
                Vec::new()
            }
        }
    }

    /// Ends the current text, because a tool call or reasoning follows.
    pub fn pause(&mut self, found: &MessageDirectives, now_ms: u64) -> Vec<Payload> {
        match self.from {
            BlockBreak::TextEnd => {
                let rest = self.chunker.finish();
                self.send(rest, found, now_ms)
            }
            BlockBreak::MessageEnd => Vec::new(),
        }
    }

    /// Ends the message and sends the rest of it, so that it arrives before the effects of tool calls. Remaining media
    /// without text are sent with an empty text.
    pub fn end_message(&mut self, found: &MessageDirectives, now_ms: u64) -> Vec<Payload> {
        let mut rest = self.chunker.finish();
        let is_new = found.media.len() > self.media;
        if is_new && rest.is_empty() {
            rest.push(String::new());
        }
        let mut sent = self.send(rest, found, now_ms);
        sent.extend(self.coalescer.as_mut().and_then(Coalescer::flush));
        (self.media, self.has_sent, self.last_text_at) = (0, false, None);
        sent
    }

    /// Ends the run and sends what was held back.
    pub fn finish(&mut self) -> Vec<Payload> {
        self.coalescer.as_mut().map(Coalescer::finish).unwrap_or_default()
    }

    /// Returns the time at which [`tick`](Self::tick) must be called if nothing arrives.
    pub fn due(&self) -> Option<u64> {
        let complete = self.last_text_at.zip(self.idle_ms).map(|(text_at, idle_ms)| text_at.saturating_add(idle_ms));
        complete.into_iter().chain(self.coalescer.as_ref().and_then(Coalescer::due)).min()
    }

    /// Sends what is due. `trailing` is the whitespace after the text so far.
    pub fn tick(&mut self, trailing: &str, found: &MessageDirectives, now_ms: u64) -> Vec<Payload> {
        let mut sent = Vec::new();
        let is_due = |text_at: &mut u64| self.idle_ms.is_some_and(|idle_ms| text_at.saturating_add(idle_ms) <= now_ms);
        if let Some(text_at) = self.last_text_at.take_if(is_due) {
            let complete = self.chunker.release(trailing);
            // They have waited since they arrived.
            sent = self.send(complete, found, text_at);
        }
        sent.extend(self.coalescer.as_mut().and_then(|coalescer| coalescer.tick(now_ms)));
        self.has_sent |= !sent.is_empty();
        sent
    }

    /// True if a part of the current message was sent.
    pub fn has_sent(&self) -> bool {
        self.has_sent
    }

    /// Discards the current message, of which nothing was sent.
    pub fn discard_message(&mut self) {
        drop(self.chunker.finish());
        drop(self.coalescer.as_mut().and_then(Coalescer::flush));
        (self.media, self.last_text_at) = (0, None);
    }

    fn send(&mut self, cut: Vec<String>, found: &MessageDirectives, now_ms: u64) -> Vec<Payload> {
        let mut sent = Vec::new();
        for text in cut {
            let media = found.media[self.media.min(found.media.len())..].to_vec();
            self.media = found.media.len();
            let (reply_to, is_voice) = (found.reply_to.clone(), found.is_voice);
            let block = Payload { text, media, reply_to, is_voice, ..Payload::default() };
            match &mut self.coalescer {
                Some(coalescer) => sent.extend(coalescer.add(block, now_ms)),
                None => sent.push(block),
            }
        }
        self.has_sent |= !sent.is_empty();
        sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{chunk::CutPreference, payload::ReplyTo};

    fn rules(from: BlockBreak) -> BlockRules {
        BlockRules { from, bounds: ChunkBounds { min: 5, max: 20, prefer: CutPreference::Paragraph }, coalesce: None }
    }

    fn texts(sent: &[Payload]) -> Vec<&str> {
        sent.iter().map(|payload| payload.text.as_str()).collect()
    }

    #[test]
    fn blocks_are_sent_while_text_arrives() {
        let mut blocks = BlockStream::new(rules(BlockBreak::TextEnd));
        let found = MessageDirectives { reply_to: Some(ReplyTo::Current), ..MessageDirectives::default() };
        let first = blocks.push_text("One and two.\n\nThree", &found, 0);
        assert_eq!(texts(&first), ["One and two."]);
        assert_eq!(first[0].reply_to, Some(ReplyTo::Current));
        assert!(blocks.has_sent());
        assert_eq!(texts(&blocks.end_message(&found, 0)), ["Three"]);
        assert!(!blocks.has_sent());
    }

    // Case 129.
    #[test]
    fn with_message_end_nothing_is_sent_before_the_end() {
        let mut blocks = BlockStream::new(rules(BlockBreak::MessageEnd));
        let found = MessageDirectives::default();
        assert_eq!(blocks.push_text("One and two.\n\nThree and four.", &found, 0), []);
        assert_eq!(blocks.pause(&found, 0), []);
        assert_eq!(texts(&blocks.end_message(&found, 0)), ["One and two.", "Three and four."]);
    }

    // Case 134.
    #[test]
    fn small_blocks_are_merged_when_idle() {
        let settings = coalesce::Settings { min: 10, max: 100, idle_ms: 1000, joiner: "\n\n" };
        let mut blocks = BlockStream::new(BlockRules { coalesce: Some(settings), ..rules(BlockBreak::TextEnd) });
        let found = MessageDirectives::default();
        assert_eq!(blocks.push_text("One, two.\n\nThree, four.\n\nF", &found, 0), []);
        assert_eq!(blocks.due(), Some(1000));
        assert_eq!(blocks.tick("", &found, 999), []);
        assert_eq!(texts(&blocks.tick("", &found, 1000)), ["One, two.\n\nThree, four."]);
    }

    /// Acceptance D15: whitespace after the last text is held back by the stream parser.
    #[test]
    fn a_complete_paragraph_is_sent_when_idle() {
        let settings = coalesce::Settings { min: 5, max: 100, idle_ms: 500, joiner: "\n\n" };
        let found = MessageDirectives::default();
        for prefer in [CutPreference::Paragraph, CutPreference::Newline, CutPreference::Sentence] {
            for trailing in ["\n", "\n\n"] {
                let bounds = ChunkBounds { min: 5, max: 40, prefer };
                let coalesce = Some(settings.clone());
                let mut blocks = BlockStream::new(BlockRules { from: BlockBreak::TextEnd, bounds, coalesce });
                assert_eq!(blocks.push_text("One and two.", &found, 0), []);
                assert_eq!(blocks.push_text("", &found, 200), []);
                assert_eq!((blocks.due(), blocks.tick(trailing, &found, 699)), (Some(700), vec![]));
                assert_eq!(texts(&blocks.tick(trailing, &found, 700)), ["One and two."], "{prefer:?} {trailing:?}");
                assert_eq!(blocks.due(), None);
                assert_eq!(blocks.push_text(&format!("{trailing}Three"), &found, 3_000), []);
                assert_eq!(blocks.tick("", &found, 4_000), [], "it is not complete");
                assert_eq!(texts(&blocks.end_message(&found, 5_000)), ["Three"]);
            }
        }
    }

    #[test]
    fn incomplete_text_waits() {
        let settings = coalesce::Settings { min: 5, max: 100, idle_ms: 500, joiner: "\n\n" };
        let found = MessageDirectives::default();
        for (text, trailing) in
            [("One and two", ""), ("One and two", " "), ("```\nlet x = 1;", "\n\n"), ("One.", "\n\n")]
        {
            let mut blocks =
                BlockStream::new(BlockRules { coalesce: Some(settings.clone()), ..rules(BlockBreak::TextEnd) });
            assert_eq!(blocks.push_text(text, &found, 0), []);
            assert_eq!((blocks.tick(trailing, &found, 500), blocks.due()), (vec![], None), "{text:?}");
        }
    }

    #[test]
    fn media_is_sent_with_the_next_block_or_alone() {
        let mut blocks = BlockStream::new(rules(BlockBreak::TextEnd));
        let found = MessageDirectives { media: vec!["./a.png".to_owned()], ..MessageDirectives::default() };
        blocks.push_text("Look", &found, 0);
        let sent = blocks.end_message(&found, 0);
        assert_eq!((texts(&sent), sent[0].media.len()), (vec!["Look"], 1));
        let sent = blocks.end_message(&found, 0);
        assert_eq!((texts(&sent), sent[0].media.len()), (vec![""], 1));
    }

    #[test]
    fn a_discarded_message_leaves_nothing() {
        let mut blocks = BlockStream::new(rules(BlockBreak::TextEnd));
        blocks.push_text("Wrong", &MessageDirectives::default(), 0);
        blocks.discard_message();
        blocks.push_text("Right", &MessageDirectives::default(), 0);
        assert_eq!(texts(&blocks.end_message(&MessageDirectives::default(), 0)), ["Right"]);
    }
}
