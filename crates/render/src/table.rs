//! Small aligned tables that can be fitted to the width of a terminal.

use std::fmt;

/// Columns are this far apart.
const GAP: usize = 2;
/// A column of a list is not shortened below this width.
const MIN_COLUMN: usize = 8;

/// Rows with aligned columns. `Display` formats them at full width.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    rows: Vec<Vec<String>>,
    style: Style,
}

/// What happens to rows that are too wide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    /// Cells are shortened, except in the first column, which holds an id or a name.
    List,
    /// The last column wraps.
    Fields,
}

impl Table {
    /// A list of things, with titles in the first row. Wide cells are shortened to fit; the first column never is.
    pub fn list(rows: Vec<Vec<String>>) -> Self {
        Self { rows, style: Style::List }
    }

    /// Labels and values. Long values wrap under their column.
    pub fn fields(rows: Vec<Vec<String>>) -> Self {
        Self { rows, style: Style::Fields }
    }

    /// Formats the table to fit a width; without one, at full width.
    pub fn fit(&self, width: Option<usize>) -> String {
        let mut widths = self.widths();
        let Some(max_width) = width.filter(|max_width| total(&widths) > *max_width) else { return table(&self.rows) };
        match self.style {
            Style::List => {
                shorten(&mut widths, max_width);
                let cell = |(text, width): (&String, &usize)| truncate(text, *width);
                let row = |row: &Vec<String>| row.iter().zip(&widths).map(cell).collect();
                table(&self.rows.iter().map(row).collect::<Vec<_>>())
            }
            Style::Fields => {
                let other_width = total(&widths[..widths.len() - 1]) + if widths.len() > 1 { GAP } else { 0 };
                let last_width = max_width.saturating_sub(other_width).max(1);
                let row = |row: &Vec<String>| match row.get(widths.len() - 1) {
                    Some(last) => wrap(last, last_width)
                        .into_iter()
                        .enumerate()
                        .map(|(line, text)| {
                            let labels = &row[..widths.len() - 1];
                            let label = |label: &String| if line == 0 { label.clone() } else { String::new() };
                            labels.iter().map(label).chain([text]).collect()
                        })
                        .collect(),
                    None => vec![row.clone()],
                };
                table(&self.rows.iter().flat_map(row).collect::<Vec<Vec<String>>>())
            }
        }
    }

    fn widths(&self) -> Vec<usize> {
        widths(&self.rows)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.fit(None))
    }
}

/// Formats rows with aligned columns, two spaces apart.
fn table(rows: &[Vec<String>]) -> String {
    let widths = widths(rows);
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Returns the width of each column, in characters.
fn widths(rows: &[Vec<String>]) -> Vec<usize> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    (0..columns).map(|column| width(column).unwrap_or(0)).collect()
}

fn total(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
}

/// Narrows the widest columns after the first one until all fit, or none can be narrowed further.
fn shorten(widths: &mut [usize], max_width: usize) {
    while total(widths) > max_width {
        let widest = widths.iter_mut().skip(1).max().filter(|width| **width > MIN_COLUMN);
        let Some(widest) = widest else { return };
        *widest -= 1;
    }
}

/// Cuts a text to at most `max_chars` characters, the last one being an ellipsis.
fn truncate(text: &str, max_chars: usize) -> String {
    if text.chars().count() <= max_chars {
        return text.to_owned();
    }
    let kept: String = text.chars().take(max_chars.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

/// Breaks a text at spaces. A longer word, such as a path or a URL, stays whole so that it can be copied.
fn wrap(text: &str, max_chars: usize) -> Vec<String> {
    if text.chars().count() <= max_chars {
        return vec![text.to_owned()];
    }
    let words = text.trim_start_matches(' ');
    // Continuation lines keep the indentation of the first.
    let indent = &text[..text.len() - words.len()];
    let max_chars = max_chars.saturating_sub(indent.len());
    let mut lines = vec![String::new()];
    for word in words.split(' ') {
        let used = lines.last().map_or(0, |line| line.chars().count());
        match lines.last_mut() {
            Some(line) if used == 0 => line.push_str(word),
            Some(line) if used + 1 + word.chars().count() <= max_chars => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) | None => lines.push(word.to_owned()),
        }
    }
    lines.into_iter().map(|line| format!("{indent}{line}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[&[&str]]) -> Vec<Vec<String>> {
        rows.iter().map(|row| row.iter().map(|cell| (*cell).to_owned()).collect()).collect()
    }

    #[test]
    fn columns_are_aligned() {
        let rows = rows(&[&["KEY", "AGE"], &["agent:main:é", "3s ago"]]);
        assert_eq!(table(&rows), "KEY           AGE\nagent:main:é  3s ago");
    }

    #[test]
    fn a_list_fits_the_width() {
        let table = Table::list(rows(&[&["ID", "ABOUT", "AGE"], &["weather", "tells what the weather will be", "3s"]]));
        assert_eq!(table.fit(Some(30)), "ID       ABOUT            AGE\nweather  tells what the…  3s");
        assert!(table.fit(Some(30)).lines().all(|line| line.chars().count() <= 30));
    }

    #[test]
    fn an_id_is_never_cut() {
        let id = "6f1c0a52-1f0e-4d0e-9a55-1f8b8f3f9d11";
        let table = Table::list(rows(&[&["ID", "NAME"], &[id, "a name of some length"]]));
        assert_eq!(table.fit(Some(20)), format!("{:36}  NAME\n{id}  a name…", "ID"));
    }

    #[test]
    fn fields_wrap_below_their_value() {
        let table =
            Table::fields(rows(&[&["model", "none: set one up first"], &["config", "/home/me/.homard/homard.json"]]));
        assert_eq!(
            table.fit(Some(20)),
            "model   none: set\n        one up first\nconfig  /home/me/.homard/homard.json"
        );
    }

    #[test]
    fn wrapped_lines_keep_their_indentation() {
        let table = Table::fields(rows(&[&["5ms", "ran tools"], &["5ms", "  · tool read failed"]]));
        assert_eq!(table.fit(Some(18)), "5ms  ran tools\n5ms    · tool read\n       failed");
    }

    #[test]
    fn without_a_width_nothing_changes() {
        let rows = rows(&[&["model", "none: set one up first"], &["config", "/home/me/.homard/homard.json"]]);
        for variant in [Table::list(rows.clone()), Table::fields(rows.clone())] {
            assert_eq!(variant.to_string(), table(&rows));
            assert_eq!(variant.fit(Some(200)), table(&rows));
        }
        assert_eq!(Table::fields(Vec::new()).fit(Some(1)), "");
    }
}
