//! Outbox of deliveries to channels: their states, and what a crash does to a delivery in progress.
//!
//! | from | to |
//! |---|---|
//! | queued, failed | sending, dead |
//! | sending | sent, failed, dead, unknown (queued again if the channel is idempotent) |
//! | unknown | sent, failed, dead: the outcome was found out, or the operator decided |
//! | sent, dead | – |
//!
//! `sending` is on disk before the channel is called, so a delivery that a crash leaves in this state may have arrived
//! or not. If the channel deduplicates by the delivery's key, it is queued again and the channel drops the second one.
//! Otherwise it is `unknown`, and is sent again only if it is explicitly marked as failed. Deliveries to one target are
//! sent in queue order.

#[cfg(test)]
mod tests;

use std::collections::HashSet;

use homard_proto::RunId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Time after which an unsent delivery expires, because a reply from the day before only confuses.
pub const TTL_MS: u64 = 24 * 60 * 60 * 1000;

/// Destination of a delivery.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DeliveryTarget {
    /// Channel.
    pub channel: String,
    /// Own account on the channel that sends it.
    pub account: String,
    /// The chat, room or number, in the channel's notation.
    pub to: String,
}

/// How a run's reply is delivered to a channel. The destination is the run's route.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReplyDelivery {
    /// True if the run's message came from there; the session then stores it as its last route.
    pub is_origin: bool,
    /// True if a failed delivery is not an error.
    pub is_best_effort: bool,
    /// True if a verbose session reports its tool calls there.
    #[serde(rename = "tellsTools")]
    pub reports_tools: bool,
    /// The channel's id of the message being answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// Why the reply cannot be delivered, if that was known before the run began.
    #[serde(rename = "trouble", skip_serializing_if = "Option::is_none")]
    pub undeliverable_reason: Option<String>,
}

/// A message to be sent on a channel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Delivery {
    /// Delivery id; a known id is not queued again.
    pub id: String,
    /// Run that sends it. The delivery is rejected once that run has ended; a batch must queue it before the run's end.
    pub run: Option<RunId>,
    /// Destination.
    pub target: DeliveryTarget,
    /// Index of this part of a long reply, from 0.
    pub part: u32,
    /// Idempotency key passed to the channel.
    pub key: String,
    /// True if it may be sent again when it is unknown whether it arrived: the channel drops a second delivery with the
    /// same key, or reading it twice does no harm.
    pub is_idempotent: bool,
    /// Content, in the format of the channel's adapter.
    pub payload: Value,
    /// Time at which it was queued, in milliseconds since the epoch.
    pub at: u64,
}

/// State of a delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum DeliveryState {
    /// Waiting to be sent.
    Queued,
    /// The channel is being called, or was when the process ended.
    Sending,
    /// The channel accepted it.
    Sent {
        /// The channel's id of the message.
        provider_id: Option<String>,
    },
    /// The channel did not accept it; it will be retried.
    Failed {
        /// Earliest time of the next attempt, in milliseconds since the epoch.
        retry_at: u64,
        /// Reason, for people.
        reason: String,
    },
    /// It is unknown whether the channel accepted it.
    Unknown,
    /// It will never be sent, or was given up.
    Dead {
        /// Reason, for people.
        reason: String,
    },
}

impl DeliveryState {
    /// Returns the name of the state.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Sending => "sending",
            Self::Sent { .. } => "sent",
            Self::Failed { .. } => "failed",
            Self::Unknown => "unknown",
            Self::Dead { .. } => "dead",
        }
    }

    /// True if no further transition is possible.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Sent { .. } | Self::Dead { .. } => true,
            Self::Queued | Self::Sending | Self::Failed { .. } | Self::Unknown => false,
        }
    }
}

/// A stored delivery and its state.
#[derive(Debug, Clone, PartialEq)]
pub struct DeliveryRow {
    /// The delivery.
    pub delivery: Delivery,
    /// Its state.
    pub state: DeliveryState,
    /// Number of attempts to send it.
    pub attempts: u32,
}

impl DeliveryRow {
    /// Creates a queued delivery.
    pub fn new(delivery: Delivery) -> Self {
        Self { delivery, state: DeliveryState::Queued, attempts: 0 }
    }

