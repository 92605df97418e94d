//! Submits one message to the hub: loads its attachments, wraps it in its envelope, and retries until the hub has
//! accepted it.

use std::{path::Path, sync::Arc, time::Duration};

use homard_agent::{
    Inbound, Tape,
    hub::{SubmitError, SubmitOutcome},
    intake::{self, ChannelMessage},
    tool::RunOrigin,
};
use homard_channels::{
    Destination, Incoming, PeerKind,
    envelope::{self, EnvelopeClock, EnvelopeStamp},
};
use homard_policy::routing::RoutingResult;
use homard_reply::thread::ThreadMode;
use homard_settings::channel_kinds::label;
use homard_store::{Origin as Came, Sender};
use tokio::time::sleep;

use super::{AdmittedMessage, InboundPipeline, chat_key};
use crate::{
    draft::{self, DraftContent, DraftLocation, DraftSettings},
    media::{self, LoadedMedia},
    policy::{ChannelPolicy, principal},
    queue_status, typing,
};

/// Initial retry delay; doubles with every attempt.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(250);
/// Maximum retry delay.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);
/// Minimum time between two edits of a draft: Telegram allows one message per second in a chat, and twenty per minute
/// in a group.
const DIRECT_DRAFT_INTERVAL: Duration = Duration::from_secs(1);
const GROUP_DRAFT_INTERVAL: Duration = Duration::from_secs(4);
/// Maximum characters that are quoted of a message that is replied to.
const MAX_QUOTED_CHARS: usize = 2000;

/// Text of a message, with notes about its attachments.
#[derive(Clone, Copy)]
struct MessageText<'a> {
    text: &'a str,
    notes: &'a [String],
}

impl InboundPipeline {
    /// Submits a message. Returns once the hub has accepted it, or once it is certain that there will be no run. If the
    /// future is dropped before that, the message is still in the spool.
    pub(super) async fn submit_group(&self, group: Vec<AdmittedMessage>) {
        let Some(first) = group.first() else { return };
        let events: Vec<_> = group.iter().map(|admitted| admitted.incoming.event.clone()).collect();
        let policy = self.policy();
        match self.build_inbound(&policy, &group).await {
            Ok(inbound) => {
                if !self.submit(inbound, first).await {
                    return;
                }
            }
            Err(why) => {
                let (channel, event) = (&self.account_key.0, &first.incoming.event);
                tracing::error!(channel, event, why, "cannot submit a message to an agent; dropping the message");
            }
        }
        self.mark_done(&events).await;
    }

