//! Builds the tools from the config, and the policies that decide who may use them.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use homard_agent::{
    Hub,
    access::ToolRules,
    channel_sender::ChannelSender,
    tool::{Tool, Toolbox},
};
use homard_audit::Audit;
use homard_config::LoadedConfig;
use homard_egress::{EgressLimits, SystemResolver};
use homard_policy::tools::ToolPolicy;
use homard_runtime::Ambient;
use homard_schedule::Schedule;
use homard_settings::{
    Config, Text,
    agent_directories::workspace,
    agents::ConfiguredAgent,
    paths::{self, Paths},
    tools::{self, SearchBackend, Security},
};
use homard_tools::{
    BackgroundCommands, ExecSettings, FileAccess, MemorySettings, MessageRules, MessageTool, Recipients, WebFetch,
    WebFetchSettings, WebSearch, WebSearchSettings,
    search::{Brave, SearchProvider, Searxng},
    session_tools::{self, SessionToolRules, SpawnRules},
};

use super::{
    approvals,
    mcp_servers::{self, McpConnections},
};
use crate::{
    reload::ConfigReloader,
    tools::{Cron, GatewayTool, Image},
};

/// State that tools keep across config reloads.
#[derive(Clone, Default)]
pub(super) struct ToolDeps {
    /// Commands that run in the background.
    pub background: BackgroundCommands,
    /// The hub, once it is open.
    pub hub: Arc<OnceLock<Hub>>,
    /// MCP servers.
    pub mcp: McpConnections,
    /// Present in a gateway only.
    pub gateway: Option<GatewayDeps>,
    /// Sends messages to chat platforms.
    pub sender: Option<Arc<dyn ChannelSender>>,
    /// Records starts and ends of commands.
    pub audit: Audit,
}

/// Gateway objects that tools need, set once they exist.
#[derive(Clone, Default)]
pub(super) struct GatewayDeps {
    pub schedule: Arc<OnceLock<Schedule>>,
    pub live: Arc<OnceLock<ConfigReloader>>,
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
    pub(crate) fn toolbox(
        &self,
        loaded: &LoadedConfig<Config>,
        paths: &Paths,
        plugins: Vec<Arc<dyn Tool>>,
    ) -> (Toolbox, Vec<String>) {
        let exec = self.exec(&loaded.config, paths);
        let files = FileAccess::new(&exec.sandbox);
        let mut all = homard_tools::all_with(exec);
        let mut warnings = Vec::new();
        // Of two tools with the same name, the later one wins.
        all.push(fetch(&loaded.config));
        let search = search(loaded).unwrap_or_else(|why| {
            warnings.push(format!("web search is disabled: {why}"));
            None
        });
        let searches = search.is_some() && loaded.config.tools.web.search.enabled != Some(false);
        all.extend(search);
        warnings.extend(homard_settings::tool_name_warnings(&loaded.config));
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
        warnings.extend(left_out);
        // Tools of MCP servers and plugins never replace built-in tools.
        let (outside, down) = self.mcp.tools(setups);
        warnings.extend(down);
        let (web, remembers) = (&loaded.config.tools.web, is_memory_enabled(&loaded.config));
        let is_enabled = |name: &str| match name {
            "web_fetch" => web.fetch.enabled != Some(false),
            "web_search" => searches,
            "memory_search" | "memory_get" => remembers,
            _ => true,
        };
        (Toolbox::new(plugins.into_iter().chain(outside).chain(all)).only(is_enabled), warnings)
    }

    /// Returns the settings for running commands.
    pub(crate) fn exec(&self, config: &Config, paths: &Paths) -> ExecSettings {
        let exec = &config.tools.exec;
        // Most commands need HOME and PATH; our own keys and tokens are not passed on.
        let visible = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "USER"].into_iter();
        let env: Vec<_> =
            visible.filter_map(|name| Some((name.to_owned(), paths::env(name)?.into_string().ok()?))).collect();
        let defaults = ExecSettings::from(env);
        ExecSettings {
            allow_env: exec.allow_env.clone(),
            sandbox: homard_settings::sandbox_policy(config, paths),
            helper: std::env::current_exe().ok(),
            background: self.background.clone(),
            notify_on_exit: exec.notify_on_exit.unwrap_or(true),
            // Only a gateway runs commands in the background: a one-turn process ends and could not supervise them.
            background_after: self
                .gateway
                .as_ref()
                .and(exec.background_ms.map(Duration::from_millis).or(defaults.background_after)),
            timeout: exec.timeout_sec.map_or(defaults.timeout, Duration::from_secs),
            keep_finished: exec.cleanup_ms.map_or(defaults.keep_finished, Duration::from_millis),
            approvals: Some(approvals::approval_policy(config)),
            audit: self.audit.clone(),
            ..defaults
        }
    }
}

