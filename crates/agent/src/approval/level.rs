//! Approval levels: what may run at all, and when to ask. The strictest of all sources applies.

use serde::{Deserialize, Serialize};

/// What may run at all, strictest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Security {
    /// Nothing.
    Deny,
    /// What a rule or a decision allows.
    Allowlist,
    /// Everything.
    Full,
}

/// When to ask, strictest last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ask {
    /// Never.
    Off,
    /// When no rule allows the command.
    OnMiss,
    /// Before every command.
    Always,
}

/// Levels of one source: a call, the config, or the file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wish {
    /// What may run.
    pub security: Option<Security>,
    /// When to ask.
    pub ask: Option<Ask>,
}

/// The effective levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effective {
    /// What may run.
    pub security: Security,
    /// When to ask.
    pub ask: Ask,
}

impl Security {
    /// Parses a level; an unknown word is the strictest.
    pub fn read(word: &str) -> Self {
        match word.trim() {
            "allowlist" => Self::Allowlist,
            "full" => Self::Full,
            _ => Self::Deny,
        }
    }

    /// Returns the serialized name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Allowlist => "allowlist",
            Self::Full => "full",
        }
    }
}

impl Ask {
    /// Parses a level; an unknown word is the strictest.
    pub fn read(word: &str) -> Self {
        match word.trim() {
            "off" => Self::Off,
            "on-miss" => Self::OnMiss,
            _ => Self::Always,
        }
    }

    /// Returns the serialized name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::OnMiss => "on-miss",
            Self::Always => "always",
        }
    }
}

impl Effective {
    /// Returns the strictest levels. If no source sets one, the defaults are `deny` and `on-miss`.
    pub fn of(wishes: &[Wish]) -> Self {
        Self {
            security: wishes.iter().filter_map(|wish| wish.security).min().unwrap_or(Security::Deny),
            ask: wishes.iter().filter_map(|wish| wish.ask).max().unwrap_or(Ask::OnMiss),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECURITIES: [Option<Security>; 4] =
        [None, Some(Security::Deny), Some(Security::Allowlist), Some(Security::Full)];
    const ASKS: [Option<Ask>; 4] = [None, Some(Ask::Off), Some(Ask::OnMiss), Some(Ask::Always)];

    #[test]
    fn nobody_can_loosen_what_another_says() {
        let wishes: Vec<Wish> =
            SECURITIES.iter().flat_map(|&security| ASKS.map(|ask| Wish { security, ask })).collect();
        for &call in &wishes {
            for &config in &wishes {
                for &file in &wishes {
                    let effective = Effective::of(&[call, config, file]);
                    for wish in [call, config, file] {
                        assert!(wish.security.is_none_or(|said| effective.security <= said));
                        assert!(wish.ask.is_none_or(|said| effective.ask >= said));
                    }
                }
            }
        }
    }

    #[test]
    fn silence_means_no_and_ask() {
        let silence = Effective { security: Security::Deny, ask: Ask::OnMiss };
        assert_eq!(Effective::of(&[Wish::default(), Wish::default()]), silence);
    }

    #[test]
    fn words_come_back_and_unknown_ones_are_strict() {
        for security in SECURITIES.into_iter().flatten() {
            assert_eq!(Security::read(security.as_str()), security);
        }
        for ask in ASKS.into_iter().flatten() {
            assert_eq!(Ask::read(ask.as_str()), ask);
        }
        assert_eq!((Security::read("FULL"), Ask::read("never")), (Security::Deny, Ask::Always));
    }
}
