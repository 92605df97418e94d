//! Config reload: watches files, applies changes that need no restart, and reports invalid configs.

pub(crate) mod effect;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use homard_agent::Hub;
use homard_config::{Fault, Loaded, Sections, diff, last_good};
use homard_gateway::{Audience, News, Notices, Scope};
use homard_proto::Generation;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use self::effect::Effect;
use crate::{
    assemble::{self, House, office::Office},
    config::{self, Chosen, Config},
    paths::Paths,
    watch::Watch,
};

/// How long files must be unchanged before a change is processed.
const QUIET: Duration = Duration::from_millis(250);

/// Maximum delay of a change if files never stop changing.
const LONGEST: Duration = Duration::from_secs(2);

/// Interval of checks without a file event: a program that a skill needs may have been installed, and not every
/// filesystem reports events.
const AGAIN: Duration = Duration::from_secs(60);

/// Topic of config warnings in the health report.
const TOPIC: &str = "config";

/// The config of a running gateway. Clones share their state.
#[derive(Clone)]
pub(crate) struct Live {
    paths: Paths,
    hub: Hub,
    office: Office,
    notices: Notices,
    news: News,
    state: Arc<Mutex<State>>,
}

struct State {
    /// The config in use.
    used: Arc<Loaded<Config>>,
    /// Fingerprint of the config that was last read.
    seen: String,
    /// Files that were read then, also by an invalid config, which may be corrected in any of them.
    files: Vec<PathBuf>,
    /// The config at start: changes to some of its keys need a restart.
    began_with: Value,
    /// Why the config that was last read is not in use, if so.
    refused: Option<String>,
    /// Keys whose changes need a restart.
    waits: Vec<String>,
    /// Warnings about agents.
    troubles: Vec<String>,
}

impl State {
    /// Returns the warning for the health report.
    fn notice(&self) -> Option<String> {
        let waits = self.waits.join(", ");
        let restart = (!self.waits.is_empty())
            .then(|| format!("the config has changed; restart the gateway for {waits} to have an effect"));
        let outages = config::outages(&self.used);
        let unsupported = config::unsupported_channels(&self.used.config);
        let texts = self.refused.iter().chain(&restart).chain(&outages).chain(&unsupported).chain(&self.troubles);
        let texts: Vec<_> = texts.map(String::as_str).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }
}

/// Result of checking the config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Came {
    /// It has not changed.
    Nothing,
    /// It is in use: the keys that changed, and those of them that need a restart.
    Applied { changed: Vec<String>, waits: Vec<String> },
    /// It is invalid, with the reason; the previous one stays in use.
    Refused(String),
}

impl Live {
    /// Starts from the config that the gateway was started with.
    pub(crate) fn new(paths: &Paths, chosen: &Chosen, house: &House, (notices, news): (Notices, News)) -> Self {
        let used = Arc::new(chosen.loaded.clone());
        let state = State {
            seen: fingerprint(&used),
            files: used.files.clone(),
            began_with: used.tree.clone(),
            refused: config::complaint(chosen, &paths.config),
            waits: Vec::new(),
            troubles: house.troubles.clone(),
            used,
        };
        notices.set(TOPIC, state.notice());
        let live = Self {
            paths: paths.clone(),
            hub: house.hub.clone(),
            office: house.office.clone(),
            notices,
            news,
            state: Arc::new(Mutex::new(state)),
        };
        live.keep(&chosen.loaded);
        live
    }

    /// Returns the config in use. Blocks while the file is being checked.
    pub(crate) fn used(&self) -> Arc<Loaded<Config>> {
        self.state().used.clone()
    }

    /// Returns why the config file is not in use, if so.
    pub(crate) fn refused(&self) -> Option<String> {
        self.state().refused.clone()
    }

