//! The audit log of a state directory, for processes that do not own the directory.

use homard_audit::{Audit, AuditRecord, LogPaths};
use homard_runtime::Ambient;

use crate::paths::Paths;

/// Returns the location of a state directory's audit log.
pub fn location(paths: &Paths) -> LogPaths {
    LogPaths::in_state(&paths.state)
}

/// Records one event from a process that does not own the state directory. When this returns it is on disk or was given
/// up.
pub fn note(paths: &Paths, record: AuditRecord) {
    let ambient = Ambient::system();
    let audit = Audit::open(location(paths), move || ambient.now_ms(), None);
    audit.note(record);
    audit.flush();
}