/// Returns true if the memory tools are enabled.
fn is_memory_enabled(config: &Config) -> bool {
    let sections = [&config.memory.search, &config.agents.defaults.memory_search];
    sections.into_iter().find_map(|sections| sections.enabled).unwrap_or(true)
}

/// Returns the settings of the memory index.
fn memory(config: &Config, paths: &Paths, files: FileAccess) -> MemorySettings {
    let (primary, fallback) = (config.memory.search.query, config.agents.defaults.memory_search.query);
    let defaults = MemorySettings::default();
    let members = config.agents.members();
    MemorySettings {
        files,
        folder: Some(paths.state.join("memory")),
        workspaces: members.iter().map(|agent| (agent.id.clone(), workspace(config, paths, agent))).collect(),
        max_results: primary.max_results.or(fallback.max_results).unwrap_or(defaults.max_results),
        min_score: primary.min_score.or(fallback.min_score).unwrap_or(defaults.min_score),
    }
}

/// Detects the sandbox tier that this machine supports. Runs a trial, which takes a moment.
pub fn tier() -> homard_sandbox::Tier {
    let path = paths::env("PATH").and_then(|path| path.into_string().ok()).unwrap_or_default();
    homard_sandbox::Tier::detect(std::env::current_exe().ok().as_deref(), &path)
}

/// Returns the settings of the session tools: visibility and spawning.
fn session_tool_settings(config: &Config) -> SessionToolRules {
    let (tools, sub) = (&config.tools, &config.agents.defaults.subagents);
    let defaults = SpawnRules::default();
    let spawn = SpawnRules {
        allow_agents: sub.allow_agents.clone(),
        max_depth: sub.max_spawn_depth.unwrap_or(defaults.max_depth),
        max_children: sub.max_children_per_agent.unwrap_or(defaults.max_children),
        model: sub.model.as_ref().map(|model| model.as_str().to_owned()),
        thinking: sub.thinking.map(|level| level.0.as_str().to_owned()),
        timeout: sub.run_timeout_seconds.filter(|seconds| *seconds > 0).map(Duration::from_secs),
    };
    SessionToolRules {
        visibility: tools.sessions.visibility.map(|word| word.0).unwrap_or_default(),
        agent_to_agent: session_tools::AgentToAgent {
            is_enabled: tools.agent_to_agent.enabled,
            allow: tools.agent_to_agent.allow.clone(),
        },
        spawn,
        spawn_by_agent: BTreeMap::new(),
    }
}

/// Returns the chats that agents may write to on their own initiative.
fn recipients(sender: Option<Arc<dyn ChannelSender>>, config: &Config) -> Recipients {
    let agent_recipients = config
        .agents
        .members()
        .into_iter()
        .map(|agent| (agent.id.clone(), agent.config.tools.message.allow_to.clone()));
    Recipients::new(sender, config.tools.message.allow_to.clone(), agent_recipients.collect())
}

/// Returns which other chats a session may send messages to.
fn message_rules(config: &Config) -> MessageRules {
    let (section, defaults) = (&config.tools.message, MessageRules::default());
    MessageRules {
        within_channel: section.cross_context.allow_within_provider.unwrap_or(defaults.within_channel),
        across_channels: section.cross_context.allow_across_providers.unwrap_or(defaults.across_channels),
        broadcast: section.broadcast.enabled.unwrap_or(defaults.broadcast),
    }
}

/// Builds the `web_fetch` tool.
fn fetch(config: &Config) -> Arc<dyn Tool> {
    Arc::new(WebFetch::new(fetch_settings(config), Arc::new(SystemResolver), Ambient::system()))
}

fn fetch_settings(config: &Config) -> WebFetchSettings {
    let (section, defaults) = (&config.tools.web.fetch, WebFetchSettings::default());
    WebFetchSettings {
        max_chars: section.max_chars.unwrap_or(defaults.max_chars),
        max_chars_cap: section.max_chars_cap.unwrap_or(defaults.max_chars_cap),
        cache: minutes(section.cache_ttl_minutes, defaults.cache),
        bounds: EgressLimits {
            timeout: section.timeout_seconds.map_or(defaults.bounds.timeout, Duration::from_secs),
            redirects: section.max_redirects.unwrap_or(defaults.bounds.redirects),
            ..defaults.bounds
        },
    }
}

