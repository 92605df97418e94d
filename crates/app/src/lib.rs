//! From settings to a running agent with a gateway: the hub, its agents, models, tools, plugins, channels and schedule.
//!
//! This crate connects the others and implements none of their jobs. It prints nothing and parses no arguments: that is
//! for a program such as `homard`. Start with [`App::open`], the hub of a state directory; then [`factory`] (the agents of
//! a config), [`gateway`] (what
//! answers clients), [`reload`] (changes of the config meanwhile) and [`methods`] (RPC methods that work with files).

pub mod approvals;
pub mod audit;
pub mod environment;
mod error;
pub mod factory;
mod file_watch;
pub mod gateway;
pub mod hooks;
pub mod keys;
mod known_apis;
pub mod masks;
pub mod mcp_servers;
pub mod methods;
pub mod metrics;
pub mod model_chain;
pub mod model_check;
pub mod models;
pub mod openclaw_lock;
pub mod otel;
pub mod outages;
mod permissions;
pub mod plain_secrets;
pub mod plugins;
mod probed_model;
pub mod reload;
pub mod schedule;
pub mod secrets;
pub mod skills;
pub mod toolbox;
mod tools;
pub mod working_dir;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use homard_agent::{FencedStore, Hub, HubEvent, HubRules};
use homard_config::LoadedConfig;
use homard_journal::Journal;
use homard_prompt::history_limits::{ChannelLimits, HistoryLimits};
use homard_queue::{RunClass, Slots};
use homard_runtime::Ambient;
use homard_settings::{
    Chosen, Config,
    channels::Channel,
    paths::{self, Paths},
};
use jiff::tz::TimeZone;
use tokio::{sync::mpsc::UnboundedReceiver, task::JoinHandle};

use self::{
    environment::Environment,
    factory::{AgentFactory, AgentSet},
};
use crate::audit::{CheckpointTask, Sinks};

pub use error::Error;

/// Run timeout in seconds if the config sets none.
const DEFAULT_TIMEOUT: u64 = 600;
/// Maximum run timeout in seconds: some months, far below where clock arithmetic overflows.
pub const MAX_TIMEOUT: u64 = 10_000_000;

/// How long shutdown waits for hooks to process their pending events.
const HOOK_FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// How long to wait for MCP servers where their tools are needed immediately.
const MCP_READY_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a process opens the state directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To run one turn and exit; starts nothing that needs the process to stay alive.
    OneTurn,
    /// To run the gateway.
    Gateway,
}

/// A running hub with a state directory that this process owns.
#[derive(Debug)]
pub struct App {
    pub hub: Hub,
    pub journal: Arc<Journal>,
    /// A remark for the user about a model that Homard chose by itself.
    pub remark: Option<String>,
    /// Warnings about agents that work nevertheless.
    pub warnings: Vec<String>,
    pub factory: AgentFactory,
    upkeep: JoinHandle<()>,
    /// Sends checkpoints of the audit log, if the config names a destination.
    checkpoints: Option<CheckpointTask>,
}

impl App {
    /// Locks the state directory and opens the hub.
    pub fn open(
        chosen: &Chosen,
        paths: &Paths,
        purpose: Purpose,
    ) -> Result<(Self, UnboundedReceiver<HubEvent>), Error> {
        // The first lookup of the system time zone enumerates the time zone database; do it while the journal is
        // opened.
        tokio::task::spawn_blocking(TimeZone::system);
        permissions::restrict(paths)?.iter().for_each(|warning| tracing::warn!("{warning}"));
        let config = &chosen.loaded.config;
        let ambient = Ambient::system();
        let clock = ambient.clone();
        let journal = Arc::new(Journal::open(&paths.state, move || clock.now_ms())?);
        if let Some(count) = config.trace.keep_runs {
            journal.keep_runs(count);
        }
        // Before any command runs, and before anything reads what an interrupted command has left behind.
        let sandbox_warnings = homard_sandbox::tidy(&paths.state);
        let (audit, chain_heads) = audit::open(paths, &journal);
        let (factory, plugin_warnings) = AgentFactory::new(paths, purpose, &chosen.loaded, audit);
        // The audit thread reads the end of its log from the journal, which an error closes.
        let agent_set = factory.build_agents(&chosen.loaded).inspect_err(|_| factory.audit.flush())?;
        let AgentSet { agents, remark, warnings: mut all_warnings } = agent_set;
        all_warnings.extend(sandbox_warnings);
        all_warnings.extend(plugin_warnings);
        let checkpoints = match Sinks::of(&config.audit.checkpoints) {
            Ok(sinks) => CheckpointTask::start(sinks, chain_heads),
            Err(error) => {
                all_warnings.push(format!("audit log checkpoints are disabled: {error:#}"));
                None
            }
        };
        let (main, subagent) = slots(config);
        let slots = Slots::new(main, subagent, 1);
        let (hub, feed) = Hub::start(
            ambient,
            FencedStore::new(journal.clone(), journal.fence()),
            agents,
            slots,
            rules(config, &factory),
        );
        if factory.tool_deps.hub.set(hub.clone()).is_err() {
            tracing::error!("AgentFactory is already bound to a hub (bug)");
        }
        all_warnings.extend(factory.channels.apply_config(&chosen.loaded));
        hub.deliveries().set_sender(Arc::new(factory.channels.clone()));
        let maintained = journal.clone();
        let maintenance = homard_runtime::task::spawn("journal", async move { maintained.maintain().await });
        Ok((Self { hub, journal, remark, warnings: all_warnings, factory, upkeep: maintenance, checkpoints }, feed))
    }

