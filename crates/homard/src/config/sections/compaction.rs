//! `agents.defaults.compaction`: when and how long sessions are compacted.

use homard_compact::settings::{Flush, Mode, Settings};
use schemars::JsonSchema;
use serde::Deserialize;

use super::word::Word;
use crate::config::Text;

/// When a long conversation is made short, and how.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Compaction {
    /// Whether it is made short without anybody asking, before it gets too long for the model. Default: true.
    enabled: Option<bool>,
    /// How much of it is summed up at once: default, as much as the model takes, or safeguard, smaller parts of which more is kept. Default: default.
    mode: Option<Word<Mode>>,
    /// How many tokens are kept free for the answer; never more than a quarter of what the model reads. Default: 16384.
    reserve_tokens: Option<u64>,
    /// What that counts as at least; 0 for no such floor. Default: 20000.
    reserve_tokens_floor: Option<u64>,
    /// How many tokens of the newest messages stay as they are. Default: 20000.
    keep_recent_tokens: Option<u64>,
    /// Which part of what the model reads these may take at most, from 0 to 1. Default: 0.5.
    #[serde(deserialize_with = "super::number::part")]
    #[schemars(range(min = 0, max = 1))]
    max_history_share: Option<f64>,
    /// The model that sums up, as `provider/model`. Default: the one that answers.
    pub(crate) model: Option<Text>,
    /// The silent turn before, in which the agent writes down what it should not forget.
    #[serde(deserialize_with = "super::object")]
    memory_flush: MemoryFlush,
}

/// The silent turn in which an agent writes down what it should not forget.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
struct MemoryFlush {
    /// Whether there is one. Default: true.
    enabled: Option<bool>,
    /// How many tokens before the conversation is made short. Default: 4000.
    soft_threshold_tokens: Option<u64>,
    /// What the agent is asked, in place of the usual words.
    prompt: Option<Text>,
    /// What its system prompt says in addition, in place of the usual words.
    system_prompt: Option<Text>,
}

super::word::words! {
    Mode: "default" => Self::Default, "safeguard" => Self::Safeguard;
}

impl Compaction {
    /// Returns the compaction settings without the model, which has to be resolved first.
    pub(crate) fn settings(&self) -> Settings {
        let usual = Settings::default();
        Settings {
            enabled: self.enabled.unwrap_or(usual.enabled),
            mode: self.mode.map_or(usual.mode, |word| word.0),
            reserve: self.reserve_tokens.unwrap_or(usual.reserve),
            reserve_floor: self.reserve_tokens_floor.unwrap_or(usual.reserve_floor),
            keep_recent: self.keep_recent_tokens.unwrap_or(usual.keep_recent),
            max_history_share: self.max_history_share.unwrap_or(usual.max_history_share),
            model: None,
            flush: self.memory_flush.settings(),
        }
    }
}

impl MemoryFlush {
    fn settings(&self) -> Flush {
        let usual = Flush::default();
        let words = |text: &Option<Text>| {
            let words = text.as_ref().map(|text| text.as_str().trim()).filter(|words| !words.is_empty());
            words.map(str::to_owned)
        };
        Flush {
            enabled: self.enabled.unwrap_or(usual.enabled),
            soft_threshold: self.soft_threshold_tokens.unwrap_or(usual.soft_threshold),
            prompt: words(&self.prompt),
            system_prompt: words(&self.system_prompt),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    fn read(compaction: &str) -> Result<Settings, String> {
        let config = Config::parse(&format!("{{agents: {{defaults: {{compaction: {compaction}}}}}}}"))?;
        Ok(config.agents.defaults.compaction.settings())
    }

    #[test]
    fn what_the_file_does_not_say_is_as_usual() {
        assert_eq!(read("{}"), Ok(Settings::default()));
        assert_eq!(read("{memoryFlush: {prompt: ' '}}"), Ok(Settings::default()));
    }

    #[test]
    fn everything_can_be_said() {
        let text = "{enabled: false, mode: 'safeguard', reserveTokens: 1, reserveTokensFloor: 0, keepRecentTokens: 3,
                     maxHistoryShare: 0.25, memoryFlush: {
                        enabled: false, softThresholdTokens: 4, prompt: 'Write.', systemPrompt: 'Be brief.'}}";
        let expected = Settings {
            enabled: false,
            mode: Mode::Safeguard,
            reserve: 1,
            reserve_floor: 0,
            keep_recent: 3,
            max_history_share: 0.25,
            model: None,
            flush: Flush {
                enabled: false,
                soft_threshold: 4,
                prompt: Some("Write.".to_owned()),
                system_prompt: Some("Be brief.".to_owned()),
            },
        };
        assert_eq!(read(text), Ok(expected));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let wrong = |text: &str| {
            let told = read(text).unwrap_err();
            told.split_once("agents.defaults.compaction.").unwrap().1.to_owned()
        };
        assert_eq!(wrong("{mode: 'brutal'}"), "mode must be one of default, safeguard");
        let part = "must be a number from 0 to 1";
        assert_eq!(wrong("{maxHistoryShare: 50}"), format!("maxHistoryShare {part}"));
        assert_eq!(wrong("{maxHistoryShare: -0.5}"), format!("maxHistoryShare {part}"));
        assert_eq!(wrong("{maxHistoryShare: 'half'}"), format!("maxHistoryShare {part}"));
        assert_eq!(wrong("{memoryFlush: ['off']}"), "memoryFlush must be an object");
    }
}
