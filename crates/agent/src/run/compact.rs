//! Compaction within a run: before the context overflows, after it did, or on request.

use std::sync::Arc;

use homard_compact::{Settings, escalate::Ladder, measure::TokenScale};
use homard_model::{Error, ErrorKind, Model, ModelSpec, Request};
use homard_prompt::context_budget as budget;
use homard_proto::transcript::Kind;

use super::{
    ContextFill, FinalRecords, RunError, RunScope,
    flush::{flush, is_flush_due},
    turn,
};
use crate::{
    compact_session::{self, AfterCompaction, CompactionError, CompactionOutcome, CompactionTask},
    context::strict,
    event::{CompactionEvent, StoredEvent},
    tape::{Commit, StoredValue, stored::entry as stored_entry},
};

/// Work that a message requests instead of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RunTask {
    /// Compaction of the session.
    Compact {
        /// What the summary should emphasize, in the words of the user.
        focus: Option<String>,
        /// True if the gateway asked for it, so that no reply is expected.
        is_quiet: bool,
    },
    /// A command of a plugin.
    PluginCommand {
        /// Name of the command.
        name: String,
        /// Its arguments.
        arguments: String,
    },
    /// A memory flush before a compaction. Only the gateway asks for it.
    MemoryFlush,
}

/// True if compaction is due before a request with this many tokens besides the history.
pub(super) fn is_compaction_due(scope: &RunScope, spec: &ModelSpec, overhead: u64) -> bool {
    let settings = &scope.profile.compaction;
    if !settings.enabled || spec.context_window == 0 || scope.context.is_exhausted {
        return false;
    }
    let limits = settings.limits(spec.context_window, overhead, TokenScale::ONE);
    tokens(scope, spec, overhead) > limits.threshold
}

/// Returns how full the context is after the last answer. No overhead is added, because the token usage reported
/// with that answer includes it.
pub(super) fn fill(scope: &RunScope) -> ContextFill {
    let model = scope.model.current();
    let (spec, settings) = (model.spec(), &scope.profile.compaction);
    let tokens = tokens(scope, spec, 0);
    let limits = settings.limits(spec.context_window, 0, TokenScale::ONE);
    if settings.enabled && spec.context_window > 0 && tokens > limits.threshold {
        ContextFill::Full
    } else if is_flush_due(scope, tokens) {
        ContextFill::Nearly
    } else {
        ContextFill::Fine
    }
}

/// Returns the estimated tokens of the context, as a request to this model contains it: the history, and `overhead`
/// for the system prompt and the tools. If the model has reported token usage for the history, or the last
/// compaction has stored an estimate of it, that number is used and already includes the overhead.
pub(super) fn tokens(scope: &RunScope, spec: &ModelSpec, overhead: u64) -> u64 {
    budget::measure(spec, overhead, scope.context.history.measured()).tokens()
}

/// Compacts the history before a request that might not fit. If that is not possible, the request is sent as it is.
/// The inner error says that a message would be truncated that must not be.
pub(super) async fn compact_before_request(
    scope: &mut RunScope,
    spec: &ModelSpec,
    overhead: u64,
) -> Result<Result<(), Error>, RunError> {
    let request = CompactionRequest::new(scope, spec, overhead);
    match compact(scope, request).await? {
        Ok(_) => {}
        Err(CompactionError::Stopped) => return Err(RunError::Stopped),
        Err(CompactionError::TooLong(input)) => return Ok(Err(strict::too_long(spec, input))),
        // It will not succeed until the history has grown.
        Err(CompactionError::Nothing(_) | CompactionError::GaveUp(_)) => scope.context.is_exhausted = true,
    }
    Ok(Ok(()))
}

/// Returns why this model is not asked, if the newest message must not be truncated and would be. Makes no model
/// request.
pub(super) fn refusal(scope: &RunScope, spec: &ModelSpec, overhead: u64) -> Option<Error> {
    let is_strict = scope.request.is_strict && !scope.context.is_exhausted;
    is_strict.then(|| strict::refusal(spec, overhead, &scope.context.history, &scope.profile.compaction)).flatten()
}

/// Parameters of a compaction within a run.
struct CompactionRequest<'a> {
    /// Model that continues with the result.
    spec: &'a ModelSpec,
    /// Tokens of its request besides the history.
    overhead: u64,
    /// Strategies already used.
    ladder: Ladder,
    /// What the summary should emphasize.
    focus: Option<String>,
    next: AfterCompaction,
}

