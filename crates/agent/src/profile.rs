//! An agent as the loop needs it, and the list of all of them.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use homard_compact::{Settings, prune};
use homard_model::{
    Level, Spec,
    retry::{self, Limits},
    roster::Roster,
};
use homard_proto::{AgentId, SessionKey};
use homard_store::RunOverrides;
use homard_workspace::Starter;

use crate::{
    access::ToolRules,
    command::Levels,
    context::setting::{Pictures, Setting},
    delivery::Delivery,
    run::guard::Bounds,
    sandboxing::{self, SandboxView, Sandboxing, WorkspaceAccess},
    secrets::Secrets,
    tool::{Origin, Toolbox},
};

/// The tools that change files. Where the agent's workspace can only be read, sandboxed runs do without, as in OpenClaw.
const CHANGES_FILES: [&str; 3] = ["write", "edit", "apply_patch"];
/// The tool that sends messages to people.
const MESSAGE_TOOL: &str = "message";

/// An agent: who answers, with which tools, where, and for how long. A run keeps the profile that it started with.
#[derive(Clone)]
pub struct Profile {
    /// Its id.
    pub id: AgentId,
    /// What lists call it.
    pub name: Option<String>,
    /// How it presents itself.
    pub identity: Identity,
    /// Who answers, and who else if they do not.
    pub roster: Roster,
    /// Who answers in a session for which somebody chose a model.
    pub choose: Choose,
    /// The models that may be chosen, as `provider/model`; none when any may be.
    pub offers: Arc<[String]>,
    /// How often a model is asked again.
    pub limits: Limits,
    /// How long it is asked again at most.
    pub retry_time: RetryTime,
    /// With which tools.
    pub toolbox: Toolbox,
    /// Who may use which of them; without rules, everybody all.
    pub rules: Option<ToolRules>,
    /// Where its tools work.
    pub workdir: PathBuf,
    /// Which of its sessions are sandboxed.
    pub sandboxing: Sandboxing,
    /// Set for a sandboxed run: what it has of the agent's workspace.
    pub sandbox: Option<SandboxView>,
    /// Whether its commands are held by a sandbox in every session: `tools.exec.sandbox.mode` is not `full`.
    pub confines_commands: bool,
    /// What its prompts are made from.
    pub setting: Setting,
    /// How long a run may take; `None` for as long as it takes.
    pub timeout: Option<Duration>,
    /// How several calls of one message are run.
    pub tool_mode: ToolMode,
    /// Whether the process ends with its run: nothing is begun then that nobody waits for.
    pub is_passing: bool,
    /// What a run may do before it is ended.
    pub bounds: Bounds,
    /// When a long conversation is made short, and how.
    pub compaction: Settings,
    /// Which old tool results are left out of requests; `None` to leave out none.
    pub pruning: Option<prune::Settings>,
    /// How its answers reach people.
    pub delivery: Delivery,
    /// What must not be seen in what its tools say.
    pub secrets: Secrets,
    /// How hard its models think when a session says nothing; without a word, as they do by themselves.
    pub thinking: Option<Level>,
    /// How much of tools is told when a session says nothing.
    pub verbose: Option<&'static str>,
    /// Whether the reasoning is shown when a session says nothing.
    pub reasoning: Option<&'static str>,
    /// The model of this run, as `provider/model`, whatever its session says.
    pub run_model: Option<String>,
}

/// Finds the model that somebody chose for a session, by its name `provider/model`: nobody else answers then. An error
/// says why it cannot be.
pub type Choose = Arc<dyn Fn(&str) -> Result<Roster, String> + Send + Sync>;

impl Profile {
    /// An agent without tools that works where the process does, for ten minutes at most.
    pub fn new(id: AgentId, roster: Roster) -> Self {
        Self {
            id,
            name: None,
            identity: Identity::default(),
            roster,
            choose: Arc::new(|name| Err(format!("there is no model {name}"))),
            offers: Arc::default(),
            limits: Limits::default(),
            retry_time: RetryTime::default(),
            toolbox: Toolbox::default(),
            rules: None,
            workdir: PathBuf::from("."),
            sandboxing: Sandboxing::default(),
            sandbox: None,
            confines_commands: false,
            setting: Setting::default(),
            timeout: Some(Duration::from_secs(600)),
            tool_mode: ToolMode::default(),
            is_passing: false,
            bounds: Bounds::default(),
            compaction: Settings::default(),
            pruning: None,
            delivery: Delivery::default(),
            secrets: Secrets::default(),
            thinking: None,
            verbose: None,
            reasoning: None,
            run_model: None,
        }
    }

