//! `/metrics`: counters and gauges in the Prometheus text format.
//!
//! Run metrics are counted by the projector, the single task that reads run tapes for clients, so runs do no extra work
//! and only a scrape can wait for the lock. Everything else is read at the time of the scrape. Label values have low
//! cardinality: outcomes, providers, tools and channels, never sessions or people.

mod process;
mod runs;
mod text;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{
    http::{
        Method, StatusCode,
        header::{ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS},
        request::Parts,
    },
    response::{IntoResponse, Response},
};
use homard_agent::{HubEvent, RunEvent, Tape, TapeEvent, ToolEvent};
use homard_proto::{Generation, method::connect::Auth};
use tokio::time::Instant;

use self::runs::RunMetrics;
pub(crate) use self::runs::RunProgress;
pub use self::text::{Labels, MetricsPage};
use crate::{auth::AuthError, connection::AdmittedPeer, scope::Scope, server::ServerState};

/// Adds further metrics to the page. May block.
pub type MetricsSource = Arc<dyn Fn(&mut MetricsPage) + Send + Sync>;

/// Callback for finished runs. Must not block.
pub type RunEndCallback = Arc<dyn Fn(&Tape) + Send + Sync>;

/// The counters. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Metrics(Arc<MetricsInner>);

/// Predicate: is there a tool with this name?
type ToolPredicate = Box<dyn Fn(&str) -> bool + Send + Sync>;

#[derive(Default)]
struct MetricsInner {
    runs: Mutex<RunMetrics>,
    /// True for names of existing tools; a model may invent names.
    is_tool: Option<ToolPredicate>,
    /// Callback for finished runs.
    on_run_end: Option<RunEndCallback>,
}

impl Metrics {
    /// Creates empty counters.
    pub(crate) fn new(
        is_tool: impl Fn(&str) -> bool + Send + Sync + 'static,
        on_run_end: Option<RunEndCallback>,
    ) -> Self {
        Self(Arc::new(MetricsInner { runs: Mutex::default(), is_tool: Some(Box::new(is_tool)), on_run_end }))
    }

    /// Reports a finished run, whose whole tape can be read.
    pub(crate) fn run_ended(&self, tape: &Tape) {
        if let Some(callback) = &self.0.on_run_end {
            callback(tape);
        }
    }

    /// Counts an event of a run.
    pub(crate) fn observe(&self, progress: &mut RunProgress, event: &TapeEvent) {
        // Very frequent events that are not counted.
        if matches!(
            event.kind,
            RunEvent::Text { .. } | RunEvent::Thinking { .. } | RunEvent::Tool(ToolEvent::Progress { .. })
        ) {
            return;
        }
        let is_tool = |name: &str| self.0.is_tool.as_ref().is_none_or(|is_tool| is_tool(name));
        self.runs().observe(progress, event, is_tool);
    }

    /// Counts a run whose records could not be stored.
    pub(crate) fn run_broken(&self) {
        self.runs().run_broken();
    }

    /// Counts a hub event that belongs to no run.
    pub(crate) fn observe_hub(&self, event: &HubEvent) {
        if let HubEvent::Delivery(delivered) = event {
            *self.runs().deliveries.at(&[&delivered.target.channel, delivered.state.name()]) += 1.0;
        }
    }

    fn runs(&self) -> MutexGuard<'_, RunMetrics> {
        self.0.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// Serves the page to clients with the shared secret or a device token that has the read scope.
pub(crate) async fn answer(server: &Arc<ServerState>, peer: &AdmittedPeer, parts: &Parts) -> Response {
    if parts.method != Method::GET && parts.method != Method::HEAD {
        return (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "GET, HEAD")], "Method Not Allowed").into_response();
    }
    if let Err(auth_error) = admit(server, peer, parts) {
        let error = auth_error.error(Generation::Four);
        let status = match auth_error {
            AuthError::RateLimited { .. } => StatusCode::TOO_MANY_REQUESTS,
            AuthError::Missing(_) | AuthError::Mismatch(_) | AuthError::DeviceToken => StatusCode::UNAUTHORIZED,
        };
        return (status, [(WWW_AUTHENTICATE, "Bearer")], format!("{}\n", error.message)).into_response();
    }
    peer.mark_authenticated();
    let headers = [
        (CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8"),
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    let state = server.clone();
    match tokio::task::spawn_blocking(move || page(&state)).await {
        Ok(page) => (headers, page).into_response(),
        Err(error) => {
            (StatusCode::INTERNAL_SERVER_ERROR, format!("failed to build the metrics page: {error}\n")).into_response()
        }
    }
}

fn admit(server: &ServerState, peer: &AdmittedPeer, parts: &Parts) -> Result<(), AuthError> {
    let credentials = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.trim().split_once(' '));
    let bearer = credentials.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token.trim());
    let auth = Auth { token: bearer.map(str::to_owned), ..Auth::default() };
    let device_grant = || bearer.filter(|token| server.devices.token_grants(token, Scope::Read)).map(|_| ());
    server.auth.authenticate(&auth, peer.address(), Instant::now(), device_grant).map(|_| ()).inspect_err(|_| {
        tracing::warn!(address = %peer.address(), "rejected a metrics request");
    })
}

fn page(server: &ServerState) -> String {
    let mut page = MetricsPage::default();
    page.gauge("homard_build_info", "Version of Homard.", [(&[("version", env!("CARGO_PKG_VERSION"))][..], 1.0)]);
    page.gauge(
        "homard_uptime_seconds",
        "Time since the gateway started.",
        [(&[][..], server.uptime_ms() as f64 / 1e3)],
    );
    page.gauge("homard_sockets", "Open connections.", [(&[][..], server.connections.len() as f64)]);
    page.gauge("homard_runs_live", "Active and queued runs.", [(&[][..], server.hub.runs().live().len() as f64)]);
    let audit_counts = server.hub.audit().counts();
    let rows = [
        (&[("outcome", "written")][..], audit_counts.written as f64),
        (&[("outcome", "lost")], audit_counts.lost as f64),
    ];
    page.counter("homard_audit_rows_total", "Audit log rows, by outcome.", rows);
    let counts: Vec<_> =
        server.hub.audit().noted().into_iter().map(|(kind, count)| ([("what", kind.name())], count)).collect();
    let rows = counts.iter().map(|(labels, count)| (&labels[..], *count as f64));
    page.counter("homard_audit_facts_total", "Actions recorded for the audit log, by kind.", rows);
    server.monitoring.metrics.runs().write(&mut page);
    process::write(&mut page);
    if let Some(add_metrics) = &server.monitoring.more_metrics {
        add_metrics(&mut page);
    }
    page.text()
}

#[cfg(test)]
mod tests;
