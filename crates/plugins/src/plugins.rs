//! The set of plugins: discovery, decisions, and what they register. No process is started before it is needed.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use homard_hooks::{FrequentFailures, Hook, HookPoint, Listener, Registration};
use homard_stdx::sync::Mutex;
use serde_json::{Value, json};
use tokio::{sync::watch, time::Instant};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use crate::{
    admit::ReservedNames,
    discover::{DiscoveredPlugin, PluginOrigin, PluginRoots, discover},
    enable::{EnableDecision, decide, is_wanted},
    endpoints::{PluginCommand, PluginMethod, PluginRoute, PluginService, PluginTarget},
    hook::{PluginHook, PluginListener},
    host::Host,
    host_api::UncaughtErrors,
    manifest::config_problems,
    missing_guards::{MissingGuard, expected_guards},
    node::NodeHost,
    plugin::{self, PluginEnvironment},
    registrations::{HookRegistration, RegistrationKind, Registrations},
    registry::{EnabledPlugin, PluginRegistry},
    settings::Settings,
    supervisor::{ProcessLife, ProcessSupervisor, ProcessTiming, RegistrationAddress, addresses},
    tool::PluginTool,
};

/// Name of the shared Node process.
const NODE_NAME: &str = "node";

/// Time for learning what plugins register.
const LEARN_TIMEOUT: Duration = Duration::from_secs(120);

/// Everything that discovering and starting plugins needs.
#[derive(Debug, Clone, Default)]
pub struct PluginSetup {
    /// The owner's settings.
    pub settings: Settings,
    /// State directory.
    pub state: PathBuf,
    /// Workspaces of the agents, that of the default agent first.
    pub workspaces: Vec<PathBuf>,
    /// The config as visible to plugins: without secrets.
    pub config: Value,
    /// The gateway's environment variables. Plugins see the ones they declare.
    pub env: BTreeMap<String, String>,
    /// Names reserved by the gateway.
    pub reserved: ReservedNames,
    /// Timeouts and delays.
    pub timing: ProcessTiming,
}

/// What plugins register. Plugins whose registrations are not known yet are missing.
#[derive(Clone, Default)]
pub struct Extensions {
    /// Hooks in the order of discovery.
    pub hooks: Vec<Arc<dyn Hook>>,
    /// Listeners.
    pub listeners: Vec<Arc<dyn Listener>>,
    /// Tools.
    pub tools: Vec<Arc<PluginTool>>,
    /// Chat commands.
    pub commands: Vec<PluginCommand>,
    /// Gateway methods.
    pub methods: Vec<PluginMethod>,
    /// HTTP routes, catch-all routes last.
    pub routes: Vec<PluginRoute>,
    /// Background services, to be started in this order and stopped in reverse.
    pub services: Vec<PluginService>,
}

impl std::fmt::Debug for Extensions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Extensions")
            .field("hooks", &self.hooks.len())
            .field("listeners", &self.listeners.len())
            .field("tools", &self.tools)
            .field("commands", &self.commands)
            .finish_non_exhaustive()
    }
}

/// The plugins. Dropping this ends their processes.
#[derive(Debug)]
pub struct Plugins {
    found: Vec<Arc<DiscoveredPlugin>>,
    decisions: BTreeMap<String, EnableDecision>,
    problems: Vec<String>,
    workers: BTreeMap<String, Arc<ProcessSupervisor>>,
    node: Arc<ProcessSupervisor>,
    register: Arc<PluginRegistry>,
    uncaught: UncaughtErrors,
    environment: Arc<PluginEnvironment>,
    /// Guards that the owner expects.
    guards: Vec<MissingGuard>,
    /// Edition for which duplicate names were reported; none at first.
    reported_edition: AtomicU64,
    tasks: TaskTracker,
    stop: CancellationToken,
    _ends: DropGuard,
}

/// Status of a plugin.
#[derive(Debug, Clone, PartialEq)]
pub struct PluginStatus {
    /// Its id.
    pub id: String,
    /// Display name.
    pub title: String,
    /// Version.
    pub version: Option<String>,
    /// Description.
    pub description: Option<String>,
    /// Where it was found.
    pub origin: PluginOrigin,
    /// Its directory.
    pub root: PathBuf,
    /// Whether it is enabled, and why.
    pub verdict: EnableDecision,
    /// State of its process.
    pub state: ProcessState,
    /// Why it could not be loaded.
    pub error: Option<String>,
    /// Rejected registrations, with the reasons.
    pub denied: Vec<String>,
    /// Its registrations, if known: kind and name of each.
    pub registered: Option<Vec<String>>,
}

