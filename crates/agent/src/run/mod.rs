//! One run: asks the model, runs its tools, and asks again until the model makes no more calls.

mod client;
pub(crate) mod compact;
mod flush;
pub(crate) mod guard;
mod hooks;
mod nudge;
mod prompt_fingerprint;
mod prune;
mod result_limit;
pub(crate) mod session_stats;
mod steer;
mod streamed_reply;
mod tools;
mod turn;

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use homard_command::homard_message;
use homard_compact::escalate::Ladder;
use homard_hooks::Hooks;
use homard_model::{ModelSpec, ReasoningLevel, ToolSpec, failover::Failover};
use homard_prompt::sections::SystemPrompt;
use homard_proto::{
    EntryId, SessionId,
    message::{Assistant, Message, ToolCall, ToolResult, Usage},
    transcript::{Entry, Kind},
};
use homard_queue::slots::{Lender, RunClass};
use homard_reply::{blocks::BlockStream, silent::TOKEN as SILENCE};
use homard_runtime::ambient::iso;
use homard_store::{Error as StoreError, Rec, timeline::PromptCuts};
use homard_workspace::skills::Variables;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    budget::RunBudget,
    context::gather::PromptInput,
    delivery::run_output::RunOutput,
    event::{LiveEvent, StoredEvent},
    history::SessionHistory,
    hub::Shared,
    profile::Profile,
    tape::{Commit, Tape},
    tool::{RunOrigin, Toolbox},
};
use guard::RunGuard;
use session_stats::SessionStats;
use tools::Resumed;

pub use flush::FLUSH_PROMPT;
pub(crate) use hooks::PromptChanges;
pub(crate) use nudge::ModelNudge;
pub use nudge::{CONTINUE_NUDGE, REPLY_NUDGE};
pub(crate) use steer::Steered;
pub(crate) use streamed_reply::HeldBlocks;

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
    #[error("the run did not stop in time and was terminated")]
    Dropped,
    /// An earlier commit of this session failed.
    #[error("the session could not be reloaded after an earlier failure; send the message again")]
    SessionGone,
    /// The run was resumed after a restart, but its session has another transcript now.
    #[error("INTERRUPTED: the gateway was restarted, and the session has a new transcript")]
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
    let message = error.try_into_panic().ok().and_then(|panic| match panic.downcast::<String>() {
        Ok(text) => Some(*text),
        Err(panic) => panic.downcast_ref::<&str>().map(|text| (*text).to_owned()),
    });
    message.unwrap_or_else(|| "a task panicked".to_owned())
}

