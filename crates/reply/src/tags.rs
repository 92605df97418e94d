//! Parser of the tags that models write around reasoning, answers and tool calls. It parses one tag; its meaning is up
//! to the caller.

/// Result of examining a text that starts like a construct.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Look<T> {
    /// Plain text.
    Never,
    /// Undecided.
    Maybe,
    /// This construct, complete.
    Is(T),
}

/// A tag that is not meant for the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) name: Name,
    pub(crate) edge: Edge,
}

/// Name of a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Name {
    Think,
    Final,
    /// A call inside [`Name::Calls`].
    Invoke,
    /// Tool calls that a provider leaked into the text.
    Calls,
}

/// Side of its content on which a tag is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Edge {
    Open,
    Close,
    /// `<think/>`: no content.
    Empty,
}

const NAMES: [(&str, Name); 7] = [
    ("think", Name::Think),
    ("thinking", Name::Think),
    ("thought", Name::Think),
    ("antthinking", Name::Think),
    ("final", Name::Final),
    ("invoke", Name::Invoke),
    ("minimax:tool_call", Name::Calls),
];

/// Parses a text that starts with `<`. Must be called after each character: only the last one is checked for the end.
pub(crate) fn look(candidate: &str) -> Look<Tag> {
    let Some(inner) = candidate.strip_prefix('<').map(str::trim_start) else { return Look::Never };
    let (is_close, inner) = inner.strip_prefix('/').map_or((false, inner), |inner| (true, inner.trim_start()));
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '-');
    let end = inner.find(|c| !is_name(c)).unwrap_or(inner.len());
    let (name, rest) = inner.split_at(end);
    if rest.is_empty() {
        return if NAMES.iter().any(|(known, _)| begins(known, name)) { Look::Maybe } else { Look::Never };
    }
    let Some((_, name)) = NAMES.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) else { return Look::Never };
    match rest.as_bytes() {
        [.., b'<'] => Look::Never,
        [.., b'/', b'>'] if !is_close => Look::Is(Tag { name: *name, edge: Edge::Empty }),
        [.., b'>'] => Look::Is(Tag { name: *name, edge: if is_close { Edge::Close } else { Edge::Open } }),
        _ => Look::Maybe,
    }
}

/// True if a text starts with this, ignoring case.
pub(crate) fn begins(word: &str, start: &str) -> bool {
    word.get(..start.len()).is_some_and(|head| head.eq_ignore_ascii_case(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(name: Name, edge: Edge) -> Look<Tag> {
        Look::Is(Tag { name, edge })
    }

    #[test]
    fn tags_are_known_in_any_case_with_spaces_and_attributes() {
        for open in ["<think>", "< THINK >", "<thinking>", "<Thought mood=\"calm\">", "<\tantthinking\n>"] {
            assert_eq!(look(open), is(Name::Think, Edge::Open), "{open}");
        }
        for close in ["</think>", "< / thinking >", "</thought/>"] {
            assert_eq!(look(close), is(Name::Think, Edge::Close), "{close}");
        }
        assert_eq!(look("<final>"), is(Name::Final, Edge::Open));
        assert_eq!(look("<think />"), is(Name::Think, Edge::Empty));
        assert_eq!(look("<invoke name=\"x\">"), is(Name::Invoke, Edge::Open));
        assert_eq!(look("</minimax:tool_call>"), is(Name::Calls, Edge::Close));
    }

    #[test]
    fn other_tags_are_told_at_the_first_letter_that_differs() {
        for maybe in ["<", "< ", "</", "<th", "<think", "<thinki", "<final a=1", "<minimax:"] {
            assert_eq!(look(maybe), Look::Maybe, "{maybe}");
        }
        for never in ["<b", "<3", "<thinker", "<think-", "<thin>", "<thin ", "<think <", "<<", "</>", "<é", "<>"] {
            assert_eq!(look(never), Look::Never, "{never}");
        }
    }
}
