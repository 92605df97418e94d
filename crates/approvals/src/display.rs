//! Display of commands for approval: complete, and without characters that affect the terminal.

/// Maximum length of a command that can be approved, in bytes. A longer one would not be read.
pub const MAX_COMMAND_BYTES: usize = 64 * 1024;

/// Formats a command for display: characters that a terminal would interpret or hide are escaped as `\u{…}`.
///
/// The result is unambiguous: backslashes before an escape, or something that looks like one, are doubled. `None` if
/// the command is too long.
pub fn display_command(command: &str) -> Option<String> {
    (command.len() <= MAX_COMMAND_BYTES).then(|| escape(command))
}

fn escape(command: &str) -> String {
    let mut escaped = String::with_capacity(command.len());
    let mut slashes = 0;
    let mut rest = command.chars();
    while let Some(c) = rest.next() {
        if c == '\\' {
            slashes += 1;
            escaped.push(c);
            continue;
        }
        let is_escaped = needs_escape(c);
        if is_escaped || (c == 'u' && rest.as_str().starts_with('{')) {
            escaped.extend(std::iter::repeat_n('\\', slashes));
        }
        slashes = 0;
        if is_escaped { escaped.push_str(&format!("\\u{{{:x}}}", c as u32)) } else { escaped.push(c) }
    }
    escaped
}

/// True if a character affects a terminal or is invisible.
fn needs_escape(c: char) -> bool {
    let is_blank = c != ' ' && c.is_whitespace();
    c.is_control()
        || is_blank
        || matches!(
            c,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'
                | '\u{1160}'
                | '\u{17b4}'
                | '\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{202a}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{2800}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Decodes what was shown.
    fn decode(shown: &str) -> String {
        let (mut decoded, mut rest) = (String::new(), shown);
        while let Some(offset) = rest.find('\\') {
            decoded.push_str(&rest[..offset]);
            let after = rest[offset..].trim_start_matches('\\');
            let slashes = rest.len() - offset - after.len();
            match after.strip_prefix("u{") {
                Some(escape_digits) => {
                    decoded.push_str(&"\\".repeat(slashes / 2));
                    rest = after;
                    if slashes % 2 == 1 {
                        let (code, remaining) = escape_digits.split_once('}').unwrap();
                        decoded.push(char::from_u32(u32::from_str_radix(code, 16).unwrap()).unwrap());
                        rest = remaining;
                    } else {
                        decoded.push('u');
                        rest = &rest[1..];
                    }
                }
                None => {
                    decoded.push_str(&"\\".repeat(slashes));
                    rest = after;
                }
            }
        }
        decoded + rest
    }

    #[test]
    fn control_characters_are_escaped() {
        for (command, expected) in [
            ("ls -la 'é' | wc", "ls -la 'é' | wc"),
            ("ls\n\trm", "ls\\u{a}\\u{9}rm"),
            ("\u{1b}[2Kls\r", "\\u{1b}[2Kls\\u{d}"),
            ("ls \u{202e}gpj", "ls \\u{202e}gpj"),
            ("a\u{200b}b\u{a0}c\u{9b}d", "a\\u{200b}b\\u{a0}c\\u{9b}d"),
            ("grep '\\d' x", "grep '\\d' x"),
            ("echo \\u{a}", "echo \\\\u{a}"),
            ("echo \\\n", "echo \\\\\\u{a}"),
        ] {
            assert_eq!(display_command(command).as_deref(), Some(expected), "{command:?}");
            assert_eq!(decode(expected), command);
        }
    }

    #[test]
    fn a_command_is_displayed_in_full_or_cannot_be_approved() {
        for length in [1, 100, 8 * 1024, MAX_COMMAND_BYTES] {
            assert_eq!(display_command(&"x".repeat(length)), Some("x".repeat(length)));
            assert_eq!(display_command(&"\u{1b}".repeat(length)).map(|text| text.len()), Some(length * 6));
        }
        for length in [MAX_COMMAND_BYTES + 1, 1024 * 1024] {
            assert_eq!(display_command(&"x".repeat(length)), None);
        }
    }

    proptest! {
        #[test]
        fn a_displayed_command_decodes_to_one_command_only(command in "(\\\\|u|\\{|\\}|a|\n|\u{202e}|\\PC|.){0,40}") {
            let shown = display_command(&command).unwrap();
            prop_assert!(!shown.chars().any(needs_escape), "{shown:?}");
            prop_assert_eq!(decode(&shown), command);
        }
    }
}
