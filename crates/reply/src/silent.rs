//! `NO_REPLY`: the token with which a model says that it has no reply.

use crate::trim::Trimmer;

/// Answer of a model that has nothing to say; it is not delivered.
pub const TOKEN: &str = "NO_REPLY";

/// True if a text is the token, ignoring case, possibly with quotes, emphasis or punctuation.
pub fn is_silent(text: &str) -> bool {
    let mut trimmer = Trimmer::default();
    trimmer.push(text, &mut String::new());
    trimmer.is_silent()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded from OpenClaw.
    const RECORDED: [(&str, bool); 14] = [
        ("NO_REPLY", true),
        (" NO_REPLY\n", true),
        ("NO_REPLY.", true),
        ("NO_REPLY: done", true),
        ("Done. NO_REPLY", true),
        ("Done NO_REPLY!!", true),
        ("no_reply", false),
        ("NO_REPLYING", false),
        ("xNO_REPLY", false),
        ("`NO_REPLY`", true),
        ("**NO_REPLY**", true),
        ("NO_REPLY and more", true),
        ("say NO_REPLY to it", false),
        ("", false),
    ];

    // Case 139, case 140, pitfall 52.
    #[test]
    fn recorded_texts_match_openclaw() {
        // Fixed: a text with more than the token is delivered, and the token is case-insensitive.
        let fixed = ["NO_REPLY: done", "Done. NO_REPLY", "Done NO_REPLY!!", "no_reply", "NO_REPLY and more"];
        for (text, was_silent) in RECORDED {
            assert_eq!(is_silent(text), was_silent != fixed.contains(&text), "{text:?}");
        }
    }

    #[test]
    fn the_token_may_be_decorated() {
        for text in ["\"No_Reply\".", "<b>NO_REPLY</b>", "_NO_REPLY_", "(NO_REPLY)", "“NO_REPLY”…", "NO_REPLY NO_REPLY"]
        {
            assert!(is_silent(text), "{text}");
        }
        for text in ["NO_REPLY 👍", "NO REPLY", "NO_REPL", "NO_REPLYNO_REPLY", "<think>NO_REPLY", "- NO_REPLY"] {
            assert!(!is_silent(text), "{text}");
        }
    }
}