    /// Waits for MCP servers and plugins, up to a timeout, and rebuilds the agents with the tools that these provide.
    /// Returns the warnings that are new since the hub was opened.
    pub async fn settle(&self, loaded: &LoadedConfig<Config>) -> Result<Vec<String>, Error> {
        let (has_servers, has_new_plugins) =
            tokio::join!(self.factory.tool_deps.mcp.settle(MCP_READY_TIMEOUT), self.factory.plugins.settle());
        if !has_servers && !has_new_plugins {
            return Ok(Vec::new());
        }
        let mut warnings = rebuild_agents(&self.hub, &self.factory, loaded)?;
        warnings.retain(|warning| !self.warnings.contains(warning));
        Ok(warnings)
    }

    /// Stops all runs, waits until everything is stored, and unlocks the state directory.
    pub async fn close(self) -> Result<(), Error> {
        self.hub.lifecycle().shut_down().await;
        // Hooks receive the events of the last run, too.
        self.hub.hooks().flush(HOOK_FLUSH_TIMEOUT).await;
        self.upkeep.abort();
        // Background commands end: no process will be left to poll them.
        self.factory.tool_deps.background.kill_all().await;
        self.factory.close().await;
        // The audit records of the shutdown are flushed with the rest.
        let audit = self.factory.audit.clone();
        audit.catch_up();
        tokio::task::spawn_blocking(move || audit.flush())
            .await
            .map_err(|error| Error::Task { what: "failed to flush the audit log", error })?;
        if let Some(checkpoints) = self.checkpoints {
            checkpoints.stop().await;
        }
        let (flushed, ()) = tokio::join!(self.journal.flush(), self.factory.flush());
        flushed.map_err(|error| Error::State { what: "failed to write the session list", error })
    }
}

/// Applies another, valid config to a hub; new runs use it. Returns warnings about agents and channels.
pub(crate) fn apply_config(
    hub: &Hub,
    factory: &AgentFactory,
    loaded: &LoadedConfig<Config>,
) -> Result<Vec<String>, Error> {
    let AgentSet { agents, warnings: mut all_warnings, .. } = factory.build_agents(loaded)?;
    all_warnings.extend(factory.channels.apply_config(loaded));
    let (main, subagent) = slots(&loaded.config);
    hub.runs().slots().resize(RunClass::Main, main);
    hub.runs().slots().resize(RunClass::Subagent, subagent);
    hub.reconfigure(agents, rules(&loaded.config, factory));
    Ok(all_warnings)
}

/// Rebuilds the agents from the same config because the available tools may have changed. Returns warnings about
/// agents.
pub(crate) fn rebuild_agents(
    hub: &Hub,
    factory: &AgentFactory,
    loaded: &LoadedConfig<Config>,
) -> Result<Vec<String>, Error> {
    let AgentSet { agents, warnings, .. } = factory.build_agents(loaded)?;
    hub.reconfigure(agents, rules(&loaded.config, factory));
    Ok(warnings)
}

/// Builds the hub's rules from the config.
fn rules(config: &Config, factory: &AgentFactory) -> HubRules {
    HubRules {
        auto_reset: config.session.auto_reset(TimeZone::system()),
        budgets: config.budgets.limits(),
        triggers: config.session.triggers(),
        queue: config.messages.queue(),
        history: history_limits(config),
        hooks: factory.plugins.hooks(),
        audit: factory.audit.clone(),
        request_log: factory.request_log.clone(),
        working_dirs: factory.working_dirs(config),
        ..HubRules::default()
    }
}

/// Returns how much history of direct chats goes into prompts, by channel.
fn history_limits(config: &Config) -> HistoryLimits {
    let limits = |channel: &Channel| ChannelLimits {
        direct: channel.dm_history_limit,
        peers: channel
            .dms
            .iter()
            .filter_map(|(peer, chat)| Some((peer.trim().to_lowercase(), chat.history_limit?)))
            .collect(),
    };
    config.channels.iter().map(|(name, channel)| (name.trim().to_lowercase(), limits(channel))).collect()
}

/// Returns the concurrency limits for sessions and for subagents from the config.
pub fn slots(config: &Config) -> (usize, usize) {
    let defaults = &config.agents.defaults;
    (defaults.max_concurrent.unwrap_or(4), defaults.subagents.max_concurrent.unwrap_or(8))
}

/// Returns the run timeout from the config; `None` means no limit.
pub fn timeout(config: &Config) -> Option<Duration> {
    let seconds = config.agents.defaults.timeout_seconds.unwrap_or(DEFAULT_TIMEOUT).min(MAX_TIMEOUT);
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

/// Reads the API keys from the environment of this process; variables that are not set there come from the config's
/// `env` section.
pub fn environment(fallback: &BTreeMap<String, String>) -> Environment {
    Environment::read(|name| match paths::env(name) {
        Some(value) => value.into_string().ok(),
        None => fallback.get(name).cloned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_times_out_after_ten_minutes_by_default() {
        let timeout_secs = |text| timeout(&Config::parse(text).unwrap()).map(|limit| limit.as_secs());
        assert_eq!(
            (timeout_secs("{}"), timeout_secs("{agents: {defaults: {timeoutSeconds: 5}}}")),
            (Some(600), Some(5))
        );
        assert_eq!(timeout_secs("{agents: {defaults: {timeoutSeconds: 0}}}"), None);
    }

    #[test]
    fn direct_chats_have_the_history_limits_of_the_config() {
        let text = "{channels: {Telegram: {dmHistoryLimit: 7, dms: {' Ann': {historyLimit: 2}}}}}";
        let limits = history_limits(&Config::parse(text).unwrap());
        let telegram = &limits["telegram"];
        assert_eq!((telegram.direct, telegram.peers.get("ann")), (Some(7), Some(&2)));
    }
}
