//! What counts as a word. Chinese, Japanese and Korean are written without gaps between words, or glue endings to them:
//! there every character is indexed by itself, and every two that stand together are looked for together.

/// How many words of a question are looked for.
const MOST: usize = 64;

/// A text as it is indexed: with gaps around every character that is a word by itself.
pub(crate) fn apart(text: &str) -> String {
    let mut apart = String::with_capacity(text.len() * 2);
    for character in text.chars() {
        if stands_alone(character) {
            apart.extend([' ', character, ' ']);
        } else {
            apart.push(character);
        }
    }
    apart
}

/// The words of a question, each once.
pub(crate) fn words(question: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for run in question.split(|character: char| !is_part(character)) {
        for word in runs(run).into_iter().flat_map(pairs) {
            let word = word.to_lowercase();
            if !words.contains(&word) && words.len() < MOST {
                words.push(word);
            }
        }
    }
    words
}

/// A word as the index is asked for it: a phrase in quotes, so that nothing in it is an operator.
pub(crate) fn phrase(word: &str) -> String {
    format!("\"{}\"", apart(word).trim())
}

/// Cuts where characters that stand alone meet others.
fn runs(run: &str) -> Vec<&str> {
    let mut runs = Vec::new();
    let mut from = 0;
    let mut before = None;
    for (at, character) in run.char_indices() {
        let alone = stands_alone(character);
        if before.is_some_and(|before| before != alone) {
            runs.push(&run[from..at]);
            from = at;
        }
        before = Some(alone);
    }
    runs.push(&run[from..]);
    runs.retain(|run| run.chars().any(char::is_alphanumeric));
    runs
}

/// Every two neighbours of characters that stand alone; anything else as it is.
fn pairs(run: &str) -> Vec<&str> {
    let starts: Vec<usize> = run.char_indices().map(|(at, _)| at).chain([run.len()]).collect();
    if run.starts_with(stands_alone) && starts.len() > 3 {
        starts.windows(3).map(|at| &run[at[0]..at[2]]).collect()
    } else {
        vec![run]
    }
}

/// Whether a character is part of a word: what the index takes for one, and marks on letters.
fn is_part(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '\u{300}'..='\u{36f}')
}

/// Han, kana and Hangul.
fn stands_alone(character: char) -> bool {
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
    fn a_question_is_its_words() {
        assert_eq!(words("What's the DB-host, the db?"), ["what", "s", "the", "db", "host"]);
        assert_eq!(words("東京のtower 2号"), ["東京", "京の", "tower", "2", "号"]);
        assert_eq!(words("  \"' * ^ () NEAR/2"), ["near", "2"]);
        assert_eq!(words("…!?"), Vec::<String>::new());
    }

    #[test]
    fn a_long_question_is_cut() {
        let question: Vec<String> = (0..100).map(|number| number.to_string()).collect();
        assert_eq!(words(&question.join(" ")), question[..MOST]);
    }

    #[test]
    fn characters_that_are_words_are_looked_for_together() {
        assert_eq!(
            (phrase("東京"), phrase("host"), apart("a東b")),
            ("\"東  京\"".to_owned(), "\"host\"".to_owned(), "a 東 b".to_owned(),)
        );
    }
}
