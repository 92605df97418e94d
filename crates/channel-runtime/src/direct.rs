//! Messages that a client asks to send: at once, with one attempt, and once per idempotency key, also across restarts.

use homard_agent::{
    channel_sender::{ChannelSender, SendError},
    delivery::ImmediateResult,
};
use homard_delivery::payload::OutboxPayload;
use homard_proto::Route;
use homard_store::{Delivery, DeliveryState, DeliveryTarget, Error as StoreError};

use super::Channels;

/// Maximum number of attempts with one key. Only those that had no effect are followed by another.
const MAX_ATTEMPTS: u32 = 100;

/// A message that a client asks to send.
#[derive(Debug, Clone)]
pub struct DirectMessage {
    /// Idempotency key: a second message with the same key is not sent.
    pub key: String,
    /// Channel, account, chat and thread. The chat is required.
    pub route: Route,
    /// Content.
    pub payload: OutboxPayload,
}

/// A message that was sent, now or before with the same key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentDirectly {
    /// Channel on which it was sent.
    pub channel: String,
    /// Its id on the platform; of several, the last.
    pub message: Option<String>,
}

/// Why a message was not sent, or is not known to be.
#[derive(Debug, thiserror::Error)]
pub enum DirectError {
    /// The key was used for another message.
    #[error("idempotency_conflict: {0} was already used for another request")]
    Conflict(String),
    /// It could not be sent.
    #[error(transparent)]
    Send(#[from] SendError),
    /// It could not be recorded, and was not sent.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Channels {
    /// Sends a message unless it was sent with the same key within the last day. An attempt that had no effect may be
    /// repeated; one whose outcome is unknown is not.
    pub async fn send_once(&self, message: DirectMessage) -> Result<SentDirectly, DirectError> {
        let DirectMessage { key, route, payload } = message;
        let unavailable = |why: &str| SendError::Unavailable { why: why.to_owned(), retry_after: None };
        let hub = self.0.hub.get().ok_or_else(|| unavailable("the gateway is starting"))?;
        let recipient = self.recipient(&route)?;
        let to = route.to.clone().unwrap_or_default();
        let target = DeliveryTarget { channel: recipient.channel.clone(), account: recipient.account, to };
        let is_idempotent = self.traits(&recipient.channel).is_some_and(|traits| traits.is_idempotent);
        let payload = OutboxPayload { thread: route.thread, is_best_effort: true, ..payload };
        let payload = serde_json::to_value(payload).unwrap_or_default();
        for attempt in 1..=MAX_ATTEMPTS {
            let delivery = Delivery {
                id: format!("direct:{attempt}:{key}"),
                run: None,
                target: target.clone(),
                part: 0,
                key: key.clone(),
                is_idempotent,
                payload: payload.clone(),
                at: self.now(),
                is_immediate: true,
            };
            let known = match hub.deliveries().send_now(delivery.clone()).await? {
                ImmediateResult::Sent(receipt) => {
                    return Ok(SentDirectly { channel: recipient.channel, message: receipt.message });
                }
                ImmediateResult::Failed(error) => return Err(error.into()),
                ImmediateResult::Known(row) => row,
            };
            if known.delivery != (Delivery { at: known.delivery.at, ..delivery }) {
                return Err(DirectError::Conflict(key));
            }
            match known.state {
                DeliveryState::Sent { provider_id, .. } => {
                    return Ok(SentDirectly { channel: recipient.channel, message: provider_id });
                }
                DeliveryState::Unknown { reason } => {
                    return Err(SendError::Unknown(reason.unwrap_or_default()).into());
                }
                DeliveryState::Queued | DeliveryState::Sending | DeliveryState::Failed { .. } => {
                    return Err(unavailable("a message with this key is being sent").into());
                }
                // It had no effect.
                DeliveryState::Dead { .. } => {}
            }
        }
        Err(unavailable("too many attempts with this key; use another one").into())
    }
}
