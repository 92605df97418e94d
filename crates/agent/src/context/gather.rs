//! Gathers the inputs of the system prompt once per run, and renders the prompt for each model that is asked.

use std::sync::Arc;

use homard_command::OWNER;
use homard_hooks::{BootstrapFile, Hooks, InternalEvent};
use homard_model::{ModelSpec, ReasoningLevel, ToolSpec};
use homard_prompt::{
    config::{PromptConfig, PromptStyle, SkillKit},
    input::{self as prompt_input, PromptContext, RuntimeInfo, StableInput, TurnInput, Wording},
    report::{ContextReport, ReportParams},
    sections::{self as prompt, SystemPrompt},
    shortening,
};
use homard_proto::{Route, SessionId, SessionKey, session::Record};
use homard_store::{PromptMode, timeline::PromptCuts};
use homard_workspace::{AgentPersona, Audience, BootstrapReader, LoadRule, PageBody, PromptPage, page_of};
use serde_json::json;

use crate::{
    profile::Profile,
    sandboxing::WorkspaceAccess,
    tool::{RunOrigin, Toolbox},
};

/// Workspace files and skills for the prompt of a run, read when it starts.
#[derive(Debug, Clone, Default)]
pub(crate) struct PromptFiles {
    /// Workspace files of the prompt.
    pages: Vec<PromptPage>,
    /// Identity of the agent, as described in those files.
    identity: AgentPersona,
    /// Skills.
    pub(crate) kit: Arc<SkillKit>,
    /// Why the run must not start: its workspace is unusable, or a hook that guards the prompt's files failed.
    pub(crate) refusal: Option<String>,
}

/// The session that a prompt is for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PromptSession<'a> {
    pub(crate) key: &'a SessionKey,
    /// Id of its transcript, if it has one.
    pub(crate) id: Option<&'a SessionId>,
    /// Current time in milliseconds since the epoch.
    pub(crate) now: u64,
}

/// Reads the inputs of a session's prompt. A run that may not read the workspace gets only the files with instructions,
/// and no skills, because it cannot read them.
pub(crate) async fn gather(
    profile: &Profile,
    origin: &RunOrigin,
    session: PromptSession<'_>,
    hooks: &Hooks,
) -> PromptFiles {
    let (config, key) = (&profile.prompt, session.key);
    let may_read = profile.may_read_workspace(origin, key);
    let kit = if may_read { config.skills.get() } else { Arc::default() };
    let Some(workspace) = config.workspace.clone() else { return PromptFiles { kit, ..PromptFiles::default() } };
    let (reader, limits, omits_files) = (config.reader.clone(), config.limits, config.omits_files);
    let audience = match may_read {
        false => Audience::NonOwner,
        true if key.is_subagent() => Audience::Subagent,
        true => Audience::Main,
    };
    let owned_profile = profile.clone();
    let read_task = tokio::task::spawn_blocking(move || {
        owned_profile.make_workspace()?;
        Ok(if omits_files { Vec::new() } else { reader.pages(&workspace, audience, &limits) })
    });
    let pages = match read_task.await {
        Ok(Ok(pages)) => pages,
        Ok(Err(refusal)) => return PromptFiles { kit, refusal: Some(refusal), ..PromptFiles::default() },
        Err(error) => {
            tracing::error!(%key, %error, "failed to read the workspace; the run continues without its files");
            Vec::new()
        }
    };
    let mut pages = match run_bootstrap_hooks(hooks, pages, profile, session).await {
        Ok(pages) => pages,
        Err(refusal) => return PromptFiles { kit, refusal: Some(refusal), ..PromptFiles::default() },
    };
    pages.retain(|page| audience.admits(&page.name));
    PromptFiles { identity: AgentPersona::of(&pages), pages, kit, refusal: None }
}

