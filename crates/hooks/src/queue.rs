//! Notifications: each hook processes them in order, without delaying the loop.

use std::sync::{Arc, OnceLock};

use tokio::sync::{mpsc, oneshot};
use tracing::Instrument as _;

use crate::{HookContext, HookEvent, runner::HookHandlerEntry};

/// Maximum number of queued notifications per hook. Beyond that they are dropped with a warning.
const MAX_QUEUED: usize = 256;

/// A queue entry.
#[derive(Debug)]
enum QueueEntry {
    Notification(Box<(HookEvent, HookContext)>),
    /// Signals that everything before it was processed.
    Mark(oneshot::Sender<()>),
}

/// Notification queue of one hook.
#[derive(Debug, Default)]
pub(crate) struct NotificationQueue(OnceLock<mpsc::Sender<QueueEntry>>);

impl NotificationQueue {
    /// Enqueues a notification.
    pub(crate) fn enqueue(handler: &Arc<HookHandlerEntry>, event: HookEvent, context: HookContext) {
        let sender = handler.queue.0.get_or_init(|| {
            let (sender, mut receiver) = mpsc::channel(MAX_QUEUED);
            let weak = Arc::downgrade(handler);
            let task = async move {
                while let Some(entry) = receiver.recv().await {
                    match (entry, weak.upgrade()) {
                        (QueueEntry::Notification(notification), Some(handler)) => {
                            let (event, context) = *notification;
                            handler.notify(event, context).await
                        }
                        // The task that waits in `flush` may have been dropped.
                        (QueueEntry::Mark(done), _) => drop(done.send(())),
                        (QueueEntry::Notification(_), None) => {}
                    }
                }
            };
            #[expect(
                clippy::disallowed_methods,
                reason = "homard_agent, whose task::spawn should be used, depends on this crate"
            )]
            tokio::spawn(task.instrument(tracing::info_span!("hook", name = handler.name())));
            sender
        });
        let point = event.point();
        if sender.try_send(QueueEntry::Notification(Box::new((event, context)))).is_err() {
            tracing::warn!(hook = handler.name(), point = point.name(), "hook is too slow; dropping a notification");
        }
    }

    /// Waits until everything enqueued so far was processed.
    pub(crate) async fn flush(&self) {
        let Some(sender) = self.0.get() else { return };
        let (done, processed) = oneshot::channel();
        if sender.send(QueueEntry::Mark(done)).await.is_ok() {
            // An error means that the consumer has ended.
            processed.await.ok();
        }
    }
}