/// Builds the `web_search` tool if a search provider is configured; an error says why it cannot be.
fn search(loaded: &LoadedConfig<Config>) -> Result<Option<Arc<dyn Tool>>, String> {
    let (section, defaults) = (&loaded.config.tools.web.search, WebSearchSettings::default());
    if section.fault.is_some() {
        // The config names a key that cannot be resolved: using another key, or none, would contradict it. The config
        // check reports it with its place.
        return Ok(None);
    }
    let variable = |name: &str| match paths::env(name) {
        Some(value) => value.into_string().ok(),
        None => loaded.variables.get(name).cloned(),
    };
    let text = |configured: &Option<Text>, name: &str| {
        configured.as_ref().map(|text| text.as_str().to_owned()).or_else(|| variable(name))
    };
    let key = text(&section.api_key, "BRAVE_API_KEY");
    let searxng_url = text(&section.searxng.base_url, "SEARXNG_BASE_URL");
    let provider: Arc<dyn SearchProvider> = match (section.provider.map(|word| word.0), key, searxng_url) {
        (Some(SearchBackend::Searxng) | None, _, Some(searxng_url)) => Arc::new(Searxng::new(&searxng_url)?),
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
        max_results: section.max_results.unwrap_or(defaults.max_results),
        timeout: section.timeout_seconds.map_or(defaults.timeout, Duration::from_secs),
        cache: minutes(section.cache_ttl_minutes, defaults.cache),
    };
    Ok(Some(Arc::new(WebSearch::new(settings, Some(provider), Arc::new(SystemResolver), Ambient::system()))))
}

fn minutes(configured: Option<f64>, default: Duration) -> Duration {
    configured.and_then(|minutes| Duration::try_from_secs_f64(minutes * 60.0).ok()).unwrap_or(default)
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
pub fn rules(config: &Config, agent: &ConfiguredAgent<'_>) -> ToolRules {
    let policies = |sections: &BTreeMap<String, tools::Policy>| -> BTreeMap<String, ToolPolicy> {
        sections.iter().map(|(name, policy)| (name.clone(), policy.to_policy())).collect()
    };
    let (all, own) = (&config.tools, &agent.config.tools);
    let mut rules = ToolRules {
        global: all.to_policy(),
        by_provider: policies(&all.by_provider),
        agent: own.to_policy(),
        agent_by_provider: policies(&own.by_provider),
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
    fn command_tools_are_denied_if_security_is_deny() {
        let command_tools = vec!["exec".to_owned(), "process".to_owned()];
        assert_eq!(denied("{}"), Vec::<String>::new());
        assert_eq!(denied("{tools: {exec: {security: 'allowlist', ask: 'always'}}}"), Vec::<String>::new());
        assert_eq!(denied("{tools: {exec: {security: 'deny', ask: 'always'}}}"), command_tools);
        let agent_deny =
            "{tools: {exec: {security: 'full'}}, agents: {list: [{id: 'a', tools: {exec: {security: 'deny'}}}]}}";
        assert_eq!(denied(agent_deny), command_tools);
    }

    #[test]
    fn commands_have_the_times_of_the_config() {
        let paths = Paths { config: "/s/homard.json".into(), state: "/s".into() };
        let exec = |text: &str| ToolDeps::default().exec(&Config::parse(text).unwrap(), &paths);
        let configured = exec("{tools: {exec: {timeoutSec: 7, cleanupMs: 8, notifyOnExit: false}}}");
        let durations = (configured.timeout, configured.keep_finished);
        assert_eq!(durations, (Duration::from_secs(7), Duration::from_millis(8)));
        assert!(!configured.notify_on_exit && exec("{}").notify_on_exit);
    }

    #[test]
    fn web_fetch_has_the_limits_of_the_config() {
        let text = "{tools: {web: {fetch: {cacheTtlMinutes: 0.5, maxRedirects: 2}}}}";
        let (settings, defaults) = (fetch_settings(&Config::parse(text).unwrap()), WebFetchSettings::default());
        let bounds = EgressLimits { redirects: 2, ..defaults.bounds };
        assert_eq!(settings, WebFetchSettings { cache: Duration::from_secs(30), bounds, ..defaults });
    }

    #[test]
    fn messages_to_other_chats_and_sub_agents_are_limited_by_the_config() {
        let text = "{tools: {message: {crossContext: {allowWithinProvider: false, allowAcrossProviders: true}}},
            agents: {defaults: {subagents: {maxChildrenPerAgent: 3}}}}";
        let (config, none) = (Config::parse(text).unwrap(), Config::parse("{}").unwrap());
        let rules = message_rules(&config);
        let defaults = message_rules(&none);
        assert_eq!((rules.within_channel, rules.across_channels), (false, true));
        assert_eq!((defaults.within_channel, defaults.across_channels), (true, false));
        assert_eq!(session_tool_settings(&config).spawn.max_children, 3);
        assert_ne!(session_tool_settings(&none).spawn.max_children, 3);
    }
}
