//! Counts with their noun: `1 run`, `2 runs`.

/// Formats a count with a noun whose plural ends in `s`.
pub(crate) fn count(number: usize, one: &str) -> String {
    count_of(number, one, &format!("{one}s"))
}

/// Formats a count with a noun that has an irregular plural.
pub(crate) fn count_of(number: usize, one: &str, many: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {many}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_is_singular() {
        assert_eq!([0, 1, 2].map(|number| count(number, "run")), ["0 runs", "1 run", "2 runs"]);
        assert_eq!(count_of(2, "entry", "entries"), "2 entries");
    }
}
