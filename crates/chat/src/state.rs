//! The state of the chat: what happened so far, and what the user is about to send.
//!
//! [`State::update`] is pure: time and ids come with its arguments. What has to be done outside is returned as
//! [`Effect`]s. No message is lost: what was sent stays in `pending` until the gateway has put it into the
//! conversation, and is sent again, under the same id, after the connection broke.

mod frames;
mod keys;
mod pending;
mod replies;
mod sync;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use crossterm::event::KeyEvent;
use serde_json::{Value, json};

pub(crate) use self::{
    pending::{PendingMessage, PendingState},
    replies::tokens,
};
use crate::{
    approval::Approval,
    command::{self, CommandInfo},
    completion::Completion,
    composer::{Composer, Image},
    input_history::InputHistory,
    link::{LinkEvent, Place, RpcRequest},
    pager::Pager,
    picker::Picker,
    transcript::{ItemId, Notice, Transcript, TranscriptItem},
    view::short_key,
};

/// Interval of the animation while a run is active, in milliseconds.
const ANIMATION: u64 = 100;
/// How long a hint is shown.
const HINT_MS: u64 = 4_000;
/// Ids of finished runs that are remembered.
const MAX_FINISHED: usize = 1_000;

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

/// What a request was for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallKind {
    /// A message under this run id.
    Send(String),
    History,
    /// The missed events of this run, or of all runs.
    Resume(Option<String>),
    Approvals,
    Resolve(String),
    Sessions,
    Models,
    Agents,
    Commands,
    Abort,
    /// The abort of a queued message, which goes back into the composer.
    Recall(String),
    Trace,
    Cost,
    Session,
    Subscribe,
}

/// State of the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Connection {
    Connecting,
    Connected(Place),
    Lost { why: String, retry_at: u64 },
}

/// What an active run does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing came from the model yet.
    Waiting,
    Thinking,
    Answering,
    Tool(String),
    Compacting,
    Retrying {
        until: u64,
        why: String,
    },
    Stopping,
}

/// The run whose answer is shown.
#[derive(Debug, Clone)]
pub(crate) struct ActiveRun {
    pub(crate) id: String,
    /// Sequence number of its last event.
    pub(crate) seq: u64,
    pub(crate) started_at: u64,
    pub(crate) phase: Phase,
    /// The message and the reasoning that are streamed.
    pub(crate) answer: Option<ItemId>,
    pub(crate) reasoning: Option<ItemId>,
}

/// What is known about the session.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SessionInfo {
    pub(crate) key: String,
    pub(crate) label: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) thinking: Option<String>,
    /// Used tokens and size of the context window.
    pub(crate) context: Option<(u64, u64)>,
    pub(crate) cost: Option<f64>,
}

/// A search in the input history.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Search {
    pub(crate) text: String,
    pub(crate) skip: usize,
}

/// The state.
#[derive(Debug)]
pub struct State {
    pub(crate) now: u64,
    pub(crate) size: (u16, u16),
    pub(crate) connection: Connection,
    was_connected: bool,
    /// When the gateway started, by the clock of the chat.
    gateway_started_at: Option<i64>,
    pub(crate) session: SessionInfo,
    pub(crate) transcript: Transcript,
    pub(crate) pending: Vec<PendingMessage>,
    pub(crate) run: Option<ActiveRun>,
    /// Runs that ended. Their late events are ignored.
    finished: Vec<String>,
    /// Runs that this chat started: their messages are not those of others.
    own_runs: BTreeSet<String>,
    last_run: Option<String>,
    sync: sync::Sync,
    /// True while missed events are processed: some of them may be in the history.
    is_catching_up: bool,
    pub(crate) approvals: Vec<Approval>,
    pub(crate) composer: Composer,
    pub(crate) input_history: InputHistory,
    pub(crate) completion: Option<Completion>,
    /// The text for which the list of completions was closed.
    dismissed: Option<String>,
    pub(crate) search: Option<Search>,
    pub(crate) picker: Option<Picker>,
    pub(crate) pager: Option<Pager>,
    working_directory: Option<String>,
    pub(crate) sandbox: Option<String>,
    /// The session that was saved as the last one.
    saved_session: Option<String>,
    hint: Option<(String, u64)>,
    commands: Vec<CommandInfo>,
    files: Option<Vec<String>>,
    calls: BTreeMap<u64, CallKind>,
    next_call: u64,
    ids: IdSource,
    last_key_at: u64,
    quit_armed_until: u64,
}

impl State {
    /// Creates the state.
    pub fn new(settings: ChatSettings) -> Self {
        let ChatSettings { session, history, ids, size, directory, working_directory, sandbox } = settings;
        let facts = [Some("homard".to_owned()), Some(format!("session {}", short_key(&session))), directory];
        let mut transcript = Transcript::default();
        transcript
            .push(TranscriptItem::Notice(Notice::info(&facts.into_iter().flatten().collect::<Vec<_>>().join(" · "))));
        Self {
            now: 0,
            size,
            connection: Connection::Connecting,
            was_connected: false,
            gateway_started_at: None,
            session: SessionInfo { key: session, ..SessionInfo::default() },
            transcript,
            pending: Vec::new(),
            run: None,
            finished: Vec::new(),
            own_runs: BTreeSet::new(),
            last_run: None,
            sync: sync::Sync::default(),
            is_catching_up: false,
            approvals: Vec::new(),
            composer: Composer::default(),
            input_history: history,
            completion: None,
            dismissed: None,
            search: None,
            picker: None,
            pager: None,
            working_directory,
            sandbox,
            saved_session: None,
            hint: None,
            commands: command::all(&[]),
            files: None,
            calls: BTreeMap::new(),
            next_call: 0,
            ids,
            last_key_at: 0,
            quit_armed_until: 0,
        }
    }

