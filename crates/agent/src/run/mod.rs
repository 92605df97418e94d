//! One run: ask the model, run its tools, ask again, until it has nothing left to ask for.

mod asked;
mod cap;
mod client;
pub(crate) mod compact;
mod flush;
pub(crate) mod guard;
mod hooks;
pub(crate) mod margin;
mod plead;
mod prune;
mod steer;
mod tools;
mod turn;
mod voice;

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use homard_compact::escalate::Ladder;
use homard_hooks::Hooks;
use homard_model::{Level, Spec, ToolSpec, failover::Failover};
use homard_proto::{
    EntryId, SessionId,
    message::{Assistant, Message, ToolCall, ToolResult, Usage},
    transcript::{Entry, Kind},
};
use homard_reply::{blocks::Blocks, silent::TOKEN as SILENCE};
use homard_store::{Error as StoreError, Rec, timeline::Shortened};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

pub use flush::FLUSH;
use guard::Guard;
pub(crate) use hooks::Wanted;
use margin::Margin;
pub(crate) use plead::Plea;
pub use plead::{CUT, PLEA};
pub(crate) use steer::Handed;
use tools::Made;
pub(crate) use voice::HeldBlocks;

use crate::{
    ambient::iso,
    command::own_words,
    context::{brief::Brief, prompt::Prompt},
    conversation::Conversation,
    event::RunEvent,
    hub::Shared,
    lane::slots::{Class, Lender},
    post::line::Line,
    profile::Profile,
    purse::Payer,
    tape::Tape,
    tool::{Origin, Toolbox, Variables},
    writer::Then,
};

