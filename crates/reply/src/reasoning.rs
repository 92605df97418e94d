//! Formats reasoning as a message of its own.

use crate::payload::{Kind, Payload};

/// Formats reasoning: a headline, then each line in italics. `None` if it is empty.
pub fn message(reasoning: &str) -> Option<Payload> {
    let reasoning = reasoning.trim();
    let lines: Vec<_> = reasoning.lines().map(italic).collect();
    let text = format!("Reasoning:\n{}", lines.join("\n"));
    (!reasoning.is_empty()).then(|| Payload { kind: Kind::Reasoning, ..Payload::answer(text) })
}

/// Formats a line in italics. The marks must be next to the text to be recognized.
fn italic(line: &str) -> String {
    let text = line.trim();
    let indent = &line[..line.len() - line.trim_start().len()];
    if text.is_empty() { String::new() } else { format!("{indent}_{text}_") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_nonblank_line_is_in_italics() {
        let expected = Payload {
            kind: Kind::Reasoning,
            ..Payload::answer("Reasoning:\n_They ask for the time._\n\n  _I have a clock._")
        };
        assert_eq!(message("\nThey ask for the time. \n   \n  I have a clock.\n"), Some(expected));
    }

    #[test]
    fn empty_reasoning_is_no_message() {
        assert_eq!(message(" \n "), None);
    }
}
