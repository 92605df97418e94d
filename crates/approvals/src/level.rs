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
    pub fn parse(name: &str) -> Self {
        match name.trim() {
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
    pub fn parse(name: &str) -> Self {
        match name.trim() {
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
    pub fn of(sources: &[LevelOverrides]) -> Self {
        Self {
            security: sources.iter().filter_map(|source| source.security).min().unwrap_or(Security::Deny),
            ask: sources.iter().filter_map(|source| source.ask).max().unwrap_or(AskMode::OnMiss),
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
    fn no_source_can_loosen_the_level_of_another() {
        let sources: Vec<LevelOverrides> =
            SECURITIES.iter().flat_map(|&security| ASKS.map(|ask| LevelOverrides { security, ask })).collect();
        for &call in &sources {
            for &config in &sources {
                for &file in &sources {
                    let effective = EffectiveLevels::of(&[call, config, file]);
                    for source in [call, config, file] {
                        assert!(source.security.is_none_or(|level| effective.security <= level));
                        assert!(source.ask.is_none_or(|level| effective.ask >= level));
                    }
                }
            }
        }
    }

    #[test]
    fn without_levels_commands_are_denied_unless_approved() {
        let default_levels = EffectiveLevels { security: Security::Deny, ask: AskMode::OnMiss };
        assert_eq!(EffectiveLevels::of(&[LevelOverrides::default(), LevelOverrides::default()]), default_levels);
    }

    #[test]
    fn level_names_round_trip_and_unknown_ones_are_strict() {
        for security in SECURITIES.into_iter().flatten() {
            assert_eq!(Security::parse(security.as_str()), security);
        }
        for ask in ASKS.into_iter().flatten() {
            assert_eq!(AskMode::parse(ask.as_str()), ask);
        }
        assert_eq!((Security::parse("FULL"), AskMode::parse("never")), (Security::Deny, AskMode::Always));
    }
}
