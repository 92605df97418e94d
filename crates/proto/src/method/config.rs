//! `config.*`: reads and changes the config file over the wire.
//!
//! The text of a config may contain secrets, so `Debug` never shows it.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{UnknownMembers, text};

/// Maximum length of a path in a config.
const PATH: u64 = 1024;

/// Text of a config, or of a change to one.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Raw(pub String);

impl fmt::Debug for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Raw({} bytes)", self.0.len())
    }
}

/// Parameters of `config.get`: none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetParams {}

params!(GetParams, "config.get", &[], |_| (json!({}), UnknownMembers::Refused));

/// Parameters of `config.schema`: none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchemaParams {}

params!(SchemaParams, "config.schema", &[], |_| (json!({}), UnknownMembers::Refused));

/// Parameters of `config.schema.lookup`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LookupParams {
    /// Config key, such as `agents.defaults.model`.
    pub path: String,
}

params!(LookupParams, "config.schema.lookup", &["path"], |_| {
    (json!({"path": {"type": "string", "minLength": 1, "maxLength": PATH}}), UnknownMembers::Refused)
});

/// Parameters of `config.set`: replaces the whole config.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SetParams {
    /// New text.
    pub raw: Raw,
    /// Hash of the file when the caller read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_hash: Option<String>,
}

params!(SetParams, "config.set", &["raw"], |_| (json!({"raw": text(), "baseHash": text()}), UnknownMembers::Refused));

/// Parameters about the restart that a change causes in OpenClaw.
const RESTART: &[(&str, &str)] = &[
    ("sessionKey", NO_RESTART),
    ("deliveryContext", NO_RESTART),
    ("note", NO_RESTART),
    ("restartDelayMs", NO_RESTART),
];
const NO_RESTART: &str = "changes take effect without a restart";

/// Parameters of `config.apply`: replaces the whole config, effective at once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApplyParams {
    /// New text.
    pub raw: Raw,
    /// Hash of the file when the caller read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_hash: Option<String>,
}

params!(ApplyParams, "config.apply", &["raw"], |_| (change(), UnknownMembers::Refused), no_effect: RESTART);

/// Parameters of `config.patch`: the parts that change; `null` removes one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PatchParams {
    /// Text of the change.
    pub raw: Raw,
    /// Hash of the file when the caller read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_hash: Option<String>,
    /// Paths whose values are replaced and not merged; newer clients only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replace_paths: Vec<String>,
}

params!(PatchParams, "config.patch", &["raw"], |generation| {
    let mut properties = change();
    if generation == Generation::Four {
        properties["replacePaths"] = json!({"type": "array", "items": text()});
    }
    (properties, UnknownMembers::Refused)
}, no_effect: RESTART);

fn change() -> Value {
    json!({"raw": text(), "baseHash": text()})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Generation, method::Params};

    fn error_of<P: Params + fmt::Debug>(generation: Generation, params: Value) -> String {
        P::decode(generation, Some(params)).unwrap_err().message
    }

    #[test]
    fn config_changes_are_decoded_in_both_protocol_versions() {
        let params = json!({
            "raw": "{}", "baseHash": "abc", "sessionKey": "main", "note": "new model", "restartDelayMs": 0,
        });
        for generation in [Generation::Three, Generation::Four] {
            let (raw, base_hash) = (Raw("{}".to_owned()), Some("abc".to_owned()));
            let applied = ApplyParams { raw: raw.clone(), base_hash: base_hash.clone() };
            assert_eq!(ApplyParams::decode(generation, Some(params.clone())), Ok(applied));
            let patched = PatchParams { raw, base_hash, replace_paths: Vec::new() };
            assert_eq!(PatchParams::decode(generation, Some(params.clone())), Ok(patched));
        }
    }

    #[test]
    fn replace_paths_requires_protocol_4() {
        let params =
            json!({"raw": "{}", "deliveryContext": {"channel": "slack", "threadId": 7}, "replacePaths": ["a"]});
        let newer = PatchParams::decode(Generation::Four, Some(params.clone())).unwrap();
        assert_eq!(newer.replace_paths, ["a"]);
        assert_eq!(
            error_of::<PatchParams>(Generation::Three, params.clone()),
            "invalid config.patch params: at root: unexpected property 'replacePaths'"
        );
        assert_eq!(
            error_of::<ApplyParams>(Generation::Four, params),
            "invalid config.apply params: at root: unexpected property 'replacePaths'"
        );
    }

    #[test]
    fn a_config_change_requires_its_text() {
        for generation in [Generation::Three, Generation::Four] {
            assert_eq!(
                error_of::<SetParams>(generation, json!({"raw": ""})),
                "invalid config.set params: at /raw: must NOT have fewer than 1 characters"
            );
            assert_eq!(
                error_of::<SetParams>(generation, json!({"baseHash": "abc"})),
                "invalid config.set params: must have required property 'raw'"
            );
            assert_eq!(
                error_of::<GetParams>(generation, json!({"path": "gateway"})),
                "invalid config.get params: at root: unexpected property 'path'"
            );
            assert_eq!(
                error_of::<LookupParams>(generation, json!({"path": "a".repeat(1025)})),
                "invalid config.schema.lookup params: at /path: must NOT have more than 1024 characters"
            );
            assert_eq!(SchemaParams::decode(generation, None), Ok(SchemaParams {}));
        }
    }

    #[test]
    fn the_text_of_a_config_is_not_shown() {
        let params = SetParams { raw: Raw("{token: 'hush'}".to_owned()), base_hash: None };
        assert_eq!(format!("{params:?}"), "SetParams { raw: Raw(15 bytes), base_hash: None }");
    }
}
