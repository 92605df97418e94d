//! Truncates the text of a file to the space in a prompt. Counts are characters, never bytes.

use crate::PageBody;

/// Text of a file, or its beginning and end if the text exceeds the limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FileText {
    /// All of it.
    Whole {
        text: String,
        /// Number of characters.
        chars: usize,
    },
    /// The two ends of a longer text.
    Ends {
        /// Beginning.
        head: String,
        /// End.
        tail: String,
        /// Number of characters of the whole text.
        chars: usize,
        /// True if the characters were counted; otherwise it is the number of bytes.
        is_counted: bool,
    },
}

impl FileText {
    /// Creates a text that was read completely.
    pub(crate) fn new(text: &str, limit: usize) -> Self {
        let chars = text.chars().count();
        if chars <= limit {
            return Self::Whole { text: text.to_owned(), chars };
        }
        let (head, tail) = (first(text, head_chars(limit)).to_owned(), last(text, tail_chars(limit)).to_owned());
        Self::Ends { head, tail, chars, is_counted: true }
    }

    /// Creates a text of which only the ends were read, and the bytes counted.
    pub(crate) fn ends(head: &str, tail: &str, bytes: usize, limit: usize) -> Self {
        let (head, tail) = (first(head, head_chars(limit)).to_owned(), last(tail, tail_chars(limit)).to_owned());
        Self::Ends { head, tail, chars: bytes, is_counted: false }
    }

    /// Returns the number of characters of the whole text, or of bytes if the characters were not counted.
    pub(crate) fn chars(&self) -> usize {
        match self {
            Self::Whole { chars, .. } | Self::Ends { chars, .. } => *chars,
        }
    }

    /// Returns what is shown within this space, and how much of it the text's own characters take. The truncation note
    /// is added on top, so that the kept part does not depend on its wording.
    pub(crate) fn fit(&self, name: &str, room: usize) -> (PageBody, usize) {
        let (head, tail) = match self {
            Self::Whole { text, chars } if *chars <= room => return (PageBody::Whole(text.clone()), *chars),
            Self::Whole { text, .. } => (text, text),
            Self::Ends { head, tail, .. } => (head, tail),
        };
        let (head, tail) = (first(head, head_chars(room)), last(tail, tail_chars(room)));
        let (begins, ends) = (head.chars().count(), tail.chars().count());
        let mark = format!(
            "[… the middle of {name} is left out: here are {begins} + {ends} of {}; read the file for the rest …]",
            self.length()
        );
        (PageBody::Cut(format!("{head}\n\n{mark}\n\n{tail}")), begins + ends)
    }

    /// Returns the note that replaces a file for which no space is left.
    pub(crate) fn note(&self, name: &str) -> PageBody {
        PageBody::Cut(format!(
            "[… {name} is left out, earlier files used up the space: {}; read the file …]",
            self.length()
        ))
    }

    fn length(&self) -> String {
        let is_guess = matches!(self, Self::Ends { is_counted: false, .. });
        format!("{}{} characters", if is_guess { "about " } else { "" }, self.chars())
    }
}

/// Returns how many characters of a truncated text come from its beginning: 70 %.
pub(crate) fn head_chars(limit: usize) -> usize {
    tenths(limit, 7)
}

/// Returns how many characters of a truncated text come from its end: 20 %.
pub(crate) fn tail_chars(limit: usize) -> usize {
    tenths(limit, 2)
}

/// Rounds down, without overflow for a limit that means "none".
fn tenths(limit: usize, count: usize) -> usize {
    limit / 10 * count + limit % 10 * count / 10
}

fn first(text: &str, count: usize) -> &str {
    text.char_indices().nth(count).map_or(text, |(end, _)| &text[..end])
}

fn last(text: &str, count: usize) -> &str {
    let Some(before) = count.checked_sub(1) else { return "" };
    text.char_indices().rev().nth(before).map_or(text, |(start, _)| &text[start..])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut(body: PageBody) -> String {
        let PageBody::Cut(text) = body else { panic!("not cut: {body:?}") };
        text
    }

    #[test]
    fn a_cut_keeps_seven_tenths_and_two_tenths_of_the_limit() {
        let text = FileText::new("0123456789abcdefghijklm", 19);
        let shown = "0123456789abc\n\n[… the middle of USER.md is left out: here are 13 + 3 of 23 characters; read the \
                     file for the rest …]\n\nklm";
        assert_eq!(text.fit("USER.md", 19), (PageBody::Cut(shown.to_owned()), 16));
        // Reducing the space later has the same result as reducing it from the start.
        assert_eq!(text.fit("USER.md", 11), FileText::new("0123456789abcdefghijklm", 11).fit("USER.md", 11));
    }

    #[test]
    fn a_guessed_length_says_so() {
        let text = FileText::ends("begin", "end", 52_428_800, 10);
        assert_eq!(
            cut(text.fit("AGENTS.md", 10).0),
            "begin\n\n[… the middle of AGENTS.md is left out: here are 5 + 2 of about 52428800 characters; read the \
             file for the rest …]\n\nnd"
        );
        assert_eq!(
            cut(text.note("AGENTS.md")),
            "[… AGENTS.md is left out, earlier files used up the space: about 52428800 characters; read the file …]"
        );
    }

    proptest! {
        #[test]
        fn a_text_is_whole_or_its_ends_around_a_mark(
            text in "(\\PC|[äß漢🦞\n]){0,300}", limit in 0_usize..320, less in 0_usize..40,
        ) {
            let all: Vec<char> = text.chars().collect();
            let room = limit - less.min(limit);
            let (body, taken) = FileText::new(&text, limit).fit("AGENTS.md", room);
            if all.len() <= room {
                prop_assert_eq!((body, taken), (PageBody::Whole(text), all.len()));
                return Ok(());
            }
            let (begins, ends) = (room * 7 / 10, room * 2 / 10);
            let head: String = all[..begins].iter().collect();
            let tail: String = all[all.len() - ends..].iter().collect();
            let shown = cut(body);
            let mark = shown.strip_prefix(&head).and_then(|rest| rest.strip_suffix(&tail)).unwrap();
            let counts = format!(" {begins} + {ends} of {} characters; ", all.len());
            prop_assert!(mark.contains("AGENTS.md") && mark.contains(&counts), "{}", mark);
            prop_assert!(mark.chars().count() < 160, "{}", mark);
            prop_assert!(taken == begins + ends && taken <= room);
        }

        #[test]
        fn no_limit_is_too_large(text in "\\PC{0,40}", limit in usize::MAX - 20..) {
            let chars = text.chars().count();
            prop_assert_eq!(FileText::new(&text, limit).fit("SOUL.md", limit), (PageBody::Whole(text), chars));
            prop_assert!(head_chars(limit) + tail_chars(limit) <= limit);
        }
    }
}
