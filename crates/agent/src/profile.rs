//! Agents: their configuration for the loop, and the set of all agents.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use homard_command::DefaultLevels;
use homard_compact::{Settings, prune};
use homard_model::{
    ModelSpec, ReasoningLevel,
    candidates::Candidates,
    retry::{self, RetryLimits},
};
use homard_prompt::config::{PictureSources, PromptConfig};
use homard_proto::{AgentId, SessionKey};
use homard_secrets::Secrets;
use homard_store::RunOverrides;
use homard_workspace::Starter;

use crate::{
    access::{Placement, ToolRules},
    reply_settings::DeliverySettings,
    run::guard::RunBounds,
    sandboxing::{self, SandboxView, Sandboxing, WorkspaceAccess},
    tool::{RunOrigin, Toolbox},
};

/// Tools that change files. If the agent's workspace is read-only, sandboxed runs do not have them, as in OpenClaw.
const FILE_WRITE_TOOLS: [&str; 3] = ["write", "edit", "apply_patch"];
/// The tool that sends messages to people.
const MESSAGE_TOOL: &str = "message";

/// Configuration of an agent: models, tools, workspace and limits. A run keeps the profile it started with.
#[derive(Clone)]
pub struct Profile {
    /// Id of the agent.
    pub id: AgentId,
    /// Display name.
    pub name: Option<String>,
    /// Public identity: name, emoji, personality and avatar.
    pub identity: AgentIdentity,
    /// Model candidates: the primary model and its fallbacks.
    pub candidates: Candidates,
    /// Resolves the model chosen for a session.
    pub resolve_model: ModelResolver,
    /// Models that may be chosen, as `provider/model`; empty if any may be.
    pub selectable_models: Arc<[String]>,
    /// Retries of failed model requests.
    pub retry: RetrySettings,
    /// All tools of the agent.
    pub toolbox: Toolbox,
    /// Tool policies; `None` allows all tools to everyone.
    pub rules: Option<ToolRules>,
    /// Working directory of its tools.
    pub workdir: PathBuf,
    /// Which of its sessions are sandboxed.
    pub sandboxing: Sandboxing,
    /// How its runs are confined.
    pub confinement: Confinement,
    /// Inputs of its system prompts.
    pub prompt: PromptConfig,
    /// Time limit of a run; `None` for no limit.
    pub timeout: Option<Duration>,
    /// How its runs are executed.
    pub run: RunSettings,
    /// Compaction settings.
    pub compaction: Settings,
    /// Pruning of old tool results in requests; `None` to disable it.
    pub pruning: Option<prune::Settings>,
    /// Reply delivery settings.
    pub delivery: DeliverySettings,
    /// Secrets to mask.
    pub secrets: Secrets,
    /// Default levels of its sessions.
    pub default_levels: LevelSettings,
}

/// Retries of failed model requests.
#[derive(Debug, Clone, Copy, Default)]
pub struct RetrySettings {
    /// Limits of one request.
    pub limits: RetryLimits,
    /// Maximum total time.
    pub time: RetryTime,
}

/// How the runs of an agent are executed.
#[derive(Debug, Clone, Default)]
pub struct RunSettings {
    /// How several tool calls of one assistant message are executed.
    pub tool_mode: ToolMode,
    /// True if the process ends with its run: no follow-up runs are started.
    pub is_one_shot: bool,
    /// Limits of a run.
    pub bounds: RunBounds,
    /// Model of this run as `provider/model`, overriding the session's.
    pub model: Option<String>,
}

/// How the runs of an agent are confined.
#[derive(Debug, Clone, Default)]
pub struct Confinement {
    /// Set for a sandboxed run: its access to the agent's workspace.
    pub sandbox: Option<SandboxView>,
    /// True if commands are sandboxed in every session: `tools.exec.sandbox.mode` is not `full`.
    pub covers_commands: bool,
}

/// Default levels of an agent's sessions; `None` for the program's own default.
#[derive(Debug, Clone, Copy, Default)]
pub struct LevelSettings {
    /// Thinking level.
    pub thinking: Option<ReasoningLevel>,
    /// Verbosity of tool output.
    pub verbose: Option<&'static str>,
    /// Visibility of reasoning.
    pub reasoning: Option<&'static str>,
}

/// Resolves a model `provider/model` that was chosen for a session; it has no fallbacks of the agent. An error says why
/// it is not available.
pub type ModelResolver = Arc<dyn Fn(&str) -> Result<Candidates, String> + Send + Sync>;

impl Profile {
    /// An agent without tools, with the process's working directory and a time limit of ten minutes.
    pub fn new(id: AgentId, candidates: Candidates) -> Self {
        Self {
            id,
            name: None,
            identity: AgentIdentity::default(),
            candidates,
            resolve_model: Arc::new(|name| Err(format!("unknown model {name}"))),
            selectable_models: Arc::default(),
            retry: RetrySettings::default(),
            toolbox: Toolbox::default(),
            rules: None,
            workdir: PathBuf::from("."),
            sandboxing: Sandboxing::default(),
            confinement: Confinement::default(),
            prompt: PromptConfig::default(),
            timeout: Some(Duration::from_secs(600)),
            run: RunSettings::default(),
            compaction: Settings::default(),
            pruning: None,
            delivery: DeliverySettings::default(),
            secrets: Secrets::default(),
            default_levels: LevelSettings::default(),
        }
    }

