//! State of one active run, grouped by what it is about.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use homard_compact::escalate::Ladder;
use homard_delivery::run_output::RunOutput;
use homard_hooks::{HookContext, Hooks};
use homard_model::{Model, ModelSpec, ReasoningLevel, ToolSpec, failover::Failover};
use homard_prompt::sections::SystemPrompt;
use homard_proto::{
    EntryId, Route, SessionId,
    message::{Assistant, Message, ToolCall, ToolResult, Usage},
    transcript::{Entry, Kind},
};
use homard_queue::slots::{Lender, RunClass};
use homard_reply::{blocks::BlockStream, payload::Payload};
use homard_runtime::ambient::iso;
use homard_store::{Error as StoreError, Rec, timeline::PromptCuts};
use homard_workspace::skills::Variables;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    PromptChanges, RunError, client, compact::RunTask, guard::RunGuard, nudge::ModelNudge, session_stats::SessionStats,
};
use crate::{
    budget::RunBudget,
    context::gather::PromptInput,
    event::{LiveEvent, StoredEvent},
    history::SessionHistory,
    hub::Shared,
    profile::Profile,
    tape::{Commit, Tape},
    tool::{RunOrigin, Toolbox},
};

/// Everything one run needs. Owned by the run's task; tools and hooks never see it, so only the run can emit events.
#[derive(Debug)]
pub(crate) struct RunScope {
    pub(crate) profile: Arc<Profile>,
    pub(crate) io: RunIo,
    pub(crate) request: RunRequest,
    pub(crate) model: ModelState,
    pub(crate) prompt: PromptState,
    pub(crate) tools: RunTools,
    pub(crate) context: ContextState,
    pub(crate) output: ReplyOutput,
    pub(crate) hooks: RunHooks,
}

/// Connection of a run to its tape, its lane and the store.
#[derive(Debug)]
pub(crate) struct RunIo {
    pub(crate) hub: Arc<Shared>,
    pub(crate) tape: Arc<Tape>,
    /// Id of the transcript.
    pub(crate) session: SessionId,
    pub(crate) cancel: CancellationToken,
    /// Cancelled when another request waits for the run to end.
    pub(crate) hurry: CancellationToken,
    /// True if a message is waiting to be steered into this run.
    pub(crate) has_pending_steer: Arc<AtomicBool>,
    /// Concurrency permit; lent out while the run waits for a retry or a child.
    pub(crate) slot: Lender,
    /// Deadline in milliseconds since the epoch.
    pub(crate) deadline: Option<u64>,
}

/// What the message asks for, and who sent it.
#[derive(Debug)]
pub(crate) struct RunRequest {
    /// Principal and route of the request.
    pub(crate) origin: RunOrigin,
    /// Concurrency class of the run.
    pub(crate) class: RunClass,
    /// True if a message that does not fit into the context window is rejected instead of truncated.
    pub(crate) is_strict: bool,
    /// What the message asks for instead of an answer, if anything.
    pub(crate) task: Option<RunTask>,
    /// Fixed answer of a command that needs no model.
    pub(crate) fixed_reply: Option<&'static str>,
    /// Tool that answers instead of a model, and its arguments.
    pub(crate) dispatch: Option<(String, Value)>,
}

/// Models of a run, what they cost, and what went wrong with them.
#[derive(Debug)]
pub(crate) struct ModelState {
    /// Model candidates in order, with cooldowns.
    pub(crate) failover: Failover,
    /// Number of failed candidates already reported as events.
    pub(crate) reported_failures: usize,
    /// Provider and model last reported as answering.
    pub(crate) reported: (String, String),
    /// Why no model can be asked, if so (no credentials, unknown model).
    pub(crate) error: Option<homard_model::Error>,
    /// Extra instruction to the model after an unusable answer.
    pub(crate) nudge: ModelNudge,
    /// Counters for the run's limits.
    pub(crate) guard: RunGuard,
    /// Budget of the run.
    pub(crate) budget: RunBudget,
    /// Token usage of compaction and memory-flush requests, which leave no transcript entry.
    pub(crate) side_usage: Usage,
}

/// System prompt of a run.
#[derive(Debug)]
pub(crate) struct PromptState {
    /// Inputs of the system prompt: files, skills, the caller's additions.
    pub(crate) input: PromptInput,
    /// The rendered system prompt and the model it was rendered for.
    pub(crate) rendered: Option<RenderedPrompt>,
    /// Changes that hooks made to the prompt.
    pub(crate) changes: PromptChanges,
}

/// Tools of a run.
#[derive(Debug, Default)]
pub(crate) struct RunTools {
    /// Tools that the run may call.
    pub(crate) toolbox: Toolbox,
    /// Tools that the sender of the message executes.
    pub(crate) client: Vec<ToolSpec>,
    /// Tools that the parent of a sub-agent may call; `None` without a parent.
    pub(crate) inherited: Option<BTreeSet<String>>,
    /// Environment variables of the run's commands.
    pub(crate) variables: Variables,
    /// Results of open tool calls known from before a restart.
    pub(crate) known_results: Vec<ToolResult>,
    /// Original arguments of the last message's calls whose secrets are masked in the transcript, by call id.
    pub(crate) masked_arguments: HashMap<String, MaskedArguments>,
}

