//! Runs hooks: order, deadlines, circuit breakers, and merging of results.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, timeout};

use crate::{
    Answer, Context, Decision, Event, FailureLog, FrequentFailures, Heard, Hook, HookError, Listener, Note, Point,
    Registration, Signal, SlashCommand, breaker::Breaker, command, queue::Queue,
};

/// Upper bound on a listener's deadline: the session, and a request to abort it, wait for the listener.
const LISTENING: Duration = Duration::from_secs(15);

/// The registered hooks. Cheap to clone.
#[derive(Clone, Default)]
pub struct Hooks(Arc<Table>);

#[derive(Default)]
struct Table {
    by_point: BTreeMap<Point, Vec<Arc<Handler>>>,
    listeners: Vec<Ear>,
    commands: Vec<Arc<dyn SlashCommand>>,
}

/// A listener with its circuit breaker and recent failures.
#[derive(Clone)]
struct Ear {
    listener: Arc<dyn Listener>,
    breaker: Arc<Mutex<Breaker>>,
    failures: Arc<Mutex<FailureLog>>,
}

/// A hook at one point.
pub(crate) struct Handler {
    hook: Arc<dyn Hook>,
    registration: Registration,
    /// Shared by all points of the hook.
    breaker: Arc<Mutex<Breaker>>,
    /// Shared by all points of the hook.
    failures: Arc<Mutex<FailureLog>>,
    pub(crate) queue: Queue,
}

/// Result of calling the hooks at a point.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// Merged result.
    pub answer: Answer,
    /// Decision of each hook, without those that returned nothing.
    pub notes: Vec<Note>,
}

impl Outcome {
    /// Returns the reason if the operation is blocked.
    pub fn refusal(&self) -> Option<&str> {
        self.answer.refusal()
    }
}

impl std::fmt::Debug for Hooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.0.by_point.iter().map(|(point, all)| {
            (point.name(), all.iter().map(|handler| handler.name().to_owned()).collect::<Vec<_>>())
        });
        f.debug_map().entries(names).finish()
    }
}

/// Compares by identity.
impl PartialEq for Hooks {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Hooks {
    /// Creates the table of hooks and listeners. Among equal priorities, the order given here applies.
    pub fn new(hooks: Vec<Arc<dyn Hook>>, listeners: Vec<Arc<dyn Listener>>) -> Self {
        let mut by_point: BTreeMap<Point, Vec<Arc<Handler>>> = BTreeMap::new();
        for hook in hooks {
            let (breaker, failures) = (Arc::<Mutex<Breaker>>::default(), Arc::<Mutex<FailureLog>>::default());
            for registration in hook.registrations() {
                let at = by_point.entry(registration.point).or_default();
                let (hook, breaker, failures) = (hook.clone(), breaker.clone(), failures.clone());
                at.push(Arc::new(Handler { hook, registration, breaker, failures, queue: Queue::default() }));
            }
        }
        for handlers in by_point.values_mut() {
            handlers.sort_by_key(|handler| std::cmp::Reverse(handler.registration.priority));
        }
        let ear = |listener| Ear { listener, breaker: Arc::default(), failures: Arc::default() };
        let listeners = listeners.into_iter().map(ear).collect();
        Self(Arc::new(Table { by_point, listeners, commands: Vec::new() }))
    }

    /// Adds chat commands; of two with the same name the first applies.
    pub fn with_commands(self, commands: Vec<Arc<dyn SlashCommand>>) -> Self {
        let (by_point, listeners) = (self.0.by_point.clone(), self.0.listeners.clone());
        Self(Arc::new(Table { by_point, listeners, commands }))
    }

    /// Returns the chat commands.
    pub fn commands(&self) -> &[Arc<dyn SlashCommand>] {
        &self.0.commands
    }

    /// Returns the chat command that a text invokes, and its arguments.
    pub fn command(&self, text: &str) -> Option<(Arc<dyn SlashCommand>, String)> {
        if self.0.commands.is_empty() {
            return None;
        }
        let (word, words) = command::split(text)?;
        let found = self.0.commands.iter().find(|command| command.name().eq_ignore_ascii_case(&word))?;
        (words.is_empty() || found.takes_words()).then(|| (found.clone(), words))
    }

    /// Returns true if any hook is registered at this point. If not, the event need not be built.
    pub fn has(&self, point: Point) -> bool {
        self.0.by_point.contains_key(&point)
    }

    /// Lists the registrations in order: point, hook name, registration.
    pub fn list(&self) -> impl Iterator<Item = (Point, &str, &Registration)> {
        self.0
            .by_point
            .iter()
            .flat_map(|(point, all)| all.iter().map(|handler| (*point, handler.name(), &handler.registration)))
    }

