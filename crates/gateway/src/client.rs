//! A client that was let in: what it may do, what it wants to hear, and how it is told.

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
    handshake::Session,
    outbox::Outbox,
    presence::Stay,
    projector::Followers,
    scope::{Scope, Scopes},
    server::Server,
};

/// In how many conversations one client may hear what is said, beside hearing of all.
pub(crate) const READS: usize = 256;

/// How OpenClaw's TUI of protocol 4 calls itself.
const TUI: &str = "openclaw-tui";

/// A connection whose `connect` was good.
#[derive(Debug)]
pub(crate) struct Client {
    /// Its number.
    pub(crate) id: u64,
    /// The protocol that it speaks.
    pub(crate) generation: Generation,
    /// What it may do.
    pub(crate) scopes: Scopes,
    /// Whether it knows the secret; otherwise it has a token of its device.
    has_secret: bool,
    /// True for a direct connection from this machine, without a proxy.
    pub(crate) is_direct: bool,
    /// Whether it wants to be told of tools.
    pub(crate) tool_events: bool,
    /// Whether it is lost if it hears that its message was accepted and what came of it in one breath.
    pub(crate) needs_pause: bool,
    /// How it is told anything.
    pub(crate) outbox: Arc<Outbox>,
    /// Which state of the list of who is here it knows.
    pub(crate) presence: AtomicU64,
    /// Its own place in that list, until it is gone.
    _stay: Option<Stay>,
    /// Whether it wants to hear when conversations change.
    follows: AtomicBool,
    /// In which conversations it wants to hear what is said.
    reads: Mutex<BTreeSet<SessionKey>>,
    /// How many want to hear such things, this one included if it does.
    followers: Arc<Followers>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.follow(false);
        let reads = std::mem::take(&mut *self.reads());
        self.followers.of_one.fetch_sub(reads.len(), Ordering::Relaxed);
    }
}

impl Client {
    /// One that was just welcomed, knows this state of the list of who is here, and has this place in it.
    pub(crate) fn new(
        server: &Server,
        session: Session,
        outbox: Arc<Outbox>,
        (presence, stay): (u64, Option<Stay>),
    ) -> Self {
        Self {
            id: server.next_connection(),
            generation: session.generation,
            scopes: session.scopes,
            has_secret: session.has_secret,
            is_direct: session.is_direct,
            tool_events: session.tool_events,
            needs_pause: session.generation == Generation::Three || session.params.client.id == TUI,
            outbox,
            presence: AtomicU64::new(presence),
            _stay: stay,
            follows: AtomicBool::new(false),
            reads: Mutex::default(),
            followers: server.projector.followers_count(),
        }
    }

    /// The scopes of the devices that it may manage: its own, or all if it knows the secret, with which it could ask for all.
    /// OpenClaw's CLI shows the secret and asks for `operator.pairing` to remove a device.
    pub(crate) fn manages(&self) -> Scopes {
        if self.has_secret { Scopes::of(vec![Scope::Admin.name().to_owned()]) } else { self.scopes.clone() }
    }

    /// How much of the owner's authority the runs have that it asks for.
    pub(crate) fn authority(&self) -> Authority {
        if self.scopes.allow(Scope::Admin) { Authority::Full } else { Authority::Limited }
    }

    /// Whether it hears what happens in runs.
    pub(crate) fn hears_runs(&self) -> bool {
        self.scopes.allow(Scope::Read)
    }

    /// Whether it wants to hear when conversations change, and may.
    pub(crate) fn follows(&self) -> bool {
        self.follows.load(Ordering::Relaxed) && self.hears_runs()
    }

    /// Begins or ends to hear when conversations change.
    pub(crate) fn follow(&self, wants: bool) {
        if self.follows.swap(wants, Ordering::Relaxed) == wants {
            return;
        }
        if wants {
            self.followers.of_all.fetch_add(1, Ordering::Relaxed);
        } else {
            self.followers.of_all.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether it wants to hear what is said in a conversation, and may. Older clients do not know how that is told.
    pub(crate) fn hears_messages(&self, key: &SessionKey) -> bool {
        self.generation == Generation::Four
            && self.hears_runs()
            && (self.follows.load(Ordering::Relaxed) || self.reads().contains(key))
    }

    /// Begins to hear what is said in a conversation; `false` if it follows too many.
    pub(crate) fn read_along(&self, key: SessionKey) -> bool {
        let mut reads = self.reads();
        if reads.len() >= READS && !reads.contains(&key) {
            return false;
        }
        if reads.insert(key) {
            self.followers.of_one.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// Ends to hear what is said in a conversation.
    pub(crate) fn look_away(&self, key: &SessionKey) {
        if self.reads().remove(key) {
            self.followers.of_one.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn reads(&self) -> MutexGuard<'_, BTreeSet<SessionKey>> {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
