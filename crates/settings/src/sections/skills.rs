//! `skills`: directories of skills, and settings of each.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::Text;

/// Skills and their settings.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Skills {
    /// Names of the bundled skills that may be used. If empty, all of them.
    pub allow_bundled: Vec<String>,
    /// Directories that skills are loaded from.
    #[serde(deserialize_with = "super::object")]
    pub load: Load,
    /// Limits of skills in the system prompt.
    #[serde(deserialize_with = "super::object")]
    pub limits: Limits,
    /// Settings per skill, by its key.
    #[serde(deserialize_with = "super::named_objects")]
    pub entries: BTreeMap<String, SkillEntry>,
}

/// Directories that skills are loaded from.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Load {
    /// Additional directories. A skill of the same name in the workspace or the state directory takes precedence.
    pub extra_dirs: Vec<Text>,
    /// Reload skills that change while the gateway runs. Default: true.
    pub watch: Option<bool>,
    /// Debounce time of changes in milliseconds. Default: 250.
    pub watch_debounce_ms: Option<u64>,
}

/// Limits of skills in the system prompt.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct Limits {
    /// Maximum number of listed skills. Default: 150.
    pub max_skills_in_prompt: Option<usize>,
    /// Maximum number of characters of the list. Default: 30000.
    pub max_skills_prompt_chars: Option<usize>,
    /// Maximum size of a skill file in bytes. Default: 262144.
    pub max_skill_file_bytes: Option<u64>,
    /// Maximum number of directories that are searched per location. Default: 300.
    pub max_candidates_per_root: Option<usize>,
}

/// Settings of a skill.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct SkillEntry {
    /// Enable the skill. Default: true.
    pub enabled: Option<bool>,
    /// API key of its service, passed to its commands in the environment variable that the skill names.
    pub api_key: Option<Text>,
    /// Environment variables of its commands.
    pub env: BTreeMap<String, Text>,
    /// Settings that the skill itself defines.
    pub config: BTreeMap<String, serde_json::Value>,
    /// Error that makes the skill unusable, if it references an environment variable which is not set.
    #[serde(skip)]
    pub fault: Option<String>,
}