/// State of a plugin's process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessState {
    /// Not started yet.
    Off,
    /// Starting.
    Starting,
    /// Running.
    Up {
        /// Process id.
        pid: Option<u32>,
    },
    /// It ended, or could not be started.
    Down {
        /// The reason.
        why: String,
        /// Time until the next start.
        wait: Duration,
    },
    /// The circuit breaker is open.
    CircuitOpen {
        /// Time until it closes.
        rest: Duration,
    },
}

impl Plugins {
    /// Discovers plugins and decides which are enabled, without starting them. Requires a Tokio runtime.
    pub fn open(setup: PluginSetup, host: &Arc<dyn Host>) -> Self {
        let PluginSetup { settings, state, workspaces, config, env, reserved, timing } = setup;
        let workspace = workspaces.first().cloned().unwrap_or_default();
        let trusts_workspaces = settings.load.workspace;
        let found = discover(&PluginRoots {
            paths: settings.load.paths.clone(),
            workspaces,
            state: state.clone(),
            trusts_workspaces,
        });
        let candidates: Vec<Arc<DiscoveredPlugin>> = found.candidates.into_iter().map(Arc::new).collect();
        let mut problems = found.problems;
        problems.extend(missing(&candidates, &settings));
        let guards = settings.entries.iter().map(|(id, entry)| (format!("plugins.entries.{id}.guard"), &entry.guard));
        problems.extend(guards.flat_map(|(at, guard)| guard.problems(&at)));
        let decisions: BTreeMap<String, EnableDecision> = candidates
            .iter()
            .map(|candidate| (candidate.manifest.id.clone(), decide(&candidate.manifest, candidate.origin, &settings)))
            .collect();
        let is_enabled = |candidate: &&Arc<DiscoveredPlugin>| {
            decisions.get(&candidate.manifest.id).is_some_and(|verdict| verdict.is_enabled)
        };
        let enabled: Vec<EnabledPlugin> =
            candidates.iter().filter(is_enabled).map(|candidate| enabled_plugin(candidate, &settings)).collect();
        let file = state.join("plugins").join("registrations.json");
        let register = Arc::new(PluginRegistry::open(enabled.clone(), reserved, file));
        let environment = Arc::new(PluginEnvironment { state, workspace, config, env });
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let guards = expected_guards(&settings);
        let node = settings.node;
        let uncaught = UncaughtErrors::default();
        let deps = LauncherDeps {
            node,
            environment: environment.clone(),
            host: host.clone(),
            register: register.clone(),
            uncaught: uncaught.clone(),
        };
        let supervise = |launch| ProcessSupervisor::new(launch, timing, stop.clone(), &tasks);
        let mut workers = BTreeMap::new();
        let mut shared = Vec::new();
        for plugin in enabled {
            let id = plugin.id().to_owned();
            if plugin.candidate.manifest.has_command() {
                workers.insert(id, supervise(Box::new(deps.command(plugin))));
            } else if plugin.entry.isolated {
                workers.insert(id.clone(), supervise(Box::new(deps.node(&id, vec![plugin]))));
            } else {
                shared.push(plugin);
            }
        }
        let ids: Vec<String> = shared.iter().map(|plugin| plugin.id().to_owned()).collect();
        let node = supervise(Box::new(deps.node(NODE_NAME, shared)));
        workers.extend(ids.into_iter().map(|id| (id, node.clone())));
        Self {
            found: candidates,
            decisions,
            problems,
            workers,
            node,
            register,
            uncaught,
            environment,
            guards,
            reported_edition: AtomicU64::new(u64::MAX),
            tasks,
            _ends: stop.clone().drop_guard(),
            stop,
        }
    }

