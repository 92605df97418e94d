//! Config reload: watches files, applies changes that need no restart, and reports invalid configs.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use homard_agent::Hub;
use homard_config::{ConfigFault, LoadedConfig, Sections, diff, last_good};
use homard_gateway::{Audience, Broadcaster, Gateway, OperatorWarnings, Scope};
use homard_proto::Generation;
use homard_settings::{Chosen, Config, effect::Effect, paths::Paths};
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use crate::{App, factory::AgentFactory, file_watch::FileWatch};

/// How long files must be unchanged before a change is processed.
const DEBOUNCE: Duration = Duration::from_millis(250);

/// Maximum delay of a change if files never stop changing.
const MAX_DELAY: Duration = Duration::from_secs(2);

/// Interval of checks without a file event: a program that a skill needs may have been installed, and not every
/// filesystem reports events.
const POLL_INTERVAL: Duration = Duration::from_secs(60);

/// Topic of config warnings in the health report.
const TOPIC: &str = "config";

/// The config of a running gateway. Clones share their state.
#[derive(Clone)]
pub struct ConfigReloader {
    paths: Paths,
    hub: Hub,
    factory: AgentFactory,
    warnings: OperatorWarnings,
    broadcaster: Broadcaster,
    state: Arc<Mutex<State>>,
}

impl std::fmt::Debug for ConfigReloader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConfigReloader").field("paths", &self.paths).finish_non_exhaustive()
    }
}

struct State {
    /// The config in use.
    current: Arc<LoadedConfig<Config>>,
    /// Fingerprint of the config that was last read.
    fingerprint: String,
    /// Files that were read then, also by an invalid config, which may be corrected in any of them.
    files: Vec<PathBuf>,
    /// The config at start: changes to some of its keys need a restart.
    initial: Value,
    /// Why the config that was last read is not in use, if so.
    rejected: Option<String>,
    /// Keys whose changes need a restart.
    pending_restart: Vec<String>,
    /// Warnings about agents.
    warnings: Vec<String>,
}

impl State {
    /// Returns the warning for the health report.
    fn warning(&self) -> Option<String> {
        let pending = self.pending_restart.join(", ");
        let restart = (!self.pending_restart.is_empty())
            .then(|| format!("the config has changed; restart the gateway to apply {pending}"));
        let outages = homard_settings::outages(&self.current);
        let unsupported = homard_settings::unsupported_channels(&self.current.config);
        let texts = self.rejected.iter().chain(&restart).chain(&outages).chain(&unsupported).chain(&self.warnings);
        let texts: Vec<_> = texts.map(String::as_str).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }
}

/// Result of checking the config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReloadResult {
    /// It has not changed.
    Unchanged,
    /// It is in use: the keys that changed, and those of them that need a restart.
    Applied { changed: Vec<String>, waits: Vec<String> },
    /// It is invalid, with the reason; the previous one stays in use.
    Rejected(String),
}

impl ConfigReloader {
    /// Starts from the config that the gateway was started with.
    pub fn new(paths: &Paths, chosen: &Chosen, app: &App, gateway: &Gateway) -> Self {
        let (warnings, broadcaster) = (gateway.warnings(), gateway.broadcaster());
        let current = Arc::new(chosen.loaded.clone());
        let state = State {
            fingerprint: fingerprint(&current),
            files: current.files.clone(),
            initial: current.tree.clone(),
            rejected: homard_settings::last_good_warning(chosen, &paths.config),
            pending_restart: Vec::new(),
            warnings: app.warnings.clone(),
            current,
        };
        warnings.set(TOPIC, state.warning());
        let live = Self {
            paths: paths.clone(),
            hub: app.hub.clone(),
            factory: app.factory.clone(),
            warnings,
            broadcaster,
            state: Arc::new(Mutex::new(state)),
        };
        live.save_last_good(&chosen.loaded);
        live
    }

    /// Returns the config in use. Blocks while the file is being checked.
    pub fn current(&self) -> Arc<LoadedConfig<Config>> {
        self.state().current.clone()
    }

    /// Returns why the config file is not in use, if so.
    pub fn rejected(&self) -> Option<String> {
        self.state().rejected.clone()
    }