/// Arguments of a tool call that contain secrets. Only the run that received them has the original ones.
#[derive(Debug)]
pub(crate) struct MaskedArguments {
    /// As stored in the transcript.
    pub(super) stored: Value,
    /// As the model wrote them.
    pub(super) real: Value,
}

/// The conversation, and its compactions within the run.
#[derive(Debug, Default)]
pub(crate) struct ContextState {
    pub(crate) history: SessionHistory,
    /// Session statistics outside the transcript.
    pub(crate) stats: SessionStats,
    /// True if compaction was tried since the last answer and freed nothing.
    pub(crate) is_exhausted: bool,
    /// Compaction strategies already used after a context-overflow error.
    pub(crate) escalation: Ladder,
    /// Compactions made after a context overflow.
    pub(crate) overflow_compactions: Vec<EntryId>,
    /// Compactions that were undone again, because they freed nothing.
    pub(crate) undone_compactions: Vec<EntryId>,
    /// True during a compaction: the run's time limit is extended then.
    pub(crate) compacting: SharedFlag,
    /// True if a memory flush was made since the last compaction.
    pub(crate) is_flushed: bool,
}

/// What the run shows and sends while it is active.
#[derive(Debug, Default)]
pub(crate) struct ReplyOutput {
    /// Where the message came from.
    pub(crate) route: Route,
    /// Channel output of the run, if any.
    pub(crate) channel: Option<Arc<RunOutput>>,
    /// Splitter for block streaming, if the reply is sent in blocks.
    pub(crate) blocks: Option<BlockStream>,
    /// Blocks held back because they may repeat what a tool has sent.
    pub(super) held: HeldBlocks,
    /// Total time spent waiting for failed models.
    pub(super) waited: Duration,
    /// True if that wait was reported on the channel.
    pub(super) is_wait_reported: bool,
    /// Number of assistant messages in this run.
    pub(crate) message_count: u32,
}

/// Blocks of the current message that are held back, because the whole message may repeat what a tool has sent.
#[derive(Debug, Default)]
pub(super) struct HeldBlocks {
    pub(super) blocks: Vec<Payload>,
    /// Text of the message so far.
    pub(super) text: String,
}

/// Hooks of a run.
#[derive(Debug)]
pub(crate) struct RunHooks {
    pub(crate) registered: Hooks,
    /// Context of the run for hooks.
    pub(crate) context: HookContext,
}

/// A rendered system prompt and the model it was rendered for.
#[derive(Debug)]
pub(crate) struct RenderedPrompt {
    model: (String, String),
    level: ReasoningLevel,
    pub(super) prompt: SystemPrompt,
    /// Tool specs for the model.
    pub(super) tools: Arc<[ToolSpec]>,
    /// What the prompt leaves out or truncates, until it is recorded in the timeline.
    pub(super) shortened: Option<PromptCuts>,
}

/// A flag that a run shares with its lane.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedFlag(Arc<AtomicBool>);

impl SharedFlag {
    pub(super) fn set(&self, is_set: bool) {
        self.0.store(is_set, Ordering::Release);
    }

    /// True if the flag is set.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl RunIo {
    /// Current time in milliseconds since the epoch.
    pub(crate) fn now(&self) -> u64 {
        self.hub.ambient.now_ms()
    }

    /// Emits an event without storing anything.
    pub(super) fn emit(&self, event: impl LiveEvent) {
        self.tape.emit(self.now(), event);
    }

    /// Sends a record to the writer; its event is published once the record is on disk.
    pub(super) fn record(&self, event: StoredEvent, record: Rec) {
        self.hub.writer.send(self.commit_of(event, record));
    }

    /// Builds a commit of one event and its record.
    pub(super) fn commit_of(&self, event: StoredEvent, record: Rec) -> Commit {
        let mut commit = Commit::new(&self.tape);
        commit.stored_event(self.now(), event, record);
        commit
    }

    /// Builds a transcript entry with a message.
    pub(super) fn entry(&self, message: Message) -> (EntryId, Rec) {
        let id = self.hub.ambient.entry_id();
        (id.clone(), self.entry_of(id, Kind::message(message)))
    }

    /// Builds a transcript entry with this id.
    pub(super) fn entry_of(&self, id: EntryId, kind: Kind) -> Rec {
        let entry = Box::new(Entry { kind, id, parent_id: None, timestamp: iso(self.now()) });
        let (run, key) = (Some(self.tape.run().clone()), self.tape.key().clone());
        Rec::Entry { run, key, session: self.session.clone(), entry }
    }

    /// True if a message is offered to the run.
    pub(super) fn has_offer(&self) -> bool {
        self.has_pending_steer.load(Ordering::Acquire)
    }

    /// Waits until all records so far are on disk. Side effects happen only after this.
    pub(super) async fn barrier(&self) -> Result<(), RunError> {
        wait_on_disk(&self.hub, &self.tape).await
    }
}

