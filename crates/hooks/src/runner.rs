//! Runs hooks: order, deadlines, circuit breakers, and merging of results.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use homard_stdx::{CircuitBreaker, sync::Mutex};
use tokio::time::{Instant, timeout};

use crate::{
    FailureLog, FrequentFailures, Hook, HookContext, HookDecision, HookError, HookEvent, HookNote, HookPoint,
    HookResult, InternalEvent, Listener, ListenerResult, Registration, SlashCommand, command, queue::NotificationQueue,
};

/// Upper bound on a listener's deadline: the session, and a request to abort it, wait for the listener.
const MAX_LISTENER_DEADLINE: Duration = Duration::from_secs(15);

/// The registered hooks. Cheap to clone.
#[derive(Clone, Default)]
pub struct Hooks(Arc<HookTable>);

#[derive(Default)]
struct HookTable {
    handlers: BTreeMap<HookPoint, Vec<Arc<HookHandlerEntry>>>,
    listeners: Vec<ListenerEntry>,
    commands: Vec<Arc<dyn SlashCommand>>,
}

/// A listener with its circuit breaker and recent failures.
#[derive(Clone)]
struct ListenerEntry {
    listener: Arc<dyn Listener>,
    breaker: Arc<Mutex<CircuitBreaker>>,
    failures: Arc<Mutex<FailureLog>>,
}

/// A hook at one point.
pub(crate) struct HookHandlerEntry {
    hook: Arc<dyn Hook>,
    registration: Registration,
    /// Shared by all points of the hook.
    breaker: Arc<Mutex<CircuitBreaker>>,
    /// Shared by all points of the hook.
    failures: Arc<Mutex<FailureLog>>,
    pub(crate) queue: NotificationQueue,
}

/// Result of calling the hooks at a point.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HookOutcome {
    /// Merged result.
    pub answer: HookResult,
    /// Decision of each hook, without those that returned nothing.
    pub notes: Vec<HookNote>,
}

impl HookOutcome {
    /// Returns the reason if the operation is blocked.
    pub fn block_reason(&self) -> Option<&str> {
        self.answer.block_reason()
    }
}

