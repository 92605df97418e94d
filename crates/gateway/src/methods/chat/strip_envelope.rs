//! Removes the envelope that other programs put around a user's text in a transcript: origin and time, meant for the
//! model. Clients show the text alone.

use std::borrow::Cow;

/// Channel names as used in envelopes.
const CHANNELS: [&str; 13] = [
    "WebChat",
    "WhatsApp",
    "Telegram",
    "Signal",
    "Slack",
    "Discord",
    "Google Chat",
    "iMessage",
    "Teams",
    "Matrix",
    "Zalo",
    "Zalo Personal",
    "BlueBubbles",
];

/// Returns the text without envelope and message ids.
pub(super) fn strip_envelope(text: &str) -> Cow<'_, str> {
    let body = strip_header(text).unwrap_or(text);
    if !body.contains("[message_id:") {
        return body.into();
    }
    let lines: Vec<_> = body.split('\n').filter(|line| !is_message_id(line)).collect();
    lines.join("\n").trim_end_matches('\n').to_owned().into()
}

/// Returns the text after an envelope header such as `[Telegram Ann id:7 2026-02-09 10:00]`.
fn strip_header(text: &str) -> Option<&str> {
    let (header, body) = text.strip_prefix('[')?.split_once(']')?;
    let names_channel = |channel: &&str| header.strip_prefix(*channel).is_some_and(|rest| rest.starts_with(' '));
    let is_envelope = !header.contains('\n') && (has_time(header) || CHANNELS.iter().any(names_channel));
    is_envelope.then(|| body.trim_start())
}

/// True if a line consists of a message id only.
fn is_message_id(line: &str) -> bool {
    let inside = line.trim().strip_prefix("[message_id:").and_then(|rest| rest.strip_suffix(']'));
    inside.is_some_and(|id| !id.trim().is_empty() && !id.contains(']'))
}

/// True if a text contains a date with a time, such as `2026-02-09 10:00` or `2026-02-09T10:00Z`.
fn has_time(text: &str) -> bool {
    let is_time = |at: usize, window: &[u8]| {
        let has_digits = b"dddd-dd-ddTdd:dd".iter().zip(window).all(|(has_digits, byte)| match has_digits {
            b'd' => byte.is_ascii_digit(),
            b'T' => matches!(byte, b'T' | b' '),
            other => other == byte,
        });
        let next = text.as_bytes().get(at + window.len());
        has_digits
            && match window[10] {
                b'T' => next == Some(&b'Z'),
                _ => next.is_none_or(|next| !next.is_ascii_alphanumeric()),
            }
    };
    text.as_bytes().windows(16).enumerate().any(|(at, window)| is_time(at, window))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_envelope_is_removed() {
        for (text, body) in [
            ("[Telegram Ann (@ann) id:7 +5s 2026-02-09 10:00 UTC] hello", "hello"),
            ("[Zalo Personal Ann] hello", "hello"),
            ("[WhatsApp +4179 2026-02-09T10:00Z] hello\n[message_id: 3EB0]", "hello"),
            ("[Mon 2026-02-09 10:00 GMT+1] hello", "hello"),
            ("[Slack #ops] [Ann] hello", "[Ann] hello"),
            ("one\n [message_id: a] \ntwo", "one\ntwo"),
            ("[Telegram]\nhello", "[Telegram]\nhello"),
            ("[Telegraph Ann] hello", "[Telegraph Ann] hello"),
            ("[x] hello", "[x] hello"),
            ("[2026-02-09] hello", "[2026-02-09] hello"),
            ("[a\n2026-02-09 10:00] hello", "[a\n2026-02-09 10:00] hello"),
            ("the id is [message_id: a] here", "the id is [message_id: a] here"),
            ("[Signal Ann", "[Signal Ann"),
            ("é", "é"),
            ("", ""),
        ] {
            assert_eq!(strip_envelope(text), body, "{text}");
        }
    }
}
