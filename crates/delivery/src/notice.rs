//! Notices to a chat about a message that is lost, or may be.
//!
//! A message that may have arrived is not sent again, so that it is not read twice. If it did not arrive, the person
//! would wait for a reply that the agent considers sent. The notice is queued in the commit that gives up the message,
//! or by the next start if a crash came first. Its id is derived from the message's id, so there is at most one.

use homard_store::{Delivery, DeliveryState, outbox::TTL_MS};

use crate::payload::OutboxPayload;

/// Text for a message that may have arrived.
const UNKNOWN: &str = "⚠️ A message to you may not have arrived. If an answer is missing, ask again.";
/// Text for a message that the channel refused.
const REFUSED: &str =
    "⚠️ A message to you was not delivered, because the channel refused it. If an answer is missing, ask again.";
/// Text for a message that expired before it could be sent.
const EXPIRED: &str = "⚠️ A message to you was not delivered, because the channel was unavailable for a day. If an answer is missing, ask again.";

/// Builds the notice about a message that is given up in this state. `None` if nothing is lost, or if the delivery was
/// best effort.
pub fn of(delivery: &Delivery, state: &DeliveryState, now: u64) -> Option<Delivery> {
    let text = match state {
        DeliveryState::Unknown { .. } => UNKNOWN,
        DeliveryState::Dead { .. } if now > delivery.at.saturating_add(TTL_MS) => EXPIRED,
        DeliveryState::Dead { .. } => REFUSED,
        DeliveryState::Queued | DeliveryState::Sending | DeliveryState::Sent { .. } | DeliveryState::Failed { .. } => {
            return None;
        }
    };
    let lost = OutboxPayload::of(delivery);
    // Best effort includes notices: there is none about a notice.
    if lost.is_best_effort || lost.is_of_tool {
        return None;
    }
    let OutboxPayload { reply_to, thread, .. } = lost;
    let notice_payload =
        OutboxPayload { text: text.to_owned(), reply_to, thread, is_best_effort: true, ..OutboxPayload::default() };
    let id = format!("{}/lost", delivery.id);
    Some(Delivery {
        key: id.clone(),
        id,
        // The run of the message may have ended, and an ended run queues nothing.
        run: None,
        target: delivery.target.clone(),
        part: 0,
        // Reading it twice does no harm, so it is sent until it has arrived.
        is_idempotent: true,
        payload: serde_json::to_value(notice_payload).unwrap_or_default(),
        at: now,
        is_immediate: false,
    })
}

#[cfg(test)]
mod tests {
    use homard_store::DeliveryTarget;
    use serde_json::json;

    use super::*;

    fn delivery(payload: serde_json::Value) -> Delivery {
        let target = DeliveryTarget { channel: "telegram".to_owned(), account: String::new(), to: "7".to_owned() };
        let (id, key) = ("k/0.0".to_owned(), "k/0.0".to_owned());
        Delivery { id, run: None, target, part: 0, key, is_idempotent: false, payload, at: 1, is_immediate: false }
    }

    fn dead() -> DeliveryState {
        DeliveryState::Dead { reason: "no".to_owned() }
    }

    #[test]
    fn a_notice_replies_to_the_same_message_and_is_retried() {
        let lost = delivery(json!({"text": "42", "replyTo": "m1", "thread": "t"}));
        let notice = of(&lost, &DeliveryState::interrupted(), 5).unwrap();
        let payload = OutboxPayload::of(&notice);
        assert_eq!(
            (payload.text.as_str(), payload.reply_to.as_deref(), payload.thread.as_deref()),
            (UNKNOWN, Some("m1"), Some("t"))
        );
        assert_eq!((notice.id.as_str(), notice.at, notice.is_idempotent), ("k/0.0/lost", 5, true));
        assert_eq!(OutboxPayload::of(&of(&lost, &dead(), 5).unwrap()).text, REFUSED);
        assert_eq!(OutboxPayload::of(&of(&lost, &dead(), 2 + TTL_MS).unwrap()).text, EXPIRED);
        assert_eq!(of(&notice, &dead(), 6), None);
    }

    #[test]
    fn messages_that_are_not_lost_or_best_effort_have_no_notice() {
        let answer = delivery(json!({"text": "42"}));
        assert_eq!(of(&answer, &DeliveryState::sent(Vec::new()), 5), None);
        assert_eq!(of(&answer, &DeliveryState::Queued, 5), None);
        assert_eq!(of(&delivery(json!({"text": "42", "isBestEffort": true})), &dead(), 5), None);
        assert_eq!(of(&delivery(json!({"text": "reads", "isOfTool": true})), &dead(), 5), None);
    }
}
