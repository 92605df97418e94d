//! Start of a run: a new one with its message, or a recovered one with its earlier progress.

use std::sync::{Arc, atomic::AtomicBool};

use homard_command::{Command, OWNER};
use homard_prompt::{config::SkillKit, notes};
use homard_proto::{
    CallId, RunId, SessionId, SessionKey,
    message::{Block, Content, Message, ToolResult, User},
    session::Record,
    transcript::{Entry, Header, Kind},
};
use homard_queue::{inbox::Disposition, slots::Lender};
use homard_reply::blocks::BlockStream;
use homard_runtime::ambient::{from_iso, iso};
use homard_store::{Hold, Input, Rec, Start, UnfinishedRun, branch, recovery::assistant};

use super::{
    Lane, Ticket,
    model_choice::{self, ModelChoice, ModelRequirements},
    session::OpenSession,
    ticket::ActiveRun,
};
use crate::{
    access,
    budget::{BudgetedRun, RunBudget, Spend},
    compact_session::AfterCompaction,
    context::{
        attachments::MessageAttachments,
        gather::{PromptFiles, PromptInput},
    },
    event::{CompactionEvent, QueueEvent, StoredEvent},
    hooks,
    hub::Shared,
    profile::Profile,
    run::{
        ContextState, ModelState, PromptState, ReplyOutput, RunHooks, RunIo, RunRequest, RunScope, RunTools,
        compact::RunTask, session_stats,
    },
    tape::{Commit, StoredValue, Tape},
    tool::RunOrigin,
};

/// Method name of the message that the gateway submits itself when the context is full.
pub(crate) const AUTO_COMPACT: &str = "compaction";

/// Method name of the message that the gateway submits itself when the context is nearly full.
pub(crate) const AUTO_FLUSH: &str = "memory-flush";

/// Progress of a run at the time the process ended.
#[derive(Debug)]
pub(crate) struct ResumeState {
    /// Transcript that the run wrote to.
    pub(crate) session: Option<SessionId>,
    /// Time of each start, in milliseconds since the epoch.
    pub(crate) starts: Vec<u64>,
    /// Entries that the run added to the transcript after its own message.
    pub(crate) entries: StoredValue<Vec<Entry>>,
    /// Known results of open tool calls; the other open calls are executed again.
    pub(crate) known_results: Vec<ToolResult>,
    /// Set for a run that was held and released: its message is added to the transcript again.
    pub(crate) reentry: Option<Hold>,
}

/// Note to the model beside a message that is added to the transcript again.
const REENTERED: &str = "Processing of this message was interrupted several times. The message appears earlier in this \
                         conversation, followed by the work done until then. Do not repeat that work.";

impl ResumeState {
    /// Builds the progress of a run that was held and released. Its open calls were answered when it was held, and it
    /// continues in the current transcript of its session.
    pub(crate) fn reentry(unfinished: &StoredValue<UnfinishedRun>) -> Self {
        Self {
            session: None,
            starts: unfinished.row.started_at.into_iter().chain(unfinished.row.resumed_at.iter().copied()).collect(),
            entries: unfinished.own_entries(),
            known_results: Vec::new(),
            reentry: unfinished.row.hold,
        }
    }

    /// Returns the token usage of the run's answers before the process ended.
    fn usage(&self) -> Spend {
        self.entries.iter().filter_map(assistant).map(|answer| Spend::from(&answer.usage)).sum()
    }
}

/// What a run needs besides its message and its session.
pub(super) struct RunInputs {
    pub(super) profile: Arc<Profile>,
    pub(super) slot: Lender,
    /// Set while a message is offered to the run.
    pub(super) has_pending_steer: Arc<AtomicBool>,
    /// Workspace files and skills for its prompt.
    pub(super) files: PromptFiles,
    /// Attachments of its message.
    pub(super) attachments: MessageAttachments,
}

