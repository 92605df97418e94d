//! The whole conversation with all output, on the alternate screen.

use crate::{style::Line, transcript::Transcript};

/// An open pager.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pager {
    /// Lines, and the width and version of the transcript that they were rendered for.
    lines: Vec<Line>,
    rendered: Option<(usize, u64)>,
    /// First visible line; `None` while the end is followed.
    top: Option<usize>,
    rows: usize,
}

/// A movement in the pager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scroll {
    Up,
    Down,
    PageUp,
    PageDown,
    Start,
    End,
}

impl Pager {
    /// Moves the visible part.
    pub(crate) fn scroll(&mut self, scroll: Scroll) {
        let last = self.lines.len().saturating_sub(self.rows);
        let top = self.top.unwrap_or(last);
        let page = self.rows.saturating_sub(1).max(1);
        let top = match scroll {
            Scroll::Up => top.saturating_sub(1),
            Scroll::Down => top + 1,
            Scroll::PageUp => top.saturating_sub(page),
            Scroll::PageDown => top + page,
            Scroll::Start => 0,
            Scroll::End => last,
        };
        self.top = (top < last).then_some(top);
    }

    /// Returns the visible lines, and the position in percent.
    pub(crate) fn visible(
        &mut self,
        transcript: &mut Transcript,
        columns: usize,
        rows: usize,
        now: u64,
    ) -> (&[Line], usize) {
        let version = transcript.version();
        if self.rendered != Some((columns, version)) {
            self.lines = transcript.all_lines(columns, now);
            // Rendering does not change the transcript, but counts as access.
            self.rendered = Some((columns, transcript.version()));
        }
        self.rows = rows;
        let last = self.lines.len().saturating_sub(rows);
        let top = self.top.unwrap_or(last).min(last);
        let end = (top + rows).min(self.lines.len());
        let percent = (top * 100).checked_div(last).unwrap_or(100);
        (&self.lines[top..end], percent)
    }
}
