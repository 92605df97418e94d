//! The state of a channel account, as reported to users.

use std::sync::{Mutex, MutexGuard, PoisonError};

use homard_channels::Note;
use serde_json::{Value, json};

/// Maximum number of incidents that are kept.
const LINES: usize = 200;

/// The state of a channel account.
#[derive(Debug, Default)]
pub(super) struct Standing(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    is_running: bool,
    is_up: bool,
    started_at: Option<u64>,
    stopped_at: Option<u64>,
    /// The current error.
    trouble: Option<String>,
    heard_at: Option<u64>,
    said_at: Option<u64>,
    /// Incidents, oldest first.
    story: Vec<(u64, String)>,
}

impl Inner {
    fn tell(&mut self, at: u64, what: String) {
        if self.story.last().is_none_or(|(_, last)| *last != what) {
            self.story.push((at, what));
            let old = self.story.len().saturating_sub(LINES);
            self.story.drain(..old);
        }
    }
}

impl Standing {
    /// Records that receiving starts.
    pub(super) fn started(&self, at: u64) {
        let mut inner = self.lock();
        (inner.is_running, inner.started_at) = (true, Some(at));
        inner.tell(at, "started".to_owned());
    }

    /// Records that receiving stopped; `why` is `None` if it was requested.
    pub(super) fn stopped(&self, at: u64, why: Option<String>) {
        let mut inner = self.lock();
        (inner.is_running, inner.is_up, inner.stopped_at) = (false, false, Some(at));
        inner.tell(at, why.as_ref().map_or_else(|| "stopped".to_owned(), |why| format!("stopped: {why}")));
        inner.trouble = why;
    }

    /// Records a change of the connection's state.
    pub(super) fn noted(&self, at: u64, note: &Note) {
        let mut inner = self.lock();
        let (is_up, trouble) = match note {
            Note::Up => (true, None),
            Note::Rivalled { why, .. } | Note::Down { why, .. } => (false, Some(why.clone())),
        };
        inner.is_up = is_up;
        inner.tell(at, trouble.clone().unwrap_or_else(|| "connected".to_owned()));
        inner.trouble = trouble;
    }

    /// Records an inbound message.
    pub(super) fn heard(&self, at: u64) {
        self.lock().heard_at = Some(at);
    }

    /// Records that a message was ignored, and why. Repetitions are recorded only once in a while.
    pub(super) fn turned_away(&self, at: u64, what: String) {
        let mut inner = self.lock();
        if !inner.story.iter().rev().take(LINES / 2).any(|(_, told)| *told == what) {
            inner.tell(at, what);
        }
    }

    /// Records an outbound message, or why it failed.
    pub(super) fn said(&self, at: u64, trouble: Option<String>) {
        let mut inner = self.lock();
        match trouble {
            None => inner.said_at = Some(at),
            Some(why) => inner.tell(at, format!("not sent: {why}")),
        }
    }

    /// Returns the state as reported to clients.
    pub(super) fn view(&self) -> Value {
        let inner = self.lock();
        json!({
            "running": inner.is_running, "connected": inner.is_up, "lastStartAt": inner.started_at,
            "lastStopAt": inner.stopped_at, "lastError": inner.trouble, "lastInboundAt": inner.heard_at,
            "lastOutboundAt": inner.said_at,
        })
    }

    /// Returns why the account is down, if it is: the connection failed, or it has stopped. A starting account is not
    /// down.
    pub(super) fn outage(&self) -> Option<String> {
        let inner = self.lock();
        match (&inner.trouble, inner.is_running, inner.stopped_at) {
            (Some(trouble), _, _) if !inner.is_up => Some(trouble.clone()),
            (_, false, Some(_)) => Some("it has stopped".to_owned()),
            (Some(_) | None, _, _) => None,
        }
    }

    /// Returns recent incidents, oldest first.
    pub(super) fn story(&self) -> Vec<(u64, String)> {
        self.lock().story.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
