//! Gathers the inputs of the system prompt once per run, and renders the prompt for each model that is asked.

use std::sync::Arc;

use homard_hooks::{BootstrapFile, Hooks, Signal};
use homard_model::{Level, Spec, ToolSpec};
use homard_proto::{Route, SessionId, SessionKey, session::Record};
use homard_store::{PromptMode, timeline::Shortened};
use homard_workspace::{Audience, Body, Identity, LoadRule, Page, Reader, page_of};
use serde_json::json;

use super::{
    prompt::{self, Prompt},
    report::{About, Report, Source},
    scene::{self, Runtime, Scene, Stable, Turn, Wording},
    setting::{Kit, Setting, Style},
    shortening,
};
use crate::{
    command::OWNER,
    profile::Profile,
    sandboxing::WorkspaceAccess,
    tool::{Origin, Toolbox},
};

/// What was read from disk when a run started.
#[derive(Debug, Clone, Default)]
pub(crate) struct Found {
    pages: Vec<Page>,
    identity: Identity,
    pub(crate) kit: Arc<Kit>,
    /// Why the run must not start: its workspace is unusable, or a hook that guards the prompt's files failed.
    pub(crate) refusal: Option<String>,
}

/// Reads the inputs of a session's prompt. A run that may not read the workspace gets only the files with instructions,
/// and no skills, because it cannot read them.
pub(crate) async fn gather(
    profile: &Profile,
    (origin, key): (&Origin, &SessionKey),
    hooks: &Hooks,
    (session, at): (Option<&SessionId>, u64),
) -> Found {
    let setting = &profile.setting;
    let is_open = profile.opens_workspace((origin, key));
    let kit = if is_open { setting.shelf.kit() } else { Arc::default() };
    let Some(workspace) = setting.workspace.clone() else { return Found { kit, ..Found::default() } };
    let (reader, limits, is_without) = (setting.reader.clone(), setting.limits, setting.is_without_files);
    let audience = match is_open {
        false => Audience::NonOwner,
        true if key.is_subagent() => Audience::Subagent,
        true => Audience::Main,
    };
    let own = profile.clone();
    let reading = tokio::task::spawn_blocking(move || {
        own.make_workspace()?;
        Ok(if is_without { Vec::new() } else { reader.pages(&workspace, audience, &limits) })
    });
    let pages = match reading.await {
        Ok(Ok(pages)) => pages,
        Ok(Err(refusal)) => return Found { kit, refusal: Some(refusal), ..Found::default() },
        Err(error) => {
            tracing::error!(%key, %error, "the workspace could not be read; the run goes on without its files");
            Vec::new()
        }
    };
    let mut pages = match offer(hooks, pages, (profile, key), (session, at)).await {
        Ok(pages) => pages,
        Err(refusal) => return Found { kit, refusal: Some(refusal), ..Found::default() },
    };
    pages.retain(|page| audience.admits(&page.name));
    Found { identity: Identity::of(&pages), pages, kit, refusal: None }
}

