//! Builds the tools from the config, and the policies that decide who may use them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};

use homard_agent::{
    Ambient, Hub,
    access::ToolRules,
    channel_sender::ChannelSender,
    policy::ToolPolicy,
    sandboxing::SandboxMode,
    schedule::Schedule,
    tool::{Tool, Toolbox},
};
use homard_audit::Audit;
use homard_config::LoadedConfig;
use homard_tools::{
    BackgroundCommands, ExecSettings, FileAccess, MemorySettings, MessageRules, MessageTool, Recipients, WebFetch,
    WebFetchSettings, WebSearch, WebSearchSettings,
    egress::{EgressLimits, SystemResolver},
    sandbox,
    search::{Brave, SearchProvider, Searxng},
    session_tools::{self, SessionToolRules, SpawnRules},
};

use super::{
    approvals, factory,
    mcp_servers::{self, McpConnections},
};
use crate::{
    config::{
        Config, Text,
        agents::ConfiguredAgent,
        tools::{self, Limits, Mode, SearchBackend, Security},
    },
    paths::{self, Paths},
    reload::ConfigReloader,
    tools::{Cron, GatewayTool, Image},
};

/// State that tools keep across config reloads.
#[derive(Clone, Default)]
pub(super) struct ToolDeps {
    /// Commands that run in the background.
    pub(super) background: BackgroundCommands,
    /// The hub, once it is open.
    pub(super) hub: Arc<OnceLock<Hub>>,
    /// MCP servers.
    pub(super) mcp: McpConnections,
    /// Present in a gateway only.
    pub(super) gateway: Option<GatewayDeps>,
    /// Sends messages to chat platforms.
    pub(super) sender: Option<Arc<dyn ChannelSender>>,
    /// Records starts and ends of commands.
    pub(super) audit: Audit,
}

/// Gateway objects that tools need, set once they exist.
#[derive(Clone, Default)]
pub(super) struct GatewayDeps {
    pub(super) schedule: Arc<OnceLock<Schedule>>,
    pub(super) live: Arc<OnceLock<ConfigReloader>>,
}

impl fmt::Debug for ToolDeps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { background, mcp: outside, gateway, .. } = self;
        let is_gateway = gateway.is_some();
        f.debug_struct("ToolDeps")
            .field("background", background)
            .field("outside", outside)
            .field("is_gateway", &is_gateway)
            .finish_non_exhaustive()
    }
}

impl ToolDeps {
    /// Builds all tools with the settings of a config. Also returns warnings.
    pub(super) fn toolbox(
        &self,
        loaded: &LoadedConfig<Config>,
        paths: &Paths,
        plugins: Vec<Arc<dyn Tool>>,
    ) -> (Toolbox, Vec<String>) {
        let exec = self.exec(&loaded.config, paths);
        let files = FileAccess::new(&exec.sandbox);
        let mut all = homard_tools::all_with(exec);
        let mut troubles = Vec::new();
        // Of two tools with the same name, the later one wins.
        all.push(fetch(&loaded.config));
        let search = search(loaded).unwrap_or_else(|why| {
            troubles.push(format!("web search is disabled: {why}"));
            None
        });
        let searches = search.is_some() && loaded.config.tools.web.search.enabled != Some(false);
        all.extend(search);
        troubles.extend(loaded.config.tool_name_warnings().into_iter().map(|(path, what)| format!("{path} {what}")));
        all.extend(session_tools::all(session_tool_settings(&loaded.config)));
        all.extend(homard_tools::memory(memory(&loaded.config, paths, files.clone())));
        let recipients = recipients(self.sender.clone(), &loaded.config);
        let message = MessageTool::new(self.sender.clone(), message_rules(&loaded.config));
        all.push(Arc::new(message.with_recipients(recipients.clone()).with_files(files.clone())));
        all.push(Arc::new(Image::new(loaded.config.agents.defaults.image_model.clone(), files)));
        if let Some(GatewayDeps { schedule, live }) = &self.gateway {
            all.push(Arc::new(Cron::new(schedule.clone(), recipients)));
            all.push(Arc::new(GatewayTool::new(live.clone(), paths.clone())));
        }
        let (setups, left_out) = mcp_servers::setups(&loaded.config.mcp, &paths.state);
        troubles.extend(left_out);
        // Tools of MCP servers and plugins never replace built-in tools.
        let (outside, down) = self.mcp.tools(setups);
        troubles.extend(down);
        let (web, remembers) = (&loaded.config.tools.web, is_memory_enabled(&loaded.config));
        let is_on = |name: &str| match name {
            "web_fetch" => web.fetch.enabled != Some(false),
            "web_search" => searches,
            "memory_search" | "memory_get" => remembers,
            _ => true,
        };
        (Toolbox::new(plugins.into_iter().chain(outside).chain(all)).only(is_on), troubles)
    }

