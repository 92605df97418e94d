//! Speaking to model vendors over HTTP.
//!
//! A wire is two pure things, a function from a request to bytes and a decoder from bytes to events; one transport
//! carries all of them, and what differs between servers of one wire is a table. This crate refuses to know config
//! files, the environment, retries and failover: an error says what happened, and the loop decides.
//!
//! Start with [`Remote`] and [`Wire`]; then one wire, such as `anthropic`; then `turns` (the history in order),
//! [`sse`] (the framing), [`quirks`] (who is different) and `http` (the road).
#![warn(missing_docs)]

mod anthropic;
mod google;
mod http;
mod ids;
mod openai_chat;
mod openai_responses;
mod probe;
pub mod quirks;
mod secret;
pub mod sse;
mod target;
mod turns;
mod wire;

pub use http::{Client, Renewed, idle_for, is_self_hosted};
pub use probe::{PATIENCE, probe};
pub use quirks::Quirks;
pub use secret::Secret;
pub use target::{Auth, Target};
pub use wire::{Reader, Remote, Wire};
