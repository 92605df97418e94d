//! Tool calls of one assistant message: prepared in order, run concurrently or sequentially, recorded in order.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use homard_command::homard_message;
use homard_hooks::HookPoint;
use homard_proto::{
    CallId,
    message::{Assistant, Block, Message, StopReason, ToolCall, ToolResult as Answered, join_text},
};
use homard_runtime::task;
use homard_secrets::Secrets;
use homard_stdx::time::millis;
use homard_store::{Rec, ToolClass};
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::Instant};
use tokio_util::task::AbortOnDropHandle;

use super::{
    FinalRecords, RunError, RunScope,
    hooks::{FinishedCall, after_call},
    panic_text,
    result_limit::{max_chars, truncate_result},
    scope::MaskedArguments,
    streamed_reply,
};
use crate::{
    Hub,
    event::{StoredEvent, ToolEvent},
    hooks,
    profile::ToolMode,
    tape::Commit,
    tool::{ProgressSender, Tool, ToolCx, ToolResult, Toolbox},
};

/// Time for tools to end after cancellation.
const GRACE: Duration = Duration::from_millis(250);

/// Result of a call that was skipped because of a new message.
const SKIPPED_RESULT: &str = "Skipped because of a queued user message. Read it before you continue.";

/// Result of a call that cannot be made after a restart, because its arguments contained a secret.
const MASKED_RESULT: &str = "This call was not run: the program was restarted, and the arguments contained a secret, which is \
                      not stored. Make the call again if it is still needed.";

/// A call that passed its checks, or the result that it got instead.
struct PreparedCall {
    call: CallId,
    name: String,
    arguments: Value,
    tool: Result<Arc<dyn Tool>, ToolResult>,
}

/// Whether calls may have been executed before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resumed {
    /// None of them.
    Never,
    /// Some may have been, before a restart: their results must not claim otherwise.
    Perhaps,
}

/// Executes a tool instead of asking a model; its result is the run's reply.
pub(super) async fn dispatch(scope: &mut RunScope, tool: String, arguments: Value) -> Result<FinalRecords, RunError> {
    let id = format!("call_{}", scope.io.hub.ambient.nonce());
    let call = ToolCall { id, name: tool, arguments, ..ToolCall::default() };
    let answer = Arc::new(Assistant {
        content: vec![Block::ToolCall(call)],
        stop_reason: StopReason::ToolUse,
        ..homard_message("", scope.io.now())
    });
    let (entry, record) = scope.io.entry(Message::Assistant((*answer).clone()));
    scope.context.history.push(entry.clone(), Arc::new(Message::Assistant((*answer).clone())));
    scope.io.record(StoredEvent::Assistant { entry, message: answer.clone() }, record);
    scope.output.message_count += 1;
    run_calls(scope, &answer, Resumed::Never).await?;
    let text = match scope.context.history.last().map(|message| &**message) {
        Some(Message::ToolResult(result)) => join_text(&result.content),
        Some(Message::Assistant(_) | Message::User(_) | Message::Other(_)) | None => String::new(),
    };
    Ok(super::answer_without_model(scope, &text).await)
}

