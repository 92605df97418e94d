//! Notifications: each hook processes them in order, without delaying the loop.

use std::sync::{Arc, OnceLock};

use tokio::sync::{mpsc, oneshot};
use tracing::Instrument as _;

use crate::{Context, Event, runner::Handler};

/// Maximum number of queued notifications per hook. Beyond that they are dropped with a warning.
const WAITING: usize = 256;

/// A queue entry.
#[derive(Debug)]
enum Telling {
    This(Box<(Event, Context)>),
    /// Signals that everything before it was processed.
    Mark(oneshot::Sender<()>),
}

/// Notification queue of one hook.
#[derive(Debug, Default)]
pub(crate) struct Queue(OnceLock<mpsc::Sender<Telling>>);

impl Queue {
    /// Enqueues a notification.
    pub(crate) fn put(handler: &Arc<Handler>, event: Event, context: Context) {
        let sender = handler.queue.0.get_or_init(|| {
            let (sender, mut waiting) = mpsc::channel(WAITING);
            let weak = Arc::downgrade(handler);
            let task = async move {
                while let Some(telling) = waiting.recv().await {
                    match (telling, weak.upgrade()) {
                        (Telling::This(this), Some(handler)) => handler.tell(this.0, this.1).await,
                        // The waiting task may have been dropped.
                        (Telling::Mark(done), _) => drop(done.send(())),
                        (Telling::This(_), None) => {}
                    }
                }
            };
            #[expect(clippy::disallowed_methods, reason = "the loop's own way to spawn is above this crate")]
            tokio::spawn(task.instrument(tracing::info_span!("hook", name = handler.name())));
            sender
        });
        let point = event.point();
        if sender.try_send(Telling::This(Box::new((event, context)))).is_err() {
            tracing::warn!(hook = handler.name(), point = point.name(), "a hook is too slow; it was not told of this");
        }
    }

    /// Waits until everything enqueued so far was processed.
    pub(crate) async fn flush(&self) {
        let Some(sender) = self.0.get() else { return };
        let (done, told) = oneshot::channel();
        if sender.send(Telling::Mark(done)).await.is_ok() {
            // An error means that the consumer has ended.
            told.await.ok();
        }
    }
}