/// Queues the records of the run's start for the writer and builds the run's scope.
///
/// Returns `None` if the session is not loaded: an earlier commit failed, and its cached state cannot be trusted.
pub(super) async fn start_run(lane: &mut Lane, active: &mut ActiveRun, mut inputs: RunInputs) -> Option<RunScope> {
    let at = lane.hub.ambient.now_ms();
    let (prepared, notes) = lane.prepare(&mut active.ticket, at);
    if !lane.inbox.is_empty() {
        active.hurry.cancel();
    }
    let session = lane.session.as_mut()?;
    active.has_events = has_events(&active.ticket, session, &notes);
    if active.ticket.resumes_elsewhere(&session.record.session_id) {
        active.restore_progress(at);
        return None;
    }
    let inherited = session.inherited.take();
    let mut commit = active.ticket.acceptance.begin(&active.ticket.tape);
    commit.records(prepared);
    let workdir = inputs.profile.workdir.display().to_string();
    let mut header = Header::new(session.record.session_id.clone(), iso(at), workdir);
    let parent = inherited.as_ref().and_then(|initial| initial.from.as_ref());
    header.parent_session = parent.map(|parent| format!("{parent}.jsonl"));
    active.record_start(&mut commit, header, at);
    let attachments = std::mem::take(&mut inputs.attachments);
    let mut scope = build_scope(&lane.hub, session, active, inputs);
    if active.ticket.is_resumed {
        active.restore_progress(at);
        scope.output.message_count = active.progress.prior_answers;
        scope.tools.known_results = active.progress.known_results.clone();
    }
    if (!active.ticket.is_resumed || active.ticket.reentry.is_some()) && scope.request.task.is_none() {
        let message = active.annotated_message(notes, attachments, &mut scope).await;
        let mut entries = inherited.map(|inherited| inherited.entries).unwrap_or_default();
        entries.extend(session.add_message(&message, scope.model.current().spec(), &lane.hub.ambient));
        let input = RunInput { session: session.record.session_id.clone(), message, entries, at };
        active.record_input(&mut commit, input);
    }
    scope.context.history = session.history.clone();
    lane.hub.writer.send(commit);
    Some(scope)
}

/// A run's message, as it is recorded.
struct RunInput {
    session: SessionId,
    message: Arc<Message>,
    /// New entries of the transcript; the last one is that of the message.
    entries: Vec<Entry>,
    at: u64,
}

/// Builds a run's scope, without its history. Selects the model, which may change the level in the session's record.
fn build_scope(hub: &Arc<Shared>, session: &mut OpenSession, active: &ActiveRun, inputs: RunInputs) -> RunScope {
    let RunInputs { profile, slot, has_pending_steer, files, .. } = inputs;
    let (ticket, inbound) = (&active.ticket, &active.ticket.inbound);
    let (id, key, at) = (session.record.session_id.clone(), ticket.tape.key(), hub.ambient.now_ms());
    let limit = inbound.options.timeout.or(profile.timeout);
    let ModelChoice { failover, deadline, model_error } =
        model_choice::choose(&profile, &mut session.record, ModelRequirements::from(inbound), at, limit);
    let model = failover.candidate().model.clone();
    let spec = model.spec();
    let (origin, rules) = (RunOrigin::of(inbound), hub.config.rules());
    let earlier = ticket.resume.as_ref().map(ResumeState::usage).unwrap_or_default();
    let run = BudgetedRun { agent: profile.id.clone(), session: id.clone(), earlier };
    let budget = RunBudget::new(&hub.budgets, &hub.ambient, &hub.store, rules.budgets, run);
    let mut scope = RunScope {
        tools: RunTools {
            inherited: access::ceiling(&hub.config.agents(), key, &session.record, &origin),
            client: inbound.options.client_tools.clone(),
            variables: files.kit.variables.clone(),
            ..RunTools::default()
        },
        prompt: PromptState::new(PromptInput { files, ..ticket.prompt_input(&profile, key, &session.record) }),
        context: ContextState {
            stats: session.stats.clone(),
            compacting: active.compacting.clone(),
            // It is unknown how far a resumed run had come with its flush, and nothing must be done twice.
            is_flushed: session_stats::is_flushed(&session.record) || (ticket.is_resumed && ticket.task().is_some()),
            ..ContextState::default()
        },
        output: ReplyOutput::new(origin.route.clone(), inbound.reply.blocks.clone().map(BlockStream::new)),
        hooks: RunHooks {
            registered: rules.hooks.clone(),
            context: hooks::HookContext {
                model_provider_id: Some(spec.provider.clone()),
                model_id: Some(spec.model.clone()),
                ..hooks::message_context(&profile, Some(&id), inbound)
            },
        },
        model: ModelState::new(failover, model_error, profile.spec(), budget),
        request: RunRequest {
            origin,
            class: inbound.options.class,
            is_strict: inbound.options.is_strict,
            task: ticket.task(),
            fixed_reply: ticket.fixed_reply(),
            dispatch: None,
        },
        io: RunIo {
            hub: hub.clone(),
            tape: ticket.tape.clone(),
            session: id,
            cancel: ticket.cancel.clone(),
            hurry: active.hurry.clone(),
            has_pending_steer,
            slot,
            deadline,
        },
        profile,
    };
    scope.choose_tools(spec);
    scope
}