    /// The levels of a session that has none of its own, when this model answers.
    pub(crate) fn levels(&self, spec: &Spec) -> Levels {
        let own = if spec.thinking.is_empty() { Level::Off } else { Level::Low };
        let Levels { verbose, reasoning, .. } = Levels::default();
        Levels {
            thinking: self.thinking.unwrap_or(own).as_str(),
            verbose: self.verbose.unwrap_or(verbose),
            reasoning: self.reasoning.unwrap_or(reasoning),
        }
    }

    /// The tools of a run, when this model answers.
    pub fn tools_for(&self, asked: (&Origin, &SessionKey), spec: &Spec) -> Toolbox {
        self.tools_at(asked, u32::from(asked.1.is_subagent()), spec)
    }

    /// The same, for a session that is so many starts away from a conversation. A sub-agent is one at least.
    pub(crate) fn tools_at(&self, (origin, key): (&Origin, &SessionKey), depth: u32, spec: &Spec) -> Toolbox {
        let is_sandboxed = self.sandboxing.holds(key);
        let tools = match &self.rules {
            Some(rules) => {
                let depth = depth.max(u32::from(key.is_subagent()));
                rules.apply(&self.toolbox, origin, (depth, is_sandboxed), spec)
            }
            None => self.toolbox.clone(),
        };
        match is_sandboxed && self.sandboxing.access == WorkspaceAccess::Ro {
            true => tools.only(|name| !CHANGES_FILES.contains(&name)),
            false => tools,
        }
    }

    /// Whether a run may use the files of the workspace apart from tool calls: in its prompt, and with its replies. The
    /// owner's runs may; other runs may if the agent grants them `read` ([`ToolRules::non_owner_allow`]).
    pub fn opens_workspace(&self, asked: (&Origin, &SessionKey)) -> bool {
        asked.0.is_owner() || self.tools_for(asked, self.spec()).has("read")
    }

    /// Whether a run may have addresses of the web loaded that it writes: media of a reply, previews of links. Only a run
    /// that may use `web_fetch` may, because a platform that loads an address tells its server as much.
    pub fn loads_addresses(&self, (origin, key): (&Origin, &SessionKey)) -> bool {
        let depth = u32::from(key.is_subagent());
        let place = (depth, self.sandboxing.holds(key));
        self.rules.as_ref().is_none_or(|rules| !rules.allowed(&["web_fetch"], origin, place, self.spec()).is_empty())
    }

    /// The same agent as it works in a session: in a sandbox workspace if the session is sandboxed, else in the directory
    /// that a message asks for, if it does.
    pub fn in_session(self: Arc<Self>, key: &SessionKey, cwd: Option<&PathBuf>) -> Arc<Self> {
        if !self.sandboxing.holds(key) {
            return match cwd {
                Some(cwd) => Arc::new(Self { workdir: cwd.clone(), ..Self::clone(&self) }),
                None => self,
            };
        }
        let own = self.home().clone();
        let workspace = self.sandboxing.directory((&self.id, key), &own);
        // What a sub-agent inherits is where the session above it works.
        let workdir = cwd.filter(|_| !key.is_subagent()).unwrap_or(&workspace).clone();
        let pictures = self.setting.pictures.clone().map(|pictures| Pictures { is_confined: true, ..pictures });
        Arc::new(Self {
            setting: Setting { workspace: Some(workspace), pictures, ..self.setting.clone() },
            sandbox: Some(SandboxView { workspace: own, access: self.sandboxing.access }),
            workdir,
            ..Self::clone(&self)
        })
    }

    /// Makes the directory that a run works in, if it is not there. An error says which it is, and why it cannot be made.
    /// Blocks.
    pub(crate) fn make_workspace(&self) -> Result<(), String> {
        let Some(workspace) = &self.setting.workspace else { return Ok(()) };
        let failed = |path: &Path, error: &dyn fmt::Display| {
            Err(format!("the workspace {} of agent {} cannot be used: {error}", path.display(), self.id))
        };
        if let Some(SandboxView { workspace: own, .. }) = &self.sandbox
            && let Err(error) = sandboxing::prepare(workspace, own)
        {
            return failed(workspace, &error);
        }
        if let Err(error) = homard_workspace::make(workspace, Starter::Nothing) {
            return failed(workspace, &error);
        }
        let is_inside = || {
            let real = self.workdir.canonicalize().ok().zip(workspace.canonicalize().ok());
            real.is_some_and(|(workdir, workspace)| workdir.starts_with(workspace))
        };
        match self.sandbox.is_some() && self.workdir != *workspace && !is_inside() {
            true => Err(format!(
                "this session is sandboxed and works in {}; it cannot work in {}",
                workspace.display(),
                self.workdir.display()
            )),
            false => Ok(()),
        }
    }