    /// Calls the hooks at the event's point in order, until one blocks or handles the operation.
    pub async fn ask(&self, mut event: Event, context: &Context) -> Outcome {
        let point = event.point();
        let mut outcome = Outcome::default();
        for handler in self.0.by_point.get(&point).into_iter().flatten() {
            let (answer, note) = handler.ask(event.clone(), context.clone()).await;
            if note.decision != Decision::Nothing {
                handler.note_down(&note);
                outcome.notes.push(note);
            }
            event.follow(&answer);
            outcome.answer.add(point, answer);
            if outcome.answer.is_final() {
                break;
            }
        }
        outcome
    }

    /// Notifies the hooks at the event's point, without waiting.
    pub fn tell(&self, event: &Event, context: &Context) {
        for handler in self.0.by_point.get(&event.point()).into_iter().flatten() {
            Queue::put(handler, event.clone(), context.clone());
        }
    }

    /// Waits until all notifications so far were processed, at most this long.
    pub async fn flush(&self, patience: Duration) {
        let all = self.0.by_point.values().flatten().map(|handler| handler.queue.flush());
        if timeout(patience, futures_util::future::join_all(all)).await.is_err() {
            tracing::warn!("some hooks did not hear everything in time");
        }
    }

    /// Returns the hooks that currently fail often, by name.
    pub fn failing(&self) -> Vec<FrequentFailures> {
        let handlers = self.0.by_point.values().flatten().map(|handler| (handler.name(), &handler.failures));
        let all = handlers.chain(self.0.listeners.iter().map(|ear| (ear.listener.name(), &ear.failures)));
        let now = Instant::now();
        let mut failing: BTreeMap<*const Mutex<FailureLog>, FrequentFailures> = BTreeMap::new();
        for (name, failures) in all {
            let frequent = failures.lock().unwrap_or_else(PoisonError::into_inner).frequent(name, now);
            // A hook with several points is listed once.
            failing.extend(frequent.map(|frequent| (Arc::as_ptr(failures), frequent)));
        }
        let mut failing: Vec<_> = failing.into_values().collect();
        failing.sort_by(|one, other| one.name.cmp(&other.name));
        failing
    }

    /// Returns true if any listener subscribes to this event.
    pub fn is_heard(&self, kind: &str, action: &str) -> bool {
        self.0.listeners.iter().any(|ear| ear.listener.listens(kind, action).is_some())
    }

    /// Passes an event to its listeners in order: first those that subscribe to its type, then those that subscribe to
    /// exactly this event. Returns the event with their changes.
    pub async fn signal(&self, signal: Signal) -> Signal {
        self.signal_all(signal).await.0
    }

    /// Like [`signal`](Self::signal), for an event that a guard may block; the error names the guard that failed, and
    /// why.
    pub async fn signal_guarded(&self, signal: Signal) -> Result<Signal, String> {
        let (signal, refusal) = self.signal_all(signal).await;
        refusal.map_or(Ok(signal), Err)
    }

    async fn signal_all(&self, mut signal: Signal) -> (Signal, Option<String>) {
        let mut refusal = None;
        for is_exact in [false, true] {
            let of_rank = |ear: &&Ear| ear.listener.listens(&signal.kind, &signal.action) == Some(is_exact);
            let ears: Vec<_> = self.0.listeners.iter().filter(of_rank).cloned().collect();
            for ear in ears {
                match ear.hear(&signal).await {
                    Ok(heard) => signal.follow(heard),
                    Err(error) if ear.listener.is_guard(&format!("{}:{}", signal.kind, signal.action)) => {
                        let why = format!("the guard {} could not answer: {error}", ear.listener.name());
                        refusal.get_or_insert(why);
                    }
                    Err(_) => {}
                }
            }
        }
        (signal, refusal)
    }
}

impl Ear {
    /// Calls the listener, unless its circuit breaker is open.
    async fn hear(&self, signal: &Signal) -> Result<Heard, HookError> {
        let breaker = || self.breaker.lock().unwrap_or_else(PoisonError::into_inner);
        if breaker().is_open(Instant::now()) {
            return Err(HookError::Gone("it failed too often of late".to_owned()));
        }
        let deadline = self.listener.deadline().min(LISTENING);
        let heard = match timeout(deadline, self.listener.hear(signal)).await {
            Ok(heard) => heard,
            Err(_) => Err(HookError::Late(deadline)),
        };
        let (hook, kind, action) = (self.listener.name(), &signal.kind, &signal.action);
        match heard {
            Ok(heard) => {
                breaker().succeeded();
                Ok(heard)
            }
            Err(error) => {
                let failures = || self.failures.lock().unwrap_or_else(PoisonError::into_inner);
                let logged = failures().note(Instant::now(), &error.to_string());
                if let Some(more) = logged {
                    tracing::warn!(hook, %kind, %action, %error, more, "a hook failed and was passed over");
                }
                if error.is_ailing() && breaker().failed(Instant::now()) {
                    tracing::warn!(hook, "{}", Decision::Parked);
                }
                Err(error)
            }
        }
    }
}

impl std::fmt::Debug for Handler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handler").field("hook", &self.name()).field("registration", &self.registration).finish()
    }
}

