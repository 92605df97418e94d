//! Excerpt of a passage that shows why it matched.

/// Maximum number of characters of an excerpt.
const MAX_EXCERPT_CHARS: usize = 700;

/// Returns the part of a passage around the line with the most matching words.
pub(crate) fn excerpt(passage: &str, words: &[String]) -> String {
    let passage = passage.trim_end();
    if passage.chars().count() <= MAX_EXCERPT_CHARS {
        return passage.to_owned();
    }
    let lines: Vec<&str> = passage.split_inclusive('\n').collect();
    let count_matches = |line: &str| {
        let line = line.to_lowercase();
        words.iter().filter(|word| line.contains(word.as_str())).count()
    };
    // Of several equal lines, the first.
    let best = (0..lines.len()).rev().max_by_key(|&number| count_matches(lines[number])).unwrap_or_default();
    let (mut from, mut to, mut size) = (best, best + 1, lines[best].chars().count());
    // The text after a line explains more than the text before, so it is added first.
    loop {
        let extended_size = |line: Option<&&str>| {
            line.map(|line| size + line.chars().count()).filter(|size| *size <= MAX_EXCERPT_CHARS)
        };
        if let Some(sum) = extended_size(lines.get(to)) {
            (to, size) = (to + 1, sum);
        } else if let Some(sum) = extended_size(from.checked_sub(1).and_then(|previous| lines.get(previous))) {
            (from, size) = (from - 1, sum);
        } else {
            break;
        }
    }
    let section = lines[from..to].concat();
    if size <= MAX_EXCERPT_CHARS { section.trim_end().to_owned() } else { window(&section, words) }
}

/// Returns the part of one long line that starts shortly before the first matching word.
fn window(line: &str, words: &[String]) -> String {
    let characters: Vec<char> = line.trim_end().chars().collect();
    let lower: Vec<char> = characters.iter().map(|c| c.to_lowercase().next().unwrap_or(*c)).collect();
    let position_of = |word: &String| {
        let word: Vec<char> = word.chars().collect();
        lower.windows(word.len().max(1)).position(|part| part == word)
    };
    let first = words.iter().filter_map(position_of).min().unwrap_or_default();
    let from = first.saturating_sub(MAX_EXCERPT_CHARS / 10).min(characters.len().saturating_sub(MAX_EXCERPT_CHARS));
    characters[from..].iter().take(MAX_EXCERPT_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_passage_is_shown_whole() {
        assert_eq!(excerpt("one\ntwo\n", &["two".to_owned()]), "one\ntwo");
    }

    #[test]
    fn a_long_passage_is_cut_around_the_matches() {
        let filler = format!("{}\n", "x".repeat(99)).repeat(7);
        let passage = format!("{filler}{filler}The Answer is here\nand why\n{filler}");
        let section = excerpt(&passage, &["answer".to_owned()]);
        let expected = format!("The Answer is here\nand why\n{}", filler[..600].trim_end());
        assert_eq!(section, expected);
    }

    #[test]
    fn a_long_line_is_cut_around_the_match() {
        let passage = format!("{}Needle{}", "é".repeat(900), "ü".repeat(900));
        let section = excerpt(&passage, &["needle".to_owned()]);
        assert_eq!(section, format!("{}Needle{}", "é".repeat(70), "ü".repeat(624)));
    }
}