/// Everything one run needs. Owned by the run's task; tools and hooks never see it, so only the run can emit events.
#[derive(Debug)]
pub(crate) struct RunScope {
    pub(crate) hub: Arc<Shared>,
    pub(crate) profile: Arc<Profile>,
    pub(crate) tape: Arc<Tape>,
    pub(crate) cancel: CancellationToken,
    /// True if a message is waiting to be steered into this run.
    pub(crate) has_pending_steer: Arc<AtomicBool>,
    /// Concurrency permit; lent out while the run waits for a retry or a child.
    pub(crate) slot: Lender,
    /// Model candidates in order, with cooldowns.
    pub(crate) failover: Failover,
    /// Number of failed candidates already reported as events.
    pub(crate) reported_failures: usize,
    /// Provider and model last reported as answering.
    pub(crate) reported_model: (String, String),
    /// Deadline in milliseconds since the epoch.
    pub(crate) deadline: Option<u64>,
    /// Why no model can be asked, if so (no credentials, unknown model).
    pub(crate) model_error: Option<homard_model::Error>,
    /// Inputs of the system prompt: files, skills, the caller's additions.
    pub(crate) prompt_input: PromptInput,
    /// The rendered system prompt and the model it was rendered for.
    pub(crate) rendered_prompt: Option<RenderedPrompt>,
    /// Principal and route of the request.
    pub(crate) origin: RunOrigin,
    /// Tools that the run may call.
    pub(crate) toolbox: Toolbox,
    /// Tools that the sender of the message executes.
    pub(crate) client_tools: Vec<ToolSpec>,
    /// Tools that the parent of a sub-agent may call; `None` without a parent.
    pub(crate) inherited_tools: Option<BTreeSet<String>>,
    /// Environment variables of the run's commands.
    pub(crate) variables: Variables,
    pub(crate) history: SessionHistory,
    /// True if compaction was tried since the last answer and freed nothing.
    pub(crate) compaction_exhausted: bool,
    /// Compaction strategies already used after a context-overflow error.
    pub(crate) escalation: Ladder,
    /// Compactions made after a context overflow.
    pub(crate) overflow_compactions: Vec<EntryId>,
    /// Compactions that were undone again, because they freed nothing.
    pub(crate) undone_compactions: Vec<EntryId>,
    /// True during a compaction: the run's time limit is extended then.
    pub(crate) compacting: SharedFlag,
    /// What the message asks for instead of an answer, if anything.
    pub(crate) task: Option<compact::RunTask>,
    /// Session statistics outside the transcript.
    pub(crate) stats: SessionStats,
    /// True if a memory flush was made since the last compaction.
    pub(crate) is_flushed: bool,
    /// Cancelled when another request waits for the run to end.
    pub(crate) hurry: CancellationToken,
    /// Id of the transcript.
    pub(crate) session: SessionId,
    /// True if a message that does not fit into the context window is rejected instead of truncated.
    pub(crate) is_strict: bool,
    /// Concurrency class of the run.
    pub(crate) class: RunClass,
    /// Extra instruction to the model after an unusable answer.
    pub(crate) nudge: ModelNudge,
    /// Splitter for block streaming, if the reply is sent in blocks.
    pub(crate) blocks: Option<BlockStream>,
    /// Blocks held back because they may repeat what a tool has sent.
    pub(crate) held_blocks: HeldBlocks,
    /// Total time spent waiting for failed models, and whether the wait was reported on the channel.
    pub(crate) waited: Duration,
    pub(crate) is_wait_reported: bool,
    /// Channel output of the run, if any.
    pub(crate) output: Option<Arc<RunOutput>>,
    /// Token usage of compaction and memory-flush requests, which leave no transcript entry.
    pub(crate) side_usage: Usage,
    /// Number of assistant messages in this run.
    pub(crate) assistant_count: u32,
    /// Results of open tool calls known from before a restart.
    pub(crate) known_results: Vec<ToolResult>,
    /// Fixed answer of a command that needs no model.
    pub(crate) fixed_reply: Option<&'static str>,
    /// Tool that answers instead of a model, and its arguments.
    pub(crate) dispatch: Option<(String, Value)>,
    /// Original arguments of the last message's calls whose secrets are masked in the transcript, by call id.
    pub(crate) masked_arguments: HashMap<String, MaskedArguments>,
    /// Counters for the run's limits.
    pub(crate) guard: RunGuard,
    /// Registered hooks.
    pub(crate) hooks: Hooks,
    /// Context of the run for hooks.
    pub(crate) hook_context: homard_hooks::HookContext,
    /// Changes that hooks made to the prompt.
    pub(crate) prompt_changes: PromptChanges,
    /// Budget of the run.
    pub(crate) budget: RunBudget,
}

/// Arguments of a tool call that contain secrets. Only the run that received them has the original ones.
#[derive(Debug)]
pub(crate) struct MaskedArguments {
    /// As stored in the transcript.
    stored: Value,
    /// As the model wrote them.
    real: Value,
}

/// A rendered system prompt and the model it was rendered for.
#[derive(Debug)]
pub(crate) struct RenderedPrompt {
    model: (String, String),
    level: ReasoningLevel,
    prompt: SystemPrompt,
    /// Tool specs for the model.
    tools: Arc<[ToolSpec]>,
    /// What the prompt leaves out or truncates, until it is recorded in the timeline.
    shortened: Option<PromptCuts>,
}

/// What a run leaves to its lane: the final records, committed together with the run's end.
#[derive(Debug, Default)]
pub(crate) struct FinalRecords {
    /// The last answer and its records; `None` if they are committed already, or there is no answer.
    pub(crate) commit: Option<Commit>,
    /// Credential that the session prefers from now on.
    pub(crate) credential: Option<Arc<str>>,
    /// Model of the last answer; `None` if there was none.
    pub(crate) answered_by: Option<AnsweredBy>,
    /// Calls returned to the sender of the message.
    pub(crate) calls: Vec<ToolCall>,
    /// Reply without a model that is not stored in the transcript.
    pub(crate) reply: Option<String>,
    /// How full the context is.
    pub(crate) fill: ContextFill,
    /// History after the run; `None` if only the store has it. Set by the lane.
    pub(crate) history: Option<SessionHistory>,
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
    fn of(spec: &ModelSpec) -> Self {
        Self { provider: spec.provider.clone(), model: spec.model.clone(), window: spec.context_window }
    }
}

