//! Model interface: the trait, its request, its stream, its errors, failover, and the built-in demo model.
//!
//! This crate does not depend on HTTP or sessions. Start with [`Model`]; [`stream`] defines the events of an answer,
//! and [`failover`] the choice of the next candidate after a failure.
#![warn(missing_docs)]

pub mod catalog;
pub mod classify;
pub mod demo;
pub mod error;
pub mod failover;
pub mod request;
pub mod retry;
pub mod roster;
pub mod spec;
pub mod standing;
pub mod stream;
pub mod thinking;
pub mod tokens;

use std::pin::Pin;

use futures_util::Stream;

pub use error::{Error, ErrorKind};
pub use request::{Cache, Request, ToolSpec};
pub use spec::{Prices, Spec, writes_tags};
pub use stream::{Answer, Event, Seal};
pub use thinking::Level;

/// Stream of an answer's events.
pub type EventStream = Pin<Box<dyn Stream<Item = Event> + Send>>;

/// A language model.
pub trait Model: Send + Sync {
    /// Returns the model's description.
    fn spec(&self) -> &Spec;

    /// Starts an answer. Must not panic or block; a failure is an [`Event::Failed`] in the stream.
    ///
    /// The stream ends with exactly one [`Event::Done`] or [`Event::Failed`]; without either it counts as truncated.
    /// Dropping it cancels the request.
    fn stream(&self, request: Request) -> EventStream;

    /// Returns why the model cannot be used, if that is known in advance: no key, an invalid config.
    fn unusable(&self) -> Option<&Error> {
        None
    }
}