    /// Returns the default levels of a session with this model.
    pub(crate) fn levels(&self, spec: &ModelSpec) -> DefaultLevels {
        let default_thinking = if spec.thinking.is_empty() { ReasoningLevel::Off } else { ReasoningLevel::Low };
        let DefaultLevels { verbose, reasoning, .. } = DefaultLevels::default();
        DefaultLevels {
            thinking: self.default_levels.thinking.unwrap_or(default_thinking).as_str(),
            verbose: self.default_levels.verbose.unwrap_or(verbose),
            reasoning: self.default_levels.reasoning.unwrap_or(reasoning),
        }
    }

    /// Returns the tools of a run with this model.
    pub fn tools_for(&self, origin: &RunOrigin, key: &SessionKey, spec: &ModelSpec) -> Toolbox {
        self.tools_at(origin, key, u32::from(key.is_subagent()), spec)
    }

    /// Like [`Self::tools_for`], with an explicit sub-agent depth. A sub-agent session has at least depth 1.
    pub(crate) fn tools_at(&self, origin: &RunOrigin, key: &SessionKey, depth: u32, spec: &ModelSpec) -> Toolbox {
        let is_sandboxed = self.sandboxing.is_sandboxed(key);
        let tools = match &self.rules {
            Some(rules) => {
                let depth = depth.max(u32::from(key.is_subagent()));
                rules.apply(&self.toolbox, origin, Placement { depth, is_sandboxed }, spec)
            }
            None => self.toolbox.clone(),
        };
        match is_sandboxed && self.sandboxing.access == WorkspaceAccess::Ro {
            true => tools.only(|name| !FILE_WRITE_TOOLS.contains(&name)),
            false => tools,
        }
    }

    /// True if a run may use files of the workspace outside of tool calls: in its prompt, and as media of its replies.
    /// The owner's runs may; others only if the agent grants them `read` ([`ToolRules::non_owner_allow`]).
    pub fn may_read_workspace(&self, origin: &RunOrigin, key: &SessionKey) -> bool {
        origin.is_owner() || self.tools_for(origin, key, self.spec()).has("read")
    }

    /// True if a run may cause URLs that it writes to be loaded: media of a reply, link previews. Requires the
    /// permission to use `web_fetch`, because a platform that loads a URL sends its content to that server.
    pub fn may_load_urls(&self, origin: &RunOrigin, key: &SessionKey) -> bool {
        let depth = u32::from(key.is_subagent());
        let placement = Placement { depth, is_sandboxed: self.sandboxing.is_sandboxed(key) };
        self.rules
            .as_ref()
            .is_none_or(|rules| !rules.allowed(&["web_fetch"], origin, placement, self.spec()).is_empty())
    }

    /// Returns the agent as it works in a session: in a sandbox workspace if the session is sandboxed, else in the
    /// directory that the message asks for, if any.
    pub fn in_session(self: Arc<Self>, key: &SessionKey, cwd: Option<&PathBuf>) -> Arc<Self> {
        if !self.sandboxing.is_sandboxed(key) {
            return match cwd {
                Some(cwd) => Arc::new(Self { workdir: cwd.clone(), ..Self::clone(&self) }),
                None => self,
            };
        }
        let agent_workspace = self.home().clone();
        let workspace = self.sandboxing.directory(&self.id, key, &agent_workspace);
        // For a sub-agent, `cwd` is the working directory of its parent session, which does not apply here.
        let workdir = cwd.filter(|_| !key.is_subagent()).unwrap_or(&workspace).clone();
        let pictures = self.prompt.pictures.clone().map(|pictures| PictureSources { is_confined: true, ..pictures });
        Arc::new(Self {
            prompt: PromptConfig { workspace: Some(workspace), pictures, ..self.prompt.clone() },
            confinement: Confinement {
                sandbox: Some(SandboxView { workspace: agent_workspace, access: self.sandboxing.access }),
                ..self.confinement.clone()
            },
            workdir,
            ..Self::clone(&self)
        })
    }

    /// Creates the working directory of a run if it does not exist. An error names the path and the reason. Blocks.
    pub(crate) fn make_workspace(&self) -> Result<(), String> {
        let Some(workspace) = &self.prompt.workspace else { return Ok(()) };
        let failed = |path: &Path, error: &dyn fmt::Display| {
            Err(format!("the workspace {} of agent {} cannot be used: {error}", path.display(), self.id))
        };
        if let Some(SandboxView { workspace: agent_workspace, .. }) = &self.confinement.sandbox
            && let Err(error) = sandboxing::prepare(workspace, agent_workspace)
        {
            return failed(workspace, &error);
        }
        if let Err(error) = homard_workspace::create(workspace, Starter::FolderOnly) {
            return failed(workspace, &error);
        }
        let is_inside = || {
            let real = self.workdir.canonicalize().ok().zip(workspace.canonicalize().ok());
            real.is_some_and(|(workdir, workspace)| workdir.starts_with(workspace))
        };
        match self.confinement.sandbox.is_some() && self.workdir != *workspace && !is_inside() {
            true => Err(format!(
                "this session is sandboxed and works in {}; it cannot work in {}",
                workspace.display(),
                self.workdir.display()
            )),
            false => Ok(()),
        }
    }

