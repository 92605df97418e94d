//! One run: asks the model, runs its tools, and asks again until the model makes no more calls.

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

/// Why a run cannot continue. Tool errors are never among these: the model reads them as results.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RunError {
    /// The model failed.
    #[error(transparent)]
    Model(#[from] homard_model::Error),
    /// A record could not be stored.
    #[error("the run could not be stored: {0}")]
    Store(#[from] StoreError),
    /// A hook denied the run.
    #[error("{0}")]
    Refused(String),
    /// The budget is exhausted.
    #[error("{0}")]
    Budget(String),
    /// The run reached one of its limits.
    #[error("{0}")]
    Limit(String),
    /// The run was cancelled and ended.
    #[error("the run was stopped")]
    Stopped,
    /// The run was cancelled, did not end in time, and its task was dropped.
    #[error("the run was stopped by force")]
    Dropped,
    /// An earlier commit of this session failed.
    #[error("the session could not be read back after an earlier failure; send the message again")]
    SessionGone,
    /// The run was resumed after a restart, but its session has another transcript now.
    #[error("INTERRUPTED: the program was restarted, and the session had got a new transcript")]
    Orphaned,
    /// A bug. The lane continues.
    #[error("internal error: {0}")]
    Panicked(String),
}

impl From<tokio::task::JoinError> for RunError {
    fn from(error: tokio::task::JoinError) -> Self {
        if error.is_cancelled() { Self::Dropped } else { Self::Panicked(panic_text(error)) }
    }
}

/// Returns the message of a panicked task.
pub(crate) fn panic_text(error: tokio::task::JoinError) -> String {
    let said = error.try_into_panic().ok().and_then(|panic| match panic.downcast::<String>() {
        Ok(text) => Some(*text),
        Err(panic) => panic.downcast_ref::<&str>().map(|text| (*text).to_owned()),
    });
    said.unwrap_or_else(|| "a task panicked".to_owned())
}

/// Everything one run needs. Owned by the run's task; tools and hooks never see it, so only the run can emit events.
#[derive(Debug)]
pub(crate) struct RunScope {
    pub(crate) hub: Arc<Shared>,
    pub(crate) profile: Arc<Profile>,
    pub(crate) tape: Arc<Tape>,
    pub(crate) cancel: CancellationToken,
    /// True if a message is waiting to be steered into this run.
    pub(crate) offers: Arc<AtomicBool>,
    /// Concurrency permit; lent out while the run waits for a retry or a child.
    pub(crate) slot: Lender,
    /// Model candidates in order, with cooldowns.
    pub(crate) failover: Failover,
    /// Number of failed candidates already reported as events.
    pub(crate) told_failures: usize,
    /// Provider and model last reported as answering.
    pub(crate) told_model: (String, String),
    /// Deadline in milliseconds since the epoch.
    pub(crate) deadline: Option<u64>,
    /// Why no model can be asked, if so (no credentials, unknown model).
    pub(crate) trouble: Option<homard_model::Error>,
    /// Inputs of the system prompt: files, skills, the caller's additions.
    pub(crate) brief: Brief,
    /// The rendered system prompt and the model it was rendered for.
    pub(crate) written: Option<Written>,
    /// Principal and route of the request.
    pub(crate) origin: Origin,
    /// Tools that the run may call.
    pub(crate) toolbox: Toolbox,
    /// Tools that the sender of the message executes.
    pub(crate) client_tools: Vec<ToolSpec>,
    /// Tools that the parent of a sub-agent may call; `None` without a parent.
    pub(crate) ceiling: Option<BTreeSet<String>>,
    /// Environment variables of the run's commands.
    pub(crate) variables: Variables,
    pub(crate) history: Conversation,
    /// True if compaction was tried since the last answer and freed nothing.
    pub(crate) is_tried: bool,
    /// Compaction strategies already used after a context-overflow error.
    pub(crate) ladder: Ladder,
    /// Compactions made after a context overflow.
    pub(crate) made: Vec<EntryId>,
    /// Compactions that were undone again, because they freed nothing.
    pub(crate) void: Vec<EntryId>,
    /// True during a compaction: the run's time limit is extended then.
    pub(crate) compacting: Flag,
    /// What the message asks for instead of an answer, if anything.
    pub(crate) wish: Option<compact::Wish>,
    /// Session statistics outside the transcript.
    pub(crate) margin: Margin,
    /// True if a memory flush was made since the last compaction.
    pub(crate) is_flushed: bool,
    /// Cancelled when another request waits for the run to end.
    pub(crate) hurry: CancellationToken,
    /// Id of the transcript.
    pub(crate) session: SessionId,
    /// True if a message that does not fit into the context window is rejected instead of truncated.
    pub(crate) is_strict: bool,
    /// Concurrency class of the run.
    pub(crate) class: Class,
    /// Extra instruction to the model after an unusable answer.
    pub(crate) plea: Plea,
    /// Splitter for block streaming, if the reply is sent in blocks.
    pub(crate) blocks: Option<Blocks>,
    /// Blocks held back because they may repeat what a tool has sent.
    pub(crate) held_blocks: HeldBlocks,
    /// Total time spent waiting for failed models, and whether the wait was reported on the channel.
    pub(crate) waited: Duration,
    pub(crate) is_wait_told: bool,
    /// Channel output of the run, if any.
    pub(crate) post: Option<Arc<Line>>,
    /// Token usage of compaction and memory-flush requests, which leave no transcript entry.
    pub(crate) beside: Usage,
    /// Number of assistant messages in this run.
    pub(crate) said: u32,
    /// Results of open tool calls known from before a restart.
    pub(crate) answers: Vec<ToolResult>,
    /// Fixed answer of a command that needs no model.
    pub(crate) words: Option<&'static str>,
    /// Tool that answers instead of a model, and its arguments.
    pub(crate) dispatch: Option<(String, Value)>,
    /// Original arguments of the last message's calls whose secrets are masked in the transcript, by call id.
    pub(crate) arguments: HashMap<String, Concealed>,
    /// Counters for the run's limits.
    pub(crate) guard: Guard,
    /// Registered hooks.
    pub(crate) hooks: Hooks,
    /// Context of the run for hooks.
    pub(crate) place: homard_hooks::Context,
    /// Changes that hooks made to the prompt.
    pub(crate) wanted: Wanted,
    /// Budget of the run.
    pub(crate) payer: Payer,
}

/// Arguments of a tool call that contain secrets. Only the run that received them has the original ones.
#[derive(Debug)]
pub(crate) struct Concealed {
    /// As stored in the transcript.
    stored: Value,
    /// As the model wrote them.
    real: Value,
}

/// A rendered system prompt and the model it was rendered for.
#[derive(Debug)]
pub(crate) struct Written {
    model: (String, String),
    level: Level,
    prompt: Prompt,
    /// Tool specs for the model.
    tools: Arc<[ToolSpec]>,
    /// What the prompt leaves out or truncates, until it is recorded in the timeline.
    shortened: Option<Shortened>,
}

/// What a run leaves to its lane: the final records, committed together with the run's end.
#[derive(Debug, Default)]
pub(crate) struct Last {
    pub(crate) records: Vec<Rec>,
    /// Number of staged events on the tape that wait for them.
    pub(crate) facts: usize,
    /// Credential that the session prefers from now on.
    pub(crate) credential: Option<Arc<str>>,
    /// Model of the last answer; `None` if there was none.
    pub(crate) answered_by: Option<AnsweredBy>,
    /// Calls returned to the sender of the message.
    pub(crate) calls: Vec<ToolCall>,
    /// Reply without a model that is not stored in the transcript.
    pub(crate) words: Option<String>,
    /// How full the context is.
    pub(crate) fill: Fill,
    /// History after the run; `None` if only the store has it. Set by the lane.
    pub(crate) told: Option<Conversation>,
}

/// Model of a run's last answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AnsweredBy {
    pub(crate) provider: String,
    pub(crate) model: String,
    /// Context window in tokens.
    pub(crate) window: u64,
}

