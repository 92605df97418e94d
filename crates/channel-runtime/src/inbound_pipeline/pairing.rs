//! Pairing codes for unknown senders. A code goes through the outbox like a reply, so it is sent until it has arrived.

use std::sync::PoisonError;

use homard_audit::{AuditKind, AuditRecord};
use homard_channels::{
    Incoming,
    pairing::{PairingApplicant, PairingOutcome, pairing_message},
};
use homard_delivery::payload::OutboxPayload;
use homard_proto::Identity;
use homard_settings::channel_kinds::label;
use homard_store::{Delivery, DeliveryTarget};
use serde_json::{Map, Value};

use super::InboundPipeline;

/// Maximum number of codes that are remembered as queued; the outbox knows the others.
const MAX_REMEMBERED: usize = 1000;

/// Sends a pairing code to an unknown sender, once.
pub(super) async fn send_code(pipeline: &InboundPipeline, incoming: &Incoming, identity: &Identity) {
    let (channel, sender) = (&pipeline.account_key.0, &incoming.sender);
    let known = [("username", sender.username.clone()), ("name", Some(sender.name.clone()))];
    let present = known.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into())));
    let meta: Map<String, Value> = present.filter(|(_, value): &(_, Value)| value != "").collect();
    let applicant = PairingApplicant { sender: identity, meta, now_ms: pipeline.now() };
    let outcome = tokio::task::block_in_place(|| pipeline.pairing_store.request(applicant, random_bytes));
    let code = match outcome {
        Ok(PairingOutcome::New(code)) => {
            let record = AuditRecord::new(AuditKind::PairingRequested)
                .actor(&sender.id)
                .with("channel", channel)
                .with("account", &pipeline.account_key.1);
            pipeline.hub.audit().note(record.outcome("asked"));
            let incident = format!("{} requested pairing; see: homard pairing list {channel}", sender.id);
            pipeline.status.ignored(pipeline.now(), incident);
            code
        }
        // The process may have ended before the code was queued.
        Ok(PairingOutcome::Waiting(code)) => code,
        Ok(PairingOutcome::Full) => {
            let incident = format!(
                "{} received no pairing code: too many requests are pending; see: homard pairing list {channel}",
                sender.id
            );
            return pipeline.status.ignored(pipeline.now(), incident);
        }
        Err(error) => return tracing::error!(%error, "failed to store a pairing request"),
    };
    queue_code(pipeline, incoming, code).await;
}

/// Queues the message with a code, unless the outbox has it.
async fn queue_code(pipeline: &InboundPipeline, incoming: &Incoming, code: String) {
    let (channel, account) = &pipeline.account_key;
    if pipeline.queued_codes.lock().unwrap_or_else(PoisonError::into_inner).contains(&code) {
        return;
    }
    let id_label = format!("Your {} user id", label(channel));
    let payload = OutboxPayload {
        text: pairing_message(channel, &id_label, &incoming.sender.id, &code),
        thread: incoming.thread.clone(),
        is_best_effort: true,
        ..OutboxPayload::default()
    };
    let delivery = Delivery {
        id: format!("pairing:{channel}:{account}:{code}"),
        run: None,
        target: DeliveryTarget { channel: channel.clone(), account: account.clone(), to: incoming.peer.id.clone() },
        part: 0,
        key: format!("pairing-{channel}-{code}"),
        // Reading it twice does no harm.
        is_idempotent: true,
        payload: serde_json::to_value(payload).unwrap_or_default(),
        at: pipeline.now(),
        is_immediate: false,
    };
    match pipeline.hub.deliveries().enqueue(delivery).await {
        Ok(_) => {
            let mut queued = pipeline.queued_codes.lock().unwrap_or_else(PoisonError::into_inner);
            if queued.len() >= MAX_REMEMBERED {
                queued.clear();
            }
            queued.insert(code);
        }
        // Tried again when the sender writes again.
        Err(error) => tracing::error!(%error, channel, "failed to queue a pairing code"),
    }
}

/// Draws random bytes. If the system has no randomness they are zero: all codes are then equal, and only one is given
/// out.
fn random_bytes() -> [u8; 8] {
    let mut bytes = [0; 8];
    if let Err(error) = getrandom::fill(&mut bytes) {
        tracing::error!(%error, "cannot read random bytes from the system");
    }
    bytes
}
