//! Code fences: lines of backticks or tildes, and the text between them. [`spans`] finds them in a complete text,
//! [`Lines`] tracks them in a streamed one.

/// A fenced range of a text, from the start of its opening line to the end of its closing line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// Byte offset of the opening line.
    pub start: usize,
    /// Byte offset of the end of the closing line, before the line break; the end of the text if the fence is not
    /// closed.
    pub end: usize,
    /// Opening line, with indent, marks and language.
    pub open_line: String,
    /// Spaces before the marks.
    pub indent: String,
    /// Backticks or tildes.
    pub marker: String,
}

/// Returns the fences of a text, in order.
pub fn spans(text: &str) -> Vec<Fence> {
    let mut found = Vec::new();
    let mut open: Option<Fence> = None;
    let mut at = 0;
    for line in text.split('\n') {
        let end = at + line.len();
        if let Some((indent, marker)) = marks(line) {
            match open.take() {
                None => {
                    let open_line = line.trim_end_matches('\r').to_owned();
                    let (indent, marker) = (indent.to_owned(), marker.to_owned());
                    open = Some(Fence { start: at, end: text.len(), open_line, indent, marker });
                }
                Some(fence) if marker.starts_with(&fence.marker) => found.push(Fence { end, ..fence }),
                still => open = still,
            }
        }
        at = end + 1;
    }
    found.extend(open);
    found
}

/// True if a text may be cut here: not strictly inside a fence.
pub fn is_safe(spans: &[Fence], at: usize) -> bool {
    // The fences are in order, so only the last one that starts before this position can contain it.
    let before = spans.partition_point(|fence| fence.start < at);
    before.checked_sub(1).and_then(|last| spans.get(last)).is_none_or(|fence| at >= fence.end)
}

/// Returns the indent and marks of a line that opens or closes a fence.
fn marks(line: &str) -> Option<(&str, &str)> {
    let bare = line.trim_start_matches(' ');
    let (indent, bare) = line.split_at(line.len() - bare.len());
    let mark = bare.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let marker = &bare[..bare.len() - bare.trim_start_matches(mark).len()];
    (indent.len() <= INDENT && marker.len() >= MARKS).then_some((indent, marker))
}

/// Maximum indent of the marks.
const INDENT: usize = 3;
/// Minimum number of marks of a fence.
const MARKS: usize = 3;

/// Tracks the fences of a streamed text, looking at each character once.
#[derive(Debug, Clone, Default)]
pub struct Lines {
    line: Line,
    open: Option<(char, usize)>,
}

/// State of the current line.
#[derive(Debug, Clone, Copy)]
enum Line {
    Indent(usize),
    Marks(char, usize),
    /// It started with this many marks and continued with other text.
    Marked(char, usize),
    Other,
}

impl Default for Line {
    fn default() -> Self {
        Self::Indent(0)
    }
}

impl Lines {
    /// Processes the next character.
    pub fn push(&mut self, c: char) {
        if c == '\n' {
            if let Line::Marks(mark, count) | Line::Marked(mark, count) = self.line {
                self.end_marked(mark, count);
            }
            self.line = Line::default();
            return;
        }
        self.line = match self.line {
            Line::Indent(spaces) if c == ' ' && spaces < INDENT => Line::Indent(spaces + 1),
            Line::Indent(_) if matches!(c, '`' | '~') => Line::Marks(c, 1),
            Line::Marks(mark, count) if c == mark => Line::Marks(mark, count + 1),
            Line::Marks(mark, count) | Line::Marked(mark, count) => Line::Marked(mark, count),
            Line::Indent(_) | Line::Other => Line::Other,
        };
    }

    /// True if the next character is inside a fence; the remainder of the opening and of the closing line count as
    /// inside.
    pub fn is_inside(&self) -> bool {
        let opens = matches!(self.line, Line::Marks(_, count) | Line::Marked(_, count) if count >= MARKS);
        self.open.is_some() || opens
    }

    fn end_marked(&mut self, mark: char, count: usize) {
        match self.open {
            None if count >= MARKS => self.open = Some((mark, count)),
            Some((opener, opener_count)) if mark == opener && count >= opener_count => self.open = None,
            None | Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fence(range: std::ops::Range<usize>, open_line: &str, indent: &str, marker: &str) -> Fence {
        let [open_line, indent, marker] = [open_line, indent, marker].map(str::to_owned);
        Fence { start: range.start, end: range.end, open_line, indent, marker }
    }

    #[test]
    fn a_fence_closes_with_the_same_mark_at_least_as_often() {
        assert_eq!(spans("a\n```rs\nx\n```\nb"), [fence(2..13, "```rs", "", "```")]);
        assert_eq!(spans("  ~~~~\n```\n~~~\n~~~~~"), [fence(0..20, "  ~~~~", "  ", "~~~~")]);
        assert_eq!(spans("```\r\nx"), [fence(0..6, "```", "", "```")]);
        let two = [fence(0..7, "```", "", "```"), fence(8..11, "~~~", "", "~~~")];
        assert_eq!(spans("```\n```\n~~~"), two);
        for none in ["", "``\nx\n``", "    ```\nx", "a ```\nx", "\t```"] {
            assert_eq!(spans(none), [], "{none:?}");
        }
    }

    #[test]
    fn only_the_inside_of_a_fence_is_unsafe() {
        let fences = spans("a\n```\nx\n```\nb\n```\ny");
        let safe: Vec<usize> = (0..=19).filter(|at| is_safe(&fences, *at)).collect();
        assert_eq!(safe, [0, 1, 2, 11, 12, 13, 14, 19]);
    }

    proptest! {
        #[test]
        fn lines_agree_with_spans(text in "[`~ a\n]{0,60}") {
            let fences = spans(&text);
            let mut lines = Lines::default();
            for (at, c) in text.char_indices() {
                // Two kinds of positions are not compared. Within marks and spaces, a streaming parser cannot know yet
                // whether a fence starts. The line break after a closing line is still inside for `Lines`, but outside
                // for `spans`.
                let may_open_fence = matches!(c, '`' | '~' | ' ');
                if !may_open_fence && c != '\n' {
                    prop_assert_eq!(lines.is_inside(), !is_safe(&fences, at), "at {} of {:?}", at, text);
                }
                lines.push(c);
            }
        }
    }
}
