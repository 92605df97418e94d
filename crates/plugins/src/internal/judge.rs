//! Decides which internal hooks are active: enabled by the owner, and with all requirements met.

use std::collections::BTreeMap;

use homard_skills::{Host, Missing, Needs, missing};
use serde_json::{Map, Value};

use super::hook_md::{Hook, Source};
use crate::settings::Guard;

/// Config path that counts as set even if the config omits it: there always is a workspace.
const WORKSPACE: &str = "workspace.dir";

/// The owner's settings for hooks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rules {
    /// `hooks.internal.enabled`.
    pub enabled: Option<bool>,
    /// `hooks.internal.entries`, by key.
    pub entries: BTreeMap<String, Entry>,
}

/// The owner's settings for one hook.
#[derive(Clone, Default, PartialEq)]
pub struct Entry {
    /// Whether it is enabled.
    pub enabled: Option<bool>,
    /// Environment variables for it.
    pub env: BTreeMap<String, String>,
    /// Its own settings.
    pub config: Map<String, Value>,
    /// Whether it is a guard.
    pub guard: Guard,
    /// Error if the entry refers to an environment variable that is not set.
    pub fault: Option<String>,
}

/// Omits values, which may be secrets.
impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (env, config) = (self.env.keys().collect::<Vec<_>>(), self.config.keys().collect::<Vec<_>>());
        f.debug_struct("Entry").field("enabled", &self.enabled).field("env", &env).field("config", &config).finish()
    }
}

/// Decision about a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Why it is disabled; `None` if it is enabled.
    pub off: Option<Off>,
    /// Missing requirements.
    pub missing: Missing,
}

/// Why a hook is disabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Off {
    /// `hooks.internal.enabled` is false.
    All,
    /// Its entry disables it.
    Entry,
    /// Hooks are not enabled in the config.
    Silence,
    /// It is a workspace hook that is not enabled individually.
    Workspace,
    /// It is disabled by default.
    Author,
}

impl Off {
    /// Returns the reason as reported to clients.
    pub fn word(self) -> &'static str {
        match self {
            Self::All => "internal hooks disabled",
            Self::Entry => "disabled in config",
            Self::Silence => "not enabled in config",
            Self::Workspace => "workspace hook (disabled by default)",
            Self::Author => "disabled by default",
        }
    }
}

impl Verdict {
    /// Returns true if it is enabled and has all requirements.
    pub fn takes_part(&self) -> bool {
        self.off.is_none() && self.has_all()
    }

    /// Returns true if all requirements are met.
    pub fn has_all(&self) -> bool {
        self.missing == Missing::default()
    }
}

/// Decides about a hook.
pub fn judge(hook: &Hook, host: &Host, rules: &Rules) -> Verdict {
    let entry = rules.entries.get(&hook.key);
    let off = match (rules.enabled, entry.and_then(|entry| entry.enabled)) {
        (Some(false), _) => Some(Off::All),
        (_, Some(false)) => Some(Off::Entry),
        (Some(true) | None, Some(true)) => None,
        (None, None) => Some(Off::Silence),
        (Some(true), None) if hook.source == Source::Workspace => Some(Off::Workspace),
        (Some(true), None) => hook.is_off_at_first.then_some(Off::Author),
    };
    let given = entry.map(|entry| homard_skills::Entry {
        env: entry.env.clone(),
        fault: entry.fault.clone(),
        ..homard_skills::Entry::default()
    });
    let Hook { os, always, requires, .. } = hook;
    let needs = Needs { os, always: *always, requires, primary_env: None };
    let mut missing = missing(&needs, host, given.as_ref());
    if host.config["workspace"]["dir"].is_null() {
        missing.requires.config.retain(|path| path != WORKSPACE);
    }
    Verdict { off, missing }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::internal::bundled::Bundled;

    fn hook(source: Source) -> Hook {
        Hook { source, key: "tide".to_owned(), ..Bundled::SessionMemory.hook() }
    }

    fn off(enabled: Option<bool>, entry: Option<bool>, hook: &Hook) -> Option<Off> {
        let entries = entry.map(|enabled| ("tide".to_owned(), Entry { enabled: Some(enabled), ..Entry::default() }));
        judge(hook, &Host::default(), &Rules { enabled, entries: entries.into_iter().collect() }).off
    }

    #[test]
    fn nothing_is_on_unless_somebody_says_so() {
        let hook = hook(Source::Managed);
        for (enabled, entry, expected) in [
            (None, None, Some(Off::Silence)),
            (None, Some(true), None),
            (None, Some(false), Some(Off::Entry)),
            (Some(true), None, None),
            (Some(true), Some(true), None),
            (Some(true), Some(false), Some(Off::Entry)),
            (Some(false), None, Some(Off::All)),
            (Some(false), Some(true), Some(Off::All)),
        ] {
            assert_eq!(off(enabled, entry, &hook), expected, "{enabled:?} {entry:?}");
        }
    }

    #[test]
    fn a_workspaces_hook_needs_a_word_of_its_own_and_so_does_one_whose_author_says_so() {
        let theirs = hook(Source::Workspace);
        assert_eq!(
            [off(Some(true), None, &theirs), off(Some(true), Some(true), &theirs)],
            [Some(Off::Workspace), None]
        );
        let shy = Hook { is_off_at_first: true, ..hook(Source::Extra) };
        assert_eq!([off(Some(true), None, &shy), off(Some(true), Some(true), &shy)], [Some(Off::Author), None]);
    }

    #[test]
    fn a_hook_whose_entry_needs_a_variable_that_is_not_set_takes_no_part() {
        let fault = Some("hooks.internal.entries.tide.env.K needs the environment variable K".to_owned());
        let entry = Entry { enabled: Some(true), fault: fault.clone(), ..Entry::default() };
        let rules = Rules { enabled: None, entries: [("tide".to_owned(), entry)].into() };
        let verdict = judge(&hook(Source::Managed), &Host::default(), &rules);
        assert_eq!((verdict.off, verdict.takes_part(), &verdict.missing.fault), (None, false, &fault));
    }

    #[test]
    fn there_is_a_workspace_unless_the_config_says_otherwise_and_an_entry_gives_variables() {
        let mut hook = hook(Source::Managed);
        hook.requires.env = vec!["TIDE".to_owned()];
        let entry = Entry { env: [("TIDE".to_owned(), "high".to_owned())].into(), ..Entry::default() };
        let rules = Rules { enabled: Some(true), entries: [("tide".to_owned(), entry)].into() };
        assert!(judge(&hook, &Host::default(), &rules).takes_part());
        assert_eq!(judge(&hook, &Host::default(), &Rules::default()).missing.requires.env, ["TIDE"]);
        let host = Host { config: json!({"workspace": {"dir": false}}), ..Host::default() };
        assert_eq!(judge(&hook, &host, &rules).missing.requires.config, ["workspace.dir"]);
        assert!(!format!("{rules:?}").contains("high"));
    }
}