impl<'a> CompactionRequest<'a> {
    /// A compaction that a request to this model needs.
    fn new(scope: &RunScope, spec: &'a ModelSpec, overhead: u64) -> Self {
        Self { spec, overhead, ladder: Ladder::default(), focus: None, next: next(scope) }
    }
}

/// Returns what follows a compaction at this point: the first answer to the newest message, or another one.
fn next(scope: &RunScope) -> AfterCompaction {
    if strict::unanswered(&scope.context.history).is_some() {
        AfterCompaction::FirstAnswer
    } else {
        AfterCompaction::Answer
    }
}

/// Compacts the history after a context overflow, reported by the provider or estimated. The inner error is the one
/// for the user if that is not possible.
pub(super) async fn recover(scope: &mut RunScope, error: Error) -> Result<Result<(), Error>, RunError> {
    let overflow = |message: String| Error::new(ErrorKind::Overflow, message);
    if !scope.profile.compaction.enabled || !scope.context.escalation.recover() {
        return Ok(Err(error));
    }
    let model = scope.model.current();
    let spec = model.spec();
    let overhead = overhead(&turn::build_request(scope, spec));
    let request =
        CompactionRequest { ladder: scope.context.escalation, ..CompactionRequest::new(scope, spec, overhead) };
    match compact(scope, request).await? {
        Ok(outcome) => {
            scope.context.escalation = outcome.ladder;
            Ok(Ok(()))
        }
        Err(CompactionError::Stopped) => Err(RunError::Stopped),
        Err(CompactionError::GaveUp(why)) => Ok(Err(overflow(why.to_string()))),
        Err(CompactionError::TooLong(input)) => Ok(Err(strict::too_long(spec, input))),
        Err(CompactionError::Nothing(_)) => Ok(Err(error)),
    }
}

/// Summarizes the history and continues with the result.
async fn compact(
    scope: &mut RunScope,
    request: CompactionRequest<'_>,
) -> Result<Result<CompactionOutcome, CompactionError>, RunError> {
    let CompactionRequest { spec, overhead, ladder, focus, next } = request;
    scope.io.barrier().await?;
    scope.before_compaction(tokens(scope, spec, overhead)).await?;
    scope.io.emit(CompactionEvent::Started);
    scope.context.compacting.set(true);
    let settings: &Settings = &scope.profile.compaction;
    let task = CompactionTask {
        history: &scope.context.history,
        tokens: tokens(scope, spec, overhead),
        settings,
        window: spec.context_window,
        overhead,
        models: summary_models(scope, settings),
        focus,
        ladder,
        cancel: scope.io.cancel.clone(),
        budget: scope.model.budget.clone(),
    };
    let result = compact_session::compact_history(task).await;
    scope.context.compacting.set(false);
    // The token usage of a discarded summary was paid for, too.
    if let Ok(outcome) = &result {
        scope.model.side_usage += &outcome.usage;
    }
    let result = result.and_then(|outcome| {
        match outcome.truncated().filter(|_| scope.request.is_strict && next == AfterCompaction::FirstAnswer) {
            Some(input) => Err(CompactionError::TooLong(input)),
            None => Ok(outcome),
        }
    });
    let outcome = match result {
        Ok(outcome) => outcome,
        Err(why) => {
            scope.io.emit(CompactionEvent::Failed { why: why.to_string() });
            return Ok(Err(why));
        }
    };
    let id = scope.io.hub.ambient.entry_id();
    let (history, kind) = outcome.apply(&scope.context.history, &id, scope.io.tape.run());
    let previous_len = std::mem::replace(&mut scope.context.history, history).len();
    scope.add_context();
    let record = scope.io.entry_of(id.clone(), kind);
    let ((before, after), strategy) = (outcome.tokens, outcome.strategy());
    if ladder.is_recovery() {
        scope.context.overflow_compactions.push(id.clone());
    }
    scope.after_compaction(previous_len, after);
    let continues = next != AfterCompaction::Nothing;
    let input = outcome.truncated().filter(|_| next == AfterCompaction::FirstAnswer);
    scope.io.record(StoredEvent::Compacted { entry: id, before, after, strategy, continues, input }, record);
    Ok(Ok(outcome))
}

/// Undoes the compactions made after a context overflow if the provider still reports an overflow: nothing was
/// gained, and the context must not be lost for it.
pub(super) fn undo_compactions(scope: &mut RunScope) {
    for compaction in std::mem::take(&mut scope.context.overflow_compactions) {
        scope.context.undone_compactions.push(compaction.clone());
        let id = scope.io.hub.ambient.entry_id();
        let mut commit = Commit::new(&scope.io.tape);
        commit.record(scope.io.entry_of(id, Kind::compaction_undone(&compaction)));
        scope.io.hub.writer.send(commit);
    }
}

