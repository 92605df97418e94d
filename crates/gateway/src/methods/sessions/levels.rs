//! Session settings with a fixed set of values, and their aliases.

use homard_proto::{ErrorShape, Extra};
use serde_json::Value;

/// A setting with a fixed set of values.
struct LevelSetting {
    name: &'static str,
    values: &'static [&'static str],
    /// Accepted aliases and the values they stand for.
    aliases: &'static [(&'static str, &'static str)],
    /// Value that has the same effect as no value: it is stored as `null`, which clears the setting.
    clears: Option<&'static str>,
}

const NO_ALIASES: &[(&str, &str)] = &[];

const SETTINGS: [LevelSetting; 4] = [
    LevelSetting {
        name: "thinkingLevel",
        values: &homard_command::levels::THINKING_LEVELS,
        aliases: NO_ALIASES,
        clears: Some("off"),
    },
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

/// Normalises the level settings in the changes of a session record; other changes are not touched.
///
/// An alias becomes the value it stands for, and the value that clears a setting becomes `null`. An invalid value is an
/// error that lists the allowed ones.
pub(super) fn check(changes: &mut Extra) -> Result<(), ErrorShape> {
    for setting in &SETTINGS {
        if let Some(value) = changes.get_mut(setting.name)
            && let Some(raw) = value.as_str()
        {
            let Some(level) = setting.read(raw) else {
                let allowed = setting.values.join("|");
                return Err(ErrorShape::invalid(format!("invalid {} (use {allowed})", setting.name)));
            };
            *value = if setting.clears == Some(level) { Value::Null } else { level.into() };
        }
    }
    Ok(())
}

impl LevelSetting {
    /// Returns the value that a text stands for; `None` if it is invalid.
    fn read(&self, raw: &str) -> Option<&'static str> {
        if self.name == "thinkingLevel" {
            return homard_command::levels::thinking(raw);
        }
        let raw = raw.trim().to_lowercase();
        let name = self.aliases.iter().find(|(alias, _)| *alias == raw).map_or(raw.as_str(), |(_, level)| level);
        self.values.iter().find(|level| **level == name).copied()
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
    fn settings_are_stored_in_canonical_form() {
        let changes = json!({
            "thinkingLevel": "Ultra", "verboseLevel": " YES ", "reasoningLevel": "off",
            "responseUsage": "on", "label": "off",
        });
        let stored = json!({
            "thinkingLevel": "high", "verboseLevel": "on", "reasoningLevel": null,
            "responseUsage": "tokens", "label": "off",
        });
        assert_eq!(checked(changes), Ok(stored));
        assert_eq!(checked(json!({"thinkingLevel": "off"})), Ok(json!({"thinkingLevel": null})));
    }

    #[test]
    fn an_invalid_value_is_rejected_with_the_valid_ones() {
        let assert_rejected = |name: &str, allowed: &str| {
            assert_eq!(checked(json!({name: "bogus"})), Err(format!("invalid {name} (use {allowed})")));
        };
        assert_rejected("thinkingLevel", "off|minimal|low|medium|high|xhigh");
        assert_rejected("verboseLevel", "on|off|full");
        assert_rejected("responseUsage", "off|tokens|full");
    }
}
