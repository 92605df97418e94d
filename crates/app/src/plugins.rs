//! Plugins of a gateway: their hooks, tools, services and routes, and the API that they may call.

mod api;
mod list;
mod routes;

use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use homard_agent::{Hub, tool::Tool};
use homard_config::{LoadedConfig, redact};
use homard_hooks::{Hook, Hooks, Listener, SlashCommand};
use homard_plugins::{
    Extensions, Host, PluginSetup, PluginStatus, Plugins, ProcessTiming, ReservedNames, internal::ScriptRunner,
};
use homard_runtime::task;
use homard_settings::{
    Config,
    agent_directories::plugin_roots,
    paths::{self, Paths},
};
use homard_tools::BackgroundCommands;
use tokio::{
    sync::{Notify, watch},
    time::timeout,
};

use self::api::PluginApi;
use super::hooks;

pub use list::{PluginList, offline_host};
pub use routes::{PluginRoutes, Transforms};

/// How long to wait for plugins whose registrations are not known yet, where they are needed immediately.
const LEARN_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to wait until the hub uses the registrations of plugins.
const APPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// The plugins of a gateway, and the internal hooks. Clones share their state.
#[derive(Clone)]
pub struct PluginSet {
    plugins: Arc<Plugins>,
    /// Listeners that do not come from plugins: the internal hooks.
    listeners: Vec<Arc<dyn Listener>>,
    /// The hooks, and the revision of the plugin list that they were built from. While the revision is unchanged the
    /// same objects are used, so that their queued events are kept.
    hooks: Arc<Mutex<Option<(u64, Hooks)>>>,
    /// The revision that the hub uses.
    applied: Arc<watch::Sender<u64>>,
    changed: Arc<Notify>,
}

impl std::fmt::Debug for PluginSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PluginSet").field("plugins", &self.plugins).finish_non_exhaustive()
    }
}

impl PluginSet {
    /// Finds the plugins and the internal hooks of the config, without starting plugins. The second value contains
    /// warnings. Must be called in a Tokio runtime, because it spawns a task.
    pub(crate) fn open(
        loaded: &LoadedConfig<Config>,
        paths: &Paths,
        hub: &Arc<OnceLock<Hub>>,
        background: &BackgroundCommands,
    ) -> (Self, Vec<String>) {
        let setup = setup(loaded, paths);
        let host: Arc<dyn Host> = Arc::new(PluginApi { hub: hub.clone(), config: setup.config.clone() });
        let plugins = Arc::new(Plugins::open(setup, &host));
        let scripts: Arc<dyn ScriptRunner> = Arc::new(plugins.node());
        let (listeners, mut warnings) = hooks::open(loaded, paths, hub.clone(), &scripts, background.clone());
        warnings.extend(plugins.problems().iter().cloned());
        let changed = Arc::<Notify>::default();
        let (mut watcher, notifier) = (plugins.watch(), changed.clone());
        // Ends when the plugins are dropped.
        task::spawn("plugin changes", async move {
            while watcher.changed().await.is_ok() {
                notifier.notify_one();
            }
        });
        (Self { plugins, listeners, hooks: Arc::default(), applied: Arc::default(), changed }, warnings)
    }

    /// Returns the state of each plugin.
    pub fn status(&self) -> Vec<PluginStatus> {
        self.plugins.status()
    }

    /// Returns the plugins and hooks that fail repeatedly: kind, name, and reason.
    pub(crate) fn failing(&self) -> Vec<(&'static str, String, String)> {
        let plugins = self.plugins.frequent_errors().into_iter().map(|failing| {
            let why = format!("uncaught errors: {failing}");
            ("plugin", failing.name, why)
        });
        let hooks =
            self.hooks().failing().into_iter().map(|failing| ("hook", failing.name.clone(), failing.to_string()));
        plugins.chain(hooks).collect()
    }

    /// Returns the hooks, tools, commands, routes and services that plugins have registered so far.
    pub(crate) fn extensions(&self) -> Extensions {
        self.plugins.extensions()
    }

