//! Chat platforms: receiving messages, access control, and sending.
//!
//! A [`Channel`] talks to one account of one platform. It knows nothing of sessions, runs, queues and retries: inbound
//! events go to a [`Sink`], which confirms when they are stored; outbound messages are sent once, and a [`ChannelError`]
//! says whether a retry is safe. Access control consists of pure rules. Nothing here reads the environment, a config
//! file or the clock, and nothing spawns a task: a channel receives for as long as its caller polls it.
//!
//! Start with [`channel`] (the trait) and [`incoming`]; then the rules in the order in which they apply to a message:
//! [`access`] with [`mention`], [`pairing`], [`debounce`], [`history`], [`envelope`]; then [`telegram`],
//! [`discord`] and [`webhook`].
#![warn(missing_docs)]

pub mod access;
pub mod channel;
pub mod debounce;
pub mod discord;
pub mod envelope;
pub mod history;
mod http;
pub mod incoming;
pub mod mention;
mod multipart;
pub mod pairing;
mod secret;
mod socket;
mod table;
pub mod telegram;
pub mod webhook;

pub use channel::{
    AccountIdentity, Batch, Channel, ChannelAction, ChannelCapabilities, ChannelError, ConnectionState, Destination,
    MarkdownRendering, Media, Outgoing, Poll, Receipt, Sink, SinkError,
};
pub use homard_stdx::Secret;
pub use http::HttpClients;
pub use incoming::{
    Attachment, AttachmentSource, ChannelEvent, Incoming, Membership, MessageSender, Peer, PeerKind, QuotedMessage,
    Reaction,
};
