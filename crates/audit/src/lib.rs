//! Tamper-evident security audit log.
//!
//! An [`AuditRecord`] is metadata only: who, what, when, the outcome, and hashes; never content. Each row contains the
//! digest of the preceding row and an HMAC, so a row that is changed, removed or moved is detected ([`verify`]). The
//! end is also stored elsewhere ([`Anchor`]) and compared before rows are added: a log that does not end where it
//! should gets a row that records the break, and stays broken until the owner acknowledges it. Other crates hold an
//! [`Audit`], which accepts a record without waiting for the disk; one thread writes. This crate does not depend on its
//! users, the journal or the config. Start with `record`, then `chain` and `verify` (pure), `writer` (the files) and
//! `handle`.
#![warn(missing_docs)]

mod anchor;
mod chain;
mod files;
mod handle;
mod key;
mod record;
mod verify;
mod writer;

pub use anchor::{Anchor, AnchorState, Break, BreakLedger};
pub use chain::{ChainHead, Digest};
pub use files::{LogPaths, LogRow, rows, verify_folder};
pub use handle::{Audit, Counts};
pub use key::Key;
pub use record::{AuditKind, AuditRecord, digest_of};
pub use verify::{Acknowledgement, Evidence, LogProblem, VerifyReport, verify};
