//! The input of the user: several lines, edited with the keys of Emacs and readline.
//!
//! A large paste or a picture is a chip: one element that is shown by its label, moved over and deleted as a whole, and
//! sent in full.

use unicode_segmentation::UnicodeSegmentation;

use crate::style::{Color, Line, TextStyle, width};

/// Lines above which a paste becomes a chip.
const MAX_PASTED_LINES: usize = 8;
/// Characters above which a paste becomes a chip.
const MAX_PASTED_CHARS: usize = 1_000;

/// A picture that is sent with a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// File name.
    pub name: String,
    /// Type, such as `image/png`.
    pub mime: String,
    /// Content in base64.
    pub content: String,
}

/// Something that is shown by a label.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Chip {
    Paste { label: String, text: String },
    Image { label: String, image: Image },
}

impl Chip {
    fn label(&self) -> &str {
        match self {
            Self::Paste { label, .. } | Self::Image { label, .. } => label,
        }
    }
}

/// An element of the input.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Cell {
    /// A grapheme cluster, or a line break.
    Text(String),
    Chip(Chip),
}

impl Cell {
    fn is(&self, text: &str) -> bool {
        matches!(self, Self::Text(cell) if cell == text)
    }

    fn is_word(&self) -> bool {
        match self {
            Self::Text(text) => text.chars().any(|char| char.is_alphanumeric() || char == '_'),
            Self::Chip(_) => true,
        }
    }

    fn shown(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Chip(chip) => chip.label(),
        }
    }
}

/// A message as it is sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Draft {
    /// Text with pastes in full.
    pub text: String,
    /// Text with pastes as labels.
    pub shown: String,
    /// Pictures.
    pub images: Vec<Image>,
}

impl Draft {
    /// A draft of a text alone.
    pub fn of(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { shown: text.clone(), text, images: Vec::new() }
    }

    /// True if there is nothing to send.
    pub fn is_blank(&self) -> bool {
        self.text.trim().is_empty() && self.images.is_empty()
    }
}

/// A movement of the cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Motion {
    /// One element to the left.
    Left,
    /// One element to the right.
    Right,
    /// To the start of a word.
    WordLeft,
    /// To the end of a word.
    WordRight,
    /// To the start of the line.
    LineStart,
    /// To the end of the line.
    LineEnd,
    /// To the start of the text.
    Start,
    /// To the end of the text.
    End,
}

/// The input.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Composer {
    cells: Vec<Cell>,
    cursor: usize,
    /// Text that was cut last.
    cut: Vec<Cell>,
    chips: usize,
}

/// The input as rows of a given width, and where the cursor is in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Rows.
    pub rows: Vec<Line>,
    /// Row of the cursor.
    pub row: usize,
    /// Column of the cursor.
    pub column: usize,
    /// First element of each row, and the end of its last.
    ranges: Vec<(usize, usize)>,
}

impl Composer {
    /// True if nothing was typed.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// Returns the text with labels in place of chips.
    pub fn shown(&self) -> String {
        self.cells.iter().map(Cell::shown).collect()
    }

    /// Returns the text before the cursor, with labels in place of chips.
    pub fn before_cursor(&self) -> String {
        self.cells[..self.cursor].iter().map(Cell::shown).collect()
    }

    /// True if the cursor is at the end.
    pub fn is_at_end(&self) -> bool {
        self.cursor == self.cells.len()
    }

    /// Returns the message, and leaves the composer as it is.
    pub fn draft(&self) -> Draft {
        let mut draft = Draft { shown: self.shown(), ..Draft::default() };
        for cell in &self.cells {
            match cell {
                Cell::Text(text) => draft.text.push_str(text),
                Cell::Chip(Chip::Paste { text, .. }) => draft.text.push_str(text),
                Cell::Chip(Chip::Image { label, image }) => {
                    draft.text.push_str(label);
                    draft.images.push(image.clone());
                }
            }
        }
        draft
    }

    /// Returns the message and clears the composer.
    pub fn take(&mut self) -> Draft {
        let draft = self.draft();
        self.clear();
        draft
    }

    /// Clears the composer.
    pub fn clear(&mut self) {
        (self.cells, self.cursor, self.chips) = (Vec::new(), 0, 0);
    }

    /// Replaces the text; the cursor is at its end.
    pub fn set(&mut self, text: &str) {
        self.clear();
        self.insert(text);
    }

