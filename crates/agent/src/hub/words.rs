//! What goes in and out of the front door.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use homard_audit::Audit;
use homard_hooks::Hooks;
use homard_proto::{
    AgentId, Route, RunId, SessionId, SessionKey,
    message::{Message, User},
    method::{Params, agent::AgentParams, chat::SendParams},
};
use homard_reply::blocks;
use homard_store::{
    Accept, Authority, Error as StoreError, OnRestart, Options, Origin, Post, RunOverrides, RunRow, Sender,
};

use crate::{
    command::{self, Command, Inline, OWNER, Parsed, Triggers, queue::Overrides},
    context::history::HistoryLimits,
    freshness::Freshness,
    intake::CHANNEL,
    lane::slots::Class,
    post::{Delivered, PostRules},
    purse::Limits,
    tape::{State, Tape},
    tool::ToolSpec,
    wire::Reported,
};

/// A message on its way in. [`crate::intake`] makes one from a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Inbound {
    /// Names the run; the same name never runs twice.
    pub run: RunId,
    /// Who sends it.
    pub principal: String,
    /// With which method.
    pub method: String,
    /// A digest of what was asked.
    pub fingerprint: String,
    /// The session.
    pub key: SessionKey,
    /// The transcript that a new session gets; `None` for one with a new id.
    pub session: Option<SessionId>,
    /// What is said.
    pub message: User,
    /// The pool that its run draws from.
    pub class: Class,
    /// How long the run may take; `None` for the agent's own limit.
    pub timeout: Option<Duration>,
    /// A change of the session's thinking level: a level, or `off` to forget it.
    pub thinking: Option<String>,
    /// A new label for the session.
    pub label: Option<String>,
    /// The session that started this one.
    pub spawned_by: Option<String>,
    /// What this run adds to the system prompt.
    pub extra_prompt: Option<String>,
    /// Whether it is refused rather than cut if it does not fit into the context window.
    pub is_strict: bool,
    /// Whether the sender wants a report instead of a resume if a restart finds the run unfinished.
    pub reports_restart: bool,
    /// What the message asks of the session itself. The lane does it when it is the message's turn.
    pub command: Option<Command>,
    /// Whether its text is meant as it is written, and never as a command.
    pub is_literal: bool,
    /// Where it came from, and where its answer goes.
    pub route: Route,
    /// That its answer is sent to its route; `None` if those who follow the run are all who get it.
    pub post: Option<Post>,
    /// What it says about its own way through the queue; `None` for a request that is always a run of its own.
    pub queue: Option<Inline>,
    /// How its answer is sent in blocks while it is written; `None` if it is sent when it is done. It is not stored.
    pub blocks: Option<blocks::Rules>,
    /// Tools that whoever sends it has: a call of one ends the run and is handed over. They are not stored.
    pub client_tools: Vec<ToolSpec>,
    /// The event of a channel that brought it.
    pub origin: Option<Origin>,
    /// Who said it there.
    pub sender: Option<Sender>,
    /// What they said there, if the message says more than that. It is not stored.
    pub words: Option<String>,
    /// Working directory of the run's tools; `None` for the agent's workspace.
    pub cwd: Option<PathBuf>,
    /// How much of its principal's authority its run has.
    pub authority: Authority,
    /// Settings of its run only.
    pub overrides: RunOverrides,
    /// The session id that the sender expects its session to have; with another one the message is refused. It is not
    /// stored: it counts when the message is accepted.
    pub expected_session: Option<SessionId>,
    /// Messages that its session begins with, if it is new: a conversation that the sender tells of.
    pub history: Vec<Message>,
    /// True if the session is deleted when the run ends, because no later request can name it.
    pub is_ephemeral: bool,
}

/// The method of a message that came as an HTTP request.
pub const HTTP: &str = "http";

