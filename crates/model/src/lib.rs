//! Asking a model: the trait, its request, its stream, its errors, and the built-in demo model.
//!
//! This crate refuses to know HTTP and sessions. Start with [`Model`]; [`stream`] says what an answer is made of, and
//! [`failover`] who is asked next when none came.
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

/// An answer as it comes.
pub type EventStream = Pin<Box<dyn Stream<Item = Event> + Send>>;

/// Something that answers.
pub trait Model: Send + Sync {
    /// What it is.
    fn spec(&self) -> &Spec;

    /// Begins an answer. It must not panic and must not block; a failure is an [`Event::Failed`] in the stream.
    ///
    /// The stream ends with exactly one [`Event::Done`] or [`Event::Failed`]; one that ends without is taken as cut off.
    /// Dropping it cancels the request.
    fn stream(&self, request: Request) -> EventStream;

    /// Why it cannot be asked, if that is known before anybody asks: no key, a wrong config.
    fn unusable(&self) -> Option<&Error> {
        None
    }
}
