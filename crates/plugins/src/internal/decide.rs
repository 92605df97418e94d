//! Decides which internal hooks are active: enabled by the owner, and with all requirements met.

use std::collections::BTreeMap;

use homard_workspace::skills::{HostEnvironment, MissingRequirements, Requirements, missing};
use serde_json::{Map, Value};

use super::hook_md::{HookSource, InternalHook};
use crate::settings::GuardPolicy;

/// Config path that counts as set even if the config omits it: there always is a workspace.
const WORKSPACE: &str = "workspace.dir";

/// The owner's settings for hooks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HookRules {
    /// `hooks.internal.enabled`.
    pub enabled: Option<bool>,
    /// `hooks.internal.entries`, by key.
    pub entries: BTreeMap<String, HookEntry>,
}

/// The owner's settings for one hook.
#[derive(Clone, Default, PartialEq)]
pub struct HookEntry {
    /// Whether it is enabled.
    pub enabled: Option<bool>,
    /// Environment variables for it.
    pub env: BTreeMap<String, String>,
    /// Its own settings.
    pub config: Map<String, Value>,
    /// Whether it is a guard.
    pub guard: GuardPolicy,
    /// Error if the entry refers to an environment variable that is not set.
    pub fault: Option<String>,
}

/// Omits values, which may be secrets.
impl std::fmt::Debug for HookEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (env, config) = (self.env.keys().collect::<Vec<_>>(), self.config.keys().collect::<Vec<_>>());
        f.debug_struct("HookEntry").field("enabled", &self.enabled).field("env", &env).field("config", &config).finish()
    }
}

/// Decision about a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookDecisionState {
    /// Why it is disabled; `None` if it is enabled.
    pub disabled: Option<DisabledReason>,
    /// Missing requirements.
    pub missing: MissingRequirements,
}

/// Why a hook is disabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DisabledReason {
    /// `hooks.internal.enabled` is false.
    All,
    /// Its entry disables it.
    Entry,
    /// Hooks are not enabled in the config.
    NotEnabled,
    /// It is a workspace hook that is not enabled individually.
    Workspace,
    /// It is disabled by default.
    ByDefault,
}

impl DisabledReason {
    /// Returns the reason as reported to clients.
    pub fn message(self) -> &'static str {
        match self {
            Self::All => "internal hooks disabled",
            Self::Entry => "disabled in config",
            Self::NotEnabled => "not enabled in config",
            Self::Workspace => "workspace hook (disabled by default)",
            Self::ByDefault => "disabled by default",
        }
    }
}

impl HookDecisionState {
    /// Returns true if it is enabled and has all requirements.
    pub fn is_active(&self) -> bool {
        self.disabled.is_none() && self.has_requirements()
    }

    /// Returns true if all requirements are met.
    pub fn has_requirements(&self) -> bool {
        self.missing == MissingRequirements::default()
    }
}

