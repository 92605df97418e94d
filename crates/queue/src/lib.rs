//! The message queue of a session: its modes and settings ([`settings`]), the queue itself ([`inbox`]), and the limits on
//! how many runs are active at once ([`slots`]).
//!
//! The inbox is pure: it decides what happens to a message, and the session's lane does it.
#![warn(missing_docs)]

pub mod inbox;
pub mod settings;
pub mod slots;

pub use inbox::Disposition;
pub use slots::{PoolLoad, RunClass, Slots};