    /// Returns the hooks, listeners and commands for the current revision of the plugin list.
    pub(crate) fn hooks(&self) -> Hooks {
        let edition = *self.plugins.watch().borrow();
        let mut cached = self.hooks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, hooks)) = cached.as_ref().filter(|(known, _)| *known == edition) {
            return hooks.clone();
        }
        let Extensions { hooks, mut listeners, commands, .. } = self.extensions();
        listeners.extend(self.listeners.iter().cloned());
        let hooks: Vec<Arc<dyn Hook>> = hooks;
        let commands =
            commands.into_iter().map(|command| Arc::new(routes::PluginChatCommand(command)) as Arc<dyn SlashCommand>);
        let hooks = Hooks::new(hooks, listeners).with_commands(commands.collect());
        *cached = Some((edition, hooks.clone()));
        hooks
    }

    /// Returns the tools of plugins. Optional tools are included only if the config names them, their plugin, or
    /// `group:plugins`.
    pub(crate) fn tools(&self, config: &Config) -> Vec<Arc<dyn Tool>> {
        let allowed = config.tools.explicitly_allowed();
        let is_named = |name: &str| allowed.iter().any(|allowed| allowed == name);
        let tools = self.extensions().tools.into_iter().filter(|tool| {
            !tool.is_optional() || [tool.name(), tool.plugin(), "group:plugins"].into_iter().any(is_named)
        });
        tools.map(|tool| tool as Arc<dyn Tool>).collect()
    }

    /// Waits until the plugins' registrations change. The caller must have applied the previous ones to the hub before
    /// it calls this.
    pub(crate) async fn changed(&self) {
        let edition = self.hooks.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|(edition, _)| *edition);
        self.applied.send_replace(edition.unwrap_or_default());
        self.changed.notified().await;
    }

    /// Starts the plugins whose registrations are unknown and waits briefly for them. Returns true if any registration
    /// changed.
    pub(crate) async fn settle(&self) -> bool {
        let version = *self.plugins.watch().borrow();
        if timeout(LEARN_TIMEOUT, self.plugins.discover_registrations()).await.is_err() {
            tracing::warn!("some plugins did not register in time; they are enabled once they have registered");
        }
        *self.plugins.watch().borrow() != version
    }

    /// Waits until the hub uses the current registrations, so that all plugins receive the following events. The hub
    /// applies them in another task, which then calls [`changed`](Self::changed).
    async fn wait_applied(&self) {
        let edition = *self.plugins.watch().borrow();
        let mut applied = self.applied.subscribe();
        if timeout(APPLY_TIMEOUT, applied.wait_for(|applied| *applied >= edition)).await.is_err() {
            tracing::warn!("some plugins were not activated in time; they do not receive the gateway_start event");
        }
    }

    /// Starts the background services of all plugins.
    ///
    /// The registrations of a plugin may be unknown until its process has started once. So those plugins are started
    /// first, and services only when the hub uses all registrations.
    pub async fn start(&self) {
        self.plugins.discover_registrations().await;
        self.wait_applied().await;
        for service in self.extensions().services {
            if let Err(error) = service.start().await {
                tracing::warn!(plugin = service.plugin(), service = service.id(), %error, "a service could not be started");
            }
        }
    }

    /// Stops the background services in reverse order and ends all plugin processes.
    pub(crate) async fn close(&self) {
        for service in self.extensions().services.iter().rev() {
            service.stop().await;
        }
        self.plugins.close().await;
    }
}

/// Returns the settings of the plugin host.
pub fn setup(loaded: &LoadedConfig<Config>, paths: &Paths) -> PluginSetup {
    PluginSetup {
        settings: loaded.config.plugins.settings(paths),
        state: paths.state.clone(),
        workspaces: plugin_roots(&loaded.config, paths).workspaces,
        config: redact::redact(&loaded.source),
        env: paths::variables().collect(),
        reserved: reserved(),
        timing: ProcessTiming::default(),
    }
}

/// Names that plugins cannot register because the gateway uses them.
fn reserved() -> ReservedNames {
    let all = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    ReservedNames {
        tools: homard_policy::tools::known().map(str::to_owned).collect(),
        commands: all(&homard_command::NAMES),
        methods: homard_gateway::method_names().into_iter().map(str::to_owned).collect(),
        paths: all(&["/", "/health", "/healthz", "/ready", "/readyz", "/v1", "/tools/invoke", "/hooks", "/metrics"]),
    }
}