/// Runs the hooks that may change the files of the prompt. An error if a guarding hook failed.
async fn run_bootstrap_hooks(
    hooks: &Hooks,
    pages: Vec<PromptPage>,
    profile: &Profile,
    session: PromptSession<'_>,
) -> Result<Vec<PromptPage>, String> {
    let PromptSession { key, id, now } = session;
    if !hooks.has_listener("agent", "bootstrap") {
        return Ok(pages);
    }
    let files: Vec<_> = pages.iter().map(file_of).collect();
    let context = json!({"workspaceDir": profile.home(), "sessionKey": key, "sessionId": id, "agentId": profile.id});
    let mut event = InternalEvent {
        kind: "agent".to_owned(),
        action: "bootstrap".to_owned(),
        session_key: key.to_string(),
        context: context.as_object().cloned().unwrap_or_default(),
        timestamp: now,
        messages: Vec::new(),
    };
    event.set_files(&files);
    let Some(wanted_files) = hooks.emit_guarded(event).await?.files() else {
        tracing::warn!(%key, "hook returned invalid prompt files; keeping the original ones");
        return Ok(pages);
    };
    let limits = &profile.prompt.limits;
    let mut remaining = limits.total;
    let (reader, known) = (profile.prompt.reader.clone(), files.clone());
    let allowed = tokio::task::spawn_blocking(move || {
        let is_allowed = |file: &BootstrapFile| known.contains(file) || may_load(&reader, file);
        wanted_files.into_iter().filter(is_allowed).collect::<Vec<_>>()
    });
    let wanted_files = match allowed.await {
        Ok(wanted_files) => wanted_files,
        Err(error) => {
            tracing::error!(%key, %error, "failed to check the prompt files of hooks; the run continues without them");
            return Ok(pages);
        }
    };
    let page = |file: BootstrapFile| match files.iter().position(|known| *known == file) {
        Some(index) => pages[index].clone(),
        None => page_of(file.name, file.path, file.content.as_deref(), limits),
    };
    // Files added by hooks share the total limit of all files.
    let has_room = |page: &PromptPage| {
        let before = remaining;
        remaining = remaining.saturating_sub(page.chars);
        before > 0
    };
    Ok(wanted_files.into_iter().map(page).take_while(has_room).collect())
}

/// True if a file added by a hook may go into the prompt: not if a running command may have written it.
fn may_load(reader: &BootstrapReader, file: &BootstrapFile) -> bool {
    match reader.rule(&file.path) {
        LoadRule::File | LoadRule::Target(_) => true,
        LoadRule::Text(text) => file.content.as_deref() == Some(text.as_str()),
        LoadRule::Nothing => false,
    }
}

fn file_of(page: &PromptPage) -> BootstrapFile {
    let content = match &page.body {
        PageBody::Whole(text) | PageBody::Cut(text) => Some(text.clone()),
        PageBody::Missing | PageBody::Unusable(_) => None,
    };
    BootstrapFile {
        name: page.name.to_string(),
        path: page.path.clone(),
        content,
        missing: matches!(page.body, PageBody::Missing),
    }
}

/// The session that a context report is about.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReportedSession<'a> {
    /// Id of its transcript.
    pub(crate) id: &'a SessionId,
    /// Time of the report in milliseconds since the epoch.
    pub(crate) at: u64,
}

/// Inputs of a run's system prompt.
#[derive(Debug)]
pub(crate) struct PromptInput {
    pub(crate) profile: Arc<Profile>,
    pub(crate) key: SessionKey,
    pub(crate) files: PromptFiles,
    /// Addition of the caller to the system prompt.
    pub(crate) extra: Option<String>,
    /// Channel of the message.
    pub(crate) channel: Option<String>,
    /// Visibility of reasoning.
    pub(crate) reasoning: String,
}

impl PromptInput {
    /// Creates the inputs for a run with the caller's addition and its route; files are gathered later.
    pub(crate) fn new(
        profile: &Arc<Profile>,
        key: &SessionKey,
        record: &Record,
        extra: Option<&str>,
        route: &Route,
    ) -> Self {
        let stored = record.extra.get("reasoningLevel").and_then(|level| level.as_str());
        Self {
            profile: profile.clone(),
            key: key.clone(),
            files: PromptFiles::default(),
            extra: extra.map(str::to_owned),
            channel: route.channel.clone(),
            reasoning: stored.unwrap_or(profile.levels(profile.spec()).reasoning).to_owned(),
        }
    }

    /// Renders the system prompt for a model.
    pub(crate) fn prompt(&self, spec: &ModelSpec, level: ReasoningLevel, tools: &[ToolSpec]) -> SystemPrompt {
        self.with_context(spec, level, tools, prompt::render)
    }

    /// Returns the tool specs for a model.
    pub(crate) fn tool_specs(&self, spec: &ModelSpec, toolbox: &Toolbox) -> Arc<[ToolSpec]> {
        match choose_mode(&self.profile.prompt, &self.key, spec).1 {
            Wording::Rich => toolbox.specs(),
            Wording::Lean => toolbox.compact_specs(),
        }
    }

    /// Builds the context report for a model: the parts of the system prompt and their sizes.
    pub(crate) fn report(
        &self,
        spec: &ModelSpec,
        level: ReasoningLevel,
        tools: &[ToolSpec],
        session: ReportedSession<'_>,
    ) -> ContextReport {
        let profile = &self.profile;
        let params = ReportParams {
            at: session.at,
            session: session.id,
            key: &self.key,
            model: (&spec.provider, &spec.model),
            window: Some(spec.context_window),
            page_cap: self.profile.prompt.limits.per_file,
            sandbox: profile.sandboxing.mode.name(),
            confines_commands: profile.confinement.covers_commands,
        };
        let mut report = self
            .with_context(spec, level, tools, |context| ContextReport::of(context, &prompt::render(context), &params));
        report.tools.left_out = self.left_out(spec);
        report.shortened = self.shortened(spec, report.tools.left_out.len());
        report
    }

