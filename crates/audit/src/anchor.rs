//! Anchor: the end of the log, stored outside its folder, so that a truncated log is detected.

use serde::{Deserialize, Serialize};

use crate::{
    chain::{ChainHead, Link},
    record::{AuditKind, AuditRecord},
};

/// Stores the end of a log outside its folder. The files are always written first, so the stored end may lag behind
/// them after a crash, but never be ahead.
pub trait Anchor: Send + Sync {
    /// Returns what is stored. Fails with a reason for the operator.
    fn load(&self) -> Result<AnchorState, String>;

    /// Stores the end of the log soon, without waiting for the disk.
    fn store_soon(&self, head: ChainHead);

    /// Stores the ledger, and the end of the log if it is given, atomically. Both are on disk when this returns.
    fn store_now(&self, head: Option<ChainHead>, ledger: &BreakLedger) -> Result<(), String>;
}

/// Stored information about a log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AnchorState {
    /// End of the log.
    pub head: Option<ChainHead>,
    /// Breaks of the log; `None` if none were stored yet.
    pub ledger: Option<BreakLedger>,
}

/// Breaks of a log. They are never deleted; an acknowledgement is a row of the log with their number.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BreakLedger {
    /// True if the log has an [`AuditKind::Anchored`] row: from that row on, a missing anchor is an error.
    pub is_marked: bool,
    /// Number of breaks.
    pub breaks: u64,
    /// Last break.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Break>,
}

/// A log that does not end where it should.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Break {
    /// Time of detection in milliseconds since the epoch.
    pub at_ms: u64,
    /// Expected end of the log as a formatted [`ChainHead`], such as `12:abc…`; empty if unknown.
    pub expected: String,
    /// Actual end of the log, in the same format.
    pub found: String,
}

impl Break {
    pub(crate) fn new(at_ms: u64, expected: Option<ChainHead>, found: ChainHead) -> Self {
        let expected = expected.map(|head| head.to_string()).unwrap_or_default();
        Self { at_ms, expected, found: found.to_string() }
    }

    pub(crate) fn of(link: &Link) -> Self {
        Self { at_ms: link.at, expected: link.text("expected").to_owned(), found: link.text("found").to_owned() }
    }

    pub(crate) fn record(&self) -> AuditRecord {
        let record = AuditRecord::new(AuditKind::ChainBroken).outcome("broken");
        record.with("expected", &self.expected).with("found", &self.found)
    }

    /// Describes the break in a sentence.
    pub fn description(&self) -> String {
        let (expected, found) =
            (self.expected.parse::<ChainHead>(), self.found.parse::<ChainHead>().unwrap_or_default());
        match expected {
            Ok(expected) if expected.rows > found.rows => {
                format!("the log ended with row {}, not with row {}: rows were removed", found.rows, expected.rows)
            }
            Ok(expected) => format!("row {} did not match the recorded one: rows were replaced", expected.rows),
            Err(()) => {
                format!("the journal had no record of this log, which ended with row {}", found.rows)
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod memory {
    //! In-memory anchor. Deferred writes can be lost, as in a crash.

    use std::sync::Mutex;

    use super::*;

    #[derive(Default)]
    pub(crate) struct MemoryAnchor {
        stored: Mutex<AnchorState>,
        /// True if deferred writes are lost.
        is_late: bool,
    }

    impl MemoryAnchor {
        pub(crate) fn with(state: AnchorState) -> Self {
            Self { stored: Mutex::new(state), is_late: false }
        }

        pub(crate) fn late() -> Self {
            Self { is_late: true, ..Self::default() }
        }
    }

    impl Anchor for MemoryAnchor {
        fn load(&self) -> Result<AnchorState, String> {
            Ok(self.stored.lock().unwrap().clone())
        }

        fn store_soon(&self, head: ChainHead) {
            if !self.is_late {
                self.stored.lock().unwrap().head = Some(head);
            }
        }

        fn store_now(&self, head: Option<ChainHead>, ledger: &BreakLedger) -> Result<(), String> {
            let mut state = self.stored.lock().unwrap();
            state.head = head.or(state.head);
            state.ledger = Some(ledger.clone());
            Ok(())
        }
    }
}