/// Why a run cannot go on. What a tool does wrong is never one of these: the model reads it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RunError {
    /// The model failed.
    #[error(transparent)]
    Model(#[from] homard_model::Error),
    /// Something could not be stored.
    #[error("the run could not be stored: {0}")]
    Store(#[from] StoreError),
    /// A hook does not let it be answered.
    #[error("{0}")]
    Refused(String),
    /// Nothing is left to pay for it.
    #[error("{0}")]
    Budget(String),
    /// The run did more than a run may.
    #[error("{0}")]
    Limit(String),
    /// The run was told to stop, and did.
    #[error("the run was stopped")]
    Stopped,
    /// The run was told to stop, did not, and was dropped.
    #[error("the run was stopped by force")]
    Dropped,
    /// An earlier commit of this session failed.
    #[error("the session could not be read back after an earlier failure; send the message again")]
    SessionGone,
    /// The run went on after a restart, and its session has another transcript now.
    #[error("INTERRUPTED: the program was restarted, and the session had got a new transcript")]
    Orphaned,
    /// A bug. The lane goes on.
    #[error("internal error: {0}")]
    Panicked(String),
}

impl From<tokio::task::JoinError> for RunError {
    fn from(error: tokio::task::JoinError) -> Self {
        if error.is_cancelled() { Self::Dropped } else { Self::Panicked(panic_text(error)) }
    }
}

/// What a panicked task said last.
pub(crate) fn panic_text(error: tokio::task::JoinError) -> String {
    let said = error.try_into_panic().ok().and_then(|panic| match panic.downcast::<String>() {
        Ok(text) => Some(*text),
        Err(panic) => panic.downcast_ref::<&str>().map(|text| (*text).to_owned()),
    });
    said.unwrap_or_else(|| "a task panicked".to_owned())
}

/// What a run works with. Only the run can put events on its tape: tools and hooks never see this.
#[derive(Debug)]
pub(crate) struct RunScope {
    pub(crate) hub: Arc<Shared>,
    pub(crate) profile: Arc<Profile>,
    pub(crate) tape: Arc<Tape>,
    pub(crate) cancel: CancellationToken,
    /// Whether a message came for the run.
    pub(crate) offers: Arc<AtomicBool>,
    /// The right to be at work.
    pub(crate) slot: Lender,
    /// Who answers.
    pub(crate) failover: Failover,
    /// How many of those who did not answer were told.
    pub(crate) told_failures: usize,
    /// Who was told to answer: provider and model.
    pub(crate) told_model: (String, String),
    /// When the run's time is up; milliseconds since the epoch.
    pub(crate) deadline: Option<u64>,
    /// Why nobody can answer, if so.
    pub(crate) trouble: Option<homard_model::Error>,
    /// What the model is told before the conversation.
    pub(crate) brief: Brief,
    /// That, as it was written for whoever was asked last.
    pub(crate) written: Option<Written>,
    /// Who asked, and from where.
    pub(crate) origin: Origin,
    /// What the run may call.
    pub(crate) toolbox: Toolbox,
    /// What the sender of the message has itself.
    pub(crate) client_tools: Vec<ToolSpec>,
    /// What whoever started the session's agent may call, if somebody did.
    pub(crate) ceiling: Option<BTreeSet<String>>,
    /// What the run's commands find in their environment.
    pub(crate) variables: Variables,
    pub(crate) history: Conversation,
    /// Whether it was tried to make room since the last answer, in vain.
    pub(crate) is_tried: bool,
    /// The ways that were taken to make the conversation short after it was found too long.
    pub(crate) ladder: Ladder,
    /// What was done to make it short then.
    pub(crate) made: Vec<EntryId>,
    /// What of that was made void again: it had been in vain.
    pub(crate) void: Vec<EntryId>,
    /// Whether the conversation is being made short: the run's time does not end then.
    pub(crate) compacting: Flag,
    /// That somebody asked for the conversation to be made short, instead of an answer.
    pub(crate) wish: Option<compact::Wish>,
    /// What is found out about the session beside the conversation.
    pub(crate) margin: Margin,
    /// Whether notes were stored since the last compaction.
    pub(crate) is_flushed: bool,
    /// Fires when somebody waits for the run to end.
    pub(crate) hurry: CancellationToken,
    /// The transcript.
    pub(crate) session: SessionId,
    /// Whether the message is refused rather than cut if it does not fit into the context window.
    pub(crate) is_strict: bool,
    /// The pool that the run draws from.
    pub(crate) class: Class,
    /// What the model is told beside the conversation.
    pub(crate) plea: Plea,
    /// The answer in blocks, if it is sent so.
    pub(crate) blocks: Option<Blocks>,
    /// Blocks that wait, because they may repeat what a tool has sent.
    pub(crate) held_blocks: HeldBlocks,
    /// How long the run has waited for models that failed, and whether its channel shows that.
    pub(crate) waited: Duration,
    pub(crate) is_wait_told: bool,
    /// What the run says on a channel, if it does.
    pub(crate) post: Option<Arc<Line>>,
    /// What was taken by those who sum up and write notes, which leave no line.
    pub(crate) beside: Usage,
    /// How many assistant messages there were in this run.
    pub(crate) said: u32,
    /// Answers to open calls that were known before the run went on.
    pub(crate) answers: Vec<ToolResult>,
    /// What is answered without a model, if none is needed.
    pub(crate) words: Option<&'static str>,
    /// The tool that answers instead of a model, and with what it is called.
    pub(crate) dispatch: Option<(String, Value)>,
    /// Arguments of the last message's calls that are stored without their secrets, by the ids of the calls.
    pub(crate) arguments: HashMap<String, Concealed>,
    /// What it has done so far.
    pub(crate) guard: Guard,
    /// Who takes part in the run.
    pub(crate) hooks: Hooks,
    /// Where the run is, as they are told.
    pub(crate) place: homard_hooks::Context,
    /// What they want the model to be told.
    pub(crate) wanted: Wanted,
    /// What pays for it.
    pub(crate) payer: Payer,
}

/// Arguments of a tool call that contain secrets. Only the run that received them has the real ones.
#[derive(Debug)]
pub(crate) struct Concealed {
    /// As they are in the transcript.
    stored: Value,
    /// As the model wrote them.
    real: Value,
}

/// A system prompt, and for whom it was written.
#[derive(Debug)]
pub(crate) struct Written {
    model: (String, String),
    level: Level,
    prompt: Prompt,
    /// What the model is told of the tools.
    tools: Arc<[ToolSpec]>,
    /// What the prompt leaves out or cuts, until the timeline has it.
    shortened: Option<Shortened>,
}

/// What a run leaves to its lane: its last words, which are stored together with its end.
#[derive(Debug, Default)]
pub(crate) struct Last {
    pub(crate) records: Vec<Rec>,
    /// How many facts on the tape wait for them.
    pub(crate) facts: usize,
    /// The credential that the session is to prefer from here on.
    pub(crate) credential: Option<Arc<str>>,
    /// The model that gave the last answer; `None` if none did.
    pub(crate) answered_by: Option<AnsweredBy>,
    /// Calls that are handed to whoever sent the message.
    pub(crate) calls: Vec<ToolCall>,
    /// What is said without a model, and stands in no transcript.
    pub(crate) words: Option<String>,
    /// How full the conversation is.
    pub(crate) fill: Fill,
    /// What is told after the run; `None` if that is known on disk only. The lane sets it.
    pub(crate) told: Option<Conversation>,
}

/// The model that gave a run's last answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AnsweredBy {
    pub(crate) provider: String,
    pub(crate) model: String,
    /// Its context window, in tokens.
    pub(crate) window: u64,
}

