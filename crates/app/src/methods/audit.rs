//! `homard.audit.end` returns the journal's notes about the audit log, for verification while a gateway runs.
//! `homard.audit.acknowledge` records that the owner has seen its breaks.

use std::sync::Arc;

use homard_audit::Audit;
use homard_gateway::{Method, Scope};
use homard_journal::Journal;
use homard_proto::{ErrorShape, method::audit::AcknowledgeParams};
use serde_json::json;

use crate::audit;

/// Returns the methods. They hold a weak reference to the journal.
pub fn methods(journal: &Arc<Journal>, log: &Audit) -> [Method; 2] {
    let journal = Arc::downgrade(journal);
    let end = Method::new("homard.audit.end", Scope::Read, move |_| {
        let journal = journal.upgrade();
        async move {
            let journal = journal.ok_or_else(|| ErrorShape::unavailable("the gateway is stopping"))?;
            audit::anchor_notes(&journal).await.map_err(|error| ErrorShape::unavailable(error.to_string()))
        }
    });
    let log = log.clone();
    let acknowledge = Method::new("homard.audit.acknowledge", Scope::Admin, move |mut request| {
        let log = log.clone();
        async move {
            let AcknowledgeParams { reason } = request.params()?;
            let reason = audit::reason(&reason).map_err(ErrorShape::invalid)?.to_owned();
            let principal = request.principal().to_owned();
            let result = tokio::task::spawn_blocking(move || log.acknowledge(&reason, &principal)).await;
            let result = result.unwrap_or_else(|error| Err(std::io::Error::other(error)));
            result.map_err(|error| ErrorShape::unavailable(error.to_string()))?;
            Ok(json!({"ok": true}))
        }
    });
    [end, acknowledge]
}
