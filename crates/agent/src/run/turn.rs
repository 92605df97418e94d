//! One model request and its answer.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt, stream::BoxStream};
use homard_model::{
    Answer, Error, ErrorKind, Event, Request, Spec,
    failover::{Note, Step},
    retry::Wait,
};
use homard_proto::{
    CallId,
    message::{Assistant, Block, Message, StopReason, Usage},
};
use homard_reply::blocks::Blocks;
use homard_store::{Rec, repair};
use tokio::time::{Instant, sleep};

use super::{
    AnsweredBy, Concealed, Last, Plea, RunError, RunScope, compact,
    voice::{self, Voice},
};
use crate::{
    context::{
        self,
        budget::{self, Window},
    },
    event::RunEvent,
    secrets::Secrets,
};

/// Result of a turn.
pub(super) enum Said {
    /// The answer contains these tool calls.
    Calls(Arc<Assistant>),
    /// The final answer. It is on the tape; its entry is committed together with the run's end.
    Last(Box<Last>),
}

/// Result of reading a model's stream.
enum Heard {
    /// The model was not asked, because the request is unsuitable for it.
    Refused(Error, Unfit),
    /// The complete answer.
    Whole(Vec<Block>, StopReason, Usage),
    /// The partial answer before a failure, and the error.
    Broken(Answer, Error),
    /// Like `Broken`, but the user has already read part of the answer, so it cannot be retracted.
    CutShort(Vec<Block>, Error),
}

/// Why a request is unsuitable for a model.
enum Unfit {
    /// The context window is too small for any form of this request.
    Small,
    /// The request is too long.
    Long,
}

/// Asks a model and records its answer. After a failure, it retries or tries the next candidate as long as that may
/// help; the final failure is recorded, too, and then returned.
pub(super) async fn ask(scope: &mut RunScope) -> Result<Said, RunError> {
    loop {
        scope.tell_of_failures();
        scope.tell_who_answers();
        let (answer, error, step) = match hear(scope).await? {
            Heard::Whole(content, stop, usage) => {
                if !scope.must_ask_again(&content) {
                    return Ok(keep(scope, content, stop, usage).await);
                }
                scope.guard.answered(usage.cost.total);
                scope.pass(RunEvent::Rewound { message: scope.said });
                discard(scope, "it said nothing to the user", usage);
                continue;
            }
            Heard::CutShort(content, error) => {
                let step = scope.failover.failed(&error, scope.hub.ambient.now_ms());
                match step {
                    Step::End(error) => return Err(leave(scope, content, error).await),
                    Step::Compact => return Err(leave(scope, content, error).await),
                    Step::Wait(_) | Step::Think(_) | Step::Next => {}
                }
                let (event, line, _) = compose(scope, content, StopReason::Length, Usage::default(), None).await;
                scope.record(event, vec![line]);
                scope.plea = Plea::GoOn;
                (Answer::default(), error, step)
            }
            Heard::Broken(answer, error) => {
                let step = scope.failover.failed(&error, scope.hub.ambient.now_ms());
                (answer, error, step)
            }
            Heard::Refused(error, Unfit::Small) => {
                let step = scope.failover.pass_over(&error, scope.hub.ambient.now_ms());
                (Answer::default(), error, step)
            }
            Heard::Refused(error, Unfit::Long) => (Answer::default(), error, Step::Compact),
        };
        let wait = match step {
            Step::Wait(wait) => Some(wait),
            Step::Think(_) | Step::Next => None,
            Step::Compact => {
                if !answer.is_empty() {
                    scope.rewind_blocks();
                    scope.pass(RunEvent::Rewound { message: scope.said });
                }
                discard(scope, error.cause(), Usage::default());
                match scope.recover(error).await? {
                    Ok(()) => continue,
                    Err(error) => {
                        scope.take_back();
                        let error = scope.failover.give_up(&error, scope.hub.ambient.now_ms());
                        return Err(fail(scope, Answer::default(), error).await);
                    }
                }
            }
            Step::End(error) => return Err(fail(scope, answer, error).await),
        };
        if !answer.is_empty() {
            scope.rewind_blocks();
            scope.pass(RunEvent::Rewound { message: scope.said });
        }
        discard(scope, error.cause(), Usage::default());
        if let Some(Wait { after, attempt, most }) = wait {
            let (model, why) = (scope.failover.candidate().to_string(), error.cause().to_owned());
            scope.tell_wait(&why, after);
            scope.pass(RunEvent::Retrying { model, attempt: (attempt, most), after, why });
            let cancel = scope.cancel.clone();
            let slot = scope.slot.clone();
            tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(RunError::Stopped),
                // The slot is lent to other runs during the wait.
                () = slot.lend(sleep(after)) => {}
            }
        }
    }
}