    /// Returns what the prompt for a model leaves out or truncates, with this number of tools.
    pub(crate) fn shortened(&self, spec: &ModelSpec, tools: usize) -> Option<PromptCuts> {
        let shortened = shortening::of(self.profile.prompt.style, spec, &self.files.pages)?;
        Some(PromptCuts { tools: tools as u64, ..shortened })
    }

    /// Returns the tools that the owner has and the model does not see. MCP tools first, because they were configured
    /// by hand.
    fn left_out(&self, spec: &ModelSpec) -> Vec<String> {
        let owner = RunOrigin { principal: OWNER.to_owned(), ..RunOrigin::default() };
        let all = self.profile.tools_for(&owner, &self.key, spec);
        let shown = self.tool_specs(spec, &all);
        let is_shown = |name: &String| shown.iter().any(|spec| spec.name == *name);
        let mut names: Vec<_> = all.names().into_iter().filter(|name| !is_shown(name)).collect();
        names.sort_by_key(|name| !name.contains("__"));
        names
    }

    /// Builds all inputs of the prompt for a model from the profile and the gathered files, and returns the result of
    /// `then` with them. They are passed to a closure because they borrow strings that are built here.
    fn with_context<T>(
        &self,
        spec: &ModelSpec,
        level: ReasoningLevel,
        tools: &[ToolSpec],
        then: impl FnOnce(&PromptContext<'_>) -> T,
    ) -> T {
        let Self { profile, key, files, .. } = self;
        let config = &profile.prompt;
        let name = |spec: &ModelSpec| format!("{}/{}", spec.provider, spec.model);
        let (model, default) = (name(spec), name(profile.spec()));
        let (configured, from_files) = (&profile.identity, &files.identity);
        // The config takes precedence over the workspace files.
        let either = |configured: &'_ Option<String>, from_files: &'_ Option<String>| {
            configured.clone().or_else(|| from_files.clone())
        };
        let (agent_name, emoji, theme) = (
            either(&configured.name, &from_files.name),
            either(&configured.emoji, &from_files.emoji),
            either(&configured.theme, &from_files.theme),
        );
        let zone = config.zone.as_ref().and_then(|zone| zone.iana_name());
        let machine = &config.machine;
        let (mode, wording) = choose_mode(config, key, spec);
        then(&PromptContext {
            mode,
            wording,
            stable: StableInput {
                identity: prompt_input::PromptIdentity {
                    display_name: profile.name.as_deref(),
                    name: agent_name.as_deref(),
                    emoji: emoji.as_deref(),
                    theme: theme.as_deref(),
                },
                tools,
                skills: &files.kit.block,
                aliases: &config.aliases,
                workspace: &profile.workdir,
                sandbox: profile.confinement.sandbox.as_ref().map(|sandbox| prompt_input::PromptSandbox {
                    dir: &profile.workdir,
                    access: match sandbox.access {
                        WorkspaceAccess::None => prompt_input::SandboxAccess::None,
                        WorkspaceAccess::Ro => prompt_input::SandboxAccess::Read,
                        WorkspaceAccess::Rw => prompt_input::SandboxAccess::Write,
                    },
                    mount: sandbox.readable(),
                }),
                zone,
                files: &files.pages,
                needs_tags: homard_model::uses_reasoning_tags(&spec.provider),
                heartbeat: config.heartbeat.as_deref(),
            },
            turn: TurnInput {
                extra: self.extra.as_deref(),
                channel: self.channel.as_deref(),
                runtime: RuntimeInfo {
                    agent: profile.id.as_str(),
                    host: machine.host.as_deref(),
                    repo: machine.repo.as_deref(),
                    os: machine.os.as_deref(),
                    arch: machine.arch.as_deref(),
                    model: Some(&model),
                    default_model: Some(&default),
                    shell: machine.shell.as_deref(),
                },
                thinking: level.as_str(),
                reasoning: &self.reasoning,
            },
        })
    }
}

/// Selects prompt mode and wording for a model.
fn choose_mode(config: &PromptConfig, key: &SessionKey, spec: &ModelSpec) -> (PromptMode, Wording) {
    let default_mode = match config.style {
        PromptStyle::Bare => PromptMode::None,
        PromptStyle::Auto | PromptStyle::Rich | PromptStyle::Lean => prompt_input::mode_of(key),
    };
    (config.mode.unwrap_or(default_mode), shortening::wording(config.style, spec))
}
