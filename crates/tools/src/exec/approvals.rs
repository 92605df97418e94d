//! Approval of commands, and execution of approved ones.

use std::{collections::BTreeMap, path::PathBuf};

use homard_agent::{
    CommandOrigin, Hub,
    approved_commands::{ApprovedRunner, Followup, command_id, follow},
    hub::BackgroundCommand,
    sandboxing::SandboxView,
    tool::{ProgressSender, ToolCx, ToolResult},
};
use homard_approvals::{Approval, ExecApprovals, LevelOverrides};
use homard_audit::AuditKind;
use homard_proto::{AgentId, RunId, SessionKey};
use homard_runtime::task;
use homard_workspace::skills::Variables;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{CallContext, Exec, ExecPlan, ExecSettings, shell, wait_or_background};
use crate::{
    FileAccess,
    background::CommandReporter,
    exec_policy::{ExecDecision, ExecPolicy, ExecRequest},
    failure,
    file_access::is_change,
    sandbox::{AccessMode, SandboxPolicy},
};

/// Approval settings from the config.
#[derive(Debug, Clone)]
pub struct ExecApprovalSettings {
    /// For agents without settings of their own.
    pub default: LevelOverrides,
    /// Per agent.
    pub by_agent: BTreeMap<AgentId, LevelOverrides>,
    /// Filters that need no rule as long as they only read standard input, from [`crate::argv::SAFE_BINS`].
    pub safe_bins: Vec<String>,
}

/// Stored form of a call that waits for approval.
#[derive(Serialize, Deserialize)]
struct PendingExec {
    workspace: PathBuf,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sandbox: Option<SandboxView>,
    arguments: Value,
    /// Principal and route of the call. Missing in records of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin: Option<CommandOrigin>,
}

impl ExecApprovalSettings {
    fn policy(&self, exec_approvals: &ExecApprovals, agent: &AgentId) -> ExecPolicy {
        ExecPolicy {
            approvals: exec_approvals.clone(),
            config: self.by_agent.get(agent).copied().unwrap_or(self.default),
            safe_bins: self.safe_bins.clone(),
            shell: PathBuf::from(shell()),
        }
    }
}

impl Exec {
    /// Returns the callback that executes an approved call and reports the result.
    pub fn approved_runner(&self, exec_approvals: &ExecApprovals, hub: &Hub) -> ApprovedRunner {
        let (exec, exec_approvals, hub) = (self.clone(), exec_approvals.clone(), hub.clone());
        ApprovedRunner::new(move |entry, variables| {
            let (exec, exec_approvals, hub) = (exec.clone(), exec_approvals.clone(), hub.clone());
            async move {
                if is_change(&entry) {
                    return Followup::Ended(exec.files().apply_approved(&exec_approvals, entry).await);
                }
                let head = format!("(approval {}): {}", entry.id, entry.shown());
                let denied = |reason| Followup::Ended(format!("Exec denied {head}\n{reason}"));
                exec.run_approved(&exec_approvals, &hub, entry, variables).await.unwrap_or_else(denied)
            }
        })
        .waking(self.settings.notify_on_exit)
    }

    /// Returns file access with the same policy, used to apply approved file changes.
    fn files(&self) -> FileAccess {
        let ExecSettings { sandbox, background, approvals, .. } = &self.settings;
        FileAccess::with_watches(sandbox, background.watches(), approvals.is_some())
    }

    /// Returns the argv to run now, or the tool result to return instead.
    pub(super) async fn authorize(&self, cx: &ToolCx, plan: &ExecPlan) -> Result<Vec<String>, ToolResult> {
        let Some(approvals) = &self.settings.approvals else {
            return Ok(crate::exec_policy::shell_argv(shell().as_ref(), plan.arguments.command.clone()));
        };
        let Some((hub, exec_approvals)) = cx.hub.as_ref().and_then(|hub| Some((hub, hub.approvals()?))) else {
            return Err(failure(
                "exec",
                &"The command may not be run: it needs approval, and approvals are not available here.",
            ));
        };
        let agent = plan.context.session.agent().unwrap_or(hub.agents().default_id()).clone();
        let policy = approvals.policy(exec_approvals, &agent);
        match policy.decide(&self.request(agent, plan)).await {
            ExecDecision::Run(argv) => Ok(argv),
            ExecDecision::Refuse(reason) => {
                self.audit(plan, AuditKind::PolicyDenied, "rules");
                Err(failure("exec", &reason))
            }
            ExecDecision::Pending { id, text } => {
                self.await_decision(hub, exec_approvals, &id);
                let expires = exec_approvals.get(&id).map(|entry| entry.expires_at_ms);
                Err(ToolResult::text(text).with_details(json!({
                    "status": "approval-pending", "approvalId": id, "expiresAtMs": expires, "host": "gateway",
                    "command": plan.arguments.command, "cwd": plan.cwd(),
                })))
            }
        }
    }

    /// Waits for the decision in the background and runs the command if it is allowed.
    fn await_decision(&self, hub: &Hub, exec_approvals: &ExecApprovals, id: &str) {
        let (hub, exec_approvals, id, later) =
            (hub.clone(), exec_approvals.clone(), id.to_owned(), self.approved_runner(exec_approvals, hub));
        task::spawn("approved", async move { follow(&exec_approvals, &hub, &id, &later).await });
    }

