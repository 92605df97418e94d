//! One model request and its answer.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt, stream::BoxStream};
use homard_model::{
    Error, ErrorKind, ModelAnswer, ModelEvent, ModelSpec, Request,
    failover::{CandidateNote, FailoverStep},
    retry::RetryDelay,
    stream::AnswerEnd,
};
use homard_prompt::{
    context_budget::{self as budget, WindowFit},
    conversation::{self, HistoryView},
    history_limits,
};
use homard_proto::{
    CallId,
    message::{Assistant, Block, Message, StopReason, Usage},
};
use homard_reply::blocks::BlockStream;
use homard_secrets::Secrets;
use homard_store::{Rec, repair};
use tokio::time::{Instant, sleep};

use super::{
    AnsweredBy, FinalRecords, ModelNudge, RunError, RunScope, compact,
    nudge::must_ask_again,
    prompt_fingerprint::describe_request,
    prune,
    scope::{MaskedArguments, wait_on_disk},
    streamed_reply::{self, StreamedReply},
};
use crate::event::{RequestEvent, StoredEvent};

/// Result of a turn.
pub(super) enum TurnResult {
    /// The answer contains these tool calls.
    Calls(Arc<Assistant>),
    /// The final answer. It is on the tape; its entry is committed together with the run's end.
    Last(Box<FinalRecords>),
}

/// Result of reading a model's stream.
enum StreamResult {
    /// The model was not asked, because the request is unsuitable for it.
    Refused(Error, Rejection),
    /// The complete answer.
    Complete(Vec<Block>, StopReason, Usage),
    /// The partial answer before a failure, and the error.
    Failed(ModelAnswer, Error),
    /// Like `Failed`, but the user has already read part of the answer, so it cannot be retracted.
    CutShort(Vec<Block>, Error),
}

/// Why a request is unsuitable for a model.
enum Rejection {
    /// The context window is too small for any form of this request.
    Small,
    /// The request is too long.
    Long,
}

/// Asks a model and records its answer. After a failure, it retries or tries the next candidate as long as that may
/// help; the final failure is recorded, too, and then returned.
pub(super) async fn ask(scope: &mut RunScope) -> Result<TurnResult, RunError> {
    loop {
        emit_failures(scope);
        emit_model(scope);
        let (answer, error, step) = match request_answer(scope).await? {
            StreamResult::Complete(content, stop, usage) => {
                if !must_ask_again(scope, &content) {
                    return Ok(record_answer(scope, content, stop, usage).await);
                }
                scope.model.guard.answered(usage.cost.total);
                scope.io.emit(RequestEvent::MessageReset { message: scope.output.message_count });
                discard(scope, "the answer contains no text for the user", usage);
                continue;
            }
            StreamResult::CutShort(content, error) => {
                let step = scope.model.failover.failed(&error, scope.io.now());
                match step {
                    FailoverStep::End(error) => return Err(record_failure(scope, content, error).await),
                    FailoverStep::Compact => return Err(record_failure(scope, content, error).await),
                    FailoverStep::RetryAfter(_) | FailoverStep::RetryWithLevel(_) | FailoverStep::Next => {}
                }
                let (event, record, _) = compose(scope, content, StopReason::Length, Usage::default(), None).await;
                scope.io.record(event, record);
                scope.model.nudge = ModelNudge::Continue;
                (ModelAnswer::default(), error, step)
            }
            StreamResult::Failed(answer, error) => {
                let step = scope.model.failover.failed(&error, scope.io.now());
                (answer, error, step)
            }
            StreamResult::Refused(error, Rejection::Small) => {
                let step = scope.model.failover.skip_current(&error, scope.io.now());
                (ModelAnswer::default(), error, step)
            }
            StreamResult::Refused(error, Rejection::Long) => (ModelAnswer::default(), error, FailoverStep::Compact),
        };
        let wait = match step {
            FailoverStep::RetryAfter(wait) => Some(wait),
            FailoverStep::RetryWithLevel(_) | FailoverStep::Next => None,
            FailoverStep::Compact => {
                if !answer.is_empty() {
                    scope.output.rewind_blocks();
                    scope.io.emit(RequestEvent::MessageReset { message: scope.output.message_count });
                }
                discard(scope, error.cause(), Usage::default());
                match compact::recover(scope, error).await? {
                    Ok(()) => continue,
                    Err(error) => {
                        compact::undo_compactions(scope);
                        let error = scope.model.failover.give_up(&error, scope.io.now());
                        return Err(fail(scope, ModelAnswer::default(), error).await);
                    }
                }
            }
            FailoverStep::End(error) => return Err(fail(scope, answer, error).await),
        };
        if !answer.is_empty() {
            scope.output.rewind_blocks();
            scope.io.emit(RequestEvent::MessageReset { message: scope.output.message_count });
        }
        discard(scope, error.cause(), Usage::default());
        if let Some(RetryDelay { delay, attempt, max_attempts }) = wait {
            let model = scope.model.failover.candidate().to_string();
            // A server that cannot be reached is rarely back after a retry: the user sees at once what to check.
            let why = if error.kind == ErrorKind::Connect { &error.message } else { error.cause() }.to_owned();
            streamed_reply::report_wait(scope, &why, delay);
            scope.io.emit(RequestEvent::Retrying { model, attempt: (attempt, max_attempts), after: delay, why });
            let cancel = scope.io.cancel.clone();
            let slot = scope.io.slot.clone();
            tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(RunError::Stopped),
                // The slot is lent to other runs during the wait.
                () = slot.lend(sleep(delay)) => {}
            }
        }
    }
}

