//! Similarity of short texts, to suggest what a model may have meant.

use std::collections::HashMap;

/// Maximum number of characters compared.
const MAX_CHARS: usize = 400;

/// Minimum similarity of a suggestion.
const MIN_SIMILARITY: f64 = 0.6;

/// Returns the text most similar to `wanted`, if one is similar enough; the first of several.
pub(crate) fn nearest<T: AsRef<str>>(wanted: &str, among: impl Iterator<Item = T>) -> Option<T> {
    let wanted = Bigrams::of(wanted);
    let mut best = None;
    let mut best_score = MIN_SIMILARITY;
    for text in among {
        let score = wanted.similarity(&Bigrams::of(text.as_ref()));
        // The first may equal the threshold; a later one must be better.
        if score > best_score || (best.is_none() && score >= best_score) {
            (best, best_score) = (Some(text), score);
        }
    }
    best
}

/// Counts of character bigrams, ignoring case. The ends of the text count as characters.
struct Bigrams {
    counts: HashMap<(char, char), usize>,
    total: usize,
}

impl Bigrams {
    fn of(text: &str) -> Self {
        let mut pairs = Self { counts: HashMap::new(), total: 0 };
        let mut before = '\0';
        let letters = text.trim().chars().take(MAX_CHARS).flat_map(char::to_lowercase);
        for character in letters.chain(['\0']) {
            *pairs.counts.entry((before, character)).or_default() += 1;
            pairs.total += 1;
            before = character;
        }
        pairs
    }

    /// Returns the Sørensen–Dice coefficient, from 0 to 1.
    fn similarity(&self, other: &Self) -> f64 {
        let both: usize =
            self.counts.iter().map(|(pair, count)| other.counts.get(pair).map_or(0, |other| *count.min(other))).sum();
        2.0 * both as f64 / (self.total + other.total) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_text_has_a_typo() {
        let names = ["main.rs", "README.md", "notes.txt", "note.txt"];
        for (wanted, near) in [
            ("readme.md", Some("README.md")),
            ("READ_ME.md", Some("README.md")),
            ("note.text", Some("note.txt")),
            ("main.r", Some("main.rs")),
            ("zebra", None),
            ("", None),
        ] {
            assert_eq!(nearest(wanted, names.into_iter()), near, "{wanted}");
        }
        assert_eq!(nearest("a", ["a"].into_iter()), Some("a"));
    }
}
