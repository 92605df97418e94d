//! How an account is doing, for people who ask.

use std::sync::{Mutex, MutexGuard, PoisonError};

use homard_channels::Note;
use serde_json::{Value, json};

/// How many lines of its story are kept.
const LINES: usize = 200;

/// How an account is doing.
#[derive(Debug, Default)]
pub(super) struct Standing(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    is_running: bool,
    is_up: bool,
    started_at: Option<u64>,
    stopped_at: Option<u64>,
    /// What is wrong now.
    trouble: Option<String>,
    heard_at: Option<u64>,
    said_at: Option<u64>,
    /// What happened, oldest first.
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
    /// It begins to listen.
    pub(super) fn started(&self, at: u64) {
        let mut inner = self.lock();
        (inner.is_running, inner.started_at) = (true, Some(at));
        inner.tell(at, "started".to_owned());
    }

    /// It listens no more, for this reason if it is not that somebody wants it so.
    pub(super) fn stopped(&self, at: u64, why: Option<String>) {
        let mut inner = self.lock();
        (inner.is_running, inner.is_up, inner.stopped_at) = (false, false, Some(at));
        inner.tell(at, why.as_ref().map_or_else(|| "stopped".to_owned(), |why| format!("stopped: {why}")));
        inner.trouble = why;
    }

    /// The connection says how it is doing.
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

    /// A message came in.
    pub(super) fn heard(&self, at: u64) {
        self.lock().heard_at = Some(at);
    }

    /// Somebody was not heard, for this reason. Who knocks again and again is told of once in a while.
    pub(super) fn turned_away(&self, at: u64, what: String) {
        let mut inner = self.lock();
        if !inner.story.iter().rev().take(LINES / 2).any(|(_, told)| *told == what) {
            inner.tell(at, what);
        }
    }

    /// A message went out, or why it did not.
    pub(super) fn said(&self, at: u64, trouble: Option<String>) {
        let mut inner = self.lock();
        match trouble {
            None => inner.said_at = Some(at),
            Some(why) => inner.tell(at, format!("not sent: {why}")),
        }
    }

    /// As clients are told.
    pub(super) fn view(&self) -> Value {
        let inner = self.lock();
        json!({
            "running": inner.is_running, "connected": inner.is_up, "lastStartAt": inner.started_at,
            "lastStopAt": inner.stopped_at, "lastError": inner.trouble, "lastInboundAt": inner.heard_at,
            "lastOutboundAt": inner.said_at,
        })
    }

    /// Why it is down, if it is: the connection says so, or it has stopped. One that is just starting is not down.
    pub(super) fn outage(&self) -> Option<String> {
        let inner = self.lock();
        match (&inner.trouble, inner.is_running, inner.stopped_at) {
            (Some(trouble), _, _) if !inner.is_up => Some(trouble.clone()),
            (_, false, Some(_)) => Some("it has stopped".to_owned()),
            (Some(_) | None, _, _) => None,
        }
    }

    /// What happened of late, oldest first.
    pub(super) fn story(&self) -> Vec<(u64, String)> {
        self.lock().story.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