/// Emits that an answer was discarded. After the retraction of its text, so that it is not shown again.
fn discard(scope: &RunScope, why: &str, usage: Usage) {
    scope.io.tape.emit_silent(scope.io.now(), RequestEvent::AnswerDropped { why: why.to_owned(), usage });
}

/// Records a complete answer.
async fn record_answer(scope: &mut RunScope, mut content: Vec<Block>, stop: StopReason, usage: Usage) -> TurnResult {
    let stop = scope.model.nudge.remove_forbidden_calls(&mut content, stop);
    scope.model.nudge = ModelNudge::Nothing;
    scope.model.failover.succeeded(scope.io.now());
    normalize_call_ids(&mut content);
    scope.tools.masked_arguments = masked_arguments(&content, &scope.profile.secrets);
    let (event, record, answer) = compose(scope, content, stop, usage, None).await;
    scope.fire_llm_output(&answer);
    if answer.tool_calls().next().is_some() {
        scope.io.record(event, record);
        return TurnResult::Calls(answer);
    }
    let commit = scope.io.commit_of(event, record);
    TurnResult::Last(Box::new(FinalRecords {
        commit: Some(commit),
        credential: scope.model.failover.sticky().cloned(),
        answered_by: Some(AnsweredBy::of(scope.model.spec())),
        ..FinalRecords::default()
    }))
}

