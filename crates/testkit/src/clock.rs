//! The time of a trace: it begins at zero and goes on when a new life of the hub begins.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

/// The time of a trace. Every life of the hub has a runtime, and so a tokio clock, of its own; this one spans them.
#[derive(Debug, Clone)]
pub(crate) struct Clock(Arc<Mutex<Life>>);

/// When the present life began, in the time of the trace and on tokio's clock.
#[derive(Debug)]
struct Life {
    began: Duration,
    origin: Instant,
}

impl Clock {
    /// A clock that starts now.
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Life { began: Duration::ZERO, origin: Instant::now() })))
    }

    /// The time since the trace began.
    pub(crate) fn now(&self) -> Duration {
        let life = self.lock();
        life.began + life.origin.elapsed()
    }

    /// A new life begins, at this time of the trace, on the clock of the runtime that calls this.
    pub(crate) fn go_on(&self, began: Duration) {
        *self.lock() = Life { began, origin: Instant::now() };
    }

    /// Waits for a time of the trace.
    pub(crate) async fn sleep_until(&self, at: Duration) {
        let due = {
            let life = self.lock();
            life.origin + at.saturating_sub(life.began)
        };
        sleep_until(due).await;
    }

    fn lock(&self) -> MutexGuard<'_, Life> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
