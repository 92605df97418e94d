//! From the config to a hub at work: models, agents, the journal.

pub(crate) mod chain;
pub(crate) mod environment;
pub(crate) mod keys;
pub(crate) mod models;
pub(crate) mod schedule;

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use homard_agent::{Agents, Ambient, Hub, HubEvent, Profile, Rules, Slots, profile::Choose, tool::Toolbox};
use homard_journal::Journal;
use homard_proto::AgentId;
use jiff::tz::TimeZone;
use tokio::{sync::mpsc::UnboundedReceiver, task::JoinHandle};

use self::{chain::Chain, environment::Environment, models::Models};
use crate::{
    auth::{
        self, Keyring,
        keep::{Keeper, Keeping},
    },
    config::{Config, agents::Agent},
    paths::{self, Paths},
};

pub(crate) use models::DEMO;

/// How long a run may take when nobody says so.
const TIMEOUT: u64 = 600;
/// The longest that can be asked for, in seconds: some months, far from where clocks overflow.
pub(crate) const MAX_TIMEOUT: u64 = 10_000_000;

/// Where the tools of this process work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// All in this directory.
    Here(PathBuf),
    /// Each agent in its own workspace, which is made if it is not there.
    Workspaces,
}

/// A hub at work on a state directory that this process owns.
#[derive(Debug)]
pub(crate) struct House {
    pub(crate) hub: Hub,
    pub(crate) journal: Arc<Journal>,
    /// What people should know of a model that nobody chose.
    pub(crate) remark: Option<String>,
    upkeep: JoinHandle<()>,
    keeping: Vec<Keeping>,
}

impl House {
    /// Takes the state directory and opens the hub.
    pub(crate) fn open(config: &Config, paths: &Paths, place: &Place) -> Result<(Self, UnboundedReceiver<HubEvent>)> {
        let Staff { agents, keepers, remark } = staff(config, paths, place, environment())?;
        let ambient = Ambient::system();
        let clock = ambient.clone();
        let journal = Arc::new(Journal::open(&paths.state, move || clock.now_ms())?);
        let (main, subagent) = slots(config);
        let slots = Slots::new(main, subagent, 1);
        let rules = Rules {
            freshness: config.session.freshness(TimeZone::system()),
            triggers: config.session.triggers(),
            queue: config.messages.queue(),
        };
        let (hub, feed) = Hub::start_with(ambient, (journal.clone(), journal.fence()), agents, slots, rules);
        let kept = journal.clone();
        let upkeep = homard_agent::task::spawn("journal", async move { kept.maintain().await });
        let keeping = keepers.into_iter().map(Keeper::start).collect();
        Ok((Self { hub, journal, remark, upkeep, keeping }, feed))
    }

    /// Stops what is at work, waits until all is stored, and gives the state directory back.
    pub(crate) async fn close(self) -> Result<()> {
        self.hub.shut_down().await;
        self.upkeep.abort();
        for keeping in self.keeping {
            keeping.end().await;
        }
        self.journal.flush().await.context("the list of sessions could not be written")
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

/// The keys in the environment of this process.
pub(crate) fn environment() -> Environment {
    Environment::read(|name| paths::env(name)?.into_string().ok())
}

/// The models of the default agent.
pub(crate) fn default_chain(config: &Config, paths: &Paths) -> Result<Chain> {
    let agent = default_agent(config);
    let models = Models::new(config, environment());
    let (keyring, _) = Keyring::open(auth::place(paths, agent), &models.client)?;
    Chain::of(config, agent, &models, &keyring).with_context(|| format!("config file {}", paths.config.display()))
}

/// The agent of a message that names none, if any is listed.
pub(crate) fn default_agent(config: &Config) -> Option<&Agent> {
    let listed = &config.agents.list;
    listed.iter().find(|agent| agent.default).or(listed.first())
}

/// The agents, and who keeps what they learn about their credentials.
struct Staff {
    agents: Agents,
    keepers: Vec<Keeper>,
    remark: Option<String>,
}

/// Credentials by the file that they are in: agents may share one.
#[derive(Default)]
struct Keyrings {
    open: BTreeMap<PathBuf, Arc<Keyring>>,
    keepers: Vec<Keeper>,
}

impl Keyrings {
    fn get(&mut self, path: PathBuf, models: &Models) -> Result<Arc<Keyring>> {
        if let Some(keyring) = self.open.get(&path) {
            return Ok(keyring.clone());
        }
        let (keyring, keeper) = Keyring::open(path.clone(), &models.client)?;
        self.keepers.push(keeper);
        Ok(self.open.entry(path).or_insert(Arc::new(keyring)).clone())
    }
}

/// The agents of the config; without any, one that is called `main`.
fn staff(config: &Config, paths: &Paths, place: &Place, environment: Environment) -> Result<Staff> {
    let listed = &config.agents.list;
    let default = listed.iter().position(|agent| agent.default).unwrap_or(0);
    let models = Arc::new(Models::new(config, environment));
    let (mut keyrings, mut remark) = (Keyrings::default(), None);
    // HOME and PATH are what most commands need; keys and tokens of ours are not theirs to see.
    let visible = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "USER"].into_iter();
    let exec_env = visible.filter_map(|name| Some((name.to_owned(), paths::env(name)?.into_string().ok()?))).collect();
    let toolbox = Toolbox::new(homard_tools::all(exec_env));
    let mut profile = |agent: Option<&Agent>, is_default: bool| {
        let id = agent.map_or_else(AgentId::main, |agent| AgentId::normalize(agent.id.as_str()));
        let workdir = match place {
            Place::Here(directory) => directory.clone(),
            Place::Workspaces => make_folder(workspace(config, paths, agent, is_default))?,
        };
        let keyring = keyrings.get(auth::place(paths, agent), &models)?;
        let file = || format!("config file {}", paths.config.display());
        let chain = Chain::of(config, agent, &models, &keyring).with_context(file)?;
        let roster = models.roster(&keyring, &chain.models).with_context(file)?;
        if is_default {
            remark = chain.remark(&paths.config);
        }
        let (toolbox, timeout, models) = (toolbox.clone(), timeout(config), models.clone());
        let choose: Choose =
            Arc::new(move |name| models.strict(&keyring, name, &chain.models).map_err(|error| format!("{error:#}")));
        anyhow::Ok(Profile { toolbox, workdir, timeout, choose, ..Profile::new(id, roster) })
    };
    let first = profile(listed.get(default), true)?;
    let others = listed.iter().enumerate().filter(|&(at, _)| at != default);
    let others = others.map(|(_, agent)| profile(Some(agent), false)).collect::<Result<Vec<_>>>()?;
    let mut ids: Vec<_> = others.iter().map(|other| &other.id).chain([&first.id]).collect();
    ids.sort();
    match ids.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(twice) => Err(anyhow!("agents.list in {} has two agents \"{}\"", paths.config.display(), twice[0])),
        None => Ok(Staff { agents: Agents::new(first, others), keepers: keyrings.keepers, remark }),
    }
}

