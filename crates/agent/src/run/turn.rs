//! One question to the model, and its answer.

use std::{collections::HashSet, sync::Arc};

use futures_util::StreamExt;
use homard_model::{Answer, Error, ErrorKind, Event, Request};
use homard_proto::{
    CallId,
    message::{Assistant, Block, Message, StopReason, Usage},
    transcript::{Entry, Kind},
};
use homard_store::{Rec, repair};

use super::{RunError, RunScope};
use crate::{ambient::iso, event::RunEvent};

/// Asks the model and records its answer. A bad end is recorded too, and then returned.
pub(super) async fn ask(scope: &mut RunScope) -> Result<Arc<Assistant>, RunError> {
    let request = Request {
        system: scope.system.clone(),
        messages: repair::view(&scope.history),
        tools: scope.profile.toolbox.specs(),
    };
    let mut stream = scope.profile.model.stream(request);
    let mut answer = Answer::default();
    let ordinal = scope.said;
    // The model is asked while the last step is still on its way to disk; if it does not get there, the run is over.
    let (hub, tape, cancel) = (scope.hub.clone(), scope.tape.clone(), scope.cancel.clone());
    let on_disk = super::on_disk(&hub, &tape);
    tokio::pin!(on_disk);
    let mut is_on_disk = false;
    let (stop, usage) = loop {
        let event = tokio::select! {
            biased;
            () = cancel.cancelled() => return Err(RunError::Stopped),
            stored = &mut on_disk, if !is_on_disk => {
                stored?;
                is_on_disk = true;
                continue;
            }
            event = stream.next() => event,
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
    Ok(record(scope, content, stop, usage, None))
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
    record(scope, answer.into_partial(), StopReason::Error, Usage::default(), Some(error.message.clone()));
    error.into()
}

fn record(
    scope: &mut RunScope,
    content: Vec<Block>,
    stop_reason: StopReason,
    usage: Usage,
    error_message: Option<String>,
) -> Arc<Assistant> {
    let at = scope.hub.ambient.now_ms();
    let spec = scope.profile.model.spec();
    let said = Arc::new(Assistant {
        content,
        api: spec.api.clone(),
        provider: spec.provider.clone(),
        model: spec.model.clone(),
        usage,
        stop_reason,
        error_message,
        timestamp: at,
        extra: serde_json::Map::new(),
    });
    let message = Message::Assistant((*said).clone());
    let id = scope.hub.ambient.entry_id();
    let entry = Entry { kind: Kind::message(message.clone()), id: id.clone(), parent_id: None, timestamp: iso(at) };
    let line = Rec::Entry { key: scope.tape.key().clone(), entry: Box::new(entry) };
    scope.history.push(Arc::new(message));
    scope.said += 1;
    scope.record(RunEvent::Assistant { entry: id, said: said.clone() }, vec![line]);
    said
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
