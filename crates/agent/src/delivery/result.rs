//! Delivery result of a run's channel messages, for callers that ask.

use std::time::Duration;

use homard_delivery::DeliveryResult;
use homard_proto::RunId;
use homard_store::Error as StoreError;
use tokio::time::timeout;

use super::{Deliveries, HubDeliveries};

impl Deliveries {
    /// True if a message of a run was not tried yet.
    fn is_untried(&self, run: &RunId) -> bool {
        let queues = self.lock();
        let mut items = queues.values().flatten();
        items.any(|item| item.row.delivery.run.as_ref() == Some(run) && item.row.attempts == 0 && !item.is_withdrawn)
    }
}

impl HubDeliveries<'_> {
    /// Returns the delivery result of a run. Waits up to `max_wait` for the first attempts.
    pub async fn result(self, run: &RunId, max_wait: Duration) -> Result<DeliveryResult, StoreError> {
        let tried = async {
            loop {
                let changed = self.hub.0.deliveries.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if !self.hub.0.deliveries.is_untried(run) {
                    return;
                }
                tokio::select! {
                    biased;
                    () = self.hub.0.draining.cancelled() => return,
                    () = changed => {}
                }
            }
        };
        // After the timeout, the current state is returned.
        timeout(max_wait, tried).await.ok();
        let mut rows = self.outbox().await?;
        rows.retain(|row| row.delivery.run.as_ref() == Some(run));
        Ok(DeliveryResult::of(&rows))
    }
}
