//! What OpenClaw calls internal hooks: directories with a `HOOK.md` and a handler for events of commands, sessions,
//! messages, bootstrap files and the gateway.
//!
//! Start with [`InternalHook`] (the parsed file), then [`discover`] (finding them), [`decide`] (which are active) and
//! [`listeners`] (building them). A handler is a program (`exec`), a script that Node runs (`scripts`), or bundled
//! ([`bundled`]). Nothing here reads the environment or the config file.

mod hook_md;

mod decide;
mod discover;

pub mod bundled;
mod exec;
pub(crate) mod guard;
mod scripts;

mod install;
mod status;

use std::{collections::BTreeSet, path::PathBuf, sync::Arc, time::Duration};

use homard_hooks::{DEADLINE, Listener};
use homard_workspace::skills::{HostEnvironment, MissingRequirements, ProblemLevel, SkillProblem, SkillRequirements};

pub use bundled::{BundledServices, TextFunction, WriteFile};
pub use decide::{DisabledReason, HookDecisionState, HookEntry, HookRules, decide};
pub use discover::{DiscoveredHooks, HookRoots, discover};
pub use guard::guard_problem;
pub use hook_md::{HookHandler, HookSource, InternalHook};
pub use install::{InstallError, InstalledHook, ReplacePolicy, fingerprint, inspect, install};
pub use scripts::{LoadedScript, Script, ScriptRunner};
pub use status::report;

use exec::ProgramListener;
use guard::{GuardListener, MissingHookGuard};
use scripts::ScriptListener;

/// Deadline of a script, which includes starting Node.
const SCRIPT_DEADLINE: Duration = Duration::from_secs(15);

/// Settings of internal hooks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    /// Locations of hooks.
    pub roots: HookRoots,
    /// The owner's settings.
    pub rules: HookRules,
    /// Properties of the machine.
    pub host: HostEnvironment,
    /// State directory.
    pub state: PathBuf,
    /// Workspace of the default agent, used if an event names none.
    pub workspace: PathBuf,
}

/// Returns the active listeners ordered by name, followed by replacements for missing guards, and the problems found.
/// Blocks.
///
/// Nothing is started yet: programs are started for every event, and Node for the first one.
pub fn listeners(
    settings: &Settings,
    scripts: Option<&Arc<dyn ScriptRunner>>,
    services: &BundledServices,
) -> (Vec<Arc<dyn Listener>>, Vec<SkillProblem>) {
    let DiscoveredHooks { hooks, mut problems } = discover(&settings.roots);
    let mut listeners: Vec<Arc<dyn Listener>> = Vec::new();
    let mut missing_guards: BTreeSet<&String> = guard::expected_guards(&settings.rules).collect();
    for hook in hooks {
        let decision = decide(&hook, &settings.host, &settings.rules);
        let warning = |message: String| SkillProblem { path: hook.file.clone(), message, level: ProblemLevel::Warning };
        if !decision.is_active() {
            // Missing requirements of a disabled hook are not reported.
            if decision.disabled.is_none() {
                problems.push(warning(format!(
                    "is an enabled hook that cannot run: {}",
                    describe_missing(&decision.missing)
                )));
            }
            continue;
        }
        let entry = settings.rules.entries.get(&hook.key).cloned().unwrap_or_default();
        problems.extend(guard_problem(&hook, &settings.rules));
        let guard = entry.guard.clone();
        let listener: Arc<dyn Listener> = match &hook.handler {
            HookHandler::Bundled(bundled) => bundled.listener(settings, &entry, services),
            HookHandler::Program(path) => Arc::new(ProgramListener::new(&hook, path, &entry, &settings.host)),
            HookHandler::Script { path, export } => match scripts {
                Some(scripts) => {
                    let script = Script {
                        name: hook.name.clone(),
                        path: path.clone(),
                        export: export.clone(),
                        events: hook.events.clone(),
                        env: entry.env,
                    };
                    let deadline = hook.deadline.unwrap_or(SCRIPT_DEADLINE);
                    Arc::new(ScriptListener::new(script, scripts.clone(), deadline))
                }
                None => {
                    let message = "is an enabled hook whose script cannot run; it needs Node 22 or newer";
                    problems.push(warning(message.to_owned()));
                    continue;
                }
            },
        };
        missing_guards.remove(&hook.key);
        listeners.push(if guard.is_set() { Arc::new(GuardListener { hook: listener, guard }) } else { listener });
    }
    listeners.extend(missing_guards.into_iter().map(|key| Arc::new(MissingHookGuard::new(key)) as Arc<dyn Listener>));
    (listeners, problems)
}

/// Describes missing requirements.
pub fn describe_missing(missing: &MissingRequirements) -> String {
    let MissingRequirements { os, requires: SkillRequirements { bins, any_bins, env, config }, fault } = missing;
    if !os.is_empty() {
        return format!("it works on {} only", os.join(" or "));
    }
    if let Some(fault) = fault {
        return fault.clone();
    }
    let any = (!any_bins.is_empty()).then(|| any_bins.join(" or "));
    let requirements: Vec<_> = bins.iter().chain(any.as_ref()).chain(env).chain(config).map(String::as_str).collect();
    format!("it needs {}", requirements.join(", "))
}

/// Deadline of a program.
fn deadline(hook: &InternalHook) -> Duration {
    hook.deadline.unwrap_or(DEADLINE)
}

#[cfg(test)]
mod tests;
