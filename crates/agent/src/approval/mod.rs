//! Asking before a command runs: what is asked, what is decided, what is remembered.
//!
//! [`policy`] is the file that says who may run what, [`level`] how strict that is, [`rule`] what is remembered for
//! good, [`bound`] what a decision is about, [`display`] what people are shown, `book` what may follow on what (all
//! pure); [`desk`] keeps the book on its [`shelf`], and [`follow`] does what was allowed.

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
