//! The state of the chat: what happened so far, and what the user is about to send.
//!
//! [`State::update`] is pure: time and ids come with its arguments. What has to be done outside is returned as
//! [`Effect`]s. No message is lost: what was sent stays in `pending` until the gateway has put it into the
//! conversation, and is sent again, under the same id, after the connection broke.

mod choices;
mod conversation;
mod gateway;
mod input;
mod keys;
mod pending;
mod responses;
mod sync;

use std::fmt;

use crossterm::event::KeyEvent;
use serde_json::{Value, json};

pub(crate) use self::{
    choices::tokens,
    conversation::{Conversation, Phase},
    gateway::{CallKind, Connection, GatewayCalls},
    input::{Input, Search},
    pending::{PendingMessage, PendingState},
};
use crate::{
    approval::{Approval, Decision},
    command,
    composer::Image,
    input_history::InputHistory,
    link::{LinkEvent, RpcRequest},
    pager::Pager,
    picker::Picker,
    spinner::FRAME_MS,
    transcript::Notice,
    view::short_key,
};

/// How long a hint is shown.
const HINT_MS: u64 = 4_000;

/// Source of ids for messages.
pub struct IdSource(Box<dyn FnMut() -> String + Send>);

impl IdSource {
    /// Wraps a function that returns a new id with every call.
    pub fn new(source: impl FnMut() -> String + Send + 'static) -> Self {
        Self(Box::new(source))
    }
}

impl fmt::Debug for IdSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IdSource")
    }
}

/// What the chat starts with.
#[derive(Debug)]
pub struct ChatSettings {
    /// Key of the session, such as `agent:main:chat-1`.
    pub session: String,
    /// Earlier inputs.
    pub history: InputHistory,
    /// Ids of messages and sessions.
    pub ids: IdSource,
    /// Size of the terminal: columns and rows.
    pub size: (u16, u16),
    /// Directory that is shown.
    pub directory: Option<String>,
    /// Directory in which the agent's tools work; their own if absent.
    pub working_directory: Option<String>,
    /// How commands are confined, if that is known.
    pub sandbox: Option<String>,
}

/// Something that happened.
#[derive(Debug)]
pub enum Event {
    /// A key was pressed.
    Key(KeyEvent),
    /// A text was pasted.
    Paste(String),
    /// The terminal has a new size: columns and rows.
    Resize(u16, u16),
    /// Time has passed.
    Tick,
    /// Something came from the gateway.
    Link(LinkEvent),
    /// The files of the directory, for completion.
    Files(Vec<String>),
    /// A picture was read; without one, the pasted text is no path of a picture.
    Image {
        /// The pasted text.
        pasted: String,
        /// The picture, or why it cannot be sent.
        image: Result<Option<Image>, String>,
    },
    /// The external editor was closed with this text.
    Edited(Result<String, String>),
}

/// Something to do outside.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Send a request.
    Call(RpcRequest),
    /// Add a line to the history file.
    SaveInput(String),
    /// Remember the session with this key as the last one that was used.
    SaveSession(String),
    /// List the files of the directory.
    ListFiles,
    /// Read the picture that a pasted text may name.
    ReadImage(String),
    /// Edit a text in the external editor.
    OpenEditor(String),
    /// Draw everything anew.
    Redraw,
    /// Ring the bell: the user is needed.
    Bell,
    /// Leave.
    Quit,
}

/// What this chat knows and the gateway does not.
#[derive(Debug)]
pub(crate) struct LocalContext {
    ids: IdSource,
    working_directory: Option<String>,
    pub(crate) sandbox: Option<String>,
    /// The session that was saved as the last one.
    saved_session: Option<String>,
}

/// The state.
#[derive(Debug)]
pub struct State {
    pub(crate) size: (u16, u16),
    pub(crate) gateway: GatewayCalls,
    pub(crate) conversation: Conversation,
    pub(crate) input: Input,
    pub(crate) picker: Option<Picker>,
    pub(crate) pager: Option<Pager>,
    pub(crate) local: LocalContext,
    /// A remark in the status line, and when it disappears.
    hint: Option<(String, u64)>,
    last_key_at: u64,
    quit_armed_until: u64,
}

