//! The inbound pipeline of one account: events are stored, checked against the access policy, merged, and submitted to
//! the hub in order.
//!
//! `take` writes events to the spool and returns. One task processes them: messages of senders without access go no
//! further; consecutive messages of a sender are merged into one; and each chat has its own queue, so that no chat
//! waits for the downloads of another. An event is removed from the spool once its run is on disk, or once it is
//! certain that there will be none.

mod bring;
mod lines;
mod reacted;
mod session;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    time::Duration,
};

use async_trait::async_trait;
use homard_agent::{Hub, intake, task};
use homard_audit::{Fact, What};
use homard_channels::{
    Batch, Channel, Event, Incoming, Note, Outgoing, PeerKind, Place, Reaction, Sink, Unstored,
    access::{Activation, Caller, Reason, Verdict, judge},
    debounce::{Debounce, Treat},
    envelope,
    history::{History, Overheard},
    pairing::{Asked, Book, Who, greeting},
};
use homard_proto::Identity;
use serde_json::{Map, Value, json};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::sleep,
};
use tokio_util::sync::CancellationToken;

use self::lines::Lines;
pub(super) use self::reacted::Ours;
use super::{build::label, draft::Drafts, policy::Policy, spool::Spool, standing::Standing};

/// How long to wait for the remaining pictures of an album.
const ALBUM: Duration = Duration::from_millis(700);
/// How long to wait before a failed channel is retried.
const AGAIN: Duration = Duration::from_secs(300);

/// The inbound pipeline of one account.
pub(super) struct Desk {
    channel: Arc<dyn Channel>,
    /// The platform and the account.
    place: (String, String),
    hub: Hub,
    book: Arc<Book>,
    spool: Arc<Spool>,
    policy: Arc<RwLock<Arc<Policy>>>,
    standing: Arc<Standing>,
    drafts: Arc<Drafts>,
    ours: Arc<Ours>,
    history: Mutex<History>,
    arrivals: UnboundedSender<Arrival>,
    stop: CancellationToken,
}

/// The dependencies of a pipeline.
pub(super) struct Supplies {
    pub(super) channel: Arc<dyn Channel>,
    pub(super) place: (String, String),
    pub(super) hub: Hub,
    pub(super) book: Arc<Book>,
    pub(super) spool: Arc<Spool>,
    pub(super) policy: Arc<RwLock<Arc<Policy>>>,
    pub(super) standing: Arc<Standing>,
    pub(super) drafts: Arc<Drafts>,
    pub(super) ours: Arc<Ours>,
    pub(super) stop: CancellationToken,
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").field("place", &self.place).finish_non_exhaustive()
    }
}

/// An inbound event.
#[derive(Debug)]
enum Arrival {
    Said(Box<Incoming>),
    Reacted(Box<Reaction>),
}

/// A message that passed the access policy.
#[derive(Debug, Clone)]
struct Admitted {
    incoming: Incoming,
    /// True if the message addresses the agent.
    was_mentioned: bool,
    /// True if it is a known control command.
    is_control: bool,
    /// True if the owner sent it.
    is_owner: bool,
}

#[async_trait]
impl Sink for Desk {
    async fn take(&self, batch: Batch) -> Result<(), Unstored> {
        let (mut incoming, mut reactions) = (Vec::new(), Vec::new());
        for event in batch.events {
            match event {
                Event::Message(message) => incoming.push(*message),
                Event::Reacted(reaction) => reactions.push(reaction),
                // The original message is already in the transcript.
                Event::Edited(_) | Event::Membership(_) => {}
            }
        }
        let new = tokio::task::block_in_place(|| self.spool.take(incoming, batch.cursor)).map_err(Unstored)?;
        if !new.is_empty() {
            self.standing.heard(self.now());
        }
        // If the pipeline is closed, the send fails; the next pipeline finds the messages in the spool. Reactions are
        // not spooled and may be lost. They are sent first, so that the message after them includes them.
        let reactions = reactions.into_iter().map(|reaction| Arrival::Reacted(Box::new(reaction)));
        let said = new.into_iter().map(|incoming| Arrival::Said(Box::new(incoming)));
        reactions.chain(said).for_each(|arrival| drop(self.arrivals.send(arrival)));
        Ok(())
    }

