//! Session settings with a fixed set of values, and their aliases.

use homard_agent::intake;
use homard_proto::{ErrorShape, Extra};
use serde_json::Value;

/// A setting with a fixed set of values.
struct LevelSetting {
    name: &'static str,
    values: &'static [&'static str],
    /// Accepted aliases and the values they stand for.
    aliases: &'static [(&'static str, &'static str)],
    /// Value that clears the setting.
    clears: Option<&'static str>,
}

const NO_ALIASES: &[(&str, &str)] = &[];

const SETTINGS: [LevelSetting; 4] = [
    LevelSetting { name: "thinkingLevel", values: &intake::THINKING_LEVELS, aliases: NO_ALIASES, clears: Some("off") },
    LevelSetting {
        name: "verboseLevel",
        values: &["on", "off", "full"],
        aliases: &[("true", "on"), ("yes", "on"), ("false", "off"), ("no", "off"), ("all", "full")],
        clears: None,
    },
    LevelSetting {
        name: "reasoningLevel",
        values: &["on", "off", "stream"],
        aliases: &[("true", "on"), ("yes", "on"), ("false", "off"), ("no", "off"), ("live", "stream")],
        clears: Some("off"),
    },
    LevelSetting {
        name: "responseUsage",
        values: &["off", "tokens", "full"],
        aliases: &[("on", "tokens")],
        clears: Some("off"),
    },
];

/// Normalises the settings among some changes, or returns an error that lists the allowed values.
pub(super) fn check(changes: &mut Extra) -> Result<(), ErrorShape> {
    for setting in &SETTINGS {
        if let Some(value) = changes.get_mut(setting.name)
            && let Some(raw) = value.as_str()
        {
            let Some(word) = setting.read(raw) else {
                let words = setting.values.join("|");
                return Err(ErrorShape::invalid(format!("invalid {} (use {words})", setting.name)));
            };
            *value = if setting.clears == Some(word) { Value::Null } else { word.into() };
        }
    }
    Ok(())
}

impl LevelSetting {
    fn read(&self, raw: &str) -> Option<&'static str> {
        if self.name == "thinkingLevel" {
            return intake::thinking(raw);
        }
        let raw = raw.trim().to_lowercase();
        let meant = self.aliases.iter().find(|(alias, _)| *alias == raw).map_or(raw.as_str(), |(_, word)| word);
        self.values.iter().find(|word| **word == meant).copied()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn checked(changes: Value) -> Result<Value, String> {
        let mut changes: Extra = serde_json::from_value(changes).unwrap();
        check(&mut changes).map_err(|error| error.message)?;
        Ok(json!(changes))
    }

    #[test]
    fn settings_are_kept_in_their_own_words() {
        let asked = json!({
            "thinkingLevel": "Ultra", "verboseLevel": " YES ", "reasoningLevel": "off",
            "responseUsage": "on", "label": "off",
        });
        let kept = json!({
            "thinkingLevel": "high", "verboseLevel": "on", "reasoningLevel": null,
            "responseUsage": "tokens", "label": "off",
        });
        assert_eq!(checked(asked), Ok(kept));
        assert_eq!(checked(json!({"thinkingLevel": "off"})), Ok(json!({"thinkingLevel": null})));
    }

    #[test]
    fn a_word_that_is_none_is_refused_with_those_that_are() {
        let refused = |name: &str, words: &str| {
            assert_eq!(checked(json!({name: "bogus"})), Err(format!("invalid {name} (use {words})")));
        };
        refused("thinkingLevel", "off|minimal|low|medium|high|xhigh");
        refused("verboseLevel", "on|off|full");
        refused("responseUsage", "off|tokens|full");
    }
}
