//! `homard.audit.end`: where the journal says that the audit log ends, for whoever checks it while a gateway runs.

use std::sync::Arc;

use homard_gateway::{Method, Scope};
use homard_journal::Journal;
use homard_proto::ErrorShape;
use serde_json::json;

use crate::audit;

/// The method. The journal is not held.
pub(crate) fn method(journal: &Arc<Journal>) -> Method {
    let journal = Arc::downgrade(journal);
    Method::new("homard.audit.end", Scope::Read, move |_| {
        let journal = journal.upgrade();
        async move {
            let journal = journal.ok_or_else(|| ErrorShape::unavailable("the gateway is stopping"))?;
            let end = journal.noted(audit::END).await;
            Ok(json!({"end": end.map_err(|error| ErrorShape::unavailable(error.to_string()))?}))
        }
    })
}
