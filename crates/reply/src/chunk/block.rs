//! The current block: state per character, and the positions at which it may end.

use unicode_segmentation::GraphemeCursor;

use super::{ChunkBounds, CutPreference};
use crate::fence::{self, Lines};

/// How to choose the position of a cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CutSearch {
    /// The first preferred position.
    Soon,
    /// The last good position, once the block is full.
    Late,
}

/// Where a block starts, which determines the whitespace ignored before its first word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockStart {
    /// At the start of the text: all.
    Text,
    /// At the start of a line: blank lines; its indent is kept.
    Line,
    /// Within a line: the remainder of it, if blank, and the blank lines that follow.
    Word,
}

/// A position at which a block may end. All positions are byte offsets from the start of the block.
#[derive(Debug, Clone)]
pub(super) struct CutMark {
    /// End of the block.
    pub(super) end: usize,
    /// Start of the next one.
    pub(super) next: usize,
    chars: usize,
    /// State of the fences at `next`.
    lines: Lines,
}

/// Result of a character.
#[derive(Debug)]
pub(super) enum BlockStep {
    /// Continue.
    On,
    /// This many bytes at the start of the block are ignored; it starts after them.
    Drop(usize),
    /// Like [`Drop`](Self::Drop), and the fence in which the block started was closed without content.
    Empty(usize),
    /// The block ends; the text after it is processed again.
    Cut(BlockCut),
}

/// How a block ends.
#[derive(Debug)]
pub(super) enum BlockCut {
    Outside(CutMark),
    /// Inside a fence, which continues in the next block.
    Inside(CutMark, Box<OpenFence>),
}

/// An open fence.
#[derive(Debug, Clone)]
pub(super) struct OpenFence {
    /// Line that reopens it; empty if the bounds leave no space for it, so that its text is cut like any other.
    pub(super) opening: String,
    /// Text that closes it before a cut; empty together with `opening`.
    pub(super) closing: String,
    /// Offset of its first content line in this block.
    pub(super) content: usize,
    has_text: bool,
    /// Position before the fence.
    before: Option<CutMark>,
    /// Last line end that leaves space for `closing`: at most `capacity` characters precede it.
    newline: Option<CutMark>,
    /// Last position that leaves space for `closing`, whether or not a line ends there: after `capacity` characters.
    column: Option<CutMark>,
    capacity: usize,
}

/// The current block.
#[derive(Debug, Clone)]
pub(super) struct ChunkBlock {
    at: usize,
    chars: usize,
    lines: Lines,
    /// Where it started; `None` once it has text.
    start: Option<BlockStart>,
    line: BlockLine,
    /// End of the last line that was not blank.
    line_end: Option<CutMark>,
    /// A space; the next character decides whether it is a grapheme of its own.
    space: Option<CutMark>,
    ends: CutCandidates,
    /// Position of the cut if no fence follows.
    soon: Option<CutMark>,
    fence: Option<Box<OpenFence>>,
}

/// The current line.
#[derive(Debug, Clone)]
struct BlockLine {
    start: usize,
    /// True if it started in this block.
    is_whole: bool,
    has_text: bool,
    /// Position before the line.
    before: Option<CutMark>,
}

/// Last positions outside fences that are past the minimum.
#[derive(Debug, Clone, Default)]
struct CutCandidates {
    paragraph: Option<CutMark>,
    newline: Option<CutMark>,
    sentence: Option<CutMark>,
    word: Option<CutMark>,
}

impl ChunkBlock {
    pub(super) fn new(start: BlockStart) -> Self {
        let line = BlockLine { start: 0, is_whole: start != BlockStart::Word, has_text: false, before: None };
        Self {
            at: 0,
            chars: 0,
            lines: Lines::default(),
            start: Some(start),
            line,
            line_end: None,
            space: None,
            ends: CutCandidates::default(),
            soon: None,
            fence: None,
        }
    }

    /// Creates the block after a position outside fences.
    pub(super) fn after(mark: &CutMark, start: BlockStart) -> Self {
        Self { lines: mark.lines.clone(), ..Self::new(start) }
    }

    /// Creates the block after a position inside a fence.
    pub(super) fn reopened(mark: &CutMark, start: BlockStart, fence: OpenFence) -> Self {
        let chars = fence.opening.chars().count();
        let fence = OpenFence { content: 0, has_text: false, before: None, newline: None, column: None, ..fence };
        let fence = Some(Box::new(fence));
        Self { chars, start: None, fence, ..Self::after(mark, start) }
    }

    /// Returns the offset up to which it was processed.
    pub(super) fn at(&self) -> usize {
        self.at
    }

    /// Returns the end of the last sentence that is followed by text.
    pub(super) fn last_sentence(&self) -> Option<CutMark> {
        self.ends.sentence.clone()
    }

