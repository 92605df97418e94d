//! One question to the model, and its answer.

use std::{collections::HashSet, sync::Arc};

use futures_util::StreamExt;
use homard_model::{Answer, Error, ErrorKind, Event, Request, Spec};
use homard_proto::{
    CallId,
    message::{Assistant, Block, Message, StopReason, Usage},
};
use homard_store::{Rec, repair};

use tokio::time::{Instant, sleep};

use super::{Last, RunError, RunScope};
use crate::{context::notes, event::RunEvent};

/// An answer.
pub(super) enum Said {
    /// It wants these calls answered.
    Calls(Arc<Assistant>),
    /// It is the last one. It is on the tape; its line is stored together with the run's end.
    Last(Last),
}

/// Asks the model and records its answer. A bad end is recorded too, and then returned.
pub(super) async fn ask(scope: &mut RunScope) -> Result<Said, RunError> {
    let spec = scope.profile.model.spec();
    let policy = repair::Policy::of(&spec.api, &spec.provider, &spec.model);
    let request = Request {
        system: scope.system.clone(),
        messages: notes::spelled_out(repair::for_model(&scope.history, &policy)),
        tools: scope.profile.toolbox.specs(),
        ..Request::default()
    };
    let mut stream = scope.profile.model.stream(request);
    let mut answer = Answer::default();
    let ordinal = scope.said;
    // The model is asked while the last step is still on its way to disk; if it does not get there, the run is over.
    let (hub, tape, cancel) = (scope.hub.clone(), scope.tape.clone(), scope.cancel.clone());
    let on_disk = super::on_disk(&hub, &tape);
    tokio::pin!(on_disk);
    let mut is_on_disk = false;
    // Anything that comes counts, also what carries no words. The timer is looked at when it fires, not set with each word.
    let mut heard = Instant::now();
    let mut patience = Box::pin(sleep(spec.idle));
    let (stop, usage) = loop {
        let event = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(RunError::Stopped),
            stored = &mut on_disk, if !is_on_disk => {
                stored?;
                is_on_disk = true;
                continue;
            }
            event = stream.next() => {
                heard = Instant::now();
                event
            }
            () = &mut patience => {
                if heard.elapsed() < spec.idle {
                    patience.as_mut().reset(heard + spec.idle);
                    continue;
                }
                Some(Event::Failed(fell_silent(spec)))
            }
        };
        match event {
            Some(Event::Text(delta)) => {
                scope.tape.text(scope.hub.ambient.now_ms(), ordinal, &delta);
                answer.text(&delta);
            }
            Some(Event::Thinking(delta)) => {
                scope.tape.thinking(scope.hub.ambient.now_ms(), ordinal, &delta);
                answer.thinking(&delta);
            }
            Some(Event::Call(delta)) => answer.call(delta),
            Some(Event::Seal(seal)) => answer.seal(seal),
            Some(Event::Alive) => {}
            Some(Event::Done(done)) if done.stop == StopReason::Error => {
                return Err(fail(scope, answer, gave_up(scope)));
            }
            Some(Event::Done(done)) => break (done.stop, done.usage),
            Some(Event::Failed(error)) => return Err(fail(scope, answer, error)),
            None => return Err(fail(scope, answer, cut_off(scope))),
        }
    };
    let mut content = answer.into_blocks();
    settle_ids(&mut content);
    let (event, line, said) = compose(scope, content, stop, usage, None);
    if said.tool_calls().next().is_some() {
        scope.record(event, vec![line]);
        return Ok(Said::Calls(said));
    }
    scope.tape.hold(scope.hub.ambient.now_ms(), event);
    Ok(Said::Last(Last { records: vec![line], facts: 1 }))
}

fn fell_silent(spec: &Spec) -> Error {
    let message = format!("{}/{} said nothing for {} s", spec.provider, spec.model, spec.idle.as_secs());
    Error::new(ErrorKind::Timeout, message)
}

fn gave_up(scope: &RunScope) -> Error {
    let spec = scope.profile.model.spec();
    Error::new(ErrorKind::Server, format!("{}/{} ended its answer with an error", spec.provider, spec.model))
}

fn cut_off(scope: &RunScope) -> Error {
    let spec = scope.profile.model.spec();
    Error::new(ErrorKind::Truncated, format!("{}/{} stopped in the middle of its answer", spec.provider, spec.model))
}

/// Keeps what was said before the failure, marked as failed, so that people see it and models do not.
fn fail(scope: &mut RunScope, answer: Answer, error: Error) -> RunError {
    let why = Some(error.message.clone());
    let (event, line, _) = compose(scope, answer.into_partial(), StopReason::Error, Usage::default(), why);
    scope.record(event, vec![line]);
    error.into()
}

fn compose(
    scope: &mut RunScope,
    content: Vec<Block>,
    stop_reason: StopReason,
    usage: Usage,
    error_message: Option<String>,
) -> (RunEvent, Rec, Arc<Assistant>) {
    let spec = scope.profile.model.spec();
    let said = Arc::new(Assistant {
        content,
        api: spec.api.clone(),
        provider: spec.provider.clone(),
        model: spec.model.clone(),
        usage,
        stop_reason,
        error_message,
        timestamp: scope.hub.ambient.now_ms(),
        extra: serde_json::Map::new(),
    });
    let message = Message::Assistant((*said).clone());
    let (entry, line) = scope.line(message.clone());
    scope.history.push(Arc::new(message));
    scope.said += 1;
    (RunEvent::Assistant { entry, said: said.clone() }, line, said)
}

/// Makes the ids of a message's calls valid and different from one another: a result is matched to its call by them.
fn settle_ids(content: &mut [Block]) {
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