/// Returns the models for the summary: the configured compaction model, if available, then the run's own model.
fn summary_models(scope: &RunScope, settings: &Settings) -> Vec<Arc<dyn Model>> {
    let run_model = scope.model.current();
    let is_run_model = |model: &Arc<dyn Model>| {
        (&model.spec().provider, &model.spec().model) == (&run_model.spec().provider, &run_model.spec().model)
    };
    let configured = match settings.model.as_deref().map(|name| (scope.profile.resolve_model)(name)) {
        Some(Ok(candidates)) => Some(candidates.first().clone()).filter(|model| !is_run_model(model)),
        Some(Err(why)) => {
            tracing::warn!(%why, "compaction model unavailable; falling back to the run's model");
            None
        }
        None => None,
    };
    configured.into_iter().chain([run_model]).collect()
}

/// A compaction that the run made before a restart.
struct StoredCompaction {
    event: StoredValue<StoredEvent>,
    /// The tokens before and after.
    tokens: (u64, u64),
}

/// Returns the compaction that this run has already made, if its entry is in the stored transcript.
async fn stored_compaction(scope: &RunScope) -> Result<Option<StoredCompaction>, RunError> {
    let Some(compaction) = compact_session::compaction_of_run(scope.io.tape.run(), &scope.context.history) else {
        return Ok(None);
    };
    let tokens = (compaction.tokens_before.unwrap_or(0), compaction.tokens_after.unwrap_or(0));
    let entry = stored_entry(&*scope.io.hub.store, scope.io.tape.key(), &scope.io.session, &compaction.id).await?;
    let event = entry.and_then(|entry| entry.as_ref().compacted(compaction, AfterCompaction::Nothing));
    Ok(event.map(|event| StoredCompaction { event, tokens }))
}

/// Executes a request that is not for an answer. Returns the text for the user.
pub(super) async fn run_task(scope: &mut RunScope, task: RunTask) -> Result<FinalRecords, RunError> {
    if let RunTask::PluginCommand { name, arguments } = task {
        return scope.run_plugin_command(&name, arguments).await;
    }
    let model = scope.model.current();
    let spec = model.spec();
    let overhead = overhead(&turn::build_request(scope, spec));
    // If there is nothing to summarize, no memory flush is made.
    let is_idle = matches!(task, RunTask::Compact { .. })
        && compact_session::has_nothing_to_do(
            &scope.context.history,
            &scope.profile.compaction,
            spec.context_window,
            overhead,
        );
    if !is_idle {
        flush(scope).await?;
    }
    let (focus, is_quiet) = match task {
        RunTask::PluginCommand { .. } => return Ok(FinalRecords::default()),
        RunTask::MemoryFlush => return Ok(FinalRecords::default()),
        RunTask::Compact { focus, is_quiet } => (focus, is_quiet),
    };
    // After a restart, the compaction may be in the transcript although the run has not ended.
    let result = match stored_compaction(scope).await? {
        Some(StoredCompaction { event, tokens }) => {
            scope.io.emit(CompactionEvent::Started);
            scope.io.tape.emit_stored(scope.io.now(), event);
            Ok(tokens)
        }
        None => {
            let next = AfterCompaction::Nothing;
            let request = CompactionRequest { spec, overhead, ladder: Ladder::default(), focus, next };
            let result = compact(scope, request).await?;
            result.map(|outcome| outcome.tokens)
        }
    };
    let text = match result {
        Ok((before, after)) => format!("Compacted: about {before} tokens before, {after} now."),
        Err(CompactionError::Stopped) => return Err(RunError::Stopped),
        Err(CompactionError::Nothing(why)) => format!("Nothing was done: {why}."),
        Err(why @ (CompactionError::GaveUp(_) | CompactionError::TooLong(_))) => format!("Compaction failed: {why}."),
    };
    let text = (!is_quiet).then_some(text);
    if let Some(text) = &text {
        scope.io.tape.text(scope.io.now(), scope.output.message_count, text);
    }
    Ok(FinalRecords { reply: text, ..FinalRecords::default() })
}

/// Returns the tokens of a request besides the messages: system prompt and tools.
pub(super) fn overhead(request: &Request) -> u64 {
    homard_model::tokens::estimate(&request.system) + homard_model::tokens::of_tools(&request.tools)
}
