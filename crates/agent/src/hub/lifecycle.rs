//! Health and shutdown of the hub. Recovery at start-up is in `recover`.

use std::time::Duration;

use super::Hub;

/// Start and end of a hub. What [`Hub::lifecycle`] returns.
#[derive(Debug, Clone, Copy)]
pub struct HubLifecycle<'a> {
    pub(super) hub: &'a Hub,
}

impl HubLifecycle<'_> {
    /// True if the process is shutting down.
    pub fn is_draining(self) -> bool {
        self.hub.0.draining.is_cancelled()
    }

    /// True if the journal is working: it has committed everything submitted so far within this time, and the last
    /// batch was not rejected.
    pub async fn is_storing(self, timeout: Duration) -> bool {
        let stored = tokio::time::timeout(timeout, self.hub.0.writer.barrier()).await;
        matches!(stored, Ok(Ok(()))) && !self.hub.0.writer.has_failed()
    }

    /// Stops accepting and starting runs, and waits up to `timeout` for active runs to end. Runs that are still active
    /// then, and queued runs, stay unfinished on disk; the next start resumes them.
    pub async fn drain(self, timeout: Duration) {
        self.hub.0.draining.cancel();
        self.hub.0.tracker.close();
        // Tasks that are still running at the timeout are cancelled.
        tokio::time::timeout(timeout, self.hub.0.tracker.wait()).await.ok();
        self.shut_down().await;
    }

    /// Starts no further runs, and waits up to `timeout` for active runs to end. Messages are still accepted and stored;
    /// the process that opens the state directory next starts them.
    pub async fn pause(self, timeout: Duration) {
        let slots = self.hub.runs().slots();
        slots.pause();
        if tokio::time::timeout(timeout, slots.idle()).await.is_err() {
            tracing::info!(active = slots.taken(), "active runs did not end in time; the next process resumes them");
        }
    }

    /// Cancels all runs, waits for their tasks to end and for everything to be stored.
    pub async fn shut_down(self) {
        self.hub.0.draining.cancel();
        self.hub.0.stopping.cancel();
        self.hub.0.tracker.close();
        self.hub.0.tracker.wait().await;
        if let Err(error) = self.hub.0.writer.barrier().await {
            tracing::error!(%error, "failed to store the last records before the shutdown");
        }
    }
}
