//! Builds a running hub from the config: models, agents, the journal.

pub(crate) mod approvals;
pub(crate) mod chain;
pub(crate) mod channels;
pub(crate) mod environment;
pub(crate) mod guests;
pub(crate) mod hooks;
pub(crate) mod keys;
pub(crate) mod known_apis;
pub(crate) mod metrics;
pub(crate) mod models;
pub(crate) mod office;
pub(crate) mod outages;
mod probed;
pub(crate) mod routes;
pub(crate) mod schedule;
pub(crate) mod secrets;
pub(crate) mod servers;
pub(crate) mod skills;
pub(crate) mod tools;
pub(crate) mod workplace;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use homard_agent::{Ambient, ChannelLimits, Class, Hub, HubEvent, Rules, Slots};
use homard_config::Loaded;
use homard_journal::Journal;
use homard_tools::sandbox;
use jiff::tz::TimeZone;
use tokio::{sync::mpsc::UnboundedReceiver, task::JoinHandle};

use self::{
    environment::Environment,
    office::{Office, Staff},
};
use crate::{
    audit::{self, Shipping, Sinks},
    config::{Chosen, Config, channels::Channel},
    paths::{self, Paths},
    permissions,
};

/// Run timeout in seconds if the config sets none.
const TIMEOUT: u64 = 600;
/// Maximum run timeout in seconds: some months, far below where clock arithmetic overflows.
pub(crate) const MAX_TIMEOUT: u64 = 10_000_000;

/// How long shutdown waits for hooks to process their pending events.
const FLUSH: Duration = Duration::from_secs(2);

/// How long to wait for MCP servers where their tools are needed immediately.
const SETTLE: Duration = Duration::from_secs(10);

/// Why a process opens the state directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To run one turn and exit; starts nothing that needs the process to stay alive.
    OneTurn,
    /// To run the gateway.
    Gateway,
}

/// A running hub with a state directory that this process owns.
#[derive(Debug)]
pub(crate) struct House {
    pub(crate) hub: Hub,
    pub(crate) journal: Arc<Journal>,
    /// A remark for the user about a model that Homard chose by itself.
    pub(crate) remark: Option<String>,
    /// Warnings about agents that work nevertheless.
    pub(crate) troubles: Vec<String>,
    pub(crate) office: Office,
    upkeep: JoinHandle<()>,
    /// Sends checkpoints of the audit log, if the config names a destination.
    shipping: Option<Shipping>,
}

impl House {
    /// Locks the state directory and opens the hub.
    pub(crate) fn open(
        chosen: &Chosen,
        paths: &Paths,
        purpose: Purpose,
    ) -> Result<(Self, UnboundedReceiver<HubEvent>)> {
        // The first lookup of the system time zone enumerates the time zone database; do it while the journal is
        // opened.
        tokio::task::spawn_blocking(TimeZone::system);
        permissions::close(paths)?.iter().for_each(|told| tracing::warn!("{told}"));
        let config = &chosen.loaded.config;
        let ambient = Ambient::system();
        let clock = ambient.clone();
        let journal = Arc::new(Journal::open(&paths.state, move || clock.now_ms())?);
        if let Some(count) = config.trace.keep_runs {
            journal.keep_runs(count);
        }
        // Before any command runs, and before anything reads what an interrupted command has left behind.
        let tidied = sandbox::tidy(&paths.state);
        let (audit, ends) = audit::open(paths, &journal);
        let (office, wrong) = Office::new((paths, purpose), &chosen.loaded, audit);
        let Staff { agents, remark, mut troubles } = office.staff(&chosen.loaded)?;
        troubles.extend(tidied);
        troubles.extend(wrong);
        let shipping = match Sinks::of(&config.audit.checkpoints) {
            Ok(sinks) => Shipping::begin(sinks, ends),
            Err(error) => {
                troubles.push(format!("checkpoints of the audit log are not sent: {error:#}"));
                None
            }
        };
        let (main, subagent) = slots(config);
        let slots = Slots::new(main, subagent, 1);
        let (hub, feed) =
            Hub::start_with(ambient, (journal.clone(), journal.fence()), agents, slots, rules(config, &office));
        if office.bench.hub.set(hub.clone()).is_err() {
            tracing::error!("an office serves one house");
        }
        troubles.extend(office.channels.set_up(&chosen.loaded));
        hub.open_post(Arc::new(office.channels.clone()));
        let kept = journal.clone();
        let upkeep = homard_agent::task::spawn("journal", async move { kept.maintain().await });
        Ok((Self { hub, journal, remark, troubles, office, upkeep, shipping }, feed))
    }