impl std::fmt::Debug for Hooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.0.handlers.iter().map(|(point, all)| {
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
        let mut by_point: BTreeMap<HookPoint, Vec<Arc<HookHandlerEntry>>> = BTreeMap::new();
        for hook in hooks {
            let (breaker, failures) = (Arc::<Mutex<CircuitBreaker>>::default(), Arc::<Mutex<FailureLog>>::default());
            for registration in hook.registrations() {
                let handlers_here = by_point.entry(registration.point).or_default();
                let (hook, breaker, failures) = (hook.clone(), breaker.clone(), failures.clone());
                handlers_here.push(Arc::new(HookHandlerEntry {
                    hook,
                    registration,
                    breaker,
                    failures,
                    queue: NotificationQueue::default(),
                }));
            }
        }
        for handlers in by_point.values_mut() {
            handlers.sort_by_key(|handler| std::cmp::Reverse(handler.registration.priority));
        }
        let to_entry = |listener| ListenerEntry { listener, breaker: Arc::default(), failures: Arc::default() };
        let listeners = listeners.into_iter().map(to_entry).collect();
        Self(Arc::new(HookTable { handlers: by_point, listeners, commands: Vec::new() }))
    }

    /// Adds chat commands; of two with the same name the first applies.
    pub fn with_commands(self, commands: Vec<Arc<dyn SlashCommand>>) -> Self {
        let (by_point, listeners) = (self.0.handlers.clone(), self.0.listeners.clone());
        Self(Arc::new(HookTable { handlers: by_point, listeners, commands }))
    }

    /// Returns the chat commands.
    pub fn commands(&self) -> &[Arc<dyn SlashCommand>] {
        &self.0.commands
    }

    /// Returns the chat command that a text invokes, and its arguments. `None` also if the command accepts no arguments
    /// and the text has some.
    pub fn command(&self, text: &str) -> Option<(Arc<dyn SlashCommand>, String)> {
        if self.0.commands.is_empty() {
            return None;
        }
        let (name, args) = command::split(text)?;
        let found = self.0.commands.iter().find(|command| command.name().eq_ignore_ascii_case(&name))?;
        (args.is_empty() || found.accepts_args()).then(|| (found.clone(), args))
    }

    /// Returns true if any hook is registered at this point. If not, the event need not be built.
    pub fn has(&self, point: HookPoint) -> bool {
        self.0.handlers.contains_key(&point)
    }

    /// Lists the registrations in order: point, hook name, registration.
    pub fn list(&self) -> impl Iterator<Item = (HookPoint, &str, &Registration)> {
        self.0
            .handlers
            .iter()
            .flat_map(|(point, all)| all.iter().map(|handler| (*point, handler.name(), &handler.registration)))
    }

    /// Calls the hooks at the event's point in order, until one blocks or handles the operation.
    pub async fn call(&self, mut event: HookEvent, context: &HookContext) -> HookOutcome {
        let point = event.point();
        let mut outcome = HookOutcome::default();
        for handler in self.0.handlers.get(&point).into_iter().flatten() {
            let (answer, note) = handler.call_for_decision(event.clone(), context.clone()).await;
            if note.decision != HookDecision::Nothing {
                handler.log_decision(&note);
                outcome.notes.push(note);
            }
            event.apply(&answer);
            outcome.answer.merge(point, answer);
            if outcome.answer.is_final() {
                break;
            }
        }
        outcome
    }

    /// Notifies the hooks at the event's point, without waiting.
    pub fn notify(&self, event: &HookEvent, context: &HookContext) {
        for handler in self.0.handlers.get(&event.point()).into_iter().flatten() {
            NotificationQueue::enqueue(handler, event.clone(), context.clone());
        }
    }

    /// Waits until all notifications so far were processed, at most this long.
    pub async fn flush(&self, max_wait: Duration) {
        let flushes = self.0.handlers.values().flatten().map(|handler| handler.queue.flush());
        if timeout(max_wait, futures_util::future::join_all(flushes)).await.is_err() {
            tracing::warn!("some hook notifications were not processed in time");
        }
    }

    /// Returns the hooks that currently fail often, by name.
    pub fn failing(&self) -> Vec<FrequentFailures> {
        let handlers = self.0.handlers.values().flatten().map(|handler| (handler.name(), &handler.failures));
        let all = handlers.chain(self.0.listeners.iter().map(|entry| (entry.listener.name(), &entry.failures)));
        let now = Instant::now();
        let mut failing: BTreeMap<*const Mutex<FailureLog>, FrequentFailures> = BTreeMap::new();
        for (name, failures) in all {
            let frequent = failures.lock().frequent(name, now);
            // A hook with several points is listed once.
            failing.extend(frequent.map(|frequent| (Arc::as_ptr(failures), frequent)));
        }
        let mut failing: Vec<_> = failing.into_values().collect();
        failing.sort_by(|a, b| a.name.cmp(&b.name));
        failing
    }

    /// Returns true if any listener subscribes to this event.
    pub fn has_listener(&self, kind: &str, action: &str) -> bool {
        self.0.listeners.iter().any(|entry| entry.listener.listens(kind, action).is_some())
    }

    /// Passes an event to its listeners in order: first those that subscribe to its type, then those that subscribe to
    /// exactly this event. Returns the event with their changes.
    pub async fn emit(&self, event: InternalEvent) -> InternalEvent {
        self.emit_all(event).await.0
    }

    /// Like [`emit`](Self::emit), for an event that is blocked if a guard fails; the error names the guard and
    /// the reason.
    pub async fn emit_guarded(&self, event: InternalEvent) -> Result<InternalEvent, String> {
        let (event, guard_failure) = self.emit_all(event).await;
        guard_failure.map_or(Ok(event), Err)
    }

    /// Passes an event to its listeners: first those that subscribe to its type (`command`), then those that subscribe
    /// to exactly this event (`command:new`). Each receives the event with the changes of the previous ones.
    ///
    /// Returns the changed event, and the failure of the first guard that failed; the listeners after it are called
    /// nevertheless.
    async fn emit_all(&self, mut event: InternalEvent) -> (InternalEvent, Option<String>) {
        let mut guard_failure = None;
        for is_exact in [false, true] {
            let subscribes =
                |entry: &&ListenerEntry| entry.listener.listens(&event.kind, &event.action) == Some(is_exact);
            let entries: Vec<_> = self.0.listeners.iter().filter(subscribes).cloned().collect();
            for entry in entries {
                match entry.handle(&event).await {
                    Ok(result) => event.apply_result(result),
                    Err(error) if entry.listener.is_guard(&format!("{}:{}", event.kind, event.action)) => {
                        let reason = format!("the guard {} failed: {error}", entry.listener.name());
                        guard_failure.get_or_insert(reason);
                    }
                    Err(_) => {}
                }
            }
        }
        (event, guard_failure)
    }
}

impl ListenerEntry {
    /// Calls the listener, unless its circuit breaker is open.
    async fn handle(&self, event: &InternalEvent) -> Result<ListenerResult, HookError> {
        let breaker = || self.breaker.lock();
        if breaker().open_for(Instant::now()).is_some() {
            return Err(HookError::Unavailable("the hook is suspended after repeated failures".to_owned()));
        }
        let deadline = self.listener.deadline().min(MAX_LISTENER_DEADLINE);
        let result = match timeout(deadline, self.listener.handle(event)).await {
            Ok(result) => result,
            Err(_) => Err(HookError::Timeout(deadline)),
        };
        let (hook, kind, action) = (self.listener.name(), &event.kind, &event.action);
        match result {
            Ok(result) => {
                breaker().record_success();
                Ok(result)
            }
            Err(error) => {
                let failures = || self.failures.lock();
                // The log is rate-limited: `None` if this failure is only counted.
                let suppressed = failures().record(Instant::now(), &error.to_string());
                if let Some(suppressed) = suppressed {
                    tracing::warn!(hook, %kind, %action, %error, more = suppressed, "hook failed and was skipped");
                }
                if error.trips_breaker() && breaker().record_failure(Instant::now()) {
                    tracing::warn!(hook, "{}", HookDecision::CircuitOpen);
                }
                Err(error)
            }
        }
    }
}

