//! Messages that no run sends: queued like replies, or sent at once, without waiting for others to their target.
//!
//! A message that is sent at once has one attempt, which is on disk before the channel is called. So the same delivery is
//! not sent again after a restart, and one that a crash interrupted is reported as unknown.

use std::sync::Arc;

use homard_store::{Delivery, DeliveryRow, DeliveryState, Error as StoreError, Rec, Verdict};

use super::{
    DeliveryReport, HubDeliveries, QueuedDelivery,
    sender::{SEND_TIMEOUT, SendResult, send_once},
};
use crate::{
    channel_sender::{Receipt, SendError},
    hub::Shared,
};

/// Result of sending a message at once.
#[derive(Debug)]
pub enum ImmediateResult {
    /// The channel accepted it.
    Sent(Receipt),
    /// The attempt failed. It is not repeated.
    Failed(SendError),
    /// A delivery with its id was recorded before, and nothing was sent now.
    Known(Box<DeliveryRow>),
}

impl HubDeliveries<'_> {
    /// Queues a message. Returns false if its id is known; it is then not queued again.
    pub async fn enqueue(self, delivery: Delivery) -> Result<bool, StoreError> {
        let hub = &self.hub.0;
        let commit = {
            // Queue and commit under one lock, as in `send_with_deliveries`.
            let mut queues = hub.deliveries.lock();
            let commit = hub.writer.commit_with_verdicts(vec![Rec::Queue(Box::new(delivery.clone()))]);
            hub.put(&mut queues, QueuedDelivery::new(DeliveryRow::new(delivery), None));
            commit
        };
        // What was not stored is dropped before it is sent, because its state cannot be changed.
        Ok(commit.await?.first() == Some(&Verdict::Stored))
    }

    /// Sends a message at once, with one attempt, unless its id is known. The delivery must be
    /// [immediate](Delivery::is_immediate).
    pub async fn send_now(self, delivery: Delivery) -> Result<ImmediateResult, StoreError> {
        let hub = &self.hub.0;
        if !begin(hub, &delivery).await? {
            let known = hub.store.delivery(&delivery.id).await?;
            let missing = || StoreError::Disk("the message could not be recorded".to_owned());
            return known.map(|row| ImmediateResult::Known(Box::new(row))).ok_or_else(missing);
        }
        let Some(result) = send_once(hub, &delivery, SEND_TIMEOUT).await else {
            // The next start reports it.
            return Ok(ImmediateResult::Failed(SendError::Unknown("the gateway is shutting down".to_owned())));
        };
        let (state, result) = match result {
            SendResult::Done(receipt) => (DeliveryState::sent(receipt.message_ids()), ImmediateResult::Sent(receipt)),
            SendResult::Failed(error) => (failed_state(&error), ImmediateResult::Failed(error)),
            SendResult::TimedOut => {
                let error = SendError::Unknown("the channel did not answer in time".to_owned());
                (failed_state(&error), ImmediateResult::Failed(error))
            }
        };
        conclude(hub, &delivery, state).await;
        Ok(result)
    }

    /// Records and reports a message that was sent without the outbox and whose outcome is unknown. A known id is not
    /// recorded again.
    pub async fn record_unknown(self, delivery: Delivery, reason: String) -> Result<(), StoreError> {
        let hub = &self.hub.0;
        let mut delivery = Delivery { is_immediate: true, ..delivery };
        let mut is_new = begin(hub, &delivery).await?;
        if !is_new && delivery.run.is_some() && hub.store.delivery(&delivery.id).await?.is_none() {
            // Its run has ended, and an ended run queues nothing.
            delivery.run = None;
            is_new = begin(hub, &delivery).await?;
        }
        if is_new {
            conclude(hub, &delivery, DeliveryState::Unknown { reason: Some(reason) }).await;
        }
        Ok(())
    }
}

/// Stores that a message is being sent. Returns false if its id is known.
async fn begin(hub: &Arc<Shared>, delivery: &Delivery) -> Result<bool, StoreError> {
    let (id, at) = (delivery.id.clone(), delivery.at);
    let sending = Rec::Deliver { id, state: DeliveryState::Sending, at };
    let verdicts = hub.writer.commit_with_verdicts(vec![Rec::Queue(Box::new(delivery.clone())), sending]).await?;
    Ok(verdicts.first() == Some(&Verdict::Stored))
}

/// Stores and reports the state of a message. If it cannot be stored before the shutdown, the next start reports it.
async fn conclude(hub: &Arc<Shared>, delivery: &Delivery, state: DeliveryState) {
    if hub.mark_until_stored(delivery, &state, None).await {
        hub.report([DeliveryReport::new(delivery, state, None)]);
    }
}

fn failed_state(error: &SendError) -> DeliveryState {
    match error {
        SendError::Unknown(why) => DeliveryState::Unknown { reason: Some(why.clone()) },
        SendError::NoChannel(_)
        | SendError::NoChannels
        | SendError::Ambiguous(_)
        | SendError::Unsupported { .. }
        | SendError::Refused(_)
        | SendError::Unavailable { .. } => DeliveryState::Dead { reason: error.to_string() },
    }
}
