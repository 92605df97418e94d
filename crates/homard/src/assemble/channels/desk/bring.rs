//! One message on its way to the hub: its files are loaded, it is put into its envelope, and it is submitted until the hub
//! has it.

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

/// How long to wait before the hub is asked again; twice as long after each more.
const FIRST_WAIT: Duration = Duration::from_millis(250);
/// How long to wait at most.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// How often an unfinished answer is edited at most: Telegram wants no more than one message a second in a chat, and
/// twenty a minute in a group.
const DRAFT_ALONE: Duration = Duration::from_secs(1);
const DRAFT_IN_GROUPS: Duration = Duration::from_secs(4);
/// How many characters of a message that is answered are told.
const QUOTED: usize = 2000;

impl Desk {
    /// Brings a message to the hub. Returns when the hub has it, or when there will be no run; what is dropped before then
    /// is in the spool.
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

    /// Submits it until the hub has it or does not want it; `false` if the desk closed meanwhile.
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
                // Somebody else's run has the name of this event, or the session is closed: there is no use in trying.
                Err(error @ (SubmitError::Conflict(_) | SubmitError::Blocked | SubmitError::SessionChanged)) => {
                    tracing::warn!(channel = self.place.0, %error, "a message was not taken in");
                    return true;
                }
                // It is on disk already, and waits for its owner.
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

    /// Shows in the chat that an answer is being written, and how far it has come if that is wished.
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

    /// Where an answer goes.
    fn back(&self, incoming: &Incoming) -> Place {
        Place { to: incoming.peer.id.clone(), thread: incoming.thread.clone() }
    }

    /// What the hub is asked for; an error says why it cannot be asked.
    async fn prepare(&self, policy: &Arc<Policy>, group: &[Admitted]) -> Result<Inbound, String> {
        let Some(first) = group.first() else { return Err("there is no message".to_owned()) };
        let incoming = &first.incoming;
        let is_direct = incoming.peer.kind == PeerKind::Direct;
        let Routed { agent, key, .. } = self.routed(policy, incoming, first.is_owner && is_direct).await?;
        let said: Vec<&Incoming> = group.iter().map(|admitted| &admitted.incoming).collect();
        // In a group everybody's words are before the model: there the owner gives commands, and no more than that.
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
            // What calls a skill is read as it is.
            if is_owner && text.starts_with('/') && notes.is_empty() {
                return text.to_owned();
            }
            self.told(policy, incoming, (text, &notes), previous)
        };
        let inbound = intake::arrived(&self.hub, arrived, told).map_err(|error| error.to_string())?;
        // A command that asks a model is obeyed in a group, too, but its run is not the owner's: everybody reads the reply.
        Ok(if !is_direct && inbound.asks_model() { Inbound { principal: asker.principal, ..inbound } } else { inbound })
    }

    /// What a model reads of a message.
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
