//! The task that delivers the messages of one target in order.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures_util::FutureExt;
use homard_stdx::time::millis;
use homard_store::{Delivery, DeliveryRow, DeliveryState, DeliveryTarget, Rec, Verdict, outbox::TTL_MS};
use tokio::time::sleep;

use super::{
    Deliveries, DeliveryReport, OutboxPayload, QueuedDelivery, RunOutput,
    hooks::{after_send, before_send},
    notice, queue_records,
};
use crate::{
    channel_sender::{Receipt, SendError},
    hub::Shared,
};

/// Time limit for one attempt. Channel senders have shorter limits of their own.
pub(super) const SEND_TIMEOUT: Duration = Duration::from_secs(60);
/// Time for a message in flight at shutdown.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);
/// Retry delay if a state cannot be stored before or after sending.
const STORE_RETRY: Duration = Duration::from_secs(1);
/// Retry delays by number of attempts. The last one applies to all further attempts.
const BACKOFF_MS: [u64; 5] = [1_000, 5_000, 25_000, 120_000, 600_000];

/// Next step for a target.
#[derive(Debug)]
enum SendStep {
    /// Nothing left.
    Nothing,
    /// Wait until this time, in milliseconds since the epoch.
    Later(u64),
    /// Drop this message and store the reason.
    Drop(Box<Delivery>, DeliveryDropReason),
    /// Send this message.
    Send(Box<DeliveryRow>, Box<OutboxPayload>, Option<Arc<RunOutput>>),
}

/// Why a delivery is dropped before it is sent.
#[derive(Debug)]
enum DeliveryDropReason {
    /// Its run withdrew it.
    TakenBack(&'static str),
    /// It waited too long.
    Expired,
}

impl DeliveryDropReason {
    fn reason(&self) -> String {
        match self {
            Self::TakenBack(text) => (*text).to_owned(),
            Self::Expired => "not delivered within 24 hours".to_owned(),
        }
    }
}

/// Result of storing a state of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StoreResult {
    Stored,
    /// Rejected: the delivery is not stored, or its state was changed otherwise.
    Refused,
    /// The disk failed.
    Failed,
}

impl Deliveries {
    /// Returns the next step for a target. If there is none, the target is removed.
    fn next(&self, target: &DeliveryTarget, now: u64) -> SendStep {
        let mut queues = self.lock();
        loop {
            let Some(item) = queues.get_mut(target).and_then(|queue| queue.front_mut()) else {
                queues.remove(target);
                self.changed.notify_waiters();
                return SendStep::Nothing;
            };
            if item.is_withdrawn {
                queues.get_mut(target).map(std::collections::VecDeque::pop_front);
                continue;
            }
            let expired = || item.row.is_expired(now).then_some(DeliveryDropReason::Expired);
            if let Some(drop_reason) = item.withdrawal().map(DeliveryDropReason::TakenBack).or_else(expired) {
                item.is_withdrawn = true;
                return SendStep::Drop(Box::new(item.row.delivery.clone()), drop_reason);
            }
            let due = *item.due.get_or_insert_with(|| now.saturating_add(item.payload.delay_ms));
            if due > now {
                return SendStep::Later(due.min(item.row.delivery.at.saturating_add(TTL_MS + 1)));
            }
            item.is_sending = true;
            return SendStep::Send(Box::new(item.row.clone()), Box::new(item.payload.clone()), item.output.clone());
        }
    }

    /// Updates the message that was being sent: it is retried at `again_at`, or removed.
    fn settle(&self, target: &DeliveryTarget, state: DeliveryState, again_at: Option<u64>) {
        let mut queues = self.lock();
        let Some(queue) = queues.get_mut(target) else { return };
        match (queue.front_mut(), again_at) {
            (Some(item), Some(at_ms)) => {
                item.row = DeliveryRow { state, attempts: item.row.attempts + 1, ..item.row.clone() };
                (item.due, item.is_sending) = (Some(at_ms), false);
            }
            (_, _) => drop(queue.pop_front()),
        }
        self.changed.notify_waiters();
    }

    /// Delays a message that could not be tried.
    fn delay(&self, target: &DeliveryTarget, until: u64) {
        if let Some(item) = self.lock().get_mut(target).and_then(|queue| queue.front_mut()) {
            (item.due, item.is_sending) = (Some(until), false);
        }
    }
}

