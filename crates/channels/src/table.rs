//! Renders tables as fixed-width text.

use unicode_segmentation::UnicodeSegmentation;

/// Maximum column width; longer cells overflow.
const MAX_COLUMN_WIDTH: usize = 40;

/// Cells of a table.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn begin_row(&mut self) {
        self.rows.push(Vec::new());
    }

    pub(crate) fn begin_cell(&mut self) {
        if let Some(row) = self.rows.last_mut() {
            row.push(String::new());
        }
    }

    /// Appends to the current cell. A cell is one line.
    pub(crate) fn push(&mut self, text: &str) {
        if let Some(cell) = self.rows.last_mut().and_then(|row| row.last_mut()) {
            cell.extend(text.chars().map(|c| if c == '\n' { ' ' } else { c }));
        }
    }

    /// Renders the table with a line below its header.
    pub(crate) fn write(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| display_width(cell)).max().unwrap_or(0).clamp(1, MAX_COLUMN_WIDTH)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut lines: Vec<String> = self.rows.iter().map(|row| line(row, &widths)).collect();
        if lines.len() > 1 {
            let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
            lines.insert(1, rule.join("-+-"));
        }
        lines.join("\n")
    }
}

fn line(row: &[String], widths: &[usize]) -> String {
    let cells: Vec<String> = row
        .iter()
        .zip(widths)
        .map(|(cell, width)| format!("{cell}{}", " ".repeat(width.saturating_sub(display_width(cell)))))
        .collect();
    cells.join(" | ").trim_end().to_owned()
}

fn display_width(text: &str) -> usize {
    text.graphemes(true).count()
}
