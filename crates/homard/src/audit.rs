//! The audit log of a state directory: where it is, and who keeps its end.

use std::{path::PathBuf, sync::Arc};

use homard_agent::Ambient;
use homard_audit::{Audit, Fact, Head};
use homard_journal::Journal;

use crate::paths::Paths;

/// The name under which the journal keeps where the log ends.
pub(crate) const END: &str = "audit";

/// The folder of the log.
pub(crate) fn folder(paths: &Paths) -> PathBuf {
    paths.state.join("audit")
}

/// The log of a state directory that this process owns. What the journal puts right is in it, too.
pub(crate) fn open(paths: &Paths, journal: &Arc<Journal>) -> Audit {
    let (ambient, weak) = (Ambient::system(), Arc::downgrade(journal));
    // Not held: whoever holds the log must not keep the state directory.
    let keep = move |head: Head| {
        if let Some(journal) = weak.upgrade() {
            journal.note(END, head.to_string());
        }
    };
    let audit = Audit::open(&folder(paths), move || ambient.now_ms(), keep);
    let told = audit.clone();
    journal.tell_repairs(move |kind| told.note(Fact::new(homard_audit::What::Repaired).with("kind", kind)));
    // Commands may have written while no gateway was there.
    audit.catch_up();
    audit
}

/// Notes one fact in a process that does not own the state directory. It is on disk, or given up, when this returns.
pub(crate) fn note(paths: &Paths, fact: Fact) {
    let ambient = Ambient::system();
    let audit = Audit::open(&folder(paths), move || ambient.now_ms(), |_| {});
    audit.note(fact);
    audit.flush();
}