/// True if system events are part of the run's prompt.
fn has_events(ticket: &Ticket, session: &OpenSession, notes: &[String]) -> bool {
    // A resumed run got its events with its message, which is the last user message: a heartbeat absorbs no others.
    let is_user = |message: &&Arc<Message>| matches!(***message, Message::User(_));
    let user_message = session.history.iter().rev().find(is_user).filter(|_| ticket.is_resumed);
    notes.iter().any(|note| notes::is_event(note))
        || user_message.is_some_and(|user_message| notes::has_events(user_message))
}

impl Ticket {
    /// Returns what the message asks for instead of an answer, if anything.
    pub(super) fn task(&self) -> Option<RunTask> {
        match (self.inbound.sender.method.as_str(), &self.inbound.command) {
            // By method, because after a restart only the owner's messages are parsed as commands.
            (AUTO_FLUSH, _) => Some(RunTask::MemoryFlush),
            (AUTO_COMPACT, _) => Some(RunTask::Compact { focus: None, is_quiet: true }),
            (_, Some(Command::Plugin(name, arguments))) => {
                Some(RunTask::PluginCommand { name: name.clone(), arguments: arguments.clone() })
            }
            (_, Some(Command::Compact(focus))) => Some(RunTask::Compact { focus: focus.clone(), is_quiet: false }),
            _ => None,
        }
    }

    /// True if the gateway submitted it itself, so that no sender waits for it.
    pub(super) fn is_internal(&self) -> bool {
        self.inbound.is_internal()
    }

    /// Returns the inputs of the system prompt, with the caller's addition and the route of the message. The files
    /// are gathered later.
    pub(super) fn prompt_input(&self, profile: &Arc<Profile>, key: &SessionKey, record: &Record) -> PromptInput {
        PromptInput::new(profile, key, record, self.inbound.options.extra_prompt.as_deref(), &self.inbound.reply.route)
    }

    /// True if it was resumed, and its session has another transcript now. A resumed run belongs to the transcript it
    /// started in.
    fn resumes_elsewhere(&self, current: &SessionId) -> bool {
        let resumed_session = self.resume.as_ref().and_then(|resume| resume.session.as_ref());
        resumed_session.is_some_and(|resumed_session| resumed_session != current)
    }
}

impl ActiveRun {
    /// Loads the attachments of a run for this message.
    pub(super) async fn load_attachments(
        &self,
        profile: &Profile,
        kit: &SkillKit,
        accepts_images: bool,
    ) -> MessageAttachments {
        // A run that had started before the restart has them in its transcript.
        if self.ticket.resume.is_some() || self.ticket.is_resumed {
            return MessageAttachments::default();
        }
        let text = self.first_message().content.text();
        let is_owner = self.ticket.inbound.sender.principal == OWNER
            && self.ticket.inbound.command.is_none()
            && !self.ticket.inbound.is_literal;
        let mut attachments =
            if is_owner { MessageAttachments::skill(kit, &text) } else { MessageAttachments::default() };
        // A path named by anyone else may be a file they must not see. A model reads pictures with its tools, which are
        // confined to the workspace.
        if accepts_images && self.ticket.inbound.sender.principal == OWNER && self.ticket.inbound.is_written_by_client()
        {
            attachments.add_pictures(profile, &text).await;
        }
        attachments
    }

    /// Returns the message for the transcript: without its command if it starts a new transcript, and with the merged
    /// text if it hosts absorbed messages.
    pub(super) fn first_message(&self) -> User {
        let inbound = &self.ticket.inbound;
        let text = match (&self.prompt, &inbound.command) {
            (Some(prompt), _) => prompt,
            (None, Some(Command::NewTranscriptWith(text))) => text,
            (None, _) => return inbound.message.clone(),
        };
        let mut message = User { extra: inbound.message.extra.clone(), ..User::text(text, inbound.message.timestamp) };
        // Pictures of all messages that are merged into it.
        let all = std::iter::once(inbound).chain(self.absorbed.iter().map(|absorbed| &absorbed.inbound));
        let pictures = all.flat_map(|inbound| inbound.message.content.images().cloned()).map(Block::Image);
        if let Content::Blocks(blocks) = &mut message.content {
            blocks.extend(pictures);
        }
        message
    }

