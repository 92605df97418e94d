//! The host API: what a plugin's process may request from the gateway, and the limits on its output.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use homard_agent::task;
use homard_hooks::{FailureLog, FrequentFailures};
use serde_json::Value;
use tokio::{sync::Semaphore, task::AbortHandle, time::Instant};

use crate::{
    host::{Ask, Host},
    link::Talk,
    rpc::{self, DENIED, FAILED, UNKNOWN_METHOD, one_line},
};

/// Maximum number of concurrent requests of a process.
const AT_ONCE: usize = 32;

/// Maximum number of malformed lines per minute.
const GARBAGE: Patience = Patience::new(1000, Duration::from_secs(60));

/// Maximum number of unsolicited messages in ten seconds.
const UNASKED: Patience = Patience::new(20_000, Duration::from_secs(10));

/// Maximum number of log lines in ten seconds.
const LOGGED: Patience = Patience::new(100, Duration::from_secs(10));

/// The process behind a connection.
#[derive(Clone)]
pub(crate) struct Behind {
    /// Name of the plugin, or of the shared process.
    pub(crate) name: String,
    /// True if the process runs several plugins and names the plugin in its messages.
    pub(crate) is_shared: bool,
    /// Methods it may call, by name; `None` for all.
    pub(crate) asks: Option<Vec<String>>,
    /// The gateway's side of the API.
    pub(crate) host: Arc<dyn Host>,
    /// Uncaught errors of plugins.
    pub(crate) uncaught: Uncaught,
}

/// Uncaught errors of plugins, thrown outside of any call, by plugin.
#[derive(Debug, Clone, Default)]
pub(crate) struct Uncaught(Arc<Mutex<BTreeMap<String, FailureLog>>>);

impl Uncaught {
    /// Records an error; `Some` if it is to be logged, with the number of suppressed ones.
    fn note(&self, plugin: &str, error: &str) -> Option<usize> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(plugin.to_owned()).or_default().note(Instant::now(), error)
    }

    /// Returns the plugins that currently throw often.
    pub(crate) fn frequent(&self) -> Vec<FrequentFailures> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter_mut().filter_map(|(plugin, failures)| failures.frequent(plugin, Instant::now())).collect()
    }
}

/// Host API state of one process.
pub(crate) struct Door {
    behind: Behind,
    garbage: Patience,
    unasked: Patience,
    logged: Patience,
    is_warned: bool,
    seats: Arc<Semaphore>,
    asking: Asking,
}

/// Requests in progress by id.
type Asking = Arc<Mutex<HashMap<String, AbortHandle>>>;

/// A request of a process.
enum Asked {
    /// Fetches a value that was passed by reference.
    Lent,
    /// Calls the host.
    House(Ask),
}

/// A rate limit.
#[derive(Debug, Clone, Copy)]
struct Patience {
    most: usize,
    within: Duration,
    count: usize,
    since: Option<Instant>,
}

impl Patience {
    const fn new(most: usize, within: Duration) -> Self {
        Self { most, within, count: 0, since: None }
    }

    /// Counts an event; returns false if the limit is exceeded.
    fn bears(&mut self) -> bool {
        let now = Instant::now();
        if self.since.is_none_or(|since| now.duration_since(since) > self.within) {
            (self.since, self.count) = (Some(now), 0);
        }
        self.count += 1;
        self.count <= self.most
    }
}

impl Door {
    pub(crate) fn new(behind: Behind) -> Self {
        Self {
            behind,
            garbage: GARBAGE,
            unasked: UNASKED,
            logged: LOGGED,
            is_warned: false,
            seats: Arc::new(Semaphore::new(AT_ONCE)),
            asking: Asking::default(),
        }
    }

    /// Counts a malformed line; an error if there are too many.
    pub(crate) fn garbage(&mut self, bytes: usize) -> Result<(), String> {
        if !self.is_warned {
            self.is_warned = true;
            let plugin = &self.behind.name;
            tracing::warn!(
                plugin,
                bytes,
                "a plugin wrote a line to stdout that is no message; stdout is for the protocol, stderr for words"
            );
        }
        if self.garbage.bears() {
            return Ok(());
        }
        Err(format!("it wrote more than {} lines to stdout that are no messages", GARBAGE.most))
    }

    /// Counts an unsolicited message; an error if there are too many.
    pub(crate) fn unasked(&mut self) -> Result<(), String> {
        let why = || format!("it sent more than {} messages that nobody asked for", UNASKED.most);
        self.unasked.bears().then_some(()).ok_or_else(why)
    }

