//! Builds the approvals store of a state directory and publishes its events to clients; derives from the config which
//! commands need approval.

use std::sync::Arc;

use anyhow::{Context, Result};
use async_trait::async_trait;
use homard_agent::{
    Ambient, Hub,
    approval::{self, ExecApprovals, LevelOverrides, follow, store::ApprovalStore},
    task,
};
use homard_gateway::{Audience, Broadcaster, Scope};
use homard_journal::ApprovalFiles;
use homard_proto::Generation;
use homard_store::Error as StoreError;
use homard_tools::{Exec, ExecApprovalSettings, argv};
use serde_json::Value;
use tokio::{sync::broadcast::error::RecvError, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use super::App;
use crate::{
    config::{
        Config,
        tools::{Ask, Mode, Security},
    },
    paths::Paths,
};

/// Opens the approvals of a state directory that this process owns and connects them to the hub.
pub(crate) async fn open(hub: &Hub, paths: &Paths) -> Result<ExecApprovals> {
    let ambient = hub.ambient();
    let shelf = FileApprovalStore { files: ApprovalFiles::new(&paths.state), ambient: ambient.clone() };
    let desk = ExecApprovals::open_with(Arc::new(shelf), ambient.clone(), hub.audit()).await;
    let desk = desk.context("cannot read the pending approvals")?;
    hub.set_approvals(&desk);
    Ok(desk)
}

/// Resumes the approvals that were pending when the previous gateway ended. The spawned tasks end by themselves.
pub(crate) fn resume(house: &App, config: &Config, paths: &Paths) {
    if let Some(desk) = house.hub.approvals() {
        drop(follow::resume(desk, &house.hub, &run_approved(house, config, paths, desk)));
    }
}

/// Runs the approved commands in this process and waits for them.
pub(crate) async fn finish(house: &App, config: &Config, paths: &Paths) {
    let Some(desk) = house.hub.approvals() else { return };
    let later = run_approved(house, config, paths, desk);
    for entry in desk.unfinished().iter().filter(|entry| entry.is_open()) {
        follow::follow(desk, &house.hub, &entry.id, &later).await;
    }
}

/// Returns the function that runs an approved command.
fn run_approved(house: &App, config: &Config, paths: &Paths, desk: &ExecApprovals) -> follow::ApprovedRunner {
    Exec::new(house.factory.tool_deps.exec(config, paths)).approved_runner(desk, &house.hub)
}

/// Derives the approval policy for commands from the config: for all agents, and for each.
pub(super) fn approval_policy(config: &Config) -> ExecApprovalSettings {
    let said = &config.tools.exec;
    let mut all = level_request(said.security.map(|word| word.0), said.ask.map(|word| word.0));
    if said.sandbox.mode.is_some_and(|word| word.0 == Mode::Guarded) {
        all = strictest(all, level_request(Some(Security::Allowlist), Some(Ask::OnMiss)));
    }
    // Without a setting, all commands are allowed: the sandbox confines them.
    all.security = all.security.or(Some(approval::Security::Full));
    let members = config.agents.members();
    let own = members.iter().map(|agent| {
        let said = &agent.config.tools.exec;
        let own = level_request(said.security.map(|word| word.0), said.ask.map(|word| word.0));
        (agent.id.clone(), strictest(all, own))
    });
    let usual = || argv::SAFE_BINS.map(str::to_owned).to_vec();
    ExecApprovalSettings {
        default: all,
        by_agent: own.collect(),
        safe_bins: said.safe_bins.clone().unwrap_or_else(usual),
    }
}

/// Converts a section of the config. `ask: on-miss` without `security` implies an allowlist.
fn level_request(security: Option<Security>, ask: Option<Ask>) -> LevelOverrides {
    let listed = (ask == Some(Ask::OnMiss)).then_some(Security::Allowlist);
    LevelOverrides {
        security: security.or(listed).map(|security| match security {
            Security::Deny => approval::Security::Deny,
            Security::Allowlist => approval::Security::Allowlist,
            Security::Full => approval::Security::Full,
        }),
        ask: ask.map(|ask| match ask {
            Ask::Off => approval::AskMode::Off,
            Ask::OnMiss => approval::AskMode::OnMiss,
            Ask::Always => approval::AskMode::Always,
        }),
    }
}

fn strictest(one: LevelOverrides, other: LevelOverrides) -> LevelOverrides {
    LevelOverrides {
        security: [one.security, other.security].into_iter().flatten().min(),
        ask: [one.ask, other.ask].into_iter().flatten().max(),
    }
}

/// Expires unanswered requests and publishes requests and decisions to clients, until stopped.
pub(crate) fn start(desk: &ExecApprovals, news: Broadcaster, stop: CancellationToken) -> [JoinHandle<()>; 2] {
    let listening = publish_events(desk.clone(), news, stop.clone());
    [task::spawn("approvals", desk.clone().run(stop)), task::spawn("approval events", listening)]
}

/// Commands may contain secrets: events go only to clients with the approvals scope.
async fn publish_events(desk: ExecApprovals, news: Broadcaster, stop: CancellationToken) {
    let audience = Audience { scope: Some(Scope::Approvals), min_protocol: Generation::Three };
    let mut heard = desk.subscribe();
    loop {
        let event = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            event = heard.recv() => event,
        };
        match event {
            Ok((name, payload)) => news.publish(name, &payload, audience),
            Err(RecvError::Lagged(missed)) => {
                tracing::warn!(missed, "approval events were dropped; clients may show outdated approvals")
            }
            Err(RecvError::Closed) => return,
        }
    }
}