    /// Reads the file and applies it if it changed and is valid. Also retries what could not be set up before.
    pub(crate) fn look(&self) -> Came {
        // Locked from reading to storing: of two concurrent checks, the later one applies the later file.
        let mut state = self.state();
        let loaded = Config::inspect(&self.paths).map_or_else(|loaded| *loaded, |chosen| chosen.loaded);
        let seen = fingerprint(&loaded);
        let is_new = seen != state.seen;
        state.seen = seen;
        state.files.clone_from(&loaded.files);
        let wrong = self.wrong(&state, &loaded);
        match &state.refused {
            None if !is_new => return Came::Nothing,
            Some(text) if !is_new && wrong.is_some() => return Came::Refused(text.clone()),
            None | Some(_) => {}
        }
        let cannot = |error| format!("config file {} cannot be used: {error:#}", self.paths.config.display());
        let set_up = || assemble::set_up(&self.hub, &self.office, &loaded).map_err(cannot);
        match wrong.map_or_else(set_up, Err) {
            Ok(troubles) => state.troubles = troubles,
            Err(text) => {
                if state.refused.as_ref() != Some(&text) {
                    tracing::warn!("{text}");
                }
                state.refused = Some(text.clone());
                self.notices.set(TOPIC, state.notice());
                return Came::Refused(text);
            }
        }
        let (before, now) = (&state.used.tree, &loaded.tree);
        let changed: Vec<_> = diff::changed(before, now).iter().map(ToString::to_string).collect();
        let waits = waits(&state.began_with, now);
        let used = Arc::new(loaded);
        state.used = used.clone();
        state.refused = None;
        state.waits.clone_from(&waits);
        self.keep(&used);
        self.notices.set(TOPIC, state.notice());
        drop(state);
        tracing::info!(?changed, ?waits, "the config has changed");
        let payload = json!({"path": self.paths.config, "hash": used.hash, "changedPaths": changed});
        self.news.tell("config.changed", &payload, Audience { needs: Some(Scope::Read), since: Generation::Four });
        Came::Applied { changed, waits }
    }

    /// Returns why a config cannot replace the one in use.
    fn wrong(&self, state: &State, loaded: &Loaded<Config>) -> Option<String> {
        let file = self.paths.config.display();
        let is_new = |fault: &&Fault| !state.used.faults.iter().any(|known| known.is_same(fault));
        let fault = loaded.faults.iter().find(is_new).map(|fault| &fault.problem);
        if let Some(first) = loaded.problems.first().or(fault) {
            return Some(format!(
                "config file {file} has changed and is not valid, {first}; what was read before stays at work; to see \
                 all that is wrong: homard config validate"
            ));
        }
        // The included file may determine any part of the config, even where the workspaces are.
        if let Some(included) = loaded.included_below(&state.used.config.agent_directories()) {
            return Some(format!(
                "config file {file} includes {}, which an agent can change; what was read before stays at work; move the \
                 included file out of the workspace",
                included.display()
            ));
        }
        // A missing file is more likely an accident (an editor, a lost disk) than the wish to drop all settings.
        let is_gone = state.used.text.is_some() && loaded.text.is_none();
        is_gone.then(|| {
            format!(
                "config file {file} is gone; what was read before stays at work; put it back, or write {{}} there for a \
                 config that says nothing"
            )
        })
    }

    /// Watches the config and the skills until the future is dropped.
    pub(crate) async fn watch(&self) {
        let mut watch = Watch::new().inspect_err(|error| self.cannot_watch(&error.to_string())).ok();
        let mut again = interval(AGAIN);
        again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        again.reset();
        // Changes before the watch started are not reported, so check once.
        let mut is_due = true;
        loop {
            let aimed = self.on_blocking_thread(move |live| live.aim(watch)).await;
            let is_new;
            (watch, is_new) = aimed.unwrap_or_else(|| {
                self.cannot_watch("the watcher broke");
                (None, false)
            });
            if is_due || is_new {
                self.on_blocking_thread(|live| (live.look(), live.judge_skills())).await;
                is_due = false;
                // The set of files to watch may have changed.
                continue;
            }
            tokio::select! {
                biased;
                changed = changed(watch.as_mut(), self.quiet()) => tracing::debug!(?changed, "files have changed"),
                _ = again.tick() => {}
                () = self.office.tools_changed() => {
                    tracing::debug!("servers have other tools");
                    self.on_blocking_thread(Self::staff_again).await;
                    continue;
                }
            }
            is_due = true;
        }
    }

