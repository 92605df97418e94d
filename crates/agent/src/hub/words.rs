//! What goes in and out of the front door.

use std::{sync::Arc, time::Duration};

use homard_proto::{
    RunId, SessionId, SessionKey,
    message::{Message, User},
};
use homard_store::{Accept, Error as StoreError, OnRestart, RunRow};

use crate::{
    command::{Command, OWNER, Triggers},
    freshness::Freshness,
    lane::slots::Class,
    tape::{State, Tape},
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
    /// Whether the sender wants a report instead of a resume if a restart finds the run unfinished.
    pub reports_restart: bool,
    /// What the message asks of the session itself. The lane does it when it is the message's turn.
    pub command: Option<Command>,
}

/// When sessions get a new transcript.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rules {
    /// By themselves.
    pub freshness: Freshness,
    /// By these words.
    pub triggers: Triggers,
}

impl Rules {
    /// The command that a message is, if its sender may give one.
    pub(crate) fn command(&self, principal: &str, text: &str) -> Option<Command> {
        if principal == OWNER { self.triggers.parse(text) } else { None }
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
    /// It could not be stored; nothing was taken in.
    #[error("the message could not be stored: {0}")]
    Store(#[from] StoreError),
    /// The process is going down.
    #[error("the gateway is stopping; send it again when it is back")]
    Stopping,
    /// Nothing is taken in for now; the text says why and what helps.
    #[error("{0}")]
    Held(String),
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
}

impl From<Accept> for Inbound {
    /// What was taken in before a restart. What changes the session's record was done then.
    fn from(accept: Accept) -> Self {
        let message = match accept.message {
            Message::User(user) => user,
            Message::Assistant(_) | Message::ToolResult(_) | Message::Other(_) => User::text("", accept.at),
        };
        Self {
            class: Class::choose(Some(&accept.options.lane), &accept.key),
            run: accept.run,
            principal: accept.principal,
            method: accept.method,
            fingerprint: accept.fingerprint,
            key: accept.key,
            session: None,
            message,
            timeout: accept.options.timeout,
            thinking: None,
            label: None,
            spawned_by: None,
            extra_prompt: accept.options.extra_prompt,
            reports_restart: accept.options.on_restart == OnRestart::Interrupt,
            command: None,
        }
    }
}
