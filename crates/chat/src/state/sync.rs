//! Connecting, and continuing after the connection broke.
//!
//! On every connection the history is loaded first. Then the events that were missed of each known run are requested
//! with `chat.resume`, from the last sequence number that was seen; events that arrive before its response are part of
//! that response, so they are ignored. If the gateway was restarted, sequence numbers begin anew: the stored messages
//! of the history are then compared with what is shown, and only what is missing is added.

use std::{collections::BTreeSet, time::Duration};

use serde_json::{Value, json};

use super::{CallKind, Effect, State, choices::model_name};
use crate::{
    link::{Place, RpcError},
    transcript::Notice,
};

/// Number of messages that are shown when a session is opened.
const OPENED_MESSAGES: usize = 40;
/// Number of messages that are compared after the gateway was restarted.
const COMPARED_MESSAGES: usize = 200;

/// What must be loaded before events count.
#[derive(Debug, Default)]
pub(super) struct Sync {
    /// True until the history was loaded.
    pub(super) is_loading: bool,
    /// True if the session was not shown before.
    pub(super) is_opening: bool,
    /// True if the gateway was restarted.
    pub(super) is_restarted: bool,
    /// Runs of which missed events are requested; `None` stands for those that are not known yet.
    pub(super) resuming: BTreeSet<Option<String>>,
}

impl Sync {
    /// True while the history is loaded.
    pub(super) fn is_loading(&self) -> bool {
        self.is_loading
    }

    /// True if an event of a run counts. Otherwise a response will contain it.
    pub(super) fn accepts(&self, run: &str, is_known: bool) -> bool {
        let is_awaited = self.resuming.contains(&Some(run.to_owned())) || (self.resuming.contains(&None) && !is_known);
        !self.is_loading && !is_awaited
    }

    /// What happened to a message is known.
    pub(super) fn confirmed(&mut self, run: &str) {
        self.resuming.remove(&Some(run.to_owned()));
    }
}

impl State {
    pub(super) fn lost(&mut self, why: &str, retry_in: Duration) {
        let wait = u64::try_from(retry_in.as_millis()).unwrap_or(u64::MAX);
        self.gateway.lost(why, self.conversation.now.saturating_add(wait));
        self.conversation.lost();
        if self.picker.as_ref().is_some_and(|picker| picker.choices.is_none()) {
            self.picker = None;
        }
    }

    pub(super) fn connected(&mut self, hello: &Value, place: Place, effects: &mut Vec<Effect>) {
        let change = self.gateway.connected(self.conversation.now, hello, place);
        self.conversation.sync.is_restarted = change.is_restarted;
        self.load(change.is_first || self.conversation.sync.is_opening, effects);
        self.gateway.call(CallKind::Approvals, "exec.approval.list", json!({}), effects);
        let params = json!({"scope": "text", "includeArgs": false});
        self.gateway.call(CallKind::Commands, "commands.list", params, effects);
    }

    /// Loads the session.
    pub(super) fn load(&mut self, is_opening: bool, effects: &mut Vec<Effect>) {
        self.conversation.sync.is_loading = true;
        self.conversation.sync.is_opening = is_opening;
        self.conversation.sync.resuming.clear();
        let key = self.conversation.session.key.clone();
        let limit = if is_opening { OPENED_MESSAGES } else { COMPARED_MESSAGES };
        self.gateway.call(CallKind::Subscribe, "sessions.messages.subscribe", json!({"key": key}), effects);
        self.gateway.call(CallKind::History, "chat.history", json!({"sessionKey": key, "limit": limit}), effects);
    }

    /// Processes the history.
    pub(super) fn history(&mut self, result: Result<Value, RpcError>, effects: &mut Vec<Effect>) {
        self.conversation.sync.is_loading = false;
        match result {
            Ok(payload) => {
                self.conversation.read_session(&payload["sessionInfo"]);
                let default_model = &payload["defaults"];
                if self.conversation.session.model.is_none() {
                    self.conversation.session.model = model_name(default_model);
                }
                let messages = payload["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
                if std::mem::take(&mut self.conversation.sync.is_opening) {
                    self.conversation.open(messages, &payload);
                } else if self.conversation.sync.is_restarted {
                    self.conversation.reconcile(messages);
                }
            }
            Err(error) => {
                self.conversation.notice(Notice::error(&format!("the history could not be loaded: {}", error.message)))
            }
        }
        let active = self.conversation.run.as_ref().map(|run| (run.id.clone(), run.seq));
        if let Some((run, seq)) = active {
            let after = if self.conversation.sync.is_restarted { 0 } else { seq };
            if let Some(run) = &mut self.conversation.run {
                run.seq = after;
            }
            self.resume(Some(run), after, effects);
        }
        self.resume(None, 0, effects);
        // Messages that the gateway has already are not accepted again: their id is the same. What happened to them
        // follows from the response.
        let runs: Vec<_> = self.conversation.pending.iter().map(|message| message.run.clone()).collect();
        for run in runs {
            self.conversation.sync.resuming.insert(Some(run.clone()));
            self.send(&run, effects);
        }
        self.refresh(effects);
    }

    /// Requests the missed events of a run, or of all active runs.
    pub(super) fn resume(&mut self, run: Option<String>, after: u64, effects: &mut Vec<Effect>) {
        let mut params = json!({"sessionKey": self.conversation.session.key});
        if let Some(run) = &run {
            params["runId"] = run.as_str().into();
            params["afterSeq"] = after.into();
        }
        self.conversation.sync.resuming.insert(run.clone());
        self.gateway.call(CallKind::Resume(run), "chat.resume", params, effects);
    }

    /// Processes the missed events.
    pub(super) fn resumed(&mut self, requested: &Option<String>, result: Result<Value, RpcError>) {
        self.conversation.sync.resuming.remove(requested);
        let payload = match (result, requested) {
            (Ok(payload), _) => payload,
            (Err(_), None) => return,
            (Err(error), Some(run)) => {
                if self.conversation.run.as_ref().is_some_and(|active| active.id == *run) {
                    self.conversation.transcript.settle();
                    self.conversation.run = None;
                    self.conversation.runs.mark_finished(run);
                    self.conversation
                        .notice(Notice::warning(&format!("how this run ended is not known: {}", error.message)));
                }
                return;
            }
        };
        for snapshot in payload["runs"].as_array().map(Vec::as_slice).unwrap_or_default() {
            let Some(run) = snapshot["runId"].as_str() else { continue };
            let is_known = self.conversation.sync.resuming.contains(&Some(run.to_owned()))
                || (requested.is_none() && self.conversation.run.as_ref().is_some_and(|active| active.id == run));
            if !is_known {
                self.conversation.snapshot(run, snapshot);
            }
        }
    }
}
