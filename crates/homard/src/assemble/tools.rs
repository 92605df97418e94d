//! From the config to the tools, and who may use which.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};

use homard_agent::{
    Ambient, Hub,
    access::ToolRules,
    policy::Policy,
    task,
    tool::{Tool, Toolbox},
};
use homard_config::Loaded;
use homard_tools::{
    Background, ExecSettings, Exited, WebFetch, WebFetchSettings, WebSearch, WebSearchSettings,
    egress::{Bounds, SystemNames},
    house::{self, HouseRules, SpawnRules},
    sandbox,
    search::{Brave, SearchProvider, Searxng},
};

use crate::{
    config::{
        Config, Text,
        agents::Member,
        tools::{self, Ask, Mode, Searcher, Security},
    },
    paths::{self, Paths},
};

/// What tools keep from one config to the next.
#[derive(Debug, Clone, Default)]
pub(super) struct Bench {
    /// Commands that go on in the background.
    pub(super) background: Background,
    /// Where it is told that one of them ended.
    pub(super) hub: Arc<OnceLock<Hub>>,
}

impl Bench {
    /// Every tool, as a config wants them to work.
    pub(super) fn toolbox(&self, loaded: &Loaded<Config>, paths: &Paths) -> (Toolbox, Vec<String>) {
        let mut all = homard_tools::all_with(self.exec(&loaded.config, paths));
        let mut troubles = Vec::new();
        // Of two tools with one name the later counts.
        all.push(fetch(&loaded.config));
        match search(loaded) {
            Ok(search) => all.push(search),
            Err(why) => troubles.push(format!("the web cannot be searched: {why}")),
        }
        all.extend(house::all(house_rules(&loaded.config)));
        let web = &loaded.config.tools.web;
        let is_on = |name: &str| match name {
            "web_fetch" => web.fetch.enabled != Some(false),
            "web_search" => web.search.enabled != Some(false),
            _ => true,
        };
        (Toolbox::new(all).only(is_on), troubles)
    }

    /// How commands run.
    pub(super) fn exec(&self, config: &Config, paths: &Paths) -> ExecSettings {
        let said = &config.tools.exec;
        // HOME and PATH are what most commands need; keys and tokens of ours are not theirs to see.
        let visible = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "USER"].into_iter();
        let env: Vec<_> =
            visible.filter_map(|name| Some((name.to_owned(), paths::env(name)?.into_string().ok()?))).collect();
        let usual = ExecSettings::from(env);
        ExecSettings {
            sandbox: policy(config, paths),
            helper: std::env::current_exe().ok(),
            background: self.background.clone(),
            on_exit: said.notify_on_exit.unwrap_or(true).then(|| tell(self.hub.clone())),
            wait: said.background_ms.map_or(usual.wait, Duration::from_millis),
            timeout: said.timeout_sec.map_or(usual.timeout, Duration::from_secs),
            keep: said.cleanup_ms.map_or(usual.keep, Duration::from_millis),
            ..usual
        }
    }
}

/// What holds commands, by the config.
pub(crate) fn policy(config: &Config, paths: &Paths) -> sandbox::SandboxPolicy {
    let said = &config.tools.exec.sandbox;
    let home = paths::home();
    let places = |list: &[Text]| -> Vec<PathBuf> {
        list.iter().map(|place| paths::expand(Path::new(place.as_str()), home.as_deref())).collect()
    };
    sandbox::SandboxPolicy {
        mode: match said.mode.map(|word| word.0) {
            None | Some(Mode::Workspace) => sandbox::Mode::Workspace,
            Some(Mode::ReadOnly) => sandbox::Mode::ReadOnly,
            Some(Mode::Full) => sandbox::Mode::Full,
        },
        network: said.network.unwrap_or(false),
        state_dir: Some(paths.state.clone()),
        extra_read: places(&said.extra_read),
        extra_write: places(&said.extra_write),
        masked: places(&said.masked).into_iter().chain([paths.config.clone()]).collect(),
        home,
    }
}

/// What runs may see and start.
fn house_rules(config: &Config) -> HouseRules {
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
    HouseRules {
        visibility: said.sessions.visibility.map(|word| word.0).unwrap_or_default(),
        agent_to_agent: house::AgentToAgent {
            is_enabled: said.agent_to_agent.enabled,
            allow: said.agent_to_agent.allow.clone(),
        },
        spawn,
        spawn_of: BTreeMap::new(),
    }
}

/// What reads pages of the web.
fn fetch(config: &Config) -> Arc<dyn Tool> {
    let (said, usual) = (&config.tools.web.fetch, WebFetchSettings::default());
    let settings = WebFetchSettings {
        max_chars: said.max_chars.unwrap_or(usual.max_chars),
        max_chars_cap: said.max_chars_cap.unwrap_or(usual.max_chars_cap),
        cache: minutes(said.cache_ttl_minutes, usual.cache),
        bounds: Bounds {
            timeout: said.timeout_seconds.map_or(usual.bounds.timeout, Duration::from_secs),
            redirects: said.max_redirects.unwrap_or(usual.bounds.redirects),
            ..usual.bounds
        },
    };
    Arc::new(WebFetch::new(settings, Arc::new(SystemNames), Ambient::system()))
}

