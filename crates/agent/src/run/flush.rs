//! Memory flush: before a compaction, the model may store lasting facts in the files of its workspace.
//!
//! It works on a separate view of the history. Its answers and tool calls there are not stored in the transcript and
//! not emitted; only file tools are available. Failures are logged, and a new message cancels the flush.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::BoxStream};
use homard_model::{Model, ModelAnswer, ModelEvent};
use homard_prompt::context_budget::{self as budget, MeasuredHistory};
use homard_proto::message::{Assistant, Block, Message, StopReason, Usage, User};
use homard_queue::slots::RunClass;
use homard_reply::silent;
use tokio::time::timeout;

use super::{RunError, RunScope, compact, prune, tools, turn};
use crate::sandboxing::WorkspaceAccess;

/// Prompt of the memory flush.
pub const FLUSH_PROMPT: &str = "[The conversation up to here will soon be replaced by a summary, and details will be lost. \
                         Store now what must last: decisions, preferences, facts, and open tasks. Write it to the \
                         memory files of the workspace: memory/YYYY-MM-DD.md with today's date, or MEMORY.md. Read \
                         before you write, keep existing content, and add only what is missing. Only tools for files \
                         work in this turn, and your reply is not shown to anyone. Then, or if there is nothing to \
                         store, reply with NO_REPLY.]";

/// Added to a configured prompt that does not say how the turn ends.
const NO_REPLY_HINT: &str = "If there is nothing to store, reply with NO_REPLY.";

/// Maximum number of model requests of one memory flush.
const MAX_ROUNDS: usize = 5;

/// Maximum total duration of a memory flush.
const MAX_DURATION: Duration = Duration::from_secs(120);

/// Available tools: none that reaches a person, another session or a shell.
const FILE_TOOLS: [&str; 9] =
    ["read", "write", "edit", "apply_patch", "ls", "find", "grep", "memory_search", "memory_get"];

/// Tools that write files.
const WRITE_TOOLS: [&str; 3] = ["write", "edit", "apply_patch"];

/// True if a memory flush is due at this number of tokens.
pub(super) fn is_flush_due(scope: &RunScope, tokens: u64) -> bool {
    let window = scope.model.spec().context_window;
    let is_due = scope.profile.compaction.flush_at(window).is_some_and(|at| tokens >= at);
    // Outside the workspace, notes would be written into a user's project.
    let is_in_workspace = scope.profile.prompt.workspace.as_deref() == Some(&*scope.profile.workdir);
    // Notes in a sandbox workspace would not be part of the agent's memory.
    let is_in_workspace = is_in_workspace
        && scope.profile.confinement.sandbox.as_ref().is_none_or(|sandbox| sandbox.access == WorkspaceAccess::Rw);
    let names = scope.tools.toolbox.names();
    let can_write = scope.tools.client.is_empty() && WRITE_TOOLS.iter().any(|name| names.contains(*name));
    is_due
        && !scope.context.is_flushed
        && scope.request.class == RunClass::Main
        && is_in_workspace
        && can_write
        && scope.model.error.is_none()
}

/// Returns the time limit: half of the run's remaining time, because the next steps need time, too.
fn flush_time_limit(scope: &RunScope) -> Duration {
    let remaining_ms = scope.io.deadline.map(|deadline| deadline.saturating_sub(scope.io.now()) / 2);
    remaining_ms.map_or(MAX_DURATION, |remaining_ms| MAX_DURATION.min(Duration::from_millis(remaining_ms)))
}

/// Makes a memory flush if it is due. Only the end of the run is an error; other failures do not stop what follows.
pub(super) async fn flush(scope: &mut RunScope) -> Result<(), RunError> {
    let model = scope.model.current();
    let overhead = compact::overhead(&turn::build_request(scope, model.spec()));
    if !is_flush_due(scope, compact::tokens(scope, model.spec(), overhead)) {
        return Ok(());
    }
    scope.io.barrier().await?;
    let (cancel, hurry, time) = (scope.io.cancel.clone(), scope.io.hurry.clone(), flush_time_limit(scope));
    let result = tokio::select! {
        biased;
        () = cancel.cancelled() => return Err(RunError::Stopped),
        () = hurry.cancelled() => Err("it was interrupted by a new message".to_owned()),
        result = timeout(time, flush_rounds(scope, &*model)) => {
            result.unwrap_or_else(|_| Err(format!("timed out after {time:?}")))
        }
    };
    match result {
        Ok(()) => scope.context.stats.set_flushed(scope.io.now()),
        Err(why) => tracing::warn!(key = %scope.io.tape.key(), why, "memory flush before a compaction failed"),
    }
    Ok(())
}

