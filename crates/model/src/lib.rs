//! Model interface: the trait, its request, its stream, its errors, failover, and the built-in demo model.
//!
//! This crate does not depend on HTTP or sessions. Start with [`Model`]; [`stream`] defines the events of an answer,
//! and [`failover`] the choice of the next candidate after a failure.
#![warn(missing_docs)]

pub mod candidates;
pub mod catalog;
pub mod classify;
pub mod demo;
pub mod error;
pub mod failover;
pub mod profile_health;
pub mod request;
pub mod retry;
pub mod spec;
pub mod stream;
pub mod thinking;
pub mod tokens;

use std::pin::Pin;

use futures_util::Stream;

pub use error::{Error, ErrorKind};
pub use request::{CacheLifetime, Request, ToolSpec};
pub use spec::{ModelSpec, Prices, uses_reasoning_tags};
pub use stream::{ModelAnswer, ModelEvent, Signature};
pub use thinking::ReasoningLevel;

/// Stream of an answer's events.
pub type EventStream = Pin<Box<dyn Stream<Item = ModelEvent> + Send>>;

/// A language model.
pub trait Model: Send + Sync {
    /// Returns the model's description.
    fn spec(&self) -> &ModelSpec;

    /// Starts an answer. Must not panic or block; a failure is an [`ModelEvent::Failed`] in the stream.
    ///
    /// The stream ends with exactly one [`ModelEvent::Done`] or [`ModelEvent::Failed`]; without either it counts as truncated.
    /// Dropping it cancels the request.
    fn stream(&self, request: Request) -> EventStream;

    /// Returns why the model cannot be used, if that is known in advance: no key, an invalid config.
    fn unusable(&self) -> Option<&Error> {
        None
    }
}
