//! Runs that runs start: they work by themselves in a session of their own, and what came of it is told to the session
//! that started them, exactly once.
//!
//! What is owed stands in the child's record from before the child begins until it was told. The report is a message
//! whose run is named after the child's run, so however often a crash has it sent again, it is taken in once.

mod report;

use std::{path::PathBuf, time::Duration};

use homard_proto::{
    AgentId, Extra, Route, RunId, SessionKey,
    message::User,
    session::{self, Record},
};
use homard_store::{AbortReason, Authority, Error as StoreError, Outcome};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Hub, Inbound, SubmitError, Waited};
use crate::{
    access::{STARTERS, lineage},
    command::Inline,
    lane::{
        chores::{ChangeError, Patch},
        slots::Class,
    },
    tool::Origin,
    wire::Reported,
};

/// The member of a child's record that says what is owed.
const ERRAND: &str = "subagentRun";
/// With which method children and their reports are sent.
const METHOD: &str = "sessions_spawn";
/// How soon it is tried again to tell a report that was not taken in; it doubles up to [`PATIENCE`].
const RETRY: Duration = Duration::from_secs(1);
/// The longest pause between two tries.
const PATIENCE: Duration = Duration::from_secs(60);
/// As long as it takes.
const FAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A run to be started by a run.
#[derive(Debug, Clone, Default)]
pub struct Spawn {
    /// What it is to do.
    pub task: String,
    /// What people call it.
    pub label: Option<String>,
    /// What it is told besides its task.
    pub extra_prompt: Option<String>,
    /// How hard its model thinks.
    pub thinking: Option<String>,
    /// How long it may take; `None` for its agent's own limit.
    pub timeout: Option<Duration>,
    /// The model that answers, as provider and model; `None` for its agent's own.
    pub model: Option<(String, String)>,
    /// What becomes of its session when its report was told.
    pub cleanup: Cleanup,
}

/// What becomes of a child's session when its report was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cleanup {
    /// It stays.
    #[default]
    Keep,
    /// It is deleted; its transcript is put aside.
    Delete,
}

/// A child that was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Child {
    /// Its run.
    pub run: RunId,
    /// Its session.
    pub key: SessionKey,
}

/// What a child's record says of its run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Errand {
    /// The run.
    pub run: RunId,
    /// What it is to do, in short.
    pub task: String,
    /// How it ended, once its report was told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Fate>,
    /// Whose wish it is.
    principal: String,
    /// Where the answer of whoever started it goes.
    #[serde(default)]
    route: Route,
    /// Working directory of the child and of the run that reports its result; `None` for the agent's workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cwd: Option<PathBuf>,
    #[serde(default)]
    cleanup: Cleanup,
    /// How much of the principal's authority the run that started it had.
    #[serde(default, skip_serializing_if = "Authority::is_full")]
    authority: Authority,
}

/// How a child's run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fate {
    /// It is done.
    Done,
    /// It could not go on.
    Failed,
    /// It took too long.
    Timeout,
    /// Somebody stopped it.
    Stopped,
}

impl Fate {
    /// What an outcome comes to.
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

    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Timeout => "timeout",
            Self::Stopped => "stopped",
        }
    }
}

impl Errand {
    /// What a record says of a child's run; `None` for a session that no run started.
    pub fn of(record: &Record) -> Option<Self> {
        serde_json::from_value(record.extra.get(ERRAND)?.clone()).ok()
    }

    /// Whether it is somebody's wish.
    pub fn is_of(&self, principal: &str) -> bool {
        self.principal == principal
    }

