//! Plugins in the house: what they add to the loop, to the agents' tools and to the gateway, and what they may ask for.

mod host;
mod rooms;

use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use homard_agent::{Hub, task, tool::Tool};
use homard_config::{Loaded, redact};
use homard_hooks::{Hook, Hooks, Listener, SlashCommand};
use homard_plugins::{Extensions, Host, Plugins, Reserved, Setup, Status, Timing, internal::Scripts};
use homard_tools::Background;
use tokio::{
    sync::{Notify, watch},
    time::timeout,
};

use self::host::House;
use super::{hooks, office::workspace};
use crate::{
    config::Config,
    paths::{self, Paths},
};

pub(crate) use rooms::{Rooms, Transforms};

/// How long plugins of which nothing is known may take where they are needed at once.
const LEARNING: Duration = Duration::from_secs(10);

/// How long the loop may take to be given what was learned.
const GIVING: Duration = Duration::from_secs(5);

/// The plugins of a house, and the hooks beside them. Clones are the same.
#[derive(Clone)]
pub(crate) struct Guests {
    plugins: Arc<Plugins>,
    /// Those who hear signals without being plugins.
    listeners: Vec<Arc<dyn Listener>>,
    /// Who takes part in the loop, and the edition of the plugins' list by which that is known: as long as it is the same,
    /// they are the same, with what waits to be told to them.
    hooks: Arc<Mutex<Option<(u64, Hooks)>>>,
    /// The edition that the loop goes by.
    given: Arc<watch::Sender<u64>>,
    changed: Arc<Notify>,
}

impl std::fmt::Debug for Guests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guests").field("plugins", &self.plugins).finish_non_exhaustive()
    }
}

impl Guests {
    /// Finds them, by the config; nobody is started yet. Says what is wrong with some. Needs a runtime.
    pub(crate) fn open(
        loaded: &Loaded<Config>,
        paths: &Paths,
        hub: &Arc<OnceLock<Hub>>,
        background: &Background,
    ) -> (Self, Vec<String>) {
        let config = redact::redact(&loaded.source);
        let host: Arc<dyn Host> = Arc::new(House { hub: hub.clone(), config: config.clone() });
        let workspaces =
            loaded.config.agents.members().iter().map(|agent| workspace(&loaded.config, paths, agent)).collect();
        let setup = Setup {
            settings: loaded.config.plugins.settings(paths),
            state: paths.state.clone(),
            workspaces,
            config,
            env: paths::variables().collect(),
            reserved: reserved(),
            timing: Timing::default(),
        };
        let plugins = Arc::new(Plugins::open(setup, &host));
        let scripts: Arc<dyn Scripts> = Arc::new(plugins.node());
        let (listeners, mut wrong) = hooks::open(loaded, paths, hub.clone(), &scripts, background.clone());
        wrong.extend(plugins.problems().iter().cloned());
        let changed = Arc::<Notify>::default();
        let (mut news, told) = (plugins.watch(), changed.clone());
        // Ends with the plugins.
        task::spawn("plugin news", async move {
            while news.changed().await.is_ok() {
                told.notify_one();
            }
        });
        (Self { plugins, listeners, hooks: Arc::default(), given: Arc::default(), changed }, wrong)
    }

    /// How each plugin stands.
    pub(crate) fn status(&self) -> Vec<Status> {
        self.plugins.status()
    }

    /// The plugins and hooks that fail all the time: the kind, the name, and how often.
    pub(super) fn failing(&self) -> Vec<(&'static str, String, String)> {
        let throwing = self.plugins.throwing().into_iter().map(|one| {
            let why = format!("it throws errors that it does not catch: {one}");
            ("plugin", one.name, why)
        });
        let hooks = self.hooks().failing().into_iter().map(|one| ("hook", one.name.clone(), one.to_string()));
        throwing.chain(hooks).collect()
    }

    /// What plugins add to the house, as far as it is known.
    pub(crate) fn extensions(&self) -> Extensions {
        self.plugins.extensions()
    }

    /// Who takes part in the loop.
    pub(crate) fn hooks(&self) -> Hooks {
        let edition = *self.plugins.watch().borrow();
        let mut held = self.hooks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, hooks)) = held.as_ref().filter(|(known, _)| *known == edition) {
            return hooks.clone();
        }
        let Extensions { hooks, mut listeners, commands, .. } = self.extensions();
        listeners.extend(self.listeners.iter().cloned());
        let hooks: Vec<Arc<dyn Hook>> = hooks;
        let commands = commands.into_iter().map(|command| Arc::new(rooms::Spoken(command)) as Arc<dyn SlashCommand>);
        let hooks = Hooks::new(hooks, listeners).with_commands(commands.collect());
        *held = Some((edition, hooks.clone()));
        hooks
    }

    /// What agents can do with plugins.
    /// Those that are optional only if the config names them, their plugin, or all of plugins.
    pub(super) fn tools(&self, config: &Config) -> Vec<Arc<dyn Tool>> {
        let wanted = config.tools.named();
        let is_named = |name: &str| wanted.iter().any(|wanted| wanted == name);
        let tools = self.extensions().tools.into_iter().filter(|tool| {
            !tool.is_optional() || [tool.name(), tool.plugin(), "group:plugins"].into_iter().any(is_named)
        });
        tools.map(|tool| tool as Arc<dyn Tool>).collect()
    }

    /// Waits until something else is known of them. Whoever does has given the loop what was known before.
    pub(super) async fn changed(&self) {
        let edition = self.hooks.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|(edition, _)| *edition);
        self.given.send_replace(edition.unwrap_or_default());
        self.changed.notified().await;
    }

    /// Starts those of which nothing is known and waits a little for what they say; says whether there were any.
    pub(super) async fn settled(&self) -> bool {
        let before = *self.plugins.watch().borrow();
        if timeout(LEARNING, self.plugins.learn()).await.is_err() {
            tracing::warn!("some plugins have not said in time what they do; they take part when they have");
        }
        *self.plugins.watch().borrow() != before
    }

    /// Waits until the loop goes by all that is known now, so that what happens next is told to everybody.
    async fn given(&self) {
        let edition = *self.plugins.watch().borrow();
        let mut given = self.given.subscribe();
        if timeout(GIVING, given.wait_for(|given| *given >= edition)).await.is_err() {
            tracing::warn!("plugins were not taken in; they do not hear of the gateway's start");
        }
    }

    /// Learns of those of which nothing is known, and starts what runs in the background.
    pub(crate) async fn begin(&self) {
        self.plugins.learn().await;
        self.given().await;
        for service in self.extensions().services {
            if let Err(error) = service.start().await {
                tracing::warn!(plugin = service.plugin(), service = service.id(), %error, "a service could not be started");
            }
        }
    }

    /// Stops what runs in the background, the last first, and ends all processes.
    pub(super) async fn close(&self) {
        for service in self.extensions().services.iter().rev() {
            service.stop().await;
        }
        self.plugins.close().await;
    }
}

/// The names that are the house's own.
fn reserved() -> Reserved {
    let all = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Reserved {
        tools: homard_agent::policy::known().map(str::to_owned).collect(),
        commands: all(&homard_agent::command::NAMES),
        methods: homard_gateway::method_names().into_iter().map(str::to_owned).collect(),
        paths: all(&["/", "/health", "/healthz", "/ready", "/readyz", "/v1", "/tools/invoke", "/hooks", "/metrics"]),
    }
}
