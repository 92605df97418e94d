//! Speaking to model vendors over HTTP.
//!
//! One wire so far: OpenAI's Chat Completions, which most servers speak. A wire is two pure functions, request to bytes
//! and bytes to events, and one transport carries all of them. This crate refuses to know config files, the environment,
//! retries and failover: an error says what happened, and the loop decides.
//!
//! Start with [`OpenAiChat`]; then [`openai_chat`] (the words), [`sse`] (the framing) and `http` (the road).
#![warn(missing_docs)]

mod http;
pub mod openai_chat;
mod secret;
pub mod sse;

pub use http::Client;
pub use openai_chat::{OpenAiChat, Settings};
pub use secret::Secret;
