//! `skills`: directories of skills, and settings of each.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::Text;

/// What agents can read how to do.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Skills {
    /// Of the skills that come with the program, the only ones that may be used; all if the list is empty.
    pub(crate) allow_bundled: Vec<String>,
    /// Where skills are found.
    #[serde(deserialize_with = "super::object")]
    pub(crate) load: Load,
    /// How much of them a prompt holds.
    #[serde(deserialize_with = "super::object")]
    pub(crate) limits: Limits,
    /// What each skill needs, by its key.
    #[serde(deserialize_with = "super::named_objects")]
    pub(crate) entries: BTreeMap<String, Entry>,
}

/// Where skills are found.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Load {
    /// More folders to look in. A skill of the same name in the workspace or the state directory comes before theirs.
    pub(crate) extra_dirs: Vec<Text>,
    /// Whether changes are seen while the gateway runs. Default: true.
    pub(crate) watch: Option<bool>,
    /// How long it must be quiet before a change counts, in milliseconds. Default: 250.
    pub(crate) watch_debounce_ms: Option<u64>,
}

/// How much of the skills a prompt holds.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Limits {
    /// How many skills are listed. Default: 150.
    pub(crate) max_skills_in_prompt: Option<usize>,
    /// How many characters the list has. Default: 30000.
    pub(crate) max_skills_prompt_chars: Option<usize>,
    /// How big a skill's file may be, in bytes. Default: 262144.
    pub(crate) max_skill_file_bytes: Option<u64>,
    /// How many folders are looked at in one place. Default: 300.
    pub(crate) max_candidates_per_root: Option<usize>,
}

/// What a skill needs.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Entry {
    /// Whether it may be used. Default: true.
    pub(crate) enabled: Option<bool>,
    /// The key of its service. Its commands find it in the variable that the skill names.
    pub(crate) api_key: Option<Text>,
    /// Variables that its commands find in their environment.
    pub(crate) env: BTreeMap<String, Text>,
    /// Settings of its own.
    pub(crate) config: BTreeMap<String, serde_json::Value>,
    /// Why it must not be used, if a variable that it needs is not set.
    #[serde(skip)]
    pub(crate) fault: Option<String>,
}
