//! The gateway server: WebSocket and HTTP access, authentication, RPC methods, and the delivery of run events to
//! clients.
//!
//! A connection is untrusted until its `connect` request has been verified. From then on its requests go through one
//! router, and everything sent to it goes through one bounded send queue. Runs never wait for a socket and do not
//! depend on one. This crate knows nothing of channels, providers, tools and config files, and reads sessions through
//! the hub only; methods that need more are registered from outside as a [`Method`].
//!
//! Start with `server` ([`bind`] and [`Gateway::serve`]); then `connection` (the life of a socket), `handshake`
//! (authentication), `router` (request dispatch) and `projector` (event fan-out).
#![warn(missing_docs)]

mod added;
mod admit;
mod auth;
mod changes;
mod client;
mod connection;
mod control_ui;
mod device;
mod devices;
mod foreign;
#[cfg(test)]
mod fuzz;
mod handshake;
mod hello;
mod http;
mod lobby;
mod log_book;
mod message_feed;
mod methods;
mod metrics;
mod news;
mod notices;
mod openai;
mod outages;
mod outbox;
mod presence;
mod projector;
mod router;
mod scope;
mod server;
mod tls;
mod webhooks;

pub use added::{Asked, Method, Needs};
pub use auth::Secret;
pub use control_ui::{ControlUi, NoControlUi};
pub use foreign::{Door, Foreign, HttpAnswered, HttpAsked};
pub use log_book::LogBook;
pub use metrics::{Labels, MetricsPage, MoreMetrics, RunEnds};
pub use news::{Audience, News};
pub use notices::Notices;
pub use openai::Endpoints;
pub use outages::{Outage, Outages};
pub use router::own_names as method_names;
pub use scope::Scope;
pub use server::{Error, Gateway, Settings, bind};
pub use tls::{Tls, TlsError, fingerprint};
pub use webhooks::{Action, Mapping, Template, Transform, Transformer, WebhookError, Webhooks};