    /// Returns where the block can end after an idle period: at a preferred position, or after the last line, if `text`
    /// ends with it.
    pub(super) fn complete(&self, text: &str) -> Option<CutMark> {
        if self.fence.is_some() || self.lines.is_inside() {
            return None;
        }
        let is_last = |mark: &&CutMark| text[mark.next..].trim().is_empty();
        self.soon.as_ref().or_else(|| self.ends.newline.as_ref().filter(is_last)).cloned()
    }

    /// True if a block that started in a fence consists only of the closing line.
    pub(super) fn is_only_closing(&self, text: &str) -> bool {
        let mut lines = self.lines.clone();
        lines.push('\n');
        self.fence.as_ref().is_some_and(|fence| fence.is_reopened()) && !lines.is_inside() && is_marks(text.trim())
    }

    /// Processes the next character of the block's text, which may continue after it.
    pub(super) fn step(&mut self, c: char, text: &str, bounds: ChunkBounds, search: CutSearch) -> BlockStep {
        // The previous character was a space, which ends a word unless a combining character follows.
        if let Some(space) = self.space.take()
            && (c.is_ascii() || boundary(text, self.at) == self.at)
        {
            if ends_sentence(&text[..space.end]) {
                self.offer(CutPreference::Sentence, &space, bounds, search);
            }
            self.offer_word(space, bounds);
        }
        // Leading whitespace does not count; a full block is cut before this character.
        match self.start {
            Some(start) if c.is_whitespace() => return self.skip(c, start, bounds),
            Some(_) | None if self.chars >= bounds.max => return BlockStep::Cut(self.full(text, bounds)),
            Some(_) | None => {}
        }
        let here = self.here();
        if let Some(fence) = self.fence.as_mut().filter(|fence| fence.capacity == here.chars) {
            fence.column = Some(here);
        }
        self.lines.push(c);
        let mark = CutMark { next: self.at + c.len_utf8(), ..self.here() };
        self.at = mark.next;
        self.chars += 1;
        if c == '\n' {
            return self.end_line(mark, text, bounds, search);
        }
        if !c.is_whitespace() {
            return self.word(c);
        }
        if self.line.has_text && self.fence.is_none() && !self.lines.is_inside() {
            self.space = Some(mark);
        }
        BlockStep::On
    }

    /// Handles whitespace before the first word.
    fn skip(&mut self, c: char, start: BlockStart, bounds: ChunkBounds) -> BlockStep {
        self.lines.push(c);
        let next = self.at + c.len_utf8();
        if start == BlockStart::Line && c != '\n' && self.chars < bounds.max {
            self.at = next;
            self.chars += 1;
            return BlockStep::On;
        }
        if c == '\n' && start == BlockStart::Word {
            self.start = Some(BlockStart::Line);
            self.line.is_whole = true;
        }
        if c == '\n' && self.lines.is_inside() {
            // The remainder of an opening fence line that was too long for one block.
            self.start = None;
            self.fence = Some(Box::new(OpenFence::open("", 0, None, bounds)));
        }
        self.at = 0;
        self.chars = 0;
        BlockStep::Drop(next)
    }

    /// Handles a character that is not whitespace.
    fn word(&mut self, c: char) -> BlockStep {
        self.start = None;
        self.line.has_text = true;
        if let Some(fence) = &mut self.fence {
            fence.has_text = true;
        } else if self.lines.is_inside() {
            self.soon = None;
        } else if !is_mark(c)
            && let Some(mark) = self.soon.take()
        {
            return BlockStep::Cut(BlockCut::Outside(mark));
        }
        BlockStep::On
    }

    fn end_line(&mut self, mark: CutMark, text: &str, bounds: ChunkBounds, search: CutSearch) -> BlockStep {
        let next = BlockLine { start: mark.next, is_whole: true, has_text: false, before: Some(mark.clone()) };
        let line = std::mem::replace(&mut self.line, next);
        match &mut self.fence {
            Some(fence) if self.lines.is_inside() => {
                if fence.has_text && mark.chars <= fence.capacity {
                    fence.newline = Some(mark);
                }
                return BlockStep::On;
            }
            Some(fence) if fence.is_reopened() && is_marks(text[..mark.end].trim()) => {
                *self = Self::after(&mark, BlockStart::Line);
                return BlockStep::Empty(mark.next);
            }
            Some(_) => self.fence = None,
            None if self.lines.is_inside() => {
                let opening = if line.is_whole { &text[line.start..mark.end] } else { "" };
                self.fence = Some(Box::new(OpenFence::open(opening, mark.next, line.before, bounds)));
                return BlockStep::On;
            }
            None => {}
        }
        if line.has_text {
            self.offer(CutPreference::Newline, &mark, bounds, search);
            if ends_sentence(&text[..mark.end]) {
                self.offer(CutPreference::Sentence, &mark, bounds, search);
            }
            self.offer_word(mark.clone(), bounds);
            self.line_end = Some(mark);
        } else if let Some(CutMark { end, chars, .. }) = self.line_end {
            self.offer(CutPreference::Paragraph, &CutMark { end, chars, ..mark }, bounds, search);
        }
        BlockStep::On
    }

