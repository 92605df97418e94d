//! Builds agents from a config. Holds the state that survives a config reload: credential health and cached workspace
//! files.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use homard_agent::{
    Agents, Profile, RunBounds, RunSettings,
    hub::WorkingDirs,
    profile::{AgentIdentity, Confinement, LevelSettings, ModelResolver, RetrySettings, RetryTime},
    tool::Toolbox,
};
use homard_audit::Audit;
use homard_channel_runtime::Channels;
use homard_compact::Settings;
use homard_config::LoadedConfig;
use homard_credentials::auth_profiles::{
    self, Keyring,
    health_writer::{HealthWriter, HealthWriterTask},
};
use homard_model::{Error, ErrorKind, ModelSpec, candidates::Candidates};
use homard_prompt::{
    PromptConfig,
    config::{HostInfo, PictureSources, PromptStyle},
    shortening,
};
use homard_providers::HttpClient;
use homard_request_log::RequestLog;
use homard_runtime::ambient::Ambient;
use homard_schedule::Schedule;
use homard_secrets::Secrets;
use homard_settings::{
    Config, NamedModel, Text,
    agent_directories::{sandboxing, workspace},
    agents::{Agent, Choice, ConfiguredAgent, Style as Said},
    paths::{self, Paths},
};
use homard_store::timeline::PromptCuts;
use homard_tools::BackgroundCommands;
use homard_workspace::{Audience, BootstrapLimits, BootstrapReader, Starter};
use jiff::tz::TimeZone;

use super::{
    Purpose, keys,
    model_chain::{ModelChain, SelectionReason},
    models::{Models, UnusableModel},
    plugins::PluginSet,
    secrets,
    skills::SkillLibrary,
    timeout, working_dir,
};
use crate::toolbox::{self, ToolDeps};
use crate::{masks::Masks, reload::ConfigReloader};

/// Builds agents from configs. Clones share their state.
#[derive(Debug, Clone)]
pub struct AgentFactory {
    paths: Paths,
    purpose: Purpose,
    reader: Arc<BootstrapReader>,
    pub(super) tool_deps: ToolDeps,
    /// Plugins and hooks. Changing the set requires a restart.
    pub plugins: PluginSet,
    pub channels: Channels,
    /// The security audit log.
    pub audit: Audit,
    /// Where the prompts of model requests are kept.
    pub request_log: RequestLog,
    /// The values that are masked in the log.
    masks: Arc<OnceLock<Masks>>,
    shared: Arc<Mutex<FactoryState>>,
}

/// State that is kept across config reloads.
#[derive(Debug, Default)]
struct FactoryState {
    keyrings: BTreeMap<PathBuf, Arc<Keyring>>,
    /// Tasks that persist the health of credentials.
    health_writers: Vec<HealthWriterTask>,
    libraries: Vec<SkillLibrary>,
    /// Secrets to mask.
    secrets: Vec<Secrets>,
}

/// The agents of a config, with remarks and warnings.
#[derive(Debug)]
pub(super) struct AgentSet {
    pub agents: Agents,
    /// About a model that Homard chose by itself.
    pub remark: Option<String>,
    /// Warnings. The agents work nevertheless, without the broken part.
    pub warnings: Vec<String>,
}

/// Opens the log of the prompts of model requests.
fn request_log(paths: &Paths, config: &Config) -> RequestLog {
    let ambient = Ambient::system();
    let max_bytes = config.trace.keep_prompt_bytes.unwrap_or(homard_request_log::DEFAULT_MAX_BYTES);
    RequestLog::open(paths.state.join("prompts"), max_bytes, move || ambient.now_ms())
}

impl AgentFactory {
    /// Creates the factory and returns warnings about plugins and hooks of the config.
    pub(crate) fn new(
        paths: &Paths,
        purpose: Purpose,
        loaded: &LoadedConfig<Config>,
        audit: Audit,
    ) -> (Self, Vec<String>) {
        let hub = Arc::default();
        let background = BackgroundCommands::default();
        let (plugins, warnings) = PluginSet::open(loaded, paths, &hub, &background);
        let channels = Channels::new(paths, &hub);
        let factory = Self {
            paths: paths.clone(),
            purpose,
            reader: Arc::new(BootstrapReader::with_gate(background.load_gate())),
            tool_deps: ToolDeps {
                background,
                gateway: match purpose {
                    Purpose::Gateway => Some(toolbox::GatewayDeps::default()),
                    Purpose::OneTurn => None,
                },
                hub,
                sender: Some(Arc::new(channels.clone())),
                audit: audit.clone(),
                ..ToolDeps::default()
            },
            plugins,
            channels,
            audit,
            request_log: request_log(paths, &loaded.config),
            masks: Arc::default(),
            shared: Arc::default(),
        };
        (factory, warnings)
    }