impl AnsweredBy {
    fn of(spec: &Spec) -> Self {
        Self { provider: spec.provider.clone(), model: spec.model.clone(), window: spec.context_window }
    }
}

/// How full a conversation is when a run has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Fill {
    /// There is room.
    #[default]
    Fine,
    /// It will have to be made short before long: time to store what must last.
    Nearly,
    /// It is to be made short before more is said.
    Full,
}

/// Something that a run tells its lane about itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flag(Arc<AtomicBool>);

impl Flag {
    fn set(&self, is_so: bool) {
        self.0.store(is_so, Ordering::Release);
    }

    /// Whether it is so.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl RunScope {
    /// What a model is told before the conversation, written anew when another one is asked.
    fn prompt(&mut self, spec: &Spec) -> &Written {
        let (model, level) = ((spec.provider.clone(), spec.model.clone()), self.failover.level());
        let is_written = |written: &Written| written.model == model && written.level == level;
        let written = self.written.take().filter(is_written).unwrap_or_else(|| {
            self.choose_tools(spec);
            let tools = client::told(self.brief.told(spec, &self.toolbox), &self.client_tools);
            let prompt = self.wanted.apply(self.brief.prompt(spec, level, &tools)).masked(&self.profile.secrets);
            let is_offered = |name: &String| tools.iter().any(|tool| tool.name == *name);
            let left_out = self.toolbox.names().into_iter().filter(|name| !is_offered(name)).count();
            let shortened = self.brief.shortened(spec, left_out);
            Written { prompt, model, level, tools, shortened }
        });
        self.written.insert(written)
    }

    /// Chooses the tools that the run may call when this model answers.
    pub(crate) fn choose_tools(&mut self, spec: &Spec) {
        let own = self.profile.tools_for((&self.origin, self.tape.key()), spec);
        let own = match &self.ceiling {
            Some(ceiling) => own.only(|name| ceiling.contains(name)),
            None => own,
        };
        self.toolbox = self.without_unwanted(client::beside(own, &self.client_tools));
    }

    /// Notes what came of an answer and its calls.
    fn note(&mut self, said: &Assistant) {
        self.guard.answered(said.usage.cost.total);
        for call in said.tool_calls() {
            let result = self.history.iter().rev().find_map(|message| match &**message {
                Message::ToolResult(result) if result.tool_call_id == call.id => Some(result),
                Message::ToolResult(_) | Message::Assistant(_) | Message::User(_) | Message::Other(_) => None,
            });
            if let Some(result) = result {
                self.guard.called(&call.name, &call.arguments, result);
            }
        }
    }

    /// A passing event: shown, not stored.
    fn pass(&mut self, event: RunEvent) {
        self.tape.pass(self.hub.ambient.now_ms(), event);
    }

    /// A fact: stored, then shown.
    fn record(&mut self, event: RunEvent, records: Vec<Rec>) {
        self.tape.hold(self.hub.ambient.now_ms(), event);
        self.hub.writer.send(records, Then::publish(&self.tape, 1));
    }

    /// A line of the transcript.
    fn line(&self, message: Message) -> (EntryId, Rec) {
        let (id, at) = (self.hub.ambient.entry_id(), self.hub.ambient.now_ms());
        let entry = Entry { kind: Kind::message(message), id: id.clone(), parent_id: None, timestamp: iso(at) };
        let (run, key) = (Some(self.tape.run().clone()), self.tape.key().clone());
        (id, Rec::Entry { run, key, session: self.session.clone(), entry: Box::new(entry) })
    }

    /// What the model said, as it is stored.
    async fn written_as(&self, said: Assistant) -> Assistant {
        match crate::hooks::write(&self.hooks, &self.place, Message::Assistant(said.clone())).await {
            Message::Assistant(kept) => kept,
            Message::User(_) | Message::ToolResult(_) | Message::Other(_) => said,
        }
    }

    /// The last words, with how full the conversation is.
    fn leave(&mut self, last: Last) -> Last {
        let rest = self.blocks.as_mut().map(Blocks::finish).unwrap_or_default();
        self.send_rest(rest);
        Last { fill: self.fill(), ..last }
    }

