//! A model that says what it was told to say, and nothing else.

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

/// One answer. It is cut off if its last step ends neither well nor badly.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Turn(pub Vec<Step>);

/// A piece of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Words.
    Text(String),
    /// Reasoning.
    Thinking(String),
    /// A piece of a tool call.
    Call(CallDelta),
    /// Nothing, for so long.
    Pause(Duration),
    /// The end of a good answer.
    Done(Done),
    /// The end of a bad one.
    Fail(Error),
    /// Nothing, for ever.
    Hang,
    /// A bug in the model.
    Panic(String),
}

/// A question that the model was asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// When, counted from the beginning of the script.
    pub at: Duration,
    /// Which model: its name.
    pub model: String,
    /// The question.
    pub request: Request,
}

/// The scripted model. A strict one gives the next turn to each call; a free one asks a function what to say.
///
/// With a strict one, a call beyond the last turn fails the run, and [`complaints`](Self::complaints) has it as well,
/// because a run may cope with a failure. So does a turn that nobody asked for.
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

/// Where turns come from.
enum Part {
    Strict(VecDeque<Turn>),
    Free(Answers),
}

/// What a free model says to a question.
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
    /// A strict model with these turns. Its clock begins now.
    pub fn new(turns: impl IntoIterator<Item = Turn>) -> Self {
        Self::with(Part::Strict(turns.into_iter().collect()))
    }

    /// A free model.
    pub fn free(answers: Answers) -> Self {
        Self::with(Part::Free(answers))
    }

    /// The same model with another clock.
    pub(crate) fn on(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// The same script, read by another model.
    pub fn read_by(self, spec: Spec) -> Self {
        Self { spec, ..self }
    }

    fn with(part: Part) -> Self {
        let inner = Inner { part, seen: Vec::new(), unexpected: Vec::new() };
        Self { spec: usual(), clock: Clock::new(), inner: Mutex::new(inner) }
    }

    /// What the model was asked so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.lock().seen.clone()
    }

    /// What did not go by the script.
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

/// The model that reads the script when nothing else is said.
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

/// The model that sums up where a trace names it.
pub(crate) const SUMS: &str = "sums";

/// Another model that goes on with the script where the first one does not answer.
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
                // Without the panic hook, so that the test's output stays clean.
                Step::Panic(text) => resume_unwind(Box::new(text)),
            };
            return Some((event, steps));
        }
    }))
}