    /// Returns the debounce time for file changes.
    fn quiet(&self) -> Duration {
        let configured = self.state().used.config.skills.load.watch_debounce_ms;
        configured.map_or(QUIET, Duration::from_millis)
    }

    fn cannot_watch(&self, why: &str) {
        let text = format!("changes of the config and of skills are seen only once a minute: {why}");
        tracing::warn!("{text}");
        self.notices.set("watch", Some(text));
    }

    /// Runs work on a blocking thread; `None` if it panicked, which is logged.
    async fn on_blocking_thread<T: Send + 'static>(&self, work: impl FnOnce(&Self) -> T + Send + 'static) -> Option<T> {
        let live = self.clone();
        let done = tokio::task::spawn_blocking(move || work(&live)).await;
        done.inspect_err(|error| tracing::error!(%error, "files could not be looked at")).ok()
    }

    /// Updates the set of watched files. Returns true if it contains new ones.
    fn aim(&self, watch: Option<Watch>) -> (Option<Watch>, bool) {
        let Some(mut watch) = watch else { return (None, false) };
        let (files, is_watched) = {
            let state = self.state();
            let files: Vec<_> = state.used.files.iter().chain(&state.files).cloned().collect();
            (files, state.used.config.skills.load.watch.unwrap_or(true))
        };
        let libraries = self.office.libraries();
        let folders = libraries.iter().filter(|_| is_watched).flat_map(|library| library.roots.folders());
        let aimed = watch.set(files.iter().map(PathBuf::as_path), folders.map(|(_, folder)| folder));
        self.notices.set("watch", aimed.troubles.first().cloned());
        (Some(watch), aimed.is_new)
    }

    /// Rebuilds the agents from the config in use because the available tools changed.
    fn staff_again(&self) {
        let mut state = self.state();
        match assemble::set_up_again(&self.hub, &self.office, &state.used) {
            Ok(troubles) => state.troubles = troubles,
            Err(error) => tracing::error!("the agents could not be given their tools: {error:#}"),
        }
        self.notices.set(TOPIC, state.notice());
    }

    fn judge_skills(&self) {
        for library in self.office.libraries() {
            library.refresh();
        }
    }

    /// Stores a valid config as the last good one. Without a file there is nothing to store.
    fn keep(&self, loaded: &Loaded<Config>) {
        if !loaded.is_usable() || loaded.text.is_none() {
            return;
        }
        if let Err(error) = last_good::keep(&self.paths.state, &loaded.source) {
            tracing::warn!(%error, "the config could not be kept for the day on which its file is broken");
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for the next change; forever without a watch.
async fn changed(watch: Option<&mut Watch>, quiet: Duration) -> BTreeSet<PathBuf> {
    match watch {
        Some(watch) => watch.changed(quiet, LONGEST).await,
        None => std::future::pending().await,
    }
}

/// Returns the keys that need a restart, compared with the config at start and not with the previous one: a change that
/// was reverted needs none.
fn waits(began_with: &Value, now: &Value) -> Vec<String> {
    let pending = diff::changed(began_with, now);
    let keys = pending.iter().map(ToString::to_string).filter(|path| Effect::of(path) == Effect::Restart);
    let beats = (heartbeats(began_with) != heartbeats(now)).then(|| "agents.list[].heartbeat".to_owned());
    keys.chain(beats).collect()
}

/// Returns a text that differs whenever the config, its files or its problems do.
fn fingerprint(loaded: &Loaded<Config>) -> String {
    let problems: Vec<_> = loaded.wrong().iter().map(ToString::to_string).collect();
    format!("{} {} {}", loaded.hash, loaded.tree, problems.join("\n"))
}

/// Returns the heartbeats of the listed agents: the list is compared as a whole, but this part of it needs a restart.
fn heartbeats(tree: &Value) -> Vec<(&Value, &Value)> {
    let listed = tree["agents"]["list"].as_array().into_iter().flatten();
    listed.map(|agent| (&agent["id"], &agent["heartbeat"])).filter(|(_, beat)| !beat.is_null()).collect()
}
