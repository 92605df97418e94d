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
mod scope;
pub(crate) mod session_stats;
mod steer;
mod streamed_reply;
mod tools;
mod turn;

use std::sync::Arc;

use homard_command::homard_message;
use homard_model::ModelSpec;
use homard_proto::{
    EntryId,
    message::{Assistant, Message, ToolCall, Usage},
};
use homard_reply::{blocks::BlockStream, silent::TOKEN as SILENCE};
use homard_store::Error as StoreError;

use crate::{event::StoredEvent, history::SessionHistory, tape::Commit};
use tools::Resumed;

pub use flush::FLUSH_PROMPT;
pub(crate) use hooks::PromptChanges;
pub(crate) use nudge::ModelNudge;
pub use nudge::{CONTINUE_NUDGE, REPLY_NUDGE};
pub(crate) use scope::{
    ContextState, ModelState, PromptState, ReplyOutput, RunHooks, RunIo, RunRequest, RunScope, RunTools, SharedFlag,
};
pub(crate) use steer::Steered;

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
    let ContextState { history, undone_compactions, .. } = scope.context;
    let history = Some(history.without_override()).filter(|_| undone_compactions.is_empty());
    RunResult { result, history, undone_compactions, side_usage: scope.model.side_usage }
}

async fn work(scope: &mut RunScope) -> Result<FinalRecords, RunError> {
    if let Some(reply) = scope.request.fixed_reply {
        return Ok(answer_without_model(scope, reply).await);
    }
    if let Some(task) = scope.request.task.take() {
        return compact::run_task(scope, task).await;
    }
    if let Some((tool, arguments)) = scope.request.dispatch.take() {
        return tools::dispatch(scope, tool, arguments).await;
    }
    if let Some(error) = scope.model.error.take() {
        return Err(error.into());
    }
    if let Some(final_records) = scope.begin_with_hooks().await? {
        return Ok(final_records);
    }
    if let Some(answer) = open_calls(&scope.context.history) {
        tools::run_calls(scope, &answer, Resumed::Perhaps).await?;
    }
    loop {
        steer::take_offer(scope).await?;
        if let Some(why) = scope.model.guard.reached_limit(&scope.profile.run.bounds) {
            return Err(RunError::Limit(why));
        }
        match turn::ask(scope).await? {
            turn::TurnResult::Calls(answer) => {
                tools::run_calls(scope, &answer, Resumed::Never).await?;
                let calls = client::client_calls(&scope.tools.client, &answer);
                if !calls.is_empty() {
                    let credential = scope.model.failover.sticky().cloned();
                    return Ok(finish(scope, FinalRecords { calls, credential, ..FinalRecords::default() }));
                }
                scope.model.count_answer(&answer, &scope.context.history);
            }
            turn::TurnResult::Last(final_records) if !scope.io.has_offer() => {
                return Ok(finish(scope, *final_records));
            }
            turn::TurnResult::Last(final_records) => {
                // Another message arrived: this answer is not the last one, provided that the message is still queued.
                final_records.commit.into_iter().for_each(|commit| scope.io.hub.writer.send(commit));
                if !steer::take_offer(scope).await? {
                    return Ok(finish(
                        scope,
                        FinalRecords { credential: final_records.credential, ..FinalRecords::default() },
                    ));
                }
            }
        }
    }
}

/// Completes the final records with how full the context is, and sends the remaining blocks.
fn finish(scope: &mut RunScope, final_records: FinalRecords) -> FinalRecords {
    let remaining = scope.output.blocks.as_mut().map(BlockStream::finish).unwrap_or_default();
    scope.output.send_rest(&scope.io, remaining);
    FinalRecords { fill: compact::fill(scope), ..final_records }
}

/// Answers without a model.
async fn answer_without_model(scope: &mut RunScope, text: &str) -> FinalRecords {
    let at = scope.io.now();
    let answer = Arc::new(scope.hooks.before_write(homard_message(text, at)).await);
    let message = Message::Assistant((*answer).clone());
    let (entry, record) = scope.io.entry(message.clone());
    scope.context.history.push(entry.clone(), Arc::new(message));
    if text != SILENCE {
        scope.io.tape.text(at, scope.output.message_count, text);
    }
    let commit = scope.io.commit_of(StoredEvent::Assistant { entry, message: answer }, record);
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
