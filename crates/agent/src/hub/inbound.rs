//! Messages submitted to the hub. [`crate::intake`] builds them from requests.

use std::{path::PathBuf, time::Duration};

use homard_command::{Command, InlineQueue};
use homard_proto::{
    AgentId, Route, RunId, SessionId, SessionKey,
    message::{Message, User},
    method::{Params, agent::AgentParams, chat::SendParams},
};
use homard_queue::slots::RunClass;
use homard_reply::blocks;
use homard_store::{Accept, Authority, OnRestart, Options, Origin, ReplyDelivery, RunOverrides, RunRow, Sender};

use super::background::WAKE_METHOD;
use crate::{
    intake::CHANNEL,
    lane::{AUTO_COMPACT, AUTO_FLUSH},
    tool::ToolSpec,
};

/// Principal of scheduled runs.
pub const SCHEDULE: &str = "schedule";

/// True if the sender must get a reply, even if the model prefers silence: a person in a direct conversation.
pub(crate) fn is_answer_due(class: RunClass, principal: &str, key: &SessionKey) -> bool {
    let is_person = match class {
        RunClass::Main => principal != SCHEDULE,
        RunClass::Subagent | RunClass::Cron | RunClass::Nested | RunClass::Heartbeat => false,
    };
    is_person && key.kind() != "group"
}

/// Method name of messages that came as HTTP requests.
pub const HTTP: &str = "http";

/// A message to submit. [`crate::intake`] builds one from a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Inbound {
    /// Identity of the request.
    pub id: InboundId,
    /// Who sent it.
    pub sender: InboundSender,
    /// Its session, and changes to that session.
    pub session: InboundSession,
    /// The user message.
    pub message: User,
    /// Command in the message. The lane executes it when it is the message's turn.
    pub command: Option<Command>,
    /// True if the text must not be parsed for commands.
    pub is_literal: bool,
    /// Where the reply goes.
    pub reply: InboundReply,
    /// Queue settings in the message itself; `None` for a request that always gets a run of its own.
    pub queue: Option<InlineQueue>,
    /// Settings of its run.
    pub options: InboundOptions,
}

/// Identity of a request: of two messages with the same run id, only one runs.
#[derive(Debug, Clone, PartialEq)]
pub struct InboundId {
    /// Run id; an id never runs twice.
    pub run: RunId,
    /// Digest of the request.
    pub fingerprint: String,
    /// The channel event that brought the message.
    pub origin: Option<Origin>,
}

/// Sender of a message, and the sender's rights.
#[derive(Debug, Clone, PartialEq)]
pub struct InboundSender {
    /// Principal.
    pub principal: String,
    /// Request method.
    pub method: String,
    /// Sender on the channel.
    pub on_channel: Option<Sender>,
    /// The sender's own text, if the message contains more than that. Not stored.
    pub text: Option<String>,
    /// How much of its principal's authority the run has.
    pub authority: Authority,
}

/// Session of a message, and what the message changes in it.
#[derive(Debug, Clone, PartialEq)]
pub struct InboundSession {
    /// Key of the session.
    pub key: SessionKey,
    /// Transcript id for a new session; `None` for a fresh one.
    pub transcript: Option<SessionId>,
    /// Session id that the sender expects; a message for another id is rejected. Not stored: it is checked when the
    /// message is accepted.
    pub expected: Option<SessionId>,
    /// New thinking level of the session, or `off` to clear it.
    pub thinking: Option<String>,
    /// New label of the session.
    pub label: Option<String>,
    /// Key of the session that started this one.
    pub spawned_by: Option<String>,
    /// Initial messages of a new session: earlier conversation as given by the sender.
    pub history: Vec<Message>,
    /// True if the session is deleted when the run ends, because no later request can name it.
    pub is_ephemeral: bool,
}

/// Destination of the reply to a message.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct InboundReply {
    /// Origin of the message and destination of its reply.
    pub route: Route,
    /// Delivery of the reply to its route; `None` if only subscribers of the run get it.
    pub delivery: Option<ReplyDelivery>,
    /// How the reply is sent in blocks while it streams; `None` to send it at the end. Not stored.
    pub blocks: Option<blocks::BlockRules>,
}

/// Settings of the run of a message.
#[derive(Debug, Clone, PartialEq)]
pub struct InboundOptions {
    /// Concurrency class of the run.
    pub class: RunClass,
    /// Time limit of the run; `None` for the agent's own limit.
    pub timeout: Option<Duration>,
    /// Addition to the system prompt of this run.
    pub extra_prompt: Option<String>,
    /// True if a message that does not fit into the context window is rejected instead of truncated.
    pub is_strict: bool,
    /// True if a restart reports the unfinished run instead of resuming it.
    pub reports_restart: bool,
    /// Tools that the client executes: a call of one ends the run and is returned to the client. Not stored.
    pub client_tools: Vec<ToolSpec>,
    /// Working directory of the run's tools; `None` for the agent's workspace.
    pub cwd: Option<PathBuf>,
    /// Settings of this run only.
    pub overrides: RunOverrides,
}