/// Delivers the messages of a target until its queue is empty or the process shuts down. Remaining ones stay queued on
/// disk.
pub(super) async fn serve(hub: Arc<Shared>, target: DeliveryTarget) {
    loop {
        if hub.stopping.is_cancelled() {
            return;
        }
        let changed = hub.deliveries.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        let now = hub.ambient.now_ms();
        match hub.deliveries.next(&target, now) {
            SendStep::Nothing => return,
            SendStep::Later(at_ms) => tokio::select! {
                biased;
                // Shutdown does not wait for it: the next start resumes it.
                () = hub.draining.cancelled() => return,
                () = changed => {}
                () = sleep(Duration::from_millis(at_ms.saturating_sub(now))) => {}
            },
            SendStep::Drop(delivery, drop_reason) => {
                let state = DeliveryState::Dead { reason: drop_reason.reason() };
                let notice = match drop_reason {
                    DeliveryDropReason::TakenBack(_) => None,
                    DeliveryDropReason::Expired => notice::of(&delivery, &state, now),
                };
                if !hub.mark_until_stored(&delivery, &state, notice).await {
                    return;
                }
                hub.report([DeliveryReport::new(&delivery, state, None)]);
            }
            SendStep::Send(row, payload, output) => {
                if !send(&hub, *row, *payload, output).await {
                    return;
                }
            }
        }
    }
}

/// Sends one message. Returns false at shutdown.
async fn send(hub: &Arc<Shared>, row: DeliveryRow, payload: OutboxPayload, output: Option<Arc<RunOutput>>) -> bool {
    let target = row.delivery.target.clone();
    let Some(delivery) = before_send(hub, &row.delivery).await else {
        let state = DeliveryState::Dead { reason: "blocked by a hook".to_owned() };
        return conclude(hub, &row, Conclusion { state, why: None, again_at: None, notice: None }).await;
    };
    match hub.mark(&delivery, &DeliveryState::Sending).await {
        StoreResult::Stored => {}
        StoreResult::Refused => {
            hub.deliveries.settle(&target, row.state, None);
            return true;
        }
        StoreResult::Failed => {
            hub.deliveries.delay(&target, hub.ambient.now_ms().saturating_add(STORE_RETRY.as_millis() as u64));
            return true;
        }
    }
    let limit = if payload.block.is_some() { hub.config.rules().delivery.block_limit } else { SEND_TIMEOUT };
    let Some(result) = send_once(hub, &delivery, limit).await else { return false };
    let is_hung = matches!(&result, SendResult::TimedOut);
    let (state, reason, again_at) = next_state(hub, &row, result);
    let mut is_lost = again_at.is_none();
    if let (Some(output), Some(block)) = (&output, payload.block) {
        match &state {
            // This block may have arrived; those after it have not.
            _ if is_hung => drop(output.break_at(block + 1)),
            // It is sent with the rest of the answer, unless that was sent already.
            DeliveryState::Dead { .. } => is_lost = !output.break_at(block),
            DeliveryState::Sent { .. }
            | DeliveryState::Unknown { .. }
            | DeliveryState::Failed { .. }
            | DeliveryState::Queued
            | DeliveryState::Sending => {}
        }
    }
    let notice = is_lost.then(|| notice::of(&row.delivery, &state, hub.ambient.now_ms())).flatten();
    conclude(hub, &row, Conclusion { state, why: reason, again_at, notice }).await
}

/// Result of sending a message.
struct Conclusion {
    state: DeliveryState,
    why: Option<String>,
    /// Time of the next attempt, if there is one.
    again_at: Option<u64>,
    /// Notice to its chat, if the message is lost.
    notice: Option<Delivery>,
}

/// Stores the result of a message, and publishes it if it is final. Returns false at shutdown.
async fn conclude(hub: &Arc<Shared>, row: &DeliveryRow, conclusion: Conclusion) -> bool {
    let Conclusion { state, why: reason, again_at, notice } = conclusion;
    if !hub.mark_until_stored(&row.delivery, &state, notice).await {
        return false;
    }
    hub.deliveries.settle(&row.delivery.target, state.clone(), again_at);
    after_send(hub, &row.delivery, &state).await;
    if again_at.is_none() {
        hub.report([DeliveryReport::new(&row.delivery, state, reason.as_deref())]);
    }
    true
}

/// Result of an attempt.
pub(super) enum SendResult {
    Done(Receipt),
    Failed(SendError),
    /// No response within the time limit.
    TimedOut,
}