/// Emits that an answer was discarded. After the retraction of its text, so that it is not shown again.
fn discard(scope: &RunScope, why: &str, usage: Usage) {
    scope.tape.note(scope.hub.ambient.now_ms(), RunEvent::Discarded { why: why.to_owned(), usage });
}

/// Records a complete answer.
async fn keep(scope: &mut RunScope, mut content: Vec<Block>, stop: StopReason, usage: Usage) -> Said {
    let stop = scope.without_forbidden_calls(&mut content, stop);
    scope.plea = Plea::Nothing;
    scope.failover.succeeded(scope.hub.ambient.now_ms());
    settle_ids(&mut content);
    scope.arguments = concealed(&content, &scope.profile.secrets);
    let (event, line, said) = compose(scope, content, stop, usage, None).await;
    scope.tell_answer(&said);
    if said.tool_calls().next().is_some() {
        scope.record(event, vec![line]);
        return Said::Calls(said);
    }
    scope.tape.hold(scope.hub.ambient.now_ms(), event);
    Said::Last(Box::new(Last {
        records: vec![line],
        facts: 1,
        credential: scope.failover.sticky().cloned(),
        answered_by: Some(AnsweredBy::of(scope.failover.candidate().model.spec())),
        ..Last::default()
    }))
}

/// Sends the request to the current candidate and reads the answer.
async fn hear(scope: &mut RunScope) -> Result<Heard, RunError> {
    let model = scope.failover.candidate().model.clone();
    let spec = model.spec();
    match Window::of(spec) {
        Window::TooSmall => return Ok(Heard::Refused(budget::too_small(spec), Unfit::Small)),
        Window::Tight if scope.said == 0 => {
            let (provider, model, tokens) = (&spec.provider, &spec.model, spec.context_window);
            tracing::warn!(%provider, %model, tokens, "a model with a small context answers; it will forget soon");
        }
        Window::Tight | Window::Fine => {}
    }
    let mut request = scope.request(spec);
    // The prompt and the tools are long, so their tokens are estimated once.
    let mut overhead = compact::overhead(&request);
    if let Some(error) = scope.refusal(spec, overhead) {
        return Ok(Heard::Refused(error, Unfit::Small));
    }
    if scope.is_due(spec, overhead) {
        if let Err(error) = scope.make_room(spec, overhead).await? {
            return Ok(Heard::Refused(error, Unfit::Small));
        }
        request = scope.request(spec);
        overhead = compact::overhead(&request);
    }
    if let Some(error) = budget::overflow(spec, overhead, scope.history.said()) {
        return Ok(Heard::Refused(error, Unfit::Long));
    }
    if scope.cancel.is_cancelled() {
        return Err(RunError::Stopped);
    }
    let prompt = scope.tokens(spec, overhead);
    let (payer, cancel) = (scope.payer.clone(), scope.cancel.clone());
    let hold = tokio::select! {
        biased;
        () = cancel.cancelled() => return Err(RunError::Stopped),
        hold = payer.reserve(spec, prompt, &mut request) => hold.map_err(RunError::Budget)?,
    };
    scope.tell_question(spec, &request);
    let asked = scope.asked(spec, &request, prompt);
    let now = scope.hub.ambient.now_ms();
    scope.tape.note(now, RunEvent::Asking(Arc::new(asked)));
    scope.failover.asked(now);
    let heard = listen(scope, spec, model.stream(request)).await?;
    match &heard {
        Heard::Whole(_, _, usage) => hold.settle(usage),
        Heard::Broken(answer, _) if answer.is_empty() => hold.give_back(),
        Heard::Refused(..) | Heard::Broken(..) | Heard::CutShort(..) => drop(hold),
    }
    Ok(heard)
}