    /// Restores a message with its pictures.
    pub fn restore(&mut self, draft: &Draft) {
        self.set(&draft.text);
        for image in &draft.images {
            // The label is part of the text.
            self.chips += 1;
            let label: Vec<_> = image_label(image).graphemes(true).map(str::to_owned).collect();
            let is_here = |window: &[Cell]| window.iter().zip(&label).all(|(cell, part)| cell.is(part));
            let chip = Cell::Chip(Chip::Image { label: image_label(image), image: image.clone() });
            match self.cells.windows(label.len()).position(is_here) {
                Some(at) => {
                    self.cells.splice(at..at + label.len(), [chip]);
                }
                None => self.cells.push(chip),
            }
        }
        self.cursor = self.cells.len();
    }

    /// Inserts a text at the cursor.
    pub fn insert(&mut self, text: &str) {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        let cleaned = crate::sanitize::clean(&text);
        // A combining character belongs to the element before it.
        let mut joined = String::new();
        let mut start = self.cursor;
        if let Some(Cell::Text(previous)) = self.cursor.checked_sub(1).map(|at| &self.cells[at])
            && previous != "\n"
        {
            joined.push_str(previous);
            start -= 1;
        }
        joined.push_str(&cleaned);
        let cells: Vec<_> = joined.graphemes(true).map(|grapheme| Cell::Text(grapheme.to_owned())).collect();
        let end = start + cells.len();
        self.cells.splice(start..self.cursor, cells);
        self.cursor = end;
    }

    /// Inserts a pasted text; a large one as a chip.
    pub fn paste(&mut self, text: &str) {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        let lines = text.lines().count();
        if lines <= MAX_PASTED_LINES && text.chars().count() <= MAX_PASTED_CHARS {
            return self.insert(&text);
        }
        self.chips += 1;
        let amount =
            if lines > MAX_PASTED_LINES { format!("{lines} lines") } else { format!("{} chars", text.chars().count()) };
        let label = format!("[paste {}: {amount}]", self.chips);
        self.insert_chip(Chip::Paste { label, text });
    }

    /// Inserts a picture.
    pub fn attach(&mut self, image: Image) {
        self.chips += 1;
        self.insert_chip(Chip::Image { label: image_label(&image), image });
    }

    fn insert_chip(&mut self, chip: Chip) {
        self.cells.insert(self.cursor, Cell::Chip(chip));
        self.cursor += 1;
    }

    /// Replaces the last `chars` elements before the cursor.
    pub fn complete(&mut self, chars: usize, text: &str) {
        let start = self.cursor.saturating_sub(chars);
        self.cells.drain(start..self.cursor);
        self.cursor = start;
        self.insert(text);
    }

    /// Moves the cursor.
    pub fn go(&mut self, motion: Motion) {
        self.cursor = self.target(motion);
    }

    fn target(&self, motion: Motion) -> usize {
        let (before, after) = self.cells.split_at(self.cursor);
        match motion {
            Motion::Left => self.cursor.saturating_sub(1),
            Motion::Right => (self.cursor + 1).min(self.cells.len()),
            Motion::WordLeft => {
                let word_end = before.iter().rposition(Cell::is_word).unwrap_or(0);
                before[..word_end].iter().rposition(|cell| !cell.is_word()).map_or(0, |at| at + 1)
            }
            Motion::WordRight => {
                let start = after.iter().position(Cell::is_word).unwrap_or(after.len());
                let length = after[start..].iter().position(|cell| !cell.is_word());
                self.cursor + length.map_or(after.len(), |length| start + length)
            }
            Motion::LineStart => before.iter().rposition(|cell| cell.is("\n")).map_or(0, |at| at + 1),
            Motion::LineEnd => {
                after.iter().position(|cell| cell.is("\n")).map_or(self.cells.len(), |at| self.cursor + at)
            }
            Motion::Start => 0,
            Motion::End => self.cells.len(),
        }
    }

    /// Deletes up to the target of a movement.
    pub fn delete(&mut self, motion: Motion) {
        let range = self.range_to(motion);
        self.cursor = range.start;
        self.cells.drain(range);
    }

    /// Cuts up to the target of a movement, to be inserted by [`yank`](Self::yank).
    pub fn cut(&mut self, motion: Motion) {
        let mut range = self.range_to(motion);
        if range.is_empty() && motion == Motion::LineEnd && range.end < self.cells.len() {
            // At the end of a line, the line break is cut.
            range.end += 1;
        }
        self.cursor = range.start;
        let cut: Vec<_> = self.cells.drain(range).collect();
        if !cut.is_empty() {
            self.cut = cut;
        }
    }

    fn range_to(&self, motion: Motion) -> std::ops::Range<usize> {
        let target = self.target(motion);
        self.cursor.min(target)..self.cursor.max(target)
    }

    /// Inserts what was cut last.
    pub fn yank(&mut self) {
        let cut = self.cut.clone();
        let count = cut.len();
        self.cells.splice(self.cursor..self.cursor, cut);
        self.cursor += count;
    }

