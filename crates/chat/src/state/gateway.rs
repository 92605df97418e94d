//! The connection as the chat sees it, and the requests that have no response yet.

use std::collections::BTreeMap;

use serde_json::Value;

use super::Effect;
use crate::{
    link::{Place, RpcRequest},
    sanitize,
};

/// Tolerance when start times of gateways are compared, in milliseconds.
const CLOCK_TOLERANCE: u64 = 1_000;

/// What a request was for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallKind {
    /// A message under this run id.
    Send(String),
    History,
    /// The missed events of this run, or of all runs.
    Resume(Option<String>),
    Approvals,
    Resolve(String),
    Sessions,
    Models,
    Agents,
    Commands,
    Abort,
    /// The abort of a queued message, which goes back into the composer.
    Recall(String),
    Trace,
    Cost,
    Session,
    Subscribe,
}

/// State of the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Connection {
    Connecting,
    Connected(Place),
    Lost { why: String, retry_at: u64 },
}

/// What a new connection means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ConnectionChange {
    /// True for the first connection of the chat.
    pub(super) is_first: bool,
    /// True if another process serves than before: it counts the events of its runs anew.
    pub(super) is_restarted: bool,
}

/// The connection and its requests.
#[derive(Debug)]
pub(crate) struct GatewayCalls {
    pub(crate) connection: Connection,
    was_connected: bool,
    /// When the gateway started, by the clock of the chat.
    started_at: Option<i64>,
    calls: BTreeMap<u64, CallKind>,
    next_call: u64,
}

impl GatewayCalls {
    /// Before the first connection.
    pub(super) fn new() -> Self {
        Self {
            connection: Connection::Connecting,
            was_connected: false,
            started_at: None,
            calls: BTreeMap::new(),
            next_call: 0,
        }
    }

    /// True while requests can be sent.
    pub(crate) fn is_connected(&self) -> bool {
        matches!(self.connection, Connection::Connected(_))
    }

    /// The connection broke. Its requests get no response.
    pub(super) fn lost(&mut self, why: &str, retry_at: u64) {
        self.connection = Connection::Lost { why: sanitize::one_line(why), retry_at };
        self.calls.clear();
    }

    /// There is a connection.
    pub(super) fn connected(&mut self, now: u64, hello: &Value, place: Place) -> ConnectionChange {
        let uptime = hello["snapshot"]["uptimeMs"].as_i64();
        let started_at = uptime.map(|uptime| now.cast_signed() - uptime);
        let is_same = match (self.started_at, started_at) {
            (Some(before), Some(started_at)) => before.abs_diff(started_at) <= CLOCK_TOLERANCE,
            (Some(_) | None, _) => false,
        };
        let is_first = !std::mem::replace(&mut self.was_connected, true);
        self.started_at = started_at;
        self.connection = Connection::Connected(place);
        self.calls.clear();
        ConnectionChange { is_first, is_restarted: !is_first && !is_same }
    }

    /// Sends a request, if there is a connection.
    pub(super) fn call(&mut self, kind: CallKind, method: &'static str, params: Value, effects: &mut Vec<Effect>) {
        if self.is_connected() {
            self.next_call += 1;
            self.calls.insert(self.next_call, kind);
            effects.push(Effect::Call(RpcRequest { id: self.next_call, method, params }));
        }
    }

    /// Returns what the request with this id was for, when its response arrives.
    pub(super) fn answered(&mut self, id: u64) -> Option<CallKind> {
        self.calls.remove(&id)
    }
}
