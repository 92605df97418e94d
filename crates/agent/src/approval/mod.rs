//! Exec approvals: requests, decisions, and permanent rules.
//!
//! [`policy`] is the file with the rules, [`level`] how strict they are, [`rule`] a permanent permission, [`bound`] the
//! fingerprint that a decision is bound to, [`display`] the display of commands, `book` the state of all requests (all
//! pure); [`desk`] persists that state on its [`shelf`], and [`follow`] executes decisions.

mod book;
pub mod bound;
pub mod desk;
pub mod display;
pub mod follow;
pub mod level;
pub mod policy;
pub mod rule;
pub mod shelf;
mod told;

pub use book::{EXPIRES, Entry, Error, State, Ticket, Verdict};
pub use bound::{Bound, FileSeen, FolderSeen};
pub use desk::Desk;
pub use level::{Ask, Effective, Security, Wish};
pub use policy::Policy;
pub use rule::Rule;

#[cfg(test)]
mod tests;