    fn kept(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

/// Why a child was not started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpawnError {
    /// Its session could not be made.
    #[error(transparent)]
    Session(#[from] ChangeError),
    /// Its task was not taken in.
    #[error(transparent)]
    Task(#[from] SubmitError),
}

impl Hub {
    /// Starts a run in a new session of an agent. What comes of it is told to `parent` once, also if the process ends
    /// meanwhile. The child has the rights of whoever asked for the parent's run, and no others.
    pub async fn spawn(
        &self,
        (parent, origin): (&SessionKey, &Origin),
        agent: &AgentId,
        spawn: Spawn,
    ) -> Result<Child, SpawnError> {
        let name = format!("agent:{agent}:subagent:{}", self.0.ambient.nonce());
        let key = SessionKey::parse(&name, agent).map_err(|error| ChangeError::Invalid(error.to_string()))?;
        let errand = Errand {
            run: self.0.ambient.run_id(),
            task: report::brief(&spawn.task),
            ended: None,
            principal: origin.principal.clone(),
            route: origin.route.clone(),
            cwd: origin.cwd.clone(),
            cleanup: spawn.cleanup,
            authority: origin.authority,
        };
        // First of all, what is owed: a crash from here on finds a child that was told, or one that never began.
        let starter = self.record(parent).await.map_err(ChangeError::Store)?;
        let via = starter.map(|starter| lineage(parent, &starter)).unwrap_or_default();
        self.patch(&key, Patch { expected: None, changes: record((parent, &via), &errand, &spawn) }).await?;
        if let Err(error) = self.submit(self.task(&key, &errand, spawn)).await {
            if let Err(error) = self.delete(&key, None).await {
                tracing::warn!(%key, %error, "the session of a child that never began is left");
            }
            return Err(error.into());
        }
        let run = errand.run.clone();
        self.watch(parent.clone(), key.clone(), errand);
        Ok(Child { run, key })
    }

    /// A child's first message. Nobody's commands are in it: its words are a model's.
    fn task(&self, key: &SessionKey, errand: &Errand, spawn: Spawn) -> Inbound {
        let message = User::text(spawn.task, self.0.ambient.now_ms());
        Inbound {
            extra_prompt: spawn.extra_prompt,
            timeout: spawn.timeout,
            thinking: spawn.thinking,
            class: Class::Subagent,
            queue: None,
            cwd: errand.cwd.clone(),
            ..self.internal(errand.run.clone(), errand, key, message)
        }
    }

    /// A message that comes from within. Its name says all that matters, so it may be sent again.
    fn internal(&self, run: RunId, errand: &Errand, key: &SessionKey, message: User) -> Inbound {
        let plain = Inbound::plain(run, (&errand.principal, METHOD), key.clone(), message);
        Inbound { queue: Some(Inline::Nothing), authority: errand.authority, ..plain }
    }

    /// Takes up what is owed after a restart.
    pub(super) async fn take_up_children(&self) -> Result<(), StoreError> {
        for (key, record) in self.0.store.list().await? {
            let Some(errand) = Errand::of(&record).filter(|errand| errand.ended.is_none()) else { continue };
            let Some(parent) = parent_of(&key, &record) else { continue };
            if self.0.store.run(&errand.run).await?.is_some() {
                self.watch(parent, key, errand);
            } else {
                // The process ended before its task was taken in. Not from here: a lane is needed for it.
                let hub = self.clone();
                self.tend(async move { hub.forget_child(&key, &record).await });
            }
        }
        Ok(())
    }

    /// What a run came to, with what it said; `None` while it is not over, or if nobody knows it.
    pub async fn result(&self, run: &RunId) -> Result<Option<Reported>, StoreError> {
        match self.0.store.run(run).await? {
            Some(row) => self.report(&row).await,
            None => Ok(None),
        }
    }

    fn watch(&self, parent: SessionKey, child: SessionKey, errand: Errand) {
        let hub = self.clone();
        self.tend(async move { hub.see_home(&parent, &child, errand).await });
    }

    /// Does something in the background that a process that goes down need not finish.
    pub(super) fn tend(&self, work: impl Future<Output = ()> + Send + 'static) {
        let draining = self.0.draining.clone();
        self.0.spawn("child", async move {
            draining.run_until_cancelled(work).await;
        });
    }

    /// Waits for the end of a child and tells it.
    async fn see_home(&self, parent: &SessionKey, child: &SessionKey, errand: Errand) {
        let mut pause = RETRY;
        loop {
            match self.came_home(parent, child, &errand).await {
                Ok(()) => return,
                Err(why) => tracing::warn!(%child, %why, "what came of a child could not be told yet"),
            }
            tokio::time::sleep(pause).await;
            pause = PATIENCE.min(pause * 2);
        }
    }

    async fn came_home(&self, parent: &SessionKey, child: &SessionKey, errand: &Errand) -> Result<(), String> {
        let ended = self.wait(&errand.run, FAR).await.map_err(|error| error.to_string())?;
        match ended {
            Waited::Ended(_) => {}
            Waited::Broken(why) => return Err(why),
            Waited::Queued | Waited::Timeout => return Err("it is still at work".to_owned()),
        }
        let report = self.result(&errand.run).await.map_err(|error| error.to_string())?;
        let report = report.ok_or("its end is not stored yet")?;
        let record = self.record(child).await.map_err(|error| error.to_string())?;
        let label = record.as_ref().and_then(|record| record.label.clone());
        let ended = Fate::of(report.outcome());
        let told = Errand { ended: Some(ended), ..errand.clone() };
        if ended == Fate::Stopped {
            // Whoever stops things does not want others to begin: the next run is told, none begins for it. At most
            // once, because a note has no name that would be known the second time.
            self.settle(child, record.as_ref(), &told).await?;
            let note = report::stopped(label.as_deref(), child);
            let noted = self.note_event_of(parent, note, errand.authority).await;
            return noted.map_err(|error| error.to_string());
        }
        let text = report::words(label.as_deref(), child, errand, &report);
        self.announce(parent, child, errand, text).await?;
        self.settle(child, record.as_ref(), &told).await
    }

    /// Sends a report to whoever started the child, if they are still there.
    async fn announce(
        &self,
        parent: &SessionKey,
        child: &SessionKey,
        errand: &Errand,
        text: String,
    ) -> Result<(), String> {
        if self.record(parent).await.map_err(|error| error.to_string())?.is_none() {
            tracing::info!(%parent, %child, "a report is told to nobody: the session that wanted it is gone");
            return Ok(());
        }
        let run = RunId::parse(&format!("report:{}", errand.run)).map_err(|error| error.to_string())?;
        let mut message = User::text(text, self.0.ambient.now_ms());
        let provenance = json!({"kind": "inter_session", "sourceSessionKey": child, "sourceTool": METHOD});
        message.extra.insert("inputProvenance".to_owned(), provenance);
        let route = errand.route.clone();
        let post = self.post_back(parent, &route);
        let cwd = errand.cwd.clone();
        let inbound = Inbound { route, post, cwd, ..self.internal(run, errand, parent, message) };
        match self.submit(inbound).await {
            // A held one is on disk.
            Ok(_) | Err(SubmitError::Held(_)) => Ok(()),
            // It does not become true by being said again.
            Err(error @ (SubmitError::Conflict(_) | SubmitError::Blocked | SubmitError::SessionChanged)) => {
                tracing::warn!(%parent, %child, %error, "a report was not taken in");
                Ok(())
            }
            Err(error @ (SubmitError::Overloaded | SubmitError::Store(_) | SubmitError::Stopping)) => {
                Err(error.to_string())
            }
        }
    }

    /// Notes that nothing is owed any more. A session that somebody deleted meanwhile stays deleted.
    async fn settle(&self, child: &SessionKey, record: Option<&Record>, told: &Errand) -> Result<(), String> {
        let Some(record) = record else { return Ok(()) };
        if told.cleanup == Cleanup::Delete {
            self.forget_child(child, record).await;
            return Ok(());
        }
        let changes = Extra::from_iter([(ERRAND.to_owned(), told.kept())]);
        let patch = Patch { expected: Some(record.session_id.clone()), changes };
        match self.patch(child, patch).await {
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    async fn forget_child(&self, child: &SessionKey, record: &session::Record) {
        if let Err(error) = self.delete(child, Some(record.session_id.clone())).await {
            tracing::warn!(%child, %error, "a child's session could not be deleted");
        }
    }
}

/// What a child's record holds from the beginning.
fn record((parent, via): (&SessionKey, &[SessionKey]), errand: &Errand, spawn: &Spawn) -> Extra {
    let mut record =
        Extra::from_iter([("spawnedBy".to_owned(), parent.as_str().into()), (ERRAND.to_owned(), errand.kept())]);
    if !via.is_empty() {
        record.insert(STARTERS.to_owned(), via.iter().map(SessionKey::as_str).collect());
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

/// The session that started a session.
pub fn parent_of(key: &SessionKey, record: &Record) -> Option<SessionKey> {
    let agent = key.agent().cloned().unwrap_or_else(AgentId::main);
    record.spawned_by.as_deref().and_then(|parent| SessionKey::parse(parent, &agent).ok())
}
