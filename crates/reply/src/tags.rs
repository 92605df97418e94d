//! Parser of the tags that models write around reasoning, answers and tool calls. It parses one tag; its meaning is up
//! to the caller.

/// Result of matching a text against a tag, a directive or a marker of a leaked call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TagMatch<T> {
    /// It is plain text.
    NoMatch,
    /// It may become one with further characters.
    Partial,
    /// It is this one, complete.
    Match(T),
}

/// A tag that is not meant for the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) name: TagName,
    pub(crate) side: TagSide,
}

/// Name of a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TagName {
    Think,
    Final,
    /// One leaked tool call, inside [`TagName::Calls`].
    Invoke,
    /// Tool calls that a provider leaked into the text.
    Calls,
}

/// Whether a tag opens, closes or is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TagSide {
    Open,
    Close,
    /// `<think/>`: no content.
    Empty,
}

const NAMES: [(&str, TagName); 7] = [
    ("think", TagName::Think),
    ("thinking", TagName::Think),
    ("thought", TagName::Think),
    ("antthinking", TagName::Think),
    ("final", TagName::Final),
    ("invoke", TagName::Invoke),
    ("minimax:tool_call", TagName::Calls),
];

/// Parses a text that starts with `<`. Must be called after each character: only the last one is checked for the end.
pub(crate) fn match_tag(candidate: &str) -> TagMatch<Tag> {
    let Some(inner) = candidate.strip_prefix('<').map(str::trim_start) else { return TagMatch::NoMatch };
    let (is_close, inner) = inner.strip_prefix('/').map_or((false, inner), |inner| (true, inner.trim_start()));
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '-');
    let end = inner.find(|c| !is_name(c)).unwrap_or(inner.len());
    let (name, rest) = inner.split_at(end);
    if rest.is_empty() {
        return if NAMES.iter().any(|(known, _)| starts_with_ignore_case(known, name)) {
            TagMatch::Partial
        } else {
            TagMatch::NoMatch
        };
    }
    let Some((_, name)) = NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) else {
        return TagMatch::NoMatch;
    };
    match rest.as_bytes() {
        [.., b'<'] => TagMatch::NoMatch,
        [.., b'/', b'>'] if !is_close => TagMatch::Match(Tag { name: *name, side: TagSide::Empty }),
        [.., b'>'] => TagMatch::Match(Tag { name: *name, side: if is_close { TagSide::Close } else { TagSide::Open } }),
        _ => TagMatch::Partial,
    }
}

/// True if a text starts with this, ignoring case.
pub(crate) fn starts_with_ignore_case(word: &str, start: &str) -> bool {
    word.get(..start.len()).is_some_and(|head| head.eq_ignore_ascii_case(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(name: TagName, side: TagSide) -> TagMatch<Tag> {
        TagMatch::Match(Tag { name, side })
    }

    #[test]
    fn tags_match_in_any_case_with_spaces_and_attributes() {
        for open in ["<think>", "< THINK >", "<thinking>", "<Thought mood=\"calm\">", "<\tantthinking\n>"] {
            assert_eq!(match_tag(open), is(TagName::Think, TagSide::Open), "{open}");
        }
        for close in ["</think>", "< / thinking >", "</thought/>"] {
            assert_eq!(match_tag(close), is(TagName::Think, TagSide::Close), "{close}");
        }
        assert_eq!(match_tag("<final>"), is(TagName::Final, TagSide::Open));
        assert_eq!(match_tag("<think />"), is(TagName::Think, TagSide::Empty));
        assert_eq!(match_tag("<invoke name=\"x\">"), is(TagName::Invoke, TagSide::Open));
        assert_eq!(match_tag("</minimax:tool_call>"), is(TagName::Calls, TagSide::Close));
    }

    #[test]
    fn other_tags_are_rejected_at_the_first_different_character() {
        for maybe in ["<", "< ", "</", "<th", "<think", "<thinki", "<final a=1", "<minimax:"] {
            assert_eq!(match_tag(maybe), TagMatch::Partial, "{maybe}");
        }
        for never in ["<b", "<3", "<thinker", "<think-", "<thin>", "<thin ", "<think <", "<<", "</>", "<é", "<>"] {
            assert_eq!(match_tag(never), TagMatch::NoMatch, "{never}");
        }
    }
}
