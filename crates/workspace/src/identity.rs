//! Identity of an agent: the machine-readable lines of IDENTITY.md.

use crate::{PageBody, PromptPage};

/// Maximum number of characters of a value, because values become part of prompts. Avatars are not truncated: a prompt
/// never contains them, and a data URI contains a whole image.
const MAX_VALUE_CHARS: usize = 200;

/// Identity of an agent; unset values are `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentPersona {
    /// Name.
    pub name: Option<String>,
    /// Emoji that it signs with.
    pub emoji: Option<String>,
    /// Kind of being.
    pub creature: Option<String>,
    /// Personality.
    pub vibe: Option<String>,
    /// Style in a few words.
    pub theme: Option<String>,
    /// Avatar: a path in the workspace, a URL, or a data URI.
    pub avatar: Option<String>,
}

impl AgentPersona {
    /// Parses lines such as `- **Name:** Ada` or `Name: Ada`. If a label is repeated, its last line counts. Other lines
    /// are ignored.
    pub fn parse(text: &str) -> Self {
        let mut identity = Self::default();
        for line in text.lines() {
            let Some((label, value)) = line.split_once(':') else { continue };
            let label = label.trim_matches(|c: char| is_decoration(c) || matches!(c, '-' | '+')).to_ascii_lowercase();
            let value = value.trim_matches(is_decoration);
            if value.is_empty() || is_placeholder(value) {
                continue;
            }
            let truncated = || Some(value.chars().take(MAX_VALUE_CHARS).collect());
            match label.as_str() {
                "name" => identity.name = truncated(),
                "emoji" => identity.emoji = truncated(),
                "creature" => identity.creature = truncated(),
                "vibe" => identity.vibe = truncated(),
                "theme" => identity.theme = truncated(),
                "avatar" => identity.avatar = Some(value.to_owned()),
                _ => {}
            }
        }
        identity
    }

    /// Returns the identity from the pages of a prompt.
    pub fn of(pages: &[PromptPage]) -> Self {
        let page = pages.iter().find(|page| page.name == "IDENTITY.md");
        match page.map(|page| &page.body) {
            Some(PageBody::Whole(text) | PageBody::Cut(text)) => Self::parse(text),
            Some(PageBody::Missing | PageBody::Unusable(_)) | None => Self::default(),
        }
    }
}

/// True for what Markdown puts around words: whitespace and emphasis.
fn is_decoration(c: char) -> bool {
    c.is_whitespace() || matches!(c, '*' | '_')
}

/// True if a value is a placeholder of a template: words in parentheses. A face such as `(^_^)` has no words.
fn is_placeholder(value: &str) -> bool {
    let inner = value.strip_prefix('(').and_then(|value| value.strip_suffix(')'));
    inner.is_some_and(|inner| inner.as_bytes().windows(2).any(|pair| pair.iter().all(u8::is_ascii_alphabetic)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn both_notations_of_a_line_are_parsed() {
        let text = "# Me\r\n- **Name:** Ada\r\n* **Emoji**: 🦞\n  Creature: a lobster: small\n- VIBE: _calm_\n\
                    __Theme:__ sea\n+ avatar: https://example.org/a_.png\nMy name is: Bob\nName:\n";
        let identity = AgentPersona {
            name: some("Ada"),
            emoji: some("🦞"),
            creature: some("a lobster: small"),
            vibe: some("calm"),
            theme: some("sea"),
            avatar: some("https://example.org/a_.png"),
        };
        assert_eq!(AgentPersona::parse(text), identity);
    }

    #[test]
    fn template_placeholders_are_not_values() {
        let text = "- **Name:** _(pick one)_\n- **Emoji:** *(yours)*\n- **Vibe:** ____\n- **Theme:** (any)\n\
                    - **Creature:**\n  _(robot?)_\n";
        assert_eq!(AgentPersona::parse(text), AgentPersona::default());
    }

    #[test]
    fn parentheses_alone_are_not_a_placeholder() {
        let identity = AgentPersona::parse("Name: Ada (the first)\nEmoji: (^_^)\n");
        assert_eq!(
            identity,
            AgentPersona { name: some("Ada (the first)"), emoji: some("(^_^)"), ..AgentPersona::default() }
        );
    }

    #[test]
    fn the_last_value_counts_unless_it_is_a_placeholder() {
        let identity = AgentPersona::parse("Name: Ada\nName: Bea\nName: (your name)\n");
        assert_eq!(identity, AgentPersona { name: some("Bea"), ..AgentPersona::default() });
    }

    #[test]
    fn a_name_is_truncated_and_an_avatar_is_not() {
        let long = "ä".repeat(3 * MAX_VALUE_CHARS);
        let identity = AgentPersona::parse(&format!("Name: {long}\nAvatar: {long}"));
        let name = Some("ä".repeat(MAX_VALUE_CHARS));
        assert_eq!(identity, AgentPersona { name, avatar: Some(long), ..AgentPersona::default() });
    }

    proptest! {
        #[test]
        fn a_plain_value_is_found_in_any_text(
            before in "(\\PC|\n){0,60}", name in "[a-zA-Zäöü🦞]([a-zA-Z äöü🦞]{0,20}[a-zA-Zäöü🦞])?",
        ) {
            let identity = AgentPersona::parse(&format!("{before}\n- **Name:** {name}\n"));
            prop_assert_eq!(identity.name, Some(name));
        }
    }
}
