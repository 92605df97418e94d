//! Internal hooks that the owner declares guards, and replacements for those that are unavailable.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use homard_hooks::{GUARDED_EVENT, HookError, InternalEvent, Listener, ListenerResult};
use homard_workspace::skills::{ProblemLevel, SkillProblem};

use super::{
    decide::{HookEntry, HookRules},
    hook_md::InternalHook,
};
use crate::settings::GuardPolicy;

/// A hook that the owner declares a guard. All calls are passed to the hook, except that the policy determines for
/// which events it is a guard: such an event is blocked if the hook fails.
pub(super) struct GuardListener {
    pub(super) hook: Arc<dyn Listener>,
    pub(super) guard: GuardPolicy,
}

#[async_trait]
impl Listener for GuardListener {
    fn name(&self) -> &str {
        self.hook.name()
    }

    fn events(&self) -> &[String] {
        self.hook.events()
    }

    fn deadline(&self) -> Duration {
        self.hook.deadline()
    }

    fn is_guard(&self, event: &str) -> bool {
        self.guard.covers(event)
    }

    async fn handle(&self, event: &InternalEvent) -> Result<ListenerResult, HookError> {
        self.hook.handle(event).await
    }
}

/// Replacement for a hook that is declared a guard and unavailable: missing, broken, or without its requirements. It
/// always fails, so that the guarded operation is blocked.
pub(super) struct MissingHookGuard {
    key: String,
    events: [String; 1],
}

impl MissingHookGuard {
    pub(super) fn new(key: &str) -> Self {
        Self { key: key.to_owned(), events: [GUARDED_EVENT.to_owned()] }
    }
}

#[async_trait]
impl Listener for MissingHookGuard {
    fn name(&self) -> &str {
        &self.key
    }

    fn events(&self) -> &[String] {
        &self.events
    }

    fn is_guard(&self, event: &str) -> bool {
        event == GUARDED_EVENT
    }

    async fn handle(&self, _: &InternalEvent) -> Result<ListenerResult, HookError> {
        let key = &self.key;
        Err(HookError::Unavailable(format!(
            "the hook {key} is declared a guard of {GUARDED_EVENT} but cannot run; find the cause with: homard hooks check; \
             or disable it with: homard hooks disable {key}"
        )))
    }
}

/// Returns the keys of the enabled hooks that the owner declares guards of [`GUARDED_EVENT`].
pub(super) fn expected_guards(rules: &HookRules) -> impl Iterator<Item = &String> {
    let is_on = |entry: &HookEntry| match (rules.enabled, entry.enabled) {
        (Some(false), _) | (_, Some(false)) | (None, None) => false,
        (Some(true) | None, Some(true)) | (Some(true), None) => true,
    };
    rules.entries.iter().filter(move |(_, entry)| entry.guard.covers(GUARDED_EVENT) && is_on(entry)).map(|(key, _)| key)
}

/// Returns a problem with the guard declaration of a hook, if there is one.
pub fn guard_problem(hook: &InternalHook, rules: &HookRules) -> Option<SkillProblem> {
    let guard = &rules.entries.get(&hook.key)?.guard;
    let at = format!("hooks.internal.entries.{}.guard", hook.key);
    let message = match guard {
        GuardPolicy::At(names) if names.iter().any(|name| name != GUARDED_EVENT) => {
            format!("{at} can only list {GUARDED_EVENT:?}: other events cannot be blocked")
        }
        guard if guard.is_set() && !hook.events.iter().any(|event| is_guarded(event)) => {
            format!("{at} has no effect: the hook does not listen to {GUARDED_EVENT}")
        }
        GuardPolicy::All(_) | GuardPolicy::At(_) => return None,
    };
    Some(SkillProblem { path: hook.file.clone(), message, level: ProblemLevel::Warning })
}

/// True if a subscription to this event includes [`GUARDED_EVENT`].
pub(crate) fn is_guarded(event: &str) -> bool {
    event == GUARDED_EVENT || GUARDED_EVENT.split(':').next() == Some(event)
}
