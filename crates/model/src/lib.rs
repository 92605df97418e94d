//! Asking a model: the trait, its request, its stream, its errors, and the built-in demo model.
//!
//! This crate refuses to know HTTP and sessions. Start with [`Model`]; [`stream`] says what an answer is made of.
#![warn(missing_docs)]

pub mod demo;
pub mod error;
pub mod request;
pub mod stream;

use std::pin::Pin;

use futures_util::Stream;

pub use error::{Error, ErrorKind};
pub use request::{Request, ToolSpec};
pub use stream::{Answer, Event};

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
}

/// What a model is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// The provider's name in the config.
    pub provider: String,
    /// The model's name at that provider.
    pub model: String,
    /// The wire that is spoken, such as `openai-completions`.
    pub api: String,
    /// How many tokens fit into its context.
    pub context_window: u64,
    /// How many tokens it may write.
    pub max_output: u64,
}