    /// Waits until every fact so far is on disk. Nothing with an effect happens before.
    async fn barrier(&self) -> Result<(), RunError> {
        on_disk(&self.hub, &self.tape).await
    }
}

/// Waits until every fact so far is on disk.
async fn on_disk(hub: &Shared, tape: &Tape) -> Result<(), RunError> {
    hub.writer.barrier().await?;
    match tape.broken() {
        Some(why) => Err(StoreError::Disk(why).into()),
        None => Ok(()),
    }
}

/// What a run comes to.
#[derive(Debug)]
pub(crate) struct Driven {
    /// Its last words, or why there are none.
    pub(crate) result: Result<Last, RunError>,
    /// What is told after it, without what its lane adds; `None` if that is known on disk only.
    pub(crate) told: Option<Conversation>,
    /// The compactions that it made void again.
    pub(crate) void: Vec<EntryId>,
    /// What was taken by those who sum up and write notes, which leave no line.
    pub(crate) beside: Usage,
}

impl From<RunError> for Driven {
    fn from(error: RunError) -> Self {
        Self { result: Err(error), told: None, void: Vec::new(), beside: Usage::default() }
    }
}

/// The run, from its input to its last word. The lane ends it, whatever this returns.
pub(crate) async fn drive(mut scope: RunScope) -> Driven {
    let result = work(&mut scope).await;
    // What counts again stands in the transcript only.
    let told = Some(scope.history.undressed()).filter(|_| scope.void.is_empty());
    Driven { result, told, void: scope.void, beside: scope.beside }
}

async fn work(scope: &mut RunScope) -> Result<Last, RunError> {
    if let Some(words) = scope.words {
        return Ok(say(scope, words).await);
    }
    if let Some(wish) = scope.wish.take() {
        return compact::on_wish(scope, wish).await;
    }
    if let Some((tool, arguments)) = scope.dispatch.take() {
        return tools::dispatch(scope, tool, arguments).await;
    }
    if let Some(trouble) = scope.trouble.take() {
        return Err(trouble.into());
    }
    if let Some(last) = scope.begin_with_hooks().await? {
        return Ok(last);
    }
    if let Some(said) = open_calls(&scope.history) {
        tools::answer(scope, &said, Made::Perhaps).await?;
    }
    loop {
        scope.take_offer().await?;
        if let Some(why) = scope.guard.enough(&scope.profile.bounds) {
            return Err(RunError::Limit(why));
        }
        match turn::ask(scope).await? {
            turn::Said::Calls(said) => {
                tools::answer(scope, &said, Made::Never).await?;
                let calls = client::handed(&scope.client_tools, &said);
                if !calls.is_empty() {
                    let credential = scope.failover.sticky().cloned();
                    return Ok(scope.leave(Last { calls, credential, ..Last::default() }));
                }
                scope.note(&said);
            }
            turn::Said::Last(last) if !scope.has_offer() => {
                return Ok(scope.leave(*last));
            }
            turn::Said::Last(last) => {
                // Somebody said more meanwhile: this answer is not the last, if the message is still there.
                scope.hub.writer.send(last.records, Then::publish(&scope.tape, last.facts));
                if !scope.take_offer().await? {
                    return Ok(scope.leave(Last { credential: last.credential, ..Last::default() }));
                }
            }
        }
    }
}

/// Answers without a model.
async fn say(scope: &mut RunScope, words: &str) -> Last {
    let at = scope.hub.ambient.now_ms();
    let said = Arc::new(scope.written_as(own_words(words, at)).await);
    let message = Message::Assistant((*said).clone());
    let (entry, line) = scope.line(message.clone());
    scope.history.push(entry.clone(), Arc::new(message));
    if words != SILENCE {
        scope.tape.text(at, scope.said, words);
    }
    scope.tape.hold(at, RunEvent::Assistant { entry, said });
    Last { records: vec![line], facts: 1, ..Last::default() }
}

/// The last assistant message, if calls of it are open: a restart found the run there.
fn open_calls(history: &[Arc<Message>]) -> Option<Arc<Assistant>> {
    let (mut results, mut said) = (0, None);
    for message in history.iter().rev() {
        match &**message {
            Message::ToolResult(_) => results += 1,
            Message::Assistant(assistant) => {
                said = Some(assistant);
                break;
            }
            Message::User(_) | Message::Other(_) => return None,
        }
    }
    said.filter(|said| said.tool_calls().count() > results).map(|said| Arc::new(said.clone()))
}
