//! Approval of commands, and execution of approved ones.

use std::{collections::BTreeMap, path::PathBuf};

use homard_agent::{
    CommandOrigin, Hub,
    approval::{
        Desk, Entry, Wish,
        follow::{Followup, Later, follow},
    },
    hub::BackgroundCommand,
    sandboxing::SandboxView,
    task,
    tool::{Progress, ToolCx, ToolResult, Variables},
};
use homard_audit::What;
use homard_proto::{AgentId, RunId, SessionKey};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{Exec, ExecSettings, Plan, Site, shell, watch};
use crate::{
    FileAccess,
    background::Reporter,
    failure,
    file_access::is_change,
    gate::{Decision, ExecRequest, Gate},
    sandbox::{Mode, SandboxPolicy},
};

/// Approval settings from the config.
#[derive(Debug, Clone)]
pub struct Approvals {
    /// For agents without settings of their own.
    pub all: Wish,
    /// Per agent.
    pub own: BTreeMap<AgentId, Wish>,
    /// Filters that need no rule as long as they only read standard input, from [`crate::argv::SAFE_BINS`].
    pub safe_bins: Vec<String>,
}

/// Stored form of a call that waits for approval.
#[derive(Serialize, Deserialize)]
struct Kept {
    workspace: PathBuf,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sandbox: Option<SandboxView>,
    arguments: Value,
    /// Principal and route of the call. Missing in records of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin: Option<CommandOrigin>,
}

impl Approvals {
    fn gate(&self, desk: &Desk, agent: &AgentId) -> Gate {
        Gate {
            desk: desk.clone(),
            config: self.own.get(agent).copied().unwrap_or(self.all),
            safe_bins: self.safe_bins.clone(),
            shell: PathBuf::from(shell()),
        }
    }
}

impl Exec {
    /// Returns the callback that executes an approved call and reports the result.
    pub fn later(&self, desk: &Desk, hub: &Hub) -> Later {
        let (exec, desk, hub) = (self.clone(), desk.clone(), hub.clone());
        Later::new(move |entry, variables| {
            let (exec, desk, hub) = (exec.clone(), desk.clone(), hub.clone());
            async move {
                if is_change(&entry) {
                    return Followup::Ended(exec.files().make_allowed(&desk, entry).await);
                }
                let head = format!("(approval {}): {}", entry.id, entry.shown());
                let denied = |why| Followup::Ended(format!("Exec denied {head}\n{why}"));
                exec.run_allowed((&desk, &hub), entry, variables).await.unwrap_or_else(denied)
            }
        })
        .waking(self.settings.wakes)
    }

    /// Returns file access with the same policy, used to apply approved file changes.
    fn files(&self) -> FileAccess {
        let ExecSettings { sandbox, background, approvals, .. } = &self.settings;
        FileAccess::beside(sandbox, background.watches(), approvals.is_some())
    }

    /// Returns the words to run now, or the tool result to return instead.
    pub(super) async fn leave(&self, cx: &ToolCx, plan: &Plan) -> Result<Vec<String>, ToolResult> {
        let Some(approvals) = &self.settings.approvals else {
            return Ok(crate::gate::in_shell(shell().as_ref(), plan.arguments.command.clone()));
        };
        let Some((hub, desk)) = cx.hub.as_ref().and_then(|hub| Some((hub, hub.desk()?))) else {
            return Err(failure("exec", &"It was not run: nobody can be asked here whether it may."));
        };
        let agent = plan.site.session.agent().unwrap_or(hub.agents().default_id()).clone();
        let gate = approvals.gate(desk, &agent);
        match gate.gate(&self.request(agent, plan)).await {
            Decision::Run(words) => Ok(words),
            Decision::Refuse(why) => {
                self.note(plan, What::PolicyDenied, "rules");
                Err(failure("exec", &why))
            }
            Decision::Pending { id, text } => {
                self.follow(hub, desk, &id);
                let expires = desk.get(&id).map(|entry| entry.expires_at_ms);
                Err(ToolResult::text(text).with_details(json!({
                    "status": "approval-pending", "approvalId": id, "expiresAtMs": expires, "host": "gateway",
                    "command": plan.arguments.command, "cwd": plan.cwd(),
                })))
            }
        }
    }

    /// Waits for the decision in the background and runs the command if it is allowed.
    fn follow(&self, hub: &Hub, desk: &Desk, id: &str) {
        let (hub, desk, id, later) = (hub.clone(), desk.clone(), id.to_owned(), self.later(desk, hub));
        task::spawn("approved", async move { follow(&desk, &hub, &id, &later).await });
    }