    /// Returns the check for working directories that requests name.
    pub(crate) fn working_dirs(&self, config: &Config) -> WorkingDirs {
        let (config, paths) = (config.clone(), self.paths.clone());
        WorkingDirs::new(move |directory| working_dir::check_requested(directory, &config, &paths))
    }

    /// Connects the tools that need the gateway. The schedule is optional.
    pub fn open_gateway(&self, live: &ConfigReloader, schedule: Option<&Schedule>) {
        let Some(deps) = &self.tool_deps.gateway else { return };
        // Only one gateway is expected per factory; a second one is ignored.
        deps.live.get_or_init(|| live.clone());
        if let Some(schedule) = schedule {
            deps.schedule.get_or_init(|| schedule.clone());
        }
    }

    /// Masks all secrets of this config, and of later ones, in the log.
    pub fn mask_in(&self, masks: &Masks) {
        masks.hide_all(self.shared().secrets.clone());
        // There is one log per process.
        self.masks.get_or_init(|| masks.clone());
    }

    /// Waits until the set of available tools has changed.
    pub(crate) async fn tools_changed(&self) {
        tokio::select! {
            biased;
            () = self.tool_deps.mcp.changed() => {}
            () = self.plugins.changed() => {}
        }
    }

    /// Ends the plugins and MCP servers.
    pub(crate) async fn close(&self) {
        self.plugins.close().await;
        self.tool_deps.mcp.close().await;
    }

    /// Writes pending changes of credential health.
    pub(crate) async fn flush(&self) {
        let writers = std::mem::take(&mut self.shared().health_writers);
        for writer in writers {
            writer.stop().await;
        }
    }

    /// Returns the skills of every agent.
    pub(crate) fn libraries(&self) -> Vec<SkillLibrary> {
        self.shared().libraries.clone()
    }

    fn shared(&self) -> MutexGuard<'_, FactoryState> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Builds the agents of a config.
    pub(super) fn build_agents(&self, loaded: &LoadedConfig<Config>) -> Result<AgentSet, crate::Error> {
        // Mask first: the programs of this config that are started next may quote secrets in their errors.
        if let Some(masks) = self.masks.get() {
            let new = secrets::of_config(loaded, &self.paths);
            masks.hide_all(self.shared().secrets.iter().cloned().chain([new]).collect());
        }
        let models = Arc::new(Models::new(&loaded.config, super::environment(&loaded.variables), &self.paths.state));
        let (toolbox, warnings) = self.tool_deps.toolbox(loaded, &self.paths, self.plugins.tools(&loaded.config));
        let secrets = BTreeMap::new();
        let mut builder =
            AgentBuilder { loaded, models, toolbox, secrets, libraries: Vec::new(), remark: None, warnings };
        let (mut first, mut others, mut ids) = (None, Vec::new(), BTreeSet::new());
        for agent in loaded.config.agents.members() {
            if !ids.insert(agent.id.clone()) {
                continue;
            }
            let profile = self.profile(&mut builder, &agent)?;
            if agent.is_default { first = Some(profile) } else { others.push(profile) }
        }
        let agents =
            Agents::new(first.ok_or_else(|| crate::Error::Config("no agent is configured".to_owned()))?, others);
        let AgentBuilder { libraries, remark, warnings, secrets, .. } = builder;
        let mut shared = self.shared();
        shared.libraries = libraries;
        shared.secrets = secrets.into_values().collect();
        if let Some(masks) = self.masks.get() {
            masks.hide_all(shared.secrets.clone());
        }
        drop(shared);
        Ok(AgentSet { agents, remark, warnings })
    }

