//! The inbound pipeline of one account: events are stored, checked against the access policy, merged, and submitted to
//! the hub in order.
//!
//! `take` writes events to the spool and returns. One task processes them: messages of senders without access go no
//! further; consecutive messages of a sender are merged into one; and each chat has its own queue, so that no chat
//! waits for the downloads of another. An event is removed from the spool once its run is on disk, or once it is
//! certain that there will be none.

mod pairing;
mod queues;
mod reactions;
mod session;
mod submit;

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    time::Duration,
};

use async_trait::async_trait;
use homard_agent::{Hub, intake};
use homard_channels::{
    Batch, Channel, ChannelEvent, ConnectionState, Incoming, PeerKind, Reaction, Sink, SinkError,
    access::{AccessDecision, AccessRequest, Activation, DropReason, decide},
    debounce::{Debounce, DebounceMode},
    envelope,
    history::{ContextMessage, GroupContext},
    pairing::PairingStore,
};
use homard_runtime::task;
use serde_json::{Value, json};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::sleep,
};
use tokio_util::sync::CancellationToken;

use self::queues::SubmitQueues;
use super::{draft::Drafts, policy::ChannelPolicy, spool::Spool, status::AccountStatus};

pub(super) use self::reactions::SentMessages;

/// How long to wait for the remaining pictures of an album.
const ALBUM_WAIT: Duration = Duration::from_millis(700);
/// How long to wait before a failed channel is retried.
const RETRY_DELAY: Duration = Duration::from_secs(300);

/// The inbound pipeline of one account.
pub(super) struct InboundPipeline {
    channel: Arc<dyn Channel>,
    /// The platform and the account.
    account_key: (String, String),
    hub: Hub,
    pairing_store: Arc<PairingStore>,
    spool: Arc<Spool>,
    policy: Arc<RwLock<Arc<ChannelPolicy>>>,
    status: Arc<AccountStatus>,
    drafts: Arc<Drafts>,
    sent_messages: Arc<SentMessages>,
    history: Mutex<GroupContext>,
    /// Pairing codes that are in the outbox.
    queued_codes: Mutex<HashSet<String>>,
    events: UnboundedSender<InboundEvent>,
    stop: CancellationToken,
}

/// The dependencies of a pipeline.
pub(super) struct PipelineDeps {
    pub channel: Arc<dyn Channel>,
    pub(super) account_key: (String, String),
    pub hub: Hub,
    pub pairing_store: Arc<PairingStore>,
    pub spool: Arc<Spool>,
    pub policy: Arc<RwLock<Arc<ChannelPolicy>>>,
    pub status: Arc<AccountStatus>,
    pub drafts: Arc<Drafts>,
    pub(super) sent_messages: Arc<SentMessages>,
    pub stop: CancellationToken,
}

impl std::fmt::Debug for InboundPipeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InboundPipeline").field("place", &self.account_key).finish_non_exhaustive()
    }
}

/// An inbound event.
#[derive(Debug)]
enum InboundEvent {
    Message(Box<Incoming>),
    Reaction(Box<Reaction>),
}

/// A message that passed the access policy.
#[derive(Debug, Clone)]
struct AdmittedMessage {
    incoming: Incoming,
    /// True if the message addresses the agent.
    was_mentioned: bool,
    /// True if it is a known control command.
    is_control: bool,
    /// True if the owner sent it.
    is_owner: bool,
}

#[async_trait]
impl Sink for InboundPipeline {
    async fn store(&self, batch: Batch) -> Result<(), SinkError> {
        let (mut incoming, mut reactions) = (Vec::new(), Vec::new());
        for event in batch.events {
            match event {
                ChannelEvent::Message(message) => incoming.push(*message),
                ChannelEvent::Reacted(reaction) => reactions.push(reaction),
                // The original message is already in the transcript.
                ChannelEvent::Edited(_) | ChannelEvent::Membership(_) => {}
            }
        }
        let new = tokio::task::block_in_place(|| self.spool.store(incoming, batch.cursor)).map_err(SinkError)?;
        if !new.is_empty() {
            self.status.received(self.now());
        }
        // If the pipeline is closed, the send fails; the next pipeline finds the messages in the spool. Reactions are
        // not spooled and may be lost. They are sent first, so that the message after them includes them.
        let reactions = reactions.into_iter().map(|reaction| InboundEvent::Reaction(Box::new(reaction)));
        let messages = new.into_iter().map(|incoming| InboundEvent::Message(Box::new(incoming)));
        reactions.chain(messages).for_each(|arrival| drop(self.events.send(arrival)));
        Ok(())
    }