    /// Waits briefly for MCP servers and plugins that are not ready yet and gives the agents their tools. Returns the
    /// warnings that are new since the hub was opened.
    pub(crate) async fn settle(&self, loaded: &Loaded<Config>) -> Result<Vec<String>> {
        let (servers, guests) = tokio::join!(self.office.bench.outside.settled(SETTLE), self.office.guests.settled());
        if !servers && !guests {
            return Ok(Vec::new());
        }
        let mut troubles = set_up_again(&self.hub, &self.office, loaded)?;
        troubles.retain(|trouble| !self.troubles.contains(trouble));
        Ok(troubles)
    }

    /// Stops all runs, waits until everything is stored, and unlocks the state directory.
    pub(crate) async fn close(self) -> Result<()> {
        self.hub.shut_down().await;
        // Hooks receive the events of the last run, too.
        self.hub.flush_hooks(FLUSH).await;
        self.upkeep.abort();
        // Background commands end: no process will be left to poll them.
        self.office.bench.background.end_all().await;
        self.office.close().await;
        // The audit records of the shutdown are flushed with the rest.
        let audit = self.office.audit.clone();
        audit.catch_up();
        tokio::task::spawn_blocking(move || audit.flush()).await.context("the audit log broke")?;
        if let Some(shipping) = self.shipping {
            shipping.end().await;
        }
        let (flushed, ()) = tokio::join!(self.journal.flush(), self.office.write_rest());
        flushed.context("the list of sessions could not be written")
    }
}

/// Applies another, valid config to a hub; new runs use it. Returns warnings about agents and channels.
pub(crate) fn set_up(hub: &Hub, office: &Office, loaded: &Loaded<Config>) -> Result<Vec<String>> {
    let Staff { agents, mut troubles, .. } = office.staff(loaded)?;
    troubles.extend(office.channels.set_up(loaded));
    let (main, subagent) = slots(&loaded.config);
    hub.slots().resize(Class::Main, main);
    hub.slots().resize(Class::Subagent, subagent);
    hub.set_up(agents, rules(&loaded.config, office));
    Ok(troubles)
}

/// Rebuilds the agents from the same config because the available tools may have changed. Returns warnings about
/// agents.
pub(crate) fn set_up_again(hub: &Hub, office: &Office, loaded: &Loaded<Config>) -> Result<Vec<String>> {
    let Staff { agents, troubles, .. } = office.staff(loaded)?;
    hub.set_up(agents, rules(&loaded.config, office));
    Ok(troubles)
}

/// Builds the hub's rules from the config.
fn rules(config: &Config, office: &Office) -> Rules {
    let limits = |channel: &Channel| ChannelLimits {
        direct: channel.dm_history_limit,
        peers: channel
            .dms
            .iter()
            .filter_map(|(peer, chat)| Some((peer.trim().to_lowercase(), chat.history_limit?)))
            .collect(),
    };
    let history = config.channels.iter().map(|(name, channel)| (name.trim().to_lowercase(), limits(channel)));
    Rules {
        freshness: config.session.freshness(TimeZone::system()),
        limits: config.budgets.limits(),
        triggers: config.session.triggers(),
        queue: config.messages.queue(),
        history: history.collect(),
        hooks: office.guests.hooks(),
        audit: office.audit.clone(),
        working_dirs: office.working_dirs(config),
        ..Rules::default()
    }
}

/// Returns the concurrency limits for sessions and for subagents from the config.
pub(crate) fn slots(config: &Config) -> (usize, usize) {
    let defaults = &config.agents.defaults;
    (defaults.max_concurrent.unwrap_or(4), defaults.subagents.max_concurrent.unwrap_or(8))
}

/// Returns the run timeout from the config; `None` means no limit.
pub(crate) fn timeout(config: &Config) -> Option<Duration> {
    let seconds = config.agents.defaults.timeout_seconds.unwrap_or(TIMEOUT).min(MAX_TIMEOUT);
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

/// Reads the API keys from the environment of this process; variables that are not set there come from the config's
/// `env` section.
pub(crate) fn environment(more: &BTreeMap<String, String>) -> Environment {
    Environment::read(|name| match paths::env(name) {
        Some(value) => value.into_string().ok(),
        None => more.get(name).cloned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_may_take_ten_minutes_unless_told_otherwise() {
        let given = |text| timeout(&Config::parse(text).unwrap()).map(|limit| limit.as_secs());
        assert_eq!((given("{}"), given("{agents: {defaults: {timeoutSeconds: 5}}}")), (Some(600), Some(5)));
        assert_eq!(given("{agents: {defaults: {timeoutSeconds: 0}}}"), None);
    }
}