/// Sends the request to the current candidate and reads the answer.
async fn request_answer(scope: &mut RunScope) -> Result<StreamResult, RunError> {
    let model = scope.model.current();
    let spec = model.spec();
    match WindowFit::of(spec) {
        WindowFit::TooSmall => return Ok(StreamResult::Refused(budget::too_small(spec), Rejection::Small)),
        WindowFit::Small if scope.output.message_count == 0 => {
            let (provider, model, tokens) = (&spec.provider, &spec.model, spec.context_window);
            tracing::warn!(%provider, %model, tokens, "model has a small context window; expect frequent compactions");
        }
        WindowFit::Small | WindowFit::Fine => {}
    }
    let mut request = build_request(scope, spec);
    // The prompt and the tools are long, so their tokens are estimated once.
    let mut overhead = compact::overhead(&request);
    if let Some(error) = compact::refusal(scope, spec, overhead) {
        return Ok(StreamResult::Refused(error, Rejection::Small));
    }
    if compact::is_compaction_due(scope, spec, overhead) {
        if let Err(error) = compact::compact_before_request(scope, spec, overhead).await? {
            return Ok(StreamResult::Refused(error, Rejection::Small));
        }
        request = build_request(scope, spec);
        overhead = compact::overhead(&request);
    }
    if let Some(error) = budget::overflow(spec, overhead, scope.context.history.measured()) {
        return Ok(StreamResult::Refused(error, Rejection::Long));
    }
    if scope.io.cancel.is_cancelled() {
        return Err(RunError::Stopped);
    }
    let prompt = compact::tokens(scope, spec, overhead);
    let (run_budget, cancel) = (scope.model.budget.clone(), scope.io.cancel.clone());
    let reservation = tokio::select! {
        biased;
        () = cancel.cancelled() => return Err(RunError::Stopped),
        reservation = run_budget.reserve(spec, prompt, &mut request) => reservation.map_err(RunError::Budget)?,
    };
    scope.fire_llm_input(spec, &request);
    let span = describe_request(scope, spec, &request, prompt);
    let now = scope.io.now();
    scope.io.tape.emit_silent(now, RequestEvent::Requested(Arc::new(span)));
    scope.model.failover.requested(now);
    let result = read_stream(scope, spec, model.stream(request)).await?;
    match &result {
        StreamResult::Complete(_, _, usage) => reservation.settle(usage),
        StreamResult::Failed(answer, _) if answer.is_empty() => reservation.release(),
        StreamResult::Refused(..) | StreamResult::Failed(..) | StreamResult::CutShort(..) => drop(reservation),
    }
    Ok(result)
}

/// Reads one answer and emits the parts for the user.
async fn read_stream(
    scope: &mut RunScope,
    spec: &ModelSpec,
    mut stream: BoxStream<'static, ModelEvent>,
) -> Result<StreamResult, RunError> {
    let idle = scope.model.failover.idle(scope.io.now());
    let mut answer = ModelAnswer::default();
    let mut reply = StreamedReply::new(&spec.provider, scope.output.message_count, &scope.profile.secrets);
    // The request is sent while the previous step is still being committed; if the commit fails, the run ends.
    let (hub, tape, cancel) = (scope.io.hub.clone(), scope.io.tape.clone(), scope.io.cancel.clone());
    let on_disk = wait_on_disk(&hub, &tape);
    tokio::pin!(on_disk);
    let (mut is_on_disk, mut has_event) = (false, false);
    // Every event resets the idle timeout, also one without content. The timer is checked when it fires, not reset each
    // time.
    let mut last_event_at = Instant::now();
    let mut idle_timer = Box::pin(sleep(idle));
    loop {
        let due = scope.output.blocks.as_ref().and_then(BlockStream::due);
        let event = tokio::select! {
            biased;
            () = cancel.cancelled() => {
                scope.model.note_timeout(scope.io.deadline, scope.io.now());
                return Err(RunError::Stopped);
            }
            stored = &mut on_disk, if !is_on_disk => {
                stored?;
                is_on_disk = true;
                continue;
            }
            event = stream.next() => {
                // Silence is not an event of the answer.
                if let Some(ModelEvent::NoResponse(why)) = event {
                    let model = scope.model.failover.candidate().to_string();
                    scope.io.emit(RequestEvent::NoResponse { model, why });
                    continue;
                }
                if !std::mem::replace(&mut has_event, true) {
                    tape.emit_silent(hub.ambient.now_ms(), RequestEvent::FirstToken);
                }
                if event.as_ref().is_some_and(is_answer_part) {
                    scope.model.failover.responded();
                }
                last_event_at = Instant::now();
                event
            }
            () = streamed_reply::until_due(due, hub.ambient.now_ms()) => {
                reply.tick(scope);
                continue;
            }
            () = &mut idle_timer => {
                if last_event_at.elapsed() < idle {
                    idle_timer.as_mut().reset(last_event_at + idle);
                    continue;
                }
                Some(ModelEvent::Failed(idle_error(spec, idle)))
            }
        };
        if let Some(end) = read_event(scope, event, spec, &mut answer, &mut reply) {
            return Ok(end_stream(scope, answer, reply, end));
        }
    }
}