    /// Returns the settings for running commands.
    pub(super) fn exec(&self, config: &Config, paths: &Paths) -> ExecSettings {
        let said = &config.tools.exec;
        // Most commands need HOME and PATH; our own keys and tokens are not passed on.
        let visible = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "USER"].into_iter();
        let env: Vec<_> =
            visible.filter_map(|name| Some((name.to_owned(), paths::env(name)?.into_string().ok()?))).collect();
        let usual = ExecSettings::from(env);
        ExecSettings {
            allow_env: said.allow_env.clone(),
            sandbox: policy(config, paths),
            helper: std::env::current_exe().ok(),
            background: self.background.clone(),
            notify_on_exit: said.notify_on_exit.unwrap_or(true),
            // Only a gateway runs commands in the background: a one-turn process ends and could not supervise them.
            background_after: self
                .gateway
                .as_ref()
                .and(said.background_ms.map(Duration::from_millis).or(usual.background_after)),
            timeout: said.timeout_sec.map_or(usual.timeout, Duration::from_secs),
            keep_finished: said.cleanup_ms.map_or(usual.keep_finished, Duration::from_millis),
            approvals: Some(approvals::approval_policy(config)),
            audit: self.audit.clone(),
            ..usual
        }
    }
}

/// Returns true if the memory tools are enabled.
fn is_memory_enabled(config: &Config) -> bool {
    let said = [&config.memory.search, &config.agents.defaults.memory_search];
    said.into_iter().find_map(|said| said.enabled).unwrap_or(true)
}

/// Returns the settings of the memory index.
fn memory(config: &Config, paths: &Paths, files: FileAccess) -> MemorySettings {
    let (first, then) = (config.memory.search.query, config.agents.defaults.memory_search.query);
    let usual = MemorySettings::default();
    let members = config.agents.members();
    MemorySettings {
        files,
        folder: Some(paths.state.join("memory")),
        workspaces: members.iter().map(|agent| (agent.id.clone(), factory::workspace(config, paths, agent))).collect(),
        max_results: first.max_results.or(then.max_results).unwrap_or(usual.max_results),
        min_score: first.min_score.or(then.min_score).unwrap_or(usual.min_score),
    }
}

