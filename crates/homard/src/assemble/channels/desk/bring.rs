//! Submits one message to the hub: loads its attachments, wraps it in its envelope, and retries until the hub has
//! accepted it.

use std::{path::Path, sync::Arc, time::Duration};

use homard_agent::{
    Inbound, Tape,
    hub::{Disposition, SubmitError},
    intake::{self, Arrived},
    routing::Routed,
    tool::Origin,
};
use homard_channels::{
    Incoming, PeerKind, Place,
    envelope::{self, Clock, Stamp},
};
use homard_reply::thread::Mode;
use homard_store::{Origin as Came, Sender};
use tokio::time::sleep;

use super::{Admitted, Desk, room};
use crate::assemble::channels::{
    build::label,
    draft::{self, DraftContent, Growing, Spot},
    media::{self, Loaded},
    policy::{Policy, principal},
    queue_status, typing,
};

/// Initial retry delay; doubles with every attempt.
const FIRST_WAIT: Duration = Duration::from_millis(250);
/// Maximum retry delay.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Minimum time between two edits of a draft: Telegram allows one message per second in a chat, and twenty per minute
/// in a group.
const DRAFT_ALONE: Duration = Duration::from_secs(1);
const DRAFT_IN_GROUPS: Duration = Duration::from_secs(4);
/// Maximum characters that are quoted of a message that is replied to.
const QUOTED: usize = 2000;

impl Desk {
    /// Submits a message. Returns once the hub has accepted it, or once it is certain that there will be no run. If the
    /// future is dropped before that, the message is still in the spool.
    pub(super) async fn bring(&self, group: Vec<Admitted>) {
        let Some(first) = group.first() else { return };
        let events: Vec<_> = group.iter().map(|admitted| admitted.incoming.event.clone()).collect();
        let policy = self.policy();
        match self.prepare(&policy, &group).await {
            Ok(inbound) => {
                if !self.submit(inbound, first).await {
                    return;
                }
            }
            Err(why) => {
                let (channel, event) = (&self.place.0, &first.incoming.event);
                tracing::error!(channel, event, why, "a message cannot be brought to an agent");
            }
        }
        self.finish(&events).await;
    }

