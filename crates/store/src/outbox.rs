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
    /// True if it is sent at once, outside of the order of its target: it waits for no other delivery, and none waits for
    /// it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_immediate: bool,
}

/// Reason for the unknown outcome of a delivery that was being sent when the process ended.
pub const PROCESS_ENDED: &str = "the process ended while the message was being sent";

/// State of a delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredState", into = "StoredState")]
pub enum DeliveryState {
    /// Waiting to be sent.
    Queued,
    /// The channel is being called, or was when the process ended.
    Sending,
    /// The channel accepted it.
    Sent {
        /// The channel's id of the message; of several, the last.
        provider_id: Option<String>,
        /// Ids of the messages before it, if the delivery was split.
        other_ids: Vec<String>,
    },
    /// The channel did not accept it; it will be retried.
    Failed {
        /// Earliest time of the next attempt, in milliseconds since the epoch.
        retry_at: u64,
        /// Reason, for people.
        reason: String,
    },
    /// It is unknown whether the channel accepted it.
    Unknown {
        /// Reason, for people. Missing for deliveries of earlier versions. Stored beside the state.
        reason: Option<String>,
    },
    /// It will never be sent, or was given up.
    Dead {
        /// Reason, for people.
        reason: String,
    },
}

/// A state as it is stored. It is the same as in earlier versions, which have no reason for an unknown outcome.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
enum StoredState {
    Queued,
    Sending,
    Sent {
        provider_id: Option<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        other_ids: Vec<String>,
    },
    Failed {
        retry_at: u64,
        reason: String,
    },
    Unknown,
    Dead {
        reason: String,
    },
}

impl From<StoredState> for DeliveryState {
    fn from(state: StoredState) -> Self {
        match state {
            StoredState::Queued => Self::Queued,
            StoredState::Sending => Self::Sending,
            StoredState::Sent { provider_id, other_ids } => Self::Sent { provider_id, other_ids },
            StoredState::Failed { retry_at, reason } => Self::Failed { retry_at, reason },
            StoredState::Unknown => Self::Unknown { reason: None },
            StoredState::Dead { reason } => Self::Dead { reason },
        }
    }
}

impl From<DeliveryState> for StoredState {
    fn from(state: DeliveryState) -> Self {
        match state {
            DeliveryState::Queued => Self::Queued,
            DeliveryState::Sending => Self::Sending,
            DeliveryState::Sent { provider_id, other_ids } => Self::Sent { provider_id, other_ids },
            DeliveryState::Failed { retry_at, reason } => Self::Failed { retry_at, reason },
            DeliveryState::Unknown { .. } => Self::Unknown,
            DeliveryState::Dead { reason } => Self::Dead { reason },
        }
    }
}

impl DeliveryState {
    /// Creates the state of a delivery that became these messages of the channel, in order.
    pub fn sent(mut messages: Vec<String>) -> Self {
        let provider_id = messages.pop();
        Self::Sent { provider_id, other_ids: messages }
    }

    /// Creates the state of a delivery that was being sent when the process ended.
    pub fn interrupted() -> Self {
        Self::Unknown { reason: Some(PROCESS_ENDED.to_owned()) }
    }

    /// Returns the channel's ids of the messages that it became, in order.
    pub fn message_ids(&self) -> Vec<&str> {
        match self {
            Self::Sent { provider_id, other_ids } => other_ids.iter().chain(provider_id).map(String::as_str).collect(),
            Self::Queued | Self::Sending | Self::Failed { .. } | Self::Unknown { .. } | Self::Dead { .. } => Vec::new(),
        }
    }

    /// Returns the name of the state.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Sending => "sending",
            Self::Sent { .. } => "sent",
            Self::Failed { .. } => "failed",
            Self::Unknown { .. } => "unknown",
            Self::Dead { .. } => "dead",
        }
    }

    /// True if no further transition is possible.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Sent { .. } | Self::Dead { .. } => true,
            Self::Queued | Self::Sending | Self::Failed { .. } | Self::Unknown { .. } => false,
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
            (Sending, Unknown { .. }) if self.delivery.is_idempotent => Queued,
            (Sending, Sent { .. } | Failed { .. } | Unknown { .. } | Dead { .. })
            // The outcome was determined later, or the operator set it.
            | (Unknown { .. }, Sent { .. } | Failed { .. } | Dead { .. })
            | (Queued | Failed { .. }, Dead { .. }) => wanted.clone(),
            (Queued | Sending | Sent { .. } | Failed { .. } | Unknown { .. } | Dead { .. }, _) => return None,
        };
        Some(next)
    }

    /// True if it has waited too long. It can no longer be sent and should be marked as dead.
    pub fn is_expired(&self, now: u64) -> bool {
        self.is_waiting() && now > self.delivery.at.saturating_add(TTL_MS)
    }

    /// True if later deliveries to the same target have to wait for it.
    pub fn blocks_others(&self, now: u64) -> bool {
        let is_open = self.state == DeliveryState::Sending || (self.is_waiting() && !self.is_expired(now));
        is_open && !self.delivery.is_immediate
    }

    /// True if it has to wait while earlier deliveries block it.
    pub fn waits_for_others(&self) -> bool {
        !self.delivery.is_immediate
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
            | DeliveryState::Unknown { .. }
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
        let must_wait = *wanted == DeliveryState::Sending && row.waits_for_others();
        if must_wait && earlier.any(|other| other.blocks_others(at)) {
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
                *row = row.next(&DeliveryState::interrupted(), 0).unwrap_or_else(|| row.clone());
            }
        }
    }

    /// Returns a delivery.
    pub(crate) fn find(&self, id: &str) -> Option<DeliveryRow> {
        self.0.iter().find(|row| row.delivery.id == id).cloned()
    }

    /// Returns the deliveries queued by a run.
    pub(crate) fn of_run(&self, run: &RunId) -> Vec<DeliveryRow> {
        self.0.iter().filter(|row| row.delivery.run.as_ref() == Some(run)).cloned().collect()
    }

    /// Returns the run of a delivery, by delivery id or by the channel's message id.
    pub(crate) fn run_of(&self, name: &str) -> Option<RunId> {
        let is_named = |row: &&DeliveryRow| row.delivery.id == name || row.state.message_ids().contains(&name);
        self.0.iter().find(is_named).and_then(|row| row.delivery.run.clone())
    }

    /// Returns deliveries not known to have arrived.
    pub(crate) fn undelivered(&self) -> Vec<DeliveryRow> {
        let arrived = |row: &&DeliveryRow| matches!(row.state, DeliveryState::Sent { .. });
        self.0.iter().filter(|row| !arrived(row)).cloned().collect()
    }
}
