//! An answer that goes out in blocks while it is written: cut, put together, and sent before a tool starts.
//!
//! Time comes in as a number of milliseconds of any clock that does not go back. What comes out has been sent for good.

use crate::{
    chunk::{Bounds, Chunker},
    coalesce::{self, Coalescer},
    payload::Payload,
    spoken::Found,
};

/// How an answer is sent in blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// When the first block may go.
    pub from: Break,
    /// How blocks are cut.
    pub bounds: Bounds,
    /// How small blocks become one message; `None` if they do not.
    pub coalesce: Option<coalesce::Settings>,
}

/// When blocks may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Break {
    /// While the words come.
    #[default]
    TextEnd,
    /// When the message is complete.
    MessageEnd,
}

/// The blocks of one run.
#[derive(Debug)]
pub struct Blocks {
    from: Break,
    chunker: Chunker,
    coalescer: Option<Coalescer>,
    /// How many of a message's media are with a block.
    media: usize,
    /// Whether a block of the message at hand was sent.
    has_sent: bool,
}

impl Blocks {
    /// Before the first word.
    pub fn new(rules: Rules) -> Self {
        let Rules { from, bounds, coalesce } = rules;
        let coalescer = coalesce.map(Coalescer::new);
        Self { from, chunker: Chunker::new(bounds), coalescer, media: 0, has_sent: false }
    }

    /// More words for the user. `found` is what the message has asked of the house so far.
    pub fn say(&mut self, text: &str, found: &Found, now_ms: u64) -> Vec<Payload> {
        match self.from {
            Break::TextEnd => {
                let cut = self.chunker.push(text);
                self.send(cut, found, now_ms)
            }
            Break::MessageEnd => {
                self.chunker.hold(text);
                Vec::new()
            }
        }
    }

    /// The words are complete, and something else follows: a call, or a thought.
    pub fn pause(&mut self, found: &Found, now_ms: u64) -> Vec<Payload> {
        match self.from {
            Break::TextEnd => {
                let rest = self.chunker.finish();
                self.send(rest, found, now_ms)
            }
            Break::MessageEnd => Vec::new(),
        }
    }

    /// The message is complete: all of it goes, so that nothing of it comes after what tools do.
    pub fn end_message(&mut self, found: &Found, now_ms: u64) -> Vec<Payload> {
        let mut rest = self.chunker.finish();
        let is_new = found.media.len() > self.media;
        if is_new && rest.is_empty() {
            rest.push(String::new());
        }
        let mut sent = self.send(rest, found, now_ms);
        sent.extend(self.coalescer.as_mut().and_then(Coalescer::flush));
        (self.media, self.has_sent) = (0, false);
        sent
    }

    /// The run is over: what was held back goes.
    pub fn finish(&mut self) -> Vec<Payload> {
        self.coalescer.as_mut().map(Coalescer::finish).unwrap_or_default()
    }

    /// When something is to be sent although nothing comes.
    pub fn due(&self) -> Option<u64> {
        self.coalescer.as_ref().and_then(Coalescer::due)
    }

    /// The time has come, perhaps.
    pub fn tick(&mut self, now_ms: u64) -> Option<Payload> {
        let sent = self.coalescer.as_mut()?.tick(now_ms);
        self.has_sent |= sent.is_some();
        sent
    }

    /// Whether the user has read some of the message at hand.
    pub fn has_sent(&self) -> bool {
        self.has_sent
    }

    /// The message at hand is void. Nothing of it was sent.
    pub fn rewind(&mut self) {
        drop(self.chunker.finish());
        drop(self.coalescer.as_mut().and_then(Coalescer::flush));
        self.media = 0;
    }

    fn send(&mut self, cut: Vec<String>, found: &Found, now_ms: u64) -> Vec<Payload> {
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
    use crate::{chunk::Prefer, payload::ReplyTo};

    fn rules(from: Break) -> Rules {
        Rules { from, bounds: Bounds { min: 5, max: 20, prefer: Prefer::Paragraph }, coalesce: None }
    }

    fn texts(sent: &[Payload]) -> Vec<&str> {
        sent.iter().map(|payload| payload.text.as_str()).collect()
    }

    #[test]
    fn blocks_go_while_the_words_come() {
        let mut blocks = Blocks::new(rules(Break::TextEnd));
        let found = Found { reply_to: Some(ReplyTo::Current), ..Found::default() };
        let first = blocks.say("One and two.\n\nThree", &found, 0);
        assert_eq!(texts(&first), ["One and two."]);
        assert_eq!(first[0].reply_to, Some(ReplyTo::Current));
        assert!(blocks.has_sent());
        assert_eq!(texts(&blocks.end_message(&found, 0)), ["Three"]);
        assert!(!blocks.has_sent());
    }

    // Case 129.
    #[test]
    fn nothing_goes_before_the_end_of_the_message_where_that_is_wanted() {
        let mut blocks = Blocks::new(rules(Break::MessageEnd));
        let found = Found::default();
        assert_eq!(blocks.say("One and two.\n\nThree and four.", &found, 0), []);
        assert_eq!(blocks.pause(&found, 0), []);
        assert_eq!(texts(&blocks.end_message(&found, 0)), ["One and two.", "Three and four."]);
    }

    // Case 134.
    #[test]
    fn small_blocks_become_one_message_when_nothing_comes() {
        let settings = coalesce::Settings { min: 10, max: 100, idle_ms: 1000, joiner: "\n\n" };
        let mut blocks = Blocks::new(Rules { coalesce: Some(settings), ..rules(Break::TextEnd) });
        let found = Found::default();
        assert_eq!(blocks.say("One, two.\n\nThree, four.\n\nF", &found, 0), []);
        assert_eq!(blocks.due(), Some(1000));
        assert_eq!(blocks.tick(999), None);
        assert_eq!(blocks.tick(1000).unwrap().text, "One, two.\n\nThree, four.");
    }

    #[test]
    fn media_goes_with_the_next_block_and_alone_if_there_is_none() {
        let mut blocks = Blocks::new(rules(Break::TextEnd));
        let found = Found { media: vec!["./a.png".to_owned()], ..Found::default() };
        blocks.say("Look", &found, 0);
        let sent = blocks.end_message(&found, 0);
        assert_eq!((texts(&sent), sent[0].media.len()), (vec!["Look"], 1));
        let sent = blocks.end_message(&found, 0);
        assert_eq!((texts(&sent), sent[0].media.len()), (vec![""], 1));
    }

    #[test]
    fn a_message_that_is_void_leaves_nothing() {
        let mut blocks = Blocks::new(rules(Break::TextEnd));
        blocks.say("Wrong", &Found::default(), 0);
        blocks.rewind();
        blocks.say("Right", &Found::default(), 0);
        assert_eq!(texts(&blocks.end_message(&Found::default(), 0)), ["Right"]);
    }
}
