//! Exec approvals: requests, decisions, and permanent rules.
//!
//! [`policy`] is the file with the rules, [`level`] how strict they are, [`rule`] a permanent permission,
//! [`fingerprint`] the fingerprint that a decision is bound to, [`display`] the display of commands, `state` the
//! requests and their state transitions (all pure); [`approvals`] persists that state on its [`store`]. Does not execute
//! what was approved.
#![warn(missing_docs)]

pub mod approvals;
pub mod display;
pub mod fingerprint;
pub mod level;
mod payloads;
pub mod policy;
pub mod rule;
mod state;
pub mod store;

pub use approvals::ExecApprovals;
pub use fingerprint::{CommandFingerprint, DirIdentity, FileIdentity};
pub use level::{AskMode, EffectiveLevels, LevelOverrides, Security};
pub use policy::ApprovalPolicy;
pub use rule::ApprovalRule;
pub use state::{APPROVAL_TIMEOUT, Approval, ApprovalDecision, ApprovalParams, ApprovalState, Error};

#[cfg(test)]
mod tests;