    fn note(&self, note: Note) {
        let (channel, account) = (&self.place.0, &self.place.1);
        match &note {
            Note::Up => tracing::info!(channel, account, "connected"),
            Note::Rivalled { why, .. } | Note::Down { why, .. } => {
                tracing::warn!(channel, account, why, "not connected")
            }
        }
        self.standing.noted(self.now(), &note);
    }
}

impl Desk {
    /// Starts a pipeline: two tasks run until it is stopped.
    pub(super) fn open(supplies: Supplies) -> Arc<Self> {
        let Supplies { channel, place, hub, book, spool, policy, standing, drafts, ours, stop } = supplies;
        let (arrivals, arrived) = unbounded_channel();
        let limit = policy.read().unwrap_or_else(PoisonError::into_inner).history;
        let history = Mutex::new(History::new(limit));
        let desk = Arc::new(Self {
            channel,
            place,
            hub,
            book,
            spool,
            policy,
            standing,
            drafts,
            ours,
            history,
            arrivals,
            stop,
        });
        drop(task::spawn("channel", desk.clone().listen()));
        drop(task::spawn("channel desk", desk.clone().work(arrived)));
        desk
    }

    /// Receives events until stopped.
    async fn listen(self: Arc<Self>) {
        loop {
            self.standing.started(self.now());
            let failure = tokio::select! {
                biased;
                () = self.stop.cancelled() => None,
                failure = self.channel.receive(self.spool.cursor(), self.as_ref()) => Some(failure.to_string()),
            };
            if let Some(why) = &failure {
                tracing::error!(channel = self.place.0, account = self.place.1, why, "nothing comes in any more");
            }
            let is_over = failure.is_none();
            self.standing.stopped(self.now(), failure);
            if is_over {
                return;
            }
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = sleep(AGAIN) => {}
            }
        }
    }

    /// Processes events until stopped. Events that have not been submitted by then stay in the spool.
    async fn work(self: Arc<Self>, mut arrived: UnboundedReceiver<Arrival>) {
        let mut lines = Lines::default();
        // After a restart, the debounce time of these messages has passed.
        for group in self.spool.waiting() {
            self.admit_again(group, &mut lines).await;
        }
        let mut waiting = Debounce::new(self.policy().debounce);
        let mut albums = Debounce::new(ALBUM);
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
            let whole = tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = lines.ended() => Vec::new(),
                Some(arrival) = arrived.recv() => match arrival {
                    Arrival::Said(incoming) => match self.admit(*incoming).await {
                        Some(admitted) => sort(admitted, &mut waiting, &mut albums, self.now()),
                        None => Vec::new(),
                    },
                    Arrival::Reacted(reaction) => {
                        self.reacted(*reaction).await;
                        Vec::new()
                    }
                },
                () = quiet => Vec::new(),
            };
            let now = self.now();
            let groups = whole.into_iter().chain(albums.due(now)).chain(waiting.due(now));
            for group in groups.collect::<Vec<_>>() {
                self.put_together(group, &mut lines).await;
            }
        }
    }

    /// Processes a group of events that the previous process left in the spool.
    async fn admit_again(&self, group: Vec<Incoming>, lines: &mut Lines) {
        let events: Vec<_> = group.iter().map(|incoming| incoming.event.clone()).collect();
        let mut admitted = Vec::new();
        for incoming in group {
            admitted.extend(self.admit(incoming).await);
        }
        // The group was merged into one message, so it is admitted as a whole or not at all.
        if admitted.len() == events.len() { lines.put(admitted) } else { self.finish(&events).await }
    }

    /// Merges several messages into one.
    async fn put_together(&self, group: Vec<Admitted>, lines: &mut Lines) {
        if group.len() > 1 {
            let events: Vec<_> = group.iter().map(|admitted| admitted.incoming.event.clone()).collect();
            if let Err(why) = tokio::task::block_in_place(|| self.spool.join(&events)) {
                // Not merged, then: after a restart they would be separate, too.
                tracing::warn!(why, "messages could not be put together");
                return group.into_iter().for_each(|admitted| lines.put(vec![admitted]));
            }
        }
        lines.put(group);
    }

    /// Checks a message against the access policy. Messages that are not admitted are handled here.
    async fn admit(&self, incoming: Incoming) -> Option<Admitted> {
        let policy = self.policy();
        let sender = policy.sender(&incoming);
        let paired = tokio::task::block_in_place(|| self.book.approved(&policy.at)).unwrap_or_else(|error| {
            tracing::error!(%error, "those who were approved are not let in");
            Vec::new()
        });
        let is_control = incoming.media.is_empty() && intake::is_command(&self.hub, &incoming.text);
        let is_owner = policy.is_owner(&incoming, &paired);
        let activation = self.activation(&policy, &incoming).await;
        let caller = Caller { incoming: &incoming, sender: &sender, paired: &paired, activation, is_control };
        match judge(&policy.rules, caller) {
            // Without owner rights a command would reach the model as text, and its answer would only disturb the
            // group.
            Verdict::Admit { .. } if is_control && !is_owner && incoming.peer.kind != PeerKind::Direct => {
                tracing::debug!(channel = self.place.0, sender = incoming.sender.id, "a command is not obeyed");
            }
            Verdict::Admit { was_mentioned, .. } => {
                return Some(Admitted { was_mentioned, is_control: is_control && is_owner, is_owner, incoming });
            }
            Verdict::Pair => {
                // Removed first, so that the message is not processed if the sender is approved while the gateway is
                // down.
                self.finish(std::slice::from_ref(&incoming.event)).await;
                self.pair(&incoming, &sender).await;
                return None;
            }
            Verdict::Remember => {
                let said = Overheard { sender: envelope::sender(&incoming), text: incoming.text.clone() };
                self.history().overhear(&room(&incoming), said);
            }
            Verdict::Drop(reason) => {
                tracing::debug!(channel = self.place.0, sender = incoming.sender.id, ?reason, "a message was dropped");
                self.standing.turned_away(self.now(), unheard(&self.place.0, &incoming, reason));
            }
        }
        self.finish(&[incoming.event]).await;
        None
    }

    /// Returns the activation mode stored in a group's session: which messages are answered.
    async fn activation(&self, policy: &Policy, incoming: &Incoming) -> Option<Activation> {
        if incoming.peer.kind == PeerKind::Direct {
            return None;
        }
        let key = self.routed(policy, incoming, false).await.ok()?.key;
        let record = self.hub.record(&key).await.ok().flatten()?;
        match record.extra.get("groupActivation").and_then(Value::as_str) {
            Some("always") => Some(Activation::Always),
            Some("mention") => Some(Activation::Mention),
            Some(_) | None => None,
        }
    }

    /// Sends a pairing code to an unknown sender, once.
    async fn pair(&self, incoming: &Incoming, identity: &Identity) {
        let (channel, sender) = (&self.place.0, &incoming.sender);
        let known = [("username", sender.username.clone()), ("name", Some(sender.name.clone()))];
        let told = known.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into())));
        let meta: Map<String, Value> = told.filter(|(_, value): &(_, Value)| value != "").collect();
        let who = Who { sender: identity, meta, now_ms: self.now() };
        let asked = tokio::task::block_in_place(|| self.book.ask(who, draw));
        let code = match asked {
            Ok(Asked::New(code)) => {
                let fact = Fact::new(What::PairingAsked)
                    .by(&sender.id)
                    .with("channel", channel)
                    .with("account", &self.place.1);
                self.hub.audit().note(fact.ended("asked"));
                let what = format!("{} asks to be let in; see: homard pairing list {channel}", sender.id);
                self.standing.turned_away(self.now(), what);
                code
            }
            Ok(Asked::Waiting) => return,
            Ok(Asked::Full) => {
                let what =
                    format!("{} got no code, because others wait; see: homard pairing list {channel}", sender.id);
                return self.standing.turned_away(self.now(), what);
            }
            Err(error) => return tracing::error!(%error, "somebody asks to be let in"),
        };
        let id_label = format!("Your {} user id", label(channel));
        let outgoing = Outgoing {
            id: format!("pairing-{channel}-{code}"),
            place: Place { to: incoming.peer.id.clone(), thread: incoming.thread.clone() },
            text: greeting(channel, &id_label, &sender.id, &code),
            ..Outgoing::default()
        };
        let (sender, channel) = (self.channel.clone(), channel.clone());
        // Not awaited: messages of approved senders must not wait for this.
        drop(task::spawn("pairing", async move {
            if let Err(failure) = sender.send(outgoing).await {
                tracing::warn!(channel, %failure, "somebody was not told their pairing code; see: homard pairing list");
            }
        }));
    }

    /// Removes events from the spool. If that cannot be stored, they are submitted again, and the hub recognizes them.
    async fn finish(&self, events: &[String]) {
        if let Err(why) = tokio::task::block_in_place(|| self.spool.done(events)) {
            tracing::warn!(why, "it could not be noted that messages are done");
        }
    }

    fn policy(&self) -> Arc<Policy> {
        self.policy.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        self.hub.ambient().now_ms()
    }
}