impl AnsweredBy {
    fn of(spec: &Spec) -> Self {
        Self { provider: spec.provider.clone(), model: spec.model.clone(), window: spec.context_window }
    }
}

/// How full the context is at the end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Fill {
    /// Below the thresholds.
    #[default]
    Fine,
    /// Compaction will be due soon: a memory flush is due.
    Nearly,
    /// Compaction is due before the next message.
    Full,
}

/// A flag that a run shares with its lane.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flag(Arc<AtomicBool>);

impl Flag {
    fn set(&self, is_so: bool) {
        self.0.store(is_so, Ordering::Release);
    }

    /// True if the flag is set.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl RunScope {
    /// Returns the system prompt for a model, rendered again if the model or level changed.
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

    /// Sets the tools that the run may call with this model.
    pub(crate) fn choose_tools(&mut self, spec: &Spec) {
        let own = self.profile.tools_for((&self.origin, self.tape.key()), spec);
        let own = match &self.ceiling {
            Some(ceiling) => own.only(|name| ceiling.contains(name)),
            None => own,
        };
        self.toolbox = self.without_unwanted(client::beside(own, &self.client_tools));
    }

    /// Updates the counters with an answer and its calls.
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

    /// Emits an event without storing anything.
    fn pass(&mut self, event: RunEvent) {
        self.tape.pass(self.hub.ambient.now_ms(), event);
    }