/// Passes a message to the channel sender; `None` at shutdown.
pub(super) async fn send_once(hub: &Arc<Shared>, delivery: &Delivery, limit: Duration) -> Option<SendResult> {
    let Some(sender) = hub.deliveries.sender.get() else {
        return Some(SendResult::Failed(SendError::NoChannel(delivery.target.channel.clone())));
    };
    let outgoing = OutboxPayload::of(delivery).outgoing(delivery);
    let stopped = async {
        hub.stopping.cancelled().await;
        sleep(SHUTDOWN_GRACE).await;
    };
    tokio::select! {
        biased;
        result = AssertUnwindSafe(sender.deliver(outgoing)).catch_unwind() => Some(match result {
            Ok(Ok(receipt)) => SendResult::Done(receipt),
            Ok(Err(error)) => SendResult::Failed(error),
            Err(_) => SendResult::Failed(SendError::Unknown("the channel implementation panicked".to_owned())),
        }),
        () = stopped => None,
        () = sleep(limit) => Some(SendResult::TimedOut),
    }
}

/// Returns the new state of a message, the reason, and the time of the next attempt.
fn next_state(hub: &Shared, row: &DeliveryRow, result: SendResult) -> (DeliveryState, Option<String>, Option<u64>) {
    let backoff = BACKOFF_MS[(row.attempts as usize).min(BACKOFF_MS.len() - 1)];
    let after = |wait: u64| hub.ambient.now_ms().saturating_add(wait);
    // A channel that deduplicates gets it again.
    let unknown = |why: String| {
        let again_at = row.delivery.is_idempotent.then(|| after(backoff));
        (DeliveryState::Unknown { reason: Some(why.clone()) }, Some(why), again_at)
    };
    match result {
        SendResult::Done(receipt) => (DeliveryState::sent(receipt.message_ids()), None, None),
        SendResult::TimedOut => unknown("the channel did not answer in time".to_owned()),
        SendResult::Failed(SendError::Unknown(why)) => unknown(why),
        SendResult::Failed(SendError::Unavailable { why: reason, retry_after }) => {
            let requested = retry_after.map_or(0, millis);
            let retry_at = after(backoff.max(requested));
            (DeliveryState::Failed { retry_at, reason }, None, Some(retry_at))
        }
        SendResult::Failed(
            error @ (SendError::NoChannel(_)
            | SendError::NoChannels
            | SendError::Ambiguous(_)
            | SendError::Unsupported { .. }
            | SendError::Refused(_)),
        ) => (DeliveryState::Dead { reason: error.to_string() }, None, None),
    }
}

impl Shared {
    /// Stores a new state of a delivery.
    async fn mark(self: &Arc<Self>, delivery: &Delivery, state: &DeliveryState) -> StoreResult {
        self.mark_with(delivery, state, None).await
    }

    /// Stores a new state of a delivery, and queues a notice to the same target in the same commit.
    async fn mark_with(
        self: &Arc<Self>,
        delivery: &Delivery,
        state: &DeliveryState,
        notice: Option<&Delivery>,
    ) -> StoreResult {
        let (id, state, at) = (delivery.id.clone(), state.clone(), self.ambient.now_ms());
        let mut records = vec![Rec::Deliver { id, state, at }];
        records.extend(notice.into_iter().flat_map(|notice| queue_records(std::slice::from_ref(notice))));
        let commit = {
            // Queue and commit under one lock, as in `send_with_deliveries`.
            let mut queues = self.deliveries.lock();
            if let Some(notice) = notice {
                self.put(&mut queues, QueuedDelivery::new(DeliveryRow::new(notice.clone()), None));
            }
            self.writer.commit_with_verdicts(records)
        };
        match commit.await.map(|verdicts| verdicts.into_iter().next()) {
            Ok(Some(Verdict::Stored)) => StoreResult::Stored,
            Ok(_) => StoreResult::Refused,
            Err(_) => StoreResult::Failed,
        }
    }

    /// Like `mark_with`, with retries until it is stored; false at shutdown. The messages after it wait.
    pub(super) async fn mark_until_stored(
        self: &Arc<Self>,
        delivery: &Delivery,
        state: &DeliveryState,
        notice: Option<Delivery>,
    ) -> bool {
        // A notice that could not be stored is dropped when it would be sent.
        while self.mark_with(delivery, state, notice.as_ref()).await == StoreResult::Failed {
            tokio::select! {
                biased;
                () = self.stopping.cancelled() => return false,
                () = sleep(STORE_RETRY) => {}
            }
        }
        true
    }
}
