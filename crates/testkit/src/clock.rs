//! The clock of a trace: starts at zero and continues across restarts of the hub.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep_until};

/// The clock of a trace. Every lifetime of the hub has its own runtime and so its own tokio clock; this one spans them.
#[derive(Debug, Clone)]
pub(crate) struct TraceClock(Arc<Mutex<HubLifetime>>);

/// When the current lifetime began, in trace time and on tokio's clock.
#[derive(Debug)]
struct HubLifetime {
    started_at: Duration,
    origin: Instant,
}

impl TraceClock {
    /// Creates a clock that starts now.
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(HubLifetime { started_at: Duration::ZERO, origin: Instant::now() })))
    }

    /// Returns the time since the trace began.
    pub(crate) fn now(&self) -> Duration {
        let lifetime = self.lock();
        lifetime.started_at + lifetime.origin.elapsed()
    }

    /// Begins a new lifetime at this trace time, on the clock of the calling runtime.
    pub(crate) fn restart_at(&self, started_at: Duration) {
        *self.lock() = HubLifetime { started_at, origin: Instant::now() };
    }

    /// Sleeps until a trace time.
    pub(crate) async fn sleep_until(&self, at: Duration) {
        let deadline = {
            let lifetime = self.lock();
            lifetime.origin + at.saturating_sub(lifetime.started_at)
        };
        sleep_until(deadline).await;
    }

    fn lock(&self) -> MutexGuard<'_, HubLifetime> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
