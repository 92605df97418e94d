//! `homard.backup.database` writes a consistent copy of the journal's database beside it, for `homard backup`: the
//! database itself can be read by the gateway only.

use std::sync::Arc;

use homard_gateway::{Method, Scope};
use homard_journal::Journal;
use homard_proto::ErrorShape;
use homard_runtime::Ambient;
use homard_settings::paths::Paths;
use serde_json::json;

/// Returns the method. It holds a weak reference to the journal. The caller removes the file.
pub fn method(journal: &Arc<Journal>, paths: &Paths) -> Method {
    let (journal, folder) = (Arc::downgrade(journal), paths.state.join("journal"));
    Method::new("homard.backup.database", Scope::Admin, move |_| {
        let journal = journal.upgrade();
        let target = folder.join(format!("backup-{}.db", Ambient::system().run_id()));
        async move {
            let journal = journal.ok_or_else(|| ErrorShape::unavailable("the gateway is stopping"))?;
            journal.snapshot(target.clone()).await.map_err(|error| ErrorShape::unavailable(error.to_string()))?;
            Ok(json!({"ok": true, "path": target}))
        }
    })
}