/// Returns the sandbox policy for commands.
pub(crate) fn policy(config: &Config, paths: &Paths) -> sandbox::SandboxPolicy {
    let said = &config.tools.exec.sandbox;
    let home = paths::home();
    let places = |list: &[Text]| -> Vec<PathBuf> {
        list.iter().map(|place| paths::expand(Path::new(place.as_str()), home.as_deref())).collect()
    };
    let members = config.agents.members();
    let workspaces: Vec<PathBuf> = members.iter().map(|agent| factory::workspace(config, paths, agent)).collect();
    let sandboxes = members.iter().map(|agent| factory::sandboxing(config, paths, agent));
    let sandboxes =
        sandboxes.filter(|sandboxing| sandboxing.mode != SandboxMode::Off).map(|sandboxing| sandboxing.root);
    let sandboxes: BTreeSet<PathBuf> = sandboxes.collect();
    let roots = workspaces.iter().map(|workspace| super::skills::roots(config, paths, workspace));
    let folders =
        roots.flat_map(|roots| roots.folders().into_iter().map(|(_, folder)| folder.to_owned()).collect::<Vec<_>>());
    sandbox::SandboxPolicy {
        mode: match said.mode.map(|word| word.0) {
            None | Some(Mode::Workspace) => sandbox::AccessMode::Workspace,
            Some(Mode::ReadOnly) => sandbox::AccessMode::ReadOnly,
            Some(Mode::Guarded) => sandbox::AccessMode::Guarded,
            Some(Mode::Full) => sandbox::AccessMode::Full,
        },
        network: said.network.unwrap_or(false),
        state_dir: Some(paths.state.clone()),
        skills: folders.collect::<BTreeSet<_>>().into_iter().collect(),
        workspaces: workspaces.into_iter().chain(sandboxes).collect(),
        extra_read: places(&said.extra_read),
        extra_write: places(&said.extra_write),
        masked: places(&said.masked).into_iter().chain([paths.config.clone()]).chain(config.files.clone()).collect(),
        home,
        search_path: paths::env("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default(),
        limits: limits(config.tools.exec.limits),
    }
}

/// Returns the resource limits for commands; 0 means no limit.
fn limits(said: Limits) -> sandbox::ResourceLimits {
    let usual = sandbox::ResourceLimits::default();
    let count = |said: Option<u64>, usual: Option<u64>| said.map_or(usual, |said| Some(said).filter(|said| *said > 0));
    let bytes = |said: Option<u64>, usual| count(said.map(|mib| mib.saturating_mul(1024 * 1024)), usual);
    sandbox::ResourceLimits {
        memory: bytes(said.memory_mb, usual.memory),
        processes: count(said.processes, usual.processes),
        file: bytes(said.file_mb, usual.file),
        temporary: bytes(said.tmp_mb, usual.temporary),
        disk_free: bytes(said.disk_free_mb, usual.disk_free),
    }
}

/// Detects the sandbox tier that this machine supports. Runs a trial, which takes a moment.
pub(crate) fn tier() -> sandbox::Tier {
    let path = paths::env("PATH").and_then(|path| path.into_string().ok()).unwrap_or_default();
    sandbox::Tier::detect(std::env::current_exe().ok().as_deref(), &path)
}

/// Returns the settings of the session tools: visibility and spawning.
fn session_tool_settings(config: &Config) -> SessionToolRules {
    let (said, sub) = (&config.tools, &config.agents.defaults.subagents);
    let usual = SpawnRules::default();
    let spawn = SpawnRules {
        allow_agents: sub.allow_agents.clone(),
        max_depth: sub.max_spawn_depth.unwrap_or(usual.max_depth),
        max_children: sub.max_children_per_agent.unwrap_or(usual.max_children),
        model: sub.model.as_ref().map(|model| model.as_str().to_owned()),
        thinking: sub.thinking.map(|level| level.0.as_str().to_owned()),
        timeout: sub.run_timeout_seconds.filter(|seconds| *seconds > 0).map(Duration::from_secs),
    };
    SessionToolRules {
        visibility: said.sessions.visibility.map(|word| word.0).unwrap_or_default(),
        agent_to_agent: session_tools::AgentToAgent {
            is_enabled: said.agent_to_agent.enabled,
            allow: said.agent_to_agent.allow.clone(),
        },
        spawn,
        spawn_by_agent: BTreeMap::new(),
    }
}

/// Returns the chats that agents may write to on their own initiative.
fn recipients(courier: Option<Arc<dyn ChannelSender>>, config: &Config) -> Recipients {
    let of_agents = config
        .agents
        .members()
        .into_iter()
        .map(|agent| (agent.id.clone(), agent.config.tools.message.allow_to.clone()));
    Recipients::new(courier, config.tools.message.allow_to.clone(), of_agents.collect())
}

/// Returns which other chats a session may send messages to.
fn message_rules(config: &Config) -> MessageRules {
    let (said, usual) = (&config.tools.message, MessageRules::default());
    MessageRules {
        within_channel: said.cross_context.allow_within_provider.unwrap_or(usual.within_channel),
        across_channels: said.cross_context.allow_across_providers.unwrap_or(usual.across_channels),
        broadcast: said.broadcast.enabled.unwrap_or(usual.broadcast),
    }
}

/// Builds the `web_fetch` tool.
fn fetch(config: &Config) -> Arc<dyn Tool> {
    let (said, usual) = (&config.tools.web.fetch, WebFetchSettings::default());
    let settings = WebFetchSettings {
        max_chars: said.max_chars.unwrap_or(usual.max_chars),
        max_chars_cap: said.max_chars_cap.unwrap_or(usual.max_chars_cap),
        cache: minutes(said.cache_ttl_minutes, usual.cache),
        bounds: EgressLimits {
            timeout: said.timeout_seconds.map_or(usual.bounds.timeout, Duration::from_secs),
            redirects: said.max_redirects.unwrap_or(usual.bounds.redirects),
            ..usual.bounds
        },
    };
    Arc::new(WebFetch::new(settings, Arc::new(SystemResolver), Ambient::system()))
}

/// Builds the `web_search` tool if a search provider is configured; an error says why it cannot be.
fn search(loaded: &LoadedConfig<Config>) -> Result<Option<Arc<dyn Tool>>, String> {
    let (said, usual) = (&loaded.config.tools.web.search, WebSearchSettings::default());
    if said.fault.is_some() {
        // The config names a key that cannot be resolved: using another key, or none, would contradict it. The config
        // check reports it with its place.
        return Ok(None);
    }
    let variable = |name: &str| match paths::env(name) {
        Some(value) => value.into_string().ok(),
        None => loaded.variables.get(name).cloned(),
    };
    let text =
        |said: &Option<Text>, name: &str| said.as_ref().map(|text| text.as_str().to_owned()).or_else(|| variable(name));
    let key = text(&said.api_key, "BRAVE_API_KEY");
    let place = text(&said.searxng.base_url, "SEARXNG_BASE_URL");
    let provider: Arc<dyn SearchProvider> = match (said.provider.map(|word| word.0), key, place) {
        (Some(SearchBackend::Searxng) | None, _, Some(place)) => Arc::new(Searxng::new(&place)?),
        (Some(SearchBackend::Brave) | None, Some(key), _) => Arc::new(Brave::new(&key, None)?),
        (Some(SearchBackend::Searxng), _, None) => {
            return Err("tools.web.search.provider is searxng, but its URL is missing; set \
                        tools.web.search.searxng.baseUrl"
                .to_owned());
        }
        (Some(SearchBackend::Brave), None, _) => {
            return Err("tools.web.search.provider is brave, but its API key is missing; set tools.web.search.apiKey"
                .to_owned());
        }
        (None, None, None) => return Ok(None),
    };
    let settings = WebSearchSettings {
        max_results: said.max_results.unwrap_or(usual.max_results),
        timeout: said.timeout_seconds.map_or(usual.timeout, Duration::from_secs),
        cache: minutes(said.cache_ttl_minutes, usual.cache),
    };
    Ok(Some(Arc::new(WebSearch::new(settings, Some(provider), Arc::new(SystemResolver), Ambient::system()))))
}

fn minutes(said: Option<f64>, usual: Duration) -> Duration {
    said.and_then(|minutes| Duration::try_from_secs_f64(minutes * 60.0).ok()).unwrap_or(usual)
}

/// Merges the tool lists for sandboxed sessions: the agent's own, else the global ones.
fn sandbox_policy(all: &tools::Policy, own: &tools::Policy) -> ToolPolicy {
    let list = |own: &Option<Vec<String>>, all: &Option<Vec<String>>| own.clone().or_else(|| all.clone());
    tools::Policy {
        profile: own.profile.or(all.profile),
        allow: list(&own.allow, &all.allow),
        also_allow: list(&own.also_allow, &all.also_allow),
        deny: list(&own.deny, &all.deny),
    }
    .to_policy()
}

/// Builds the tool policies of an agent. A disabled `web_fetch`, and `exec` and `process` if commands are denied, are
/// added to its deny list.
pub(super) fn rules(config: &Config, agent: &ConfiguredAgent<'_>) -> ToolRules {
    let by = |said: &BTreeMap<String, tools::Policy>| -> BTreeMap<String, ToolPolicy> {
        said.iter().map(|(name, policy)| (name.clone(), policy.to_policy())).collect()
    };
    let (all, own) = (&config.tools, &agent.config.tools);
    let mut rules = ToolRules {
        global: all.to_policy(),
        by_provider: by(&all.by_provider),
        agent: own.to_policy(),
        agent_by_provider: by(&own.by_provider),
        non_owner_allow: own.non_owner_allow.clone(),
        sandbox: sandbox_policy(&all.sandbox.tools, &own.sandbox.tools),
        subagent: all.subagents.tools.to_policy(),
        max_depth: u32::try_from(config.agents.defaults.subagents.max_spawn_depth.unwrap_or(1)).unwrap_or(u32::MAX),
    };
    if all.web.fetch.enabled == Some(false) {
        rules.agent.deny.push("web_fetch".to_owned());
    }
    if [all.exec.security, own.exec.security].into_iter().flatten().any(|word| word.0 == Security::Deny) {
        rules.agent.deny.extend(["exec".to_owned(), "process".to_owned()]);
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(text: &str) -> Vec<String> {
        let config = Config::parse(text).unwrap();
        rules(&config, &config.agents.members()[0]).agent.deny
    }

    #[test]
    fn there_is_nothing_to_run_commands_with_where_none_may_run() {
        let both = vec!["exec".to_owned(), "process".to_owned()];
        assert_eq!(denied("{}"), Vec::<String>::new());
        assert_eq!(denied("{tools: {exec: {security: 'allowlist', ask: 'always'}}}"), Vec::<String>::new());
        assert_eq!(denied("{tools: {exec: {security: 'deny', ask: 'always'}}}"), both);
        let own = "{tools: {exec: {security: 'full'}}, agents: {list: [{id: 'a', tools: {exec: {security: 'deny'}}}]}}";
        assert_eq!(denied(own), both);
    }

    #[test]
    fn m6_limits_of_commands_are_those_of_the_config() {
        let limits = |text: &str| limits(Config::parse(text).unwrap().tools.exec.limits);
        let usual = sandbox::ResourceLimits::default();
        assert_eq!(limits("{}"), usual);
        let said = "{tools: {exec: {limits: {memoryMb: 2, processes: 3, fileMb: 0, tmpMb: 4, diskFreeMb: 0}}}}";
        let mib = 1024 * 1024;
        let expected = sandbox::ResourceLimits {
            memory: Some(2 * mib),
            processes: Some(3),
            file: None,
            temporary: Some(4 * mib),
            disk_free: None,
        };
        assert_eq!(limits(said), expected);
    }
}