/// Where an agent's files are.
fn workspace(config: &Config, paths: &Paths, agent: Option<&Agent>, is_default: bool) -> PathBuf {
    let place = |text: &str| paths::expand(Path::new(text), paths::home().as_deref());
    let own = agent.and_then(|agent| agent.workspace.as_ref());
    let shared = config.agents.defaults.workspace.as_ref();
    match (own, shared, agent) {
        (Some(own), ..) => place(own.as_str()),
        (None, Some(shared), Some(agent)) if !is_default => {
            place(shared.as_str()).join(AgentId::normalize(agent.id.as_str()).as_str())
        }
        (None, None, Some(agent)) if !is_default => {
            paths.state.join(format!("workspace-{}", AgentId::normalize(agent.id.as_str())))
        }
        (None, Some(shared), _) => place(shared.as_str()),
        (None, None, _) => paths.state.join("workspace"),
    }
}

fn make_folder(path: PathBuf) -> Result<PathBuf> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
    made.with_context(|| format!("cannot make the workspace {}", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(text: &str) -> Result<Vec<(String, PathBuf)>> {
        let state = PathBuf::from("/nowhere");
        let paths = Paths { config: state.join("homard.json"), state };
        let config = Config::parse(text).unwrap();
        let listed: Vec<_> = config.agents.list.iter().map(Some).collect();
        let agents = staff(&config, &paths, &Place::Here("/work".into()), Environment::default())?.agents;
        let all = if listed.is_empty() { vec![None] } else { listed };
        let is_default = |agent: Option<&Agent>| {
            agent.is_none_or(|agent| AgentId::normalize(agent.id.as_str()) == *agents.default_id())
        };
        Ok(all
            .into_iter()
            .map(|agent| {
                let id = agent.map_or("main".to_owned(), |agent| agent.id.as_str().to_owned());
                (id, workspace(&config, &paths, agent, is_default(agent)))
            })
            .collect())
    }

    fn workspaces(pairs: &[(&str, &str)]) -> Vec<(String, PathBuf)> {
        pairs.iter().map(|&(id, path)| (id.to_owned(), PathBuf::from(path))).collect()
    }

    #[test]
    fn every_agent_has_its_workspace() {
        assert_eq!(setup("{}").unwrap(), workspaces(&[("main", "/nowhere/workspace")]));
        assert_eq!(
            setup("{agents: {list: [{id: 'a'}, {id: 'b', default: true}, {id: 'c', workspace: '/c'}]}}").unwrap(),
            workspaces(&[("a", "/nowhere/workspace-a"), ("b", "/nowhere/workspace"), ("c", "/c")])
        );
        assert_eq!(
            setup("{agents: {defaults: {workspace: '/w'}, list: [{id: 'a'}, {id: 'b'}]}}").unwrap(),
            workspaces(&[("a", "/w"), ("b", "/w/b")])
        );
    }

    #[test]
    fn two_agents_of_one_name_are_refused() {
        let error = setup("{agents: {list: [{id: 'Ops'}, {id: 'ops'}]}}").unwrap_err();
        assert_eq!(error.to_string(), "agents.list in /nowhere/homard.json has two agents \"ops\"");
    }

    #[test]
    fn a_run_may_take_ten_minutes_unless_told_otherwise() {
        let given = |text| timeout(&Config::parse(text).unwrap()).map(|limit| limit.as_secs());
        assert_eq!((given("{}"), given("{agents: {defaults: {timeoutSeconds: 5}}}")), (Some(600), Some(5)));
        assert_eq!(given("{agents: {defaults: {timeoutSeconds: 0}}}"), None);
    }
}
