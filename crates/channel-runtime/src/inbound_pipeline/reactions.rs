//! Reactions to messages: the agent sees them with the next message; they do not start a run.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use homard_channels::{
    Incoming, PeerKind, Reaction,
    access::{AccessDecision, AccessRequest, decide},
    envelope,
};
use homard_policy::routing::RoutingResult;
use homard_settings::{channel_kinds::label, channels::Reactions};

use super::InboundPipeline;

/// Maximum number of our own messages that are remembered.
const MAX_REMEMBERED: usize = 500;

/// Recently sent messages, since the process started.
#[derive(Debug, Default)]
pub(in super::super) struct SentMessages(Mutex<VecDeque<(String, String)>>);

impl SentMessages {
    /// Remembers a message that was sent.
    pub(crate) fn remember(&self, to: &str, message: &str) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_REMEMBERED {
            known.pop_front();
        }
        known.push_back((to.to_owned(), message.to_owned()));
    }

    fn has(&self, to: &str, message: &str) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().any(|(chat, sent)| chat == to && sent == message)
    }
}

impl InboundPipeline {
    /// Records a reaction in the session of its chat, if the sender has access and the session exists.
    pub(super) async fn record_reaction(&self, reaction: Reaction) {
        let policy = self.policy();
        // People do not react to their own messages, so in a direct chat it is one of ours.
        let is_ours =
            || reaction.peer.kind == PeerKind::Direct || self.sent_messages.has(&reaction.peer.id, &reaction.message);
        let is_wanted = match policy.reactions {
            Reactions::Off => false,
            Reactions::Own => is_ours(),
            Reactions::All => true,
        };
        if !is_wanted || reaction.added.is_empty() {
            return;
        }
        let Reaction { event, account, peer, sender, message, added, timestamp_ms, server, sender_roles, .. } =
            reaction;
        let incoming = Incoming {
            event,
            account,
            peer,
            sender,
            timestamp_ms,
            server,
            sender_roles,
            was_mentioned: true,
            ..Incoming::default()
        };
        let sender = policy.sender(&incoming);
        let paired = tokio::task::block_in_place(|| self.pairing_store.approved(&policy.account)).unwrap_or_default();
        let caller = AccessRequest {
            incoming: &incoming,
            sender: &sender,
            paired: &paired,
            activation: None,
            is_command: false,
        };
        if !matches!(decide(&policy.rules, caller), AccessDecision::Admit { .. }) {
            return;
        }
        let is_owner = policy.is_owner(&incoming, &paired) && incoming.peer.kind == PeerKind::Direct;
        let Ok(RoutingResult { key, .. }) = self.route_message(&policy, &incoming, is_owner).await else { return };
        if !matches!(self.hub.sessions().get(&key).await, Ok(Some(_))) {
            return;
        }
        let (channel, sender_name) = (label(&self.account_key.0), envelope::sender(&incoming));
        let text = format!("{channel} reaction added: {} by {sender_name} on message {message}", added.join(" "));
        if let Err(error) = self.hub.sessions().note_event(&key, text).await {
            tracing::warn!(channel = self.account_key.0, %error, "failed to store a reaction event");
        }
    }
}
