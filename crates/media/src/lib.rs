//! Pictures: found in a text, loaded from beneath a folder, and made to fit what models take. Other files that come with
//! a message are kept in a folder of the workspace ([`InboundFolder`]).
//!
//! This crate refuses to know sessions, models and the network. Everything here blocks: [`load()`] reads a file and
//! [`fit()`] computes, so call them where blocking is fine. Start with [`find()`], which says what counts as a
//! reference; a failure is a value for the caller to log, never a reason to end a run.
#![warn(missing_docs)]

mod find;
mod fit;
mod inbound;
mod kind;
mod load;
mod picture;

pub use find::find;
pub use fit::{FitError, Limits, fit};
pub use inbound::{InboundFile, InboundFolder, harmless};
pub use load::{LoadError, Where, load};
pub use picture::Picture;