/// Executes all calls of a message. Returns when each has its result in the transcript, or the run was cancelled.
pub(super) async fn run_calls(scope: &mut RunScope, answer: &Assistant, resumed: Resumed) -> Result<(), RunError> {
    let may_skip = resumed == Resumed::Never;
    let mut waiting: VecDeque<(usize, PreparedCall)> =
        answer.tool_calls().filter_map(|call| with_secrets(scope, call, resumed)).enumerate().collect();
    note_denied(scope, &waiting);
    let mut table = ResultTable::new(waiting.len());
    table.restore(scope, &mut waiting);
    let names: Vec<_> = answer.tool_calls().filter_map(NamedCall::of).collect();
    let batch_size = match scope.profile.run.tool_mode {
        ToolMode::Parallel => waiting.len(),
        ToolMode::Sequential => 1,
    };
    // Progress of all running tools; drained while any of them runs.
    let (progress_sender, mut progress) = mpsc::unbounded_channel::<(usize, ToolResult)>();
    let mut running = FuturesUnordered::new();
    let mut deadline = None;
    while table.recorded < names.len() {
        if running.is_empty() && deadline.is_none() {
            if scope.io.cancel.is_cancelled() {
                return Err(RunError::Stopped);
            }
            if may_skip && scope.io.has_offer() {
                skip(scope, &mut waiting, &mut table).await;
                continue;
            }
            let mut batch: Vec<_> = waiting.drain(..batch_size.min(waiting.len())).collect();
            run_before_hooks(scope, &mut batch).await?;
            record_intent(scope, &batch).await?;
            if scope.io.cancel.is_cancelled() {
                return Err(RunError::Stopped);
            }
            for (index, call) in batch {
                if call.tool.is_err() {
                    table.refused.insert(index);
                }
                streamed_reply::announce_tool(scope, &call.name, &call.arguments);
                emit_start(scope, &call);
                let progress_sender = progress_sender.clone();
                let result_future =
                    spawn_tool(scope, call, move |partial| progress_sender.send((index, partial)).is_ok());
                running.push(async move { (index, result_future.await) });
            }
        }
        tokio::select! {
            biased;
            () = scope.io.cancel.cancelled(), if deadline.is_none() => deadline = Some(Instant::now() + GRACE),
            Some((index, partial)) = progress.recv() => {
                if table.results[index].is_none() {
                    let NamedCall { call, name } = names[index].clone();
                    scope.io.emit(ToolEvent::Progress { call, name, partial });
                }
            }
            Some((index, result)) = running.next() => table.finish(scope, index, &names[index], result).await,
            () = tokio::time::sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => break,
        }
        if deadline.is_some() && running.is_empty() {
            break;
        }
    }
    if deadline.is_some() { Err(RunError::Stopped) } else { Ok(()) }
}

/// Writes audit records for calls of tools that the agent has and this run may not use.
fn note_denied(scope: &RunScope, calls: &VecDeque<(usize, PreparedCall)>) {
    let is_denied = |call: &PreparedCall| !scope.tools.toolbox.has(&call.name) && scope.profile.toolbox.has(&call.name);
    for (_, call) in calls.iter().filter(|(_, call)| call.tool.is_err() && is_denied(call)) {
        scope.io.hub.audit_denied(&scope.io.tape, &call.name, "policy");
    }
}

fn prepare(toolbox: &Toolbox, call: &ToolCall) -> Option<PreparedCall> {
    let id = CallId::parse(&call.id).ok()?;
    let (tool, arguments) = match toolbox.prepare(&call.name, &call.arguments) {
        Ok((tool, arguments)) => (Ok(tool), arguments),
        Err(answer) => (Err(answer), call.arguments.clone()),
    };
    Some(PreparedCall { call: id, name: call.name.clone(), arguments, tool })
}

/// Prepares a call with the model's original arguments: the stored message has them with masked secrets.
fn with_secrets(scope: &RunScope, call: &ToolCall, resumed: Resumed) -> Option<PreparedCall> {
    match real_arguments(&call.arguments, scope.tools.masked_arguments.get(&call.id), resumed) {
        Ok(None) => prepare(&scope.tools.toolbox, call),
        Ok(Some(real)) => prepare(&scope.tools.toolbox, &ToolCall { arguments: real.clone(), ..call.clone() }),
        Err(answer) => Some(PreparedCall { tool: Err(answer), ..prepare(&scope.tools.toolbox, call)? }),
    }
}

