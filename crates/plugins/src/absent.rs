//! Guards that were installed and do not stand: the plugin is gone, is broken, or is not what it was. What they guard does
//! not happen until the owner has decided.

use async_trait::async_trait;
use homard_hooks::{Answer, Context, Event, Hook, HookError, Point, Registration};

use crate::{enable::is_wanted, settings::Settings};

/// A guard that was installed. It stands in for its plugin where that does not stand, and always fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AbsentGuard {
    plugin: String,
    point: Point,
    way_out: String,
}

impl AbsentGuard {
    /// Whether its plugin stands there itself.
    pub(crate) fn is_needless(&self, hook: &dyn Hook) -> bool {
        let stands = |one: &Registration| one.is_guard && one.point == self.point;
        hook.name() == self.plugin && hook.registrations().iter().any(stands)
    }
}

/// The guards of all plugins that the owner wants on, as they were installed.
pub(crate) fn installed_guards(settings: &Settings) -> Vec<AbsentGuard> {
    let mut all = Vec::new();
    for (plugin, install) in settings.installs.iter().filter(|(id, _)| is_wanted(id, settings)) {
        let hooks = &settings.entry(plugin).hooks;
        let is_entered = settings.entries.contains_key(plugin);
        let way_out = match is_entered {
            true => format!("homard plugins disable {plugin}"),
            false => format!("set plugins.entries.{plugin}.enabled to false"),
        };
        for point in install.guard.iter().filter(|name| hooks.lets_in(name)).filter_map(|name| Point::named(name)) {
            all.push(AbsentGuard { plugin: plugin.clone(), point, way_out: way_out.clone() });
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
        vec![Registration::at(self.point).guard()]
    }

    async fn call(&self, _: Event, _: Context) -> Result<Answer, HookError> {
        let Self { plugin, point, way_out } = self;
        let point = point.name();
        Err(HookError::Gone(format!(
            "the plugin {plugin} was installed as a guard of {point} and does not stand there now; see why with: \
             homard plugins doctor; install it again, or do without it: {way_out}"
        )))
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
            installed_guards(&settings).into_iter().map(|one| one.point.name()).collect::<Vec<_>>()
        };
        let both = ["before_tool_call", "before_prompt_build"];
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
}