    fn profile(&self, builder: &mut AgentBuilder<'_>, agent: &ConfiguredAgent<'_>) -> Result<Profile, crate::Error> {
        let (config, paths) = (&builder.loaded.config, self.paths.clone());
        let keyring = self.keyring(auth_profiles::credentials_file(&paths, agent), &builder.models.client)?;
        let (candidates, chain) = builder.candidates(agent, &keyring, &paths.config);
        let workspace = workspace(config, &paths, agent);
        builder.warnings.extend(create_workspace(config, agent, &workspace));
        let library = SkillLibrary::of(builder.loaded, &paths, agent, &workspace).with_reader(self.reader.clone());
        for problem in library
            .refresh()
            .problems
            .iter()
            .filter(|problem| problem.level == homard_workspace::skills::ProblemLevel::Warning)
        {
            tracing::warn!(path = %problem.path.display(), "problem in a skill: {}", problem.message);
        }
        let prompt = PromptConfig {
            workspace: Some(workspace.clone()),
            limits: limits(config),
            reader: self.reader.clone(),
            style: style(config),
            skills: library.published.clone(),
            zone: Some(builder.time_zone()),
            aliases: builder.models.names.aliases(),
            heartbeat: heartbeat_prompt(config, agent),
            machine: machine(config),
            // A run may override these.
            mode: None,
            omits_files: false,
            pictures: Some(PictureSources { home: paths::home(), is_confined: false }),
        };
        builder.libraries.push(library);
        let (settings, defaults) = (agent.config, &config.agents.defaults);
        let secrets = builder.secrets(&paths, &keyring);
        Ok(Profile {
            name: settings.name.as_ref().map(|name| secrets.mask(name).into_owned()),
            identity: self.identity(settings, &workspace, &secrets),
            toolbox: builder.toolbox.clone(),
            rules: Some(toolbox::rules(config, agent)),
            workdir: workspace,
            sandboxing: sandboxing(config, &paths, agent),
            confinement: Confinement {
                covers_commands: homard_settings::sandbox_policy(config, &paths).mode
                    != homard_sandbox::AccessMode::Full,
                ..Confinement::default()
            },
            prompt,
            timeout: timeout(config),
            run: RunSettings {
                is_one_shot: self.purpose == Purpose::OneTurn,
                bounds: bounds(config),
                ..RunSettings::default()
            },
            retry: RetrySettings { time: retry_time(config), ..RetrySettings::default() },
            compaction: builder.compaction(),
            pruning: config.agents.defaults.context_pruning.settings(),
            delivery: config.delivery(agent.config),
            secrets,
            selectable_models: builder.models.selectable(),
            resolve_model: choose(builder.models.clone(), keyring, builder.extra_models(chain)),
            default_levels: LevelSettings {
                thinking: settings.thinking_default.or(defaults.thinking_default).map(|word| word.0),
                verbose: settings.verbose_default.or(defaults.verbose_default).map(|word| word.0.0),
                reasoning: settings.reasoning_default.or(defaults.reasoning_default).map(|word| word.0.0),
            },
            ..Profile::new(agent.id.clone(), candidates)
        })
    }

    /// Returns the identity of an agent. Fields that the config does not set may come from the agent's IDENTITY.md.
    fn identity(&self, settings: &Agent, workspace: &Path, secrets: &Secrets) -> AgentIdentity {
        let identity = settings.identity.clone();
        let persona = self.reader.file(workspace, "IDENTITY.md", 20_000).ok().flatten().unwrap_or_default();
        let persona = homard_workspace::AgentPersona::parse(&persona);
        let masked = |text: Option<String>| text.map(|text| secrets.mask(&text).into_owned());
        AgentIdentity {
            name: masked(identity.name.or(persona.name)),
            emoji: masked(identity.emoji.or(persona.emoji)),
            theme: masked(identity.theme.or(persona.theme)),
            avatar: identity.avatar.or(persona.avatar),
        }
    }

    /// Reads the credentials of a file again; agents may share a file.
    fn keyring(&self, path: PathBuf, client: &HttpClient) -> Result<Arc<Keyring>, crate::Error> {
        let mut shared = self.shared();
        let keyring = match shared.keyrings.get(&path) {
            Some(known) => known.reread(client)?,
            None => {
                let (keyring, writer) = Keyring::open(path.clone(), client)?;
                shared.health_writers.push(HealthWriter::start(writer));
                keyring
            }
        };
        let keyring = Arc::new(keyring);
        shared.keyrings.insert(path, keyring.clone());
        Ok(keyring)
    }
}

/// Inputs for building the agents of one config, and the warnings collected on the way.
struct AgentBuilder<'a> {
    loaded: &'a LoadedConfig<Config>,
    models: Arc<Models>,
    toolbox: Toolbox,
    /// By credentials file.
    secrets: BTreeMap<PathBuf, Secrets>,
    libraries: Vec<SkillLibrary>,
    remark: Option<String>,
    warnings: Vec<String>,
}

