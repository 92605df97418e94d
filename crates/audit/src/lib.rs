//! What happened that matters to whoever guards the house, in a file that cannot be changed unseen.
//!
//! A [`Fact`] is metadata only: who, what, when, how it ended, and hashes; never what was said. Each row holds the digest
//! of the row before it and an HMAC, so a row that is changed, taken out or moved shows ([`verify`]). The end is also kept
//! elsewhere ([`Anchor`]) and compared before rows are added: a log that does not end where it should gets a row that
//! says so, and stays broken until the owner acknowledges it. Rooms hold an [`Audit`], which takes a fact without
//! waiting for the disk; one thread writes. This crate refuses to know the rooms, the journal and the config. Start with
//! `fact`, then `chain` and `verify` (pure), `pen` (the files) and `handle`.
#![warn(missing_docs)]

mod anchor;
mod chain;
mod fact;
mod files;
mod handle;
mod key;
mod pen;
mod verify;

pub use anchor::{Anchor, Anchored, Break, Ledger};
pub use chain::{Digest, Head};
pub use fact::{Fact, What, digest_of};
pub use files::{Location, Row, rows, verify_folder};
pub use handle::{Audit, Counts};
pub use key::Key;
pub use verify::{Acknowledgement, Evidence, Problem, Report, verify};
