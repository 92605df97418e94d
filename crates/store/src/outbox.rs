//! What is to be said on channels: how a delivery goes out, and what a crash makes of one that was on its way.
//!
//! | from | to |
//! |---|---|
//! | queued, failed | sending, dead |
//! | sending | sent, failed, dead, unknown (queued again if the channel is idempotent) |
//! | unknown | sent, failed, dead: somebody found out, or decided |
//! | sent, dead | – |
//!
//! `sending` is on disk before the channel is called, so whatever a crash leaves there may have arrived or not. Where the
//! channel knows the delivery's key, it is queued again and the channel drops the second one. Elsewhere it is `unknown`,
//! and goes out again only if somebody says that it failed. Deliveries to one target go out in the order in which they
//! were queued.

#[cfg(test)]
mod tests;

use std::collections::HashSet;

use homard_proto::RunId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A delivery that has not gone out after so long never does: an answer from the day before only confuses.
pub const TTL_MS: u64 = 24 * 60 * 60 * 1000;

/// Who is to hear it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Target {
    /// The channel.
    pub channel: String,
    /// Which of our accounts there speaks.
    pub account: String,
    /// The chat, room or number, as the channel writes it.
    pub to: String,
}

/// That what a run says goes to somebody on a channel, and how. To whom says its route.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Post {
    /// Whether its message came from there: the session remembers where it was spoken to last.
    pub is_origin: bool,
    /// Whether nobody minds if it does not get there.
    pub is_best_effort: bool,
    /// Whether a talkative session tells there what its tools do.
    pub tells_tools: bool,
    /// What the channel calls the message that is answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    /// Why it cannot get there, if that was known before the run began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// Something to be said on a channel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Delivery {
    /// Its name; one that is known is not queued again.
    pub id: String,
    /// The run that says it. It is queued only while that run has not ended, so before its end in the same batch.
    pub run: Option<RunId>,
    /// Who is to hear it.
    pub target: Target,
    /// Which part of a long answer it is, from 0.
    pub part: u32,
    /// What the channel is told to know it by.
    pub key: String,
    /// Whether the channel drops a second delivery with the same key.
    pub is_idempotent: bool,
    /// What is said, as the channel's adapter understands it.
    pub payload: Value,
    /// When it was queued; milliseconds since the epoch.
    pub at: u64,
}

/// How far a delivery has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum DeliveryState {
    /// It waits for its turn.
    Queued,
    /// The channel is being called, or was when the process ended.
    Sending,
    /// The channel has it.
    Sent {
        /// What the channel calls it.
        provider_id: Option<String>,
    },
    /// The channel does not have it. It is tried again.
    Failed {
        /// Not before then; milliseconds since the epoch.
        retry_at: u64,
        /// For people.
        reason: String,
    },
    /// Nobody knows whether the channel has it.
    Unknown,
    /// It never goes out, or nobody wants to know any more.
    Dead {
        /// For people.
        reason: String,
    },
}

impl DeliveryState {
    /// In a word.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Sending => "sending",
            Self::Sent { .. } => "sent",
            Self::Failed { .. } => "failed",
            Self::Unknown => "unknown",
            Self::Dead { .. } => "dead",
        }
    }

    /// Whether nothing more can become of it.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Sent { .. } | Self::Dead { .. } => true,
            Self::Queued | Self::Sending | Self::Failed { .. } | Self::Unknown => false,
        }
    }
}

/// What is known of a delivery.
#[derive(Debug, Clone, PartialEq)]
pub struct DeliveryRow {
    /// The delivery.
    pub delivery: Delivery,
    /// How far it has come.
    pub state: DeliveryState,
    /// How often the channel was called.
    pub attempts: u32,
}

impl DeliveryRow {
    /// A delivery that waits for its turn.
    pub fn new(delivery: Delivery) -> Self {
        Self { delivery, state: DeliveryState::Queued, attempts: 0 }
    }

