//! Commands that start a new transcript.

use super::{Command, strip_word};

/// Words that start a new transcript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Triggers(Vec<String>);

impl Default for Triggers {
    fn default() -> Self {
        Self::new(["/new", "/reset"])
    }
}

impl Triggers {
    /// Creates the triggers from words in any case; blank ones are ignored.
    pub fn new(words: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let words = words.into_iter().map(|word| word.as_ref().trim().to_lowercase());
        Self(words.filter(|word| !word.is_empty()).collect())
    }

    /// Parses a text: a trigger alone, or a trigger, whitespace and the first message.
    pub fn parse(&self, text: &str) -> Option<Command> {
        let text = text.trim();
        let candidates = self.0.iter().filter_map(|word| Some((word.as_str(), strip_word(text, word)?)));
        let (word, rest) =
            candidates.into_iter().find(|(_, rest)| rest.is_empty() || rest.starts_with(char::is_whitespace))?;
        Some(match (word, rest.trim_start()) {
            ("/reset", "") => Command::NewTranscript { answer: "Session reset." },
            (_, "") => Command::NewTranscript { answer: "New session started." },
            (_, rest) => Command::NewTranscriptWith(rest.to_owned()),
        })
    }

    /// Returns the words in lower case.
    pub(super) fn names(&self) -> &[String] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn with(rest: &str) -> Option<Command> {
        Some(Command::NewTranscriptWith(rest.to_owned()))
    }

    const NEW: Option<Command> = Some(Command::NewTranscript { answer: "New session started." });
    const RESET: Option<Command> = Some(Command::NewTranscript { answer: "Session reset." });

    #[test]
    fn triggers_match_in_any_case_and_keep_the_rest() {
        let parse = |text| Triggers::default().parse(text);
        assert_eq!(parse("/NEW hello There"), with("hello There"));
        assert_eq!(parse(" /new "), NEW);
        assert_eq!(parse("/Reset"), RESET);
        assert_eq!(parse("/reset  what\n is  new?"), with("what\n is  new?"));
        assert_eq!(parse("/new\nhello"), with("hello"));
    }

    #[test]
    fn text_without_a_trigger_is_not_a_command() {
        for text in ["/newer", "/new-york", "new", "say /new", "/ne", "//new", "", "/resetting all", "/help"] {
            assert_eq!(Triggers::default().parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn triggers_are_configurable() {
        let triggers = Triggers::new(["Von Vorn", " ", "ÉTOILE"]);
        assert_eq!(triggers.parse("von vorn Bitte"), with("Bitte"));
        assert_eq!(triggers.parse("étoile"), NEW);
        assert_eq!(triggers.parse("/new"), None);
        assert_eq!(Triggers::new([] as [&str; 0]).parse("/new"), None);
    }

    proptest! {
        #[test]
        fn text_after_a_trigger_is_unchanged(word in "/[a-zA-Zİß]{1,6}", rest in "\\PC{0,30}") {
            let rest = rest.trim();
            let expected = if rest.is_empty() { NEW } else { with(rest) };
            prop_assume!(word.to_lowercase() != "/reset");
            prop_assert_eq!(Triggers::new([&word]).parse(&format!("{word} {rest}")), expected);
        }

        #[test]
        fn any_text_can_be_parsed(words in proptest::collection::vec("\\PC{0,6}", 0..3), text in "\\PC{0,30}") {
            if let Some(Command::NewTranscriptWith(rest)) = Triggers::new(words).parse(&text) {
                prop_assert!(text.trim().ends_with(&rest));
            }
        }
    }
}
