//! Writes frames as escape sequences, below the scrollback of the terminal.
//!
//! All movements are relative to the cursor, so that the position on the screen need not be known: the terminal scrolls,
//! selects and copies as usual. Only lines that changed are written.

use crate::{
    style::{Color, Line, Span, TextStyle, width},
    view::Frame,
};

/// Begins and ends an update that the terminal shows at once.
const BEGIN: &str = "\x1b[?2026h\x1b[?25l";
const END: &str = "\x1b[?2026l";
const SHOW_CURSOR: &str = "\x1b[?25h";
/// Clears from the cursor to the end of the screen.
const CLEAR_BELOW: &str = "\x1b[J";
const ENTER_ALTERNATE: &str = "\x1b[?1049h";
const LEAVE_ALTERNATE: &str = "\x1b[?1049l";

/// What the terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// Colours are wanted.
    pub has_colors: bool,
    /// The locale has the characters of Unicode.
    pub has_unicode: bool,
    /// Lines that were longer than the screen are wrapped again when its width changes.
    pub reflows: bool,
}

/// What is on the screen.
#[derive(Debug)]
pub struct Screen {
    capabilities: Capabilities,
    columns: usize,
    /// Lines below the scrollback.
    shown: Vec<Line>,
    /// Rows between the first of them and the cursor.
    rows_above: usize,
    is_alternate: bool,
    /// Lines on the alternate screen.
    full: Vec<Line>,
    /// True if the screen does not show `shown` any more.
    is_dirty: bool,
}

impl Screen {
    /// Starts below what the terminal shows.
    pub fn new(capabilities: Capabilities, columns: u16) -> Self {
        Self {
            capabilities,
            columns: usize::from(columns).max(1),
            shown: Vec::new(),
            rows_above: 0,
            is_alternate: false,
            full: Vec::new(),
            is_dirty: false,
        }
    }

    /// The terminal has a new width.
    pub fn resize(&mut self, columns: u16) {
        let columns = usize::from(columns).max(1);
        if columns != self.columns && self.capabilities.reflows {
            // Lines that are too long now take several rows.
            let above = self.rows_above.min(self.shown.len());
            self.rows_above = self.shown[..above].iter().map(|line| line.width().div_ceil(columns).max(1)).sum();
        }
        self.columns = columns;
        self.redraw();
    }

    /// Draws everything with the next frame.
    pub fn redraw(&mut self) {
        self.is_dirty = true;
        self.full.clear();
    }

    /// Writes a frame.
    pub fn draw(&mut self, frame: &Frame, out: &mut String) {
        out.push_str(BEGIN);
        match frame {
            Frame::Full(lines) => self.draw_full(lines, out),
            Frame::Inline { commit, view, cursor } => {
                if std::mem::take(&mut self.is_alternate) {
                    out.push_str(LEAVE_ALTERNATE);
                    self.full.clear();
                }
                self.draw_inline(commit, view, *cursor, out);
            }
        }
        out.push_str(END);
    }

    fn draw_full(&mut self, lines: &[Line], out: &mut String) {
        if !std::mem::replace(&mut self.is_alternate, true) {
            out.push_str(ENTER_ALTERNATE);
            self.full.clear();
        }
        for (row, line) in lines.iter().enumerate() {
            if self.full.get(row) != Some(line) {
                out.push_str(&format!("\x1b[{};1H\x1b[2K", row + 1));
                self.write(line, out);
            }
        }
        self.full = lines.to_vec();
    }

    fn draw_inline(&mut self, commit: &[Line], view: &[Line], cursor: Option<(usize, usize)>, out: &mut String) {
        up(self.rows_above, out);
        out.push('\r');
        if !commit.is_empty() || std::mem::take(&mut self.is_dirty) || self.shown.is_empty() {
            out.push_str(CLEAR_BELOW);
            for line in commit {
                self.write(line, out);
                out.push_str("\r\n");
            }
            for (row, line) in view.iter().enumerate() {
                if row > 0 {
                    out.push_str("\r\n");
                }
                self.write(line, out);
            }
        } else {
            self.draw_changes(view, out);
        }
        let last = view.len().saturating_sub(1);
        let (row, column) = cursor.unwrap_or((last, 0));
        let row = row.min(last);
        up(last - row, out);
        out.push('\r');
        if column > 0 {
            out.push_str(&format!("\x1b[{}C", column.min(self.columns - 1)));
        }
        if cursor.is_some() || view.is_empty() {
            out.push_str(SHOW_CURSOR);
        }
        self.rows_above = row;
        self.shown = view.to_vec();
    }

