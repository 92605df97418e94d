//! Cuts a reply into blocks while it is generated: at good positions, and without breaking code blocks.
//!
//! The position of a cut depends on the text alone, never on how it is split into deltas: a cut is made at the first
//! character after which no later one can invalidate it. Lengths are counted in characters (OpenClaw counts UTF-16
//! units, so its blocks with emoji are shorter).

mod block;

use self::block::{BlockCut, BlockStart, BlockStep, ChunkBlock, CutMark, CutSearch};

/// Size of blocks and preferred positions of cuts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkBounds {
    /// Minimum number of characters of a block, unless there is no other way.
    pub min: usize,
    /// Maximum number of characters of a block, including added fences.
    pub max: usize,
    /// Preferred position of cuts.
    pub prefer: CutPreference,
}

/// Preferred position of cuts. If there is none, a block ends at the end of a line, sentence or word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CutPreference {
    /// Before a blank line.
    #[default]
    Paragraph,
    /// At the end of a line.
    Newline,
    /// At the end of a sentence.
    Sentence,
}

impl CutPreference {
    /// Returns the separator that joins two blocks cut at this position.
    pub fn joiner(self) -> &'static str {
        match self {
            Self::Paragraph => "\n\n",
            Self::Newline => "\n",
            Self::Sentence => " ",
        }
    }
}

/// Cuts one text into blocks.
///
/// Only whitespace at the cuts is lost. A cut inside a fence closes it and reopens it in the next block with the same
/// line, if `max` leaves enough space (a tenth at least). A grapheme is cut only if it alone is longer than a block.
#[derive(Debug, Clone)]
pub struct Chunker {
    bounds: ChunkBounds,
    /// Text that was not returned yet starts at `start`.
    text: String,
    start: usize,
    /// Opening line, with its line break, of the fence in which the current block starts.
    opening: String,
    block: ChunkBlock,
}

impl Chunker {
    /// Creates a chunker. Invalid bounds are corrected: `max` is at least 1, `min` between 1 and `max`.
    pub fn new(bounds: ChunkBounds) -> Self {
        Self::at(BlockStart::Text, bounds)
    }

    fn at(start: BlockStart, bounds: ChunkBounds) -> Self {
        let max = bounds.max.max(1);
        let bounds = ChunkBounds { min: bounds.min.clamp(1, max), max, ..bounds };
        Self { bounds, text: String::new(), start: 0, opening: String::new(), block: ChunkBlock::new(start) }
    }

    /// Adds text and returns the blocks that are certain now. A block ends at the first preferred position past `min`,
    /// unless a fence follows, which belongs to the text before it; or, when `max` is reached, at the last good
    /// position.
    pub fn push(&mut self, text: &str) -> Vec<String> {
        self.text.push_str(text);
        self.drain(CutSearch::Soon)
    }

