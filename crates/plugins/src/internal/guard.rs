//! Internal hooks that the owner declares guards, and replacements for those that are unavailable.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use homard_hooks::{GUARDED, Heard, HookError, Listener, Signal};
use homard_skills::{Level, Problem};

use super::{
    hook_md::Hook,
    judge::{Entry, Rules},
};
use crate::settings::Guard;

/// A hook that is a guard.
pub(super) struct GuardListener {
    pub(super) hook: Arc<dyn Listener>,
    pub(super) guard: Guard,
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

    async fn hear(&self, signal: &Signal) -> Result<Heard, HookError> {
        self.hook.hear(signal).await
    }
}

/// Replacement for a hook that is declared a guard and unavailable: missing, broken, or without its requirements. It
/// always fails, so that the guarded operation is blocked.
pub(super) struct AbsentHook {
    key: String,
    events: [String; 1],
}

impl AbsentHook {
    pub(super) fn new(key: &str) -> Self {
        Self { key: key.to_owned(), events: [GUARDED.to_owned()] }
    }
}

#[async_trait]
impl Listener for AbsentHook {
    fn name(&self) -> &str {
        &self.key
    }

    fn events(&self) -> &[String] {
        &self.events
    }

    fn is_guard(&self, event: &str) -> bool {
        event == GUARDED
    }

    async fn hear(&self, _: &Signal) -> Result<Heard, HookError> {
        let key = &self.key;
        Err(HookError::Gone(format!(
            "the hook {key} is declared a guard of {GUARDED} and cannot take part; see why with: homard hooks check; \
             or do without it: homard hooks disable {key}"
        )))
    }
}

/// Returns the keys of the enabled hooks that the owner declares guards of [`GUARDED`].
pub(super) fn wanted(rules: &Rules) -> impl Iterator<Item = &String> {
    let is_on = |entry: &Entry| match (rules.enabled, entry.enabled) {
        (Some(false), _) | (_, Some(false)) | (None, None) => false,
        (Some(true) | None, Some(true)) | (Some(true), None) => true,
    };
    rules.entries.iter().filter(move |(_, entry)| entry.guard.covers(GUARDED) && is_on(entry)).map(|(key, _)| key)
}

/// Returns a problem with the guard declaration of a hook, if there is one.
pub fn guard_problem(hook: &Hook, rules: &Rules) -> Option<Problem> {
    let guard = &rules.entries.get(&hook.key)?.guard;
    let at = format!("hooks.internal.entries.{}.guard", hook.key);
    let what = match guard {
        Guard::At(names) if names.iter().any(|name| name != GUARDED) => {
            format!(
                "{at} can only list {GUARDED:?}: what the other events are about has happened, or cannot be refused"
            )
        }
        guard if guard.is_set() && !hook.events.iter().any(|event| is_guarded(event)) => {
            format!("{at} has no effect: the hook does not listen to {GUARDED}")
        }
        Guard::All(_) | Guard::At(_) => return None,
    };
    Some(Problem { path: hook.file.clone(), what, level: Level::Warning })
}

/// True if a subscription to this event includes [`GUARDED`].
pub(crate) fn is_guarded(event: &str) -> bool {
    event == GUARDED || GUARDED.split(':').next() == Some(event)
}
