//! Truncates the text of a file to the space in a prompt. Counts are characters, never bytes.

use homard_stdx::text::beginning;

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
    /// Creates it from a complete text. If that exceeds `limit`, only its ends are kept.
    pub(crate) fn new(text: &str, limit: usize) -> Self {
        let chars = text.chars().count();
        if chars <= limit {
            return Self::Whole { text: text.to_owned(), chars };
        }
        let (head, tail) = (beginning(text, head_chars(limit)).to_owned(), last(text, tail_chars(limit)).to_owned());
        Self::Ends { head, tail, chars, is_counted: true }
    }

    /// Creates a text of which only the ends were read, and the bytes counted.
    pub(crate) fn ends(head: &str, tail: &str, bytes: usize, limit: usize) -> Self {
        let (head, tail) = (beginning(head, head_chars(limit)).to_owned(), last(tail, tail_chars(limit)).to_owned());
        Self::Ends { head, tail, chars: bytes, is_counted: false }
    }

    /// Returns the length of the whole text in characters; in bytes if only its ends were read.
    pub(crate) fn char_count(&self) -> usize {
        match self {
            Self::Whole { chars, .. } | Self::Ends { chars, .. } => *chars,
        }
    }

    /// Returns what is shown within this space, and how much of it the text's own characters take. The truncation note
    /// is added on top, so that the kept part does not depend on its wording.
    pub(crate) fn fit(&self, name: &str, space: usize) -> (PageBody, usize) {
        let (head, tail) = match self {
            Self::Whole { text, chars } if *chars <= space => return (PageBody::Whole(text.clone()), *chars),
            Self::Whole { text, .. } => (text, text),
            Self::Ends { head, tail, .. } => (head, tail),
        };
        let (head, tail) = (beginning(head, head_chars(space)), last(tail, tail_chars(space)));
        let (head_count, tail_count) = (head.chars().count(), tail.chars().count());
        let notice = format!(
            "[… the middle of {name} is left out: here are {head_count} + {tail_count} of {}; read the file for the rest …]",
            self.length()
        );
        (PageBody::Cut(format!("{head}\n\n{notice}\n\n{tail}")), head_count + tail_count)
    }

    /// Returns the note that replaces a file for which no space is left.
    pub(crate) fn note(&self, name: &str) -> PageBody {
        PageBody::Cut(format!(
            "[… {name} is left out, earlier files used up the space: {}; read the file …]",
            self.length()
        ))
    }

    fn length(&self) -> String {
        let is_estimate = matches!(self, Self::Ends { is_counted: false, .. });
        format!("{}{} characters", if is_estimate { "about " } else { "" }, self.char_count())
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

/// Returns `count` tenths of a limit, rounded down. Does not overflow, even for `usize::MAX`.
fn tenths(limit: usize, count: usize) -> usize {
    limit / 10 * count + limit % 10 * count / 10
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
    fn a_truncated_text_keeps_70_percent_head_and_20_percent_tail() {
        let text = FileText::new("0123456789abcdefghijklm", 19);
        let expected = "0123456789abc\n\n[… the middle of USER.md is left out: here are 13 + 3 of 23 characters; read the \
                     file for the rest …]\n\nklm";
        assert_eq!(text.fit("USER.md", 19), (PageBody::Cut(expected.to_owned()), 16));
        // Reducing the space later has the same result as reducing it from the start.
        assert_eq!(text.fit("USER.md", 11), FileText::new("0123456789abcdefghijklm", 11).fit("USER.md", 11));
    }

    #[test]
    fn an_estimated_length_is_marked_as_such() {
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
        fn a_text_is_whole_or_truncated_around_a_notice(
            text in "(\\PC|[äß漢🦞\n]){0,300}", limit in 0_usize..320, less in 0_usize..40,
        ) {
            let all: Vec<char> = text.chars().collect();
            // The space at the time of use may be smaller than the limit with which the text was read.
            let space = limit - less.min(limit);
            let (body, used) = FileText::new(&text, limit).fit("AGENTS.md", space);
            if all.len() <= space {
                prop_assert_eq!((body, used), (PageBody::Whole(text), all.len()));
                return Ok(());
            }
            let (head_count, tail_count) = (space * 7 / 10, space * 2 / 10);
            let head: String = all[..head_count].iter().collect();
            let tail: String = all[all.len() - tail_count..].iter().collect();
            let truncated = cut(body);
            let notice = truncated.strip_prefix(&head).and_then(|rest| rest.strip_suffix(&tail)).unwrap();
            let counts = format!(" {head_count} + {tail_count} of {} characters; ", all.len());
            prop_assert!(notice.contains("AGENTS.md") && notice.contains(&counts), "{}", notice);
            prop_assert!(notice.chars().count() < 160, "{}", notice);
            prop_assert!(used == head_count + tail_count && used <= space);
        }

        #[test]
        fn large_limits_do_not_overflow(text in "\\PC{0,40}", limit in usize::MAX - 20..) {
            let chars = text.chars().count();
            prop_assert_eq!(FileText::new(&text, limit).fit("SOUL.md", limit), (PageBody::Whole(text), chars));
            prop_assert!(head_chars(limit) + tail_chars(limit) <= limit);
        }
    }
}
