//! The config while a gateway runs: files are watched, what can change at once does, and what is wrong is told.

pub(crate) mod effect;

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use homard_agent::Hub;
use homard_config::{Loaded, Used, diff, last_good};
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

/// How often skills are judged anew without a change of theirs: a program may have been installed that one needs.
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
    /// What the gateway began with: changes to some of it wait for a restart.
    began_with: Value,
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
        let state = State { seen: fingerprint(&used), began_with: used.tree.clone(), used };
        let live = Self {
            paths: paths.clone(),
            hub: house.hub.clone(),
            office: house.office.clone(),
            notices,
            news,
            state: Arc::new(Mutex::new(state)),
        };
        live.tell(config::complaint(chosen, &paths.config), &[], &house.troubles);
        live.keep(chosen);
        live
    }

    /// The config at work.
    pub(crate) fn used(&self) -> Arc<Loaded<Config>> {
        self.state().used.clone()
    }

    /// Looks at the file, and has what it says at work if it changed and is valid.
    pub(crate) fn look(&self) -> Came {
        let chosen = Config::choose(&self.paths);
        let mut state = self.state();
        let seen = fingerprint(&chosen.loaded);
        if seen == state.seen {
            return Came::Nothing;
        }
        state.seen = seen;
        if !chosen.loaded.is_valid() {
            let first = chosen.loaded.problems.first().map(ToString::to_string).unwrap_or_default();
            let text = format!(
                "config file {} has changed and is not valid, {first}; what was read before stays at work; to see all \
                 that is wrong: homard config validate",
                self.paths.config.display()
            );
            tracing::warn!("{text}");
            self.tell(Some(text.clone()), &[], &[]);
            return Came::Refused(text);
        }
        let changed: Vec<_> =
            diff::changed(&state.used.tree, &chosen.loaded.tree).iter().map(ToString::to_string).collect();
        let troubles = match assemble::set_up(&self.hub, &self.office, &chosen.loaded) {
            Ok(troubles) => troubles,
            Err(error) => {
                let text = format!("config file {} cannot be used: {error:#}", self.paths.config.display());
                self.tell(Some(text.clone()), &[], &[]);
                return Came::Refused(text);
            }
        };
        // Against the beginning, not against the last time: what was changed back waits for nothing.
        let pending = diff::changed(&state.began_with, &chosen.loaded.tree);
        let mut waits: Vec<_> =
            pending.iter().map(ToString::to_string).filter(|path| Effect::of(path) == Effect::Restart).collect();
        if heartbeats(&state.began_with) != heartbeats(&chosen.loaded.tree) {
            waits.push("agents.list[].heartbeat".to_owned());
        }
        state.used = Arc::new(chosen.loaded.clone());
        drop(state);
        self.keep(&chosen);
        tracing::info!(?changed, ?waits, "the config has changed");
        self.tell(None, &waits, &troubles);
        let payload = json!({"path": self.paths.config, "hash": chosen.loaded.hash, "changedPaths": changed});
        self.news.tell("config.changed", &payload, Audience { needs: Some(Scope::Read), since: Generation::Four });
        Came::Applied { changed, waits }
    }

    /// Watches the config and the skills until it is dropped.
    pub(crate) async fn watch(&self) {
        let mut watch = match Watch::new() {
            Ok(watch) => watch,
            Err(error) => {
                let text = format!("changes of the config and of skills are not seen until a restart: {error}");
                tracing::warn!("{text}");
                self.notices.set("watch", Some(text));
                return std::future::pending().await;
            }
        };
        let mut again = interval(AGAIN);
        again.set_missed_tick_behavior(MissedTickBehavior::Delay);
        again.reset();
        loop {
            self.aim(&mut watch);
            tokio::select! {
                changed = watch.changed(QUIET) => {
                    tracing::debug!(?changed, "files have changed");
                    self.on_blocking_thread(Self::look).await;
                }
                _ = again.tick() => {}
            }
            self.on_blocking_thread(Self::judge_skills).await;
        }
    }

    async fn on_blocking_thread<T: Send + 'static>(&self, work: impl FnOnce(&Self) -> T + Send + 'static) {
        let live = self.clone();
        if let Err(error) = tokio::task::spawn_blocking(move || work(&live)).await {
            tracing::error!(%error, "a change of files could not be looked at");
        }
    }

    fn aim(&self, watch: &mut Watch) {
        let files = self.state().used.files.clone();
        let libraries = self.office.libraries();
        let folders: Vec<PathBuf> =
            libraries.iter().flat_map(|library| library.roots.folders()).map(|(_, folder)| folder.to_owned()).collect();
        let is_watched = self.state().used.config.skills.load.watch.unwrap_or(true);
        let folders = folders.iter().filter(|_| is_watched).map(PathBuf::as_path);
        let troubles = watch.set(files.iter().map(PathBuf::as_path), folders);
        self.notices.set("watch", troubles.first().cloned());
    }

    fn judge_skills(&self) {
        for library in self.office.libraries() {
            library.refresh();
        }
    }

    /// Keeps a valid config for the day on which the file is not.
    fn keep(&self, chosen: &Chosen) {
        if chosen.used != Used::File {
            return;
        }
        if let Err(error) = last_good::keep(&self.paths.state, &chosen.loaded.source) {
            tracing::warn!(%error, "the config could not be kept for the day on which its file is broken");
        }
    }

    fn tell(&self, complaint: Option<String>, waits: &[String], troubles: &[String]) {
        let restart = (!waits.is_empty())
            .then(|| format!("the config has changed; restart the gateway for {} to have an effect", waits.join(", ")));
        let texts: Vec<_> = complaint.into_iter().chain(restart).chain(troubles.iter().cloned()).collect();
        self.notices.set(TOPIC, (!texts.is_empty()).then(|| texts.join("; ")));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What tells one state of all files from another.
fn fingerprint(loaded: &Loaded<Config>) -> String {
    let problems: Vec<_> = loaded.problems.iter().map(ToString::to_string).collect();
    format!("{} {} {}", loaded.hash, loaded.tree, problems.join("\n"))
}

/// What the agents of a list look after by themselves: a list is compared as one, and this part of it takes a restart.
fn heartbeats(tree: &Value) -> Vec<(&Value, &Value)> {
    let listed = tree["agents"]["list"].as_array().into_iter().flatten();
    listed.map(|agent| (&agent["id"], &agent["heartbeat"])).filter(|(_, beat)| !beat.is_null()).collect()
}