    /// Returns the row after a transition to `wanted`; `None` if the transition is not allowed. An idempotent delivery
    /// with an unknown outcome is queued again.
    pub fn next(&self, wanted: &DeliveryState, at: u64) -> Option<Self> {
        use DeliveryState::{Dead, Failed, Queued, Sending, Sent, Unknown};
        let mut next = self.clone();
        next.state = match (&self.state, wanted) {
            (Queued | Failed { .. }, Sending) if !self.is_expired(at) => {
                next.attempts += 1;
                Sending
            }
            // Safe to send again.
            (Sending, Unknown) if self.delivery.is_idempotent => Queued,
            (Sending, Sent { .. } | Failed { .. } | Unknown | Dead { .. })
            // The outcome was determined later, or the operator set it.
            | (Unknown, Sent { .. } | Failed { .. } | Dead { .. })
            | (Queued | Failed { .. }, Dead { .. }) => wanted.clone(),
            (Queued | Sending | Sent { .. } | Failed { .. } | Unknown | Dead { .. }, _) => return None,
        };
        Some(next)
    }

    /// True if it has waited too long. It can no longer be sent and should be marked as dead.
    pub fn is_expired(&self, now: u64) -> bool {
        self.is_waiting() && now > self.delivery.at.saturating_add(TTL_MS)
    }

    /// True if later deliveries to the same target have to wait for it.
    pub fn blocks_others(&self, now: u64) -> bool {
        self.state == DeliveryState::Sending || (self.is_waiting() && !self.is_expired(now))
    }

    fn is_waiting(&self) -> bool {
        matches!(self.state, DeliveryState::Queued | DeliveryState::Failed { .. })
    }

    /// True if it may be sent at this time.
    fn is_due(&self, now: u64) -> bool {
        match self.state {
            DeliveryState::Queued => true,
            DeliveryState::Failed { retry_at, .. } => retry_at <= now,
            DeliveryState::Sending
            | DeliveryState::Sent { .. }
            | DeliveryState::Unknown
            | DeliveryState::Dead { .. } => false,
        }
    }
}

/// Returns the deliveries that may be sent now: for each target, the first that blocks the others, if it is due. `rows`
/// are in queue order.
pub fn due(rows: &[DeliveryRow], now: u64) -> Vec<&DeliveryRow> {
    let mut targets = HashSet::new();
    let mut first: Vec<_> = rows.iter().filter(|row| row.blocks_others(now)).collect();
    first.retain(|row| targets.insert(&row.delivery.target));
    first.retain(|row| row.is_due(now));
    first
}

/// Deliveries of the memory store, in queue order.
#[derive(Debug, Default)]
pub(crate) struct Outbox(Vec<DeliveryRow>);

impl Outbox {
    /// Queues a delivery; returns `false` if its id is known.
    pub(crate) fn queue(&mut self, delivery: Delivery) -> bool {
        let is_new = self.0.iter().all(|row| row.delivery.id != delivery.id);
        if is_new {
            self.0.push(DeliveryRow::new(delivery));
        }
        is_new
    }

    /// Changes the state of a delivery; returns `false` if the transition is not allowed.
    pub(crate) fn mark(&mut self, id: &str, wanted: &DeliveryState, at: u64) -> bool {
        let Some(index) = self.0.iter().position(|row| row.delivery.id == id) else { return false };
        let (earlier, row) = (&self.0[..index], &self.0[index]);
        let mut earlier = earlier.iter().filter(|other| other.delivery.target == row.delivery.target);
        if *wanted == DeliveryState::Sending && earlier.any(|other| other.blocks_others(at)) {
            return false;
        }
        let Some(next) = row.next(wanted, at) else { return false };
        self.0[index] = next;
        true
    }

    /// Marks deliveries that were being sent when the process ended as unknown.
    pub(crate) fn mark_unknown(&mut self) {
        for row in &mut self.0 {
            if row.state == DeliveryState::Sending {
                *row = row.next(&DeliveryState::Unknown, 0).unwrap_or_else(|| row.clone());
            }
        }
    }

    /// Returns the deliveries queued by a run.
    pub(crate) fn of_run(&self, run: &RunId) -> Vec<DeliveryRow> {
        self.0.iter().filter(|row| row.delivery.run.as_ref() == Some(run)).cloned().collect()
    }

    /// Returns the run of a delivery, by delivery id or by the channel's message id.
    pub(crate) fn run_of(&self, name: &str) -> Option<RunId> {
        let is_named = |row: &&DeliveryRow| {
            let is_receipt =
                |state: &DeliveryState| matches!(state, DeliveryState::Sent { provider_id: Some(id) } if id == name);
            row.delivery.id == name || is_receipt(&row.state)
        };
        self.0.iter().find(is_named).and_then(|row| row.delivery.run.clone())
    }

    /// Returns deliveries not known to have arrived.
    pub(crate) fn undelivered(&self) -> Vec<DeliveryRow> {
        let arrived = |row: &&DeliveryRow| matches!(row.state, DeliveryState::Sent { .. });
        self.0.iter().filter(|row| !arrived(row)).cloned().collect()
    }
}
