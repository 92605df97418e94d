//! Sub-agents: child runs that work in a session of their own and report their result to the parent session exactly
//! once.
//!
//! The pending report is stored in the child's record before the child starts, and stays there until it is delivered.
//! The report is a message whose run id is derived from the child's run id, so resending it after a crash has no
//! effect.

mod report;

use std::{path::PathBuf, time::Duration};

use homard_command::InlineQueue;
use homard_proto::{
    AgentId, Extra, Route, RunId, SessionKey,
    message::User,
    session::{self, Record},
};
use homard_queue::slots::RunClass;
use homard_store::{AbortReason, Authority, Error as StoreError, Outcome};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Hub, Inbound, InboundOptions, InboundReply, InboundSender, SubmitError, WaitResult};
use crate::{
    access::{STARTERS, lineage},
    lane::mutations::{ChangeError, Patch},
    tool::RunOrigin,
};

/// Field of a child's record with its [`ChildRun`].
const CHILD_RUN_FIELD: &str = "subagentRun";
/// Method name of child tasks and of their reports.
const METHOD: &str = "sessions_spawn";
/// First retry delay for a report that was not accepted; doubles up to [`MAX_RETRY`].
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// Maximum retry delay.
const MAX_RETRY: Duration = Duration::from_secs(60);
/// Effectively no timeout.
const NO_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Parameters of a child run.
#[derive(Debug, Clone, Default)]
pub struct SpawnParams {
    /// Task, as the child's first message.
    pub task: String,
    /// Display name.
    pub label: Option<String>,
    /// Addition to the child's system prompt.
    pub extra_prompt: Option<String>,
    /// Thinking level.
    pub thinking: Option<String>,
    /// Time limit; `None` for the agent's own limit.
    pub timeout: Option<Duration>,
    /// Provider and model; `None` for the agent's own model.
    pub model: Option<(String, String)>,
    /// What happens to the child's session after its report is delivered.
    pub cleanup: Cleanup,
}

/// What happens to a child's session after its report is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cleanup {
    /// Keeps the session.
    #[default]
    Keep,
    /// Deletes the session and archives its transcript.
    Delete,
}

/// A child that was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpawnedChild {
    /// Id of the child's run.
    pub run: RunId,
    /// Key of the child's session.
    pub key: SessionKey,
}

/// Child run as stored in the record of its session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChildRun {
    /// Id of the child's run.
    pub run: RunId,
    /// Excerpt of the task.
    pub task: String,
    /// How the run ended; set once its report is delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<ChildOutcome>,
    /// Principal on whose behalf the parent's run started it.
    principal: String,
    /// Route of the parent's reply.
    #[serde(default)]
    route: Route,
    /// Working directory of the child and of the run that reports its result; `None` for the agent's workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cwd: Option<PathBuf>,
    #[serde(default)]
    cleanup: Cleanup,
    /// Authority of the run that started it.
    #[serde(default, skip_serializing_if = "Authority::is_full")]
    authority: Authority,
}

/// How a child's run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChildOutcome {
    /// The run completed.
    Done,
    /// The run failed.
    Failed,
    /// The run reached its time limit.
    Timeout,
    /// The run was stopped.
    Stopped,
}

impl ChildOutcome {
    /// Maps a run's outcome.
    pub fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Done => Self::Done,
            Outcome::Failed(_) => Self::Failed,
            Outcome::Aborted(AbortReason::Timeout) => Self::Timeout,
            Outcome::Aborted(
                AbortReason::User | AbortReason::Stop | AbortReason::Interrupted | AbortReason::Dropped,
            ) => Self::Stopped,
        }
    }

    /// Returns the serialized name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Timeout => "timeout",
            Self::Stopped => "stopped",
        }
    }
}

impl ChildRun {
    /// Reads the child run from a record; `None` for a session that was not started by a run.
    pub fn of(record: &Record) -> Option<Self> {
        serde_json::from_value(record.extra.get(CHILD_RUN_FIELD)?.clone()).ok()
    }

    /// True if the child was started on behalf of this principal.
    pub fn is_of(&self, principal: &str) -> bool {
        self.principal == principal
    }

