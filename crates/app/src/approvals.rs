//! Builds the approvals store of a state directory and publishes its events to clients; derives from the config which
//! commands need approval.

use std::sync::Arc;

use async_trait::async_trait;
use homard_agent::{Hub, approved_commands as follow};
use homard_approvals::{self as approval, ExecApprovals, LevelOverrides, store::ApprovalStore};
use homard_gateway::{Audience, Broadcaster, Scope};
use homard_journal::ApprovalFiles;
use homard_proto::Generation;
use homard_runtime::{Ambient, task};
use homard_settings::{
    Config,
    paths::Paths,
    tools::{Ask, Mode, Security},
};
use homard_store::Error as StoreError;
use homard_tools::{Exec, ExecApprovalSettings, argv};
use serde_json::Value;
use tokio::{sync::broadcast::error::RecvError, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::{App, Error};

/// Opens the approvals of a state directory that this process owns and connects them to the hub.
pub async fn open(hub: &Hub, paths: &Paths) -> Result<ExecApprovals, Error> {
    let ambient = hub.ambient();
    let store = FileApprovalStore { files: ApprovalFiles::new(&paths.state), ambient: ambient.clone() };
    let approvals = ExecApprovals::open_with(Arc::new(store), ambient.clone(), hub.audit()).await;
    let approvals = approvals.map_err(|error| Error::State { what: "cannot read the pending approvals", error })?;
    hub.set_approvals(&approvals);
    Ok(approvals)
}

/// Resumes the approvals that were pending when the previous gateway ended. The spawned tasks end by themselves.
pub fn resume(app: &App, config: &Config, paths: &Paths) {
    if let Some(approvals) = app.hub.approvals() {
        drop(follow::resume(approvals, &app.hub, &run_approved(app, config, paths, approvals)));
    }
}

/// Runs the approved commands in this process and waits for them.
pub async fn finish(app: &App, config: &Config, paths: &Paths) {
    let Some(approvals) = app.hub.approvals() else { return };
    let runner = run_approved(app, config, paths, approvals);
    for entry in approvals.unfinished().iter().filter(|entry| entry.is_open()) {
        follow::follow(approvals, &app.hub, &entry.id, &runner).await;
    }
}

/// Returns the function that runs an approved command.
fn run_approved(app: &App, config: &Config, paths: &Paths, approvals: &ExecApprovals) -> follow::ApprovedRunner {
    Exec::new(app.factory.tool_deps.exec(config, paths)).approved_runner(approvals, &app.hub)
}

/// Derives the approval policy for commands from the config: for all agents, and for each.
pub(super) fn approval_policy(config: &Config) -> ExecApprovalSettings {
    let exec = &config.tools.exec;
    let mut all = level_request(exec.security.map(|word| word.0), exec.ask.map(|word| word.0));
    if exec.sandbox.mode.is_some_and(|word| word.0 == Mode::Guarded) {
        all = strictest(all, level_request(Some(Security::Allowlist), Some(Ask::OnMiss)));
    }
    // Without a setting, all commands are allowed: the sandbox confines them.
    all.security = all.security.or(Some(approval::Security::Full));
    let members = config.agents.members();
    let own = members.iter().map(|agent| {
        let exec = &agent.config.tools.exec;
        let own = level_request(exec.security.map(|word| word.0), exec.ask.map(|word| word.0));
        (agent.id.clone(), strictest(all, own))
    });
    let default_bins = || argv::SAFE_BINS.map(str::to_owned).to_vec();
    ExecApprovalSettings {
        default: all,
        by_agent: own.collect(),
        safe_bins: exec.safe_bins.clone().unwrap_or_else(default_bins),
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

fn strictest(a: LevelOverrides, b: LevelOverrides) -> LevelOverrides {
    LevelOverrides {
        security: [a.security, b.security].into_iter().flatten().min(),
        ask: [a.ask, b.ask].into_iter().flatten().max(),
    }
}

/// Expires unanswered requests and publishes requests and decisions to clients, until stopped.
pub fn start(approvals: &ExecApprovals, broadcaster: Broadcaster, stop: CancellationToken) -> [JoinHandle<()>; 2] {
    let publisher = publish_events(approvals.clone(), broadcaster, stop.clone());
    [task::spawn("approvals", approvals.clone().run(stop)), task::spawn("approval events", publisher)]
}

/// Commands may contain secrets: events go only to clients with the approvals scope.
async fn publish_events(approvals: ExecApprovals, broadcaster: Broadcaster, stop: CancellationToken) {
    let audience = Audience { scope: Some(Scope::Approvals), min_protocol: Generation::Three };
    let mut events = approvals.subscribe();
    loop {
        let event = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            event = events.recv() => event,
        };
        match event {
            Ok((name, payload)) => broadcaster.publish(name, &payload, audience),
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
    use homard_approvals::EffectiveLevels;
    use homard_proto::AgentId;

    use super::*;

    /// Returns the effective levels of an agent if the approvals file has no entry.
    fn levels(text: &str, agent: &str) -> (&'static str, &'static str) {
        let policy = approval_policy(&Config::parse(text).unwrap());
        let own = policy.by_agent.get(&AgentId::normalize(agent)).copied();
        let EffectiveLevels { security, ask } = EffectiveLevels::of(&[own.unwrap_or(policy.default)]);
        (security.as_str(), ask.as_str())
    }

    #[test]
    fn exec_security_and_ask_levels_are_read_from_the_config() {
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
    fn an_agent_cannot_loosen_the_global_exec_policy() {
        let text = "{tools: {exec: {security: 'allowlist'}}, agents: {list: [
            {id: 'a', default: true, tools: {exec: {security: 'full', ask: 'off'}}},
            {id: 'b', tools: {exec: {ask: 'always'}}}, {id: 'c', tools: {exec: {security: 'deny'}}}]}}";
        assert_eq!(levels(text, "a"), ("allowlist", "off"));
        assert_eq!(levels(text, "b"), ("allowlist", "always"));
        assert_eq!(levels(text, "c"), ("deny", "on-miss"));
        assert_eq!(levels(text, "gone"), ("allowlist", "on-miss"));
    }

    #[test]
    fn safe_bins_are_configured_or_default() {
        let bins = |text: &str| approval_policy(&Config::parse(text).unwrap()).safe_bins;
        assert_eq!(bins("{tools: {exec: {safeBins: ['wc']}}}"), ["wc"]);
        assert_eq!(bins("{}"), argv::SAFE_BINS);
    }
}
