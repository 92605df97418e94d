//! Execution after the decision on an approval: runs allowed commands, and wakes their session with the result.
//!
//! The run that asked for approval has continued without the decision. The result is reported like the end of a
//! background command ([`crate::hub`]); a command that continues in the background reports its end itself.

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use homard_approvals::{Approval, ApprovalState, approvals::ExecApprovals};
use homard_proto::{AgentId, SessionKey};
use homard_runtime::task;
use homard_workspace::skills::Variables;
use serde::Deserialize as _;

use crate::{
    Hub,
    context::background::{APPROVAL, CommandOrigin},
};

/// Result of an allowed command, as a text for its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Followup {
    /// It has ended, or was not run.
    Ended(String),
    /// It continues in the background, which reports its end.
    Running(String),
}

/// Future that runs an approved command.
type ResultFuture = Pin<Box<dyn Future<Output = Followup> + Send>>;

/// Runs an allowed command. It must first consume the approval with [`ExecApprovals::consume`], and run nothing if that
/// fails.
#[derive(Clone)]
pub struct ApprovedRunner {
    run: Arc<dyn Fn(Approval, Variables) -> ResultFuture + Send + Sync>,
    wakes: bool,
}

impl ApprovedRunner {
    /// Wraps a function that runs a command with the current environment variables of its agent and returns the result
    /// text.
    pub fn new<F, O>(run: F) -> Self
    where
        F: Fn(Approval, Variables) -> O + Send + Sync + 'static,
        O: Future<Output = Followup> + Send + 'static,
    {
        Self { run: Arc::new(move |entry, variables| Box::pin(run(entry, variables))), wakes: true }
    }

    /// Sets whether the result wakes the session. Otherwise the session's next run gets it.
    #[must_use]
    pub fn waking(self, wakes: bool) -> Self {
        Self { wakes, ..self }
    }
}

impl fmt::Debug for ApprovedRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApprovedRunner")
    }
}

/// Returns the id of an approved command among the background commands of its session, until its end is reported.
pub fn command_id(approval: &Approval) -> String {
    format!("{APPROVAL} {}", approval.id)
}

/// Returns the origin of a request. Missing in records of older versions.
fn origin(approval: &Approval) -> Option<CommandOrigin> {
    CommandOrigin::deserialize(approval.call.get("origin")?).ok()
}

/// Waits for a decision, executes it and reports to the session. If this is dropped, [`resume`] continues it at the
/// next start.
pub async fn follow(approvals: &ExecApprovals, hub: &Hub, id: &str, runner: &ApprovedRunner) {
    let Some(entry) = approvals.wait(id).await else { return };
    let Some(session) = entry.fingerprint.as_ref().map(|fingerprint| fingerprint.session.clone()) else { return };
    let Ok(key) = SessionKey::parse(&session, &AgentId::main()) else {
        tracing::warn!(%session, "approval has an invalid session key");
        return;
    };
    let profile = hub.agents().of(key.agent());
    let (id, command, command_id) = (entry.id.clone(), entry.shown(), command_id(&entry));
    let origin = origin(&entry).filter(|_| runner.wakes);
    let followup = match entry.state {
        // At shutdown the command would be cancelled at once; the next start runs it.
        ApprovalState::AllowedOnce | ApprovalState::AllowedAlways if hub.lifecycle().is_draining() => return,
        ApprovalState::AllowedOnce | ApprovalState::AllowedAlways => {
            (runner.run)(entry, profile.prompt.skills.get().variables.clone()).await
        }
        ApprovalState::Denied => Followup::Ended(format!("Exec denied (approval {id}): {command}")),
        ApprovalState::Expired | ApprovalState::Pending => {
            Followup::Ended(format!("Exec denied (approval {id}, no decision in time): {command}"))
        }
    };
    let (text, origin) = match followup {
        Followup::Ended(text) => (text, origin),
        Followup::Running(text) => (text, None),
    };
    let text = clipped(&profile.secrets.mask(&text));
    if let Some(origin) = origin {
        return hub.background().report_result(&key, origin, &command_id, &text).await;
    }
    hub.background().settled(&key, &command_id).await;
    if let Err(error) = hub.sessions().note_event(&key, text).await {
        tracing::warn!(%error, session = %key, "failed to report the outcome of an approval to the session");
    }
}

/// Shortens a long text to its beginning, which names the command, and its end, which is the most informative.
fn clipped(text: &str) -> String {
    let (head_chars, tail_chars) = (400, 1_400);
    let count = text.chars().count();
    if count <= head_chars + tail_chars {
        return text.to_owned();
    }
    let head: String = text.chars().take(head_chars).collect();
    let tail: String = text.chars().skip(count - tail_chars).collect();
    format!("{head} … {tail}")
}

/// Resumes requests found at a restart: pending ones, and allowed ones that were not executed. The tasks end by
/// themselves, after at most five minutes, or with the command that they run.
pub fn resume(approvals: &ExecApprovals, hub: &Hub, runner: &ApprovedRunner) -> Vec<tokio::task::JoinHandle<()>> {
    let unfinished = approvals.unfinished().into_iter();
    let tasks = unfinished.map(|entry| {
        let (approvals, hub, runner) = (approvals.clone(), hub.clone(), runner.clone());
        task::spawn("approved", async move { follow(&approvals, &hub, &entry.id, &runner).await })
    });
    tasks.collect()
}

#[cfg(test)]
mod tests;
