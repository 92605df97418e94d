//! Missing guards: guards that the owner expects and that are not registered, because the plugin is missing, broken or
//! changed. The guarded operations are blocked until the owner decides.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use async_trait::async_trait;
use homard_hooks::{Answer, Context, Event, GUARDED, Heard, Hook, HookError, Listener, Point, Registration, Signal};

use crate::{
    enable::is_wanted,
    internal::guard::is_guarded,
    plugins::Extensions,
    settings::{Guard, Settings},
};

/// An expected guard. It replaces its plugin while that is not registered, and always fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AbsentGuard {
    plugin: String,
    place: GuardPlace,
    /// True if the owner wants everything the plugin registers to be a guard: once the registrations are known, nothing
    /// is missing.
    only_until_known: bool,
    way_out: String,
}

/// What is guarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum GuardPlace {
    Point(Point),
    /// The bootstrap files of a prompt: [`GUARDED`].
    Bootstrap,
}

impl GuardPlace {
    fn name(self) -> &'static str {
        match self {
            Self::Point(point) => point.name(),
            Self::Bootstrap => GUARDED,
        }
    }
}

/// The events that a replacement subscribes to.
static EVENTS: LazyLock<[String; 1]> = LazyLock::new(|| [GUARDED.to_owned()]);

impl AbsentGuard {
    pub(crate) fn plugin(&self) -> &str {
        &self.plugin
    }

    /// True if it is not needed: its plugin has registered the guard itself, or it applies only until the plugin's
    /// registrations are known and they are (`is_known`).
    pub(crate) fn is_needless(&self, is_known: bool, all: &Extensions) -> bool {
        let stands = match self.place {
            GuardPlace::Point(point) => all.hooks.iter().any(|hook| {
                let is_here = |one: &Registration| one.is_guard && one.point == point;
                hook.name() == self.plugin && hook.registrations().iter().any(is_here)
            }),
            GuardPlace::Bootstrap => all.listeners.iter().any(|listener| {
                let listens = listener.events().iter().any(|event| is_guarded(event));
                listener.name() == self.plugin && listens && listener.is_guard(GUARDED)
            }),
        };
        stands || (self.only_until_known && is_known)
    }

    /// Adds it to the extensions.
    pub(crate) fn stand_in(&self, all: &mut Extensions) {
        let guard = Arc::new(self.clone());
        match self.place {
            GuardPlace::Point(_) => all.hooks.push(guard),
            GuardPlace::Bootstrap => all.listeners.push(guard),
        }
    }

    fn failure(&self) -> HookError {
        let Self { plugin, place, way_out, .. } = self;
        let place = place.name();
        HookError::Gone(format!(
            "the plugin {plugin} is a guard of {place} and does not stand there now; see why with: \
             homard plugins doctor; install it again, or do without it: {way_out}"
        ))
    }
}

/// Returns the guards of all plugins that the owner has enabled: those recorded at installation and those declared in
/// their entries.
pub(crate) fn expected_guards(settings: &Settings) -> Vec<AbsentGuard> {
    let mut all = Vec::new();
    let ids = settings.installs.keys().chain(settings.entries.keys());
    let ids: std::collections::BTreeSet<&String> = ids.filter(|id| is_wanted(id, settings)).collect();
    for plugin in ids {
        let entry = settings.entry(plugin);
        let is_entered = settings.entries.contains_key(plugin);
        let way_out = match is_entered {
            true => format!("homard plugins disable {plugin}"),
            false => format!("set plugins.entries.{plugin}.enabled to false"),
        };
        let installed = settings.installs.get(plugin).into_iter().flat_map(|install| &install.guard);
        let installed = installed.filter_map(|name| Point::named(name)).map(GuardPlace::Point);
        let mut places: BTreeMap<GuardPlace, bool> = BTreeMap::new();
        let is_open = matches!(entry.guard, Guard::All(_));
        let bootstrap = entry.guard.covers(GUARDED).then_some(GuardPlace::Bootstrap);
        for place in entry.guard.points().into_iter().map(GuardPlace::Point).chain(bootstrap) {
            places.insert(place, is_open);
        }
        places.extend(installed.map(|place| (place, false)));
        let lets_in = |place: &GuardPlace| entry.hooks.lets_in(place.name());
        for (place, only_until_known) in places.into_iter().filter(|(place, _)| lets_in(place)) {
            let (plugin, way_out) = (plugin.clone(), way_out.clone());
            all.push(AbsentGuard { plugin, place, only_until_known, way_out });
        }
    }
    all
}

#[async_trait]
impl Hook for AbsentGuard {
    fn name(&self) -> &str {
        &self.plugin
    }

    fn registrations(&self) -> Vec<Registration> {
        match self.place {
            GuardPlace::Point(point) => vec![Registration::at(point).guard()],
            GuardPlace::Bootstrap => Vec::new(),
        }
    }

    async fn call(&self, _: Event, _: Context) -> Result<Answer, HookError> {
        Err(self.failure())
    }
}

#[async_trait]
impl Listener for AbsentGuard {
    fn name(&self) -> &str {
        &self.plugin
    }

    fn events(&self) -> &[String] {
        &*EVENTS
    }

    fn is_guard(&self, event: &str) -> bool {
        event == GUARDED
    }

    async fn hear(&self, _: &Signal) -> Result<Heard, HookError> {
        Err(self.failure())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_the_owner_wants_on_is_guarded() {
        let guard = json!({"mine": {"guard": ["before_tool_call", "no_such", "before_prompt_build"]}});
        let guarded = |said: serde_json::Value| {
            let mut settings: Settings = serde_json::from_value(said).unwrap();
            settings.installs = serde_json::from_value(guard.clone()).unwrap();
            expected_guards(&settings).into_iter().map(|one| one.place.name()).collect::<Vec<_>>()
        };
        let both = ["before_prompt_build", "before_tool_call"];
        assert_eq!(guarded(json!({"entries": {"mine": {"enabled": true}}})), both);
        assert_eq!(guarded(json!({"allow": ["mine"]})), both);
        assert_eq!(guarded(json!({"slots": {"memory": "mine"}})), both);
        let without_words = json!({"entries": {"mine": {"enabled": true, "hooks": {"allowPromptInjection": false}}}});
        assert_eq!(guarded(without_words), ["before_tool_call"]);
        for off in [
            json!({}),
            json!({"entries": {"mine": {"enabled": false}}, "allow": ["mine"]}),
            json!({"entries": {"mine": {"enabled": true}}, "deny": ["mine"]}),
            json!({"entries": {"mine": {"enabled": true}}, "allow": ["other"]}),
            json!({"entries": {"mine": {"enabled": true}}, "enabled": false}),
        ] {
            assert_eq!(guarded(off.clone()), Vec::<&str>::new(), "{off}");
        }
    }
    #[test]
    fn an_entry_declares_guards_by_name_or_whatever_there_is() {
        let guarded = |guard: serde_json::Value| {
            let said = json!({"entries": {"mine": {"enabled": true, "guard": guard}}});
            let settings: Settings = serde_json::from_value(said).unwrap();
            let of = |one: AbsentGuard| (one.place.name(), one.only_until_known);
            expected_guards(&settings).into_iter().map(of).collect::<Vec<_>>()
        };
        assert!(guarded(json!(false)).is_empty());
        let some = guarded(json!(["agent:bootstrap", "tool_result_persist", "llm_input"]));
        assert_eq!(some, [("tool_result_persist", false), ("agent:bootstrap", false)]);
        let all = guarded(json!(true));
        assert!(all.len() == 10 && all.iter().all(|(_, only_until_known)| *only_until_known), "{all:?}");
    }
}