/// Says why a sender's message was ignored, and which setting would change that. Omits the message's text.
fn unheard(channel: &str, incoming: &Incoming, reason: Reason) -> String {
    let (sender, peer) = (&incoming.sender.id, &incoming.peer);
    let at = format!("channels.{channel}");
    match (reason, peer.kind) {
        (Reason::Bot, _) => format!("not heard: {sender} is a program"),
        (Reason::Disabled, PeerKind::Direct) => format!("not heard: {sender}; nobody is ({at}.dmPolicy)"),
        (Reason::Disabled, PeerKind::Group | PeerKind::Channel) => {
            format!("not heard: the group {}; it is off ({at}.groupPolicy, {at}.groups)", peer.id)
        }
        (Reason::Group, _) => {
            format!("not heard: the group {} is not listed; list it in {at}.groups", peer.id)
        }
        (Reason::Sender, PeerKind::Direct) => format!("not heard: {sender} is not listed in {at}.allowFrom"),
        (Reason::Sender, PeerKind::Group | PeerKind::Channel) => {
            format!("not heard: {sender} is not listed for the group {}, in {at}.groupAllowFrom or allowFrom", peer.id)
        }
        (Reason::Command, _) => format!("not obeyed: a command of {sender}, who is not the owner"),
    }
}