/// Runs the hooks that may change the files of the prompt. An error if a guarding hook failed.
async fn offer(
    hooks: &Hooks,
    pages: Vec<Page>,
    (profile, key): (&Profile, &SessionKey),
    (session, at): (Option<&SessionId>, u64),
) -> Result<Vec<Page>, String> {
    if !hooks.is_heard("agent", "bootstrap") {
        return Ok(pages);
    }
    let files: Vec<_> = pages.iter().map(file_of).collect();
    let context =
        json!({"workspaceDir": profile.home(), "sessionKey": key, "sessionId": session, "agentId": profile.id});
    let mut signal = Signal {
        kind: "agent".to_owned(),
        action: "bootstrap".to_owned(),
        session_key: key.to_string(),
        context: context.as_object().cloned().unwrap_or_default(),
        timestamp: at,
        messages: Vec::new(),
    };
    signal.set_files(&files);
    let Some(wanted) = hooks.signal_guarded(signal).await?.files() else {
        tracing::warn!(%key, "a hook wanted files in the prompt that are none; they stay as they are");
        return Ok(pages);
    };
    let limits = &profile.setting.limits;
    let mut left = limits.total;
    let (reader, known) = (profile.setting.reader.clone(), files.clone());
    let allowed = tokio::task::spawn_blocking(move || {
        let is_allowed = |file: &BootstrapFile| known.contains(file) || may_load(&reader, file);
        wanted.into_iter().filter(is_allowed).collect::<Vec<_>>()
    });
    let wanted = match allowed.await {
        Ok(wanted) => wanted,
        Err(error) => {
            tracing::error!(%key, %error, "the files of hooks could not be checked; the run continues without them");
            return Ok(pages);
        }
    };
    let page = |file: BootstrapFile| match files.iter().position(|known| *known == file) {
        Some(place) => pages[place].clone(),
        None => page_of(file.name, file.path, file.content.as_deref(), limits),
    };
    // Files added by hooks share the total limit of all files.
    let has_room = |page: &Page| {
        let had = left;
        left = left.saturating_sub(page.chars);
        had > 0
    };
    Ok(wanted.into_iter().map(page).take_while(has_room).collect())
}

/// True if a file added by a hook may go into the prompt: not if a running command may have written it.
fn may_load(reader: &Reader, file: &BootstrapFile) -> bool {
    match reader.rule(&file.path) {
        LoadRule::File | LoadRule::Target(_) => true,
        LoadRule::Text(text) => file.content.as_deref() == Some(text.as_str()),
        LoadRule::Nothing => false,
    }
}

fn file_of(page: &Page) -> BootstrapFile {
    let content = match &page.body {
        Body::Whole(text) | Body::Cut(text) => Some(text.clone()),
        Body::Missing | Body::Unusable(_) => None,
    };
    BootstrapFile {
        name: page.name.to_string(),
        path: page.path.clone(),
        content,
        missing: matches!(page.body, Body::Missing),
    }
}

/// Inputs of a run's system prompt.
#[derive(Debug)]
pub(crate) struct Brief {
    pub(crate) profile: Arc<Profile>,
    pub(crate) key: SessionKey,
    pub(crate) found: Found,
    /// The caller's addition.
    pub(crate) extra: Option<String>,
    /// Channel of the message.
    pub(crate) channel: Option<String>,
    /// Visibility of reasoning.
    pub(crate) reasoning: String,
}

impl Brief {
    /// Creates the inputs for a run with the caller's addition and its route; files are gathered later.
    pub(crate) fn new(
        profile: &Arc<Profile>,
        key: &SessionKey,
        record: &Record,
        (extra, route): (Option<&str>, &Route),
    ) -> Self {
        let kept = record.extra.get("reasoningLevel").and_then(|level| level.as_str());
        Self {
            profile: profile.clone(),
            key: key.clone(),
            found: Found::default(),
            extra: extra.map(str::to_owned),
            channel: route.channel.clone(),
            reasoning: kept.unwrap_or(profile.levels(profile.spec()).reasoning).to_owned(),
        }
    }

    /// Renders the system prompt for a model.
    pub(crate) fn prompt(&self, spec: &Spec, level: Level, tools: &[ToolSpec]) -> Prompt {
        self.with_scene(spec, level, tools, prompt::write)
    }

    /// Returns the tool specs for a model.
    pub(crate) fn told(&self, spec: &Spec, toolbox: &Toolbox) -> Arc<[ToolSpec]> {
        match choose(&self.profile.setting, &self.key, spec).1 {
            Wording::Rich => toolbox.specs(),
            Wording::Lean => toolbox.brief_specs(),
        }
    }

