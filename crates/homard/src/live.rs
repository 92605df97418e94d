//! The config while a gateway runs: files are watched, what can change at once does, and what is wrong is told.

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

/// How long files must be quiet before a change counts.
const QUIET: Duration = Duration::from_millis(250);

/// How long a change may wait at most, where it is never quiet.
const LONGEST: Duration = Duration::from_secs(2);

/// How often everything is looked at without a change: a program may have been installed that a skill needs, and not
/// every disk tells what happens on it.
const AGAIN: Duration = Duration::from_secs(60);

/// The topic under which health tells of the config.
const TOPIC: &str = "config";

/// The config while a gateway runs. Clones are the same.
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
    /// The config at work.
    used: Arc<Loaded<Config>>,
    /// The file as it was seen last.
    seen: String,
    /// The files that were read then: also of a config that is not valid, which may be mended in any of them.
    files: Vec<PathBuf>,
    /// What the gateway began with: changes to some of it wait for a restart.
    began_with: Value,
    /// Why what was seen last is not at work, if it is not.
    refused: Option<String>,
    /// What waits for a restart.
    waits: Vec<String>,
    /// What is wrong with some agent.
    troubles: Vec<String>,
}

impl State {
    /// What people should know.
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

/// What came of a look at the config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Came {
    /// It has not changed.
    Nothing,
    /// It is at work; these keys changed, and these wait for a restart.
    Applied { changed: Vec<String>, waits: Vec<String> },
    /// It is not valid, and the one before stays at work: why.
    Refused(String),
}

impl Live {
    /// Takes over the config that the gateway began with.
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

    /// The config at work. Waits for whoever looks at the file just now.
    pub(crate) fn used(&self) -> Arc<Loaded<Config>> {
        self.state().used.clone()
    }

    /// Why the config file is not at work, if it is not.
    pub(crate) fn refused(&self) -> Option<String> {
        self.state().refused.clone()
    }

    /// Looks at the file, and has what it says at work if it changed and is valid. What could not be set up before is
    /// tried again.
    pub(crate) fn look(&self) -> Came {
        // Held from the reading to the keeping: of two who look at once, the later one has the later file.
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

    /// Why a file cannot take the place of what is at work.
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
        // What the config says now may come from that file, also where the workspaces are.
        if let Some(included) = loaded.included_below(&state.used.config.agent_directories()) {
            return Some(format!(
                "config file {file} includes {}, which an agent can change; what was read before stays at work; move the \
                 included file out of the workspace",
                included.display()
            ));
        }
        // Nobody throws all settings away without a word; some editor or a lost disk does.
        let is_gone = state.used.text.is_some() && loaded.text.is_none();
        is_gone.then(|| {
            format!(
                "config file {file} is gone; what was read before stays at work; put it back, or write {{}} there for a \
                 config that says nothing"
            )
        })
    }

    /// Watches the config and the skills until it is dropped.
    pub(crate) async fn watch(&self) {
        let mut watch = Watch::new().inspect_err(|error| self.cannot_watch(&error.to_string())).ok();
        let mut again = interval(AGAIN);
        again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        again.reset();
        // What changed before anybody watched is not told.
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
                // There may be other files to watch now.
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

    /// How long no file may change before changes are read.
    fn quiet(&self) -> Duration {
        let configured = self.state().used.config.skills.load.watch_debounce_ms;
        configured.map_or(QUIET, Duration::from_millis)
    }

    fn cannot_watch(&self, why: &str) {
        let text = format!("changes of the config and of skills are seen only once a minute: {why}");
        tracing::warn!("{text}");
        self.notices.set("watch", Some(text));
    }

    /// Nothing if it broke, which is told.
    async fn on_blocking_thread<T: Send + 'static>(&self, work: impl FnOnce(&Self) -> T + Send + 'static) -> Option<T> {
        let live = self.clone();
        let done = tokio::task::spawn_blocking(move || work(&live)).await;
        done.inspect_err(|error| tracing::error!(%error, "files could not be looked at")).ok()
    }

    /// Watches what there is to watch now. Says whether some of it was not watched before.
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

    /// Makes the agents of the config at work again: there are other tools.
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

    /// Keeps a valid config for the day on which the file is not. Where there is no file there is nothing to keep.
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

/// The next change, if there is a watch to tell it.
async fn changed(watch: Option<&mut Watch>, quiet: Duration) -> BTreeSet<PathBuf> {
    match watch {
        Some(watch) => watch.changed(quiet, LONGEST).await,
        None => std::future::pending().await,
    }
}

/// The keys that wait for a restart: against the beginning, not against the last time, because what was changed back
/// waits for nothing.
fn waits(began_with: &Value, now: &Value) -> Vec<String> {
    let pending = diff::changed(began_with, now);
    let keys = pending.iter().map(ToString::to_string).filter(|path| Effect::of(path) == Effect::Restart);
    let beats = (heartbeats(began_with) != heartbeats(now)).then(|| "agents.list[].heartbeat".to_owned());
    keys.chain(beats).collect()
}

/// What tells one state of all files from another.
fn fingerprint(loaded: &Loaded<Config>) -> String {
    let problems: Vec<_> = loaded.wrong().iter().map(ToString::to_string).collect();
    format!("{} {} {}", loaded.hash, loaded.tree, problems.join("\n"))
}

/// What the agents of a list look after by themselves: a list is compared as one, and this part of it takes a restart.
fn heartbeats(tree: &Value) -> Vec<(&Value, &Value)> {
    let listed = tree["agents"]["list"].as_array().into_iter().flatten();
    listed.map(|agent| (&agent["id"], &agent["heartbeat"])).filter(|(_, beat)| !beat.is_null()).collect()
}
