//! Mention patterns: whether the text of a group message addresses the agent.

use regex_automata::{meta::Regex, util::syntax};

/// Maximum memory of a compiled pattern.
const MAX_PATTERN_BYTES: usize = 1 << 20;

/// Compiled mention patterns.
#[derive(Debug, Clone, Default)]
pub struct MentionPatterns(Vec<Regex>);

impl MentionPatterns {
    /// Compiles patterns of the config, ignoring case; also returns an error text for each invalid one.
    pub fn new<'a>(patterns: impl IntoIterator<Item = &'a str>) -> (Self, Vec<String>) {
        let (mut valid, mut errors) = (Vec::new(), Vec::new());
        for pattern in patterns.into_iter().map(str::trim).filter(|pattern| !pattern.is_empty()) {
            match compile(pattern) {
                Ok(regex) => valid.push(regex),
                Err(reason) => errors.push(format!("ignoring the mention pattern {pattern}: {reason}")),
            }
        }
        (Self(valid), errors)
    }

    /// Derives patterns from an agent's name and emoji, used if the config has none.
    pub fn of_identity(name: Option<&str>, emoji: Option<&str>) -> Self {
        let mut patterns = Vec::new();
        let words: Vec<String> = name.unwrap_or_default().split_whitespace().map(escaped).collect();
        if !words.is_empty() {
            patterns.push(format!(r"\b@?{}\b", words.join(r"\s+")));
        }
        patterns.extend(emoji.map(str::trim).filter(|emoji| !emoji.is_empty()).map(escaped));
        // Names that do not begin or end with a word character, such as an emoji, have no word boundary there.
        Self(patterns.iter().filter_map(|pattern| compile(pattern).ok()).collect())
    }

    /// Returns true if there are no patterns.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if a pattern matches the text, ignoring invisible characters.
    pub fn matches(&self, text: &str) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let text: String = text.chars().filter(|c| !is_invisible(*c)).collect();
        self.0.iter().any(|pattern| pattern.is_match(&text))
    }
}

fn compile(pattern: &str) -> Result<Regex, String> {
    Regex::builder()
        .configure(Regex::config().nfa_size_limit(Some(MAX_PATTERN_BYTES)))
        .syntax(syntax::Config::new().case_insensitive(true))
        .build(pattern)
        .map_err(|error| match error.syntax_error() {
            Some(_) => "not a valid regular expression".to_owned(),
            None => "the compiled expression is too large".to_owned(),
        })
}

fn escaped(word: &str) -> String {
    let mut escaped = String::new();
    for c in word.chars() {
        if c.is_ascii_punctuation() {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{ad}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_matches_as_a_word_in_any_case() {
        let patterns = MentionPatterns::of_identity(Some("Big  Lob.ster"), Some("🦞"));
        let known = ["hey big lob.ster!", "@BIG LOB.STER", "b\u{200b}ig lob.ster", "🦞 help"];
        assert_eq!(known.map(|text| patterns.matches(text)), [true; 4]);
        let unknown = ["bigger lob.sters", "big lobxster", "biglob.ster", ""];
        assert_eq!(unknown.map(|text| patterns.matches(text)), [false; 4]);
        assert!(MentionPatterns::of_identity(Some(" "), None).is_empty());
    }

    #[test]
    fn an_invalid_pattern_is_reported_and_ignored() {
        let (patterns, errors) = MentionPatterns::new([r"\bclaw\b", "(", " ", "a{1000}{1000}"]);
        assert!(patterns.matches("The Claw!") && !patterns.matches("clawed"));
        assert_eq!(
            errors,
            [
                "ignoring the mention pattern (: not a valid regular expression",
                "ignoring the mention pattern a{1000}{1000}: the compiled expression is too large",
            ]
        );
    }

    proptest! {
        #[test]
        fn any_name_matches_itself(name in "[\\p{L}\\p{P} ]{0,12}") {
            let patterns = MentionPatterns::of_identity(Some(&name), None);
            let words: Vec<&str> = name.split_whitespace().collect();
            let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
            let text = words.join(" ");
            if is_word(text.chars().next()) && is_word(text.chars().last()) {
                let message = format!("hey {text}, hello");
                prop_assert!(patterns.matches(&message));
            }
        }
    }
}