impl State {
    /// Creates the state.
    pub fn new(settings: ChatSettings) -> Self {
        let ChatSettings { session, history, ids, size, directory, working_directory, sandbox } = settings;
        let facts = [Some("homard".to_owned()), Some(format!("session {}", short_key(&session))), directory];
        let mut conversation = Conversation::new(session);
        conversation.notice(Notice::info(&facts.into_iter().flatten().collect::<Vec<_>>().join(" · ")));
        Self {
            size,
            gateway: GatewayCalls::new(),
            conversation,
            input: Input::new(history, command::all(&[])),
            picker: None,
            pager: None,
            local: LocalContext { ids, working_directory, sandbox, saved_session: None },
            hint: None,
            last_key_at: 0,
            quit_armed_until: 0,
        }
    }

    /// Processes an event at a time in milliseconds.
    pub fn update(&mut self, now: u64, event: Event) -> Vec<Effect> {
        self.conversation.now = self.conversation.now.max(now);
        let mut effects = Vec::new();
        match event {
            Event::Key(key) => self.key(key, &mut effects),
            Event::Paste(text) => self.paste(text, &mut effects),
            Event::Resize(columns, rows) => self.size = (columns, rows),
            Event::Tick => {}
            Event::Link(event) => self.link(event, &mut effects),
            Event::Files(files) => {
                self.input.files = Some(files);
                self.input.complete(&mut effects);
            }
            Event::Image { pasted, image } => match image {
                Ok(Some(image)) => self.input.edit(&mut effects, |composer| composer.attach(image)),
                Ok(None) => self.input.edit(&mut effects, |composer| composer.paste(&pasted)),
                Err(why) => {
                    self.input.edit(&mut effects, |composer| composer.paste(&pasted));
                    self.hint(&why);
                }
            },
            Event::Edited(Ok(text)) => self.input.edit(&mut effects, |composer| composer.set(text.trim_end())),
            Event::Edited(Err(why)) => self.hint(&why),
        }
        self.conversation.transcript.expire_awaited(self.conversation.now);
        if self.conversation.take_refresh() {
            self.refresh(&mut effects);
        }
        if self.hint.as_ref().is_some_and(|(_, until)| *until <= self.conversation.now) {
            self.hint = None;
        }
        effects
    }

    /// Returns the time at which [`Event::Tick`] is needed next; `None` if nothing changes by itself.
    pub fn next_tick(&self) -> Option<u64> {
        let is_animated = self.conversation.run.is_some() || matches!(self.gateway.connection, Connection::Lost { .. });
        let animation = is_animated.then_some(self.conversation.now + FRAME_MS);
        let hint = self.hint.as_ref().map(|(_, until)| *until);
        [animation, hint, self.conversation.transcript.awaited_until()].into_iter().flatten().min()
    }

    /// Key of the session.
    pub fn session_key(&self) -> &str {
        &self.conversation.session.key
    }

    /// True if the session has messages, so that it can be continued later.
    pub fn has_messages(&self) -> bool {
        self.conversation.runs.last.is_some() || !self.conversation.pending.is_empty()
    }

    /// Texts that were typed and not sent: they must not be lost when the chat ends.
    pub fn unsent(&self) -> Vec<String> {
        let unsent = self.conversation.pending.iter().filter(|message| message.is_unconfirmed());
        let typed = Some(self.input.composer.draft().text).filter(|text| !text.trim().is_empty());
        unsent.map(|message| message.draft.text.clone()).chain(typed).collect()
    }

    /// The hint to show, if any.
    pub(crate) fn shown_hint(&self) -> Option<&str> {
        self.hint.as_ref().map(|(hint, _)| hint.as_str())
    }

    fn hint(&mut self, text: &str) {
        self.hint = Some((crate::sanitize::one_line(text), self.conversation.now + HINT_MS));
    }

