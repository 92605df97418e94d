//! Results of deliveries: of one message, and of all messages of a run.

use homard_proto::RunId;
use homard_store::{Delivery, DeliveryRow, DeliveryState, DeliveryTarget};

use crate::{payload::OutboxPayload, run_output::is_withdrawal};

/// Delivery result of a run's channel messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryResult {
    /// Everything was delivered, or there was nothing to deliver.
    Delivered,
    /// Some messages are queued or wait for a retry; with the last error, if any.
    Waiting(Option<String>),
    /// It is unknown whether some were delivered.
    Unknown {
        /// Recipient.
        recipient: String,
    },
    /// Some will never be delivered.
    Refused {
        /// Recipient.
        recipient: String,
        /// Reason.
        why: String,
        /// True if the delivery was best effort.
        is_best_effort: bool,
    },
}

impl DeliveryResult {
    /// Returns the worst result of these deliveries.
    pub fn of(rows: &[DeliveryRow]) -> Self {
        let each = || rows.iter().map(Self::of_one);
        let refused = each().find(|result| matches!(result, Self::Refused { .. }));
        let unknown = || each().find(|result| matches!(result, Self::Unknown { .. }));
        let waiting = || each().find(|result| matches!(result, Self::Waiting(_)));
        refused.or_else(unknown).or_else(waiting).unwrap_or(Self::Delivered)
    }

    fn of_one(row: &DeliveryRow) -> Self {
        let DeliveryTarget { channel, to, .. } = &row.delivery.target;
        let recipient = format!("{channel}:{to}");
        match &row.state {
            DeliveryState::Sent { .. } => Self::Delivered,
            DeliveryState::Queued | DeliveryState::Sending => Self::Waiting(None),
            DeliveryState::Failed { reason, .. } => Self::Waiting(Some(reason.clone())),
            DeliveryState::Unknown { .. } => Self::Unknown { recipient },
            DeliveryState::Dead { reason } if is_withdrawal(reason) => Self::Delivered,
            DeliveryState::Dead { reason } => Self::Refused {
                recipient,
                why: reason.clone(),
                is_best_effort: OutboxPayload::of(&row.delivery).is_best_effort,
            },
        }
    }
}

/// Final state of a delivery, published once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryReport {
    /// Run that sent it.
    pub run: Option<RunId>,
    /// Id of the delivery.
    pub id: String,
    /// Recipient.
    pub target: DeliveryTarget,
    /// Sent, dead, or unknown.
    pub state: DeliveryState,
    /// Why it was not delivered, or is not known to be.
    pub why: Option<String>,
    /// True if the delivery was best effort.
    pub is_best_effort: bool,
}

impl DeliveryReport {
    /// Builds the report of a final state.
    pub fn new(delivery: &Delivery, state: DeliveryState, why: Option<&str>) -> Self {
        let why = match (&state, why) {
            (DeliveryState::Dead { reason } | DeliveryState::Unknown { reason: Some(reason) }, None) => {
                Some(reason.clone())
            }
            (_, why) => why.map(str::to_owned),
        };
        let is_best_effort = OutboxPayload::of(delivery).is_best_effort;
        let (run, id, target) = (delivery.run.clone(), delivery.id.clone(), delivery.target.clone());
        Self { run, id, target, state, why, is_best_effort }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(state: DeliveryState) -> DeliveryRow {
        let target = DeliveryTarget { channel: "telegram".to_owned(), account: String::new(), to: "7".to_owned() };
        let (id, key, payload) = ("k/0.0".to_owned(), "k/0.0".to_owned(), json!({"text": "x", "isBestEffort": true}));
        let delivery =
            Delivery { id, run: None, target, part: 0, key, is_idempotent: false, payload, at: 0, is_immediate: false };
        DeliveryRow { state, ..DeliveryRow::new(delivery) }
    }

    #[test]
    fn the_worst_delivery_result_is_returned() {
        let dead = |reason: &str| row(DeliveryState::Dead { reason: reason.to_owned() });
        let busy = row(DeliveryState::Failed { retry_at: 0, reason: "busy".to_owned() });
        let (queued, unknown) = (row(DeliveryState::Queued), row(DeliveryState::interrupted()));
        let recipient = || "telegram:7".to_owned();
        assert_eq!(DeliveryResult::of(&[]), DeliveryResult::Delivered);
        assert_eq!(
            DeliveryResult::of(&[dead("aborted"), row(DeliveryState::sent(Vec::new()))]),
            DeliveryResult::Delivered
        );
        assert_eq!(DeliveryResult::of(&[queued]), DeliveryResult::Waiting(None));
        assert_eq!(DeliveryResult::of(std::slice::from_ref(&busy)), DeliveryResult::Waiting(Some("busy".to_owned())));
        assert_eq!(
            DeliveryResult::of(&[busy.clone(), unknown.clone()]),
            DeliveryResult::Unknown { recipient: recipient() }
        );
        let refused =
            DeliveryResult::Refused { recipient: recipient(), why: "blocked".to_owned(), is_best_effort: true };
        assert_eq!(DeliveryResult::of(&[busy, unknown, dead("blocked")]), refused);
    }
}
