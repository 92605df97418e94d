//! HTTP clients of model providers.
//!
//! A wire is two pure parts, an encoder from a request to bytes and a decoder from bytes to events; one transport
//! carries all of them, and differences between servers of one wire are a table. This crate does not depend on config
//! files, the environment, retries or failover: an error states what happened, and the agent loop decides.
//!
//! Start with [`RemoteModel`] and [`Wire`]; then one wire, such as `anthropic`; then `turns` (ordering of the history),
//! [`sse`] (framing), [`quirks`] (differences between servers) and `http` (transport).
#![warn(missing_docs)]

mod anthropic;
mod google;
mod http;
mod ids;
mod listing;
mod openai_chat;
mod openai_responses;
mod probe;
pub mod quirks;
mod secret;
pub mod sse;
mod target;
mod turns;
mod wire;

pub use homard_stdx::Secret;
pub use http::{DeviceCode, DeviceEndpoints, DevicePoll, HttpClient, TokenGrant, idle_timeout, is_self_hosted};
pub use listing::{LISTING_TIMEOUT, ListedModel, list_models};
pub use probe::{PROBE_TIMEOUT, probe};
pub use quirks::Quirks;
pub use target::{Credentials, ModelTarget};
pub use wire::{AnswerReader, RemoteModel, Wire};
