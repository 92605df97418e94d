//! From the config to the tools, and who may use which.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};

use homard_agent::{Hub, access::ToolRules, policy::Policy, task, tool::Toolbox};
use homard_config::Loaded;
use homard_tools::{Background, ExecSettings, Exited, sandbox};

use crate::{
    config::{
        Config, Text,
        agents::Member,
        tools::{self, Ask, Mode, Security},
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
    pub(super) fn toolbox(&self, loaded: &Loaded<Config>, paths: &Paths) -> Toolbox {
        Toolbox::new(homard_tools::all_with(self.exec(&loaded.config, paths)))
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
        let own = "{tools: {exec: {security: 'full'}}, agents: {list: [{id: 'a', tools: {exec: {security: 'allowlist'}}}]}}";
        assert_eq!(denied(own), (none(), true));
    }
}