    /// Moves the cursor a row up or down in a layout of the given width. Returns false if there is no such row.
    pub fn move_row(&mut self, columns: usize, down: bool) -> bool {
        let layout = self.layout(columns);
        let row = if down { layout.row + 1 } else { layout.row.wrapping_sub(1) };
        let Some(&(start, end)) = layout.ranges.get(row) else { return false };
        let mut column = 0;
        self.cursor = start;
        while self.cursor < end && !self.cells[self.cursor].is("\n") {
            let next = column + width(self.cells[self.cursor].shown());
            if next > layout.column {
                break;
            }
            column = next;
            self.cursor += 1;
        }
        // The position after the last element of a wrapped row is shown at the start of the next one.
        if self.cursor == end && row + 1 < layout.ranges.len() && layout.ranges[row + 1].0 == end {
            self.cursor = end.saturating_sub(1).max(start);
        }
        true
    }

    /// Lays the text out in rows.
    pub fn layout(&self, columns: usize) -> Layout {
        let columns = columns.max(2);
        let mut ranges = Vec::new();
        let (mut start, mut used, mut last_space) = (0, 0, None);
        for (at, cell) in self.cells.iter().enumerate() {
            if cell.is("\n") {
                ranges.push((start, at));
                (start, used, last_space) = (at + 1, 0, None);
                continue;
            }
            // A chip that is wider than the row has a row of its own, and is cut there.
            let taken = width(cell.shown()).min(columns);
            if used + taken > columns {
                let end = last_space.filter(|space| *space > start).unwrap_or(at);
                ranges.push((start, end));
                start = end;
                used = self.cells[start..at].iter().map(|cell| width(cell.shown())).sum();
                last_space = None;
            }
            used += taken;
            if cell.is(" ") {
                last_space = Some(at + 1);
            }
        }
        ranges.push((start, self.cells.len()));
        let row = ranges.iter().rposition(|(start, _)| *start <= self.cursor).unwrap_or_default();
        let (row_start, _) = ranges[row];
        let mut column: usize = self.cells[row_start..self.cursor].iter().map(|cell| width(cell.shown())).sum();
        let mut rows: Vec<_> = ranges.iter().map(|&(start, end)| row_line(&self.cells[start..end], columns)).collect();
        let mut row = row;
        if column >= columns {
            // The row is full: the cursor is shown at the start of the next one.
            row += 1;
            column = 0;
            rows.insert(row, Line::default());
            ranges.insert(row, (self.cursor, self.cursor));
        }
        Layout { rows, row, column, ranges }
    }
}

fn row_line(cells: &[Cell], columns: usize) -> Line {
    let mut line = Line::default();
    for cell in cells {
        let style = match cell {
            Cell::Text(_) => TextStyle::PLAIN,
            Cell::Chip(_) => TextStyle::of(Color::Cyan),
        };
        line.push(cell.shown(), style);
    }
    line.truncate(columns)
}