    /// Reads the file and applies it if it changed and is valid. Also retries what could not be set up before.
    pub fn reload(&self) -> ReloadResult {
        // Locked from reading to storing: of two concurrent checks, the later one applies the later file.
        let mut state = self.state();
        let loaded = Config::inspect(&self.paths).map_or_else(|loaded| *loaded, |chosen| chosen.loaded);
        let new_fingerprint = fingerprint(&loaded);
        let is_new = new_fingerprint != state.fingerprint;
        state.fingerprint = new_fingerprint;
        state.files.clone_from(&loaded.files);
        let rejection = self.rejection(&state, &loaded);
        match &state.rejected {
            None if !is_new => return ReloadResult::Unchanged,
            Some(text) if !is_new && rejection.is_some() => return ReloadResult::Rejected(text.clone()),
            None | Some(_) => {}
        }
        let setup_error = |error| format!("config file {} cannot be used: {error:#}", self.paths.config.display());
        let set_up = || crate::apply_config(&self.hub, &self.factory, &loaded).map_err(setup_error);
        match rejection.map_or_else(set_up, Err) {
            Ok(warnings) => state.warnings = warnings,
            Err(text) => {
                if state.rejected.as_ref() != Some(&text) {
                    tracing::warn!("{text}");
                }
                state.rejected = Some(text.clone());
                self.warnings.set(TOPIC, state.warning());
                return ReloadResult::Rejected(text);
            }
        }
        let (previous, now) = (&state.current.tree, &loaded.tree);
        let changed: Vec<_> = diff::changed(previous, now).iter().map(ToString::to_string).collect();
        let waits = pending_restart(&state.initial, now);
        let applied = Arc::new(loaded);
        state.current = applied.clone();
        state.rejected = None;
        state.pending_restart.clone_from(&waits);
        self.save_last_good(&applied);
        self.warnings.set(TOPIC, state.warning());
        drop(state);
        tracing::info!(?changed, ?waits, "the config has changed");
        let payload = json!({"path": self.paths.config, "hash": applied.hash, "changedPaths": changed});
        self.broadcaster.publish(
            "config.changed",
            &payload,
            Audience { scope: Some(Scope::Read), min_protocol: Generation::Four },
        );
        ReloadResult::Applied { changed, waits }
    }

    /// Returns why a config cannot replace the one in use.
    fn rejection(&self, state: &State, loaded: &LoadedConfig<Config>) -> Option<String> {
        let file = self.paths.config.display();
        let is_new = |fault: &&ConfigFault| !state.current.faults.iter().any(|known| known.is_same(fault));
        let fault = loaded.faults.iter().find(is_new).map(|fault| &fault.problem);
        if let Some(first) = loaded.problems.first().or(fault) {
            return Some(format!(
                "config file {file} has changed and is not valid, {first}; the previous config stays in use; to list \
                 all problems: homard config validate"
            ));
        }
        // The included file may determine any part of the config, even where the workspaces are.
        if let Some(included) = loaded.included_below(&state.current.config.agent_directories()) {
            return Some(format!(
                "config file {file} includes {}, which an agent can change; the previous config stays in use; move the \
                 included file out of the workspace",
                included.display()
            ));
        }
        // A missing file is more likely an accident (an editor, a lost disk) than the wish to drop all settings.
        let is_gone = state.current.text.is_some() && loaded.text.is_none();
        is_gone.then(|| {
            format!(
                "config file {file} is missing; the previous config stays in use; restore the file, or write {{}} to it for \
                 an empty config"
            )
        })
    }

    /// Watches the config and the skills until the future is dropped.
    pub async fn watch(&self) {
        let mut watch = FileWatch::new().inspect_err(|error| self.cannot_watch(&error.to_string())).ok();
        let mut poll = interval(POLL_INTERVAL);
        poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
        poll.reset();
        // Changes before the watch started are not reported, so check once.
        let mut is_due = true;
        loop {
            let update = self.on_blocking_thread(move |live| live.update_watch(watch)).await;
            let is_new;
            (watch, is_new) = update.unwrap_or_else(|| {
                self.cannot_watch("the file watcher failed");
                (None, false)
            });
            if is_due || is_new {
                self.on_blocking_thread(|live| (live.reload(), live.refresh_skills())).await;
                is_due = false;
                // The set of files to watch may have changed.
                continue;
            }
            tokio::select! {
                biased;
                changed = changed(watch.as_mut(), self.debounce()) => tracing::debug!(?changed, "files have changed"),
                _ = poll.tick() => {}
                () = self.factory.tools_changed() => {
                    tracing::debug!("the available tools have changed");
                    self.on_blocking_thread(Self::rebuild_agents).await;
                    continue;
                }
            }
            is_due = true;
        }
    }

