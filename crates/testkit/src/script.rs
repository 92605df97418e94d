//! A model that says what it was told to say, and nothing else.

use std::{
    collections::VecDeque,
    future::pending,
    panic::resume_unwind,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::stream;
use homard_model::{
    Error, ErrorKind, Event, EventStream, Model, Request, Spec,
    stream::{CallDelta, Done},
};
use tokio::time::{Instant, sleep};

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
    /// The question.
    pub request: Request,
}

/// The strict scripted model: each call takes the next turn.
///
/// A call beyond the last turn fails the run, and [`complaints`](Self::complaints) has it as well, because a run may
/// cope with a failure. So does a turn that nobody asked for.
#[derive(Debug)]
pub struct Script {
    spec: Spec,
    origin: Instant,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    turns: VecDeque<Turn>,
    seen: Vec<Seen>,
    unexpected: Vec<usize>,
}

impl Script {
    /// A model with these turns. Its clock begins now.
    pub fn new(turns: impl IntoIterator<Item = Turn>) -> Self {
        let spec = Spec {
            provider: "script".to_owned(),
            model: "script-1".to_owned(),
            api: "scripted".to_owned(),
            context_window: 200_000,
            max_output: 8_000,
        };
        let inner = Inner { turns: turns.into_iter().collect(), seen: Vec::new(), unexpected: Vec::new() };
        Self { spec, origin: Instant::now(), inner: Mutex::new(inner) }
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
        if !inner.turns.is_empty() {
            complaints.push(format!("{} scripted turn(s) were never asked for", inner.turns.len()));
        }
        complaints
    }

    fn next(&self, request: Request) -> Turn {
        let mut inner = self.lock();
        inner.seen.push(Seen { at: self.origin.elapsed(), request });
        let call = inner.seen.len();
        inner.turns.pop_front().unwrap_or_else(|| {
            inner.unexpected.push(call);
            let error = Error::new(ErrorKind::Rejected, format!("the script has no turn for model call {call}"));
            Turn(vec![Step::Fail(error)])
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Model for Script {
    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn stream(&self, request: Request) -> EventStream {
        let Turn(steps) = self.next(request);
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
}
