//! `tools`: what agents may do.

use homard_agent::policy::{self, Profile};
use schemars::JsonSchema;
use serde::Deserialize;

use super::word::Word;

/// Which tools may be used. What is denied is denied, whoever else allows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Policy {
    /// A set of tools to begin with: minimal, coding, messaging, full. Default: full.
    pub(crate) profile: Option<Word<Profile>>,
    /// The only tools that may be used: names, `group:` names, or patterns with `*`.
    pub(crate) allow: Option<Vec<String>>,
    /// Tools that may be used besides those of the profile.
    pub(crate) also_allow: Option<Vec<String>>,
    /// Tools that may not be used.
    pub(crate) deny: Option<Vec<String>>,
}

impl Policy {
    /// What it means.
    pub(crate) fn meant(&self) -> policy::Policy {
        let list = |names: &Option<Vec<String>>| names.clone().unwrap_or_default();
        policy::Policy {
            profile: self.profile.map(|word| word.0),
            allow: list(&self.allow),
            also_allow: list(&self.also_allow),
            deny: list(&self.deny),
        }
    }
}

super::word::words! {
    Profile:
        "minimal" => Self::Minimal, "coding" => Self::Coding, "messaging" => Self::Messaging, "full" => Self::Full;
}