    /// Returns the debounce time for file changes.
    fn debounce(&self) -> Duration {
        let configured = self.state().current.config.skills.load.watch_debounce_ms;
        configured.map_or(DEBOUNCE, Duration::from_millis)
    }

    fn cannot_watch(&self, why: &str) {
        let text = format!("changes to the config and to skills are detected only once a minute: {why}");
        tracing::warn!("{text}");
        self.warnings.set("watch", Some(text));
    }

    /// Runs work on a blocking thread; `None` if it panicked, which is logged.
    async fn on_blocking_thread<T: Send + 'static>(&self, job: impl FnOnce(&Self) -> T + Send + 'static) -> Option<T> {
        let live = self.clone();
        let result = tokio::task::spawn_blocking(move || job(&live)).await;
        result.inspect_err(|error| tracing::error!(%error, "a config reload task failed")).ok()
    }

    /// Updates the set of watched files. Returns true if it contains new ones.
    fn update_watch(&self, watch: Option<FileWatch>) -> (Option<FileWatch>, bool) {
        let Some(mut watch) = watch else { return (None, false) };
        let (files, is_watched) = {
            let state = self.state();
            let files: Vec<_> = state.current.files.iter().chain(&state.files).cloned().collect();
            (files, state.current.config.skills.load.watch.unwrap_or(true))
        };
        let libraries = self.factory.libraries();
        let folders = libraries.iter().filter(|_| is_watched).flat_map(|library| library.roots.folders());
        let update = watch.set(files.iter().map(PathBuf::as_path), folders.map(|(_, folder)| folder));
        self.warnings.set("watch", update.warnings.first().cloned());
        (Some(watch), update.is_new)
    }

    /// Rebuilds the agents from the config in use because the available tools changed.
    fn rebuild_agents(&self) {
        let mut state = self.state();
        match crate::rebuild_agents(&self.hub, &self.factory, &state.current) {
            Ok(warnings) => state.warnings = warnings,
            Err(error) => tracing::error!("failed to update the tools of the agents: {error:#}"),
        }
        self.warnings.set(TOPIC, state.warning());
    }

    fn refresh_skills(&self) {
        for library in self.factory.libraries() {
            library.refresh();
        }
    }

    /// Stores a valid config as the last good one. Without a file there is nothing to store.
    fn save_last_good(&self, loaded: &LoadedConfig<Config>) {
        if !loaded.is_usable() || loaded.text.is_none() {
            return;
        }
        if let Err(error) = last_good::save(&self.paths.state, &loaded.source) {
            tracing::warn!(%error, "failed to save a copy of the valid config");
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for the next change; forever without a watch.
async fn changed(watch: Option<&mut FileWatch>, quiet: Duration) -> BTreeSet<PathBuf> {
    match watch {
        Some(watch) => watch.changed(quiet, MAX_DELAY).await,
        None => std::future::pending().await,
    }
}

/// Returns the keys that need a restart, compared with the config at start and not with the previous one: a change that
/// was reverted needs none.
fn pending_restart(initial: &Value, now: &Value) -> Vec<String> {
    let pending = diff::changed(initial, now);
    let keys = pending.iter().map(ToString::to_string).filter(|path| Effect::of(path) == Effect::Restart);
    let heartbeat_change = (heartbeats(initial) != heartbeats(now)).then(|| "agents.list[].heartbeat".to_owned());
    keys.chain(heartbeat_change).collect()
}

/// Returns a text that differs whenever the config, its files or its problems do.
fn fingerprint(loaded: &LoadedConfig<Config>) -> String {
    let problems: Vec<_> = loaded.all_problems().iter().map(ToString::to_string).collect();
    format!("{} {} {}", loaded.hash, loaded.tree, problems.join("\n"))
}

/// Returns the heartbeats of the listed agents: the list is compared as a whole, but this part of it needs a restart.
fn heartbeats(tree: &Value) -> Vec<(&Value, &Value)> {
    let listed = tree["agents"]["list"].as_array().into_iter().flatten();
    listed.map(|agent| (&agent["id"], &agent["heartbeat"])).filter(|(_, beat)| !beat.is_null()).collect()
}