    fn request(&self, agent: AgentId, plan: &ExecPlan) -> ExecRequest {
        let ExecPlan { context, call, arguments, .. } = plan;
        ExecRequest {
            agent,
            session: context.session.clone(),
            run: context.run.clone(),
            command: arguments.command.clone(),
            workspace: context.workdir.clone(),
            cwd: plan.cwd(),
            env: plan.env.clone(),
            has_own_env: !arguments.env.is_empty(),
            requested_levels: arguments.requested_levels(),
            profile: sandbox_profile(&self.policy(context)),
            call: json!(PendingExec {
                workspace: context.workdir.clone(),
                sandbox: context.sandbox.clone(),
                arguments: call.clone(),
                origin: context.origin.clone(),
            }),
        }
    }

    async fn run_approved(
        &self,
        exec_approvals: &ExecApprovals,
        hub: &Hub,
        entry: Approval,
        variables: Variables,
    ) -> Result<Followup, String> {
        let unreadable = || "The command could not be run: its stored request cannot be read.".to_owned();
        let not_run = |error: &dyn std::fmt::Display| format!("The command could not be run: {error}.");
        let (Some(bound), Some(approvals)) = (&entry.fingerprint, &self.settings.approvals) else {
            return Err(unreadable());
        };
        let pending: PendingExec = serde_json::from_value(entry.call.clone()).map_err(|_unreadable| unreadable())?;
        let context = CallContext {
            session: SessionKey::parse(&bound.session, &AgentId::main()).map_err(|_unreadable| unreadable())?,
            run: RunId::parse(&bound.run).map_err(|_unreadable| unreadable())?,
            workdir: pending.workspace,
            sandbox: pending.sandbox,
            variables,
            origin: pending.origin,
        };
        let plan = self.plan(context, pending.arguments).map_err(|error| not_run(&error))?;
        let agent = AgentId::normalize(&entry.agent);
        let policy = approvals.policy(exec_approvals, &agent);
        let argv = policy.claim(&entry.id, &self.request(agent, &plan)).await?;
        let (session, id, command, stop) = (&plan.context.session, &entry.id, entry.shown(), CancellationToken::new());
        // The answer is used up: if the gateway stops while the command runs, the next start has to know of it.
        if let Some(CommandReporter { hub, origin, wakes }) = self.reporter(hub, &plan.context) {
            let id = command_id(&entry);
            let started = BackgroundCommand { id, command: command.clone(), origin, stop: stop.clone() };
            hub.background().started(session, started, wakes).await;
        }
        let job = self.start(&plan, argv, Some(&bound.cwd)).await.map_err(|error| not_run(&error))?;
        Ok(match wait_or_background(&stop, &ProgressSender::silent(), &job, plan.wait).await {
            Some(outcome) => {
                let error_suffix = outcome.error.as_ref().map(|message| format!(", {message}")).unwrap_or_default();
                Followup::Ended(format!("Exec finished (approval {id}{error_suffix}): {command}\n{}", job.text().0))
            }
            None => {
                let reporter = self.reporter(hub, &plan.context);
                let name = self.settings.background.add(session, job, reporter).await;
                Followup::Running(format!("Exec running (approval {id}, session {name}): {command}"))
            }
        })
    }
}

/// Describes the sandbox in the approval. Compared when the approval is used.
fn sandbox_profile(policy: &SandboxPolicy) -> String {
    let mode = match policy.mode {
        AccessMode::ReadOnly => "read-only",
        AccessMode::Workspace => "workspace",
        AccessMode::Guarded => "guarded",
        AccessMode::Full => return "none".to_owned(),
    };
    let network = policy.network.then(|| "with network".to_owned());
    // In read-only mode, the extra writable paths are only readable.
    let verb = if policy.mode == AccessMode::ReadOnly { "read" } else { "change" };
    let may = |verb: &str, paths: &[PathBuf]| {
        let names: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
        (!names.is_empty()).then(|| format!("may also {verb} {}", names.join(", ")))
    };
    let parts = [network, may(verb, &policy.extra_write), may("read", &policy.extra_read)];
    std::iter::once(mode.to_owned()).chain(parts.into_iter().flatten()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_approval_request_describes_the_sandbox() {
        let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect();
        let mut policy = SandboxPolicy { mode: AccessMode::Guarded, ..SandboxPolicy::default() };
        assert_eq!(sandbox_profile(&policy), "guarded");
        (policy.extra_write, policy.extra_read) = (paths(&["/srv/a", "/srv/b"]), paths(&["/etc/x"]));
        assert_eq!(sandbox_profile(&policy), "guarded, may also change /srv/a, /srv/b, may also read /etc/x");
        (policy.mode, policy.network) = (AccessMode::ReadOnly, true);
        assert_eq!(
            sandbox_profile(&policy),
            "read-only, with network, may also read /srv/a, /srv/b, may also read /etc/x"
        );
        policy.mode = AccessMode::Full;
        assert_eq!(sandbox_profile(&policy), "none");
    }
}