impl Handler {
    pub(crate) fn name(&self) -> &str {
        self.hook.name()
    }

    /// Logs a decision. Repeated failures are logged once a minute, with the number of suppressed ones.
    fn note_down(&self, note: &Note) {
        let (hook, point, took) = (&note.hook, note.point.name(), note.took);
        match &note.decision {
            Decision::Nothing | Decision::Changed(_) => tracing::debug!(hook, point, ?took, "{}", note.decision),
            Decision::Refused(_) => tracing::info!(hook, point, ?took, "{}", note.decision),
            Decision::Parked => tracing::warn!(hook, point, ?took, "{}", note.decision),
            Decision::Guarded(why) | Decision::Failed(why) => {
                let logged = self.failures.lock().unwrap_or_else(PoisonError::into_inner).note(Instant::now(), why);
                if let Some(more) = logged {
                    tracing::warn!(hook, point, ?took, more, "{}", note.decision);
                }
            }
        }
    }

    fn breaker(&self) -> std::sync::MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the hook, unless its circuit breaker is open; also returns whether it is open now.
    async fn call(&self, event: Event, context: Context) -> (Result<Answer, HookError>, bool) {
        if self.breaker().is_open(Instant::now()) {
            return (Err(HookError::Gone("it failed too often of late".to_owned())), true);
        }
        let deadline = self.registration.deadline.unwrap_or_else(|| self.registration.point.deadline());
        let answer = match timeout(deadline, self.hook.call(event, context)).await {
            Ok(answer) => answer,
            Err(_) => Err(HookError::Late(deadline)),
        };
        let is_parked = match &answer {
            Err(error) if error.is_ailing() => self.breaker().failed(Instant::now()),
            Ok(_) | Err(_) => {
                self.breaker().succeeded();
                false
            }
        };
        (answer, is_parked)
    }

    async fn ask(&self, event: Event, context: Context) -> (Answer, Note) {
        let (began, point) = (Instant::now(), event.point());
        let (answer, is_parked) = self.call(event, context).await;
        let (answer, decision) = match answer {
            Ok(answer) if answer.is_nothing() => (answer, Decision::Nothing),
            Ok(answer) => match answer.refusal().map(str::to_owned) {
                Some(why) => (answer, Decision::Refused(why)),
                None => {
                    let fields = answer.fields();
                    (answer, Decision::Changed(fields))
                }
            },
            Err(error) if self.registration.is_guard => {
                let why = format!("the guard {} could not answer: {error}", self.name());
                (Answer { cancel: Some(true), ..Answer::block(&why) }, Decision::Guarded(error.to_string()))
            }
            Err(_) if is_parked => (Answer::nothing(), Decision::Parked),
            Err(error) => (Answer::nothing(), Decision::Failed(error.to_string())),
        };
        (answer, Note { hook: self.name().to_owned(), point, decision, took: began.elapsed() })
    }

    /// Notifies the hook; its result is ignored.
    pub(crate) async fn tell(&self, event: Event, context: Context) {
        // The opening of the breaker was logged when it happened.
        if self.breaker().is_open(Instant::now()) {
            return;
        }
        let (began, point) = (Instant::now(), event.point());
        let (answer, is_parked) = self.call(event, context).await;
        if let Err(error) = answer {
            let decision = if is_parked { Decision::Parked } else { Decision::Failed(error.to_string()) };
            self.note_down(&Note { hook: self.name().to_owned(), point, decision, took: began.elapsed() });
        }
    }
}

/// Kept beside the table, to show what a listener may change.
impl Signal {
    fn follow(&mut self, heard: Heard) {
        self.messages.extend(heard.messages);
        if let Some(files) = heard.bootstrap_files {
            self.set_files(&files);
        }
    }
}

#[cfg(test)]
mod tests;