    /// Builds the context report for a model: the parts of the system prompt and their sizes.
    pub(crate) fn report(
        &self,
        spec: &Spec,
        level: Level,
        tools: &[ToolSpec],
        (session, at): (&SessionId, u64),
    ) -> Report {
        let profile = &self.profile;
        let about = About {
            source: Source::Estimate,
            at,
            session,
            key: &self.key,
            model: (&spec.provider, &spec.model),
            window: Some(spec.context_window),
            page_cap: self.profile.setting.limits.per_file,
            sandbox: profile.sandboxing.mode.name(),
            confines_commands: profile.confines_commands,
        };
        let mut report = self.with_scene(spec, level, tools, |scene| Report::of(scene, &prompt::write(scene), &about));
        report.tools.left_out = self.left_out(spec);
        report.shortened = self.shortened(spec, report.tools.left_out.len());
        report
    }

    /// Returns what the prompt for a model leaves out or truncates, with this number of tools.
    pub(crate) fn shortened(&self, spec: &Spec, tools: usize) -> Option<Shortened> {
        let shortened = shortening::of(self.profile.setting.style, spec, &self.found.pages)?;
        Some(Shortened { tools: tools as u64, ..shortened })
    }

    /// Returns the tools that the owner has and the model does not see. MCP tools first, because they were configured
    /// by hand.
    fn left_out(&self, spec: &Spec) -> Vec<String> {
        let owner = Origin { principal: OWNER.to_owned(), ..Origin::default() };
        let all = self.profile.tools_for((&owner, &self.key), spec);
        let told = self.told(spec, &all);
        let is_told = |name: &String| told.iter().any(|spec| spec.name == *name);
        let mut names: Vec<_> = all.names().into_iter().filter(|name| !is_told(name)).collect();
        names.sort_by_key(|name| !name.contains("__"));
        names
    }

    fn with_scene<T>(&self, spec: &Spec, level: Level, tools: &[ToolSpec], then: impl FnOnce(&Scene<'_>) -> T) -> T {
        let Self { profile, key, found, .. } = self;
        let setting = &profile.setting;
        let name = |spec: &Spec| format!("{}/{}", spec.provider, spec.model);
        let (model, default) = (name(spec), name(profile.spec()));
        let (own, read) = (&profile.identity, &found.identity);
        let either = |own: &'_ Option<String>, read: &'_ Option<String>| own.clone().or_else(|| read.clone());
        let (called, emoji, theme) =
            (either(&own.name, &read.name), either(&own.emoji, &read.emoji), either(&own.theme, &read.theme));
        let zone = setting.zone.as_ref().and_then(|zone| zone.iana_name());
        let machine = &setting.machine;
        let (mode, wording) = choose(setting, key, spec);
        then(&Scene {
            mode,
            wording,
            stable: Stable {
                identity: scene::Identity {
                    display_name: profile.name.as_deref(),
                    name: called.as_deref(),
                    emoji: emoji.as_deref(),
                    theme: theme.as_deref(),
                },
                tools,
                skills: &found.kit.block,
                aliases: &setting.aliases,
                workspace: &profile.workdir,
                docs: setting.docs.as_deref(),
                sandbox: profile.sandbox.as_ref().map(|sandbox| scene::Sandbox {
                    dir: &profile.workdir,
                    access: match sandbox.access {
                        WorkspaceAccess::None => scene::Access::None,
                        WorkspaceAccess::Ro => scene::Access::Read,
                        WorkspaceAccess::Rw => scene::Access::Write,
                    },
                    mount: sandbox.readable(),
                    browser: scene::Browser::None,
                    elevated: None,
                }),
                owners: &[],
                zone,
                pages: &found.pages,
                voice: None,
                is_tagged: homard_model::writes_tags(&spec.provider),
                heartbeat: setting.heartbeat.as_deref(),
            },
            turn: Turn {
                extra: self.extra.as_deref(),
                channel: self.channel.as_deref(),
                capabilities: &[],
                hints: &[],
                reactions: None,
                runtime: Runtime {
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
fn choose(setting: &Setting, key: &SessionKey, spec: &Spec) -> (PromptMode, Wording) {
    let usual = match setting.style {
        Style::Bare => PromptMode::None,
        Style::Auto | Style::Rich | Style::Lean => scene::mode_of(key),
    };
    (setting.mode.unwrap_or(usual), shortening::wording(setting.style, spec))
}