    /// Submits until the hub accepts or rejects the message; returns false if the pipeline closed in the meantime.
    async fn submit(&self, inbound: Inbound, first: &AdmittedMessage) -> bool {
        let mut wait = FIRST_RETRY_DELAY;
        loop {
            let why = match self.hub.submit(inbound.clone()).await {
                Ok(accepted) => {
                    if first.incoming.peer.kind != PeerKind::Direct && !first.is_control {
                        self.history().take(&chat_key(&first.incoming));
                    }
                    if let SubmitOutcome::New(tape) = accepted.outcome
                        && !first.is_control
                    {
                        self.start_indicators(&tape, first).await;
                    }
                    return true;
                }
                // Another run has the id of this event, or the session is closed: retrying is useless.
                Err(error @ (SubmitError::Conflict(_) | SubmitError::Blocked | SubmitError::SessionChanged)) => {
                    tracing::warn!(channel = self.account_key.0, %error, "a message of a channel was rejected and is not retried");
                    return true;
                }
                // The run is stored already, and is held until its owner decides.
                Err(SubmitError::Held(_)) => return true,
                Err(error @ (SubmitError::Overloaded | SubmitError::Store(_) | SubmitError::Stopping)) => error,
            };
            tracing::debug!(channel = self.account_key.0, %why, "message not accepted yet; retrying");
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return false,
                () = sleep(wait) => wait = (wait * 2).min(MAX_RETRY_DELAY),
            }
        }
    }

    /// Shows a typing indicator and queue status in the chat, and a draft of the reply if enabled.
    async fn start_indicators(&self, tape: &Arc<Tape>, first: &AdmittedMessage) {
        let (policy, incoming) = (self.policy(), &first.incoming);
        let is_direct = incoming.peer.kind == PeerKind::Direct;
        let mode = policy.typing.mode(is_direct || first.was_mentioned);
        let destination = self.reply_destination(incoming);
        let (channel, stop) = (self.channel.clone(), self.stop.clone());
        let refresh = typing::Refresh { mode, period: policy.typing.every };
        typing::show(channel.clone(), destination.clone(), refresh, tape.clone(), stop.clone());
        let target = queue_status::StatusTarget { destination: destination.clone(), message: incoming.message.clone() };
        queue_status::show(channel.clone(), target, policy.queue_status, tape.clone(), stop.clone());
        let capabilities = channel.capabilities();
        if !capabilities.has_edits || self.hub.hooks().screens_messages() {
            return;
        }
        let streams_reasoning = self.hub.sessions().streams_reasoning(tape.key()).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the reasoning level of a session could not be read");
            false
        });
        let content = match policy.streaming {
            _ if streams_reasoning => DraftContent::Reasoning,
            Some(streaming_mode) => DraftContent::Answer(streaming_mode),
            None => return,
        };
        let replies = self
            .hub
            .deliveries()
            .channel_traits(&self.account_key.0)
            .map(|capabilities| capabilities.replies)
            .unwrap_or_default();
        let location = DraftLocation {
            channel: self.account_key.0.clone(),
            account: self.account_key.1.clone(),
            to: destination.to,
            thread: destination.thread,
            reply_to: Some(incoming.message.clone()).filter(|_| replies != ThreadMode::Off),
            at: self.now(),
        };
        self.drafts.register(tape.run(), location);
        let interval = if is_direct { DIRECT_DRAFT_INTERVAL } else { GROUP_DRAFT_INTERVAL };
        let settings = DraftSettings { content, interval, max_chars: capabilities.text_limit };
        draft::stream_draft(self.drafts.clone(), channel, settings, tape.clone(), stop);
    }

    /// Returns the destination of the reply.
    fn reply_destination(&self, incoming: &Incoming) -> Destination {
        Destination { to: incoming.peer.id.clone(), thread: incoming.thread.clone() }
    }

    /// Builds the request for the hub; an error says why it cannot be built.
    async fn build_inbound(&self, policy: &Arc<ChannelPolicy>, group: &[AdmittedMessage]) -> Result<Inbound, String> {
        let Some(first) = group.first() else { return Err("the group of messages is empty".to_owned()) };
        let incoming = &first.incoming;
        let is_direct = incoming.peer.kind == PeerKind::Direct;
        let RoutingResult { agent, key, .. } =
            self.route_message(policy, incoming, first.is_owner && is_direct).await?;
        let messages: Vec<&Incoming> = group.iter().map(|admitted| &admitted.incoming).collect();
        // In a group the model also reads the text of others, so the owner's rights apply to commands only.
        let is_owner = first.is_owner && (is_direct || first.is_control);
        let sender = policy.sender(incoming);
        let origin = RunOrigin { principal: principal(&sender, is_owner && is_direct), ..RunOrigin::default() };
        let is_readable =
            self.hub.agents().get(&agent).is_some_and(|profile| profile.may_read_workspace(&origin, &key));
        let workspace = policy.workspaces.get(&agent).map_or(Path::new("."), |path| path.as_path());
        let peer = policy.account.sender(&incoming.peer.id);
        let folder = media::folder(workspace, &peer, incoming.peer.kind, is_readable);
        let LoadedMedia { pictures, notes } =
            media::load(&self.channel, &messages, policy.max_media_bytes, folder).await;
        let texts: Vec<&str> =
            messages.iter().map(|incoming| incoming.text.trim()).filter(|text| !text.is_empty()).collect();
        let previous = self.hub.sessions().get(&key).await.ok().flatten().map(|record| record.updated_at);
        let message = ChannelMessage {
            origin: Came {
                channel: self.account_key.0.clone(),
                account: self.account_key.1.clone(),
                event: incoming.event.clone(),
                message: Some(incoming.message.clone()).filter(|message| *message != incoming.event),
            },
            principal: principal(&sender, is_owner),
            sender: Sender {
                id: incoming.sender.id.clone(),
                name: Some(incoming.sender.name.clone()).filter(|name| !name.is_empty()),
                username: incoming.sender.username.clone(),
            },
            key,
            text: texts.join("\n"),
            pictures,
            route: incoming.route(&self.account_key.0),
            message: incoming.message.clone(),
            at: incoming.timestamp_ms.min(self.now()),
        };
        let model_text = |text: &str| {
            // Text that invokes a skill is passed on unchanged.
            if is_owner && text.starts_with('/') && notes.is_empty() {
                return text.to_owned();
            }
            self.model_text(policy, incoming, MessageText { text, notes: &notes }, previous)
        };
        let mut inbound = intake::channel_message(&self.hub, message, model_text).map_err(|error| error.to_string())?;
        // A command that starts a run is obeyed in a group, too, but its run has no owner rights: everyone reads the
        // reply.
        if !is_direct && inbound.asks_model() {
            inbound.sender.principal = origin.principal;
        }
        Ok(inbound)
    }

    /// Returns the text that the model receives for a message.
    fn model_text(
        &self,
        policy: &ChannelPolicy,
        incoming: &Incoming,
        MessageText { text, notes }: MessageText<'_>,
        previous: Option<u64>,
    ) -> String {
        let quoted = incoming.reply_to.as_ref().filter(|quoted| !quoted.text.trim().is_empty()).map(|quoted| {
            let quoted_sender =
                if quoted.is_ours { "you" } else { quoted.sender.as_deref().unwrap_or("unknown sender") };
            let quoted_sender: String =
                quoted_sender.chars().filter(|c| !c.is_control() && !matches!(c, '[' | ']')).take(80).collect();
            let quoted_text: String = quoted.text.trim().chars().take(MAX_QUOTED_CHARS).collect();
            format!("[Replying to {quoted_sender}]\n{quoted_text}\n[/Replying]")
        });
        let parts = notes.iter().map(String::as_str).chain([text]).chain(quoted.as_deref());
        let body = parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n");
        let stamp = EnvelopeStamp {
            channel: label(&self.account_key.0),
            clock: EnvelopeClock::Zone(policy.time_zone.clone()),
            previous_ms: previous,
        };
        let message = envelope::wrap(incoming, &body, &stamp);
        match incoming.peer.kind {
            PeerKind::Direct => message,
            PeerKind::Group | PeerKind::Channel => self.history().with_context(&chat_key(incoming), &message),
        }
    }
}