impl std::fmt::Debug for HookHandlerEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HookHandlerEntry")
            .field("hook", &self.name())
            .field("registration", &self.registration)
            .finish()
    }
}

impl HookHandlerEntry {
    pub(crate) fn name(&self) -> &str {
        self.hook.name()
    }

    /// Logs a decision. Repeated failures are logged once a minute, with the number of suppressed ones.
    fn log_decision(&self, note: &HookNote) {
        let (hook, point, took) = (&note.hook, note.point.name(), note.duration);
        match &note.decision {
            HookDecision::Nothing | HookDecision::Changed(_) => {
                tracing::debug!(hook, point, ?took, "{}", note.decision)
            }
            HookDecision::Blocked(_) => tracing::info!(hook, point, ?took, "{}", note.decision),
            HookDecision::CircuitOpen => tracing::warn!(hook, point, ?took, "{}", note.decision),
            HookDecision::GuardFailed(reason) | HookDecision::Failed(reason) => {
                let logged = self.failures.lock().record(Instant::now(), reason);
                if let Some(more) = logged {
                    tracing::warn!(hook, point, ?took, more, "{}", note.decision);
                }
            }
        }
    }

    fn breaker(&self) -> std::sync::MutexGuard<'_, CircuitBreaker> {
        self.breaker.lock()
    }

    /// Calls the hook, unless its circuit breaker is open; also returns whether it is open now.
    async fn call(&self, event: HookEvent, context: HookContext) -> (Result<HookResult, HookError>, bool) {
        if self.breaker().open_for(Instant::now()).is_some() {
            return (Err(HookError::Unavailable("the hook is suspended after repeated failures".to_owned())), true);
        }
        let deadline = self.registration.deadline.unwrap_or_else(|| self.registration.point.deadline());
        let answer = match timeout(deadline, self.hook.call(event, context)).await {
            Ok(answer) => answer,
            Err(_) => Err(HookError::Timeout(deadline)),
        };
        let is_suspended = match &answer {
            Err(error) if error.trips_breaker() => self.breaker().record_failure(Instant::now()),
            Ok(_) | Err(_) => {
                self.breaker().record_success();
                false
            }
        };
        (answer, is_suspended)
    }

    /// Calls the hook; returns its result and the decision to record. A guard that fails blocks the operation.
    async fn call_for_decision(&self, event: HookEvent, context: HookContext) -> (HookResult, HookNote) {
        let (started_at, point) = (Instant::now(), event.point());
        let (answer, is_suspended) = self.call(event, context).await;
        let (answer, decision) = match answer {
            Ok(answer) if answer.is_empty() => (answer, HookDecision::Nothing),
            Ok(answer) => match answer.block_reason().map(str::to_owned) {
                Some(reason) => (answer, HookDecision::Blocked(reason)),
                None => {
                    let fields = answer.fields();
                    (answer, HookDecision::Changed(fields))
                }
            },
            Err(error) if self.registration.is_guard => {
                let reason = format!("the guard {} failed: {error}", self.name());
                (
                    HookResult { cancel: Some(true), ..HookResult::block(&reason) },
                    HookDecision::GuardFailed(error.to_string()),
                )
            }
            Err(_) if is_suspended => (HookResult::empty(), HookDecision::CircuitOpen),
            Err(error) => (HookResult::empty(), HookDecision::Failed(error.to_string())),
        };
        (answer, HookNote { hook: self.name().to_owned(), point, decision, duration: started_at.elapsed() })
    }

    /// Notifies the hook; its result is ignored.
    pub(crate) async fn notify(&self, event: HookEvent, context: HookContext) {
        // The opening of the breaker was logged when it happened.
        if self.breaker().open_for(Instant::now()).is_some() {
            return;
        }
        let (started_at, point) = (Instant::now(), event.point());
        let (answer, is_suspended) = self.call(event, context).await;
        if let Err(error) = answer {
            let decision =
                if is_suspended { HookDecision::CircuitOpen } else { HookDecision::Failed(error.to_string()) };
            self.log_decision(&HookNote {
                hook: self.name().to_owned(),
                point,
                decision,
                duration: started_at.elapsed(),
            });
        }
    }
}

impl InternalEvent {
    /// Applies a listener's result. A listener can change nothing else of the event.
    fn apply_result(&mut self, result: ListenerResult) {
        self.messages.extend(result.messages);
        if let Some(files) = result.bootstrap_files {
            self.set_files(&files);
        }
    }
}

#[cfg(test)]
mod tests;