/// Adds an event to the answer and shows it. Returns how the answer ended, if it did.
fn read_event(
    scope: &mut RunScope,
    event: Option<ModelEvent>,
    spec: &ModelSpec,
    answer: &mut ModelAnswer,
    reply: &mut StreamedReply,
) -> Option<Result<AnswerEnd, Error>> {
    match event {
        Some(ModelEvent::Text(delta)) => {
            reply.push_text(scope, &delta);
            answer.text(&delta);
        }
        Some(ModelEvent::Thinking(delta)) => {
            reply.push_reasoning(scope, &delta);
            answer.thinking(&delta);
        }
        Some(ModelEvent::Call(delta)) => {
            reply.pause(scope);
            answer.call(delta);
        }
        Some(ModelEvent::Signature(signature)) => answer.sign(signature),
        Some(ModelEvent::Heartbeat | ModelEvent::NoResponse(_)) => {}
        Some(ModelEvent::Done(done)) if done.stop == StopReason::Error => return Some(Err(error_stop(spec))),
        Some(ModelEvent::Done(done)) => return Some(Ok(done)),
        Some(ModelEvent::Failed(error)) => return Some(Err(error)),
        None => return Some(Err(truncated_error(spec))),
    }
    None
}

/// Completes an answer. Text that the user has read in blocks is kept, also if the model failed afterwards.
fn end_stream(
    scope: &mut RunScope,
    answer: ModelAnswer,
    reply: StreamedReply,
    end: Result<AnswerEnd, Error>,
) -> StreamResult {
    match end {
        Ok(done) => {
            let mut content = answer.into_blocks();
            content.iter_mut().for_each(|block| scope.profile.secrets.mask_text_block(block));
            StreamResult::Complete(reply.finish(scope, content), done.stop, done.usage)
        }
        Err(error) if scope.output.blocks.as_ref().is_some_and(BlockStream::has_sent) => {
            let mut content = answer.into_partial();
            scope.profile.secrets.mask_blocks(&mut content);
            StreamResult::CutShort(reply.finish(scope, content), error)
        }
        Err(error) => StreamResult::Failed(answer, error),
    }
}

/// Builds a model request.
pub(super) fn build_request(scope: &mut RunScope, spec: &ModelSpec) -> Request {
    let history = prune::pruned_history(scope, spec);
    let mut request = request_with(scope, spec, &history);
    scope.model.nudge.add_to(&mut request, scope.io.now());
    request
}

/// Builds a model request with this history.
pub(super) fn request_with(scope: &mut RunScope, spec: &ModelSpec, history: &[Arc<Message>]) -> Request {
    let policy = repair::ProviderPolicy::of(&spec.api, &spec.provider, &spec.model);
    let (system, stable, tools) = {
        let rendered = scope.rendered_prompt(spec);
        (rendered.prompt.text.clone(), rendered.prompt.stable, rendered.tools.clone())
    };
    let rules = scope.io.hub.config.rules();
    let messages = conversation::conversation(
        history,
        HistoryView {
            zone: scope.profile.prompt.zone.as_ref(),
            max_turns: history_limits::limit(&rules.history, scope.io.tape.key()),
            policy: &policy,
        },
    );
    let (thinking, session) = (scope.model.failover.level(), Some(scope.io.session.as_str().into()));
    Request { system, stable_bytes: stable, messages, tools, thinking, session, ..Request::default() }
}

/// Emits events for failed candidates that were not reported yet.
fn emit_failures(scope: &mut RunScope) {
    let notes = scope.model.failover.notes()[scope.model.reported_failures..].to_vec();
    scope.model.reported_failures += notes.len();
    for CandidateNote { candidate, reason, why, .. } in notes {
        scope.io.emit(RequestEvent::CandidateFailed { from: candidate.to_string(), reason, why });
    }
}