    fn request(&self, agent: AgentId, plan: &Plan) -> ExecRequest {
        let Plan { site, call, arguments, .. } = plan;
        ExecRequest {
            agent,
            session: site.session.clone(),
            run: site.run.clone(),
            command: arguments.command.clone(),
            workspace: site.workdir.clone(),
            cwd: plan.cwd(),
            env: plan.env.clone(),
            has_own_env: !arguments.env.is_empty(),
            wish: arguments.wish(),
            profile: profile(&self.policy(site)),
            call: json!(Kept {
                workspace: site.workdir.clone(),
                sandbox: site.sandbox.clone(),
                arguments: call.clone(),
                origin: site.origin.clone(),
            }),
        }
    }

    async fn run_allowed(
        &self,
        (desk, hub): (&Desk, &Hub),
        entry: Entry,
        variables: Variables,
    ) -> Result<Followup, String> {
        let lost = || "It was not run: it is not known any more what it was.".to_owned();
        let not_run = |error: &dyn std::fmt::Display| format!("It was not run: {error}.");
        let (Some(bound), Some(approvals)) = (&entry.bound, &self.settings.approvals) else { return Err(lost()) };
        let kept: Kept = serde_json::from_value(entry.call.clone()).map_err(|_unreadable| lost())?;
        let site = Site {
            session: SessionKey::parse(&bound.session, &AgentId::main()).map_err(|_unreadable| lost())?,
            run: RunId::parse(&bound.run).map_err(|_unreadable| lost())?,
            workdir: kept.workspace,
            sandbox: kept.sandbox,
            variables,
            origin: kept.origin,
        };
        let plan = self.plan(site, kept.arguments).map_err(|error| not_run(&error))?;
        let agent = AgentId::normalize(&entry.agent);
        let gate = approvals.gate(desk, &agent);
        let words = gate.claim(&entry.id, &self.request(agent, &plan)).await?;
        let (session, id, command, stop) = (&plan.site.session, &entry.id, entry.shown(), CancellationToken::new());
        // The answer is used up: if the gateway stops while the command runs, the next start has to know of it.
        if let Some(Reporter { hub, origin, wakes }) = self.reporter(hub, &plan.site) {
            let id = entry.command_id();
            let started = BackgroundCommand { id, command: command.clone(), origin, stop: stop.clone() };
            hub.command_started(session, started, wakes).await;
        }
        let job = self.start(&plan, words, Some(&bound.cwd)).await.map_err(|error| not_run(&error))?;
        Ok(match watch((&stop, &Progress::silent()), &job, plan.wait).await {
            Some(outcome) => {
                let how = outcome.trouble.as_ref().map(|trouble| format!(", {trouble}")).unwrap_or_default();
                Followup::Ended(format!("Exec finished (approval {id}{how}): {command}\n{}", job.text().0))
            }
            None => {
                let reporter = self.reporter(hub, &plan.site);
                let name = self.settings.background.add(session, job, reporter).await;
                Followup::Running(format!("Exec running (approval {id}, session {name}): {command}"))
            }
        })
    }
}

/// Describes the sandbox in the approval. Compared when the approval is used.
fn profile(policy: &SandboxPolicy) -> String {
    let mode = match policy.mode {
        Mode::ReadOnly => "read-only",
        Mode::Workspace => "workspace",
        Mode::Guarded => "guarded",
        Mode::Full => return "none".to_owned(),
    };
    let network = policy.network.then(|| "with network".to_owned());
    // In read-only mode, the extra writable paths are only readable.
    let verb = if policy.mode == Mode::ReadOnly { "read" } else { "change" };
    let may = |verb: &str, paths: &[PathBuf]| {
        let named: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
        (!named.is_empty()).then(|| format!("may also {verb} {}", named.join(", ")))
    };
    let parts = [network, may(verb, &policy.extra_write), may("read", &policy.extra_read)];
    std::iter::once(mode.to_owned()).chain(parts.into_iter().flatten()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_asked_is_told_what_a_command_can_reach() {
        let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect();
        let mut policy = SandboxPolicy { mode: Mode::Guarded, ..SandboxPolicy::default() };
        assert_eq!(profile(&policy), "guarded");
        (policy.extra_write, policy.extra_read) = (paths(&["/srv/a", "/srv/b"]), paths(&["/etc/x"]));
        assert_eq!(profile(&policy), "guarded, may also change /srv/a, /srv/b, may also read /etc/x");
        (policy.mode, policy.network) = (Mode::ReadOnly, true);
        assert_eq!(profile(&policy), "read-only, with network, may also read /srv/a, /srv/b, may also read /etc/x");
        policy.mode = Mode::Full;
        assert_eq!(profile(&policy), "none");
    }
}
