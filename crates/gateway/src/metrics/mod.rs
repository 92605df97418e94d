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
use homard_agent::{Event, HubEvent, RunEvent, Tape};
use homard_proto::{Generation, method::connect::Auth};
use tokio::time::Instant;

use self::runs::Runs;
pub(crate) use self::runs::Watch;
pub use self::text::{Labels, MetricsPage};
use crate::{auth::Denied, connection::Visitor, scope::Scope, server::Server};

/// Adds further metrics to the page. May block.
pub type MoreMetrics = Arc<dyn Fn(&mut MetricsPage) + Send + Sync>;

/// Callback for finished runs. Must not block.
pub type RunEnds = Arc<dyn Fn(&Tape) + Send + Sync>;

/// The counters. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Metrics(Arc<Inner>);

/// Predicate: is there a tool with this name?
type Knows = Box<dyn Fn(&str) -> bool + Send + Sync>;

#[derive(Default)]
struct Inner {
    runs: Mutex<Runs>,
    /// True for names of existing tools; a model may invent names.
    knows: Option<Knows>,
    /// Callback for finished runs.
    ends: Option<RunEnds>,
}

impl Metrics {
    /// Creates empty counters.
    pub(crate) fn new(knows: impl Fn(&str) -> bool + Send + Sync + 'static, ends: Option<RunEnds>) -> Self {
        Self(Arc::new(Inner { runs: Mutex::default(), knows: Some(Box::new(knows)), ends }))
    }

    /// Reports a finished run, whose whole tape can be read.
    pub(crate) fn ended(&self, tape: &Tape) {
        if let Some(ends) = &self.0.ends {
            ends(tape);
        }
    }

    /// Counts an event of a run.
    pub(crate) fn see(&self, watch: &mut Watch, event: &Event) {
        // Very frequent events that are not counted.
        if matches!(event.kind, RunEvent::Text { .. } | RunEvent::Thinking { .. } | RunEvent::ToolProgress { .. }) {
            return;
        }
        let knows = |name: &str| self.0.knows.as_ref().is_none_or(|knows| knows(name));
        self.runs().see(watch, event, knows);
    }

    /// Counts a run whose records could not be stored.
    pub(crate) fn broke(&self) {
        self.runs().broke();
    }

    /// Counts a hub event that belongs to no run.
    pub(crate) fn hear(&self, event: &HubEvent) {
        if let HubEvent::Delivery(delivered) = event {
            *self.runs().deliveries.at(&[&delivered.target.channel, delivered.state.word()]) += 1.0;
        }
    }

    fn runs(&self) -> MutexGuard<'_, Runs> {
        self.0.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// Serves the page to clients with the shared secret or a device token that has the read scope.
pub(crate) async fn answer(server: &Arc<Server>, visitor: &Visitor, parts: &Parts) -> Response {
    if parts.method != Method::GET && parts.method != Method::HEAD {
        return (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "GET, HEAD")], "Method Not Allowed").into_response();
    }
    if let Err(denied) = admit(server, visitor, parts) {
        let error = denied.error(Generation::Four);
        let status = match denied {
            Denied::TooOften { .. } => StatusCode::TOO_MANY_REQUESTS,
            Denied::Missing(_) | Denied::Mismatch(_) | Denied::DeviceToken => StatusCode::UNAUTHORIZED,
        };
        return (status, [(WWW_AUTHENTICATE, "Bearer")], format!("{}\n", error.message)).into_response();
    }
    visitor.welcome();
    let headers = [
        (CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8"),
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    let asked = server.clone();
    match tokio::task::spawn_blocking(move || page(&asked)).await {
        Ok(page) => (headers, page).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("the page broke: {error}\n")).into_response(),
    }
}

fn admit(server: &Server, visitor: &Visitor, parts: &Parts) -> Result<(), Denied> {
    let shown = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.trim().split_once(' '));
    let bearer = shown.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map(|(_, token)| token.trim());
    let auth = Auth { token: bearer.map(str::to_owned), ..Auth::default() };
    let may_look = || bearer.filter(|token| server.devices.token_may(token, Scope::Read)).map(|_| ());
    server.bouncer.judge(&auth, (visitor.address(), Instant::now()), may_look).map(|_| ()).inspect_err(|_| {
        tracing::warn!(address = %visitor.address(), "a request for metrics was refused");
    })
}

fn page(server: &Server) -> String {
    let mut page = MetricsPage::default();
    page.gauge("homard_build_info", "The version.", [(&[("version", env!("CARGO_PKG_VERSION"))][..], 1.0)]);
    page.gauge(
        "homard_uptime_seconds",
        "How long it has been answering.",
        [(&[][..], server.uptime_ms() as f64 / 1e3)],
    );
    page.gauge("homard_sockets", "Connections of clients.", [(&[][..], server.connections.len() as f64)]);
    page.gauge("homard_runs_live", "Runs at work and in line.", [(&[][..], server.hub.work().len() as f64)]);
    let audited = server.hub.audit().counts();
    let rows = [(&[("outcome", "written")][..], audited.written as f64), (&[("outcome", "lost")], audited.lost as f64)];
    page.counter("homard_audit_rows_total", "Rows of the audit log.", rows);
    let noted: Vec<_> = server.hub.audit().noted().into_iter().map(|(what, n)| ([("what", what.name())], n)).collect();
    let rows = noted.iter().map(|(labels, count)| (&labels[..], *count as f64));
    page.counter("homard_audit_facts_total", "What was noted for the audit log.", rows);
    server.metrics.runs().write(&mut page);
    process::write(&mut page);
    if let Some(more) = &server.more_metrics {
        more(&mut page);
    }
    page.text()
}

#[cfg(test)]
mod tests;