impl Inbound {
    /// Whether a model answers it. Other commands are answered at once.
    pub fn asks_model(&self) -> bool {
        match &self.command {
            None | Some(Command::Begin { .. } | Command::BeginWith(_) | Command::Compact(_) | Command::Foreign(..)) => {
                true
            }
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

    /// Whether a person waits for the answer, on a connection or in a chat.
    pub(crate) fn is_attended(&self) -> bool {
        let is_direct = [AgentParams::METHOD, SendParams::METHOD, HTTP, CHANNEL].contains(&self.method.as_str());
        match self.class {
            Class::Main => is_direct,
            Class::Subagent | Class::Cron | Class::Nested | Class::Heartbeat => false,
        }
    }

    /// Whether a person or a program of theirs wrote it, and not a model: tasks of sub-agents, messages between sessions,
    /// jobs and events are written by models.
    pub(crate) fn is_written_by_client(&self) -> bool {
        let methods = [AgentParams::METHOD, SendParams::METHOD, HTTP, CHANNEL];
        self.class == Class::Main && methods.contains(&self.method.as_str())
    }

    /// A message that asks for nothing but an answer, and is taken as it is. Its run's name says all that matters, so it
    /// may be sent again.
    pub fn plain(run: RunId, (principal, method): (&str, &str), key: SessionKey, message: User) -> Self {
        Self {
            fingerprint: run.to_string(),
            run,
            principal: principal.to_owned(),
            method: method.to_owned(),
            class: Class::choose(None, &key),
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
            post: None,
            queue: None,
            blocks: None,
            client_tools: Vec::new(),
            origin: None,
            sender: None,
            words: None,
            cwd: None,
            authority: Authority::Full,
            overrides: RunOverrides::default(),
            expected_session: None,
            history: Vec::new(),
            is_ephemeral: false,
        }
    }
}

/// The rules of the house.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rules {
    /// When sessions get a new transcript by themselves.
    pub freshness: Freshness,
    /// The words that give them one.
    pub triggers: Triggers,
    /// How messages wait.
    pub queue: QueueRules,
    /// How much of a chat is shown to models.
    pub history: HistoryLimits,
    /// What goes out on channels.
    pub post: PostRules,
    /// Who takes part in the loop.
    pub hooks: Hooks,
    /// Where it is noted what matters to whoever guards the house.
    pub audit: Audit,
    /// What models may take.
    pub limits: Limits,
    /// Which working directories a request may name.
    pub working_dirs: WorkingDirs,
}

/// Which working directories a request may name; without a check, none.
#[derive(Clone, Default)]
pub struct WorkingDirs(Option<Arc<CheckDir>>);

/// Checks a directory that a request names: its real path, or why the run may not work there. Blocks.
type CheckDir = dyn Fn(&Path) -> Result<PathBuf, String> + Send + Sync;

impl WorkingDirs {
    /// Those that pass a check.
    pub fn new(check: impl Fn(&Path) -> Result<PathBuf, String> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(check)))
    }

    /// The real path of a directory that a request names, or why its run may not work there.
    pub(crate) async fn check(&self, directory: PathBuf) -> Result<PathBuf, String> {
        let Some(check) = self.0.clone() else {
            return Err("requests cannot choose a working directory here".to_owned());
        };
        let checked = tokio::task::spawn_blocking(move || check(&directory)).await;
        checked.map_err(|error| format!("the directory could not be checked: {error}"))?
    }
}

impl fmt::Debug for WorkingDirs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WorkingDirs").field(&self.0.is_some()).finish()
    }
}

/// Two are equal if they have the same check.
impl PartialEq for WorkingDirs {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
}

impl Rules {
    /// What a message turns out to be. Only the owner's are read; anybody else's are taken as they are.
    pub(crate) fn read(&self, principal: &str, text: &str) -> Parsed {
        if principal == OWNER {
            let parsed = command::parse(text, &self.triggers);
            match self.hooks.command(text) {
                // Our own words come first.
                Some((foreign, words)) if parsed.command.is_none() => {
                    let command = Some(Command::Foreign(foreign.name().to_owned(), words));
                    Parsed { command, inline: Inline::default(), text: String::new() }
                }
                Some(_) | None => parsed,
            }
        } else {
            Parsed { command: None, inline: Inline::default(), text: text.to_owned() }
        }
    }
}

/// How messages wait, unless they or their sessions say otherwise.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QueueRules {
    /// Everywhere.
    pub all: Overrides,
    /// On a channel, by its name.
    pub by_channel: BTreeMap<String, Overrides>,
}

impl QueueRules {
    /// The rules of a route's channel, and those of the house.
    pub(crate) fn of(&self, route: &Route) -> (Overrides, Overrides) {
        let channel = route.channel.as_ref().and_then(|channel| self.by_channel.get(channel));
        (channel.copied().unwrap_or_default(), self.all)
    }
}

/// A message that was taken in.
#[derive(Debug, Clone)]
pub struct Accepted {
    /// The run.
    pub run: RunId,
    /// The session.
    pub key: SessionKey,
    /// Milliseconds since the epoch.
    pub at: u64,
    /// What happens with it.
    pub disposition: Disposition,
}

/// What happens with a message that was taken in.
#[derive(Debug, Clone)]
pub enum Disposition {
    /// A new run, on this tape.
    New(Arc<Tape>),
    /// The same request is already at work, on this tape.
    InFlight(Arc<Tape>),
    /// The same request was done before, with this result.
    Finished(Box<Reported>),
}

