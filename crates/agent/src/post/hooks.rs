//! Hooks on channel messages.

use std::sync::Arc;

use homard_hooks::{Context, Event, Point, Sending, Sent};
use homard_store::{Delivery, DeliveryState};
use serde_json::{Map, json};

use super::letter::Letter;
use crate::hub::Shared;

/// Runs the hooks before a message is sent; `None` if it must not be sent. They run again with every attempt.
pub(super) async fn before_send(hub: &Arc<Shared>, delivery: &Delivery) -> Option<Delivery> {
    let hooks = hub.setup.rules().hooks.clone();
    if !hooks.has(Point::MessageSending) {
        return Some(delivery.clone());
    }
    let mut letter = Letter::of(delivery);
    let target = &delivery.target;
    let mut metadata = json!({"channel": target.channel, "accountId": target.account, "mediaUrls": letter.media});
    if let Some(thread) = &letter.thread {
        metadata["threadId"] = json!(thread);
    }
    let event = Event::MessageSending(Sending {
        to: target.to.clone(),
        content: letter.text.clone(),
        reply_to_id: letter.reply_to.clone(),
        metadata: metadata.as_object().cloned().unwrap_or_else(Map::new),
    });
    let outcome = hooks.ask(event, &place(hub, delivery).await).await;
    if outcome.refusal().is_some() {
        return None;
    }
    letter.text = outcome.answer.content.unwrap_or(letter.text);
    let payload = serde_json::to_value(letter).unwrap_or_else(|_| delivery.payload.clone());
    Some(Delivery { payload, ..delivery.clone() })
}

/// Fires the hooks for the final state of a message.
pub(super) async fn after_send(hub: &Arc<Shared>, delivery: &Delivery, state: &DeliveryState) {
    let hooks = &hub.setup.rules().hooks;
    if !hooks.has(Point::MessageSent) && !hooks.is_heard("message", "sent") {
        return;
    }
    let (message_id, error) = match state {
        DeliveryState::Sent { provider_id } => (provider_id.clone(), None),
        DeliveryState::Unknown => (None, Some("nobody knows whether it arrived".to_owned())),
        DeliveryState::Dead { reason } => (None, Some(reason.clone())),
        DeliveryState::Queued | DeliveryState::Sending | DeliveryState::Failed { .. } => return,
    };
    let sent = Sent {
        to: delivery.target.to.clone(),
        content: Letter::of(delivery).text,
        success: error.is_none(),
        error,
        message_id,
    };
    hub.tell_sent(sent, &place(hub, delivery).await);
}

/// Builds the hook context of a message.
async fn place(hub: &Arc<Shared>, delivery: &Delivery) -> Context {
    let row = match &delivery.run {
        Some(run) => hub.store.run(run).await.ok().flatten(),
        None => None,
    };
    let target = &delivery.target;
    Context {
        run_id: delivery.run.as_ref().map(ToString::to_string),
        session_key: row.as_ref().map(|row| row.key.to_string()),
        agent_id: row.as_ref().and_then(|row| row.key.agent()).map(ToString::to_string),
        message_provider: Some(target.channel.clone()),
        channel: Some(target.channel.clone()),
        channel_id: Some(target.channel.clone()),
        account_id: Some(target.account.clone()).filter(|account| !account.is_empty()),
        conversation_id: Some(target.to.clone()),
        chat_id: Some(target.to.clone()),
        ..Context::default()
    }
}