    /// The same agent with the settings that one run has instead of its own.
    pub(crate) fn overridden(self: Arc<Self>, overrides: &RunOverrides) -> Arc<Self> {
        if overrides.is_empty() {
            return self;
        }
        let RunOverrides { model, prompt_mode, without_bootstrap_files, without_message_tool } = overrides;
        let mut own = Self::clone(&self);
        own.run_model.clone_from(model);
        own.setting.mode = *prompt_mode;
        own.setting.is_without_files = *without_bootstrap_files;
        if *without_message_tool {
            own.toolbox = own.toolbox.only(|name| name != MESSAGE_TOOL);
        }
        Arc::new(own)
    }

    /// The name of the model that a request asks for, checked: one that the agent does not offer is an error. Without a
    /// provider it is one of the agent's own provider.
    pub fn checked_model(&self, provider: Option<&str>, model: Option<&str>) -> Result<Option<String>, String> {
        let given = |word: Option<&str>| word.map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned);
        let name = match (given(provider), given(model)) {
            (None, None) => return Ok(None),
            (Some(provider), None) => {
                return Err(format!("provider \"{provider}\" without a model; name the model, too"));
            }
            (Some(provider), Some(model)) if model.starts_with(&format!("{provider}/")) => model,
            (Some(provider), Some(model)) => format!("{provider}/{model}"),
            (None, Some(model)) => model,
        };
        let roster = (self.choose)(&name).map_err(|why| format!("model \"{name}\" cannot be used: {why}"))?;
        let spec = roster.first().spec();
        Ok(Some(format!("{}/{}", spec.provider, spec.model)))
    }

    /// Where its files are: its workspace, or where its tools work if it has none.
    pub(crate) fn home(&self) -> &PathBuf {
        self.setting.workspace.as_ref().unwrap_or(&self.workdir)
    }

    /// What the first choice is.
    pub fn spec(&self) -> &Spec {
        self.roster.first().spec()
    }
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Profile").field("id", &self.id).field("model", self.spec()).finish_non_exhaustive()
    }
}

/// How long a run retries at most, over all models that it asks, before it fails with the last error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryTime {
    /// While a person waits for the answer: at a terminal, in a chat client, on a chat platform, in a program.
    pub attended: Duration,
    /// Otherwise: scheduled runs, heartbeats, sub-agents and webhooks, where a late answer is better than none.
    pub unattended: Duration,
}

impl Default for RetryTime {
    fn default() -> Self {
        Self { attended: retry::TOTAL, unattended: retry::UNATTENDED_TOTAL }
    }
}

/// How an agent presents itself, in its owner's words.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Identity {
    /// What it is called.
    pub name: Option<String>,
    /// A picture of one character.
    pub emoji: Option<String>,
    /// What it is like.
    pub theme: Option<String>,
    /// A picture: an address, or a path in its workspace.
    pub avatar: Option<String>,
}

/// How several calls of one assistant message are run. Their results are recorded in the order of the calls either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ToolMode {
    /// All at once.
    #[default]
    Parallel,
    /// One after the other.
    Sequential,
}

/// All agents. Clones are cheap.
#[derive(Debug, Clone)]
pub struct Agents {
    default: Arc<Profile>,
    all: Arc<BTreeMap<AgentId, Arc<Profile>>>,
}

impl Agents {
    /// The default agent and any others.
    pub fn new(default: Profile, others: impl IntoIterator<Item = Profile>) -> Self {
        let default = Arc::new(default);
        let mut all: BTreeMap<_, _> =
            others.into_iter().map(|profile| (profile.id.clone(), Arc::new(profile))).collect();
        all.insert(default.id.clone(), default.clone());
        Self { default, all: Arc::new(all) }
    }

    /// The agent of a message that names none.
    pub fn default_id(&self) -> &AgentId {
        &self.default.id
    }

    /// An agent by its id.
    pub fn get(&self, id: &AgentId) -> Option<&Arc<Profile>> {
        self.all.get(id)
    }

    /// The agent of a session; one whose agent is gone is answered by the default agent.
    pub(crate) fn of(&self, id: Option<&AgentId>) -> Arc<Profile> {
        id.and_then(|id| self.all.get(id)).unwrap_or(&self.default).clone()
    }

    /// All of them, by id.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Profile>> {
        self.all.values()
    }
}
