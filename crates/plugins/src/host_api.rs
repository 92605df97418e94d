//! The host API: what a plugin's process may request from the gateway, and the limits on its output.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use homard_hooks::{FailureLog, FrequentFailures};
use homard_runtime::task;
use homard_stdx::sync::Mutex;
use serde_json::Value;
use tokio::{sync::Semaphore, task::AbortHandle, time::Instant};

use crate::{
    host::{Host, HostMethod},
    rpc::{self, DENIED, FAILED, UNKNOWN_METHOD, one_line},
    rpc_session::SessionState,
};

/// Maximum number of concurrent requests of a process.
const MAX_CONCURRENT: usize = 32;

/// Maximum number of malformed lines per minute.
const MALFORMED_LIMIT: RateLimit = RateLimit::new(1000, Duration::from_secs(60));

/// Maximum number of unsolicited messages in ten seconds.
const UNSOLICITED_LIMIT: RateLimit = RateLimit::new(20_000, Duration::from_secs(10));

/// Maximum number of log lines in ten seconds.
const LOG_LIMIT: RateLimit = RateLimit::new(100, Duration::from_secs(10));

/// The process behind a connection.
#[derive(Clone)]
pub(crate) struct ProcessInfo {
    /// Name of the plugin, or of the shared process.
    pub(crate) name: String,
    /// True if the process runs several plugins and names the plugin in its messages.
    pub(crate) is_shared: bool,
    /// Methods it may call, by name; `None` for all.
    pub(crate) allowed_methods: Option<Vec<String>>,
    /// The gateway's side of the API.
    pub(crate) host: Arc<dyn Host>,
    /// Uncaught errors of plugins.
    pub(crate) uncaught: UncaughtErrors,
}

/// Uncaught errors of plugins, thrown outside of any call, by plugin.
#[derive(Debug, Clone, Default)]
pub(crate) struct UncaughtErrors(Arc<Mutex<BTreeMap<String, FailureLog>>>);

impl UncaughtErrors {
    /// Records an error; `Some` if it is to be logged, with the number of suppressed ones.
    fn record(&self, plugin: &str, error: &str) -> Option<usize> {
        let mut all = self.0.lock();
        all.entry(plugin.to_owned()).or_default().record(Instant::now(), error)
    }

    /// Returns the plugins that currently throw often.
    pub(crate) fn frequent(&self) -> Vec<FrequentFailures> {
        let mut all = self.0.lock();
        all.iter_mut().filter_map(|(plugin, failures)| failures.frequent(plugin, Instant::now())).collect()
    }
}

/// Host API state of one process.
pub(crate) struct HostApi {
    process: ProcessInfo,
    malformed: RateLimit,
    unsolicited: RateLimit,
    logged: RateLimit,
    is_warned: bool,
    permits: Arc<Semaphore>,
    active: ActiveRequests,
}

/// Requests in progress by id.
type ActiveRequests = Arc<Mutex<HashMap<String, AbortHandle>>>;

/// A request of a process.
enum HostRequest {
    /// Fetches a value that was passed by reference.
    Reference,
    /// Calls the host.
    Host(HostMethod),
    /// Calls a method that only this host has.
    Other(String),
}

/// A rate limit.
#[derive(Debug, Clone, Copy)]
struct RateLimit {
    max: usize,
    period: Duration,
    count: usize,
    since: Option<Instant>,
}

impl RateLimit {
    const fn new(max: usize, period: Duration) -> Self {
        Self { max, period, count: 0, since: None }
    }

    /// Counts an event; returns false if the limit is exceeded.
    fn allow(&mut self) -> bool {
        let now = Instant::now();
        if self.since.is_none_or(|since| now.duration_since(since) > self.period) {
            (self.since, self.count) = (Some(now), 0);
        }
        self.count += 1;
        self.count <= self.max
    }
}

