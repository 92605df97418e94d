//! `doctor.run`: the checks of the installation by its running gateway, for the page and for programs.
//!
//! The answer is the document of `homard doctor --json`. Nothing is changed, no request leaves the machine, and no plugin
//! is started: the gateway reports what it knows about itself and its plugins.

use std::sync::{Arc, Weak};

use homard_app::{App, audit as audit_log, gateway::StartedGateway, plugins::PluginSet};
use homard_gateway::{Method, OperatorWarnings, Outages, Scope};
use homard_journal::Journal;
use homard_proto::{ErrorShape, method::queries::NothingParams};
use homard_settings::paths::Paths;
use serde_json::Value;
use tokio::{runtime::Handle, sync::Mutex};

use crate::{CheckContext, audit, check_files, document, finding::CheckReport, gateway, plugins, remove_repeated};

/// What the checks of a running gateway read. It must not keep the state directory open, so it holds a weak reference to
/// the journal.
struct RunningChecks {
    paths: Paths,
    journal: Weak<Journal>,
    plugins: PluginSet,
    outages: Option<Outages>,
    warnings: OperatorWarnings,
    /// Held during the checks: they read all transcripts, so there is one at a time.
    turn: Arc<Mutex<()>>,
}

/// Returns the method `doctor.run`.
pub fn method(app: &App, paths: &Paths, gateway: &StartedGateway) -> Method {
    let checks = Arc::new(RunningChecks {
        paths: paths.clone(),
        journal: Arc::downgrade(&app.journal),
        plugins: app.factory.plugins.clone(),
        outages: gateway.outages(),
        warnings: gateway.warnings(),
        turn: Arc::default(),
    });
    Method::new("doctor.run", Scope::Read, move |mut request| {
        let checks = checks.clone();
        async move {
            let NothingParams {} = request.params()?;
            checks.run().await
        }
    })
}

impl RunningChecks {
    async fn run(&self) -> Result<Value, ErrorShape> {
        let turn = self.turn.clone().lock_owned().await;
        let anchor = {
            let journal = self.journal.upgrade();
            let journal = journal.ok_or_else(|| ErrorShape::unavailable("the gateway is stopping"))?;
            audit_log::anchor_notes(&journal).await.map_err(|error| error.to_string())
        };
        let (paths, running) = (self.paths.clone(), self.plugins.status());
        let outages = self.outages.as_ref().map(|outages| outages()).unwrap_or_default();
        let notice = self.warnings.text();
        let runtime = Handle::current();
        let reports = tokio::task::spawn_blocking(move || {
            // Until the checks end, even if the client disconnects.
            let _turn = turn;
            let context = CheckContext::read(paths);
            let mut reports = check_files(&context);
            reports.push(("audit", check_audit(&context.paths, anchor)));
            reports.push(("gateway", gateway::check_running(&outages, notice.as_deref())));
            reports.push(("plugins", runtime.block_on(plugins::check_running(&context, running))));
            reports
        });
        let reports = reports.await;
        let mut reports = reports.map_err(|error| ErrorShape::unavailable(format!("the checks failed: {error}")))?;
        remove_repeated(&mut reports);
        Ok(document(&reports))
    }
}

/// Verifies the audit log against the journal's notes about it.
fn check_audit(paths: &Paths, anchor: Result<Value, String>) -> CheckReport {
    let evidence = anchor.and_then(|anchor| audit_log::evidence(paths, &anchor).map_err(|error| error.to_string()));
    match evidence {
        Ok(evidence) => audit::check(paths, &evidence),
        Err(error) => audit::unknown(&error),
    }
}