    fn link(&mut self, event: LinkEvent, effects: &mut Vec<Effect>) {
        match event {
            LinkEvent::Connected { hello, place } => self.connected(&hello, place, effects),
            LinkEvent::Lost { why, retry_in } => self.lost(&why, retry_in),
            LinkEvent::Failed(why) => {
                self.conversation.transcript.settle();
                self.conversation.notice(Notice::error(&why));
                effects.push(Effect::Quit);
            }
            LinkEvent::Remark(text) => self.conversation.notice(Notice::info(&text)),
            LinkEvent::Response { id, result } => {
                if let Some(kind) = self.gateway.answered(id) {
                    self.response(kind, result, effects);
                }
            }
            LinkEvent::Event { name, payload } => self.event(&name, &payload, effects),
        }
    }

    /// Processes an event of the gateway.
    fn event(&mut self, name: &str, payload: &Value, effects: &mut Vec<Effect>) {
        let conversation = &mut self.conversation;
        let is_here = payload["sessionKey"].as_str() == Some(&conversation.session.key);
        match name {
            "agent" if is_here && conversation.accepts(payload["runId"].as_str()) => conversation.agent_event(payload),
            "chat" if is_here && conversation.accepts(payload["runId"].as_str()) => conversation.chat_event(payload),
            "session.message" if is_here => conversation.stored_message(payload),
            "exec.approval.requested" => {
                let approval = Approval::read(payload, conversation.now);
                if approval.is_some_and(|approval| conversation.add_approval(approval)) {
                    effects.push(Effect::Bell);
                }
            }
            "exec.approval.resolved" => conversation.approval_resolved(payload),
            "shutdown" => self.hint("the gateway is stopping"),
            _ => {}
        }
    }

    /// Answers the oldest request for approval.
    pub(super) fn decide(&mut self, decision: Decision, effects: &mut Vec<Effect>) {
        let Some(approval) = self.conversation.approvals.iter_mut().find(|approval| approval.sent.is_none()) else {
            return;
        };
        if !approval.offers(decision) {
            return self.hint("this command can only be allowed once");
        }
        let id = approval.id.clone();
        if self.gateway.is_connected() {
            if let Some(approval) = self.conversation.approvals.iter_mut().find(|approval| approval.id == id) {
                approval.sent = Some(decision);
            }
            let params = json!({"id": id, "decision": decision.name()});
            self.gateway.call(CallKind::Resolve(id), "exec.approval.resolve", params, effects);
        } else {
            self.hint("not connected; the request can be answered when the connection is back");
        }
    }

    /// Sends a message that is pending.
    fn send(&mut self, run: &str, effects: &mut Vec<Effect>) {
        if !self.gateway.is_connected() || self.conversation.sync.is_loading() {
            return;
        }
        let Some(message) = self.conversation.pending_mut(run) else { return };
        if message.state == PendingState::Unsent {
            message.state = PendingState::Sent;
        }
        message.was_sent = true;
        let params = message.params();
        self.conversation.runs.own.insert(run.to_owned());
        self.gateway.call(CallKind::Send(run.to_owned()), "chat.send", params, effects);
    }

    /// Stops the active run.
    fn abort(&mut self, effects: &mut Vec<Effect>) {
        let Some(run) = &mut self.conversation.run else { return self.hint("nothing is running") };
        if !self.gateway.is_connected() {
            return self.hint("not connected; the run continues in the gateway");
        }
        run.phase = Phase::Stopping;
        let params = json!({"sessionKey": self.conversation.session.key, "runId": run.id});
        self.gateway.call(CallKind::Abort, "chat.abort", params, effects);
    }

    /// Asks for what the status line shows.
    fn refresh(&mut self, effects: &mut Vec<Effect>) {
        let key = self.conversation.session.key.clone();
        self.gateway.call(CallKind::Session, "sessions.describe", json!({"key": key}), effects);
        self.gateway.call(CallKind::Cost, "sessions.usage.timeseries", json!({"key": key}), effects);
    }
}
