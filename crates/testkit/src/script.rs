//! A scripted model.

use std::{
    collections::VecDeque,
    fmt,
    future::pending,
    panic::resume_unwind,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::stream;
use homard_model::{
    Error, ErrorKind, EventStream, Model, ModelEvent, ModelSpec, Request,
    stream::{AnswerEnd, CallDelta},
};
use tokio::time::sleep;

use crate::clock::TraceClock;

/// One answer. It is cut off if its last step neither completes nor fails.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ScriptedAnswer(pub Vec<AnswerStep>);

/// A piece of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum AnswerStep {
    /// Text.
    Text(String),
    /// Reasoning.
    Thinking(String),
    /// A piece of a tool call.
    Call(CallDelta),
    /// A pause.
    Pause(Duration),
    /// Completes the answer.
    Done(AnswerEnd),
    /// Fails the request.
    Fail(Error),
    /// Never continues.
    Hang,
    /// Panics.
    Panic(String),
}

/// A recorded model request.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedRequest {
    /// Time since the beginning of the script.
    pub at: Duration,
    /// Name of the model.
    pub model: String,
    /// The request.
    pub request: Request,
}

/// The scripted model. A strict one returns the next turn for each request; a free one calls a function.
///
/// With a strict one, a request beyond the last turn fails the run, and is also reported by
/// [`complaints`](Self::complaints), because a run may tolerate a failure. An unused turn is reported, too.
#[derive(Debug)]
pub struct ScriptedModel {
    spec: ModelSpec,
    clock: TraceClock,
    inner: Mutex<ScriptInner>,
}

#[derive(Debug)]
struct ScriptInner {
    source: AnswerSource,
    requests: Vec<RecordedRequest>,
    unexpected: Vec<usize>,
}

/// Source of turns.
enum AnswerSource {
    Strict(VecDeque<ScriptedAnswer>),
    Free(AnswerFn),
}

/// Answers of a free model.
pub type AnswerFn = Box<dyn FnMut(&Request) -> ScriptedAnswer + Send>;

impl fmt::Debug for AnswerSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Strict(turns) => f.debug_tuple("Strict").field(turns).finish(),
            Self::Free(_) => f.debug_tuple("Free").finish_non_exhaustive(),
        }
    }
}

impl ScriptedModel {
    /// Creates a strict model, which returns these turns in order, one per request. Its clock starts now.
    pub fn new(turns: impl IntoIterator<Item = ScriptedAnswer>) -> Self {
        Self::with(AnswerSource::Strict(turns.into_iter().collect()))
    }

    /// Creates a free model.
    pub fn free(answers: AnswerFn) -> Self {
        Self::with(AnswerSource::Free(answers))
    }

    /// Sets the clock.
    pub(crate) fn with_clock(self, clock: TraceClock) -> Self {
        Self { clock, ..self }
    }

    /// Sets the model's spec.
    pub fn with_spec(self, spec: ModelSpec) -> Self {
        Self { spec, ..self }
    }

    fn with(source: AnswerSource) -> Self {
        let inner = ScriptInner { source, requests: Vec::new(), unexpected: Vec::new() };
        Self { spec: default_spec(), clock: TraceClock::new(), inner: Mutex::new(inner) }
    }

    /// Returns the requests so far.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.lock().requests.clone()
    }

    /// Returns the deviations from the script.
    pub fn complaints(&self) -> Vec<String> {
        let inner = self.lock();
        let unexpected = inner.unexpected.iter();
        let mut complaints: Vec<_> =
            unexpected.map(|call| format!("model call {call} was not expected: no turn is left for it")).collect();
        match &inner.source {
            AnswerSource::Strict(turns) if !turns.is_empty() => {
                complaints.push(format!("{} scripted turn(s) were never asked for", turns.len()));
            }
            AnswerSource::Strict(_) | AnswerSource::Free(_) => {}
        }
        complaints
    }

    fn next(&self, model: &str, request: Request) -> ScriptedAnswer {
        let mut inner = self.lock();
        let turn = match &mut inner.source {
            AnswerSource::Strict(turns) => turns.pop_front(),
            AnswerSource::Free(answers) => Some(answers(&request)),
        };
        inner.requests.push(RecordedRequest { at: self.clock.now(), model: model.to_owned(), request });
        turn.unwrap_or_else(|| {
            let call = inner.requests.len();
            inner.unexpected.push(call);
            let error = Error::new(ErrorKind::Rejected, format!("the script has no turn for model call {call}"));
            ScriptedAnswer(vec![AnswerStep::Fail(error)])
        })
    }

    fn lock(&self) -> MutexGuard<'_, ScriptInner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the default model spec.
pub(crate) fn default_spec() -> ModelSpec {
    ModelSpec {
        provider: "script".to_owned(),
        model: "script-1".to_owned(),
        api: "scripted".to_owned(),
        context_window: 200_000,
        max_output: 8_000,
        ..ModelSpec::default()
    }
}

/// Name of the model used for compaction if a trace configures one.
pub(crate) const COMPACTION_MODEL: &str = "sums";

/// A fallback model that continues the script if the primary one fails.
#[derive(Debug)]
pub(crate) struct FallbackModel {
    pub(crate) spec: ModelSpec,
    pub(crate) script: Arc<ScriptedModel>,
}

impl Model for FallbackModel {
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    fn stream(&self, request: Request) -> EventStream {
        stream_answer(self.script.next(&self.spec.model, request))
    }
}

impl Model for ScriptedModel {
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    fn stream(&self, request: Request) -> EventStream {
        stream_answer(self.next(&self.spec.model, request))
    }
}

fn stream_answer(ScriptedAnswer(steps): ScriptedAnswer) -> EventStream {
    Box::pin(stream::unfold(steps.into_iter(), |mut steps| async move {
        loop {
            let event = match steps.next()? {
                AnswerStep::Text(text) => ModelEvent::Text(text),
                AnswerStep::Thinking(text) => ModelEvent::Thinking(text),
                AnswerStep::Call(delta) => ModelEvent::Call(delta),
                AnswerStep::Done(done) => ModelEvent::Done(done),
                AnswerStep::Fail(error) => ModelEvent::Failed(error),
                AnswerStep::Pause(time) => {
                    sleep(time).await;
                    continue;
                }
                AnswerStep::Hang => pending().await,
                // Bypasses the panic hook, so that the test's output stays clean.
                AnswerStep::Panic(text) => resume_unwind(Box::new(text)),
            };
            return Some((event, steps));
        }
    }))
}
