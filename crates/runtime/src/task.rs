//! The only place that spawns tasks: each has a name and a tracing span.

use std::future::Future;

use tokio::task::JoinHandle;
use tracing::Instrument;

/// Spawns a task that is joined or cancelled by its owner. It inherits the caller's span, so its log lines have
/// context.
pub fn spawn<F>(name: &'static str, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    #[allow(clippy::disallowed_methods, reason = "the only place that spawns tasks")]
    tokio::spawn(future.instrument(tracing::debug_span!("task", name)))
}