impl InboundSender {
    /// A sender with full authority.
    pub fn new(principal: &str, method: &str) -> Self {
        Self {
            principal: principal.to_owned(),
            method: method.to_owned(),
            on_channel: None,
            text: None,
            authority: Authority::Full,
        }
    }
}

impl InboundSession {
    /// A session that the message does not change.
    pub fn new(key: SessionKey) -> Self {
        Self {
            key,
            transcript: None,
            expected: None,
            thinking: None,
            label: None,
            spawned_by: None,
            history: Vec::new(),
            is_ephemeral: false,
        }
    }
}

impl InboundReply {
    /// A reply to this route, delivered to it if `delivery` is set, as a whole.
    pub fn new(route: Route, delivery: Option<ReplyDelivery>) -> Self {
        Self { route, delivery, blocks: None }
    }
}

impl InboundOptions {
    /// Default settings of a run of this class.
    pub fn new(class: RunClass) -> Self {
        Self {
            class,
            timeout: None,
            extra_prompt: None,
            is_strict: false,
            reports_restart: false,
            client_tools: Vec::new(),
            cwd: None,
            overrides: RunOverrides::default(),
        }
    }
}

impl Inbound {
    /// Builds a message with default options. The run id is its fingerprint, so it can be sent again.
    pub fn plain(run: RunId, sender: InboundSender, key: SessionKey, message: User) -> Self {
        Self {
            id: InboundId { fingerprint: run.to_string(), run, origin: None },
            sender,
            options: InboundOptions::new(RunClass::choose(None, &key)),
            session: InboundSession::new(key),
            message,
            command: None,
            is_literal: true,
            reply: InboundReply::default(),
            queue: None,
        }
    }

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
        self.is_written_by_client()
    }

    /// True if the message was written by a person or by a client program, not by a model: tasks of sub-agents,
    /// messages between sessions, jobs and events are written by models.
    pub(crate) fn is_written_by_client(&self) -> bool {
        let methods = [AgentParams::METHOD, SendParams::METHOD, HTTP, CHANNEL];
        self.options.class == RunClass::Main && methods.contains(&self.sender.method.as_str())
    }

    /// True if the gateway submitted it itself, so that no sender waits for it.
    pub(crate) fn is_internal(&self) -> bool {
        [AUTO_COMPACT, AUTO_FLUSH].contains(&self.sender.method.as_str())
    }

    /// True if this message was submitted only to wake its session after a command ended.
    pub(crate) fn is_wake(&self) -> bool {
        self.sender.method == WAKE_METHOD
    }

    /// Returns the session that started this message's session, if any.
    pub(crate) fn parent(&self) -> Option<SessionKey> {
        let agent = self.session.key.agent().cloned().unwrap_or_else(AgentId::main);
        self.session.spawned_by.as_deref().and_then(|parent| SessionKey::parse(parent, &agent).ok())
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
        let Accept { run, principal, method, fingerprint, key, message, options, origin, at } = accept;
        let message = match message {
            Message::User(user) => user,
            Message::Assistant(_) | Message::ToolResult(_) | Message::Other(_) => User::text("", at),
        };
        let has_queue = [SendParams::METHOD, CHANNEL].contains(&method.as_str());
        let history = options.history.into_iter().filter_map(|message| serde_json::from_value(message).ok()).collect();
        Self {
            id: InboundId { run, fingerprint, origin },
            sender: InboundSender {
                principal,
                method,
                on_channel: options.sender,
                text: None,
                authority: options.authority,
            },
            options: InboundOptions {
                class: RunClass::choose(Some(&options.class), &key),
                timeout: options.timeout,
                extra_prompt: options.extra_prompt,
                is_strict: options.is_strict,
                reports_restart: options.on_restart == OnRestart::Interrupt,
                client_tools: Vec::new(),
                cwd: options.cwd,
                overrides: options.overrides,
            },
            session: InboundSession { history, is_ephemeral: options.is_ephemeral, ..InboundSession::new(key) },
            message,
            command: None,
            is_literal: options.is_literal,
            reply: InboundReply::new(options.route, options.delivery),
            queue: has_queue.then(|| InlineQueue::parse(&options.queue)),
        }
    }
}

#[cfg(test)]
mod tests {
    use homard_command::OWNER;

    use super::*;

    #[test]
    fn tasks_and_messages_between_sessions_are_not_written_by_a_client() {
        let key = AgentId::main().main_session();
        let is_client = |method: &str, class: RunClass| {
            let (run, sender) = (RunId::parse("r").unwrap(), InboundSender::new(OWNER, method));
            let plain = Inbound::plain(run, sender, key.clone(), User::text("./cat.png", 0));
            Inbound { options: InboundOptions::new(class), ..plain }.is_written_by_client()
        };
        for method in [AgentParams::METHOD, SendParams::METHOD, HTTP, CHANNEL] {
            assert!(is_client(method, RunClass::Main), "{method}");
            assert!(!is_client(method, RunClass::Subagent) && !is_client(method, RunClass::Cron), "{method}");
        }
        assert!(!is_client("sessions_spawn", RunClass::Main) && !is_client("sessions_send", RunClass::Main));
    }
}
