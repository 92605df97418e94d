//! An authenticated client: its permissions, its subscriptions and its send queue.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use homard_agent::tool::Authority;
use homard_proto::{Generation, SessionKey};

use crate::{
    handshake::AuthenticatedClient,
    presence::PresenceEntry,
    projector::SubscriptionCounts,
    scope::{Scope, Scopes},
    send_queue::SendQueue,
    server::ServerState,
};

/// Maximum number of sessions whose messages one client may subscribe to individually.
pub(crate) const MAX_SUBSCRIPTIONS: usize = 256;

/// Client id of OpenClaw's TUI for protocol 4.
const TUI: &str = "openclaw-tui";

/// A connection whose `connect` request was accepted.
#[derive(Debug)]
pub(crate) struct Client {
    /// Connection number.
    pub(crate) id: u64,
    /// Negotiated protocol version.
    pub(crate) generation: Generation,
    pub(crate) scopes: Scopes,
    /// True if it authenticated with the shared secret, false if with a device token.
    has_secret: bool,
    /// True for a direct connection from this machine, without a proxy.
    pub(crate) is_direct: bool,
    /// True if it wants tool events.
    pub(crate) tool_events: bool,
    /// True if the client needs a pause between the `accepted` response and the run's events; without it, it misses the
    /// end of a run that finishes at once.
    pub(crate) needs_pause: bool,
    pub(crate) send_queue: Arc<SendQueue>,
    /// Version of the presence list that was last sent to it.
    pub(crate) presence: AtomicU64,
    /// Its entry in the presence list; removed on drop.
    _presence_entry: Option<PresenceEntry>,
    /// True if it subscribed to session changes.
    is_subscribed: AtomicBool,
    /// Sessions whose messages it subscribed to.
    message_subscriptions: Mutex<BTreeSet<SessionKey>>,
    /// Shared counters of all subscriptions, including its own.
    subscription_counts: Arc<SubscriptionCounts>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.set_subscribed(false);
        let subscriptions = std::mem::take(&mut *self.lock_subscriptions());
        self.subscription_counts.single_session.fetch_sub(subscriptions.len(), Ordering::Relaxed);
    }
}

impl Client {
    /// Creates a client after a successful handshake, with the presence version it was sent and its entry in the list.
    pub(crate) fn new(
        server: &ServerState,
        session: AuthenticatedClient,
        send_queue: Arc<SendQueue>,
        presence: u64,
        presence_entry: Option<PresenceEntry>,
    ) -> Self {
        Self {
            id: server.next_connection(),
            generation: session.generation,
            scopes: session.scopes,
            has_secret: session.has_secret,
            is_direct: session.is_direct,
            tool_events: session.tool_events,
            needs_pause: session.generation == Generation::Three || session.params.client.id == TUI,
            send_queue,
            presence: AtomicU64::new(presence),
            _presence_entry: presence_entry,
            is_subscribed: AtomicBool::new(false),
            message_subscriptions: Mutex::default(),
            subscription_counts: server.projector.subscription_counts(),
        }
    }

    /// Scopes of the devices that it may manage: its own scopes, or all if it authenticated with the shared secret,
    /// which would allow it to request all. OpenClaw's CLI sends the secret and requests only `operator.pairing` to
    /// remove a device.
    pub(crate) fn manageable_scopes(&self) -> Scopes {
        if self.has_secret { Scopes::from_names(vec![Scope::Admin.name().to_owned()]) } else { self.scopes.clone() }
    }

    /// Authority of the runs that it starts.
    pub(crate) fn authority(&self) -> Authority {
        if self.scopes.allow(Scope::Admin) { Authority::Full } else { Authority::Limited }
    }

    /// True if it receives run events.
    pub(crate) fn receives_run_events(&self) -> bool {
        self.scopes.allow(Scope::Read)
    }

    /// True if it is subscribed to session changes and has the scope for them.
    pub(crate) fn is_subscribed(&self) -> bool {
        self.is_subscribed.load(Ordering::Relaxed) && self.receives_run_events()
    }

    /// Subscribes to session changes, or unsubscribes.
    pub(crate) fn set_subscribed(&self, is_wanted: bool) {
        if self.is_subscribed.swap(is_wanted, Ordering::Relaxed) == is_wanted {
            return;
        }
        if is_wanted {
            self.subscription_counts.all_sessions.fetch_add(1, Ordering::Relaxed);
        } else {
            self.subscription_counts.all_sessions.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// True if it is subscribed to a session's messages and has the scope for them. Protocol 3 does not have these
    /// events.
    pub(crate) fn receives_messages(&self, key: &SessionKey) -> bool {
        self.generation == Generation::Four
            && self.receives_run_events()
            && (self.is_subscribed.load(Ordering::Relaxed) || self.lock_subscriptions().contains(key))
    }

    /// Subscribes to a session's messages; `false` if it has too many subscriptions.
    pub(crate) fn subscribe_messages(&self, key: SessionKey) -> bool {
        let mut subscriptions = self.lock_subscriptions();
        if subscriptions.len() >= MAX_SUBSCRIPTIONS && !subscriptions.contains(&key) {
            return false;
        }
        if subscriptions.insert(key) {
            self.subscription_counts.single_session.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// Unsubscribes from a session's messages.
    pub(crate) fn unsubscribe_messages(&self, key: &SessionKey) {
        if self.lock_subscriptions().remove(key) {
            self.subscription_counts.single_session.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn lock_subscriptions(&self) -> MutexGuard<'_, BTreeSet<SessionKey>> {
        self.message_subscriptions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