/// Reads one answer and emits the parts for the user.
async fn listen(scope: &mut RunScope, spec: &Spec, mut stream: BoxStream<'static, Event>) -> Result<Heard, RunError> {
    let idle = scope.failover.idle(scope.hub.ambient.now_ms());
    let mut answer = Answer::default();
    let mut voice = Voice::new(&spec.provider, scope.said, &scope.profile.secrets);
    // The request is sent while the previous step is still being committed; if the commit fails, the run ends.
    let (hub, tape, cancel) = (scope.hub.clone(), scope.tape.clone(), scope.cancel.clone());
    let on_disk = super::on_disk(&hub, &tape);
    tokio::pin!(on_disk);
    let (mut is_on_disk, mut is_heard) = (false, false);
    // Every event resets the idle timeout, also one without content. The timer is checked when it fires, not reset each
    // time.
    let mut heard = Instant::now();
    let mut patience = Box::pin(sleep(idle));
    loop {
        let due = scope.blocks.as_ref().and_then(Blocks::due);
        let event = tokio::select! {
            biased;
            () = cancel.cancelled() => {
                scope.note_timeout();
                return Err(RunError::Stopped);
            }
            stored = &mut on_disk, if !is_on_disk => {
                stored?;
                is_on_disk = true;
                continue;
            }
            event = stream.next() => {
                if !std::mem::replace(&mut is_heard, true) {
                    tape.note(hub.ambient.now_ms(), RunEvent::Heard);
                }
                if event.as_ref().is_some_and(says_something) {
                    scope.failover.heard();
                }
                heard = Instant::now();
                event
            }
            () = voice::until_due(due, hub.ambient.now_ms()) => {
                voice.tick(scope);
                continue;
            }
            () = &mut patience => {
                if heard.elapsed() < idle {
                    patience.as_mut().reset(heard + idle);
                    continue;
                }
                Some(Event::Failed(fell_silent(spec, idle)))
            }
        };
        let failed = match event {
            Some(Event::Text(delta)) => {
                voice.say(scope, &delta);
                answer.text(&delta);
                continue;
            }
            Some(Event::Thinking(delta)) => {
                voice.think(scope, &delta);
                answer.thinking(&delta);
                continue;
            }
            Some(Event::Call(delta)) => {
                voice.pause(scope);
                answer.call(delta);
                continue;
            }
            Some(Event::Seal(seal)) => {
                answer.seal(seal);
                continue;
            }
            Some(Event::Alive) => continue,
            Some(Event::Done(done)) if done.stop == StopReason::Error => gave_up(spec),
            Some(Event::Done(done)) => {
                let mut content = answer.into_blocks();
                content.iter_mut().for_each(|block| scope.profile.secrets.mask_words(block));
                let content = voice.finish(scope, content);
                return Ok(Heard::Whole(content, done.stop, done.usage));
            }
            Some(Event::Failed(error)) => error,
            None => cut_off(spec),
        };
        if scope.blocks.as_ref().is_some_and(Blocks::has_sent) {
            let mut content = answer.into_partial();
            scope.profile.secrets.mask_blocks(&mut content);
            return Ok(Heard::CutShort(voice.finish(scope, content), failed));
        }
        return Ok(Heard::Broken(answer, failed));
    }
}

impl RunScope {
    /// Builds a model request.
    pub(super) fn request(&mut self, spec: &Spec) -> Request {
        let shown = self.shown(spec);
        let mut request = self.request_of(spec, &shown);
        self.plead(&mut request);
        request
    }

    /// Builds a model request with this history.
    pub(super) fn request_of(&mut self, spec: &Spec, shown: &[Arc<Message>]) -> Request {
        let policy = repair::Policy::of(&spec.api, &spec.provider, &spec.model);
        let (system, stable, tools) = {
            let written = self.prompt(spec);
            (written.prompt.text.clone(), written.prompt.stable, written.tools.clone())
        };
        let rules = self.hub.setup.rules();
        let messages = context::conversation(shown, &policy, (&self.profile, &rules, self.tape.key()));
        let (thinking, session) = (self.failover.level(), Some(self.session.as_str().into()));
        Request { system, stable, messages, tools, thinking, session, ..Request::default() }
    }

