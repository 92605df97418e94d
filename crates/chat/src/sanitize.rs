//! Removes what could control the terminal from texts of models, tools and other people.
//!
//! The result has no control characters but line breaks, no escape sequences, and no characters that change the
//! direction of text invisibly.

use std::iter::Peekable;

/// Columns of a tab stop.
const TAB: usize = 4;

/// Removes escape sequences and control characters. Line breaks stay; a tab becomes spaces.
pub fn clean(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    let mut column = 0;
    let mut chars = text.char_indices().peekable();
    while let Some((at, char)) = chars.next() {
        match char {
            '\u{1b}' => skip_sequence(text, at, &mut chars),
            '\u{9b}' => skip_csi(&mut chars),
            '\n' => {
                cleaned.push('\n');
                column = 0;
            }
            '\r' if matches!(chars.peek(), Some((_, '\n'))) => {}
            '\t' => {
                let spaces = TAB - column % TAB;
                cleaned.extend(std::iter::repeat_n(' ', spaces));
                column += spaces;
            }
            _ if is_hidden(char) => {}
            _ => {
                cleaned.push(char);
                column += 1;
            }
        }
    }
    cleaned
}

/// Cleans the output of a command: of a line that was rewritten with carriage returns, the last version is kept.
pub fn clean_output(text: &str) -> String {
    let normalized = text.replace("\r\n", "\n");
    let lines = normalized.split('\n').map(|line| match line.trim_end_matches('\r').rsplit_once('\r') {
        Some((_, last)) => last,
        None => line,
    });
    clean(&lines.collect::<Vec<_>>().join("\n"))
}

/// Cleans a text for a single line: line breaks become spaces.
pub fn one_line(text: &str) -> String {
    let cleaned = clean(text);
    cleaned.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// True for control characters and for characters that reorder or hide text.
fn is_hidden(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}' | '\u{feff}')
        || ('\u{202a}'..='\u{202e}').contains(&char)
        || ('\u{2060}'..='\u{2069}').contains(&char)
        || ('\u{fff9}'..='\u{fffb}').contains(&char)
        || ('\u{e0000}'..='\u{e007f}').contains(&char)
}

/// Skips the rest of a sequence that began with an escape character at `at`.
fn skip_sequence(text: &str, at: usize, chars: &mut Peekable<impl Iterator<Item = (usize, char)>>) {
    match chars.peek().map(|&(_, char)| char) {
        Some('[') => {
            chars.next();
            skip_csi(chars);
        }
        // Strings for the terminal: its title, the clipboard, links, pictures.
        Some(']' | 'P' | 'X' | '^' | '_') => {
            chars.next();
            let Some(end) = string_end(&text[at + 2..]) else { return };
            while chars.next_if(|&(next, _)| next < at + 2 + end).is_some() {}
        }
        // Two characters, with intermediate ones before the last.
        Some(' '..='/') => {
            while chars.next_if(|&(_, char)| matches!(char, ' '..='/')).is_some() {}
            chars.next_if(|&(_, char)| matches!(char, '0'..='~'));
        }
        Some('0'..='~') => {
            chars.next();
        }
        Some(_) | None => {}
    }
}

/// Skips the parameters and the final character of a control sequence.
fn skip_csi(chars: &mut Peekable<impl Iterator<Item = (usize, char)>>) {
    while chars.next_if(|&(_, char)| matches!(char, ' '..='?')).is_some() {}
    chars.next_if(|&(_, char)| matches!(char, '@'..='~'));
}

/// Returns the length of a string for the terminal with its terminator. A string that does not end on its line is not
/// taken as one, so that it does not hide the rest of the text.
fn string_end(text: &str) -> Option<usize> {
    let line = &text[..text.find('\n').unwrap_or(text.len())];
    let ends = [("\u{7}", 1), ("\u{1b}\\", 2), ("\u{9c}", 2)];
    ends.iter().filter_map(|(end, length)| line.find(end).map(|at| at + length)).min()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn escape_sequences_are_removed() {
        for (text, expected) in [
            ("a\u{1b}[31mred\u{1b}[0m", "ared"),
            ("\u{1b}]0;title\u{7}x", "x"),
            ("\u{1b}]52;c;ZXZpbA==\u{1b}\\x", "x"),
            ("\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{1b}\\", "link"),
            ("\u{1b}Pq#0\u{1b}\\x", "x"),
            ("\u{1b}]0;no end\nnext", "0;no end\nnext"),
            ("\u{9b}2Jx", "x"),
            ("\u{1b}[2J\u{1b}[H\u{1b}c\u{1b}(0x", "x"),
            ("x\u{1b}", "x"),
            ("x\u{1b}[3", "x"),
            ("a\u{8}\u{7}\u{0}b", "ab"),
            ("a\r\nb\rc", "a\nbc"),
            ("a\tb\n\tc", "a   b\n    c"),
            ("\u{202e}evil\u{202c}", "evil"),
            ("naïve 日本 👩‍💻", "naïve 日本 👩‍💻"),
        ] {
            assert_eq!(clean(text), expected, "{text:?}");
        }
    }

    #[test]
    fn the_last_version_of_a_progress_line_is_kept() {
        assert_eq!(clean_output("10%\r50%\r100%\r\ndone\r\n"), "100%\ndone\n");
        assert_eq!(clean_output("10%\r"), "10%");
    }

    proptest! {
        #[test]
        fn nothing_that_controls_the_terminal_remains(text in "(\\PC|[\u{0}-\u{1f}\u{7f}-\u{9f}\u{202e}\\[\\];0-9mJ\\\\]){0,60}") {
            let cleaned = clean(&text);
            prop_assert!(cleaned.chars().all(|char| char == '\n' || !is_hidden(char)), "{cleaned:?}");
            prop_assert!(!one_line(&text).contains('\n'));
            prop_assert_eq!(clean(&cleaned), cleaned);
        }
    }
}