    /// Returns the agent with the overrides of one run.
    pub(crate) fn overridden(self: Arc<Self>, overrides: &RunOverrides) -> Arc<Self> {
        if overrides.is_empty() {
            return self;
        }
        let RunOverrides { model, prompt_mode, without_bootstrap_files, without_message_tool } = overrides;
        let mut profile = Self::clone(&self);
        profile.run.model.clone_from(model);
        profile.prompt.mode = *prompt_mode;
        profile.prompt.omits_files = *without_bootstrap_files;
        if *without_message_tool {
            profile.toolbox = profile.toolbox.only(|name| name != MESSAGE_TOOL);
        }
        Arc::new(profile)
    }

    /// Checks the model of a request: an error if the agent does not offer it. Without a provider, the agent's own
    /// provider is used.
    pub fn checked_model(&self, provider: Option<&str>, model: Option<&str>) -> Result<Option<String>, String> {
        let non_empty = |value: Option<&str>| value.map(str::trim).filter(|value| !value.is_empty()).map(str::to_owned);
        let name = match (non_empty(provider), non_empty(model)) {
            (None, None) => return Ok(None),
            (Some(provider), None) => {
                return Err(format!("provider \"{provider}\" is given without a model; name the model as well"));
            }
            (Some(provider), Some(model)) if model.starts_with(&format!("{provider}/")) => model,
            (Some(provider), Some(model)) => format!("{provider}/{model}"),
            (None, Some(model)) => model,
        };
        let candidates =
            (self.resolve_model)(&name).map_err(|why| format!("model \"{name}\" cannot be used: {why}"))?;
        let spec = candidates.first().spec();
        Ok(Some(format!("{}/{}", spec.provider, spec.model)))
    }

    /// Returns the agent's directory: its workspace, or its working directory if it has none.
    pub(crate) fn home(&self) -> &PathBuf {
        self.prompt.workspace.as_ref().unwrap_or(&self.workdir)
    }

    /// Returns the spec of the primary model.
    pub fn spec(&self) -> &ModelSpec {
        self.candidates.first().spec()
    }
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Profile").field("id", &self.id).field("model", self.spec()).finish_non_exhaustive()
    }
}

/// Maximum total retry time of a run, over all candidates, before it fails with the last error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryTime {
    /// While a person waits for the reply: at a terminal, in a chat client, on a chat platform, in a program.
    pub attended: Duration,
    /// Otherwise: scheduled runs, heartbeats, sub-agents and webhooks, where a late answer is better than none.
    pub unattended: Duration,
}

impl Default for RetryTime {
    fn default() -> Self {
        Self { attended: retry::TOTAL, unattended: retry::UNATTENDED_TOTAL }
    }
}

/// Public identity of an agent, as configured by its owner.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentIdentity {
    /// Name.
    pub name: Option<String>,
    /// Emoji.
    pub emoji: Option<String>,
    /// Personality.
    pub theme: Option<String>,
    /// Avatar: a URL, or a path in its workspace.
    pub avatar: Option<String>,
}

/// How several tool calls of one assistant message are executed. Their results are recorded in the order of the calls
/// either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ToolMode {
    /// The calls are executed concurrently.
    #[default]
    Parallel,
    /// The calls are executed one after the other.
    Sequential,
}

/// All agents. Clones are cheap.
#[derive(Debug, Clone)]
pub struct Agents {
    default: Arc<Profile>,
    all: Arc<BTreeMap<AgentId, Arc<Profile>>>,
}

impl Agents {
    /// Builds the set from the default agent and the others.
    pub fn new(default: Profile, others: impl IntoIterator<Item = Profile>) -> Self {
        let default = Arc::new(default);
        let mut all: BTreeMap<_, _> =
            others.into_iter().map(|profile| (profile.id.clone(), Arc::new(profile))).collect();
        all.insert(default.id.clone(), default.clone());
        Self { default, all: Arc::new(all) }
    }

    /// Id of the agent for messages that name none.
    pub fn default_id(&self) -> &AgentId {
        &self.default.id
    }

    /// Returns an agent by id.
    pub fn get(&self, id: &AgentId) -> Option<&Arc<Profile>> {
        self.all.get(id)
    }

    /// Returns the agent of a session; the default agent if its agent no longer exists.
    pub fn of(&self, id: Option<&AgentId>) -> Arc<Profile> {
        id.and_then(|id| self.all.get(id)).unwrap_or(&self.default).clone()
    }

    /// Iterates over all agents by id.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Profile>> {
        self.all.values()
    }
}