    /// Returns problems found during discovery, as sentences for the owner.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// Notifies of changes of [`Self::extensions`].
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.register.edition.subscribe()
    }

    /// Returns what the plugins register, as far as it is known.
    pub fn extensions(&self) -> Extensions {
        let mut all = Extensions::default();
        for candidate in &self.found {
            let id = &candidate.manifest.id;
            if let Some(worker) = self.workers.get(id) {
                self.extend(&mut all, id, worker);
            }
        }
        for guard in &self.guards {
            let is_known = self.register.of(guard.plugin()).is_some_and(|known| known.registrations.is_some());
            if !guard.is_unneeded(is_known, &all) {
                guard.add_to(&mut all);
            }
        }
        all.routes.sort_by_key(PluginRoute::is_catch_all);
        let edition = *self.register.edition.borrow();
        let is_new_edition = self.reported_edition.swap(edition, Ordering::Relaxed) != edition;
        // Of two registrations with the same name the first is used.
        first_of_each(&mut all.tools, is_new_edition, |tool| tool.name().to_owned());
        first_of_each(&mut all.commands, is_new_edition, |command| command.name().to_owned());
        first_of_each(&mut all.methods, is_new_edition, |method| method.name().to_owned());
        all
    }

    fn extend(&self, all: &mut Extensions, id: &str, worker: &Arc<ProcessSupervisor>) {
        let Some(known) = self.register.of(id) else { return };
        // Declared guards apply even if the other registrations are unknown or the plugin cannot be loaded.
        let registrations = known.registrations.unwrap_or_else(|| guards(&known.candidate));
        let mut addresses_by_kind = BTreeMap::<RegistrationKind, Vec<RegistrationAddress>>::new();
        for (address, _) in addresses(id, &registrations) {
            addresses_by_kind.entry(address.kind).or_default().push(address);
        }
        // In the order of the registrations, of which there are equally many.
        let mut targets = |kind| {
            addresses_by_kind
                .remove(&kind)
                .unwrap_or_default()
                .into_iter()
                .map(|address| PluginTarget { worker: worker.clone(), address })
        };
        for (target, declared) in targets(RegistrationKind::Hook).zip(&registrations.hooks) {
            let Some(point) = HookPoint::named(&declared.name) else { continue };
            let deadline = known.entry.hooks.deadline(&declared.name, declared.timeout_ms);
            let is_guard = declared.guard || (point.can_block() && known.entry.guard.covers(point.name()));
            let registration = Registration { point, priority: declared.priority, is_guard, deadline };
            let (PluginTarget { worker, address }, is_warned) = (target, AtomicBool::new(false));
            all.hooks.push(Arc::new(PluginHook { worker, address, registration, is_warned }));
        }
        for (target, declared) in targets(RegistrationKind::Listener).zip(&registrations.internal_hooks) {
            let events = declared.events.clone();
            let (PluginTarget { worker, address }, guard) = (target, known.entry.guard.clone());
            all.listeners.push(Arc::new(PluginListener { worker, address, events, guard }));
        }
        for (target, declared) in
            targets(RegistrationKind::Tool).zip(&registrations.tools).filter(|(_, declared)| !declared.name.is_empty())
        {
            all.tools.push(Arc::new(PluginTool::new(target.worker, target.address, declared.clone())));
        }
        all.commands.extend(
            targets(RegistrationKind::Command)
                .zip(registrations.commands)
                .map(|(target, declared)| PluginCommand { target, registration: declared }),
        );
        all.methods.extend(
            targets(RegistrationKind::Method)
                .zip(registrations.gateway_methods)
                .map(|(target, declared)| PluginMethod { target, registration: declared }),
        );
        all.routes.extend(
            targets(RegistrationKind::Route)
                .zip(registrations.http_routes)
                .map(|(target, declared)| PluginRoute { target, registration: declared }),
        );
        let context = json!({"stateDir": self.environment.state, "workspaceDir": self.environment.workspace});
        all.services.extend(
            targets(RegistrationKind::Service).map(|target| PluginService { target, context: context.clone() }),
        );
    }

    /// Starts the plugins whose registrations are unknown, concurrently, and waits for them. For a gateway that is
    /// ready and idle.
    pub async fn discover_registrations(&self) {
        let unknown = self.register.unknown();
        let workers = unknown.iter().filter_map(|id| Some((id, self.workers.get(id)?)));
        let starting = workers.map(|(id, worker)| async move {
            let result = tokio::time::timeout(LEARN_TIMEOUT, worker.up()).await;
            let reason = match result {
                Ok(Ok(_)) => return,
                Ok(Err(error)) => error.to_string(),
                Err(_) => "the plugin did not start in time".to_owned(),
            };
            self.register.update(id, Err(reason));
        });
        futures_util::future::join_all(starting).await;
    }

    /// Starts all enabled plugins concurrently, so that the first call does not wait.
    pub async fn start_all(&self) {
        let starting = self.workers.iter().map(|(plugin, worker)| async move {
            if let Err(error) = worker.up().await {
                tracing::warn!(plugin, %error, "failed to start a plugin");
            }
        });
        futures_util::future::join_all(starting).await;
    }

    /// Returns the status of each plugin, in the order of discovery, which is also the order of calls.
    pub fn status(&self) -> Vec<PluginStatus> {
        let status = |candidate: &Arc<DiscoveredPlugin>| {
            let manifest = &candidate.manifest;
            let known = self.register.of(&manifest.id);
            let registered = known.as_ref().and_then(|known| known.registrations.as_ref()).map(|registrations| {
                registrations.handles().map(|(kind, name, _)| format!("{} {name}", kind.name())).collect()
            });
            PluginStatus {
                id: manifest.id.clone(),
                title: manifest.title().to_owned(),
                version: manifest.version.clone(),
                description: manifest.description.clone(),
                origin: candidate.origin,
                root: candidate.root.clone(),
                verdict: self
                    .decisions
                    .get(&manifest.id)
                    .cloned()
                    .unwrap_or(EnableDecision { is_enabled: false, why: String::new() }),
                state: self.state(&manifest.id),
                error: known.as_ref().and_then(|known| known.error.clone()),
                denied: known.map(|known| known.rejected).unwrap_or_default(),
                registered,
            }
        };
        self.found.iter().map(status).collect()
    }

    fn state(&self, id: &str) -> ProcessState {
        let Some(worker) = self.workers.get(id) else { return ProcessState::Off };
        if let Some(remaining) = worker.breaker_open_for(id) {
            return ProcessState::CircuitOpen { rest: remaining };
        }
        let process_life = worker.state().borrow().clone();
        match process_life {
            ProcessLife::Off | ProcessLife::Over => ProcessState::Off,
            ProcessLife::Starting => ProcessState::Starting,
            ProcessLife::Up(process) => ProcessState::Up { pid: process.session.pid() },
            ProcessLife::Down { why: reason, until, .. } => {
                ProcessState::Down { why: reason, wait: until.saturating_duration_since(Instant::now()) }
            }
        }
    }

    /// Returns the plugins that repeatedly throw uncaught errors.
    pub fn frequent_errors(&self) -> Vec<FrequentFailures> {
        self.uncaught.frequent()
    }

    /// Returns the runner of hook handlers and transforms in JavaScript.
    pub fn node(&self) -> crate::scripts::NodeScripts {
        crate::scripts::NodeScripts::new(self.node.clone())
    }

    /// Ends all processes, gracefully first, and waits until they are gone.
    pub async fn close(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Returns the guards of a plugin whose other registrations are unknown.
fn guards(candidate: &DiscoveredPlugin) -> Registrations {
    let guard = |name: &String| HookRegistration { guard: true, ..HookRegistration::from(name.clone()) };
    Registrations { hooks: candidate.manifest.guard.iter().map(guard).collect(), ..Registrations::default() }
}

fn first_of_each<T>(items: &mut Vec<T>, is_new_edition: bool, name: impl Fn(&T) -> String) {
    let mut seen = BTreeSet::new();
    items.retain(|item| {
        let is_first = seen.insert(name(item));
        if !is_first && is_new_edition {
            tracing::warn!(name = name(item), "two plugins register the same name; using the first");
        }
        is_first
    });
}

/// Builds an enabled plugin, with the reason why it must not start, if any.
fn enabled_plugin(candidate: &Arc<DiscoveredPlugin>, settings: &Settings) -> EnabledPlugin {
    let id = &candidate.manifest.id;
    let entry = settings.entry(id);
    let config_errors = config_problems(&candidate.manifest, &entry.config);
    let start_error = (!config_errors.is_empty()).then(|| {
        format!("plugins.entries.{id}.config does not match the plugin's configSchema: {}", config_errors.join("; "))
    });
    let installed_hash = settings.installs.get(id).and_then(|install| install.hash.clone());
    EnabledPlugin { candidate: candidate.clone(), entry, installed_hash, start_error }
}

/// Returns messages about plugins that the owner enabled and that were not found.
fn missing(found: &[Arc<DiscoveredPlugin>], settings: &Settings) -> Vec<String> {
    let configured = settings.entries.keys().chain(&settings.allow);
    let is_missing =
        |id: &&String| is_wanted(id, settings) && !found.iter().any(|candidate| candidate.manifest.id == **id);
    let ids: BTreeSet<&String> = configured.filter(is_missing).collect();
    let describe = |id: &String| {
        let guard = settings.installs.get(id).map(|install| install.guard.join(", ")).unwrap_or_default();
        let guards = if guard.is_empty() {
            "its guards, if any, are not active".to_owned()
        } else {
            format!(
                "operations at the hooks that it guards ({guard}) are blocked until the plugin is reinstalled or disabled"
            )
        };
        format!("the plugin {id} is enabled in the config but was not found or cannot be used; {guards}")
    };
    ids.into_iter().map(describe).collect()
}

/// Dependencies of all launchers.
struct LauncherDeps {
    node: Option<PathBuf>,
    environment: Arc<PluginEnvironment>,
    host: Arc<dyn Host>,
    register: Arc<PluginRegistry>,
    uncaught: UncaughtErrors,
}

impl LauncherDeps {
    fn command(&self, plugin: EnabledPlugin) -> plugin::CommandLauncher {
        let (environment, host, register) = (self.environment.clone(), self.host.clone(), self.register.clone());
        plugin::CommandLauncher { plugin, environment, host, register, uncaught: self.uncaught.clone() }
    }

    fn node(&self, name: &str, plugins: Vec<EnabledPlugin>) -> NodeHost {
        NodeHost {
            name: name.to_owned(),
            plugins,
            node: self.node.clone(),
            environment: self.environment.clone(),
            host: self.host.clone(),
            register: self.register.clone(),
            uncaught: self.uncaught.clone(),
            skipped: Mutex::default(),
        }
    }
}