impl AgentBuilder<'_> {
    /// Builds the candidates of an agent. If there are none, its requests fail with the reason; other agents are not
    /// affected.
    fn candidates(
        &mut self,
        agent: &ConfiguredAgent<'_>,
        keyring: &Keyring,
        config: &Path,
    ) -> (Candidates, Option<ModelChain>) {
        let models = &self.models;
        let chain = ModelChain::of(&self.loaded.config, agent.config, models, keyring);
        let found = chain.and_then(|chain| Ok((models.candidates(keyring, &chain.models)?, chain)));
        match found {
            Ok((candidates, chain)) => {
                if agent.is_default {
                    self.remark = chain.remark(config);
                    self.warnings.extend(no_usable_key(&chain, keyring));
                }
                (candidates, Some(chain))
            }
            Err(error) => {
                let text = format!("agent {}: config file {}: {error:#}", agent.id, config.display());
                // Config faults are reported separately, with their place in the file.
                if !self.loaded.faults.iter().any(|fault| text.contains(&fault.problem.message)) {
                    self.warnings.push(text.clone());
                }
                let error = Error::new(ErrorKind::Rejected, text);
                (Candidates::single(Arc::new(UnusableModel { spec: ModelSpec::default(), error })), None)
            }
        }
    }

    /// Returns the secrets to mask in tool output; agents with the same credentials share them.
    fn secrets(&mut self, paths: &Paths, keyring: &Keyring) -> Secrets {
        let make = || secrets::all(self.loaded, paths, keyring);
        self.secrets.entry(keyring.path.clone()).or_insert_with(make).clone()
    }

    /// Returns the models that may be selected although the allowlist does not have them: the agent's own, the image
    /// model and the compaction model.
    fn extra_models(&self, chain: Option<ModelChain>) -> Vec<NamedModel> {
        let defaults = &self.loaded.config.agents.defaults;
        let image_models = defaults.image_model.as_ref().into_iter().flat_map(Choice::names);
        let compaction_model = defaults.compaction.model.as_ref().map(Text::as_str);
        let others = image_models.chain(compaction_model).filter_map(|name| self.models.entry(name).ok());
        chain.into_iter().flat_map(|chain| chain.models).chain(others).collect()
    }

    /// Returns the compaction settings. If the compaction model is unknown, the run's model is used, with a warning.
    fn compaction(&mut self) -> Settings {
        let settings = &self.loaded.config.agents.defaults.compaction;
        let name = settings.model.as_ref().map(Text::as_str).filter(|name| !name.trim().is_empty());
        let model = name.and_then(|name| match self.models.entry(name) {
            Ok(named) => Some(named.name()),
            Err(error) => {
                self.warn(format!(
                    "agents.defaults.compaction.model is \"{name}\": {error:#}; compaction uses the run's model"
                ));
                None
            }
        });
        Settings { model, ..settings.settings() }
    }

    /// Adds a warning, once for all agents.
    fn warn(&mut self, text: String) {
        if !self.warnings.contains(&text) {
            self.warnings.push(text);
        }
    }

    /// Returns the user's time zone.
    fn time_zone(&mut self) -> TimeZone {
        let Some(name) = self.loaded.config.agents.defaults.user_timezone.as_deref() else { return TimeZone::system() };
        TimeZone::get(name.trim()).unwrap_or_else(|_unknown| {
            let text = format!(
                "agents.defaults.userTimezone is \"{name}\", which is not a time zone; use a name such as Europe/Berlin"
            );
            self.warn(text);
            TimeZone::system()
        })
    }
}

/// Returns a warning if there are credential profiles but none is usable, so that the demo model answers.
fn no_usable_key(chain: &ModelChain, keyring: &Keyring) -> Option<String> {
    let broken = |profile: &auth_profiles::CredentialProfile| {
        Some(format!("{}: {}", profile.id, keys::unusable_reason(profile)?))
    };
    let why = keyring.profiles.iter().find_map(broken).filter(|_| chain.reason == SelectionReason::DemoModel)?;
    Some(format!("no API key is usable ({why}), so the demo model is used; see: homard models status"))
}

fn choose(models: Arc<Models>, keyring: Arc<Keyring>, listed: Vec<NamedModel>) -> ModelResolver {
    Arc::new(move |name| models.pinned(&keyring, name, &listed).map_err(|error| format!("{error:#}")))
}

