//! The state of a channel account, as reported to users.

use std::sync::{Mutex, MutexGuard, PoisonError};

use homard_channels::ConnectionState;
use serde_json::{Value, json};

/// Maximum number of incidents that are kept.
const MAX_INCIDENTS: usize = 200;

/// The state of a channel account.
#[derive(Debug, Default)]
pub(super) struct AccountStatus(Mutex<AccountStatusInner>);

#[derive(Debug, Default)]
struct AccountStatusInner {
    is_running: bool,
    is_up: bool,
    started_at: Option<u64>,
    stopped_at: Option<u64>,
    /// The current error.
    error: Option<String>,
    /// Time of the first failure since the connection was up.
    down_since: Option<u64>,
    inbound_at: Option<u64>,
    outbound_at: Option<u64>,
    /// Incidents, oldest first.
    incidents: Vec<Incident>,
}

/// Something that happened to an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incident {
    /// Time in milliseconds since the epoch.
    pub at: u64,
    /// What happened.
    pub text: String,
    /// True if a message was not answered, or a reply not delivered, because of it.
    pub is_loss: bool,
}

impl AccountStatusInner {
    /// Sets or clears the current error.
    fn set_error(&mut self, at: u64, error: Option<String>) {
        self.down_since = error.as_ref().map(|_| self.down_since.unwrap_or(at));
        self.error = error;
    }

    fn add_incident(&mut self, incident: Incident) {
        if self.incidents.last().is_none_or(|last| last.text != incident.text) {
            self.incidents.push(incident);
            let old = self.incidents.len().saturating_sub(MAX_INCIDENTS);
            self.incidents.drain(..old);
        }
    }
}

impl AccountStatus {
    /// Records that receiving starts.
    pub(crate) fn started(&self, at: u64) {
        let mut inner = self.lock();
        (inner.is_running, inner.started_at) = (true, Some(at));
        inner.add_incident(Incident { at, text: "started".to_owned(), is_loss: false });
    }

    /// Records that receiving stopped; `why` is `None` if it was requested.
    pub(crate) fn stopped(&self, at: u64, why: Option<String>) {
        let mut inner = self.lock();
        (inner.is_running, inner.is_up, inner.stopped_at) = (false, false, Some(at));
        let text = why.as_ref().map_or_else(|| "stopped".to_owned(), |why| format!("stopped: {why}"));
        inner.add_incident(Incident { at, text, is_loss: false });
        inner.set_error(at, why);
    }

    /// Records a change of the connection's state.
    pub(super) fn connection_changed(&self, at: u64, state: &ConnectionState) {
        let mut inner = self.lock();
        let (is_up, error) = match state {
            ConnectionState::Up => (true, None),
            ConnectionState::Conflict { why, .. } | ConnectionState::Down { why, .. } => (false, Some(why.clone())),
        };
        inner.is_up = is_up;
        let text = error.clone().unwrap_or_else(|| "connected".to_owned());
        inner.add_incident(Incident { at, text, is_loss: false });
        inner.set_error(at, error);
    }

    /// Records an inbound message.
    pub(crate) fn received(&self, at: u64) {
        self.lock().inbound_at = Some(at);
    }

    /// Records that a message was ignored, and why. Repetitions are recorded only once in a while.
    pub(crate) fn ignored(&self, at: u64, text: String) {
        let mut inner = self.lock();
        if !inner.incidents.iter().rev().take(MAX_INCIDENTS / 2).any(|known| known.text == text) {
            inner.add_incident(Incident { at, text, is_loss: true });
        }
    }

    /// Records an outbound message, or why it failed.
    pub(crate) fn sent(&self, at: u64, error: Option<String>) {
        let mut inner = self.lock();
        match error {
            None => inner.outbound_at = Some(at),
            Some(why) => {
                inner.add_incident(Incident { at, text: format!("not sent: {why}"), is_loss: true });
            }
        }
    }

    /// Returns the state as reported to clients.
    pub(crate) fn view(&self) -> Value {
        let inner = self.lock();
        json!({
            "running": inner.is_running, "connected": inner.is_up, "lastStartAt": inner.started_at,
            "lastStopAt": inner.stopped_at, "lastError": inner.error,
            "downSince": inner.down_since, "lastInboundAt": inner.inbound_at,
            "lastOutboundAt": inner.outbound_at,
        })
    }

    /// Returns why the account is down, if it is: the connection failed, or it has stopped. A starting account is not
    /// down.
    pub(crate) fn outage(&self) -> Option<String> {
        let inner = self.lock();
        match (&inner.error, inner.is_running, inner.stopped_at) {
            (Some(error), _, _) if !inner.is_up => Some(error.clone()),
            (_, false, Some(_)) => Some("receiving has stopped".to_owned()),
            (Some(_) | None, _, _) => None,
        }
    }

    /// Returns recent incidents, oldest first.
    pub(crate) fn incidents(&self) -> Vec<Incident> {
        self.lock().incidents.clone()
    }

    fn lock(&self) -> MutexGuard<'_, AccountStatusInner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