    /// Writes the lines that changed. The cursor is in the first row, and is in the last one at the end.
    fn draw_changes(&self, view: &[Line], out: &mut String) {
        for (row, line) in view.iter().enumerate() {
            if row >= self.shown.len() {
                // This scrolls if the row is below the screen.
                out.push_str("\r\n");
                self.write(line, out);
                continue;
            }
            if row > 0 {
                out.push_str("\x1b[B");
            }
            if self.shown[row] != *line {
                out.push_str("\r\x1b[2K");
                self.write(line, out);
            }
        }
        if view.len() < self.shown.len() {
            match view.len() {
                0 => out.push_str(&format!("\r{CLEAR_BELOW}")),
                _ => out.push_str(&format!("\x1b[B\r{CLEAR_BELOW}\x1b[A")),
            }
        }
    }

    /// Ends the output: the cursor is below everything.
    pub fn finish(&mut self, out: &mut String) {
        if std::mem::take(&mut self.is_alternate) {
            out.push_str(LEAVE_ALTERNATE);
        }
        let below = self.shown.len().saturating_sub(1).saturating_sub(self.rows_above);
        if below > 0 {
            out.push_str(&format!("\x1b[{below}B"));
        }
        out.push_str(if self.shown.is_empty() { "\r" } else { "\r\n" });
        out.push_str(SHOW_CURSOR);
        (self.shown, self.rows_above) = (Vec::new(), 0);
    }

    fn write(&self, line: &Line, out: &mut String) {
        for Span { text, style } in &line.spans {
            let codes = self.codes(*style);
            if !codes.is_empty() {
                out.push_str(&format!("\x1b[{codes}m"));
            }
            if self.capabilities.has_unicode {
                out.push_str(text);
            } else {
                text.chars().for_each(|char| push_ascii(char, out));
            }
            if !codes.is_empty() {
                out.push_str("\x1b[0m");
            }
        }
    }

    fn codes(&self, style: TextStyle) -> String {
        let color = match style.color {
            // Bright black is invisible in some themes.
            Some(Color::Gray) => Some("2"),
            Some(_) | None if !self.capabilities.has_colors => None,
            Some(Color::Red) => Some("31"),
            Some(Color::Green) => Some("32"),
            Some(Color::Yellow) => Some("33"),
            Some(Color::Blue) => Some("34"),
            Some(Color::Magenta) => Some("35"),
            Some(Color::Cyan) => Some("36"),
            None => None,
        };
        let flags =
            [(style.bold, "1"), (style.italic, "3"), (style.underline, "4"), (style.reverse, "7"), (style.strike, "9")];
        let flags = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, code)| code);
        flags.chain(color).collect::<Vec<_>>().join(";")
    }
}

fn up(rows: usize, out: &mut String) {
    if rows > 0 {
        out.push_str(&format!("\x1b[{rows}A"));
    }
}

/// Writes a character in ASCII, as wide as it is.
fn push_ascii(char: char, out: &mut String) {
    match char {
        _ if char.is_ascii() => out.push(char),
        '›' | '↳' | '→' => out.push('>'),
        '•' | '·' | '∴' => out.push('*'),
        '✓' => out.push('+'),
        '✗' => out.push('x'),
        '■' => out.push('#'),
        '│' | '┼' => out.push('|'),
        '─' => out.push('-'),
        '…' | '⋮' => out.push('~'),
        '\u{2800}'..='\u{28ff}' => out.push('*'),
        '‘' | '’' => out.push('\''),
        '“' | '”' => out.push('"'),
        '–' | '—' => out.push('-'),
        '\u{a0}' => out.push(' '),
        _ => out.extend(std::iter::repeat_n('?', width(char.encode_utf8(&mut [0; 4])))),
    }
}