/// What searches the web, or why nothing can.
fn search(loaded: &Loaded<Config>) -> Result<Arc<dyn Tool>, String> {
    let (said, usual) = (&loaded.config.tools.web.search, WebSearchSettings::default());
    let variable = |name: &str| match paths::env(name) {
        Some(value) => value.into_string().ok(),
        None => loaded.variables.get(name).cloned(),
    };
    let text =
        |said: &Option<Text>, name: &str| said.as_ref().map(|text| text.as_str().to_owned()).or_else(|| variable(name));
    let key = text(&said.api_key, "BRAVE_API_KEY");
    let place = text(&said.searxng.base_url, "SEARXNG_BASE_URL");
    let provider: Option<Arc<dyn SearchProvider>> = match (said.provider.map(|word| word.0), key, place) {
        (Some(Searcher::Searxng) | None, _, Some(place)) => Some(Arc::new(Searxng::new(&place)?)),
        (Some(Searcher::Brave) | None, Some(key), _) => Some(Arc::new(Brave::new(&key, None)?)),
        (Some(_) | None, _, _) => None,
    };
    let settings = WebSearchSettings {
        max_results: said.max_results.unwrap_or(usual.max_results),
        timeout: said.timeout_seconds.map_or(usual.timeout, Duration::from_secs),
        cache: minutes(said.cache_ttl_minutes, usual.cache),
    };
    Ok(Arc::new(WebSearch::new(settings, provider, Arc::new(SystemNames), Ambient::system())))
}

fn minutes(said: Option<f64>, usual: Duration) -> Duration {
    said.and_then(|minutes| Duration::try_from_secs_f64(minutes * 60.0).ok()).unwrap_or(usual)
}

/// Tells a session that a command of its in the background is over.
fn tell(hub: Arc<OnceLock<Hub>>) -> homard_tools::OnExit {
    Arc::new(move |exited: Exited| {
        let Some(hub) = hub.get().cloned() else { return };
        task::spawn("exit", async move {
            if let Err(error) = hub.note_event(&exited.session, exited.to_string()).await {
                tracing::warn!(session = %exited.session, %error, "the end of a command could not be told");
            }
        });
    })
}

/// Who may use which tools of an agent, and what is denied because nobody could be asked.
pub(super) fn rules(config: &Config, agent: &Member<'_>) -> (ToolRules, Option<String>) {
    let by = |said: &BTreeMap<String, tools::Policy>| -> BTreeMap<String, Policy> {
        said.iter().map(|(name, policy)| (name.clone(), policy.meant())).collect()
    };
    let (all, own) = (&config.tools, &agent.said.tools);
    let mut rules = ToolRules {
        global: all.meant(),
        by_provider: by(&all.by_provider),
        agent: own.meant(),
        agent_by_provider: by(&own.by_provider),
        subagent: all.subagents.tools.meant(),
    };
    let security = [all.exec.security, own.exec.security].into_iter().flatten().map(|word| word.0).min();
    let ask = [all.exec.ask, own.exec.ask].into_iter().flatten().map(|word| word.0).max();
    let trouble = match (security, ask) {
        (Some(Security::Deny), _) => None,
        (Some(Security::Allowlist), _) | (_, Some(Ask::OnMiss | Ask::Always)) => Some(format!(
            "agent {}: tools.exec wants commands to be agreed to, and nobody can be asked yet, so it may run none",
            agent.id
        )),
        (Some(Security::Full) | None, Some(Ask::Off) | None) => return (rules, None),
    };
    rules.agent.deny.extend(["exec".to_owned(), "process".to_owned()]);
    (rules, trouble)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(text: &str) -> (Vec<String>, bool) {
        let config = Config::parse(text).unwrap();
        let (rules, trouble) = rules(&config, &config.agents.members()[0]);
        (rules.agent.deny, trouble.is_some())
    }

    #[test]
    fn commands_run_only_if_nobody_has_to_be_asked() {
        let none = || vec!["exec".to_owned(), "process".to_owned()];
        assert_eq!(denied("{}"), (vec![], false));
        assert_eq!(denied("{tools: {exec: {security: 'full', ask: 'off'}}}"), (vec![], false));
        assert_eq!(denied("{tools: {exec: {security: 'deny'}}}"), (none(), false));
        assert_eq!(denied("{tools: {exec: {ask: 'always'}}}"), (none(), true));
        let own =
            "{tools: {exec: {security: 'full'}}, agents: {list: [{id: 'a', tools: {exec: {security: 'allowlist'}}}]}}";
        assert_eq!(denied(own), (none(), true));
    }
}
