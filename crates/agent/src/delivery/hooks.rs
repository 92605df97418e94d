//! Hooks on channel messages.

use std::sync::Arc;

use homard_delivery::payload::OutboxPayload;
use homard_hooks::{HookContext, HookEvent, HookPoint, OutgoingMessage, SentMessage};
use homard_store::{Delivery, DeliveryState};
use serde_json::{Map, json};

use crate::hub::Shared;

/// Runs the hooks before a message is sent; `None` if it must not be sent. They run again with every attempt.
pub(super) async fn before_send(hub: &Arc<Shared>, delivery: &Delivery) -> Option<Delivery> {
    let hooks = hub.config.rules().hooks.clone();
    if !hooks.has(HookPoint::MessageSending) {
        return Some(delivery.clone());
    }
    let mut message = OutboxPayload::of(delivery);
    let target = &delivery.target;
    let mut metadata = json!({"channel": target.channel, "accountId": target.account, "mediaUrls": message.media});
    if let Some(thread) = &message.thread {
        metadata["threadId"] = json!(thread);
    }
    let event = HookEvent::MessageSending(OutgoingMessage {
        to: target.to.clone(),
        content: message.text.clone(),
        reply_to_id: message.reply_to.clone(),
        metadata: metadata.as_object().cloned().unwrap_or_else(Map::new),
    });
    let outcome = hooks.call(event, &hook_context(hub, delivery).await).await;
    if outcome.block_reason().is_some() {
        return None;
    }
    message.text = outcome.answer.content.unwrap_or(message.text);
    let payload = serde_json::to_value(message).unwrap_or_else(|_| delivery.payload.clone());
    Some(Delivery { payload, ..delivery.clone() })
}

/// Fires the hooks for the final state of a message.
pub(super) async fn after_send(hub: &Arc<Shared>, delivery: &Delivery, state: &DeliveryState) {
    let hooks = &hub.config.rules().hooks;
    if !hooks.has(HookPoint::MessageSent) && !hooks.has_listener("message", "sent") {
        return;
    }
    let (message_id, error) = match state {
        DeliveryState::Sent { provider_id, .. } => (provider_id.clone(), None),
        DeliveryState::Unknown { .. } => (None, Some("it is not known whether the message was delivered".to_owned())),
        DeliveryState::Dead { reason } => (None, Some(reason.clone())),
        DeliveryState::Queued | DeliveryState::Sending | DeliveryState::Failed { .. } => return,
    };
    let sent = SentMessage {
        to: delivery.target.to.clone(),
        content: OutboxPayload::of(delivery).text,
        success: error.is_none(),
        error,
        message_id,
    };
    hub.fire_sent(sent, &hook_context(hub, delivery).await);
}

/// Builds the hook context of a message.
async fn hook_context(hub: &Arc<Shared>, delivery: &Delivery) -> HookContext {
    let row = match &delivery.run {
        Some(run) => hub.store.run(run).await.ok().flatten(),
        None => None,
    };
    let target = &delivery.target;
    HookContext {
        run_id: delivery.run.as_ref().map(ToString::to_string),
        session_key: row.as_ref().map(|row| row.key.to_string()),
        agent_id: row.as_ref().and_then(|row| row.key.agent()).map(ToString::to_string),
        message_provider: Some(target.channel.clone()),
        channel: Some(target.channel.clone()),
        channel_id: Some(target.channel.clone()),
        account_id: Some(target.account.clone()).filter(|account| !account.is_empty()),
        conversation_id: Some(target.to.clone()),
        chat_id: Some(target.to.clone()),
        ..HookContext::default()
    }
}