/// Returns the arguments to use instead of the stored ones. After a restart the originals are lost, and the call must
/// not be made with masked arguments: the error is its result.
fn real_arguments<'a>(
    stored: &Value,
    known: Option<&'a MaskedArguments>,
    resumed: Resumed,
) -> Result<Option<&'a Value>, ToolResult> {
    let known = known.filter(|masked| masked.stored == *stored);
    match (known, resumed) {
        (Some(masked), _) => Ok(Some(&masked.real)),
        (None, Resumed::Perhaps) if Secrets::is_masked(stored) => Err(ToolResult::error(MASKED_RESULT)),
        (None, Resumed::Never | Resumed::Perhaps) => Ok(None),
    }
}

/// Emits the start of a call, with masked secrets in its arguments.
fn emit_start(scope: &mut RunScope, call: &PreparedCall) {
    let arguments = scope.profile.secrets.masked_value(&call.arguments).unwrap_or_else(|| call.arguments.clone());
    scope.io.emit(ToolEvent::Started { call: call.call.clone(), name: call.name.clone(), arguments });
}

/// Skips the remaining calls because a new message arrived, which the model must read first. A call that failed its
/// checks keeps its result.
async fn skip(scope: &mut RunScope, waiting: &mut VecDeque<(usize, PreparedCall)>, table: &mut ResultTable) {
    for (index, prepared) in waiting.drain(..) {
        emit_start(scope, &prepared);
        let PreparedCall { call, name, tool, .. } = prepared;
        let result = tool.err().unwrap_or_else(|| ToolResult::error(SKIPPED_RESULT));
        table.finish(scope, index, &NamedCall { call, name }, result).await;
    }
}

/// Runs the hooks before calls. Changed arguments are validated like the model's own.
async fn run_before_hooks(scope: &mut RunScope, batch: &mut [(usize, PreparedCall)]) -> Result<(), RunError> {
    if !scope.hooks.registered.has(HookPoint::BeforeToolCall) {
        return Ok(());
    }
    for (_, call) in batch.iter_mut().filter(|(_, call)| call.tool.is_ok()) {
        match scope.before_call(&call.call, &call.name, call.arguments.clone()).await? {
            Ok(arguments) if arguments == call.arguments => {}
            Ok(arguments) => match scope.tools.toolbox.prepare(&call.name, &arguments) {
                Ok((tool, arguments)) => (call.tool, call.arguments) = (Ok(tool), arguments),
                Err(answer) => call.tool = Err(answer),
            },
            Err(answer) => {
                scope.io.hub.audit_denied(&scope.io.tape, &call.name, "hook");
                call.tool = Err(answer);
            }
        }
    }
    Ok(())
}

/// Records on disk that tools with side effects are about to start, before they do.
async fn record_intent(scope: &RunScope, batch: &[(usize, PreparedCall)]) -> Result<(), RunError> {
    let effects = batch.iter().filter_map(|(_, call)| match &call.tool {
        Ok(tool) if tool.class() != ToolClass::Read => Some((call, tool.class())),
        Ok(_) | Err(_) => None,
    });
    let run = scope.io.tape.run();
    let records: Vec<_> =
        effects.map(|(call, class)| Rec::ToolIntent { run: run.clone(), call: call.call.clone(), class }).collect();
    if records.is_empty() {
        return Ok(());
    }
    // Bound to the tape, so that a failed commit breaks off the run even if the barrier belongs to a later commit.
    let mut commit = Commit::new(&scope.io.tape);
    commit.records(records);
    scope.io.hub.writer.send(commit);
    scope.io.barrier().await
}

