//! Requests to the hub and their results.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use homard_audit::Audit;
use homard_command::{self as command, Command, InlineQueue, OWNER, ParsedMessage, Triggers};
use homard_hooks::Hooks;
use homard_prompt::history_limits::HistoryLimits;
use homard_proto::{
    AgentId, Route, RunId, SessionId, SessionKey,
    message::{Message, User},
    method::{Params, agent::AgentParams, chat::SendParams},
};
use homard_queue::{settings::QueueOverrides, slots::RunClass};
use homard_reply::blocks;
use homard_store::{
    Accept, Authority, Error as StoreError, OnRestart, Options, Origin, ReplyDelivery, RunOverrides, RunRow, Sender,
};

use crate::{
    auto_reset::AutoReset,
    budget::BudgetLimits,
    delivery::{DeliveryReport, DeliveryRules},
    intake::CHANNEL,
    tape::{Tape, TapeState},
    tool::ToolSpec,
    wire::RunReport,
};

/// A message to submit. [`crate::intake`] builds one from a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Inbound {
    /// Run id; an id never runs twice.
    pub run: RunId,
    /// Sender.
    pub principal: String,
    /// Request method.
    pub method: String,
    /// Digest of the request.
    pub fingerprint: String,
    /// Key of the session.
    pub key: SessionKey,
    /// Transcript id for a new session; `None` for a fresh one.
    pub session: Option<SessionId>,
    /// The user message.
    pub message: User,
    /// Concurrency class of the run.
    pub class: RunClass,
    /// Time limit of the run; `None` for the agent's own limit.
    pub timeout: Option<Duration>,
    /// New thinking level of the session, or `off` to clear it.
    pub thinking: Option<String>,
    /// New label of the session.
    pub label: Option<String>,
    /// Key of the session that started this one.
    pub spawned_by: Option<String>,
    /// Addition to the system prompt of this run.
    pub extra_prompt: Option<String>,
    /// True if a message that does not fit into the context window is rejected instead of truncated.
    pub is_strict: bool,
    /// True if a restart reports the unfinished run instead of resuming it.
    pub reports_restart: bool,
    /// Command in the message. The lane executes it when it is the message's turn.
    pub command: Option<Command>,
    /// True if the text must not be parsed for commands.
    pub is_literal: bool,
    /// Origin of the message and destination of its reply.
    pub route: Route,
    /// Delivery of the reply to its route; `None` if only subscribers of the run get it.
    pub delivery: Option<ReplyDelivery>,
    /// Queue settings in the message itself; `None` for a request that always gets a run of its own.
    pub queue: Option<InlineQueue>,
    /// How the reply is sent in blocks while it streams; `None` to send it at the end. Not stored.
    pub blocks: Option<blocks::BlockRules>,
    /// Tools that the client executes: a call of one ends the run and is returned to the client. Not stored.
    pub client_tools: Vec<ToolSpec>,
    /// The channel event that brought the message.
    pub origin: Option<Origin>,
    /// Sender on the channel.
    pub sender: Option<Sender>,
    /// The sender's own text, if the message contains more than that. Not stored.
    pub sender_text: Option<String>,
    /// Working directory of the run's tools; `None` for the agent's workspace.
    pub cwd: Option<PathBuf>,
    /// How much of its principal's authority the run has.
    pub authority: Authority,
    /// Settings of this run only.
    pub overrides: RunOverrides,
    /// Session id that the sender expects; a message for another id is rejected. Not stored: it is checked when the
    /// message is accepted.
    pub expected_session: Option<SessionId>,
    /// Initial messages of a new session: earlier conversation as given by the sender.
    pub history: Vec<Message>,
    /// True if the session is deleted when the run ends, because no later request can name it.
    pub is_ephemeral: bool,
}

/// Principal of scheduled runs.
pub const SCHEDULE: &str = "schedule";

/// Method name of messages that came as HTTP requests.
pub const HTTP: &str = "http";

impl Inbound {
    /// True if a model answers the message. Other commands are answered at once.
    pub fn asks_model(&self) -> bool {
        match &self.command {
            None
            | Some(
                Command::NewTranscript { .. }
                | Command::NewTranscriptWith(_)
                | Command::Compact(_)
                | Command::Plugin(..),
            ) => true,
            Some(
                Command::Stop(_)
                | Command::Queue(_)
                | Command::Level(..)
                | Command::Model(_)
                | Command::Context(_)
                | Command::Approve(_)
                | Command::Status
                | Command::Help,
            ) => false,
        }
    }

    /// True if a person waits for the reply, on a connection or in a chat.
    pub(crate) fn is_attended(&self) -> bool {
        let is_direct = [AgentParams::METHOD, SendParams::METHOD, HTTP, CHANNEL].contains(&self.method.as_str());
        match self.class {
            RunClass::Main => is_direct,
            RunClass::Subagent | RunClass::Cron | RunClass::Nested | RunClass::Heartbeat => false,
        }
    }