    /// What it is after it was told to become `wanted`; `None` when it cannot.
    pub fn next(&self, wanted: &DeliveryState, at: u64) -> Option<Self> {
        use DeliveryState::{Dead, Failed, Queued, Sending, Sent, Unknown};
        let mut next = self.clone();
        next.state = match (&self.state, wanted) {
            (Queued | Failed { .. }, Sending) if !self.is_expired(at) => {
                next.attempts += 1;
                Sending
            }
            (Sending, Unknown) if self.delivery.is_idempotent => Queued,
            (Sending, Sent { .. } | Failed { .. } | Unknown | Dead { .. })
            // Somebody found out, or decided.
            | (Unknown, Sent { .. } | Failed { .. } | Dead { .. })
            | (Queued | Failed { .. }, Dead { .. }) => wanted.clone(),
            (Queued | Sending | Sent { .. } | Failed { .. } | Unknown | Dead { .. }, _) => return None,
        };
        Some(next)
    }

    /// Whether it has waited for too long. It cannot go out any more, and ought to be told that it is dead.
    pub fn is_expired(&self, now: u64) -> bool {
        self.is_waiting() && now > self.delivery.at.saturating_add(TTL_MS)
    }

    /// Whether those behind it, to the same target, have to wait.
    pub fn holds_up(&self, now: u64) -> bool {
        self.state == DeliveryState::Sending || (self.is_waiting() && !self.is_expired(now))
    }

    fn is_waiting(&self) -> bool {
        matches!(self.state, DeliveryState::Queued | DeliveryState::Failed { .. })
    }

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

/// What may go out now: of each target the first that holds up the others, if its time has come. `rows` are in order.
pub fn due(rows: &[DeliveryRow], now: u64) -> Vec<&DeliveryRow> {
    let mut targets = HashSet::new();
    let mut first: Vec<_> = rows.iter().filter(|row| row.holds_up(now)).collect();
    first.retain(|row| targets.insert(&row.delivery.target));
    first.retain(|row| row.is_due(now));
    first
}

/// The deliveries that the memory store knows, in the order in which they were queued.
#[derive(Debug, Default)]
pub(crate) struct Outbox(Vec<DeliveryRow>);

impl Outbox {
    /// Queues a delivery; `false` when its id is known.
    pub(crate) fn queue(&mut self, delivery: Delivery) -> bool {
        let is_new = self.0.iter().all(|row| row.delivery.id != delivery.id);
        if is_new {
            self.0.push(DeliveryRow::new(delivery));
        }
        is_new
    }

    /// Takes a delivery a step further; `false` when it cannot go there.
    pub(crate) fn mark(&mut self, id: &str, wanted: &DeliveryState, at: u64) -> bool {
        let Some(place) = self.0.iter().position(|row| row.delivery.id == id) else { return false };
        let (before, row) = (&self.0[..place], &self.0[place]);
        let mut before = before.iter().filter(|other| other.delivery.target == row.delivery.target);
        if *wanted == DeliveryState::Sending && before.any(|other| other.holds_up(at)) {
            return false;
        }
        let Some(next) = row.next(wanted, at) else { return false };
        self.0[place] = next;
        true
    }

    /// What was being sent when the process ended is not known any more.
    pub(crate) fn lose_track(&mut self) {
        for row in &mut self.0 {
            if row.state == DeliveryState::Sending {
                *row = row.next(&DeliveryState::Unknown, 0).unwrap_or_else(|| row.clone());
            }
        }
    }

    /// Those that a run has queued.
    pub(crate) fn of_run(&self, run: &RunId) -> Vec<DeliveryRow> {
        self.0.iter().filter(|row| row.delivery.run.as_ref() == Some(run)).cloned().collect()
    }

    /// The run that says what a delivery of this name says, or what a channel calls so.
    pub(crate) fn run_of(&self, name: &str) -> Option<RunId> {
        let is_named = |row: &&DeliveryRow| {
            let is_receipt =
                |state: &DeliveryState| matches!(state, DeliveryState::Sent { provider_id: Some(id) } if id == name);
            row.delivery.id == name || is_receipt(&row.state)
        };
        self.0.iter().find(is_named).and_then(|row| row.delivery.run.clone())
    }

    /// Those that have not arrived, as far as is known.
    pub(crate) fn undelivered(&self) -> Vec<DeliveryRow> {
        let arrived = |row: &&DeliveryRow| matches!(row.state, DeliveryState::Sent { .. });
        self.0.iter().filter(|row| !arrived(row)).cloned().collect()
    }
}
