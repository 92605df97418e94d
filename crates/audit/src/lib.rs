//! What happened that matters to whoever guards the house, in a file that cannot be changed unseen.
//!
//! A [`Fact`] is metadata only: who, what, when, how it ended, and hashes; never what was said. Each row holds the digest
//! of the row before it, so a row that is changed, taken out or moved shows ([`verify`]); that the end was cut off shows by
//! the last digest, which is also kept elsewhere ([`Head`]). Rooms hold an [`Audit`], which takes a fact without
//! waiting for the disk; one thread writes. This crate refuses to know the rooms, the journal and the config. Start with
//! `fact`, then `chain` (pure), `pen` (the files) and `handle`.
#![warn(missing_docs)]

mod chain;
mod fact;
mod files;
mod handle;
mod pen;

pub use chain::{Digest, Head, Problem, Report, verify};
pub use fact::{Fact, What, digest_of};
pub use files::{Row, rows, verify_folder};
pub use handle::{Audit, Counts};