/// Draws random bytes. If the system has no randomness they are zero: all codes are then equal, and only one is given
/// out.
fn draw() -> [u8; 8] {
    let mut bytes = [0; 8];
    if let Err(error) = getrandom::fill(&mut bytes) {
        tracing::error!(%error, "there is no randomness");
    }
    bytes
}

/// Returns a key for the chat of a message within the account. JSON encoding keeps different chats apart, whatever
/// characters their ids contain.
fn room(incoming: &Incoming) -> String {
    json!([incoming.peer.kind, incoming.peer.id, incoming.thread]).to_string()
}

/// Adds a message to its debounce group and returns the groups that are complete.
fn sort(
    admitted: Admitted,
    waiting: &mut Debounce<Admitted>,
    albums: &mut Debounce<Admitted>,
    now: u64,
) -> Vec<Vec<Admitted>> {
    let incoming = &admitted.incoming;
    let key = json!([room(incoming), incoming.sender.id]).to_string();
    if let Some(album) = incoming.album.clone() {
        let before = waiting.take(&key);
        return before
            .into_iter()
            .chain(albums.push(&json!([key, album]).to_string(), admitted, Treat::Joined, now))
            .collect();
    }
    let is_plain = incoming.media.is_empty() && !admitted.is_control && !incoming.is_command;
    waiting.push(&key, admitted, if is_plain { Treat::Joined } else { Treat::Alone }, now)
}