/// Why a message was not taken in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The id belongs to another request.
    #[error("idempotency_conflict: run id {0} was already used for another request")]
    Conflict(RunId),
    /// The session does not take messages.
    #[error("send blocked by session policy")]
    Blocked,
    /// The session does not have the session id that the sender expects.
    #[error(
        "the session has another session id than the one that was named; read its history, and send the message again"
    )]
    SessionChanged,
    /// Too much waits; nothing was taken in.
    #[error("overloaded: too many messages wait; send it again in a while")]
    Overloaded,
    /// It could not be stored; nothing was taken in.
    #[error("the message could not be stored: {0}")]
    Store(#[from] StoreError),
    /// The process is going down.
    #[error("gateway_draining: the gateway is stopping; send it again when it is back")]
    Stopping,
    /// The same request was accepted before, and its run is held.
    #[error("run {0} was active at several crashes in a row and is held; continue it with: homard runs release {0}")]
    Held(RunId),
}

/// Whether a message was taken in, once that is known.
#[derive(Debug, Clone)]
pub(crate) enum Admission {
    /// Not known yet.
    Pending,
    /// It is on disk.
    Accepted,
    /// It was on disk before.
    Duplicate(Box<RunRow>),
    /// Its id belongs to another request.
    Conflict,
    /// The session does not take messages.
    Blocked,
    /// The session has another session id than the sender expects.
    SessionChanged,
    /// There is no room for it.
    Overloaded,
    /// It is not on disk.
    Failed(StoreError),
}

/// What `agent.wait` learns.
#[derive(Debug, Clone)]
pub enum Waited {
    /// The run is over.
    Ended(Box<Reported>),
    /// Time is up and the run still waits for its turn.
    Queued,
    /// Time is up, or nobody knows the run.
    Timeout,
    /// The run's end could not be stored; the text says why.
    Broken(String),
}

impl Waited {
    /// What a tape says now.
    pub(super) fn now(tape: &Tape) -> Self {
        match tape.state() {
            State::Ended(end) => Self::Ended(Box::new(Reported::of(tape.run(), tape.key(), &end))),
            State::Broken(why) => Self::Broken(why),
            State::Queued => Self::Queued,
            State::Running | State::Refused => Self::Timeout,
        }
    }
}

/// News from all runs, for whoever follows them all. A tape with news is announced once until it is read.
#[derive(Debug, Clone)]
pub enum HubEvent {
    /// There is something new on this tape.
    Run(Arc<Tape>),
    /// Nothing more is done about something that was to be said on a channel.
    Delivery(Box<Delivered>),
}

impl Inbound {
    /// The session that started its session, if one did.
    pub(crate) fn parent(&self) -> Option<SessionKey> {
        let agent = self.key.agent().cloned().unwrap_or_else(AgentId::main);
        self.spawned_by.as_deref().and_then(|parent| SessionKey::parse(parent, &agent).ok())
    }
}

impl From<RunRow> for Inbound {
    /// A run that became a part of another: its message stands in the transcript.
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
    /// What was taken in before a restart. What changes the session's record was done then.
    fn from(accept: Accept) -> Self {
        let message = match accept.message {
            Message::User(user) => user,
            Message::Assistant(_) | Message::ToolResult(_) | Message::Other(_) => User::text("", accept.at),
        };
        let method = accept.method;
        Self {
            class: Class::choose(Some(&accept.options.lane), &accept.key),
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
                .then(|| Inline::typed(&accept.options.queue)),
            is_literal: accept.options.is_literal,
            route: accept.options.route,
            post: accept.options.post,
            blocks: None,
            client_tools: Vec::new(),
            origin: accept.origin,
            sender: accept.options.sender,
            words: None,
            cwd: accept.options.cwd,
            authority: accept.options.authority,
            overrides: accept.options.overrides,
            expected_session: None,
            history: accept.options.history.into_iter().filter_map(|told| serde_json::from_value(told).ok()).collect(),
            is_ephemeral: accept.options.is_ephemeral,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c3_tasks_and_messages_between_sessions_are_not_written_by_a_client() {
        let key = AgentId::main().main_session();
        let is_client = |method: &str, class: Class| {
            let run = RunId::parse("r").unwrap();
            let plain = Inbound::plain(run, (OWNER, method), key.clone(), User::text("./cat.png", 0));
            Inbound { class, ..plain }.is_written_by_client()
        };
        for method in [AgentParams::METHOD, SendParams::METHOD, HTTP, CHANNEL] {
            assert!(is_client(method, Class::Main), "{method}");
            assert!(!is_client(method, Class::Subagent) && !is_client(method, Class::Cron), "{method}");
        }
        assert!(!is_client("sessions_spawn", Class::Main) && !is_client("sessions_send", Class::Main));
    }
}
