//! From the config to a hub at work: models, agents, the journal.

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

/// How long a run may take when nobody says so.
const TIMEOUT: u64 = 600;
/// The longest that can be asked for, in seconds: some months, far from where clocks overflow.
pub(crate) const MAX_TIMEOUT: u64 = 10_000_000;

/// How long hooks may take to hear of everything when the house is closed.
const FLUSH: Duration = Duration::from_secs(2);

/// How long MCP servers are waited for where their tools are needed at once.
const SETTLE: Duration = Duration::from_secs(10);

/// What a process opens the state directory for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To run one turn and exit: nothing is started that would need the process later.
    OneTurn,
    /// To serve as the gateway.
    Gateway,
}

/// A hub at work on a state directory that this process owns.
#[derive(Debug)]
pub(crate) struct House {
    pub(crate) hub: Hub,
    pub(crate) journal: Arc<Journal>,
    /// What people should know of a model that nobody chose.
    pub(crate) remark: Option<String>,
    /// What is wrong with some agent, which works all the same.
    pub(crate) troubles: Vec<String>,
    pub(crate) office: Office,
    upkeep: JoinHandle<()>,
    /// Who sends checkpoints of the audit log, if the config names a place.
    shipping: Option<Shipping>,
}

impl House {
    /// Takes the state directory and opens the hub.
    pub(crate) fn open(
        chosen: &Chosen,
        paths: &Paths,
        purpose: Purpose,
    ) -> Result<(Self, UnboundedReceiver<HubEvent>)> {
        // Whoever asks for the time zone first waits until all that there are were found: meanwhile the journal is opened.
        tokio::task::spawn_blocking(TimeZone::system);
        permissions::close(paths)?.iter().for_each(|told| tracing::warn!("{told}"));
        let config = &chosen.loaded.config;
        let ambient = Ambient::system();
        let clock = ambient.clone();
        let journal = Arc::new(Journal::open(&paths.state, move || clock.now_ms())?);
        if let Some(count) = config.trace.keep_runs {
            journal.keep_runs(count);
        }
        // Before any command, and before anybody reads what one that was cut off has left.
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

    /// Waits a little for MCP servers and plugins that are not ready yet, and gives the agents their tools. Says what is wrong now
    /// and was not before.
    pub(crate) async fn settle(&self, loaded: &Loaded<Config>) -> Result<Vec<String>> {
        let (servers, guests) = tokio::join!(self.office.bench.outside.settled(SETTLE), self.office.guests.settled());
        if !servers && !guests {
            return Ok(Vec::new());
        }
        let mut troubles = set_up_again(&self.hub, &self.office, loaded)?;
        troubles.retain(|trouble| !self.troubles.contains(trouble));
        Ok(troubles)
    }

    /// Stops what is at work, waits until all is stored, and gives the state directory back.
    pub(crate) async fn close(self) -> Result<()> {
        self.hub.shut_down().await;
        // Whoever watches runs hears of the last one, too.
        self.hub.flush_hooks(FLUSH).await;
        self.upkeep.abort();
        // Nobody could ask for them any more.
        self.office.bench.background.end_all().await;
        self.office.close().await;
        // What it kept of the end goes to disk with the rest.
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

/// Sets a hub up by another config, which is valid: what begins from here on goes by it. Says what is wrong with some agent.
pub(crate) fn set_up(hub: &Hub, office: &Office, loaded: &Loaded<Config>) -> Result<Vec<String>> {
    let Staff { agents, mut troubles, .. } = office.staff(loaded)?;
    troubles.extend(office.channels.set_up(loaded));
    let (main, subagent) = slots(&loaded.config);
    hub.slots().resize(Class::Main, main);
    hub.slots().resize(Class::Subagent, subagent);
    hub.set_up(agents, rules(&loaded.config, office));
    Ok(troubles)
}

/// Sets a hub up again by the config that it has: there may be other tools. Says what is wrong with some agent.
pub(crate) fn set_up_again(hub: &Hub, office: &Office, loaded: &Loaded<Config>) -> Result<Vec<String>> {
    let Staff { agents, troubles, .. } = office.staff(loaded)?;
    hub.set_up(agents, rules(&loaded.config, office));
    Ok(troubles)
}

/// The rules of the house, by the config.
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

/// How many conversations and how many runs of theirs are at work at once, by the config.
pub(crate) fn slots(config: &Config) -> (usize, usize) {
    let defaults = &config.agents.defaults;
    (defaults.max_concurrent.unwrap_or(4), defaults.subagents.max_concurrent.unwrap_or(8))
}

/// How long a run may take, by the config; `None` for as long as it takes.
pub(crate) fn timeout(config: &Config) -> Option<Duration> {
    let seconds = config.agents.defaults.timeout_seconds.unwrap_or(TIMEOUT).min(MAX_TIMEOUT);
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

/// The keys in the environment of this process, and in the config's section for those that are not in it.
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