fn bounds(config: &Config) -> RunBounds {
    let (limits, defaults) = (&config.agents.defaults.run_limits, RunBounds::default());
    RunBounds {
        turns: limits.turns.unwrap_or(defaults.turns),
        calls: limits.tool_calls.unwrap_or(defaults.calls),
        repeats: limits.repeats.unwrap_or(defaults.repeats),
        errors: limits.errors.unwrap_or(defaults.errors),
        cost: limits.cost_usd,
    }
}

fn retry_time(config: &Config) -> RetryTime {
    let (retry, defaults) = (&config.agents.defaults.retry, RetryTime::default());
    RetryTime {
        attended: retry.max_total_seconds.map_or(defaults.attended, Duration::from_secs),
        unattended: retry.unattended_max_total_seconds.map_or(defaults.unattended, Duration::from_secs),
    }
}

/// Creates the workspace of an agent. Returns a warning if it cannot be created now: every run retries, and fails if it
/// still cannot.
fn create_workspace(config: &Config, agent: &ConfiguredAgent<'_>, workspace: &Path) -> Option<String> {
    let starter = match config.agents.defaults.skip_bootstrap {
        Some(true) => Starter::FolderOnly,
        Some(false) | None => Starter::Files,
    };
    match homard_workspace::create(workspace, starter) {
        Ok(created) => {
            created.problems.first().map(|problem| format!("{}: {}", problem.path.display(), problem.message))
        }
        Err(error) => Some(format!("agent {}: {error}", agent.id)),
    }
}

fn limits(config: &Config) -> BootstrapLimits {
    let (defaults, limits) = (&config.agents.defaults, BootstrapLimits::default());
    let number = |configured: Option<u64>, limits| {
        configured.map_or(limits, |configured| usize::try_from(configured).unwrap_or(usize::MAX))
    };
    BootstrapLimits {
        per_file: number(defaults.bootstrap_max_chars, limits.per_file),
        total: number(defaults.bootstrap_total_max_chars, limits.total),
    }
}

/// Returns the configured heartbeat prompt of an agent.
fn heartbeat_prompt(config: &Config, agent: &ConfiguredAgent<'_>) -> Option<String> {
    let heartbeat = config.agents.defaults.heartbeat.heartbeat(agent.config.heartbeat.as_ref(), agent.id.clone());
    heartbeat.ok().and_then(|heartbeat| heartbeat.prompt)
}

fn style(config: &Config) -> PromptStyle {
    match config.agents.defaults.prompt_style.map(|word| word.0) {
        None | Some(Said::Auto) => PromptStyle::Auto,
        Some(Said::Rich) => PromptStyle::Rich,
        Some(Said::Lean) => PromptStyle::Lean,
        Some(Said::Bare) => PromptStyle::Bare,
    }
}

fn machine(config: &Config) -> HostInfo {
    let repo = config.agents.defaults.repo_root.as_ref();
    HostInfo {
        host: rustix::system::uname().nodename().to_str().ok().map(str::to_owned),
        os: Some(std::env::consts::OS.to_owned()),
        arch: Some(std::env::consts::ARCH.to_owned()),
        shell: paths::env("SHELL").and_then(|shell| shell.into_string().ok()),
        repo: repo.map(|repo| repo.as_str().to_owned()),
    }
}

/// Returns which parts of an agent's prompt are omitted or truncated for this model, with the current config and files;
/// `None` if it is complete.
pub fn shortened(
    config: &Config,
    paths: &Paths,
    agent: &ConfiguredAgent<'_>,
    model: &NamedModel,
) -> Option<PromptCuts> {
    let folder = workspace(config, paths, agent);
    let files = BootstrapReader::default().pages(&folder, Audience::Main, &limits(config));
    shortening::of(style(config), &model.spec(), &files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_have_the_limits_of_the_config() {
        let text = "{agents: {defaults: {runLimits: {costUsd: 0.25}, retry: {unattendedMaxTotalSeconds: 9},
            bootstrapTotalMaxChars: 11, repoRoot: '/src'}}}";
        let (config, none) = (Config::parse(text).unwrap(), Config::parse("{}").unwrap());
        assert_eq!((bounds(&config).cost, bounds(&none).cost), (Some(0.25), None));
        let retry = retry_time(&config);
        assert_eq!(retry, RetryTime { unattended: Duration::from_secs(9), ..retry_time(&none) });
        assert_eq!((limits(&config).total, limits(&config).per_file), (11, limits(&none).per_file));
        assert_eq!((machine(&config).repo.as_deref(), machine(&none).repo), (Some("/src"), None));
    }
}
