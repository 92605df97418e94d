//! Parser of directives in double square brackets: the message that a reply answers, and voice messages.

use crate::{
    payload::ReplyTo,
    tags::{TagMatch, starts_with_ignore_case},
};

/// A directive about how the reply is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Directive {
    /// `[[reply_to_current]]`, `[[reply_to:<id>]]`.
    ReplyTo(ReplyTo),
    /// `[[audio_as_voice]]`.
    Voice,
}

const CURRENT: &str = "reply_to_current";
const VOICE: &str = "audio_as_voice";
const TO: &str = "reply_to";

/// Parses a text that starts with `[[`. Must be called after each character: only the last ones are checked for the
/// end.
pub(crate) fn match_directive(candidate: &str) -> TagMatch<Directive> {
    let Some(inner) = candidate.strip_prefix("[[") else { return TagMatch::NoMatch };
    match inner.strip_suffix("]]") {
        Some(content) => parse(content.trim()).map_or(TagMatch::NoMatch, TagMatch::Match),
        None if inner.ends_with(['[', '\n']) => TagMatch::NoMatch,
        None => could_be(inner),
    }
}

fn parse(inner: &str) -> Option<Directive> {
    if inner.eq_ignore_ascii_case(CURRENT) {
        return Some(Directive::ReplyTo(ReplyTo::Current));
    }
    if inner.eq_ignore_ascii_case(VOICE) {
        return Some(Directive::Voice);
    }
    let id = after_colon(inner)?.trim();
    (!id.is_empty() && !id.contains(']')).then(|| Directive::ReplyTo(ReplyTo::Id(id.to_owned())))
}

fn could_be(inner: &str) -> TagMatch<Directive> {
    // The first of the two closing brackets may be present; a bracket before that belongs to no directive.
    let (inner, is_closing) = inner.strip_suffix(']').map_or((inner, false), |inner| (inner, true));
    let word = inner.trim_start();
    let is_start =
        |name| starts_with_ignore_case(name, word) || (word.trim_end().len() < word.len() && is_name(name, word));
    let is_possible = match after_colon(word) {
        Some(id) => !id.contains(']'),
        None if is_closing => is_name(CURRENT, word) || is_name(VOICE, word),
        None => is_start(CURRENT) || is_start(VOICE) || is_start(TO),
    };
    if is_possible { TagMatch::Partial } else { TagMatch::NoMatch }
}

fn is_name(name: &str, word: &str) -> bool {
    word.trim_end().eq_ignore_ascii_case(name)
}

/// Returns the text after `reply_to:`.
fn after_colon(inner: &str) -> Option<&str> {
    if !starts_with_ignore_case(inner, TO) {
        return None;
    }
    inner[TO.len()..].trim_start().strip_prefix(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_match_in_any_case_with_inner_spaces() {
        let to = |id: &str| TagMatch::Match(Directive::ReplyTo(ReplyTo::Id(id.to_owned())));
        for current in ["[[reply_to_current]]", "[[ Reply_To_Current\t]]"] {
            assert_eq!(match_directive(current), TagMatch::Match(Directive::ReplyTo(ReplyTo::Current)), "{current}");
        }
        assert_eq!(match_directive("[[ audio_as_voice ]]"), TagMatch::Match(Directive::Voice));
        assert_eq!(match_directive("[[reply_to:42]]"), to("42"));
        assert_eq!(match_directive("[[ reply_to : a:b c ]]"), to("a:b c"));
    }

    #[test]
    fn other_brackets_are_rejected_at_the_first_different_character() {
        for maybe in
            ["[[", "[[ ", "[[re", "[[reply_to", "[[reply_to ", "[[reply_to: 4", "[[reply_to:4]", "[[audio_as_voice ]"]
        {
            assert_eq!(match_directive(maybe), TagMatch::Partial, "{maybe}");
        }
        for never in
            ["[[w", "[[[", "[[]", "[[re]", "[[re ", "[[reply_to]", "[[reply_to:]]", "[[reply_to:4]5", "[[\n", "[[é"]
        {
            assert_eq!(match_directive(never), TagMatch::NoMatch, "{never}");
        }
    }
}