    /// Processes an event at a time in milliseconds.
    pub fn update(&mut self, now: u64, event: Event) -> Vec<Effect> {
        self.now = self.now.max(now);
        let mut effects = Vec::new();
        match event {
            Event::Key(key) => self.key(key, &mut effects),
            Event::Paste(text) => self.paste(text, &mut effects),
            Event::Resize(columns, rows) => self.size = (columns, rows),
            Event::Tick => {}
            Event::Link(event) => self.link(event, &mut effects),
            Event::Files(files) => {
                self.files = Some(files);
                self.complete(&mut effects);
            }
            Event::Image { pasted, image } => match image {
                Ok(Some(image)) => self.composer.attach(image),
                Ok(None) => self.composer.paste(&pasted),
                Err(why) => {
                    self.composer.paste(&pasted);
                    self.hint(&why);
                }
            },
            Event::Edited(Ok(text)) => self.composer.set(text.trim_end()),
            Event::Edited(Err(why)) => self.hint(&why),
        }
        if self.hint.as_ref().is_some_and(|(_, until)| *until <= self.now) {
            self.hint = None;
        }
        effects
    }

    /// Returns the time at which [`Event::Tick`] is needed next; `None` if nothing changes by itself.
    pub fn next_tick(&self) -> Option<u64> {
        let is_animated = self.run.is_some() || matches!(self.connection, Connection::Lost { .. });
        let animation = is_animated.then_some(self.now + ANIMATION);
        let hint = self.hint.as_ref().map(|(_, until)| *until);
        [animation, hint].into_iter().flatten().min()
    }

    /// Key of the session.
    pub fn session_key(&self) -> &str {
        &self.session.key
    }

    /// True if the session has messages, so that it can be continued later.
    pub fn has_messages(&self) -> bool {
        self.last_run.is_some() || !self.pending.is_empty()
    }

    /// Texts that were typed and not sent: they must not be lost when the chat ends.
    pub fn unsent(&self) -> Vec<String> {
        let unsent = self.pending.iter().filter(|message| message.is_unconfirmed());
        let typed = Some(self.composer.draft().text).filter(|text| !text.trim().is_empty());
        unsent.map(|message| message.draft.text.clone()).chain(typed).collect()
    }

    /// The hint to show, if any.
    pub(crate) fn shown_hint(&self) -> Option<&str> {
        self.hint.as_ref().map(|(hint, _)| hint.as_str())
    }

    fn hint(&mut self, text: &str) {
        self.hint = Some((crate::sanitize::one_line(text), self.now + HINT_MS));
    }

    fn notice(&mut self, notice: Notice) {
        self.transcript.push(TranscriptItem::Notice(notice));
    }

    fn is_connected(&self) -> bool {
        matches!(self.connection, Connection::Connected(_))
    }

    /// Sends a request, if there is a connection.
    fn call(&mut self, kind: CallKind, method: &'static str, params: Value, effects: &mut Vec<Effect>) {
        if self.is_connected() {
            self.next_call += 1;
            self.calls.insert(self.next_call, kind);
            effects.push(Effect::Call(RpcRequest { id: self.next_call, method, params }));
        }
    }

    fn link(&mut self, event: LinkEvent, effects: &mut Vec<Effect>) {
        match event {
            LinkEvent::Connected { hello, place } => self.connected(&hello, place, effects),
            LinkEvent::Lost { why, retry_in } => self.lost(&why, retry_in),
            LinkEvent::Failed(why) => {
                self.transcript.settle();
                self.notice(Notice::error(&why));
                effects.push(Effect::Quit);
            }
            LinkEvent::Remark(text) => self.notice(Notice::info(&text)),
            LinkEvent::Response { id, result } => {
                if let Some(kind) = self.calls.remove(&id) {
                    self.response(kind, result, effects);
                }
            }
            LinkEvent::Event { name, payload } => self.event(&name, &payload, effects),
        }
    }

    /// Sends a message that is pending.
    fn send(&mut self, run: &str, effects: &mut Vec<Effect>) {
        if !self.is_connected() || self.sync.is_loading() {
            return;
        }
        let Some(message) = self.pending.iter_mut().find(|message| message.run == run) else { return };
        if message.state == PendingState::Unsent {
            message.state = PendingState::Sent;
        }
        message.was_sent = true;
        let params = message.params();
        self.own_runs.insert(run.to_owned());
        self.call(CallKind::Send(run.to_owned()), "chat.send", params, effects);
    }

    /// Stops the active run.
    fn abort(&mut self, effects: &mut Vec<Effect>) {
        let Some(run) = &mut self.run else { return self.hint("nothing is running") };
        run.phase = Phase::Stopping;
        let params = json!({"sessionKey": self.session.key, "runId": run.id});
        if self.is_connected() {
            self.call(CallKind::Abort, "chat.abort", params, effects);
        } else {
            self.hint("not connected; the run goes on in the gateway");
        }
    }

    fn is_finished(&self, run: &str) -> bool {
        self.finished.iter().any(|finished| finished == run)
    }

    fn mark_finished(&mut self, run: &str) {
        if self.finished.len() >= MAX_FINISHED {
            self.finished.remove(0);
        }
        self.finished.push(run.to_owned());
        self.last_run = Some(run.to_owned());
    }

    /// Asks for what the status line shows.
    fn refresh(&mut self, effects: &mut Vec<Effect>) {
        let key = self.session.key.clone();
        self.call(CallKind::Session, "sessions.describe", json!({"key": key}), effects);
        self.call(CallKind::Cost, "sessions.usage.timeseries", json!({"key": key}), effects);
    }
}
