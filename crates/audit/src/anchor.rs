//! What is kept of the log outside its folder, so that a missing end shows.

use serde::{Deserialize, Serialize};

use crate::{
    chain::{Head, Link},
    fact::{Fact, What},
};

/// Keeps the end of a log in another place. The files are always written first, so the end that is kept may lag behind
/// them after a crash, but never be ahead.
pub trait Anchor: Send + Sync {
    /// What is kept. Fails with a reason that an operator can read.
    fn load(&self) -> Result<Anchored, String>;

    /// Keeps this soon: nobody waits for the disk.
    fn keep(&self, head: Head);

    /// Keeps both at once, on disk when this returns.
    fn keep_now(&self, head: Option<Head>, ledger: &Ledger) -> Result<(), String>;
}

/// What is kept of a log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Anchored {
    /// Where it ends.
    pub head: Option<Head>,
    /// Its breaks; `None` if none were kept yet.
    pub ledger: Option<Ledger>,
}

/// The breaks of a log. They are never forgotten; an acknowledgement is a row of the log that names their number.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ledger {
    /// Whether the log has a row that says that its end is kept.
    pub is_marked: bool,
    /// How many breaks there were.
    pub breaks: u64,
    /// The last of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Break>,
}

/// A log that does not end where it should.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Break {
    /// When it was found, in milliseconds since the epoch.
    pub at_ms: u64,
    /// Where the log should have ended, such as `12:abc…`; empty if that is not known.
    pub expected: String,
    /// Where it ended.
    pub found: String,
}

impl Break {
    pub(crate) fn new(at_ms: u64, expected: Option<Head>, found: Head) -> Self {
        let expected = expected.map(|head| head.to_string()).unwrap_or_default();
        Self { at_ms, expected, found: found.to_string() }
    }

    pub(crate) fn of(link: &Link) -> Self {
        Self { at_ms: link.at, expected: link.text("expected").to_owned(), found: link.text("found").to_owned() }
    }

    pub(crate) fn fact(&self) -> Fact {
        let fact = Fact::new(What::Broken).ended("broken");
        fact.with("expected", &self.expected).with("found", &self.found)
    }

    /// What was found, in a sentence.
    pub fn what(&self) -> String {
        let (expected, found) = (self.expected.parse::<Head>(), self.found.parse::<Head>().unwrap_or_default());
        match expected {
            Ok(expected) if expected.rows > found.rows => {
                format!("the log ended with row {}, not with row {}: rows were removed", found.rows, expected.rows)
            }
            Ok(expected) => format!("row {} was not the one that was written: rows were replaced", expected.rows),
            Err(()) => {
                format!("the journal did not know this log any more, which ended with row {}", found.rows)
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod memory {
    //! An anchor in memory. What is not kept at once can be lost, as by a crash.

    use std::sync::Mutex;

    use super::*;

    #[derive(Default)]
    pub(crate) struct MemoryAnchor {
        kept: Mutex<Anchored>,
        /// Whether what is to be kept soon is lost.
        is_late: bool,
    }

    impl MemoryAnchor {
        pub(crate) fn with(kept: Anchored) -> Self {
            Self { kept: Mutex::new(kept), is_late: false }
        }

        pub(crate) fn late() -> Self {
            Self { is_late: true, ..Self::default() }
        }
    }

    impl Anchor for MemoryAnchor {
        fn load(&self) -> Result<Anchored, String> {
            Ok(self.kept.lock().unwrap().clone())
        }

        fn keep(&self, head: Head) {
            if !self.is_late {
                self.kept.lock().unwrap().head = Some(head);
            }
        }

        fn keep_now(&self, head: Option<Head>, ledger: &Ledger) -> Result<(), String> {
            let mut kept = self.kept.lock().unwrap();
            kept.head = head.or(kept.head);
            kept.ledger = Some(ledger.clone());
            Ok(())
        }
    }
}