    /// Returns the message for the transcript with its notes and attachments, after hooks.
    async fn annotated_message(
        &self,
        notes: Vec<String>,
        mut attachments: MessageAttachments,
        scope: &mut RunScope,
    ) -> Arc<Message> {
        let mut message = self.first_message();
        let reentered = self.ticket.reentry.map(|_| REENTERED.to_owned());
        let notes: Vec<_> = notes.into_iter().chain(std::mem::take(&mut attachments.notes)).chain(reentered).collect();
        notes::attach(&mut message, &notes);
        attachments.attach(&mut message);
        scope.request.dispatch = attachments.dispatch;
        Arc::new(hooks::before_write(&scope.hooks.registered, &scope.hooks.context, Message::User(message)).await)
    }

    /// Returns the runs whose messages the model gets only as a summary.
    fn summarized(&self) -> Arc<[RunId]> {
        let all = self.absorbed.iter().chain([&self.ticket]);
        let summarized = all.filter(|ticket| ticket.tape.disposition() == Disposition::Summarized);
        summarized.map(|ticket| ticket.inbound.id.run.clone()).collect()
    }

    /// Restores the run's progress from before the restart, whether the run continues or ends.
    pub(super) fn restore_progress(&mut self, at: u64) {
        if let Some(resume) = self.ticket.resume.take() {
            // A run that was re-entered in a new transcript has no earlier one; it keeps the one in which it started now.
            self.progress.session = resume.session.or(self.progress.session.take());
            self.progress.earlier_starts = resume.starts;
            self.progress.prior_answers = replay(&self.ticket.tape, at, &resume.entries);
            self.progress.known_results = resume.known_results;
        }
    }

    /// Adds the record of the run's start.
    fn record_start(&mut self, commit: &mut Commit, header: Header, at: u64) {
        let (run, key, session) = (self.run().clone(), self.ticket.tape.key().clone(), header.id.clone());
        self.progress.session = Some(session.clone());
        commit.stored_event(at, StoredEvent::Started { session }, Rec::Start(Start { run, key, header, at }));
        let summarized = self.summarized();
        if !summarized.is_empty() {
            self.ticket.tape.emit_silent(at, QueueEvent::Summarized(summarized));
        }
    }

    /// Adds the record of the run's message.
    fn record_input(&mut self, commit: &mut Commit, input: RunInput) {
        let RunInput { session, message, entries, at } = input;
        self.progress.input_entry = entries.last().map(|entry| entry.id.clone());
        let absorbs = self.absorbed.iter().map(|absorbed| absorbed.inbound.id.run.clone()).collect();
        let (run, key) = (self.run().clone(), self.ticket.tape.key().clone());
        let input = Input { run, key, session, absorbs, entries };
        commit.stored_event(at, StoredEvent::Input(message), Rec::Input(input));
    }
}

/// Emits the events of a run from before the restart on its tape. Returns the number of assistant messages.
fn replay(tape: &Arc<Tape>, at: u64, entries: &StoredValue<Vec<Entry>>) -> u32 {
    let mut assistant_count = 0;
    let mut compactions: Vec<_> =
        branch::compactions(entries).into_iter().filter(|compaction| !compaction.is_undone).collect();
    for entry in entries.each() {
        if let Some(index) = compactions.iter().position(|compaction| compaction.id == entry.id) {
            // An assistant message contains its own timestamp; a compaction does not.
            let at = from_iso(&entry.timestamp).map_or(at, |written| written.min(at));
            tape.emit(at, CompactionEvent::Started);
            let next = if assistant_count == 0 { AfterCompaction::FirstAnswer } else { AfterCompaction::Answer };
            if let Some(compacted) = entry.compacted(compactions.remove(index), next) {
                tape.emit_stored(at, compacted);
            }
        }
        let Some((at, event)) = entry.event(at) else { continue };
        assistant_count += u32::from(matches!(*event, StoredEvent::Assistant { .. }));
        tape.emit_stored(at, event);
    }
    assistant_count
}

/// Returns the event that a transcript entry records, and its time.
pub(crate) fn event_of_entry(entry: &Entry, at: u64) -> Option<(u64, StoredEvent)> {
    let Kind::Message(stored) = &entry.kind else { return None };
    match &stored.message {
        Message::Assistant(assistant) => {
            Some((at, StoredEvent::Assistant { entry: entry.id.clone(), message: Arc::new(assistant.clone()) }))
        }
        Message::ToolResult(result) => {
            let call = CallId::parse(&result.tool_call_id).ok()?;
            Some((at, StoredEvent::ToolEnded { call, result: Arc::new(result.clone()), shown: None }))
        }
        // A message that was steered into the run: text sent before it does not answer it.
        Message::User(_) => {
            let at = from_iso(&entry.timestamp).map_or(at, |written| written.min(at));
            Some((at, StoredEvent::Input(Arc::new(stored.message.clone()))))
        }
        Message::Other(_) => None,
    }
}