/// Decides about a hook.
pub fn decide(hook: &InternalHook, host: &HostEnvironment, rules: &HookRules) -> HookDecisionState {
    let entry = rules.entries.get(&hook.key);
    let disabled = match (rules.enabled, entry.and_then(|entry| entry.enabled)) {
        (Some(false), _) => Some(DisabledReason::All),
        (_, Some(false)) => Some(DisabledReason::Entry),
        (Some(true) | None, Some(true)) => None,
        (None, None) => Some(DisabledReason::NotEnabled),
        (Some(true), None) if hook.source == HookSource::Workspace => Some(DisabledReason::Workspace),
        (Some(true), None) => hook.is_disabled_by_default.then_some(DisabledReason::ByDefault),
    };
    let skill_entry = entry.map(|entry| homard_workspace::skills::SkillEntry {
        env: entry.env.clone(),
        fault: entry.fault.clone(),
        ..homard_workspace::skills::SkillEntry::default()
    });
    let InternalHook { os, always, requires, .. } = hook;
    let requirements = Requirements { os, always: *always, requires, primary_env: None };
    let mut missing = missing(&requirements, host, skill_entry.as_ref());
    // An agent always has a workspace, so this path counts as set.
    if host.config["workspace"]["dir"].is_null() {
        missing.requires.config.retain(|path| path != WORKSPACE);
    }
    HookDecisionState { disabled, missing }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::internal::bundled::BundledHook;

    fn hook(source: HookSource) -> InternalHook {
        InternalHook { source, key: "tide".to_owned(), ..BundledHook::SessionMemory.hook() }
    }

    fn off(enabled: Option<bool>, entry: Option<bool>, hook: &InternalHook) -> Option<DisabledReason> {
        let entries =
            entry.map(|enabled| ("tide".to_owned(), HookEntry { enabled: Some(enabled), ..HookEntry::default() }));
        decide(hook, &HostEnvironment::default(), &HookRules { enabled, entries: entries.into_iter().collect() })
            .disabled
    }

    #[test]
    fn no_hook_is_enabled_by_default() {
        let hook = hook(HookSource::Managed);
        for (enabled, entry, expected) in [
            (None, None, Some(DisabledReason::NotEnabled)),
            (None, Some(true), None),
            (None, Some(false), Some(DisabledReason::Entry)),
            (Some(true), None, None),
            (Some(true), Some(true), None),
            (Some(true), Some(false), Some(DisabledReason::Entry)),
            (Some(false), None, Some(DisabledReason::All)),
            (Some(false), Some(true), Some(DisabledReason::All)),
        ] {
            assert_eq!(off(enabled, entry, &hook), expected, "{enabled:?} {entry:?}");
        }
    }

    #[test]
    fn workspace_hooks_and_hooks_disabled_by_default_need_an_entry() {
        let workspace_hook = hook(HookSource::Workspace);
        assert_eq!(
            [off(Some(true), None, &workspace_hook), off(Some(true), Some(true), &workspace_hook)],
            [Some(DisabledReason::Workspace), None]
        );
        let disabled_by_default = InternalHook { is_disabled_by_default: true, ..hook(HookSource::Extra) };
        assert_eq!(
            [off(Some(true), None, &disabled_by_default), off(Some(true), Some(true), &disabled_by_default)],
            [Some(DisabledReason::ByDefault), None]
        );
    }

    #[test]
    fn a_hook_with_an_unset_variable_is_not_active() {
        let fault = Some("hooks.internal.entries.tide.env.K needs the environment variable K".to_owned());
        let entry = HookEntry { enabled: Some(true), fault: fault.clone(), ..HookEntry::default() };
        let rules = HookRules { enabled: None, entries: [("tide".to_owned(), entry)].into() };
        let verdict = decide(&hook(HookSource::Managed), &HostEnvironment::default(), &rules);
        assert_eq!((verdict.disabled, verdict.is_active(), &verdict.missing.fault), (None, false, &fault));
    }

    #[test]
    fn the_workspace_requirement_is_met_by_default_and_entries_provide_variables() {
        let mut hook = hook(HookSource::Managed);
        hook.requires.env = vec!["TIDE".to_owned()];
        let entry = HookEntry { env: [("TIDE".to_owned(), "high".to_owned())].into(), ..HookEntry::default() };
        let rules = HookRules { enabled: Some(true), entries: [("tide".to_owned(), entry)].into() };
        assert!(decide(&hook, &HostEnvironment::default(), &rules).is_active());
        assert_eq!(decide(&hook, &HostEnvironment::default(), &HookRules::default()).missing.requires.env, ["TIDE"]);
        let host = HostEnvironment { config: json!({"workspace": {"dir": false}}), ..HostEnvironment::default() };
        assert_eq!(decide(&hook, &host, &rules).missing.requires.config, ["workspace.dir"]);
        assert!(!format!("{rules:?}").contains("high"));
    }
}
