//! Chat platforms: what comes in from them, who is let in, and what goes out.
//!
//! A [`Channel`] speaks to one account of one platform. It refuses to know sessions, runs, queues and retries: what comes
//! in goes to a [`Sink`], which says when it is safe; what goes out is said once, and a [`Failure`] tells whether it may
//! be said again. Who is let in is decided by pure rules. Nothing here reads the environment, a config file or the clock,
//! and nothing spawns a task: a channel receives for as long as its caller polls it.
//!
//! Start with [`channel`] (the seam) and [`incoming`]; then the rules in the order in which a message meets them:
//! [`access`] with [`mention`], [`pairing`], [`debounce`], [`history`], [`envelope`]; then [`telegram`] and [`webhook`].
#![warn(missing_docs)]

pub mod access;
pub mod channel;
pub mod debounce;
pub mod envelope;
pub mod history;
mod http;
pub mod incoming;
pub mod mention;
pub mod pairing;
mod secret;
pub mod telegram;
pub mod webhook;

pub use channel::{
    Act, Batch, Channel, Failure, Flavour, Manner, Media, Note, Outgoing, Place, Poll, Probe, Receipt, Sink, Unstored,
};
pub use http::Road;
pub use incoming::{Attachment, Event, Incoming, Membership, Peer, PeerKind, Quoted, Reaction, Sender, Source};
pub use secret::Secret;