    /// Records a position at which the block may end, if the block then has the minimum length.
    fn offer(&mut self, kind: CutPreference, mark: &CutMark, bounds: ChunkBounds, search: CutSearch) {
        if mark.chars < bounds.min {
            return;
        }
        if search == CutSearch::Soon && kind == bounds.prefer && self.soon.is_none() {
            self.soon = Some(mark.clone());
        }
        match kind {
            CutPreference::Paragraph => self.ends.paragraph = Some(mark.clone()),
            CutPreference::Newline => self.ends.newline = Some(mark.clone()),
            CutPreference::Sentence => self.ends.sentence = Some(mark.clone()),
        }
    }

    fn offer_word(&mut self, mark: CutMark, bounds: ChunkBounds) {
        if mark.chars >= bounds.min {
            self.ends.word = Some(mark);
        }
    }

    /// Returns the cut of a full block.
    fn full(&mut self, text: &str, bounds: ChunkBounds) -> BlockCut {
        let ends = std::mem::take(&mut self.ends);
        let good = match bounds.prefer {
            CutPreference::Paragraph => ends.paragraph.or(ends.newline).or(ends.sentence),
            CutPreference::Newline => ends.newline,
            CutPreference::Sentence => ends.sentence,
        };
        if let Some(mark) = good.or(ends.word) {
            return BlockCut::Outside(mark);
        }
        // A line that may open or close a fence is not cut, if there is anything before it.
        let line = text[self.line.start..self.at].trim_start_matches(' ');
        let is_torn = |mark: &CutMark| mark.end > self.line.start && (line.is_empty() || line.starts_with(is_mark));
        let Some(fence) = self.fence.take() else {
            let here = self.here().whole(text, 0);
            return BlockCut::Outside(self.line.before.clone().filter(|_| is_torn(&here)).unwrap_or(here));
        };
        let column = fence.column.clone().unwrap_or_else(|| self.here()).whole(text, fence.content);
        let column = self.line.before.clone().filter(|_| is_torn(&column)).unwrap_or(column);
        let is_blank = text.get(fence.content..column.end).is_none_or(|content| content.trim().is_empty());
        match (&fence.newline, &fence.before) {
            (Some(newline), _) => BlockCut::Inside(newline.clone(), fence),
            (None, Some(before)) if is_blank || fence.column.is_none() => BlockCut::Outside(before.clone()),
            (None, _) => BlockCut::Inside(column, fence),
        }
    }

    fn here(&self) -> CutMark {
        CutMark { end: self.at, next: self.at, chars: self.chars, lines: self.lines.clone() }
    }
}

impl CutMark {
    /// Moves the position to the start of a grapheme, if that is after `from`.
    fn whole(self, text: &str, from: usize) -> Self {
        let end = Some(boundary(text, self.end)).filter(|end| *end > from).unwrap_or(self.end);
        Self { end, next: end, ..self }
    }
}

impl OpenFence {
    /// Creates a fence that was just opened; `opening` is empty if its line started in another block.
    fn open(opening: &str, content: usize, before: Option<CutMark>, bounds: ChunkBounds) -> Self {
        let added = fence::spans(opening).pop().map(|fence| {
            let closing = format!("\n{}{}", fence.indent, fence.marker);
            (fence.open_line + "\n", closing)
        });
        // Otherwise a long opening line would produce a flood of blocks with one word each.
        let leaves_space = |(opening, closing): &(String, String)| {
            let capacity = bounds.max.saturating_sub(opening.chars().count() + closing.chars().count());
            capacity > 0 && capacity >= bounds.max / 10
        };
        let (opening, closing) = added.filter(leaves_space).unwrap_or_default();
        let capacity = bounds.max - closing.chars().count();
        Self { opening, closing, content, has_text: false, before, newline: None, column: None, capacity }
    }

    fn is_reopened(&self) -> bool {
        self.content == 0 && !self.opening.is_empty()
    }
}

/// True if a text ends with the punctuation of a sentence. The caller ensures that whitespace or nothing follows.
pub(super) fn ends_sentence(text: &str) -> bool {
    text.ends_with(['.', '!', '?'])
}

fn is_mark(c: char) -> bool {
    matches!(c, '`' | '~')
}

fn is_marks(text: &str) -> bool {
    text.chars().all(is_mark)
}

/// Returns the last grapheme boundary up to `at`. Depends on no more than the character after `at`.
fn boundary(text: &str, at: usize) -> usize {
    let mut cursor = GraphemeCursor::new(at, text.len(), true);
    match cursor.is_boundary(text, 0) {
        Ok(false) => cursor.prev_boundary(text, 0).ok().flatten().unwrap_or(at),
        Ok(true) | Err(_) => at,
    }
}