    fn report_state(&self, state: ConnectionState) {
        let (channel, account) = (&self.account_key.0, &self.account_key.1);
        match &state {
            ConnectionState::Up => tracing::info!(channel, account, "channel connected"),
            ConnectionState::Conflict { why, .. } | ConnectionState::Down { why, .. } => {
                tracing::warn!(channel, account, why, "channel is not connected")
            }
        }
        self.status.connection_changed(self.now(), &state);
    }
}

impl InboundPipeline {
    /// Starts a pipeline: two tasks run until it is stopped.
    pub(crate) fn start(deps: PipelineDeps) -> Arc<Self> {
        let PipelineDeps {
            channel,
            account_key,
            hub,
            pairing_store,
            spool,
            policy,
            status,
            drafts,
            sent_messages,
            stop,
        } = deps;
        let (arrivals, event_receiver) = unbounded_channel();
        let limit = policy.read().unwrap_or_else(PoisonError::into_inner).history;
        let history = Mutex::new(GroupContext::new(limit));
        let pipeline = Arc::new(Self {
            channel,
            account_key,
            hub,
            pairing_store,
            spool,
            policy,
            status,
            drafts,
            sent_messages,
            history,
            queued_codes: Mutex::default(),
            events: arrivals,
            stop,
        });
        drop(task::spawn("channel", pipeline.clone().receive_loop()));
        drop(task::spawn("channel inbound", pipeline.clone().process_loop(event_receiver)));
        pipeline
    }

