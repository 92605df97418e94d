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
    Error, ErrorKind, Event, EventStream, Model, Request, Spec,
    stream::{CallDelta, Done},
};
use tokio::time::sleep;

use crate::clock::Clock;

/// One answer. It is cut off if its last step neither completes nor fails.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Turn(pub Vec<Step>);

/// A piece of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Text.
    Text(String),
    /// Reasoning.
    Thinking(String),
    /// A piece of a tool call.
    Call(CallDelta),
    /// A pause.
    Pause(Duration),
    /// Completes the answer.
    Done(Done),
    /// Fails the request.
    Fail(Error),
    /// Never continues.
    Hang,
    /// Panics.
    Panic(String),
}

/// A recorded model request.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
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
pub struct Script {
    spec: Spec,
    clock: Clock,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    part: Part,
    seen: Vec<Seen>,
    unexpected: Vec<usize>,
}

/// Source of turns.
enum Part {
    Strict(VecDeque<Turn>),
    Free(Answers),
}

/// Answers of a free model.
pub type Answers = Box<dyn FnMut(&Request) -> Turn + Send>;

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Strict(turns) => f.debug_tuple("Strict").field(turns).finish(),
            Self::Free(_) => f.debug_tuple("Free").finish_non_exhaustive(),
        }
    }
}

impl Script {
    /// Creates a strict model with these turns. Its clock starts now.
    pub fn new(turns: impl IntoIterator<Item = Turn>) -> Self {
        Self::with(Part::Strict(turns.into_iter().collect()))
    }

    /// Creates a free model.
    pub fn free(answers: Answers) -> Self {
        Self::with(Part::Free(answers))
    }

    /// Sets the clock.
    pub(crate) fn on(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// Sets the model's spec.
    pub fn read_by(self, spec: Spec) -> Self {
        Self { spec, ..self }
    }

    fn with(part: Part) -> Self {
        let inner = Inner { part, seen: Vec::new(), unexpected: Vec::new() };
        Self { spec: usual(), clock: Clock::new(), inner: Mutex::new(inner) }
    }

    /// Returns the requests so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.lock().seen.clone()
    }

    /// Returns the deviations from the script.
    pub fn complaints(&self) -> Vec<String> {
        let inner = self.lock();
        let unexpected = inner.unexpected.iter();
        let mut complaints: Vec<_> =
            unexpected.map(|call| format!("model call {call} was not expected: no turn is left for it")).collect();
        match &inner.part {
            Part::Strict(turns) if !turns.is_empty() => {
                complaints.push(format!("{} scripted turn(s) were never asked for", turns.len()));
            }
            Part::Strict(_) | Part::Free(_) => {}
        }
        complaints
    }

    fn next(&self, model: &str, request: Request) -> Turn {
        let mut inner = self.lock();
        let turn = match &mut inner.part {
            Part::Strict(turns) => turns.pop_front(),
            Part::Free(answers) => Some(answers(&request)),
        };
        inner.seen.push(Seen { at: self.clock.now(), model: model.to_owned(), request });
        turn.unwrap_or_else(|| {
            let call = inner.seen.len();
            inner.unexpected.push(call);
            let error = Error::new(ErrorKind::Rejected, format!("the script has no turn for model call {call}"));
            Turn(vec![Step::Fail(error)])
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the default model spec.
pub(crate) fn usual() -> Spec {
    Spec {
        provider: "script".to_owned(),
        model: "script-1".to_owned(),
        api: "scripted".to_owned(),
        context_window: 200_000,
        max_output: 8_000,
        ..Spec::default()
    }
}

/// Name of the model used for compaction if a trace configures one.
pub(crate) const SUMS: &str = "sums";

/// A fallback model that continues the script if the primary one fails.
#[derive(Debug)]
pub(crate) struct Understudy {
    pub(crate) spec: Spec,
    pub(crate) script: Arc<Script>,
}

impl Model for Understudy {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn stream(&self, request: Request) -> EventStream {
        say(self.script.next(&self.spec.model, request))
    }
}

impl Model for Script {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn stream(&self, request: Request) -> EventStream {
        say(self.next(&self.spec.model, request))
    }
}

fn say(Turn(steps): Turn) -> EventStream {
    Box::pin(stream::unfold(steps.into_iter(), |mut steps| async move {
        loop {
            let event = match steps.next()? {
                Step::Text(text) => Event::Text(text),
                Step::Thinking(text) => Event::Thinking(text),
                Step::Call(delta) => Event::Call(delta),
                Step::Done(done) => Event::Done(done),
                Step::Fail(error) => Event::Failed(error),
                Step::Pause(time) => {
                    sleep(time).await;
                    continue;
                }
                Step::Hang => pending().await,
                // Bypasses the panic hook, so that the test's output stays clean.
                Step::Panic(text) => resume_unwind(Box::new(text)),
            };
            return Some((event, steps));
        }
    }))
}
