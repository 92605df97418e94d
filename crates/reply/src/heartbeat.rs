//! Answers to heartbeats, and the token `HEARTBEAT_OK` in them.

use crate::{parse_stream::ParsedReply, trim};

/// Token with which a model answers a heartbeat if there is nothing to do.
pub const TOKEN: &str = "HEARTBEAT_OK";

/// Default maximum of characters beside the token in an answer that still means that there is nothing to do.
pub const ACK_MAX: usize = 300;

/// Meaning of an answer to a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeartbeatReply {
    /// The answer is empty.
    Empty,
    /// There is nothing to do.
    Nothing,
    /// The answer has this content.
    Content(String),
}

/// Interprets an answer to a heartbeat. It means that there is nothing to do if it contains [`TOKEN`] or asks for no
/// reply, and has at most `ack_max` other characters and no media.
pub fn parse_reply(reply: ParsedReply, ack_max: usize) -> HeartbeatReply {
    let is_short = reply.text.chars().count() <= ack_max;
    match (reply.text.is_empty() && reply.found.media.is_empty(), reply.found.is_heartbeat || reply.found.is_silent) {
        (true, false) => HeartbeatReply::Empty,
        (true, true) => HeartbeatReply::Nothing,
        (false, true) if is_short && reply.found.media.is_empty() => HeartbeatReply::Nothing,
        (false, _) => HeartbeatReply::Content(reply.text),
    }
}

/// Strips all tokens at the start of a text; `None` if there are none. The text after them is kept unchanged, except
/// for leading whitespace.
pub(crate) fn strip_start(text: &str) -> Option<&str> {
    std::iter::successors(strip_one(text), |rest| strip_one(rest)).last()
}

fn strip_one(text: &str) -> Option<&str> {
    let bare = trim::strip_decoration(text);
    let after = bare.strip_prefix(TOKEN)?;
    // Emphasis after an undecorated token belongs to the text.
    let after = if bare.len() < text.len() { trim::strip_decoration(after) } else { after };
    let rest = after.trim_start_matches(['.', '!', ',', ':', ';', '…']);
    let is_word = rest.is_empty() || rest.starts_with(char::is_whitespace);
    is_word.then(|| rest.trim_start())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_stream::{ParseRules, parse_message};

    fn stripped(text: &str) -> (String, bool) {
        let reply = parse_message(text, ParseRules::default());
        (reply.text, reply.found.is_heartbeat)
    }

    // Recorded cases of normal runs. Case 142.
    #[test]
    fn the_token_is_stripped_at_either_end() {
        let cases = [
            ("HEARTBEAT_OK", "", true),
            ("HEARTBEAT_OK all good", "all good", true),
            ("**HEARTBEAT_OK**", "", true),
            ("<b>HEARTBEAT_OK</b>", "", true),
            // Fixed: OpenClaw collapses the remaining text into one line.
            ("line1\n\nline2 HEARTBEAT_OK", "line1\n\nline2", true),
            ("mid HEARTBEAT_OK mid", "mid HEARTBEAT_OK mid", false),
        ];
        for (text, rest, is_heartbeat) in cases {
            assert_eq!(stripped(text), (rest.to_owned(), is_heartbeat), "{text}");
        }
    }

    // Pitfall 107.
    #[test]
    fn the_text_beside_the_token_is_kept_unchanged() {
        let cases = [
            ("HEARTBEAT_OK HEARTBEAT_OK. Two  words\n\n\tx HEARTBEAT_OK", "Two  words\n\n\tx"),
            ("HEARTBEAT_OK **Bold** news", "**Bold** news"),
            ("**HEARTBEAT_OK** - one\n- two", "- one\n- two"),
            ("HEARTBEAT_OK HEARTY", "HEARTY"),
            ("HEARTBEAT_OK NO_REPLY no", "NO_REPLY no"),
        ];
        for (text, rest) in cases {
            assert_eq!(stripped(text), (rest.to_owned(), true), "{text}");
        }
        for plain in ["HEARTBEAT_OKAY x", "HEARTBEAT_OK.txt x", "HEARTBEAT_OK_x", "heartbeat_ok x", "x/HEARTBEAT_OK"] {
            assert_eq!(stripped(plain), (plain.to_owned(), false), "{plain}");
        }
    }

    // Recorded cases of heartbeat runs. Case 143.
    #[test]
    fn a_short_remainder_counts_as_nothing_to_do() {
        let reply_to = |text: &str| parse_reply(parse_message(text, ParseRules::default()), 300);
        let with_remainder = |count| format!("HEARTBEAT_OK {}", "x".repeat(count));
        assert_eq!(reply_to("all good HEARTBEAT_OK"), HeartbeatReply::Nothing);
        assert_eq!(reply_to(&with_remainder(300)), HeartbeatReply::Nothing);
        assert_eq!(reply_to(&with_remainder(301)), HeartbeatReply::Content("x".repeat(301)));
        assert_eq!(reply_to(" \n"), HeartbeatReply::Empty);
        assert_eq!(reply_to("no_reply"), HeartbeatReply::Nothing);
        assert_eq!(reply_to("all good"), HeartbeatReply::Content("all good".to_owned()));
        assert!(matches!(reply_to("MEDIA:./a.png\nHEARTBEAT_OK"), HeartbeatReply::Content(_)));
    }
}