    /// Submits until the hub accepts or rejects the message; returns false if the pipeline closed in the meantime.
    async fn submit(&self, inbound: Inbound, first: &Admitted) -> bool {
        let mut wait = FIRST_WAIT;
        loop {
            let why = match self.hub.submit(inbound.clone()).await {
                Ok(accepted) => {
                    if first.incoming.peer.kind != PeerKind::Direct && !first.is_control {
                        self.history().forget(&room(&first.incoming));
                    }
                    if let Disposition::New(tape) = accepted.disposition
                        && !first.is_control
                    {
                        self.show(&tape, first).await;
                    }
                    return true;
                }
                // Another run has the id of this event, or the session is closed: retrying is useless.
                Err(error @ (SubmitError::Conflict(_) | SubmitError::Blocked | SubmitError::SessionChanged)) => {
                    tracing::warn!(channel = self.place.0, %error, "a message was not taken in");
                    return true;
                }
                // The run is stored already, and is held until its owner decides.
                Err(SubmitError::Held(_)) => return true,
                Err(error @ (SubmitError::Overloaded | SubmitError::Store(_) | SubmitError::Stopping)) => error,
            };
            tracing::debug!(channel = self.place.0, %why, "a message has to wait");
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return false,
                () = sleep(wait) => wait = (wait * 2).min(LONGEST_WAIT),
            }
        }
    }

    /// Shows a typing indicator and queue status in the chat, and a draft of the reply if enabled.
    async fn show(&self, tape: &Arc<Tape>, first: &Admitted) {
        let (policy, incoming) = (self.policy(), &first.incoming);
        let is_direct = incoming.peer.kind == PeerKind::Direct;
        let mode = policy.typing.mode(is_direct || first.was_mentioned);
        let place = self.back(incoming);
        let (channel, stop) = (self.channel.clone(), self.stop.clone());
        typing::show(channel.clone(), place.clone(), (mode, policy.typing.every), tape.clone(), stop.clone());
        let about = queue_status::About { place: place.clone(), message: incoming.message.clone() };
        queue_status::show(channel.clone(), about, policy.queue_status, tape.clone(), stop.clone());
        let manner = channel.manner();
        if !manner.has_edits || self.hub.screens_messages() {
            return;
        }
        let streams_reasoning = self.hub.streams_reasoning(tape.key()).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the reasoning level of a session could not be read");
            false
        });
        let what = match policy.growth {
            _ if streams_reasoning => DraftContent::Reasoning,
            Some(by) => DraftContent::Answer(by),
            None => return,
        };
        let replies = self.hub.manner(&self.place.0).map(|manner| manner.replies).unwrap_or_default();
        let spot = Spot {
            channel: self.place.0.clone(),
            account: self.place.1.clone(),
            to: place.to,
            thread: place.thread,
            reply_to: Some(incoming.message.clone()).filter(|_| replies != Mode::Off),
            at: self.now(),
        };
        self.drafts.begin(tape.run(), spot);
        let every = if is_direct { DRAFT_ALONE } else { DRAFT_IN_GROUPS };
        let growing = Growing { what, every, most: manner.text_limit };
        draft::grow(self.drafts.clone(), channel, growing, tape.clone(), stop);
    }

    /// Returns the destination of the reply.
    fn back(&self, incoming: &Incoming) -> Place {
        Place { to: incoming.peer.id.clone(), thread: incoming.thread.clone() }
    }

    /// Builds the request for the hub; an error says why it cannot be built.
    async fn prepare(&self, policy: &Arc<Policy>, group: &[Admitted]) -> Result<Inbound, String> {
        let Some(first) = group.first() else { return Err("there is no message".to_owned()) };
        let incoming = &first.incoming;
        let is_direct = incoming.peer.kind == PeerKind::Direct;
        let Routed { agent, key, .. } = self.routed(policy, incoming, first.is_owner && is_direct).await?;
        let said: Vec<&Incoming> = group.iter().map(|admitted| &admitted.incoming).collect();
        // In a group the model also reads the text of others, so the owner's rights apply to commands only.
        let is_owner = first.is_owner && (is_direct || first.is_control);
        let sender = policy.sender(incoming);
        let asker = Origin { principal: principal(&sender, is_owner && is_direct), ..Origin::default() };
        let is_open = self.hub.agents().get(&agent).is_some_and(|profile| profile.opens_workspace((&asker, &key)));
        let workspace = policy.workspaces.get(&agent).map_or(Path::new("."), |path| path.as_path());
        let peer = policy.at.sender(&incoming.peer.id);
        let folder = media::folder(workspace, (&peer, incoming.peer.kind), is_open);
        let Loaded { pictures, notes } = media::load(&self.channel, &said, policy.media, folder).await;
        let words: Vec<&str> =
            said.iter().map(|incoming| incoming.text.trim()).filter(|text| !text.is_empty()).collect();
        let previous = self.hub.record(&key).await.ok().flatten().map(|record| record.updated_at);
        let arrived = Arrived {
            origin: Came {
                channel: self.place.0.clone(),
                account: self.place.1.clone(),
                event: incoming.event.clone(),
            },
            principal: principal(&sender, is_owner),
            sender: Sender {
                id: incoming.sender.id.clone(),
                name: Some(incoming.sender.name.clone()).filter(|name| !name.is_empty()),
                username: incoming.sender.username.clone(),
            },
            key,
            words: words.join("\n"),
            pictures,
            route: incoming.route(&self.place.0),
            message: incoming.message.clone(),
            at: incoming.timestamp_ms.min(self.now()),
        };
        let told = |text: &str| {
            // Text that invokes a skill is passed on unchanged.
            if is_owner && text.starts_with('/') && notes.is_empty() {
                return text.to_owned();
            }
            self.told(policy, incoming, (text, &notes), previous)
        };
        let inbound = intake::arrived(&self.hub, arrived, told).map_err(|error| error.to_string())?;
        // A command that starts a run is obeyed in a group, too, but its run has no owner rights: everyone reads the
        // reply.
        Ok(if !is_direct && inbound.asks_model() { Inbound { principal: asker.principal, ..inbound } } else { inbound })
    }

    /// Returns the text that the model receives for a message.
    fn told(
        &self,
        policy: &Policy,
        incoming: &Incoming,
        (text, notes): (&str, &[String]),
        previous: Option<u64>,
    ) -> String {
        let quoted = incoming.reply_to.as_ref().filter(|quoted| !quoted.text.trim().is_empty()).map(|quoted| {
            let who = if quoted.is_ours { "you" } else { quoted.sender.as_deref().unwrap_or("somebody") };
            let who: String = who.chars().filter(|c| !c.is_control() && !matches!(c, '[' | ']')).take(80).collect();
            let words: String = quoted.text.trim().chars().take(QUOTED).collect();
            format!("[Replying to {who}]\n{words}\n[/Replying]")
        });
        let parts = notes.iter().map(String::as_str).chain([text]).chain(quoted.as_deref());
        let body = parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n");
        let stamp =
            Stamp { channel: label(&self.place.0), clock: Clock::Zone(policy.zone.clone()), previous_ms: previous };
        let message = envelope::wrap(incoming, &body, &stamp);
        match incoming.peer.kind {
            PeerKind::Direct => message,
            PeerKind::Group | PeerKind::Channel => self.history().explain(&room(incoming), &message),
        }
    }
}
