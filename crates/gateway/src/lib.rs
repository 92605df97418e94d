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

mod auth;
mod broadcaster;
mod client;
mod connection;
mod control_ui;
mod device;
mod devices;
mod extra_methods;
#[cfg(test)]
mod fuzz;
mod handshake;
mod hello;
mod http;
mod http_body;
mod log_buffer;
mod login_codes;
mod message_feed;
mod methods;
mod metrics;
mod openai;
mod origin_check;
mod outages;
mod plugin_routes;
mod preauth;
mod presence;
mod projector;
mod router;
mod scope;
mod send_queue;
mod server;
mod session_changes;
mod tls;
mod warnings;
mod webhooks;

pub use auth::Secret;
pub use broadcaster::{Audience, Broadcaster};
pub use control_ui::{ControlUi, ControlUiError};
pub use extra_methods::{Method, MethodRequest, MethodScopes};
pub use log_buffer::LogBuffer;
pub use methods::displayed_messages;
pub use metrics::{Labels, MetricsPage, MetricsSource, RunEndCallback};
pub use openai::Endpoints;
pub use outages::{Outage, Outages};
pub use plugin_routes::{PluginEndpoints, PluginHttpRequest, PluginHttpResponse, RouteAuth};
pub use router::builtin_names as method_names;
pub use scope::Scope;
pub use server::{Error, Gateway, Settings, bind, bind_with};
pub use tls::{Tls, TlsError, fingerprint};
pub use warnings::OperatorWarnings;
pub use webhooks::{Mapping, MappingAction, Template, Transform, Transformer, WebhookError, Webhooks};
