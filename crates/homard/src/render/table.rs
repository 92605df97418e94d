//! Small aligned tables and ages.

/// Formats rows with aligned columns, two spaces apart.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<_> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Formats the time since a moment, in its largest unit.
pub(crate) fn age(now_ms: u64, then_ms: u64) -> String {
    let seconds = now_ms.saturating_sub(then_ms) / 1000;
    match seconds {
        0..60 => format!("{seconds}s ago"),
        60..3_600 => format!("{}m ago", seconds / 60),
        3_600..86_400 => format!("{}h ago", seconds / 3_600),
        86_400.. => format!("{}d ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [vec!["KEY".to_owned(), "AGE".to_owned()], vec!["agent:main:é".to_owned(), "3s ago".to_owned()]];
        assert_eq!(table(&rows), "KEY           AGE\nagent:main:é  3s ago");
    }

    #[test]
    fn ages_use_the_largest_unit() {
        let ages = [0, 59_999, 60_000, 3_599_999, 3_600_000, 86_400_000].map(|ms| age(ms, 0));
        assert_eq!(ages, ["0s ago", "59s ago", "1m ago", "59m ago", "1h ago", "1d ago"]);
        assert_eq!(age(5, 10), "0s ago");
    }
}