/// How full the context is at the end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ContextFill {
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
pub(crate) struct SharedFlag(Arc<AtomicBool>);

impl SharedFlag {
    fn set(&self, is_set: bool) {
        self.0.store(is_set, Ordering::Release);
    }

    /// True if the flag is set.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl RunScope {
    /// Returns the system prompt for a model, rendered again if the model or level changed.
    fn prompt(&mut self, spec: &ModelSpec) -> &RenderedPrompt {
        let (model, level) = ((spec.provider.clone(), spec.model.clone()), self.failover.level());
        let is_current = |rendered: &RenderedPrompt| rendered.model == model && rendered.level == level;
        let rendered = self.rendered_prompt.take().filter(is_current).unwrap_or_else(|| {
            self.choose_tools(spec);
            let tools =
                client::with_client_specs(self.prompt_input.tool_specs(spec, &self.toolbox), &self.client_tools);
            let prompt =
                self.prompt_changes.apply(self.prompt_input.prompt(spec, level, &tools)).masked(&self.profile.secrets);
            let is_offered = |name: &String| tools.iter().any(|tool| tool.name == *name);
            let omitted = self.toolbox.names().into_iter().filter(|name| !is_offered(name)).count();
            let shortened = self.prompt_input.shortened(spec, omitted);
            RenderedPrompt { prompt, model, level, tools, shortened }
        });
        self.rendered_prompt.insert(rendered)
    }

    /// Sets the tools that the run may call with this model.
    pub(crate) fn choose_tools(&mut self, spec: &ModelSpec) {
        let toolbox = self.profile.tools_for((&self.origin, self.tape.key()), spec);
        let toolbox = match &self.inherited_tools {
            Some(ceiling) => toolbox.only(|name| ceiling.contains(name)),
            None => toolbox,
        };
        self.toolbox = self.restrict_tools(client::with_client_tools(toolbox, &self.client_tools));
    }