impl HostApi {
    pub(crate) fn new(process_info: ProcessInfo) -> Self {
        Self {
            process: process_info,
            malformed: MALFORMED_LIMIT,
            unsolicited: UNSOLICITED_LIMIT,
            logged: LOG_LIMIT,
            is_warned: false,
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT)),
            active: ActiveRequests::default(),
        }
    }

    /// Counts a malformed line; an error if there are too many.
    pub(crate) fn malformed(&mut self, bytes: usize) -> Result<(), String> {
        if !self.is_warned {
            self.is_warned = true;
            let plugin = &self.process.name;
            tracing::warn!(
                plugin,
                bytes,
                "plugin wrote a line to stdout that is not a protocol message; use stderr for other output"
            );
        }
        if self.malformed.allow() {
            return Ok(());
        }
        Err(format!(
            "the plugin wrote more than {} lines to stdout that are not protocol messages",
            MALFORMED_LIMIT.max
        ))
    }

    /// Counts an unsolicited message; an error if there are too many.
    pub(crate) fn unsolicited(&mut self) -> Result<(), String> {
        let message = || format!("the plugin sent more than {} unsolicited messages", UNSOLICITED_LIMIT.max);
        self.unsolicited.allow().then_some(()).ok_or_else(message)
    }

    /// Handles a notification of the process.
    pub(crate) fn handle_notification(&mut self, method: &str, params: &Value) -> Result<(), String> {
        self.unsolicited()?;
        match method {
            "log" => {
                let text = |key: &str| params.get(key).and_then(Value::as_str).unwrap_or_default();
                let (plugin_id, mut message) = (self.plugin_of(params), one_line(text("message"), 2000));
                if params.get("uncaught") == Some(&Value::Bool(true)) {
                    match self.process.uncaught.record(&plugin_id, &message) {
                        None => return Ok(()),
                        Some(0) => {}
                        Some(suppressed) => {
                            message = format!("{message} (and {suppressed} more since the last such line)")
                        }
                    }
                }
                if self.allow_log() {
                    self.process.host.log(&plugin_id, text("level"), &message);
                }
            }
            "$/cancel" => {
                let id = params.get("id").map(ToString::to_string).unwrap_or_default();
                if let Some(task) = self.active.lock().remove(&id) {
                    task.abort();
                }
            }
            _ if self.process.host.notified(method, params) => {}
            _ => tracing::debug!(plugin = self.process.name, method, "plugin sent an unknown notification"),
        }
        Ok(())
    }

    /// True if another log line of this process is allowed.
    fn allow_log(&mut self) -> bool {
        let is_allowed = self.logged.allow();
        if !is_allowed && self.logged.count == LOG_LIMIT.max + 1 {
            tracing::warn!(plugin = self.process.name, "plugin logs too much; dropping some of its log lines");
        }
        is_allowed
    }

    /// Returns the plugin that a message comes from.
    fn plugin_of(&self, params: &Value) -> String {
        let named_plugin = params.get("plugin").and_then(Value::as_str).filter(|_| self.process.is_shared);
        named_plugin.unwrap_or(&self.process.name).to_owned()
    }

    /// Starts a request, or returns the line that rejects it.
    pub(crate) fn handle_request(
        &mut self,
        id: Value,
        method: &str,
        params: Value,
        session: &Arc<SessionState>,
    ) -> Result<Option<String>, String> {
        self.unsolicited()?;
        let plugin_id = self.plugin_of(&params);
        let request = match self.classify(&plugin_id, method) {
            Ok(request) => request,
            Err((code, reason)) => return Ok(Some(rpc::error_response(&id, code, &reason))),
        };
        let Ok(permit) = self.permits.clone().try_acquire_owned() else {
            return Ok(Some(rpc::error_response(
                &id,
                FAILED,
                &format!("more than {MAX_CONCURRENT} concurrent requests"),
            )));
        };
        let (host, session) = (self.process.host.clone(), session.clone());
        let (active, key) = (self.active.clone(), id.to_string());
        let handle = task::spawn("plugin request", async move {
            let line = match request {
                HostRequest::Reference => reference_response(&id, &params, &session),
                HostRequest::Host(host_method) => match host.handle(&plugin_id, host_method, params).await {
                    Ok(value) => rpc::response(&id, &value),
                    Err(reason) => rpc::error_response(&id, FAILED, &reason),
                },
                HostRequest::Other(method) => match host.serve(&method, params).await {
                    Ok(value) => rpc::response(&id, &value),
                    Err(reason) => rpc::error_response(&id, FAILED, &reason),
                },
            };
            session.send_line(line).await;
            active.lock().remove(&id.to_string());
            drop(permit);
        });
        let mut active = self.active.lock();
        active.retain(|_, task| !task.is_finished());
        active.insert(key, handle.abort_handle());
        Ok(None)
    }

    /// Classifies a request; the error is the reason for rejecting it.
    fn classify(&mut self, plugin_id: &str, method: &str) -> Result<HostRequest, (i64, String)> {
        if method == "ref.get" {
            return Ok(HostRequest::Reference);
        }
        if self.process.host.serves(method) {
            return Ok(HostRequest::Other(method.to_owned()));
        }
        let Some(host_method) = HostMethod::named(method) else {
            return Err((UNKNOWN_METHOD, format!("unknown method {:?}", one_line(method, 100))));
        };
        if self.process.allowed_methods.as_ref().is_some_and(|allowed| !allowed.iter().any(|name| name == method)) {
            if self.allow_log() {
                tracing::warn!(plugin = plugin_id, method, "plugin called a method that its manifest does not declare");
            }
            return Err((DENIED, format!("the manifest does not declare {method} under \"rights.host\"")));
        }
        Ok(HostRequest::Host(host_method))
    }

    /// Aborts all requests in progress, because the process is gone.
    pub(crate) fn close(&mut self) {
        for (_, task) in self.active.lock().drain() {
            task.abort();
        }
    }
}

/// Builds the response with a referenced value, which is available while its call is open.
fn reference_response(id: &Value, params: &Value, session: &SessionState) -> String {
    let reference = params.get("ref").and_then(Value::as_str).unwrap_or_default();
    match session.blobs.get(reference) {
        Some(value) => rpc::raw_response(id, &value),
        None => rpc::error_response(
            id,
            FAILED,
            &format!("unknown reference {:?}; its call may have ended", one_line(reference, 100)),
        ),
    }
}