/// Waits until all records of this run are on disk.
pub(super) async fn wait_on_disk(hub: &Shared, tape: &Tape) -> Result<(), RunError> {
    hub.writer.barrier().await?;
    match tape.broken() {
        Some(why) => Err(StoreError::Disk(why).into()),
        None => Ok(()),
    }
}

impl ModelState {
    /// The models of a run; `agent` is the agent's own.
    pub(crate) fn new(
        failover: Failover,
        error: Option<homard_model::Error>,
        agent: &ModelSpec,
        budget: RunBudget,
    ) -> Self {
        Self {
            failover,
            reported_failures: 0,
            reported: (agent.provider.clone(), agent.model.clone()),
            error,
            nudge: ModelNudge::Nothing,
            guard: RunGuard::default(),
            budget,
            side_usage: Usage::default(),
        }
    }

    /// Returns the model that is asked next.
    pub(crate) fn current(&self) -> Arc<dyn Model> {
        self.failover.candidate().model.clone()
    }

    /// Returns the spec of the model that is asked next.
    pub(super) fn spec(&self) -> &ModelSpec {
        self.failover.candidate().model.spec()
    }

    /// Updates the counters with an answer, its calls and their results.
    pub(super) fn count_answer(&mut self, answer: &Assistant, history: &SessionHistory) {
        self.guard.answered(answer.usage.cost.total);
        for call in answer.tool_calls() {
            if let Some(result) = result_of(history, call) {
                self.guard.called(&call.name, &call.arguments, result);
            }
        }
    }

    /// Attributes a timeout of the run to the current model.
    pub(super) fn note_timeout(&mut self, deadline: Option<u64>, now: u64) {
        if deadline.is_some_and(|deadline| deadline <= now) {
            self.failover.timed_out(now);
        }
    }
}

fn result_of<'a>(history: &'a SessionHistory, call: &ToolCall) -> Option<&'a ToolResult> {
    history.iter().rev().find_map(|message| match &**message {
        Message::ToolResult(result) if result.tool_call_id == call.id => Some(result),
        Message::ToolResult(_) | Message::Assistant(_) | Message::User(_) | Message::Other(_) => None,
    })
}

impl PromptState {
    /// A prompt that is not rendered yet.
    pub(crate) fn new(input: PromptInput) -> Self {
        Self { input, rendered: None, changes: PromptChanges::default() }
    }
}

impl ReplyOutput {
    /// The output of a run whose message came from this route.
    pub(crate) fn new(route: Route, blocks: Option<BlockStream>) -> Self {
        Self { route, blocks, ..Self::default() }
    }
}

impl RunHooks {
    /// Returns the assistant message to store.
    pub(super) async fn before_write(&self, answer: Assistant) -> Assistant {
        match crate::hooks::before_write(&self.registered, &self.context, Message::Assistant(answer.clone())).await {
            Message::Assistant(stored) => stored,
            Message::User(_) | Message::ToolResult(_) | Message::Other(_) => answer,
        }
    }
}

impl RunScope {
    /// Returns the system prompt for a model, rendered again if the model or level changed.
    pub(super) fn rendered_prompt(&mut self, spec: &ModelSpec) -> &RenderedPrompt {
        let level = self.model.failover.level();
        let is_current = |rendered: &RenderedPrompt| {
            (&rendered.model.0, &rendered.model.1) == (&spec.provider, &spec.model) && rendered.level == level
        };
        let rendered = match self.prompt.rendered.take().filter(is_current) {
            Some(rendered) => rendered,
            None => self.render_prompt(spec, level),
        };
        self.prompt.rendered.insert(rendered)
    }

    fn render_prompt(&mut self, spec: &ModelSpec, level: ReasoningLevel) -> RenderedPrompt {
        self.choose_tools(spec);
        let PromptState { input, changes, .. } = &self.prompt;
        let tools = client::with_client_specs(input.tool_specs(spec, &self.tools.toolbox), &self.tools.client);
        let prompt = changes.apply(input.prompt(spec, level, &tools)).masked(&self.profile.secrets);
        let is_offered = |name: &String| tools.iter().any(|tool| tool.name == *name);
        let omitted = self.tools.toolbox.names().into_iter().filter(|name| !is_offered(name)).count();
        let shortened = input.shortened(spec, omitted);
        let model = (spec.provider.clone(), spec.model.clone());
        RenderedPrompt { prompt, model, level, tools, shortened }
    }

    /// Sets the tools that the run may call with this model.
    pub(crate) fn choose_tools(&mut self, spec: &ModelSpec) {
        let toolbox = self.profile.tools_for(&self.request.origin, self.io.tape.key(), spec);
        let toolbox = match &self.tools.inherited {
            Some(ceiling) => toolbox.only(|name| ceiling.contains(name)),
            None => toolbox,
        };
        let toolbox = client::with_client_tools(toolbox, &self.tools.client);
        self.tools.toolbox = self.prompt.changes.restrict_tools(toolbox);
    }
}