/// Asks the model and executes its tool calls until it has stored what it wants to.
async fn flush_rounds(scope: &mut RunScope, model: &dyn Model) -> Result<(), String> {
    let (spec, profile) = (model.spec(), scope.profile.clone());
    let settings = &profile.compaction.flush;
    let toolbox = scope.tools.toolbox.only(|name| FILE_TOOLS.contains(&name));
    let prompt = settings.prompt.as_deref().map_or_else(|| FLUSH_PROMPT.to_owned(), complete_prompt);
    let mut view = prune::pruned_history(scope, spec);
    view.push(Arc::new(Message::User(User::text(prompt, scope.io.now()))));
    for _ in 0..MAX_ROUNDS {
        let mut request = turn::request_with(scope, spec, &view);
        if let Some(addition) = &settings.system_prompt {
            request.system = format!("{}\n\n{}", request.system, complete_prompt(addition)).into();
        }
        let overhead = compact::overhead(&request);
        let measured = MeasuredHistory { messages: &view, estimates: &[], ..scope.context.history.measured() };
        if let Some(error) = budget::overflow(spec, overhead, measured) {
            return Err(error.message);
        }
        let reservation =
            scope.model.budget.reserve(spec, compact::tokens(scope, spec, overhead), &mut request).await?;
        let (content, usage) = collect_answer(model.stream(request)).await?;
        reservation.settle(&usage);
        scope.model.side_usage += &usage;
        let answer = Assistant {
            content,
            api: spec.api.clone(),
            provider: spec.provider.clone(),
            model: spec.model.clone(),
            usage,
            stop_reason: StopReason::ToolUse,
            timestamp: scope.io.now(),
            ..Assistant::default()
        };
        let calls: Vec<_> = answer.tool_calls().cloned().collect();
        if calls.is_empty() {
            return Ok(());
        }
        view.push(Arc::new(Message::Assistant(answer)));
        for call in &calls {
            let result = tools::hidden_call(scope, &toolbox, call).await.map_err(|error| error.to_string())?;
            view.push(Arc::new(Message::ToolResult(result)));
        }
    }
    Ok(())
}

/// Completes a configured prompt with how the turn ends.
fn complete_prompt(prompt: &str) -> String {
    if prompt.contains(silent::TOKEN) { prompt.to_owned() } else { format!("{prompt}\n\n{NO_REPLY_HINT}") }
}

/// Collects one answer without emitting events.
async fn collect_answer(mut stream: BoxStream<'static, ModelEvent>) -> Result<(Vec<Block>, Usage), String> {
    let mut answer = ModelAnswer::default();
    while let Some(event) = stream.next().await {
        match event {
            ModelEvent::Text(delta) => answer.text(&delta),
            ModelEvent::Thinking(delta) => answer.thinking(&delta),
            ModelEvent::Call(delta) => answer.call(delta),
            ModelEvent::Signature(signature) => answer.sign(signature),
            ModelEvent::Heartbeat | ModelEvent::NoResponse(_) => {}
            ModelEvent::Done(done) if done.stop == StopReason::Error => {
                return Err("the model ended its answer with an error".to_owned());
            }
            ModelEvent::Done(done) => {
                let mut content = answer.into_blocks();
                turn::normalize_call_ids(&mut content);
                return Ok((content, done.usage));
            }
            ModelEvent::Failed(error) => return Err(error.message),
        }
    }
    Err("the model stopped in the middle of its answer".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configured_prompt_is_completed_with_how_the_turn_ends() {
        assert_eq!(complete_prompt("Write it down."), format!("Write it down.\n\n{NO_REPLY_HINT}"));
        assert_eq!(complete_prompt("Write, or say NO_REPLY."), "Write, or say NO_REPLY.");
        assert_eq!(complete_prompt(FLUSH_PROMPT), FLUSH_PROMPT);
    }
}