fn image_label(image: &Image) -> String {
    format!("[image {}]", crate::sanitize::one_line(&image.name))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn composed(text: &str) -> Composer {
        let mut composer = Composer::default();
        composer.insert(text);
        composer
    }

    #[test]
    fn words_and_lines_are_edited() {
        let mut composer = composed("one two\nthree four");
        composer.cut(Motion::WordLeft);
        assert_eq!(composer.shown(), "one two\nthree ");
        composer.go(Motion::Start);
        composer.yank();
        assert_eq!(composer.shown(), "fourone two\nthree ");
        composer.go(Motion::WordRight);
        composer.cut(Motion::LineEnd);
        assert_eq!(composer.shown(), "fourone\nthree ");
        composer.cut(Motion::LineEnd);
        assert_eq!(composer.shown(), "fouronethree ");
        composer.delete(Motion::Left);
        composer.delete(Motion::Right);
        assert_eq!(composer.shown(), "fouronhree ");
        composer.cut(Motion::LineStart);
        assert_eq!(composer.shown(), "hree ");
    }

    #[test]
    fn combined_characters_are_one_element() {
        let mut composer = composed("e");
        composer.insert("\u{301}");
        composer.insert("👩");
        composer.insert("\u{200d}💻");
        composer.delete(Motion::Left);
        assert_eq!(composer.shown(), "e\u{301}");
        composer.delete(Motion::Left);
        assert!(composer.is_empty());
    }

    #[test]
    fn a_large_paste_is_a_chip_that_is_sent_in_full() {
        let pasted: String = (0..5_000).map(|line| format!("line {line}\n")).collect();
        let mut composer = composed("see ");
        composer.paste(&pasted);
        composer.insert(" ok");
        assert_eq!(composer.shown(), "see [paste 1: 5000 lines] ok");
        assert_eq!(composer.draft().text, format!("see {pasted} ok"));
        for _ in 0..4 {
            composer.delete(Motion::Left);
        }
        assert_eq!(composer.shown(), "see ");
        composer.paste("a\r\nb");
        assert_eq!(composer.shown(), "see a\nb");
        composer.paste(&"x".repeat(1_001));
        assert_eq!(composer.shown(), "see a\nb[paste 2: 1001 chars]");
    }

    #[test]
    fn pictures_are_restored() {
        let image = Image { name: "a.png".to_owned(), mime: "image/png".to_owned(), content: "AAAA".to_owned() };
        let mut composer = composed("look ");
        composer.attach(image.clone());
        let draft = composer.take();
        assert_eq!(
            draft,
            Draft {
                text: "look [image a.png]".to_owned(),
                shown: "look [image a.png]".to_owned(),
                images: vec![image]
            }
        );
        composer.restore(&draft);
        assert_eq!(composer.draft(), draft);
    }

    #[test]
    fn the_cursor_moves_between_rows() {
        let mut composer = composed("abcdef ghi\nxy\nlast one");
        let texts = |composer: &Composer| composer.layout(8).rows.iter().map(Line::text).collect::<Vec<_>>();
        assert_eq!(texts(&composer), ["abcdef ", "ghi", "xy", "last one", ""]);
        assert!(composer.move_row(8, false));
        let at = |composer: &Composer| {
            let layout = composer.layout(8);
            (layout.row, layout.column)
        };
        assert_eq!(at(&composer), (3, 0));
        assert!(composer.move_row(8, false));
        assert_eq!(at(&composer), (2, 0));
        composer.go(Motion::LineEnd);
        assert!(composer.move_row(8, false));
        assert_eq!(at(&composer), (1, 2));
        assert!(composer.move_row(8, false));
        assert_eq!(at(&composer), (0, 2));
        assert!(!composer.move_row(8, false));
        assert!(composer.move_row(8, true));
        assert_eq!(at(&composer), (1, 2));
    }

    /// Something that a user does.
    #[derive(Debug, Clone)]
    enum Edit {
        Insert(String),
        Paste(usize),
        Go(Motion),
        Delete(Motion),
        Cut(Motion),
        Yank,
        Row(bool),
    }

    fn edit() -> impl Strategy<Value = Edit> {
        let motion = prop::sample::select(vec![
            Motion::Left,
            Motion::Right,
            Motion::WordLeft,
            Motion::WordRight,
            Motion::LineStart,
            Motion::LineEnd,
            Motion::Start,
            Motion::End,
        ]);
        prop_oneof![
            "[a-c é日👍\n]{1,6}".prop_map(Edit::Insert),
            (1_usize..30).prop_map(Edit::Paste),
            motion.clone().prop_map(Edit::Go),
            motion.clone().prop_map(Edit::Delete),
            motion.prop_map(Edit::Cut),
            Just(Edit::Yank),
            any::<bool>().prop_map(Edit::Row),
        ]
    }

    proptest! {
        #[test]
        fn edits_keep_the_cursor_and_the_layout_consistent(edits in prop::collection::vec(edit(), 0..40), columns in 4_usize..20) {
            let mut composer = Composer::default();
            for edit in edits {
                match edit {
                    Edit::Insert(text) => composer.insert(&text),
                    Edit::Paste(lines) => composer.paste(&"x\n".repeat(lines)),
                    Edit::Go(motion) => composer.go(motion),
                    Edit::Delete(motion) => composer.delete(motion),
                    Edit::Cut(motion) => composer.cut(motion),
                    Edit::Yank => composer.yank(),
                    Edit::Row(down) => { composer.move_row(columns, down); }
                }
                prop_assert!(composer.cursor <= composer.cells.len());
                let layout = composer.layout(columns);
                prop_assert!(layout.row < layout.rows.len());
                prop_assert!(layout.column < columns);
                prop_assert!(layout.rows.iter().all(|row| row.width() <= columns));
                // The rows are the text.
                let covered: Vec<_> = layout.ranges.iter().flat_map(|&(start, end)| start..end).collect();
                let expected: Vec<_> = (0..composer.cells.len()).filter(|at| !composer.cells[*at].is("\n")).collect();
                prop_assert_eq!(covered, expected);
            }
        }

        #[test]
        fn typed_text_is_sent_unchanged(text in "[a-z é日👍\n]{0,80}", columns in 4_usize..40) {
            let mut composer = Composer::default();
            for char in text.chars() {
                composer.insert(&char.to_string());
                composer.layout(columns);
            }
            prop_assert_eq!(composer.take().text, text);
            prop_assert!(composer.is_empty());
        }
    }
}
