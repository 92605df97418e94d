//! A gateway that a chat starts for itself, because none is running.
//!
//! It records its process id in the state directory, which distinguishes it from a gateway that is meant to stay:
//! a gateway that starts later takes over from it, and a second chat does not wait for it to come back.

use std::{fs, io, path::Path};

use homard_journal::lock::{self, LockHolder};

/// File with the process id, in the state directory.
const FILE: &str = "chat-gateway-pid";

/// Records that this process is the gateway of a chat. It must hold the state directory.
pub fn record(state: &Path) -> io::Result<()> {
    homard_stdx::file::replace(&state.join(FILE), format!("{}\n", std::process::id()).as_bytes())
}

/// Returns the process that holds the state directory if it is the gateway of a chat.
pub fn holder(state: &Path) -> Option<LockHolder> {
    let recorded: u32 = fs::read_to_string(state.join(FILE)).ok()?.trim().parse().ok()?;
    lock::holder(state).filter(|holder| holder.pid == recorded)
}

#[cfg(test)]
mod tests {
    use homard_journal::Journal;

    use super::*;

    #[test]
    fn the_record_counts_while_its_process_holds_the_directory() {
        let state = tempfile::tempdir().unwrap();
        record(state.path()).unwrap();
        assert_eq!(holder(state.path()), None);
        let journal = Journal::open(state.path(), || 1).unwrap();
        assert_eq!(holder(state.path()).map(|holder| holder.pid), Some(std::process::id()));
        fs::write(state.path().join(FILE), "1\n").unwrap();
        assert_eq!(holder(state.path()), None);
        drop(journal);
    }
}