    /// True if the message was written by a person or by a client program, not by a model: tasks of sub-agents,
    /// messages between sessions, jobs and events are written by models.
    pub(crate) fn is_written_by_client(&self) -> bool {
        let methods = [AgentParams::METHOD, SendParams::METHOD, HTTP, CHANNEL];
        self.class == RunClass::Main && methods.contains(&self.method.as_str())
    }

    /// Builds a message with default options. The run id is its fingerprint, so it can be sent again.
    pub fn plain(run: RunId, (principal, method): (&str, &str), key: SessionKey, message: User) -> Self {
        Self {
            fingerprint: run.to_string(),
            run,
            principal: principal.to_owned(),
            method: method.to_owned(),
            class: RunClass::choose(None, &key),
            key,
            session: None,
            message,
            timeout: None,
            thinking: None,
            label: None,
            spawned_by: None,
            extra_prompt: None,
            is_strict: false,
            reports_restart: false,
            command: None,
            is_literal: true,
            route: Route::default(),
            delivery: None,
            queue: None,
            blocks: None,
            client_tools: Vec::new(),
            origin: None,
            sender: None,
            sender_text: None,
            cwd: None,
            authority: Authority::Full,
            overrides: RunOverrides::default(),
            expected_session: None,
            history: Vec::new(),
            is_ephemeral: false,
        }
    }
}

/// Rules of the gateway.
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
    pub disposition: SubmitOutcome,
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

impl Inbound {
    /// Returns the session that started this message's session, if any.
    pub(crate) fn parent(&self) -> Option<SessionKey> {
        let agent = self.key.agent().cloned().unwrap_or_else(AgentId::main);
        self.spawned_by.as_deref().and_then(|parent| SessionKey::parse(parent, &agent).ok())
    }
}

impl From<RunRow> for Inbound {
    /// Restores an absorbed message; its text is in the transcript.
    fn from(row: RunRow) -> Self {
        Self::from(Accept {
            run: row.run,
            principal: row.principal,
            method: row.method,
            fingerprint: row.fingerprint,
            key: row.key,
            message: Message::User(User::text("", row.accepted_at)),
            options: Options::default(),
            origin: None,
            at: row.accepted_at,
        })
    }
}

impl From<Accept> for Inbound {
    /// Restores a message accepted before a restart. Its changes to the session's record were made then.
    fn from(accept: Accept) -> Self {
        let message = match accept.message {
            Message::User(user) => user,
            Message::Assistant(_) | Message::ToolResult(_) | Message::Other(_) => User::text("", accept.at),
        };
        let method = accept.method;
        Self {
            class: RunClass::choose(Some(&accept.options.lane), &accept.key),
            run: accept.run,
            principal: accept.principal,
            method: method.clone(),
            fingerprint: accept.fingerprint,
            key: accept.key,
            session: None,
            message,
            timeout: accept.options.timeout,
            thinking: None,
            label: None,
            spawned_by: None,
            extra_prompt: accept.options.extra_prompt,
            is_strict: accept.options.is_strict,
            reports_restart: accept.options.on_restart == OnRestart::Interrupt,
            command: None,
            queue: [SendParams::METHOD, CHANNEL]
                .contains(&method.as_str())
                .then(|| InlineQueue::parse(&accept.options.queue)),
            is_literal: accept.options.is_literal,
            route: accept.options.route,
            delivery: accept.options.delivery,
            blocks: None,
            client_tools: Vec::new(),
            origin: accept.origin,
            sender: accept.options.sender,
            sender_text: None,
            cwd: accept.options.cwd,
            authority: accept.options.authority,
            overrides: accept.options.overrides,
            expected_session: None,
            history: accept
                .options
                .history
                .into_iter()
                .filter_map(|message| serde_json::from_value(message).ok())
                .collect(),
            is_ephemeral: accept.options.is_ephemeral,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_and_messages_between_sessions_are_not_written_by_a_client() {
        let key = AgentId::main().main_session();
        let is_client = |method: &str, class: RunClass| {
            let run = RunId::parse("r").unwrap();
            let plain = Inbound::plain(run, (OWNER, method), key.clone(), User::text("./cat.png", 0));
            Inbound { class, ..plain }.is_written_by_client()
        };
        for method in [AgentParams::METHOD, SendParams::METHOD, HTTP, CHANNEL] {
            assert!(is_client(method, RunClass::Main), "{method}");
            assert!(!is_client(method, RunClass::Subagent) && !is_client(method, RunClass::Cron), "{method}");
        }
        assert!(!is_client("sessions_spawn", RunClass::Main) && !is_client("sessions_send", RunClass::Main));
    }
}