    /// Emits events for failed candidates that were not reported yet.
    fn tell_of_failures(&mut self) {
        let notes = self.failover.notes()[self.told_failures..].to_vec();
        self.told_failures += notes.len();
        for Note { candidate, reason, why, .. } in notes {
            self.pass(RunEvent::Switched { from: candidate.to_string(), reason, why });
        }
    }

    /// Emits an event if another model is asked than before.
    fn tell_who_answers(&mut self) {
        let spec = self.failover.candidate().model.spec();
        let asked = (spec.provider.clone(), spec.model.clone());
        if self.told_model != asked {
            let (provider, model) = asked.clone();
            self.told_model = asked;
            self.pass(RunEvent::Answering { provider, model });
        }
    }

    /// Attributes a timeout of the run to the current model.
    fn note_timeout(&mut self) {
        let now = self.hub.ambient.now_ms();
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.failover.timed_out(now);
        }
    }
}

/// True if an event is part of an answer.
fn says_something(event: &Event) -> bool {
    match event {
        Event::Text(_) | Event::Thinking(_) | Event::Call(_) | Event::Seal(_) | Event::Done(_) => true,
        Event::Alive | Event::Failed(_) => false,
    }
}

fn fell_silent(spec: &Spec, idle: Duration) -> Error {
    let message = format!("{}/{} said nothing for {} s", spec.provider, spec.model, idle.as_secs());
    Error::new(ErrorKind::Timeout, message)
}

fn gave_up(spec: &Spec) -> Error {
    Error::new(ErrorKind::Server, format!("{}/{} ended its answer with an error", spec.provider, spec.model))
}

fn cut_off(spec: &Spec) -> Error {
    Error::new(ErrorKind::Truncated, format!("{}/{} stopped in the middle of its answer", spec.provider, spec.model))
}

/// Records the partial answer before a failure, marked as failed: visible to people, not sent to models.
async fn fail(scope: &mut RunScope, answer: Answer, error: Error) -> RunError {
    leave(scope, answer.into_partial(), error).await
}

async fn leave(scope: &mut RunScope, content: Vec<Block>, error: Error) -> RunError {
    let why = Some(error.message.clone());
    let (event, line, _) = compose(scope, content, StopReason::Error, Usage::default(), why).await;
    scope.record(event, vec![line]);
    error.into()
}

async fn compose(
    scope: &mut RunScope,
    mut content: Vec<Block>,
    stop_reason: StopReason,
    usage: Usage,
    error_message: Option<String>,
) -> (RunEvent, Rec, Arc<Assistant>) {
    scope.profile.secrets.mask_blocks(&mut content);
    let model = scope.failover.candidate().model.clone();
    let spec = model.spec();
    let said = Assistant {
        content,
        api: spec.api.clone(),
        provider: spec.provider.clone(),
        model: spec.model.clone(),
        usage,
        stop_reason,
        error_message,
        timestamp: scope.hub.ambient.now_ms(),
        extra: serde_json::Map::new(),
    };
    let said = Arc::new(scope.written_as(said).await);
    let message = Message::Assistant((*said).clone());
    let (entry, line) = scope.line(message.clone());
    scope.history.push(entry.clone(), Arc::new(message));
    scope.said += 1;
    scope.is_tried = false;
    (RunEvent::Assistant { entry, said: said.clone() }, line, said)
}

/// Returns the original arguments of calls in which secrets are masked in the stored message.
fn concealed(content: &[Block], secrets: &Secrets) -> HashMap<String, Concealed> {
    let calls = content.iter().filter_map(|block| match block {
        Block::ToolCall(call) => Some(call),
        Block::Text(_) | Block::Thinking(_) | Block::Image(_) | Block::Other(_) => None,
    });
    let masked = calls.filter_map(|call| {
        let stored = secrets.masked_value(&call.arguments)?;
        Some((call.id.clone(), Concealed { stored, real: call.arguments.clone() }))
    });
    masked.collect()
}

/// Makes the ids of a message's calls valid and unique: results are matched to calls by id.
pub(super) fn settle_ids(content: &mut [Block]) {
    let mut taken = HashSet::new();
    for (place, block) in content.iter_mut().enumerate() {
        if let Block::ToolCall(call) = block {
            if CallId::parse(&call.id).is_err() {
                call.id = format!("call_{place}");
            }
            while !taken.insert(call.id.clone()) {
                call.id.push_str("_again");
            }
        }
    }
}
