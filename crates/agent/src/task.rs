//! The one door to the runtime: a task has a name and carries its span.

use std::future::Future;

use tokio::task::JoinHandle;
use tracing::Instrument;

/// Spawns a task that somebody joins or cancels. Its span is the caller's, so its log lines say to what they belong.
pub fn spawn<F>(name: &'static str, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    #[allow(clippy::disallowed_methods, reason = "this is the door")]
    tokio::spawn(future.instrument(tracing::debug_span!("task", name)))
}
