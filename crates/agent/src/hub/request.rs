//! Requests to the hub and their results.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use homard_audit::Audit;
use homard_command::{self as command, Command, InlineQueue, OWNER, ParsedMessage, Triggers};
use homard_hooks::Hooks;
use homard_prompt::history_limits::HistoryLimits;
use homard_proto::{Route, RunId, SessionKey};
use homard_queue::settings::QueueOverrides;
use homard_request_log::RequestLog;
use homard_store::{Error as StoreError, RunRow};

use crate::{
    auto_reset::AutoReset,
    budget::BudgetLimits,
    delivery::{DeliveryReport, DeliveryRules},
    tape::{Tape, TapeState},
    wire::RunReport,
};

/// Settings that apply to all messages, independent of the agent. Replaced when the config is reloaded.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HubRules {
    /// When sessions are reset automatically.
    pub auto_reset: AutoReset,
    /// Words that reset a session.
    pub triggers: Triggers,
    /// Queue settings.
    pub queue: QueueDefaults,
    /// Limits on chat history in the context.
    pub history: HistoryLimits,
    /// Rules for outgoing channel messages.
    pub delivery: DeliveryRules,
    /// Registered hooks.
    pub hooks: Hooks,
    /// The security audit log.
    pub audit: Audit,
    /// Where the prompts of model requests are kept.
    pub request_log: RequestLog,
    /// Usage budgets.
    pub budgets: BudgetLimits,
    /// Working directories that a request may name.
    pub working_dirs: WorkingDirs,
}

/// Check for working directories in requests; without a check, none is allowed.
#[derive(Clone, Default)]
pub struct WorkingDirs(Option<Arc<CheckDir>>);

/// Checks a directory: returns its real path, or why a run may not use it. Blocks.
type CheckDir = dyn Fn(&Path) -> Result<PathBuf, String> + Send + Sync;

impl WorkingDirs {
    /// Allows the directories that pass a check.
    pub fn new(check: impl Fn(&Path) -> Result<PathBuf, String> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(check)))
    }

    /// Returns the real path of a requested directory, or why a run may not use it.
    pub(crate) async fn check(&self, directory: PathBuf) -> Result<PathBuf, String> {
        let Some(check) = self.0.clone() else {
            return Err("this gateway does not allow requests to choose a working directory".to_owned());
        };
        let checked = tokio::task::spawn_blocking(move || check(&directory)).await;
        checked.map_err(|error| format!("failed to check the directory: {error}"))?
    }
}

impl fmt::Debug for WorkingDirs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WorkingDirs").field(&self.0.is_some()).finish()
    }
}

/// Equal if both share the same check.
impl PartialEq for WorkingDirs {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
}

impl HubRules {
    /// Parses a message for commands. Only the owner's messages are parsed.
    pub(crate) fn parse(&self, principal: &str, text: &str) -> ParsedMessage {
        if principal == OWNER {
            let parsed = command::parse(text, &self.triggers);
            match self.hooks.command(text) {
                // Built-in commands take precedence.
                Some((plugin_command, arguments)) if parsed.command.is_none() => {
                    let command = Some(Command::Plugin(plugin_command.name().to_owned(), arguments));
                    ParsedMessage { command, inline: InlineQueue::default(), text: String::new() }
                }
                Some(_) | None => parsed,
            }
        } else {
            ParsedMessage { command: None, inline: InlineQueue::default(), text: text.to_owned() }
        }
    }
}

/// Default queue settings, below those of messages and sessions.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QueueDefaults {
    /// Settings for all channels.
    pub all: QueueOverrides,
    /// Settings by channel name.
    pub by_channel: BTreeMap<String, QueueOverrides>,
}

impl QueueDefaults {
    /// Returns the settings of a route's channel and the global ones.
    pub fn of(&self, route: &Route) -> (QueueOverrides, QueueOverrides) {
        let channel = route.channel.as_ref().and_then(|channel| self.by_channel.get(channel));
        (channel.copied().unwrap_or_default(), self.all)
    }
}

/// An accepted message.
#[derive(Debug, Clone)]
pub struct AcceptedRun {
    /// Id of the run.
    pub run: RunId,
    /// Key of the session.
    pub key: SessionKey,
    /// When it was accepted, in milliseconds since the epoch.
    pub at: u64,
    /// What happens to the message.
    pub outcome: SubmitOutcome,
}

/// What happens to an accepted message.
#[derive(Debug, Clone)]
pub enum SubmitOutcome {
    /// A new run with this tape.
    New(Arc<Tape>),
    /// The same request is already live, with this tape.
    InFlight(Arc<Tape>),
    /// The same request has already finished with this result.
    Finished(Box<RunReport>),
}

/// Why a message was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The run id belongs to another request.
    #[error("idempotency_conflict: run id {0} was already used for another request")]
    Conflict(RunId),
    /// The session does not accept messages.
    #[error("send blocked by session policy")]
    Blocked,
    /// The session does not have the session id that the sender expects.
    #[error("the session id is not the expected one; read the history of the session, and send the message again")]
    SessionChanged,
    /// Too many messages are queued; nothing was stored.
    #[error("overloaded: too many messages are queued; send the message again later")]
    Overloaded,
    /// The message could not be stored.
    #[error("the message could not be stored: {0}")]
    Store(#[from] StoreError),
    /// The process is shutting down.
    #[error("gateway_draining: the gateway is stopping; send the message again after the restart")]
    Stopping,
    /// The same request was accepted before, and its run is held.
    #[error("run {0} was active at several crashes in a row and is held; continue it with: homard runs release {0}")]
    Held(RunId),
}

/// Admission state of a message.
#[derive(Debug, Clone)]
pub(crate) enum Admission {
    /// Not decided yet.
    Pending,
    /// The message is on disk.
    Accepted,
    /// The message was already on disk.
    Duplicate(Box<RunRow>),
    /// The run id belongs to another request.
    Conflict,
    /// The session does not accept messages.
    Blocked,
    /// The session has another session id than the sender expects.
    SessionChanged,
    /// The queue is full.
    Overloaded,
    /// The message could not be stored.
    Failed(StoreError),
}

/// Result of `agent.wait`.
#[derive(Debug, Clone)]
pub enum WaitResult {
    /// The run has ended.
    Ended(Box<RunReport>),
    /// Timeout; the run is still queued.
    Queued,
    /// Timeout, or the run is unknown.
    Timeout,
    /// The run's end could not be stored, for this reason.
    Broken(String),
}

impl WaitResult {
    /// Reads the current state of a tape.
    pub(super) fn now(tape: &Tape) -> Self {
        match tape.state() {
            TapeState::Ended(end) => Self::Ended(Box::new(RunReport::of(tape.run(), tape.key(), &end))),
            TapeState::Broken(why) => Self::Broken(why),
            TapeState::Queued => Self::Queued,
            TapeState::Running | TapeState::Rejected => Self::Timeout,
        }
    }
}

/// Event for the subscriber of all runs. A tape with new events is published once until it is read.
#[derive(Debug, Clone)]
pub enum HubEvent {
    /// This tape has new events.
    Run(Arc<Tape>),
    /// Final state of a delivery.
    Delivery(Box<DeliveryReport>),
}