    /// Adds text and leaves all cuts to [`finish`](Self::finish), which then makes as few as possible.
    pub fn hold(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Called after an idle period: returns the text up to its last preferred position, or all of it if it ends with a
    /// complete line. `trailing` is whitespace that follows and has not been pushed.
    pub fn release(&mut self, trailing: &str) -> Vec<String> {
        let mut lookahead = self.clone();
        let mut blocks = lookahead.push(trailing);
        if let Some(mark) = lookahead.block.complete(&lookahead.text) {
            blocks.extend(lookahead.cut(BlockCut::Outside(mark)));
            blocks.extend(lookahead.drain(CutSearch::Soon));
        }
        // The trailing whitespace will be pushed again with the next text; at the start of a block it is dropped.
        if !blocks.is_empty() {
            *self = lookahead;
        }
        blocks
    }

    /// Ends the text and returns the remainder. Later text starts a new one.
    pub fn finish(&mut self) -> Vec<String> {
        let mut blocks = self.drain(CutSearch::Late);
        let rest = self.remainder();
        match rest {
            Some(rest) if blocks.is_empty() => blocks.push(rest),
            Some(rest) => blocks.extend(tail(rest, self.bounds)),
            None => {}
        }
        *self = Self::new(self.bounds);
        blocks
    }

    fn drain(&mut self, search: CutSearch) -> Vec<String> {
        let mut blocks = Vec::new();
        loop {
            let text = &self.text[self.start..];
            let Some(next) = text[self.block.at()..].chars().next() else { break };
            match self.block.step(next, text, self.bounds, search) {
                BlockStep::On => {}
                BlockStep::Drop(bytes) => self.start += bytes,
                BlockStep::Empty(bytes) => {
                    self.start += bytes;
                    self.opening.clear();
                }
                BlockStep::Cut(cut) => blocks.extend(self.cut(cut)),
            }
        }
        self.text.drain(..self.start);
        self.start = 0;
        blocks
    }

    /// Ends the current block and starts the next one.
    fn cut(&mut self, cut: BlockCut) -> Option<String> {
        let text = &self.text[self.start..];
        let start =
            |mark: &CutMark| if text[..mark.next].ends_with('\n') { BlockStart::Line } else { BlockStart::Word };
        match cut {
            BlockCut::Outside(mark) => {
                let opening = std::mem::take(&mut self.opening);
                let body = text[..mark.end].trim_end();
                let block = (!body.is_empty()).then(|| opening + body);
                self.block = ChunkBlock::after(&mark, start(&mark));
                self.start += mark.next;
                block
            }
            BlockCut::Inside(mark, fence) => {
                let opening = std::mem::replace(&mut self.opening, fence.opening.clone());
                // An empty fence is omitted; it is reopened before its first text.
                let is_added = !fence.closing.is_empty();
                let body = if is_added { &text[..mark.end] } else { text[..mark.end].trim_end() };
                let content = if is_added { body.get(fence.content..).unwrap_or_default() } else { body };
                let block = (!content.trim().is_empty()).then(|| opening + body + &fence.closing);
                self.block = ChunkBlock::reopened(&mark, start(&mark), *fence);
                self.start += mark.next;
                block
            }
        }
    }

    /// Returns the text that has not been cut, if it is worth a block.
    fn remainder(&self) -> Option<String> {
        let text = self.text[self.start..].trim_end();
        (!text.trim_start().is_empty() && !self.block.is_only_closing(text)).then(|| self.opening.clone() + text)
    }
}

/// Cuts the end of a long text, which fits into one block, once more: at blank lines, the last of these parts at line
/// ends, and the last of these after its last complete sentence.
fn tail(rest: String, bounds: ChunkBounds) -> Vec<String> {
    let (preferences, has_sentences): (&[CutPreference], bool) = match bounds.prefer {
        CutPreference::Paragraph => (&[CutPreference::Paragraph, CutPreference::Newline], true),
        CutPreference::Newline => (&[CutPreference::Newline], false),
        CutPreference::Sentence => (&[], true),
    };
    let mut blocks = Vec::new();
    let mut rest = Some(rest);
    for prefer in preferences {
        let Some(text) = rest.take() else { break };
        let mut parts = Chunker::at(BlockStart::Line, ChunkBounds { min: 1, prefer: *prefer, ..bounds });
        blocks.extend(parts.push(&text));
        rest = parts.remainder();
    }
    match rest {
        Some(text) if has_sentences => blocks.extend(sentences(&text, bounds)),
        Some(text) => blocks.push(text),
        None => {}
    }
    blocks
}

/// Returns the complete sentences of a text, and the text after them.
fn sentences(text: &str, bounds: ChunkBounds) -> Vec<String> {
    let mut parts = Chunker::at(BlockStart::Line, ChunkBounds { min: 1, ..bounds });
    parts.hold(text);
    let mut blocks = parts.drain(CutSearch::Late);
    match parts.block.last_sentence() {
        Some(mark) if !block::ends_sentence(text) => blocks.extend(parts.cut(BlockCut::Outside(mark))),
        Some(_) | None => {}
    }
    blocks.extend(parts.remainder());
    blocks
}

#[cfg(test)]
mod tests;
