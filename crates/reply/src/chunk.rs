//! An answer cut into blocks while it is written: at good places, and never so that a code block falls apart.
//!
//! Where a cut falls depends on the text alone, never on the pieces in which it comes: a cut is made when the first
//! character is seen that no later one can make it wrong. Lengths are counted in characters (the original counts UTF-16
//! units, so that its blocks with emoji are shorter).

mod block;

use self::block::{Block, Cut, Mark, Search, Start, Step};

/// How long blocks are and where they like to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// No block is cut shorter than this, as long as there is another way.
    pub min: usize,
    /// No block is longer than this, fences that were added included.
    pub max: usize,
    /// Where a block likes to end.
    pub prefer: Prefer,
}

/// Where a block likes to end. Only in need it ends elsewhere: at the end of a line, of a sentence, of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Prefer {
    /// Before a blank line.
    #[default]
    Paragraph,
    /// At the end of a line.
    Newline,
    /// At the end of a sentence.
    Sentence,
}

impl Prefer {
    /// What makes one text again of two blocks that were cut there.
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
/// Nothing but white space at the cuts is lost. A cut inside a fence closes it and opens it again in the next block with
/// the same line, if `max` leaves room for that (a tenth at least). No grapheme is cut unless it alone is longer than a block.
#[derive(Debug, Clone)]
pub struct Chunker {
    bounds: Bounds,
    /// What came and was not given back; before `start` it was.
    text: String,
    start: usize,
    /// The opening line of the fence in which the block at hand begins, with its line break.
    opening: String,
    block: Block,
}

impl Chunker {
    /// At the start of a text. Bounds that make no sense are made to: `max` is at least 1, `min` between 1 and `max`.
    pub fn new(bounds: Bounds) -> Self {
        Self::at(Start::Text, bounds)
    }

    fn at(start: Start, bounds: Bounds) -> Self {
        let max = bounds.max.max(1);
        let bounds = Bounds { min: bounds.min.clamp(1, max), max, ..bounds };
        Self { bounds, text: String::new(), start: 0, opening: String::new(), block: Block::new(start) }
    }

    /// Takes more of the text and gives back the blocks that are certain now. A block ends at the first preferred place
    /// past `min`, unless a fence follows, which belongs to the words before it; or, when `max` is reached, at the last
    /// good place.
    pub fn push(&mut self, text: &str) -> Vec<String> {
        self.text.push_str(text);
        self.drain(Search::Soon)
    }

    /// Takes more of the text and leaves all cuts to [`finish`](Self::finish), which then makes as few as it can.
    pub fn hold(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Nothing has come for a while: gives back the text up to its last preferred place, or all of it if it ends with a
    /// complete line. `trailing` is white space that is known to follow and has not been pushed.
    pub fn release(&mut self, trailing: &str) -> Vec<String> {
        let mut ahead = self.clone();
        let mut blocks = ahead.push(trailing);
        if let Some(mark) = ahead.block.complete(&ahead.text) {
            blocks.extend(ahead.cut(Cut::Outside(mark)));
            blocks.extend(ahead.drain(Search::Soon));
        }
        // White space that comes once more, with the next words, stands before a block and is left away.
        if !blocks.is_empty() {
            *self = ahead;
        }
        blocks
    }

    /// The text is over: gives back the rest. What comes after is another text.
    pub fn finish(&mut self) -> Vec<String> {
        let mut blocks = self.drain(Search::Late);
        let rest = self.rest();
        match rest {
            Some(rest) if blocks.is_empty() => blocks.push(rest),
            Some(rest) => blocks.extend(tail(rest, self.bounds)),
            None => {}
        }
        *self = Self::new(self.bounds);
        blocks
    }

    fn drain(&mut self, search: Search) -> Vec<String> {
        let mut blocks = Vec::new();
        loop {
            let text = &self.text[self.start..];
            let Some(next) = text[self.block.at()..].chars().next() else { break };
            match self.block.step(next, text, (self.bounds, search)) {
                Step::On => {}
                Step::Drop(bytes) => self.start += bytes,
                Step::Empty(bytes) => {
                    self.start += bytes;
                    self.opening.clear();
                }
                Step::Cut(cut) => blocks.extend(self.cut(cut)),
            }
        }
        self.text.drain(..self.start);
        self.start = 0;
        blocks
    }

    /// Ends the block at hand and begins the next one.
    fn cut(&mut self, cut: Cut) -> Option<String> {
        let text = &self.text[self.start..];
        let start = |mark: &Mark| if text[..mark.next].ends_with('\n') { Start::Line } else { Start::Word };
        match cut {
            Cut::Outside(mark) => {
                let opening = std::mem::take(&mut self.opening);
                let words = text[..mark.end].trim_end();
                let block = (!words.is_empty()).then(|| opening + words);
                self.block = Block::after(&mark, start(&mark));
                self.start += mark.next;
                block
            }
            Cut::Inside(mark, fence) => {
                let opening = std::mem::replace(&mut self.opening, fence.opening.clone());
                // A fence with nothing in it is left away; it is opened again before its first words.
                let is_added = !fence.closing.is_empty();
                let words = if is_added { &text[..mark.end] } else { text[..mark.end].trim_end() };
                let content = if is_added { words.get(fence.content..).unwrap_or_default() } else { words };
                let block = (!content.trim().is_empty()).then(|| opening + words + &fence.closing);
                self.block = Block::reopened(&mark, start(&mark), *fence);
                self.start += mark.next;
                block
            }
        }
    }

    /// What has not been cut, if it is worth a block.
    fn rest(&self) -> Option<String> {
        let words = self.text[self.start..].trim_end();
        (!words.trim_start().is_empty() && !self.block.is_only_closing(words)).then(|| self.opening.clone() + words)
    }
}

/// Cuts the end of a long text, which fits into one block, once more: at blank lines, the last of these parts at line
/// ends, and the last of these after its last full sentence.
fn tail(rest: String, bounds: Bounds) -> Vec<String> {
    let (places, has_sentences): (&[Prefer], bool) = match bounds.prefer {
        Prefer::Paragraph => (&[Prefer::Paragraph, Prefer::Newline], true),
        Prefer::Newline => (&[Prefer::Newline], false),
        Prefer::Sentence => (&[], true),
    };
    let mut blocks = Vec::new();
    let mut rest = Some(rest);
    for prefer in places {
        let Some(text) = rest.take() else { break };
        let mut parts = Chunker::at(Start::Line, Bounds { min: 1, prefer: *prefer, ..bounds });
        blocks.extend(parts.push(&text));
        rest = parts.rest();
    }
    match rest {
        Some(text) if has_sentences => blocks.extend(sentences(&text, bounds)),
        Some(text) => blocks.push(text),
        None => {}
    }
    blocks
}

/// The full sentences of a text, and what follows them.
fn sentences(text: &str, bounds: Bounds) -> Vec<String> {
    let mut parts = Chunker::at(Start::Line, Bounds { min: 1, ..bounds });
    parts.hold(text);
    let mut blocks = parts.drain(Search::Late);
    match parts.block.last_sentence() {
        Some(mark) if !block::ends_sentence(text) => blocks.extend(parts.cut(Cut::Outside(mark))),
        Some(_) | None => {}
    }
    blocks.extend(parts.rest());
    blocks
}

#[cfg(test)]
mod tests;
