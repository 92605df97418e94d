//! Counts with their noun: `1 run`, `2 runs`.

/// Formats a count with a noun whose plural ends in `s`.
pub fn count(number: usize, singular: &str) -> String {
    count_of(number, singular, &format!("{singular}s"))
}

/// Formats a count with a noun that has an irregular plural.
pub fn count_of(number: usize, singular: &str, plural: &str) -> String {
    if number == 1 { format!("1 {singular}") } else { format!("{number} {plural}") }
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
