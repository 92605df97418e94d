//! `agents.defaults.compaction`: when and how long sessions are compacted.

use homard_compact::settings::{CompactionMode, FlushSettings, Settings};
use schemars::JsonSchema;
use serde::Deserialize;

use super::word::Word;
use crate::Text;

/// Compaction of long sessions.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Compaction {
    /// Compact a session automatically before it exceeds the model's context window. Default: true.
    enabled: Option<bool>,
    /// How much history is summarized at once: default for as much as the model accepts, safeguard for smaller parts,
    /// so that more of each is kept. Default: default.
    mode: Option<Word<CompactionMode>>,
    /// Tokens reserved for the reply; never more than a quarter of the context window. Default: 16384.
    reserve_tokens: Option<u64>,
    /// Lower bound of `reserveTokens`; 0 for none. Default: 20000.
    reserve_tokens_floor: Option<u64>,
    /// Maximum number of tokens of the newest messages that are kept unchanged. Default: 20000.
    keep_recent_tokens: Option<u64>,
    /// Maximum share of the context window for the newest messages that are kept unchanged, from 0 to 1. Default: 0.5.
    #[serde(deserialize_with = "super::number::fraction")]
    #[schemars(range(min = 0, max = 1))]
    max_history_share: Option<f64>,
    /// Model that writes summaries, as `provider/model`. Default: the run's model.
    pub model: Option<Text>,
    /// Memory flush: a silent turn before a compaction, in which the agent stores what it should remember.
    #[serde(deserialize_with = "super::object")]
    memory_flush: MemoryFlush,
}

/// Memory flush: a silent turn before a compaction, in which the agent stores what it should remember.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
struct MemoryFlush {
    /// Enable the memory flush. Default: true.
    enabled: Option<bool>,
    /// Number of tokens before the compaction threshold at which the memory flush runs. Default: 4000.
    soft_threshold_tokens: Option<u64>,
    /// Prompt of the memory flush, in place of the built-in one.
    prompt: Option<Text>,
    /// Addition to the system prompt of the memory flush, in place of the built-in one.
    system_prompt: Option<Text>,
}

super::word::words! {
    CompactionMode: "default" => Self::Default, "safeguard" => Self::Safeguard;
}

impl Compaction {
    /// Returns the compaction settings without the model, which has to be resolved first.
    pub fn settings(&self) -> Settings {
        let defaults = Settings::default();
        Settings {
            enabled: self.enabled.unwrap_or(defaults.enabled),
            mode: self.mode.map_or(defaults.mode, |word| word.0),
            reserve: self.reserve_tokens.unwrap_or(defaults.reserve),
            reserve_floor: self.reserve_tokens_floor.unwrap_or(defaults.reserve_floor),
            keep_recent: self.keep_recent_tokens.unwrap_or(defaults.keep_recent),
            max_history_share: self.max_history_share.unwrap_or(defaults.max_history_share),
            model: None,
            flush: self.memory_flush.settings(),
        }
    }
}

impl MemoryFlush {
    fn settings(&self) -> FlushSettings {
        let defaults = FlushSettings::default();
        let non_empty = |text: &Option<Text>| {
            let non_empty = text.as_ref().map(|text| text.as_str().trim()).filter(|non_empty| !non_empty.is_empty());
            non_empty.map(str::to_owned)
        };
        FlushSettings {
            enabled: self.enabled.unwrap_or(defaults.enabled),
            soft_threshold: self.soft_threshold_tokens.unwrap_or(defaults.soft_threshold),
            prompt: non_empty(&self.prompt),
            system_prompt: non_empty(&self.system_prompt),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn read(compaction: &str) -> Result<Settings, String> {
        let config = Config::parse(&format!("{{agents: {{defaults: {{compaction: {compaction}}}}}}}"))
            .map_err(|error| error.to_string())?;
        Ok(config.agents.defaults.compaction.settings())
    }

    #[test]
    fn unset_keys_have_defaults() {
        assert_eq!(read("{}"), Ok(Settings::default()));
        assert_eq!(read("{memoryFlush: {prompt: ' '}}"), Ok(Settings::default()));
    }

    #[test]
    fn every_setting_is_read() {
        let text = "{enabled: false, mode: 'safeguard', reserveTokens: 1, reserveTokensFloor: 0, keepRecentTokens: 3,
                     maxHistoryShare: 0.25, memoryFlush: {
                        enabled: false, softThresholdTokens: 4, prompt: 'Write.', systemPrompt: 'Be brief.'}}";
        let expected = Settings {
            enabled: false,
            mode: CompactionMode::Safeguard,
            reserve: 1,
            reserve_floor: 0,
            keep_recent: 3,
            max_history_share: 0.25,
            model: None,
            flush: FlushSettings {
                enabled: false,
                soft_threshold: 4,
                prompt: Some("Write.".to_owned()),
                system_prompt: Some("Be brief.".to_owned()),
            },
        };
        assert_eq!(read(text), Ok(expected));
    }

    #[test]
    fn invalid_values_are_named() {
        let error_of = |text: &str| {
            let error = read(text).unwrap_err();
            error.split_once("agents.defaults.compaction.").unwrap().1.to_owned()
        };
        assert_eq!(error_of("{mode: 'brutal'}"), "mode must be one of default, safeguard");
        let expected = "must be a number from 0 to 1";
        assert_eq!(error_of("{maxHistoryShare: 50}"), format!("maxHistoryShare {expected}"));
        assert_eq!(error_of("{maxHistoryShare: -0.5}"), format!("maxHistoryShare {expected}"));
        assert_eq!(error_of("{maxHistoryShare: 'half'}"), format!("maxHistoryShare {expected}"));
        assert_eq!(error_of("{memoryFlush: ['off']}"), "memoryFlush must be an object");
    }
}