    /// Handles a notification of the process.
    pub(crate) fn notice(&mut self, method: &str, params: &Value) -> Result<(), String> {
        self.unasked()?;
        match method {
            "log" => {
                let text = |key: &str| params.get(key).and_then(Value::as_str).unwrap_or_default();
                let (speaker, mut message) = (self.speaker(params), one_line(text("message"), 2000));
                if params.get("uncaught") == Some(&Value::Bool(true)) {
                    match self.behind.uncaught.note(&speaker, &message) {
                        None => return Ok(()),
                        Some(0) => {}
                        Some(more) => message = format!("{message} (and {more} more since the last such line)"),
                    }
                }
                if self.may_log() {
                    self.behind.host.log(&speaker, text("level"), &message);
                }
            }
            "$/cancel" => {
                let id = params.get("id").map(ToString::to_string).unwrap_or_default();
                if let Some(task) = self.asking.lock().unwrap_or_else(PoisonError::into_inner).remove(&id) {
                    task.abort();
                }
            }
            _ => tracing::debug!(plugin = self.behind.name, method, "a plugin told something unknown"),
        }
        Ok(())
    }

    /// True if another log line of this process is allowed.
    fn may_log(&mut self) -> bool {
        let is_borne = self.logged.bears();
        if !is_borne && self.logged.count == LOGGED.most + 1 {
            tracing::warn!(plugin = self.behind.name, "a plugin logs too much; some of it is left out");
        }
        is_borne
    }

    /// Returns the plugin that a message comes from.
    fn speaker(&self, params: &Value) -> String {
        let said = params.get("plugin").and_then(Value::as_str).filter(|_| self.behind.is_shared);
        said.unwrap_or(&self.behind.name).to_owned()
    }

    /// Starts a request, or returns the line that rejects it.
    pub(crate) fn request(
        &mut self,
        id: Value,
        method: &str,
        params: Value,
        talk: &Arc<Talk>,
    ) -> Result<Option<String>, String> {
        self.unasked()?;
        let speaker = self.speaker(&params);
        let asked = match self.asked(&speaker, method) {
            Ok(asked) => asked,
            Err((code, why)) => return Ok(Some(rpc::refusal(&id, code, &why))),
        };
        let Ok(seat) = self.seats.clone().try_acquire_owned() else {
            return Ok(Some(rpc::refusal(&id, FAILED, &format!("more than {AT_ONCE} questions at once"))));
        };
        let (host, talk) = (self.behind.host.clone(), talk.clone());
        let (asking, key) = (self.asking.clone(), id.to_string());
        let answering = task::spawn("plugin question", async move {
            let line = match asked {
                Asked::Lent => lend(&id, &params, &talk),
                Asked::House(ask) => match host.answer(&speaker, ask, params).await {
                    Ok(value) => rpc::answer(&id, &value),
                    Err(why) => rpc::refusal(&id, FAILED, &why),
                },
            };
            talk.say(line).await;
            asking.lock().unwrap_or_else(PoisonError::into_inner).remove(&id.to_string());
            drop(seat);
        });
        let mut asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        asking.retain(|_, task| !task.is_finished());
        asking.insert(key, answering.abort_handle());
        Ok(None)
    }

    /// Classifies a request; the error is the reason for rejecting it.
    fn asked(&mut self, speaker: &str, method: &str) -> Result<Asked, (i64, String)> {
        if method == "ref.get" {
            return Ok(Asked::Lent);
        }
        let Some(ask) = Ask::named(method) else {
            return Err((UNKNOWN_METHOD, format!("there is no method {:?}", one_line(method, 100))));
        };
        if self.behind.asks.as_ref().is_some_and(|asks| !asks.iter().any(|name| name == method)) {
            if self.may_log() {
                tracing::warn!(plugin = speaker, method, "a plugin asked for what its manifest does not declare");
            }
            return Err((DENIED, format!("the manifest does not declare {method} under \"rights.host\"")));
        }
        Ok(Asked::House(ask))
    }

    /// Aborts all requests in progress, because the process is gone.
    pub(crate) fn close(&mut self) {
        for (_, task) in self.asking.lock().unwrap_or_else(PoisonError::into_inner).drain() {
            task.abort();
        }
    }
}

/// Builds the response with a referenced value, while its call is open.
fn lend(id: &Value, params: &Value, talk: &Talk) -> String {
    let reference = params.get("ref").and_then(Value::as_str).unwrap_or_default();
    match talk.shelf.get(reference) {
        Some(value) => rpc::gift(id, &value),
        None => {
            rpc::refusal(id, FAILED, &format!("there is no value {:?}; its call may be over", one_line(reference, 100)))
        }
    }
}
