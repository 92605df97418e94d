//! Compaction within a run: before the context overflows, after it did, or on request.

use std::sync::Arc;

use homard_compact::{Settings, escalate::Ladder, measure::TokenScale};
use homard_model::{Error, ErrorKind, Model, ModelSpec, Request, tokens};
use homard_prompt::context_budget as budget;
use homard_proto::transcript::{Entry, Kind};
use homard_runtime::ambient::iso;
use homard_store::Rec;

use super::{ContextFill, FinalRecords, RunError, RunScope, flush::flush};
use crate::{
    compact_session::{self, AfterCompaction, CompactionError, CompactionOutcome, CompactionTask},
    context::strict,
    event::{CompactionEvent, StoredEvent},
    tape::Commit,
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

impl RunScope {
    /// True if compaction is due before a request with this many tokens besides the history.
    pub(super) fn is_compaction_due(&self, spec: &ModelSpec, overhead: u64) -> bool {
        let settings = &self.profile.compaction;
        if !settings.enabled || spec.context_window == 0 || self.compaction_exhausted {
            return false;
        }
        let limits = settings.limits(spec.context_window, overhead, TokenScale::ONE);
        self.tokens(spec, overhead) > limits.threshold
    }

    /// Returns how full the context is after the last answer. No overhead is added, because the token usage reported
    /// with that answer includes it.
    pub(super) fn fill(&self) -> ContextFill {
        let model = self.failover.candidate().model.clone();
        let (spec, settings) = (model.spec(), &self.profile.compaction);
        let tokens = self.tokens(spec, 0);
        let limits = settings.limits(spec.context_window, 0, TokenScale::ONE);
        if settings.enabled && spec.context_window > 0 && tokens > limits.threshold {
            ContextFill::Full
        } else if self.is_flush_due(tokens) {
            ContextFill::Nearly
        } else {
            ContextFill::Fine
        }
    }

    /// Returns the estimated tokens of the context, as a request to this model contains it: the history, and `overhead`
    /// for the system prompt and the tools. If the model has reported token usage for the history, or the last
    /// compaction has stored an estimate of it, that number is used and already includes the overhead.
    pub(super) fn tokens(&self, spec: &ModelSpec, overhead: u64) -> u64 {
        budget::measure(spec, overhead, self.history.measured()).tokens()
    }

    /// Compacts the history before a request that might not fit. If that is not possible, the request is sent as it is.
    /// The inner error says that a message would be truncated that must not be.
    pub(super) async fn compact_before_request(
        &mut self,
        spec: &ModelSpec,
        overhead: u64,
    ) -> Result<Result<(), Error>, RunError> {
        match self.compact(spec, overhead, (Ladder::default(), None), self.next()).await? {
            Ok(_) => {}
            Err(CompactionError::Stopped) => return Err(RunError::Stopped),
            Err(CompactionError::TooLong(input)) => return Ok(Err(strict::too_long(spec, input))),
            // It will not succeed until the history has grown.
            Err(CompactionError::Nothing(_) | CompactionError::GaveUp(_)) => self.compaction_exhausted = true,
        }
        Ok(Ok(()))
    }

    /// Returns why this model is not asked, if the newest message must not be truncated and would be. Makes no model
    /// request.
    pub(super) fn refusal(&self, spec: &ModelSpec, overhead: u64) -> Option<Error> {
        let is_strict = self.is_strict && !self.compaction_exhausted;
        is_strict.then(|| strict::refusal(spec, overhead, (&self.history, &self.profile.compaction))).flatten()
    }

    /// Returns what follows a compaction at this point: the first answer to the newest message, or another one.
    fn next(&self) -> AfterCompaction {
        if strict::unanswered(&self.history).is_some() { AfterCompaction::FirstAnswer } else { AfterCompaction::Answer }
    }

    /// Compacts the history after a context overflow, reported by the provider or estimated. The inner error is the one
    /// for the user if that is not possible.
    pub(super) async fn recover(&mut self, error: Error) -> Result<Result<(), Error>, RunError> {
        let overflow = |message: String| Error::new(ErrorKind::Overflow, message);
        if !self.profile.compaction.enabled || !self.escalation.recover() {
            return Ok(Err(error));
        }
        let model = self.failover.candidate().model.clone();
        let spec = model.spec();
        let overhead = overhead(&self.request(spec));
        match self.compact(spec, overhead, (self.escalation, None), self.next()).await? {
            Ok(outcome) => {
                self.escalation = outcome.ladder;
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
        &mut self,
        spec: &ModelSpec,
        overhead: u64,
        (ladder, focus): (Ladder, Option<String>),
        next: AfterCompaction,
    ) -> Result<Result<CompactionOutcome, CompactionError>, RunError> {
        self.barrier().await?;
        self.before_compaction(self.tokens(spec, overhead)).await?;
        self.emit(CompactionEvent::Started);
        self.compacting.set(true);
        let settings: &Settings = &self.profile.compaction;
        let task = CompactionTask {
            history: &self.history,
            tokens: self.tokens(spec, overhead),
            settings,
            window: spec.context_window,
            overhead,
            models: self.summary_models(settings),
            focus,
            ladder,
            cancel: self.cancel.clone(),
            budget: self.budget.clone(),
        };
        let result = compact_session::compact_history(task).await;
        self.compacting.set(false);
        // The token usage of a discarded summary was paid for, too.
        if let Ok(outcome) = &result {
            self.side_usage += &outcome.usage;
        }
        let result = result.and_then(|outcome| {
            match outcome.truncated().filter(|_| self.is_strict && next == AfterCompaction::FirstAnswer) {
                Some(input) => Err(CompactionError::TooLong(input)),
                None => Ok(outcome),
            }
        });
        let outcome = match result {
            Ok(outcome) => outcome,
            Err(why) => {
                self.emit(CompactionEvent::Failed { why: why.to_string() });
                return Ok(Err(why));
            }
        };
        let (id, at) = (self.hub.ambient.entry_id(), self.hub.ambient.now_ms());
        let (history, kind) = outcome.apply(&self.history, &id, self.tape.run());
        let previous_len = std::mem::replace(&mut self.history, history).len();
        self.add_context();
        let entry = Entry { kind, id: id.clone(), parent_id: None, timestamp: iso(at) };
        let (run, key) = (Some(self.tape.run().clone()), self.tape.key().clone());
        let record = Rec::Entry { run, key, session: self.session.clone(), entry: Box::new(entry) };
        let ((before, after), strategy) = (outcome.tokens, outcome.strategy());
        if ladder.is_recovery() {
            self.overflow_compactions.push(id.clone());
        }
        self.after_compaction(previous_len, after);
        let continues = next != AfterCompaction::Nothing;
        let input = outcome.truncated().filter(|_| next == AfterCompaction::FirstAnswer);
        self.record(StoredEvent::Compacted { entry: id, before, after, strategy, continues, input }, record);
        Ok(Ok(outcome))
    }

    /// Undoes the compactions made after a context overflow if the provider still reports an overflow: nothing was
    /// gained, and the context must not be lost for it.
    pub(super) fn undo_compactions(&mut self) {
        for compaction in std::mem::take(&mut self.overflow_compactions) {
            self.undone_compactions.push(compaction.clone());
            let (id, at) = (self.hub.ambient.entry_id(), self.hub.ambient.now_ms());
            let kind = Kind::compaction_undone(&compaction);
            let entry = Box::new(Entry { kind, id, parent_id: None, timestamp: iso(at) });
            let (run, key) = (Some(self.tape.run().clone()), self.tape.key().clone());
            let record = Rec::Entry { run, key, session: self.session.clone(), entry };
            let mut commit = Commit::new(&self.tape);
            commit.record(record);
            self.hub.writer.send(commit);
        }
    }

    /// Returns the models for the summary: the configured compaction model, if available, then the run's own model.
    fn summary_models(&self, settings: &Settings) -> Vec<Arc<dyn Model>> {
        let run_model = self.failover.candidate().model.clone();
        let is_run_model = |model: &Arc<dyn Model>| {
            (&model.spec().provider, &model.spec().model) == (&run_model.spec().provider, &run_model.spec().model)
        };
        let configured = match settings.model.as_deref().map(|name| (self.profile.resolve_model)(name)) {
            Some(Ok(candidates)) => Some(candidates.first().clone()).filter(|model| !is_run_model(model)),
            Some(Err(why)) => {
                tracing::warn!(%why, "compaction model unavailable; falling back to the run's model");
                None
            }
            None => None,
        };
        configured.into_iter().chain([run_model]).collect()
    }
}

/// Executes a request that is not for an answer. Returns the text for the user.
pub(super) async fn run_task(scope: &mut RunScope, task: RunTask) -> Result<FinalRecords, RunError> {
    if let RunTask::PluginCommand { name, arguments } = task {
        return scope.run_plugin_command(&name, arguments).await;
    }
    let model = scope.failover.candidate().model.clone();
    let spec = model.spec();
    let overhead = overhead(&scope.request(spec));
    // If there is nothing to summarize, no memory flush is made.
    let window = (spec.context_window, overhead);
    let is_idle = matches!(task, RunTask::Compact { .. })
        && compact_session::has_nothing_to_do(&scope.history, &scope.profile.compaction, window);
    if !is_idle {
        flush(scope).await?;
    }
    let (focus, is_quiet) = match task {
        RunTask::PluginCommand { .. } => return Ok(FinalRecords::default()),
        RunTask::MemoryFlush => return Ok(FinalRecords::default()),
        RunTask::Compact { focus, is_quiet } => (focus, is_quiet),
    };
    // After a restart, the compaction may be in the transcript although the run has not ended.
    let result = match compact_session::compaction_of_run(scope.tape.run(), &scope.history) {
        Some(compaction) => {
            let tokens = (compaction.tokens_before.unwrap_or(0), compaction.tokens_after.unwrap_or(0));
            scope.emit(CompactionEvent::Started);
            scope.tape.emit_stored(
                scope.hub.ambient.now_ms(),
                compact_session::compacted_event(compaction, AfterCompaction::Nothing),
            );
            Ok(tokens)
        }
        None => {
            let result = scope.compact(spec, overhead, (Ladder::default(), focus), AfterCompaction::Nothing).await?;
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
        scope.tape.text(scope.hub.ambient.now_ms(), scope.assistant_count, text);
    }
    Ok(FinalRecords { reply: text, ..FinalRecords::default() })
}

/// Returns the tokens of a request besides the messages: system prompt and tools.
pub(super) fn overhead(request: &Request) -> u64 {
    tokens::estimate(&request.system) + tokens::of_tools(&request.tools)
}
