//! `skills.*`: lists and configures skills.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{UnknownMembers, flag, text};

/// Parameters of `skills.status`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatusParams {
    /// Agent id; defaults to the default agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
}

params!(StatusParams, "skills.status", &[], |_| (json!({"agentId": text()}), UnknownMembers::Refused));

/// Parameters of `skills.update`. The key and the environment are secrets: `Debug` does not show them.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UpdateParams {
    /// Key of the skill in the config.
    pub skill_key: String,
    /// Whether it may be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// API key; an empty one removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key: Option<String>,
    /// Environment variables; an empty value removes one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

impl fmt::Debug for UpdateParams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpdateParams")
            .field("skill_key", &self.skill_key)
            .field("enabled", &self.enabled)
            .finish_non_exhaustive()
    }
}

params!(UpdateParams, "skills.update", &["skillKey"], |_| {
    let properties = json!({
        "skillKey": text(), "enabled": flag(), "apiKey": {"type": "string"}, "env": {"type": "object"},
    });
    (properties, UnknownMembers::Refused)
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Generation, method::Params};

    #[test]
    fn a_skill_is_switched_and_its_secrets_are_not_shown() {
        let params = json!({"skillKey": "maps", "enabled": true, "apiKey": "hush", "env": {"MAPS_KEY": "hush"}});
        let read = UpdateParams::decode(Generation::Three, Some(params)).unwrap();
        let expected = UpdateParams {
            skill_key: "maps".to_owned(),
            enabled: Some(true),
            api_key: Some("hush".to_owned()),
            env: BTreeMap::from([("MAPS_KEY".to_owned(), "hush".to_owned())]),
        };
        assert_eq!(read, expected);
        assert_eq!(format!("{read:?}"), r#"UpdateParams { skill_key: "maps", enabled: Some(true), .. }"#);
    }

    #[test]
    fn environment_values_must_be_strings() {
        let params = json!({"skillKey": "maps", "env": {"MAPS_KEY": 5}});
        let error = UpdateParams::decode(Generation::Four, Some(params)).unwrap_err();
        assert!(error.message.starts_with("invalid skills.update params: invalid type: integer `5`"), "{error:?}");
    }
}