/// Runs a tool in a task of its own, so that a panic or hang affects nothing else.
fn spawn_tool(
    scope: &RunScope,
    call: PreparedCall,
    report: impl Fn(ToolResult) -> bool + Send + 'static,
) -> impl Future<Output = ToolResult> + Send + 'static {
    let (progress, mut updates) = ProgressSender::channel();
    let cx = ToolCx {
        run: scope.io.tape.run().clone(),
        session: scope.io.tape.key().clone(),
        call: call.call,
        workdir: scope.profile.workdir.clone(),
        sandbox: scope.profile.confinement.sandbox.clone(),
        cancel: scope.io.cancel.child_token(),
        progress,
        slot: scope.io.slot.clone(),
        variables: scope.tools.variables.clone(),
        origin: scope.request.origin.clone(),
        hub: Some(Hub(scope.io.hub.clone())),
    };
    let secrets = scope.profile.secrets.clone();
    let hooks = scope.hooks.registered.clone();
    let context = scope.call_context(&cx.call, &call.name);
    async move {
        let (name, arguments) = (call.name, call.arguments);
        let params = hooks.has(HookPoint::AfterToolCall).then(|| {
            let masked = secrets.masked_value(&arguments).unwrap_or_else(|| arguments.clone());
            masked.as_object().cloned().unwrap_or_default()
        });
        let (run, started) = (cx.run.to_string(), Instant::now());
        let tool = match call.tool {
            Ok(tool) => tool,
            Err(answer) => return answer,
        };
        // Dropping the run's future aborts the tool's task.
        let mut handle = AbortOnDropHandle::new(task::spawn("tool", async move { tool.call(cx, arguments).await }));
        let result = loop {
            tokio::select! {
                biased;
                Some(partial) = updates.recv() => { report(partial.masked(&secrets)); }
                joined = &mut handle => break joined.unwrap_or_else(|error| panic_result(&name, error)),
            }
        };
        let Some(params) = params else { return result };
        let duration_ms = millis(started.elapsed());
        after_call(&hooks, &context, FinishedCall { run: &run, params, duration_ms }, result.masked(&secrets)).await
    }
}

/// Executes a call without emitting or storing anything. An error if the call has no valid id.
pub(super) async fn hidden_call(
    scope: &mut RunScope,
    toolbox: &Toolbox,
    call: &ToolCall,
) -> Result<Answered, RunError> {
    let prepared = prepare(toolbox, call)
        .ok_or_else(|| RunError::Limit("the model made a tool call without a valid id".to_owned()))?;
    let id = prepared.call.clone();
    let mut batch = [(0, prepared)];
    run_before_hooks(scope, &mut batch).await?;
    let [(_, prepared)] = batch;
    let result = spawn_tool(scope, prepared, |_| true).await;
    Ok(result_entry(scope, &id, &call.name, result))
}

/// Builds the result for the model, with masked secrets and within the size limit.
fn result_entry(scope: &RunScope, call: &CallId, name: &str, result: ToolResult) -> Answered {
    let window = scope.model.spec().context_window;
    let result = truncate_result(result.masked(&scope.profile.secrets), max_chars(window));
    Answered {
        tool_call_id: call.to_string(),
        tool_name: name.to_owned(),
        content: result.content,
        details: result.details,
        is_error: result.is_error,
        timestamp: scope.io.now(),
        extra: serde_json::Map::new(),
    }
}

fn panic_result(name: &str, error: tokio::task::JoinError) -> ToolResult {
    let why = panic_text(error);
    tracing::error!(tool = name, why, "tool panicked");
    ToolResult::error(format!("{name} failed because of a bug in it: {why}"))
        .with_details(json!({"status": "error", "tool": name, "error": why}))
}

/// A tool call by its id, with the name of the tool.
#[derive(Debug, Clone)]
struct NamedCall {
    call: CallId,
    name: String,
}

impl NamedCall {
    fn of(call: &ToolCall) -> Option<Self> {
        Some(Self { call: CallId::parse(&call.id).ok()?, name: call.name.clone() })
    }
}

/// Results as they arrive, and the number of leading calls whose results are in the transcript.
struct ResultTable {
    results: Vec<Option<Arc<Answered>>>,
    recorded: usize,
    /// Calls that may be executed again.
    repeatable: HashSet<usize>,
    /// Calls that were answered without a tool.
    refused: HashSet<usize>,
}