/// Emits an event if another model is asked than before.
fn emit_model(scope: &mut RunScope) {
    let spec = scope.model.spec();
    let current_model = (spec.provider.clone(), spec.model.clone());
    if scope.model.reported != current_model {
        let (provider, model) = current_model.clone();
        scope.model.reported = current_model;
        scope.io.emit(RequestEvent::Changed { provider, model });
    }
}

/// True if an event is part of an answer.
fn is_answer_part(event: &ModelEvent) -> bool {
    match event {
        ModelEvent::Text(_)
        | ModelEvent::Thinking(_)
        | ModelEvent::Call(_)
        | ModelEvent::Signature(_)
        | ModelEvent::Done(_) => true,
        ModelEvent::Heartbeat | ModelEvent::NoResponse(_) | ModelEvent::Failed(_) => false,
    }
}

fn idle_error(spec: &ModelSpec, idle: Duration) -> Error {
    let message = format!("{}/{} sent no data for {} s", spec.provider, spec.model, idle.as_secs());
    Error::new(ErrorKind::Timeout, message)
}

fn error_stop(spec: &ModelSpec) -> Error {
    Error::new(ErrorKind::Server, format!("{}/{} ended its answer with an error", spec.provider, spec.model))
}

fn truncated_error(spec: &ModelSpec) -> Error {
    Error::new(ErrorKind::Truncated, format!("{}/{} stopped in the middle of its answer", spec.provider, spec.model))
}

/// Records the partial answer before a failure, marked as failed: visible to people, not sent to models.
async fn fail(scope: &mut RunScope, answer: ModelAnswer, error: Error) -> RunError {
    record_failure(scope, answer.into_partial(), error).await
}

async fn record_failure(scope: &mut RunScope, content: Vec<Block>, error: Error) -> RunError {
    let why = Some(error.message.clone());
    let (event, record, _) = compose(scope, content, StopReason::Error, Usage::default(), why).await;
    scope.io.record(event, record);
    error.into()
}

async fn compose(
    scope: &mut RunScope,
    mut content: Vec<Block>,
    stop_reason: StopReason,
    usage: Usage,
    error_message: Option<String>,
) -> (StoredEvent, Rec, Arc<Assistant>) {
    scope.profile.secrets.mask_blocks(&mut content);
    let model = scope.model.current();
    let spec = model.spec();
    let answer = Assistant {
        content,
        api: spec.api.clone(),
        provider: spec.provider.clone(),
        model: spec.model.clone(),
        usage,
        stop_reason,
        error_message,
        timestamp: scope.io.now(),
        extra: serde_json::Map::new(),
    };
    let answer = Arc::new(scope.hooks.before_write(answer).await);
    let message = Message::Assistant((*answer).clone());
    let (entry, record) = scope.io.entry(message.clone());
    scope.context.history.push(entry.clone(), Arc::new(message));
    scope.output.message_count += 1;
    scope.context.is_exhausted = false;
    (StoredEvent::Assistant { entry, message: answer.clone() }, record, answer)
}

/// Returns the original arguments of calls in which secrets are masked in the stored message.
fn masked_arguments(content: &[Block], secrets: &Secrets) -> HashMap<String, MaskedArguments> {
    let calls = content.iter().filter_map(|block| match block {
        Block::ToolCall(call) => Some(call),
        Block::Text(_) | Block::Thinking(_) | Block::Image(_) | Block::Other(_) => None,
    });
    let masked = calls.filter_map(|call| {
        let stored = secrets.masked_value(&call.arguments)?;
        Some((call.id.clone(), MaskedArguments { stored, real: call.arguments.clone() }))
    });
    masked.collect()
}

/// Makes the ids of a message's calls valid and unique: results are matched to calls by id.
pub(super) fn normalize_call_ids(content: &mut [Block]) {
    let mut seen = HashSet::new();
    for (index, block) in content.iter_mut().enumerate() {
        if let Block::ToolCall(call) = block {
            if CallId::parse(&call.id).is_err() {
                call.id = format!("call_{index}");
            }
            while !seen.insert(call.id.clone()) {
                call.id.push_str("_again");
            }
        }
    }
}