    /// Stages an event that is published once its records are committed.
    fn record(&mut self, event: RunEvent, records: Vec<Rec>) {
        self.tape.hold(self.hub.ambient.now_ms(), event);
        self.hub.writer.send(records, Then::publish(&self.tape, 1));
    }

    /// Builds a transcript entry.
    fn line(&self, message: Message) -> (EntryId, Rec) {
        let (id, at) = (self.hub.ambient.entry_id(), self.hub.ambient.now_ms());
        let entry = Entry { kind: Kind::message(message), id: id.clone(), parent_id: None, timestamp: iso(at) };
        let (run, key) = (Some(self.tape.run().clone()), self.tape.key().clone());
        (id, Rec::Entry { run, key, session: self.session.clone(), entry: Box::new(entry) })
    }

    /// Returns the assistant message to store, after hooks.
    async fn written_as(&self, said: Assistant) -> Assistant {
        match crate::hooks::write(&self.hooks, &self.place, Message::Assistant(said.clone())).await {
            Message::Assistant(kept) => kept,
            Message::User(_) | Message::ToolResult(_) | Message::Other(_) => said,
        }
    }

    /// Completes the final records with how full the context is, and sends the remaining blocks.
    fn leave(&mut self, last: Last) -> Last {
        let rest = self.blocks.as_mut().map(Blocks::finish).unwrap_or_default();
        self.send_rest(rest);
        Last { fill: self.fill(), ..last }
    }

    /// Waits until all records so far are on disk. Side effects happen only after this.
    async fn barrier(&self) -> Result<(), RunError> {
        on_disk(&self.hub, &self.tape).await
    }
}

/// Waits until all records of this run are on disk.
async fn on_disk(hub: &Shared, tape: &Tape) -> Result<(), RunError> {
    hub.writer.barrier().await?;
    match tape.broken() {
        Some(why) => Err(StoreError::Disk(why).into()),
        None => Ok(()),
    }
}

/// Result of a run.
#[derive(Debug)]
pub(crate) struct Driven {
    /// The final records, or why there are none.
    pub(crate) result: Result<Last, RunError>,
    /// History after the run, without the entries of its lane; `None` if only the store has it.
    pub(crate) told: Option<Conversation>,
    /// Compactions that were undone.
    pub(crate) void: Vec<EntryId>,
    /// Token usage of compaction and memory-flush requests, which leave no transcript entry.
    pub(crate) beside: Usage,
}

impl From<RunError> for Driven {
    fn from(error: RunError) -> Self {
        Self { result: Err(error), told: None, void: Vec::new(), beside: Usage::default() }
    }
}

/// Executes a run from its input to its final answer. The lane ends it, whatever this returns.
pub(crate) async fn drive(mut scope: RunScope) -> Driven {
    let result = work(&mut scope).await;
    // After an undone compaction, only the transcript has the full history.
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
                // Another message arrived: this answer is not the last one, provided that the message is still queued.
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

/// Returns the last assistant message if it has open calls, as after a restart.
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
