//! Missing guards: guards that the owner expects and that are not registered, because the plugin is missing, broken or
//! changed. The guarded operations are blocked until the owner decides.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use async_trait::async_trait;
use homard_hooks::{
    GUARDED_EVENT, Hook, HookContext, HookError, HookEvent, HookPoint, HookResult, InternalEvent, Listener,
    ListenerResult, Registration,
};

use crate::{
    enable::is_wanted,
    internal::guard::is_guarded,
    plugins::Extensions,
    settings::{GuardPolicy, Settings},
};

/// An expected guard. It replaces its plugin while that is not registered, and always fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MissingGuard {
    plugin: String,
    target: GuardTarget,
    /// True if the owner wants everything the plugin registers to be a guard: once the registrations are known, nothing
    /// is missing.
    only_until_known: bool,
    advice: String,
}

/// Operation that a guard may block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum GuardTarget {
    Point(HookPoint),
    /// The internal event [`GUARDED_EVENT`]: the bootstrap files of a prompt were read.
    Bootstrap,
}

impl GuardTarget {
    fn name(self) -> &'static str {
        match self {
            Self::Point(point) => point.name(),
            Self::Bootstrap => GUARDED_EVENT,
        }
    }
}

/// The events that a replacement subscribes to.
static EVENTS: LazyLock<[String; 1]> = LazyLock::new(|| [GUARDED_EVENT.to_owned()]);

impl MissingGuard {
    pub(crate) fn plugin(&self) -> &str {
        &self.plugin
    }

    /// True if it is not needed: its plugin has registered the guard itself, or it applies only until the plugin's
    /// registrations are known and they are (`is_known`).
    pub(crate) fn is_unneeded(&self, is_known: bool, all: &Extensions) -> bool {
        let is_registered = match self.target {
            GuardTarget::Point(point) => all.hooks.iter().any(|hook| {
                let guards_point = |registration: &Registration| registration.is_guard && registration.point == point;
                hook.name() == self.plugin && hook.registrations().iter().any(guards_point)
            }),
            GuardTarget::Bootstrap => all.listeners.iter().any(|listener| {
                let subscribes = listener.events().iter().any(|event| is_guarded(event));
                listener.name() == self.plugin && subscribes && listener.is_guard(GUARDED_EVENT)
            }),
        };
        is_registered || (self.only_until_known && is_known)
    }

    /// Registers this failing guard with the hooks or listeners.
    pub(crate) fn add_to(&self, all: &mut Extensions) {
        let guard = Arc::new(self.clone());
        match self.target {
            GuardTarget::Point(_) => all.hooks.push(guard),
            GuardTarget::Bootstrap => all.listeners.push(guard),
        }
    }

    fn failure(&self) -> HookError {
        let Self { plugin, target, advice, .. } = self;
        let target = target.name();
        HookError::Unavailable(format!(
            "the plugin {plugin} is a guard of {target} and is not active; find the cause with: homard plugins doctor; \
             reinstall the plugin, or disable it: {advice}"
        ))
    }
}

/// Returns the guards of all plugins that the owner has enabled: those recorded at installation and those declared in
/// their entries.
pub(crate) fn expected_guards(settings: &Settings) -> Vec<MissingGuard> {
    let mut missing = Vec::new();
    let ids = settings.installs.keys().chain(settings.entries.keys());
    let ids: std::collections::BTreeSet<&String> = ids.filter(|id| is_wanted(id, settings)).collect();
    for plugin in ids {
        let entry = settings.entry(plugin);
        let has_entry = settings.entries.contains_key(plugin);
        let advice = match has_entry {
            true => format!("homard plugins disable {plugin}"),
            false => format!("set plugins.entries.{plugin}.enabled to false"),
        };
        let installed = settings.installs.get(plugin).into_iter().flat_map(|install| &install.guard);
        let installed = installed.filter_map(|name| HookPoint::named(name)).map(GuardTarget::Point);
        let mut targets: BTreeMap<GuardTarget, bool> = BTreeMap::new();
        // With `guard: true` the entry names no hooks; which ones are guards is known once the plugin has registered
        // them.
        let is_unnamed = matches!(entry.guard, GuardPolicy::All(_));
        let bootstrap = entry.guard.covers(GUARDED_EVENT).then_some(GuardTarget::Bootstrap);
        for target in entry.guard.points().into_iter().map(GuardTarget::Point).chain(bootstrap) {
            targets.insert(target, is_unnamed);
        }
        targets.extend(installed.map(|target| (target, false)));
        let is_allowed = |target: &GuardTarget| entry.hooks.allows(target.name());
        for (target, only_until_known) in targets.into_iter().filter(|(target, _)| is_allowed(target)) {
            let (plugin, advice) = (plugin.clone(), advice.clone());
            missing.push(MissingGuard { plugin, target, only_until_known, advice });
        }
    }
    missing
}

