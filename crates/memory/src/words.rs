//! Tokenization. Chinese, Japanese and Korean are written without spaces between words, or append endings to them:
//! there every character is indexed on its own, and adjacent pairs are searched as phrases.

/// Maximum number of words of a query.
const MAX_WORDS: usize = 64;

/// Prepares a text for indexing: puts spaces around every CJK character, so that each is indexed as a word.
pub(crate) fn separate_cjk(text: &str) -> String {
    let mut spaced = String::with_capacity(text.len() * 2);
    for character in text.chars() {
        if is_cjk(character) {
            spaced.extend([' ', character, ' ']);
        } else {
            spaced.push(character);
        }
    }
    spaced
}

/// Returns the distinct search terms of a query, in lower case: words, and pairs of adjacent CJK characters.
pub(crate) fn words(query: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for part in query.split(|character: char| !is_part(character)) {
        for word in split_at_cjk(part).into_iter().flat_map(pairs) {
            let word = word.to_lowercase();
            if !words.contains(&word) && words.len() < MAX_WORDS {
                words.push(word);
            }
        }
    }
    words
}

/// Formats a word for the index: a quoted phrase, so that nothing in it is an operator.
pub(crate) fn phrase(word: &str) -> String {
    format!("\"{}\"", separate_cjk(word).trim())
}

/// Splits a text where CJK characters and other characters meet. Parts without letters and digits are dropped.
fn split_at_cjk(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut from = 0;
    let mut previous = None;
    for (at, character) in text.char_indices() {
        let is_cjk_character = is_cjk(character);
        if previous.is_some_and(|previous| previous != is_cjk_character) {
            parts.push(&text[from..at]);
            from = at;
        }
        previous = Some(is_cjk_character);
    }
    parts.push(&text[from..]);
    parts.retain(|text| text.chars().any(char::is_alphanumeric));
    parts
}

/// Returns all pairs of adjacent characters of a CJK text with three or more characters; returns any other text
/// unchanged.
fn pairs(text: &str) -> Vec<&str> {
    let starts: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
    if text.starts_with(is_cjk) && starts.len() > 3 {
        starts.windows(3).map(|at| &text[at[0]..at[2]]).collect()
    } else {
        vec![text]
    }
}

/// True if a character is part of a word for the index, including combining marks.
fn is_part(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '\u{300}'..='\u{36f}')
}

/// True for Han, kana and Hangul.
fn is_cjk(character: char) -> bool {
    matches!(character,
        '\u{1100}'..='\u{11ff}' | '\u{2e80}'..='\u{2fdf}' | '\u{3005}'..='\u{3007}' | '\u{3041}'..='\u{3096}'
        | '\u{30a1}'..='\u{30ff}' | '\u{3131}'..='\u{318e}' | '\u{31f0}'..='\u{31ff}' | '\u{3400}'..='\u{4dbf}'
        | '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7a3}' | '\u{f900}'..='\u{faff}' | '\u{ff66}'..='\u{ff9f}'
        | '\u{20000}'..='\u{3ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_split_into_distinct_terms() {
        assert_eq!(words("What's the DB-host, the db?"), ["what", "s", "the", "db", "host"]);
        assert_eq!(words("東京のtower 2号"), ["東京", "京の", "tower", "2", "号"]);
        assert_eq!(words("  \"' * ^ () NEAR/2"), ["near", "2"]);
        assert_eq!(words("…!?"), Vec::<String>::new());
    }

    #[test]
    fn a_long_query_is_truncated() {
        let query: Vec<String> = (0..100).map(|number| number.to_string()).collect();
        assert_eq!(words(&query.join(" ")), query[..MAX_WORDS]);
    }

    #[test]
    fn cjk_pairs_become_phrases() {
        assert_eq!(
            (phrase("東京"), phrase("host"), separate_cjk("a東b")),
            ("\"東  京\"".to_owned(), "\"host\"".to_owned(), "a 東 b".to_owned(),)
        );
    }
}
