//! Reasoning levels: names, aliases, and the mapping to levels that a model supports.

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind};

/// Reasoning level, from off to the maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum ReasoningLevel {
    #[default]
    Off,
    Minimal,
    Low,
    Medium,
    High,
    Xhigh,
}

/// Default levels of a model that supports reasoning.
pub const DEFAULT_LEVELS: &[ReasoningLevel] =
    &[ReasoningLevel::Minimal, ReasoningLevel::Low, ReasoningLevel::Medium, ReasoningLevel::High];

const ALL: [ReasoningLevel; 6] = [
    ReasoningLevel::Off,
    ReasoningLevel::Minimal,
    ReasoningLevel::Low,
    ReasoningLevel::Medium,
    ReasoningLevel::High,
    ReasoningLevel::Xhigh,
];

impl ReasoningLevel {
    /// Parses a level name or alias.
    pub fn parse(word: &str) -> Option<Self> {
        let word: String = word.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
        match word.as_str() {
            "off" | "none" | "disable" | "disabled" => Some(Self::Off),
            "minimal" | "min" | "think" => Some(Self::Minimal),
            "low" | "on" | "enable" | "enabled" | "thinkhard" => Some(Self::Low),
            "medium" | "mid" | "med" | "harder" | "thinkharder" => Some(Self::Medium),
            "high" | "highest" | "max" | "ultra" | "ultrathink" | "thinkhardest" => Some(Self::High),
            "xhigh" => Some(Self::Xhigh),
            _ => None,
        }
    }

    /// Returns the name of the level.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Xhigh => "xhigh",
        }
    }

    /// Returns the level to request instead: the next higher one that the model supports, else the next lower one.
    ///
    /// Every model supports `Off`; it is the only choice for a model without levels.
    pub fn clamp(self, available: &[Self]) -> Self {
        if self == Self::Off {
            return self;
        }
        let higher = available.iter().copied().filter(|level| *level >= self).min();
        higher.or_else(|| available.iter().copied().max()).unwrap_or(Self::Off)
    }
}

/// Returns the levels that an error response offers instead, in its order; empty unless it is about reasoning.
///
/// Only a response that names the parameter counts: "supported values" of another parameter must not change the
/// reasoning level.
pub fn offered_levels(error: &Error) -> Vec<ReasoningLevel> {
    let text = format!("{} {}", error.message, error.excerpt).to_lowercase();
    let is_about_thinking = ["reasoning", "thinking", "effort"].iter().any(|word| text.contains(word));
    let list = ["supported values", "supported levels", "must be one of", "expected one of", "one of:"]
        .iter()
        .find_map(|intro| text.split_once(intro));
    let (ErrorKind::Rejected, true, Some((_, list))) = (error.kind, is_about_thinking, list) else {
        return Vec::new();
    };
    // The list ends with its sentence; the text after it may use the same words.
    let list = list.split(['.', '\n', '{', '}']).next().unwrap_or_default();
    let mut levels = Vec::new();
    for word in list.split(|c: char| !c.is_ascii_alphanumeric()) {
        let level = ALL.into_iter().find(|level| level.as_str() == word);
        levels.extend(level.filter(|level| !levels.contains(level)));
    }
    levels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_aliases_are_parsed() {
        for (aliases, level) in [
            ("off none", ReasoningLevel::Off),
            ("think min minimal", ReasoningLevel::Minimal),
            ("on enable low thinkhard think-hard", ReasoningLevel::Low),
            ("mid med medium harder think_harder", ReasoningLevel::Medium),
            ("high ultra ultrathink highest max HIGH", ReasoningLevel::High),
            ("xhigh x-high", ReasoningLevel::Xhigh),
        ] {
            assert!(aliases.split(' ').all(|alias| ReasoningLevel::parse(alias) == Some(level)), "{aliases}");
            assert_eq!(ReasoningLevel::parse(level.as_str()), Some(level));
        }
        assert_eq!((ReasoningLevel::parse("very"), ReasoningLevel::parse("")), (None, None));
    }

    #[test]
    fn an_unsupported_level_becomes_the_next_higher_else_lower_one() {
        use ReasoningLevel::{High, Low, Medium, Minimal, Off, Xhigh};
        for (wanted, available, expected) in [
            (Minimal, &[Low, High][..], Low),
            (Medium, &[Low, High], High),
            (Xhigh, DEFAULT_LEVELS, High),
            (Xhigh, &[High, Xhigh], Xhigh),
            (Off, &[High], Off),
            (High, &[], Off),
        ] {
            assert_eq!(wanted.clamp(available), expected, "{wanted:?} of {available:?}");
        }
    }

    #[test]
    fn levels_are_read_only_from_errors_about_reasoning() {
        let offer = |kind, text: &str| offered_levels(&Error::new(kind, text));
        let text = "Unsupported value: 'reasoning_effort' does not support 'medium'. Supported values are: 'low', 'high'. high is best";
        assert_eq!(offer(ErrorKind::Rejected, text), [ReasoningLevel::Low, ReasoningLevel::High]);
        assert_eq!(offer(ErrorKind::Server, text), []);
        assert_eq!(offer(ErrorKind::Rejected, "'verbosity': supported values are: 'low', 'high'"), []);
        assert_eq!(offer(ErrorKind::Rejected, "reasoning is not supported"), []);
    }
}