impl ResultTable {
    fn new(calls: usize) -> Self {
        Self { results: vec![None; calls], recorded: 0, repeatable: HashSet::new(), refused: HashSet::new() }
    }

    /// Restores results after a restart: those in the transcript count as recorded, and other known results are reused.
    fn restore(&mut self, scope: &mut RunScope, waiting: &mut VecDeque<(usize, PreparedCall)>) {
        let results = scope.context.history.iter().rev().map_while(|message| match &**message {
            Message::ToolResult(result) => Some(Arc::new(result.clone())),
            Message::User(_) | Message::Assistant(_) | Message::Other(_) => None,
        });
        let mut stored: Vec<_> = results.collect();
        stored.reverse();
        self.recorded = stored.len();
        for (index, result) in stored.into_iter().enumerate() {
            self.results[index] = Some(result);
        }
        waiting.drain(..self.recorded);
        for answer in std::mem::take(&mut scope.tools.known_results) {
            if let Some((_, call)) = waiting.iter_mut().find(|(_, call)| call.call.as_str() == answer.tool_call_id) {
                let Answered { content, details, is_error, .. } = answer;
                call.tool = Err(ToolResult { content, details, is_error });
            }
        }
        let is_repeatable = |call: &PreparedCall| matches!(&call.tool, Ok(tool) if tool.class() != ToolClass::Effect);
        self.repeatable = waiting.iter().filter(|(_, call)| is_repeatable(call)).map(|(index, _)| *index).collect();
    }

    async fn finish(
        &mut self,
        scope: &mut RunScope,
        index: usize,
        NamedCall { call, name }: &NamedCall,
        result: ToolResult,
    ) {
        // Shutdown does not end a run: a repeatable call that it may have cut off is left open, and the next start runs
        // it again.
        if scope.io.hub.stopping.is_cancelled() && self.repeatable.contains(&index) {
            return;
        }
        let shown = Arc::new(result_entry(scope, call, name, result));
        let is_synthetic = self.refused.contains(&index);
        let stored_result =
            hooks::persist(&scope.hooks.registered, &scope.hooks.context, shown.clone(), is_synthetic).await;
        let shown = (!Arc::ptr_eq(&shown, &stored_result)).then_some(shown);
        let done = Rec::ToolDone { run: scope.io.tape.run().clone(), result: Box::new((*stored_result).clone()) };
        let event = StoredEvent::ToolEnded { call: call.clone(), result: stored_result.clone(), shown };
        let mut commit = scope.io.commit_of(event, done);
        self.results[index] = Some(stored_result);
        // Entries keep the order of the calls: this result, and later ones that waited for it.
        while let Some(Some(next)) = self.results.get(self.recorded) {
            let message = Message::ToolResult((**next).clone());
            let (id, record) = scope.io.entry(message.clone());
            commit.record(record);
            scope.context.history.push(id, Arc::new(message));
            self.recorded += 1;
        }
        scope.io.hub.writer.send(commit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_whose_secret_is_lost_is_not_repeated() {
        let (stored, real) = (json!({"content": "key=[secret]"}), json!({"content": "key=sk-canary-12345678"}));
        let known = MaskedArguments { stored: stored.clone(), real: real.clone() };
        assert_eq!(real_arguments(&stored, Some(&known), Resumed::Never), Ok(Some(&real)));
        assert_eq!(real_arguments(&stored, None, Resumed::Perhaps), Err(ToolResult::error(MASKED_RESULT)));
        // A model may write the mask itself, and a hook may have changed the arguments.
        assert_eq!(real_arguments(&stored, None, Resumed::Never), Ok(None));
        assert_eq!(real_arguments(&json!({"content": "other"}), Some(&known), Resumed::Never), Ok(None));
        assert_eq!(real_arguments(&json!({"path": "a"}), None, Resumed::Perhaps), Ok(None));
    }
}
