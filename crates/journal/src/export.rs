//! `sessions.json`: for OpenClaw, for people and for the next start. It follows the records at a distance.

use std::sync::PoisonError;

use homard_proto::AgentId;
use homard_store::Error;

use crate::{Room, disk, index, log};

impl Room {
    /// Writes the `sessions.json` of every agent whose records changed.
    pub(crate) fn export(&self) -> Result<(), Error> {
        let _one = self.exporting.lock().unwrap_or_else(PoisonError::into_inner);
        let behind = self.known().index.behind();
        behind.iter().try_for_each(|agent| self.export_agent(agent))
    }

    fn export_agent(&self, agent: &AgentId) -> Result<(), Error> {
        let sessions = self.layout.sessions(agent);
        let folder = {
            // No commit may come between: the old log must hold nothing that is not in the export.
            let _writer = self.tails();
            log::rotate(&sessions)?;
            self.known().index.snapshot(agent, false)
        };
        let write = || {
            let json = serde_json::to_vec_pretty(&folder).map_err(|reason| disk::unwritable(&reason))?;
            disk::replace(&sessions.join(index::FILE), &json)?;
            log::forget(&sessions)
        };
        write().inspect_err(|_| drop(self.known().index.snapshot(agent, true)))
    }
}