/// Stores the approvals of a state directory in files.
#[derive(Debug)]
struct FileApprovalStore {
    files: ApprovalFiles,
    ambient: Ambient,
}

#[async_trait]
impl ApprovalStore for FileApprovalStore {
    fn location(&self) -> String {
        self.files.path().display().to_string()
    }

    async fn load(&self) -> Result<Vec<Value>, StoreError> {
        self.files.load(self.ambient.now_ms()).await
    }

    async fn save(&self, approvals: Vec<Value>) -> Result<(), StoreError> {
        self.files.save(approvals).await
    }

    async fn policy(&self) -> Result<Option<String>, StoreError> {
        self.files.policy().await
    }

    async fn set_policy(&self, text: String) -> Result<(), StoreError> {
        self.files.set_policy(text).await
    }
}

#[cfg(test)]
mod tests {
    use homard_agent::approval::EffectiveLevels;
    use homard_proto::AgentId;

    use super::*;

    /// Returns the effective levels of an agent if the approvals file has no entry.
    fn levels(text: &str, agent: &str) -> (&'static str, &'static str) {
        let asking = approval_policy(&Config::parse(text).unwrap());
        let own = asking.by_agent.get(&AgentId::normalize(agent)).copied();
        let EffectiveLevels { security, ask } = EffectiveLevels::of(&[own.unwrap_or(asking.default)]);
        (security.as_str(), ask.as_str())
    }

    #[test]
    fn a_config_says_what_may_run_and_who_is_asked() {
        for (exec, expected) in [
            // Without an allowlist there are no misses, so `on-miss` never asks.
            ("{}", ("full", "on-miss")),
            ("{sandbox: {mode: 'full'}}", ("full", "on-miss")),
            ("{ask: 'off'}", ("full", "off")),
            ("{security: 'full', ask: 'on-miss'}", ("full", "on-miss")),
            ("{ask: 'on-miss'}", ("allowlist", "on-miss")),
            ("{security: 'allowlist'}", ("allowlist", "on-miss")),
            ("{security: 'allowlist', ask: 'off'}", ("allowlist", "off")),
            ("{ask: 'always'}", ("full", "always")),
            ("{security: 'deny', ask: 'off'}", ("deny", "off")),
            ("{sandbox: {mode: 'guarded'}}", ("allowlist", "on-miss")),
            ("{security: 'full', ask: 'off', sandbox: {mode: 'guarded'}}", ("allowlist", "on-miss")),
            ("{security: 'deny', ask: 'always', sandbox: {mode: 'guarded'}}", ("deny", "always")),
        ] {
            assert_eq!(levels(&format!("{{tools: {{exec: {exec}}}}}"), "main"), expected, "{exec}");
        }
    }

    #[test]
    fn an_agent_is_never_held_less_than_all() {
        let text = "{tools: {exec: {security: 'allowlist'}}, agents: {list: [
            {id: 'a', default: true, tools: {exec: {security: 'full', ask: 'off'}}},
            {id: 'b', tools: {exec: {ask: 'always'}}}, {id: 'c', tools: {exec: {security: 'deny'}}}]}}";
        assert_eq!(levels(text, "a"), ("allowlist", "off"));
        assert_eq!(levels(text, "b"), ("allowlist", "always"));
        assert_eq!(levels(text, "c"), ("deny", "on-miss"));
        assert_eq!(levels(text, "gone"), ("allowlist", "on-miss"));
    }

    #[test]
    fn safe_programs_are_those_of_the_config_or_the_usual() {
        let bins = |text: &str| approval_policy(&Config::parse(text).unwrap()).safe_bins;
        assert_eq!(bins("{tools: {exec: {safeBins: ['wc']}}}"), ["wc"]);
        assert_eq!(bins("{}"), argv::SAFE_BINS);
    }
}