#[async_trait]
impl Hook for MissingGuard {
    fn name(&self) -> &str {
        &self.plugin
    }

    fn registrations(&self) -> Vec<Registration> {
        match self.target {
            GuardTarget::Point(point) => vec![Registration::at(point).guard()],
            GuardTarget::Bootstrap => Vec::new(),
        }
    }

    async fn call(&self, _: HookEvent, _: HookContext) -> Result<HookResult, HookError> {
        Err(self.failure())
    }
}

#[async_trait]
impl Listener for MissingGuard {
    fn name(&self) -> &str {
        &self.plugin
    }

    fn events(&self) -> &[String] {
        &*EVENTS
    }

    fn is_guard(&self, event: &str) -> bool {
        event == GUARDED_EVENT
    }

    async fn handle(&self, _: &InternalEvent) -> Result<ListenerResult, HookError> {
        Err(self.failure())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn guards_are_expected_only_of_enabled_plugins() {
        let guard = json!({"mine": {"guard": ["before_tool_call", "no_such", "before_prompt_build"]}});
        let guarded = |value: serde_json::Value| {
            let mut settings: Settings = serde_json::from_value(value).unwrap();
            settings.installs = serde_json::from_value(guard.clone()).unwrap();
            expected_guards(&settings).into_iter().map(|missing| missing.target.name()).collect::<Vec<_>>()
        };
        let both = ["before_prompt_build", "before_tool_call"];
        assert_eq!(guarded(json!({"entries": {"mine": {"enabled": true}}})), both);
        assert_eq!(guarded(json!({"allow": ["mine"]})), both);
        assert_eq!(guarded(json!({"slots": {"memory": "mine"}})), both);
        let without_prompt_injection =
            json!({"entries": {"mine": {"enabled": true, "hooks": {"allowPromptInjection": false}}}});
        assert_eq!(guarded(without_prompt_injection), ["before_tool_call"]);
        for disabled in [
            json!({}),
            json!({"entries": {"mine": {"enabled": false}}, "allow": ["mine"]}),
            json!({"entries": {"mine": {"enabled": true}}, "deny": ["mine"]}),
            json!({"entries": {"mine": {"enabled": true}}, "allow": ["other"]}),
            json!({"entries": {"mine": {"enabled": true}}, "enabled": false}),
        ] {
            assert_eq!(guarded(disabled.clone()), Vec::<&str>::new(), "{disabled}");
        }
    }
    #[test]
    fn an_entry_declares_guards_by_name_or_for_all_points() {
        let guarded = |guard: serde_json::Value| {
            let value = json!({"entries": {"mine": {"enabled": true, "guard": guard}}});
            let settings: Settings = serde_json::from_value(value).unwrap();
            let describe = |missing: MissingGuard| (missing.target.name(), missing.only_until_known);
            expected_guards(&settings).into_iter().map(describe).collect::<Vec<_>>()
        };
        assert!(guarded(json!(false)).is_empty());
        let named = guarded(json!(["agent:bootstrap", "tool_result_persist", "llm_input"]));
        assert_eq!(named, [("tool_result_persist", false), ("agent:bootstrap", false)]);
        let all = guarded(json!(true));
        assert!(all.len() == 10 && all.iter().all(|(_, only_until_known)| *only_until_known), "{all:?}");
    }
}
