//! Memory flush: before a compaction, the model may store lasting facts in the files of its workspace.
//!
//! It works on a separate view of the history. Its answers and tool calls there are not stored in the transcript and
//! not emitted; only file tools are available. Failures are logged, and a new message cancels the flush.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::BoxStream};
use homard_model::{Answer, Event, Model};
use homard_proto::message::{Assistant, Block, Message, StopReason, Usage, User};
use homard_reply::silent;
use tokio::time::timeout;

use super::{RunError, RunScope, compact, tools, turn};
use crate::{
    context::budget::{self, Said},
    lane::slots::Class,
    sandboxing::WorkspaceAccess,
};

/// Prompt of the memory flush.
pub const FLUSH: &str = "[The conversation up to here will soon be summed up, and details will be lost. Store now what must \
                         last: decisions, preferences, facts, and what is still to be done. It belongs into memory files \
                         of the workspace: memory/YYYY-MM-DD.md with today's date, or MEMORY.md. Read before you write, \
                         keep what is there, and add only what is missing. Only tools for files work in this turn, and \
                         nobody reads what you say. Then, or if there is nothing to store, reply with NO_REPLY.]";

/// Added to a configured prompt that does not say how the turn ends.
const THEN: &str = "If there is nothing to store, reply with NO_REPLY.";

/// Maximum number of model requests.
const ROUNDS: usize = 5;

/// Maximum total duration.
const MOST: Duration = Duration::from_secs(120);

/// Available tools: none that reaches a person, another session or a shell.
const FILES: [&str; 9] = ["read", "write", "edit", "apply_patch", "ls", "find", "grep", "memory_search", "memory_get"];

/// Tools that write files.
const WRITE: [&str; 3] = ["write", "edit", "apply_patch"];

impl RunScope {
    /// True if a memory flush is due at this number of tokens.
    pub(super) fn is_worth_notes(&self, tokens: u64) -> bool {
        let window = self.failover.candidate().model.spec().context_window;
        let is_due = self.profile.compaction.flush_at(window).is_some_and(|at| tokens >= at);
        // Outside the workspace, notes would be written into a user's project.
        let is_home = self.profile.setting.workspace.as_deref() == Some(&*self.profile.workdir);
        // Notes in a sandbox workspace would not be part of the agent's memory.
        let is_home =
            is_home && self.profile.sandbox.as_ref().is_none_or(|sandbox| sandbox.access == WorkspaceAccess::Rw);
        let names = self.toolbox.names();
        let can_write = self.client_tools.is_empty() && WRITE.iter().any(|name| names.contains(*name));
        is_due && !self.is_flushed && self.class == Class::Main && is_home && can_write && self.trouble.is_none()
    }

    /// Returns the time limit: half of the run's remaining time, because the next steps need time, too.
    fn time_for_notes(&self) -> Duration {
        let left = self.deadline.map(|deadline| deadline.saturating_sub(self.hub.ambient.now_ms()) / 2);
        left.map_or(MOST, |left| MOST.min(Duration::from_millis(left)))
    }
}

/// Makes a memory flush if it is due. Only the end of the run is an error; other failures do not stop what follows.
pub(super) async fn flush(scope: &mut RunScope) -> Result<(), RunError> {
    let model = scope.failover.candidate().model.clone();
    let overhead = compact::overhead(&scope.request(model.spec()));
    if !scope.is_worth_notes(scope.tokens(model.spec(), overhead)) {
        return Ok(());
    }
    scope.barrier().await?;
    let (cancel, hurry, time) = (scope.cancel.clone(), scope.hurry.clone(), scope.time_for_notes());
    let stored = tokio::select! {
        biased;
        () = cancel.cancelled() => return Err(RunError::Stopped),
        () = hurry.cancelled() => Err("a message came in".to_owned()),
        stored = timeout(time, store(scope, &*model)) => {
            stored.unwrap_or_else(|_| Err(format!("it took longer than {time:?}")))
        }
    };
    match stored {
        Ok(()) => scope.margin.keep_flush(scope.hub.ambient.now_ms()),
        Err(why) => tracing::warn!(key = %scope.tape.key(), why, "no notes were stored before a compaction"),
    }
    Ok(())
}

/// Asks the model and executes its tool calls until it has stored what it wants to.
async fn store(scope: &mut RunScope, model: &dyn Model) -> Result<(), String> {
    let (spec, profile) = (model.spec(), scope.profile.clone());
    let settings = &profile.compaction.flush;
    let toolbox = scope.toolbox.only(|name| FILES.contains(&name));
    let prompt = settings.prompt.as_deref().map_or_else(|| FLUSH.to_owned(), complete);
    let mut view = scope.shown(spec);
    view.push(Arc::new(Message::User(User::text(prompt, scope.hub.ambient.now_ms()))));
    for _ in 0..ROUNDS {
        let mut request = scope.request_of(spec, &view);
        if let Some(more) = &settings.system_prompt {
            request.system = format!("{}\n\n{}", request.system, complete(more)).into();
        }
        let overhead = compact::overhead(&request);
        let said = Said { messages: &view, weights: &[], ..scope.history.said() };
        if let Some(error) = budget::overflow(spec, overhead, said) {
            return Err(error.message);
        }
        let hold = scope.payer.reserve(spec, scope.tokens(spec, overhead), &mut request).await?;
        let (content, usage) = listen(model.stream(request)).await?;
        hold.settle(&usage);
        scope.beside += &usage;
        let said = Assistant {
            content,
            api: spec.api.clone(),
            provider: spec.provider.clone(),
            model: spec.model.clone(),
            usage,
            stop_reason: StopReason::ToolUse,
            timestamp: scope.hub.ambient.now_ms(),
            ..Assistant::default()
        };
        let calls: Vec<_> = said.tool_calls().cloned().collect();
        if calls.is_empty() {
            return Ok(());
        }
        view.push(Arc::new(Message::Assistant(said)));
        for call in &calls {
            let result = tools::unseen(scope, &toolbox, call).await.map_err(|error| error.to_string())?;
            view.push(Arc::new(Message::ToolResult(result)));
        }
    }
    Ok(())
}

/// Completes a configured prompt with how the turn ends.
fn complete(words: &str) -> String {
    if words.contains(silent::TOKEN) { words.to_owned() } else { format!("{words}\n\n{THEN}") }
}

/// Collects one answer without emitting events.
async fn listen(mut stream: BoxStream<'static, Event>) -> Result<(Vec<Block>, Usage), String> {
    let mut answer = Answer::default();
    while let Some(event) = stream.next().await {
        match event {
            Event::Text(delta) => answer.text(&delta),
            Event::Thinking(delta) => answer.thinking(&delta),
            Event::Call(delta) => answer.call(delta),
            Event::Seal(seal) => answer.seal(seal),
            Event::Alive => {}
            Event::Done(done) if done.stop == StopReason::Error => return Err("the model gave up".to_owned()),
            Event::Done(done) => {
                let mut content = answer.into_blocks();
                turn::settle_ids(&mut content);
                return Ok((content, done.usage));
            }
            Event::Failed(error) => return Err(error.message),
        }
    }
    Err("the model stopped in the middle of its answer".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_the_config_say_how_the_turn_ends() {
        assert_eq!(complete("Write it down."), format!("Write it down.\n\n{THEN}"));
        assert_eq!(complete("Write, or say NO_REPLY."), "Write, or say NO_REPLY.");
        assert_eq!(complete(FLUSH), FLUSH);
    }
}
