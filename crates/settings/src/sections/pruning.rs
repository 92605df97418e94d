//! `agents.defaults.contextPruning`: which old tool results are left out of requests.

use std::time::Duration;

use homard_compact::prune::Settings;
use schemars::JsonSchema;
use serde::Deserialize;

use super::word::Word;

/// Pruning: which old tool results are omitted from requests. The transcript keeps them.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ContextPruning {
    /// Pruning mode: off, or cache-ttl to prune results that have expired from Anthropic's prompt cache. Default: off.
    mode: Option<Word<Mode>>,
    /// Lifetime of the provider's prompt cache, such as `5m` or `1h`. Default: 5m.
    #[serde(deserialize_with = "super::schedule::duration")]
    #[schemars(with = "Option<String>")]
    ttl: Option<Duration>,
    /// Number of last assistant messages that are never pruned, with everything after them. Default: 3.
    keep_last_assistants: Option<usize>,
    /// Share of the context window that must be in use before the middle of long results is cut, from 0 to 1. Default: 0.3.
    #[serde(deserialize_with = "super::number::fraction")]
    #[schemars(range(min = 0, max = 1))]
    soft_trim_ratio: Option<f64>,
    /// Share of the context window that must be in use before results are omitted, oldest first, from 0 to 1. Default: 0.5.
    #[serde(deserialize_with = "super::number::fraction")]
    #[schemars(range(min = 0, max = 1))]
    hard_clear_ratio: Option<f64>,
    /// Minimum total number of characters of prunable results before any is omitted. Default: 50000.
    min_prunable_tool_chars: Option<u64>,
    /// Shortening of long results.
    #[serde(deserialize_with = "super::object")]
    soft_trim: SoftTrim,
    /// Removal of old results.
    #[serde(deserialize_with = "super::object")]
    hard_clear: HardClear,
    /// Tools whose results may be pruned.
    #[serde(deserialize_with = "super::object")]
    tools: Tools,
}

/// Shortening of long results.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
struct SoftTrim {
    /// Number of characters above which a result is shortened. Default: 4000.
    max_chars: Option<usize>,
    /// Number of characters kept at the beginning of a shortened result. Default: 1500.
    head_chars: Option<usize>,
    /// Number of characters kept at the end of a shortened result. Default: 1500.
    tail_chars: Option<usize>,
}

/// Removal of old results.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct HardClear {
    /// Omit results; if false, they are only shortened. Default: true.
    enabled: Option<bool>,
    /// Placeholder for an omitted result. Default: a sentence that says so.
    placeholder: Option<String>,
}

/// Tools whose results may be pruned.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
struct Tools {
    /// Names of the tools whose results may be pruned; `*` matches anything. Default: all.
    allow: Vec<String>,
    /// Names of tools whose results are never pruned; takes precedence over `allow`.
    deny: Vec<String>,
}

/// Whether pruning is enabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Off,
    CacheTtl,
}

super::word::words! {
    Mode: "off" => Self::Off, "cache-ttl" => Self::CacheTtl;
}

impl ContextPruning {
    /// Returns the pruning settings; `None` if disabled.
    pub fn settings(&self) -> Option<Settings> {
        match self.mode.map_or(Mode::Off, |word| word.0) {
            Mode::Off => return None,
            Mode::CacheTtl => {}
        }
        let (base, trim) = (Settings::default(), &self.soft_trim);
        let ttl = |ttl: Duration| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
        let hard_ratio = match self.hard_clear.enabled {
            // A ratio that is never reached.
            Some(false) => f64::INFINITY,
            Some(true) | None => self.hard_clear_ratio.unwrap_or(base.hard_ratio),
        };
        Some(Settings {
            ttl: self.ttl.map_or(base.ttl, ttl),
            keep_last_assistants: self.keep_last_assistants.unwrap_or(base.keep_last_assistants),
            soft_ratio: self.soft_trim_ratio.unwrap_or(base.soft_ratio),
            hard_ratio,
            min_prunable: self.min_prunable_tool_chars.unwrap_or(base.min_prunable),
            soft_max: trim.max_chars.unwrap_or(base.soft_max),
            soft_head: trim.head_chars.unwrap_or(base.soft_head),
            soft_tail: trim.tail_chars.unwrap_or(base.soft_tail),
            // Some providers reject empty results.
            placeholder: self
                .hard_clear
                .placeholder
                .clone()
                .filter(|text| !text.trim().is_empty())
                .unwrap_or(base.placeholder),
            allow: self.tools.allow.clone(),
            deny: self.tools.deny.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    fn read(pruning: &str) -> Result<Option<Settings>, String> {
        let config = Config::parse(&format!("{{agents: {{defaults: {{contextPruning: {pruning}}}}}}}"))
            .map_err(|error| error.to_string())?;
        Ok(config.agents.defaults.context_pruning.settings())
    }

    #[test]
    fn pruning_is_disabled_by_default() {
        assert_eq!(read("{}"), Ok(None));
        assert_eq!(read("{mode: 'off', ttl: '1h'}"), Ok(None));
        assert_eq!(read("{mode: 'cache-ttl'}"), Ok(Some(Settings::default())));
    }

    #[test]
    fn every_setting_is_read() {
        let text = "{mode: 'cache-ttl', ttl: '1h', keepLastAssistants: 0, softTrimRatio: 0.1, hardClearRatio: 1,
                     minPrunableToolChars: 2, softTrim: {maxChars: 3, headChars: 4, tailChars: 5},
                     hardClear: {enabled: true, placeholder: '(gone)'}, tools: {allow: ['read'], deny: ['mcp_*']}}";
        let expected = Settings {
            ttl: 3_600_000,
            keep_last_assistants: 0,
            soft_ratio: 0.1,
            hard_ratio: 1.0,
            min_prunable: 2,
            soft_max: 3,
            soft_head: 4,
            soft_tail: 5,
            placeholder: "(gone)".to_owned(),
            allow: vec!["read".to_owned()],
            deny: vec!["mcp_*".to_owned()],
        };
        assert_eq!(read(text), Ok(Some(expected)));
        let blank = read("{mode: 'cache-ttl', hardClear: {placeholder: ' '}}");
        assert_eq!(blank, Ok(Some(Settings::default())));
        let without_clear = read("{mode: 'cache-ttl', hardClearRatio: 0.2, hardClear: {enabled: false}}");
        assert_eq!(without_clear, Ok(Some(Settings { hard_ratio: f64::INFINITY, ..Settings::default() })));
    }

    #[test]
    fn invalid_values_are_named() {
        let error_of = |text: &str| {
            let error = read(text).unwrap_err();
            error.split_once("agents.defaults.contextPruning.").unwrap().1.to_owned()
        };
        assert_eq!(error_of("{mode: 'on'}"), "mode must be one of off, cache-ttl");
        assert_eq!(error_of("{ttl: 'soon'}"), "ttl must be a time such as \"30m\" or \"1h\"");
        assert_eq!(error_of("{hardClearRatio: 1.5}"), "hardClearRatio must be a number from 0 to 1");
    }
}