    fn to_value(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

/// Why a child was not started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpawnError {
    /// Its session could not be created.
    #[error(transparent)]
    Session(#[from] ChangeError),
    /// Its task was not accepted.
    #[error(transparent)]
    Task(#[from] SubmitError),
}

/// Sub-agents of a hub. What [`Hub::children`] returns.
#[derive(Debug, Clone, Copy)]
pub struct HubChildren<'a> {
    pub(super) hub: &'a Hub,
}

impl HubChildren<'_> {
    /// Starts a run in a new session of an agent. Its result is reported to `parent` once, also if the process ends in
    /// between. The child has the authority of the parent's run and no more.
    pub async fn spawn(
        self,
        parent: &SessionKey,
        origin: &RunOrigin,
        agent: &AgentId,
        spawn: SpawnParams,
    ) -> Result<SpawnedChild, SpawnError> {
        let name = format!("agent:{agent}:subagent:{}", self.hub.0.ambient.nonce());
        let key = SessionKey::parse(&name, agent).map_err(|error| ChangeError::Invalid(error.to_string()))?;
        let child_run = ChildRun {
            run: self.hub.0.ambient.run_id(),
            task: report::excerpt(&spawn.task),
            ended: None,
            principal: origin.principal.clone(),
            route: origin.route.clone(),
            cwd: origin.cwd.clone(),
            cleanup: spawn.cleanup,
            authority: origin.authority,
        };
        // The pending report is stored first: a crash from here on finds a child that will be reported, or one that
        // never started.
        let parent_record = self.hub.sessions().get(parent).await.map_err(ChangeError::Store)?;
        let ancestors = parent_record.map(|parent_record| lineage(parent, &parent_record)).unwrap_or_default();
        self.hub
            .sessions()
            .patch(&key, Patch { expected: None, changes: record(parent, &ancestors, &child_run, &spawn) })
            .await?;
        if let Err(error) = self.hub.submit(self.task(&key, &child_run, spawn)).await {
            if let Err(error) = self.hub.sessions().delete(&key, None).await {
                tracing::warn!(%key, %error, "failed to delete the session of a sub-agent that did not start");
            }
            return Err(error.into());
        }
        let run = child_run.run.clone();
        self.watch(parent.clone(), key.clone(), child_run);
        Ok(SpawnedChild { run, key })
    }

    /// Builds a child's first message. It is parsed for no commands, because its text was written by a model.
    fn task(self, key: &SessionKey, child_run: &ChildRun, spawn: SpawnParams) -> Inbound {
        let message = User::text(spawn.task, self.hub.0.ambient.now_ms());
        let mut inbound = self.internal(child_run.run.clone(), child_run, key, message);
        inbound.queue = None;
        inbound.session.thinking = spawn.thinking;
        inbound.options = InboundOptions {
            timeout: spawn.timeout,
            extra_prompt: spawn.extra_prompt,
            cwd: child_run.cwd.clone(),
            ..InboundOptions::new(RunClass::Subagent)
        };
        inbound
    }

    /// Builds a message that the hub sends to itself. The run id is its idempotency key, so it can be sent again.
    fn internal(self, run: RunId, child_run: &ChildRun, key: &SessionKey, message: User) -> Inbound {
        let sender =
            InboundSender { authority: child_run.authority, ..InboundSender::new(&child_run.principal, METHOD) };
        Inbound { queue: Some(InlineQueue::Nothing), ..Inbound::plain(run, sender, key.clone(), message) }
    }

    /// Resumes pending reports after a restart.
    pub(super) async fn recover(self) -> Result<(), StoreError> {
        for (key, record) in self.hub.0.store.list().await? {
            let Some(child_run) = ChildRun::of(&record).filter(|child_run| child_run.ended.is_none()) else { continue };
            let Some(parent) = parent_of(&key, &record) else { continue };
            if self.hub.0.store.run(&child_run.run).await?.is_some() {
                self.watch(parent, key, child_run);
            } else {
                // The process ended before the task was accepted. Deleting the session needs its lane, so it is done in
                // a task.
                let hub = self.hub.clone();
                self.hub
                    .0
                    .spawn_until_drained("sub-agent", async move { hub.children().delete_child(&key, &record).await });
            }
        }
        Ok(())
    }

    fn watch(self, parent: SessionKey, child: SessionKey, child_run: ChildRun) {
        let hub = self.hub.clone();
        self.hub.0.spawn_until_drained("sub-agent", async move {
            hub.children().report_child(&parent, &child, child_run).await
        });
    }

    /// Waits for the end of a child and reports it, with retries.
    async fn report_child(self, parent: &SessionKey, child: &SessionKey, child_run: ChildRun) {
        let mut retry_delay = FIRST_RETRY;
        loop {
            match self.try_report_child(parent, child, &child_run).await {
                Ok(()) => return,
                Err(why) => tracing::warn!(%child, %why, "failed to report the result of a sub-agent; retrying"),
            }
            tokio::time::sleep(retry_delay).await;
            retry_delay = MAX_RETRY.min(retry_delay * 2);
        }
    }

    async fn try_report_child(
        self,
        parent: &SessionKey,
        child: &SessionKey,
        child_run: &ChildRun,
    ) -> Result<(), String> {
        let ended = self.hub.runs().wait(&child_run.run, NO_TIMEOUT).await.map_err(|error| error.to_string())?;
        match ended {
            WaitResult::Ended(_) => {}
            WaitResult::Broken(why) => return Err(why),
            WaitResult::Queued | WaitResult::Timeout => return Err("the run is still active".to_owned()),
        }
        let report = self.hub.runs().result(&child_run.run).await.map_err(|error| error.to_string())?;
        let report = report.ok_or("the result of the run is not stored yet")?;
        let record = self.hub.sessions().get(child).await.map_err(|error| error.to_string())?;
        let label = record.as_ref().and_then(|record| record.label.clone());
        let ended = ChildOutcome::of(report.outcome());
        let reported = ChildRun { ended: Some(ended), ..child_run.clone() };
        if ended == ChildOutcome::Stopped {
            // After a stop no new run must start: the note is left for the parent's next run. Delivered at most once,
            // because a note has no idempotency key.
            self.mark_reported(child, record.as_deref(), &reported).await?;
            let note = report::stopped_note(label.as_deref(), child);
            let stored = self.hub.sessions().note_event_of(parent, note, child_run.authority).await;
            return stored.map_err(|error| error.to_string());
        }
        let text = report::report_text(label.as_deref(), child, child_run, &report);
        self.submit_report(parent, child, child_run, text).await?;
        self.mark_reported(child, record.as_deref(), &reported).await
    }

    /// Submits a report to the parent session, if it still exists.
    async fn submit_report(
        self,
        parent: &SessionKey,
        child: &SessionKey,
        child_run: &ChildRun,
        text: String,
    ) -> Result<(), String> {
        if self.hub.sessions().get(parent).await.map_err(|error| error.to_string())?.is_none() {
            tracing::info!(%parent, %child, "dropping the report of a sub-agent: the parent session no longer exists");
            return Ok(());
        }
        let run = RunId::parse(&format!("report:{}", child_run.run)).map_err(|error| error.to_string())?;
        let mut message = User::text(text, self.hub.0.ambient.now_ms());
        let provenance = json!({"kind": "inter_session", "sourceSessionKey": child, "sourceTool": METHOD});
        message.extra.insert("inputProvenance".to_owned(), provenance);
        let route = child_run.route.clone();
        let delivery = self.hub.deliveries().reply_delivery(parent, &route);
        let mut inbound = self.internal(run, child_run, parent, message);
        inbound.reply = InboundReply::new(route, delivery);
        inbound.options.cwd = child_run.cwd.clone();
        match self.hub.submit(inbound).await {
            // A held report is already on disk.
            Ok(_) | Err(SubmitError::Held(_)) => Ok(()),
            // A retry would fail in the same way.
            Err(error @ (SubmitError::Conflict(_) | SubmitError::Blocked | SubmitError::SessionChanged)) => {
                tracing::warn!(%parent, %child, %error, "the parent session rejected the report of a sub-agent");
                Ok(())
            }
            Err(error @ (SubmitError::Overloaded | SubmitError::Store(_) | SubmitError::Stopping)) => {
                Err(error.to_string())
            }
        }
    }

    /// Marks the report as delivered. A session that was deleted in the meantime stays deleted.
    async fn mark_reported(
        self,
        child: &SessionKey,
        record: Option<&Record>,
        reported: &ChildRun,
    ) -> Result<(), String> {
        let Some(record) = record else { return Ok(()) };
        if reported.cleanup == Cleanup::Delete {
            self.delete_child(child, record).await;
            return Ok(());
        }
        let changes = Extra::from_iter([(CHILD_RUN_FIELD.to_owned(), reported.to_value())]);
        let patch = Patch { expected: Some(record.session_id.clone()), changes };
        match self.hub.sessions().patch(child, patch).await {
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn delete_child(self, child: &SessionKey, record: &session::Record) {
        if let Err(error) = self.hub.sessions().delete(child, Some(record.session_id.clone())).await {
            tracing::warn!(%child, %error, "failed to delete the session of a sub-agent");
        }
    }
}

/// Initial record of a child's session.
fn record(parent: &SessionKey, ancestors: &[SessionKey], child_run: &ChildRun, spawn: &SpawnParams) -> Extra {
    let mut record = Extra::from_iter([
        ("spawnedBy".to_owned(), parent.as_str().into()),
        (CHILD_RUN_FIELD.to_owned(), child_run.to_value()),
    ]);
    if !ancestors.is_empty() {
        record.insert(STARTERS.to_owned(), ancestors.iter().map(SessionKey::as_str).collect());
    }
    if let Some(label) = &spawn.label {
        record.insert("label".to_owned(), label.as_str().into());
    }
    if let Some((provider, model)) = &spawn.model {
        record.insert("providerOverride".to_owned(), provider.as_str().into());
        record.insert("modelOverride".to_owned(), model.as_str().into());
    }
    record
}

/// Returns the session that started this one.
pub fn parent_of(key: &SessionKey, record: &Record) -> Option<SessionKey> {
    let agent = key.agent().cloned().unwrap_or_else(AgentId::main);
    record.spawned_by.as_deref().and_then(|parent| SessionKey::parse(parent, &agent).ok())
}
