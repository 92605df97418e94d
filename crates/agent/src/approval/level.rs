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
pub enum AskMode {
    /// Never.
    Off,
    /// When no rule allows the command.
    OnMiss,
    /// Before every command.
    Always,
}

/// Levels of one source: a call, the config, or the file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LevelOverrides {
    /// What may run.
    pub security: Option<Security>,
    /// When to ask.
    pub ask: Option<AskMode>,
}

/// The effective levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EffectiveLevels {
    /// What may run.
    pub security: Security,
    /// When to ask.
    pub ask: AskMode,
}

impl Security {
    /// Parses a level; an unknown word is the strictest.
    pub fn parse(word: &str) -> Self {
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

impl AskMode {
    /// Parses a level; an unknown word is the strictest.
    pub fn parse(word: &str) -> Self {
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

impl EffectiveLevels {
    /// Returns the strictest levels. If no source sets one, the defaults are `deny` and `on-miss`.
    pub fn of(wishes: &[LevelOverrides]) -> Self {
        Self {
            security: wishes.iter().filter_map(|wish| wish.security).min().unwrap_or(Security::Deny),
            ask: wishes.iter().filter_map(|wish| wish.ask).max().unwrap_or(AskMode::OnMiss),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECURITIES: [Option<Security>; 4] =
        [None, Some(Security::Deny), Some(Security::Allowlist), Some(Security::Full)];
    const ASKS: [Option<AskMode>; 4] = [None, Some(AskMode::Off), Some(AskMode::OnMiss), Some(AskMode::Always)];

    #[test]
    fn nobody_can_loosen_what_another_says() {
        let wishes: Vec<LevelOverrides> =
            SECURITIES.iter().flat_map(|&security| ASKS.map(|ask| LevelOverrides { security, ask })).collect();
        for &call in &wishes {
            for &config in &wishes {
                for &file in &wishes {
                    let effective = EffectiveLevels::of(&[call, config, file]);
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
        let silence = EffectiveLevels { security: Security::Deny, ask: AskMode::OnMiss };
        assert_eq!(EffectiveLevels::of(&[LevelOverrides::default(), LevelOverrides::default()]), silence);
    }

    #[test]
    fn words_come_back_and_unknown_ones_are_strict() {
        for security in SECURITIES.into_iter().flatten() {
            assert_eq!(Security::parse(security.as_str()), security);
        }
        for ask in ASKS.into_iter().flatten() {
            assert_eq!(AskMode::parse(ask.as_str()), ask);
        }
        assert_eq!((Security::parse("FULL"), AskMode::parse("never")), (Security::Deny, AskMode::Always));
    }
}