    /// Receives events until stopped.
    async fn receive_loop(self: Arc<Self>) {
        loop {
            self.status.started(self.now());
            let failure = tokio::select! {
                biased;
                () = self.stop.cancelled() => None,
                failure = self.channel.receive(self.spool.cursor(), self.as_ref()) => Some(failure.to_string()),
            };
            if let Some(why) = &failure {
                tracing::error!(
                    channel = self.account_key.0,
                    account = self.account_key.1,
                    why,
                    "failed to receive messages of a channel; retrying"
                );
            }
            let has_ended = failure.is_none();
            self.status.stopped(self.now(), failure);
            if has_ended {
                return;
            }
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = sleep(RETRY_DELAY) => {}
            }
        }
    }

    /// Processes events until stopped. Events that have not been submitted by then stay in the spool.
    async fn process_loop(self: Arc<Self>, mut events: UnboundedReceiver<InboundEvent>) {
        let mut lines = SubmitQueues::default();
        // After a restart, the debounce time of these messages has passed.
        for group in self.spool.waiting() {
            self.readmit_group(group, &mut lines).await;
        }
        let mut waiting = Debounce::new(self.policy().debounce);
        let mut albums = Debounce::new(ALBUM_WAIT);
        loop {
            lines.start(&self);
            let now = self.now();
            let due = [waiting.next_due(), albums.next_due()].into_iter().flatten().min();
            let quiet = async {
                match due {
                    Some(at) => sleep(Duration::from_millis(at.saturating_sub(now))).await,
                    None => std::future::pending().await,
                }
            };
            let complete = tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = lines.next_finished() => Vec::new(),
                Some(arrival) = events.recv() => match arrival {
                    InboundEvent::Message(incoming) => match self.admit(*incoming).await {
                        Some(admitted) => debounce_message(admitted, &mut waiting, &mut albums, self.now()),
                        None => Vec::new(),
                    },
                    InboundEvent::Reaction(reaction) => {
                        self.record_reaction(*reaction).await;
                        Vec::new()
                    }
                },
                () = quiet => Vec::new(),
            };
            let now = self.now();
            let groups = complete.into_iter().chain(albums.due(now)).chain(waiting.due(now));
            for group in groups.collect::<Vec<_>>() {
                self.merge_group(group, &mut lines).await;
            }
        }
    }

    /// Processes a group of events that the previous process left in the spool.
    async fn readmit_group(&self, group: Vec<Incoming>, lines: &mut SubmitQueues) {
        let events: Vec<_> = group.iter().map(|incoming| incoming.event.clone()).collect();
        let mut admitted = Vec::new();
        for incoming in group {
            admitted.extend(self.admit(incoming).await);
        }
        // The group was merged into one message, so it is admitted as a whole or not at all.
        if admitted.len() == events.len() { lines.push(admitted) } else { self.mark_done(&events).await }
    }

    /// Merges several messages into one.
    async fn merge_group(&self, group: Vec<AdmittedMessage>, lines: &mut SubmitQueues) {
        if group.len() > 1 {
            let events: Vec<_> = group.iter().map(|admitted| admitted.incoming.event.clone()).collect();
            if let Err(why) = tokio::task::block_in_place(|| self.spool.merge(&events)) {
                // Not merged, then: after a restart they would be separate, too.
                tracing::warn!(why, "failed to merge messages; submitting them separately");
                return group.into_iter().for_each(|admitted| lines.push(vec![admitted]));
            }
        }
        lines.push(group);
    }

    /// Checks a message against the access policy. Messages that are not admitted are handled here.
    async fn admit(&self, incoming: Incoming) -> Option<AdmittedMessage> {
        let policy = self.policy();
        let sender = policy.sender(&incoming);
        let paired =
            tokio::task::block_in_place(|| self.pairing_store.approved(&policy.account)).unwrap_or_else(|error| {
                tracing::error!(%error, "failed to read the approved senders; treating them as unknown");
                Vec::new()
            });
        let is_control = incoming.media.is_empty() && intake::is_command(&self.hub, &incoming.text);
        let is_owner = policy.is_owner(&incoming, &paired);
        let activation = self.activation(&policy, &incoming).await;
        let caller =
            AccessRequest { incoming: &incoming, sender: &sender, paired: &paired, activation, is_command: is_control };
        match decide(&policy.rules, caller) {
            // Without owner rights a command would reach the model as text, and its answer would only disturb the
            // group.
            AccessDecision::Admit { .. } if is_control && !is_owner && incoming.peer.kind != PeerKind::Direct => {
                tracing::debug!(
                    channel = self.account_key.0,
                    sender = incoming.sender.id,
                    "ignored a command of a non-owner"
                );
                let reason = ignored_reason(&self.account_key.0, &incoming, DropReason::Command);
                self.status.ignored(self.now(), reason);
            }
            AccessDecision::Admit { was_mentioned, .. } => {
                return Some(AdmittedMessage { was_mentioned, is_control: is_control && is_owner, is_owner, incoming });
            }
            AccessDecision::Pair => {
                // Removed first, so that the message is not processed if the sender is approved while the gateway is
                // down.
                self.mark_done(std::slice::from_ref(&incoming.event)).await;
                pairing::send_code(self, &incoming, &sender).await;
                return None;
            }
            AccessDecision::KeepAsContext => {
                let context_message =
                    ContextMessage { sender: envelope::sender(&incoming), text: incoming.text.clone() };
                self.history().add(&chat_key(&incoming), context_message);
                self.status.ignored(self.now(), unmentioned_reason(&self.account_key.0, &incoming));
            }
            AccessDecision::Drop(reason) => {
                tracing::debug!(
                    channel = self.account_key.0,
                    sender = incoming.sender.id,
                    ?reason,
                    "a message was dropped"
                );
                self.status.ignored(self.now(), ignored_reason(&self.account_key.0, &incoming, reason));
            }
        }
        self.mark_done(&[incoming.event]).await;
        None
    }

    /// Returns the activation mode stored in a group's session: which messages are answered.
    async fn activation(&self, policy: &ChannelPolicy, incoming: &Incoming) -> Option<Activation> {
        if incoming.peer.kind == PeerKind::Direct {
            return None;
        }
        let key = self.route_message(policy, incoming, false).await.ok()?.key;
        let record = self.hub.sessions().get(&key).await.ok().flatten()?;
        match record.extra.get("groupActivation").and_then(Value::as_str) {
            Some("always") => Some(Activation::Always),
            Some("mention") => Some(Activation::Mention),
            Some(_) | None => None,
        }
    }

    /// Removes events from the spool. If that cannot be stored, they are submitted again, and the hub recognizes them.
    async fn mark_done(&self, events: &[String]) {
        if let Err(why) = tokio::task::block_in_place(|| self.spool.remove(events)) {
            tracing::warn!(why, "failed to remove processed messages from the spool");
        }
    }

    fn policy(&self) -> Arc<ChannelPolicy> {
        self.policy.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn history(&self) -> MutexGuard<'_, GroupContext> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        self.hub.ambient().now_ms()
    }
}

