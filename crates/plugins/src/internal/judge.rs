//! Which hooks take part: what the owner has switched on, and what the machine and the config have.

use std::collections::BTreeMap;

use homard_skills::{Host, Missing, Needs, missing};
use serde_json::{Map, Value};

use super::hook_md::{Hook, Source};
use crate::settings::Guard;

/// A path of the config that counts as set where the config is silent: there always is a workspace.
const WORKSPACE: &str = "workspace.dir";

/// What the owner says about hooks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rules {
    /// `hooks.internal.enabled`.
    pub enabled: Option<bool>,
    /// `hooks.internal.entries`, by key.
    pub entries: BTreeMap<String, Entry>,
}

/// What the owner says about one hook.
#[derive(Clone, Default, PartialEq)]
pub struct Entry {
    /// Whether it is on.
    pub enabled: Option<bool>,
    /// Variables for it.
    pub env: BTreeMap<String, String>,
    /// Its own settings.
    pub config: Map<String, Value>,
    /// Whether it is a guard.
    pub guard: Guard,
    /// Why what the entry gives cannot be given, if so: it refers to a variable that is not set.
    pub fault: Option<String>,
}

/// Shows no values: they may be secrets.
impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (env, config) = (self.env.keys().collect::<Vec<_>>(), self.config.keys().collect::<Vec<_>>());
        f.debug_struct("Entry").field("enabled", &self.enabled).field("env", &env).field("config", &config).finish()
    }
}

/// What becomes of a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Why it is off; it is on if there is no reason.
    pub off: Option<Off>,
    /// What it lacks.
    pub missing: Missing,
}

/// Why a hook is off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Off {
    /// `hooks.internal.enabled` is false.
    All,
    /// Its entry says so.
    Entry,
    /// Nobody has switched hooks on.
    Silence,
    /// It is a workspace's, and nobody has switched on just this one.
    Workspace,
    /// Its author wants it off until somebody switches it on.
    Author,
}

impl Off {
    /// What programs are told.
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
    /// Whether it takes part.
    pub fn takes_part(&self) -> bool {
        self.off.is_none() && self.has_all()
    }

    /// Whether it lacks nothing.
    pub fn has_all(&self) -> bool {
        self.missing == Missing::default()
    }
}

/// Judges a hook.
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