    /// Updates the counters with an answer and its calls.
    fn count_answer(&mut self, answer: &Assistant) {
        self.guard.answered(answer.usage.cost.total);
        for call in answer.tool_calls() {
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
    fn emit(&mut self, event: impl LiveEvent) {
        self.tape.emit(self.hub.ambient.now_ms(), event);
    }

    /// Commits a record; its event is published once the record is on disk.
    fn record(&mut self, event: StoredEvent, record: Rec) {
        let commit = self.commit_of(event, record);
        self.hub.writer.send(commit);
    }

    /// Builds a commit of one event and its record.
    fn commit_of(&self, event: StoredEvent, record: Rec) -> Commit {
        let mut commit = Commit::new(&self.tape);
        commit.fact(self.hub.ambient.now_ms(), event, record);
        commit
    }

    /// Builds a transcript entry.
    fn entry(&self, message: Message) -> (EntryId, Rec) {
        let (id, at) = (self.hub.ambient.entry_id(), self.hub.ambient.now_ms());
        let entry = Entry { kind: Kind::message(message), id: id.clone(), parent_id: None, timestamp: iso(at) };
        let (run, key) = (Some(self.tape.run().clone()), self.tape.key().clone());
        (id, Rec::Entry { run, key, session: self.session.clone(), entry: Box::new(entry) })
    }

    /// Returns the assistant message to store, after hooks.
    async fn after_write_hooks(&self, answer: Assistant) -> Assistant {
        match crate::hooks::before_write(&self.hooks, &self.hook_context, Message::Assistant(answer.clone())).await {
            Message::Assistant(stored) => stored,
            Message::User(_) | Message::ToolResult(_) | Message::Other(_) => answer,
        }
    }

    /// Completes the final records with how full the context is, and sends the remaining blocks.
    fn finish(&mut self, final_records: FinalRecords) -> FinalRecords {
        let remaining = self.blocks.as_mut().map(BlockStream::finish).unwrap_or_default();
        self.send_rest(remaining);
        FinalRecords { fill: self.fill(), ..final_records }
    }

    /// Waits until all records so far are on disk. Side effects happen only after this.
    async fn barrier(&self) -> Result<(), RunError> {
        wait_on_disk(&self.hub, &self.tape).await
    }
}

/// Waits until all records of this run are on disk.
async fn wait_on_disk(hub: &Shared, tape: &Tape) -> Result<(), RunError> {
    hub.writer.barrier().await?;
    match tape.broken() {
        Some(why) => Err(StoreError::Disk(why).into()),
        None => Ok(()),
    }
}

/// Result of a run.
#[derive(Debug)]
pub(crate) struct RunResult {
    /// The final records, or why there are none.
    pub(crate) result: Result<FinalRecords, RunError>,
    /// History after the run, without the entries of its lane; `None` if only the store has it.
    pub(crate) history: Option<SessionHistory>,
    /// Compactions that were undone.
    pub(crate) undone_compactions: Vec<EntryId>,
    /// Token usage of compaction and memory-flush requests, which leave no transcript entry.
    pub(crate) side_usage: Usage,
}

impl From<RunError> for RunResult {
    fn from(error: RunError) -> Self {
        Self { result: Err(error), history: None, undone_compactions: Vec::new(), side_usage: Usage::default() }
    }
}

/// Executes a run from its input to its final answer. The lane ends it, whatever this returns.
pub(crate) async fn drive(mut scope: RunScope) -> RunResult {
    let result = work(&mut scope).await;
    // After an undone compaction, only the transcript has the full history.
    let history = Some(scope.history.without_override()).filter(|_| scope.undone_compactions.is_empty());
    RunResult { result, history, undone_compactions: scope.undone_compactions, side_usage: scope.side_usage }
}

async fn work(scope: &mut RunScope) -> Result<FinalRecords, RunError> {
    if let Some(reply) = scope.fixed_reply {
        return Ok(answer_without_model(scope, reply).await);
    }
    if let Some(task) = scope.task.take() {
        return compact::run_task(scope, task).await;
    }
    if let Some((tool, arguments)) = scope.dispatch.take() {
        return tools::dispatch(scope, tool, arguments).await;
    }
    if let Some(error) = scope.model_error.take() {
        return Err(error.into());
    }
    if let Some(final_records) = scope.begin_with_hooks().await? {
        return Ok(final_records);
    }
    if let Some(answer) = open_calls(&scope.history) {
        tools::run_calls(scope, &answer, Resumed::Perhaps).await?;
    }
    loop {
        scope.take_offer().await?;
        if let Some(why) = scope.guard.reached_limit(&scope.profile.bounds) {
            return Err(RunError::Limit(why));
        }
        match turn::ask(scope).await? {
            turn::TurnResult::Calls(answer) => {
                tools::run_calls(scope, &answer, Resumed::Never).await?;
                let calls = client::client_calls(&scope.client_tools, &answer);
                if !calls.is_empty() {
                    let credential = scope.failover.sticky().cloned();
                    return Ok(scope.finish(FinalRecords { calls, credential, ..FinalRecords::default() }));
                }
                scope.count_answer(&answer);
            }
            turn::TurnResult::Last(final_records) if !scope.has_offer() => {
                return Ok(scope.finish(*final_records));
            }
            turn::TurnResult::Last(final_records) => {
                // Another message arrived: this answer is not the last one, provided that the message is still queued.
                final_records.commit.into_iter().for_each(|commit| scope.hub.writer.send(commit));
                if !scope.take_offer().await? {
                    return Ok(
                        scope.finish(FinalRecords { credential: final_records.credential, ..FinalRecords::default() })
                    );
                }
            }
        }
    }
}

/// Answers without a model.
async fn answer_without_model(scope: &mut RunScope, text: &str) -> FinalRecords {
    let at = scope.hub.ambient.now_ms();
    let answer = Arc::new(scope.after_write_hooks(homard_message(text, at)).await);
    let message = Message::Assistant((*answer).clone());
    let (entry, record) = scope.entry(message.clone());
    scope.history.push(entry.clone(), Arc::new(message));
    if text != SILENCE {
        scope.tape.text(at, scope.assistant_count, text);
    }
    let commit = scope.commit_of(StoredEvent::Assistant { entry, message: answer }, record);
    FinalRecords { commit: Some(commit), ..FinalRecords::default() }
}

/// Returns the last assistant message if it has open calls, as after a restart.
fn open_calls(history: &[Arc<Message>]) -> Option<Arc<Assistant>> {
    let (mut results, mut last_answer) = (0, None);
    for message in history.iter().rev() {
        match &**message {
            Message::ToolResult(_) => results += 1,
            Message::Assistant(assistant) => {
                last_answer = Some(assistant);
                break;
            }
            Message::User(_) | Message::Other(_) => return None,
        }
    }
    last_answer
        .filter(|last_answer| last_answer.tool_calls().count() > results)
        .map(|last_answer| Arc::new(last_answer.clone()))
}