/// Says why messages of a group are not answered, and which setting would change that.
fn unmentioned_reason(channel: &str, incoming: &Incoming) -> String {
    let group = &incoming.peer.id;
    let section = group_section(channel, incoming);
    format!(
        "group {group}: messages that do not mention the agent are not answered, only kept as context; to answer all, \
         write /activation always there, or set {section}.requireMention to false"
    )
}

/// Says why a sender's message was ignored, and which setting would change that. Omits the message's text.
fn ignored_reason(channel: &str, incoming: &Incoming, reason: DropReason) -> String {
    let (sender, peer) = (&incoming.sender.id, &incoming.peer);
    let at = format!("channels.{channel}");
    match (reason, peer.kind) {
        (DropReason::Bot, _) => format!("ignored {sender}: the sender is a bot"),
        (DropReason::Disabled, PeerKind::Direct) => {
            format!("ignored {sender}: direct messages are disabled ({at}.dmPolicy)")
        }
        (DropReason::Disabled, PeerKind::Group | PeerKind::Channel) => {
            let groups = if incoming.server.is_some() { "guilds" } else { "groups" };
            format!("ignored group {}: disabled by {at}.groupPolicy or {at}.{groups}", peer.id)
        }
        (DropReason::Group, _) => match &incoming.server {
            Some(server) => {
                format!("ignored group {}: it or its server {server} is not listed in {at}.guilds", peer.id)
            }
            None => format!("ignored group {}: not listed in {at}.groups", peer.id),
        },
        (DropReason::Sender, PeerKind::Direct) => format!("ignored {sender}: not listed in {at}.allowFrom"),
        (DropReason::Sender, PeerKind::Group | PeerKind::Channel) => {
            let list = match &incoming.server {
                Some(server) => format!("{at}.guilds.{server}.users or roles"),
                None => format!("{at}.groupAllowFrom or allowFrom"),
            };
            format!("ignored {sender} in group {}: not listed in {list}", peer.id)
        }
        (DropReason::Command, _) => format!("ignored a command of {sender}: the sender is not the owner"),
    }
}

/// Returns the section of the config with the rules of a group.
fn group_section(channel: &str, incoming: &Incoming) -> String {
    let group = &incoming.peer.id;
    match &incoming.server {
        Some(server) => format!("channels.{channel}.guilds.{server}"),
        None => format!("channels.{channel}.groups.{group}"),
    }
}

/// Returns a key for the chat of a message within the account. JSON encoding keeps different chats apart, whatever
/// characters their ids contain.
fn chat_key(incoming: &Incoming) -> String {
    json!([incoming.peer.kind, incoming.peer.id, incoming.thread]).to_string()
}

/// Adds a message to its debounce group and returns the groups that are complete.
fn debounce_message(
    admitted: AdmittedMessage,
    waiting: &mut Debounce<AdmittedMessage>,
    albums: &mut Debounce<AdmittedMessage>,
    now: u64,
) -> Vec<Vec<AdmittedMessage>> {
    let incoming = &admitted.incoming;
    let key = json!([chat_key(incoming), incoming.sender.id]).to_string();
    if let Some(album) = incoming.album.clone() {
        let earlier = waiting.take(&key);
        return earlier
            .into_iter()
            .chain(albums.push(&json!([key, album]).to_string(), admitted, DebounceMode::Merge, now))
            .collect();
    }
    let is_plain = incoming.media.is_empty() && !admitted.is_control && !incoming.is_command;
    waiting.push(&key, admitted, if is_plain { DebounceMode::Merge } else { DebounceMode::Alone }, now)
}
