//! Connecting, and continuing after the connection broke.
//!
//! On every connection the history is loaded first. Then the events that were missed of each known run are requested
//! with `chat.resume`, from the last sequence number that was seen; events that arrive before its response are part of
//! that response, so they are ignored. If the gateway was restarted, sequence numbers begin anew: the stored messages
//! of the history are then compared with what is shown, and only what is missing is added.

use std::{collections::BTreeSet, time::Duration};

use serde_json::{Value, json};

use super::{CallKind, Connection, Effect, PendingState, Phase, State};
use crate::{
    link::{Place, RpcError},
    sanitize,
    transcript::{ModelText, Notice, Reasoning, ToolCall, TranscriptItem, UserMessage},
};

/// Number of messages that are shown when a session is opened.
const OPENED_MESSAGES: usize = 40;
/// Number of messages that are compared after the gateway was restarted.
const COMPARED_MESSAGES: usize = 200;
/// Tolerance when start times of gateways are compared, in milliseconds.
const CLOCK_TOLERANCE: u64 = 1_000;

/// What must be loaded before events count.
#[derive(Debug, Default)]
pub(super) struct Sync {
    /// True until the history was loaded.
    is_loading: bool,
    /// True if the session was not shown before.
    is_opening: bool,
    /// True if the gateway was restarted.
    is_restarted: bool,
    /// Runs of which missed events are requested; `None` stands for those that are not known yet.
    resuming: BTreeSet<Option<String>>,
}

impl Sync {
    /// True while the history is loaded.
    pub(super) fn is_loading(&self) -> bool {
        self.is_loading
    }

    /// True if an event of a run counts. Otherwise a response will contain it.
    fn accepts(&self, run: &str, is_known: bool) -> bool {
        let is_awaited = self.resuming.contains(&Some(run.to_owned())) || (self.resuming.contains(&None) && !is_known);
        !self.is_loading && !is_awaited
    }
}

impl State {
    /// True if an event of a run counts now.
    pub(super) fn accepts(&self, run: Option<&str>) -> bool {
        let Some(run) = run else { return false };
        let is_active = self.run.as_ref().is_some_and(|active| active.id == run);
        self.sync.accepts(run, is_active || self.pending.iter().any(|message| message.run == run))
    }

    pub(super) fn lost(&mut self, why: &str, retry_in: Duration) {
        let retry_at = self.now + u64::try_from(retry_in.as_millis()).unwrap_or(u64::MAX);
        self.connection = Connection::Lost { why: sanitize::one_line(why), retry_at };
        self.calls.clear();
        for message in &mut self.pending {
            match message.state {
                PendingState::Sent => message.state = PendingState::Unsent,
                PendingState::Recalling => message.state = PendingState::Queued(None),
                PendingState::Unsent
                | PendingState::Starting
                | PendingState::Steering
                | PendingState::Queued(_)
                | PendingState::Collected
                | PendingState::Interrupting => {}
            }
        }
        for approval in &mut self.approvals {
            approval.sent = None;
        }
        if let Some(picker) = &self.picker
            && picker.choices.is_none()
        {
            self.picker = None;
        }
    }

    pub(super) fn connected(&mut self, hello: &Value, place: Place, effects: &mut Vec<Effect>) {
        // A gateway that was restarted counts the events of its runs anew.
        let uptime = hello["snapshot"]["uptimeMs"].as_i64();
        let started_at = uptime.map(|uptime| self.now.cast_signed() - uptime);
        let is_same = match (self.gateway_started_at, started_at) {
            (Some(before), Some(started_at)) => before.abs_diff(started_at) <= CLOCK_TOLERANCE,
            (Some(_) | None, _) => false,
        };
        let is_first = !std::mem::replace(&mut self.was_connected, true);
        self.gateway_started_at = started_at;
        self.connection = Connection::Connected(place);
        self.calls.clear();
        self.sync.is_restarted = !is_first && !is_same;
        self.load(is_first || self.sync.is_opening, effects);
        self.call(CallKind::Approvals, "exec.approval.list", json!({}), effects);
        self.call(CallKind::Commands, "commands.list", json!({"scope": "text", "includeArgs": false}), effects);
    }

    /// Loads the session.
    pub(super) fn load(&mut self, is_opening: bool, effects: &mut Vec<Effect>) {
        self.sync.is_loading = true;
        self.sync.is_opening = is_opening;
        self.sync.resuming.clear();
        let key = self.session.key.clone();
        let limit = if is_opening { OPENED_MESSAGES } else { COMPARED_MESSAGES };
        self.call(CallKind::Subscribe, "sessions.messages.subscribe", json!({"key": key}), effects);
        self.call(CallKind::History, "chat.history", json!({"sessionKey": key, "limit": limit}), effects);
    }

    /// Processes the history.
    pub(super) fn history(&mut self, result: Result<Value, RpcError>, effects: &mut Vec<Effect>) {
        self.sync.is_loading = false;
        match result {
            Ok(payload) => {
                self.read_session(&payload["sessionInfo"]);
                let default_model = &payload["defaults"];
                if self.session.model.is_none() {
                    self.session.model = super::replies::model_name(default_model);
                }
                let messages = payload["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
                if std::mem::take(&mut self.sync.is_opening) {
                    self.open(messages, &payload);
                } else if self.sync.is_restarted {
                    self.reconcile(messages);
                }
            }
            Err(error) => self.notice(Notice::error(&format!("the history could not be loaded: {}", error.message))),
        }
        let active = self.run.as_ref().map(|run| (run.id.clone(), run.seq));
        if let Some((run, seq)) = active {
            let after = if self.sync.is_restarted { 0 } else { seq };
            if let Some(run) = &mut self.run {
                run.seq = after;
            }
            self.resume(Some(run), after, effects);
        }
        self.resume(None, 0, effects);
        // Messages that the gateway has already are not accepted again: their id is the same. What happened to them
        // follows from the response.
        let runs: Vec<_> = self.pending.iter().map(|message| message.run.clone()).collect();
        for run in runs {
            self.sync.resuming.insert(Some(run.clone()));
            self.send(&run, effects);
        }
        self.refresh(effects);
    }

    /// What happened to a message is known.
    pub(super) fn confirmed(&mut self, run: &str) {
        self.sync.resuming.remove(&Some(run.to_owned()));
    }

    /// Requests the missed events of a run, or of all active runs.
    pub(super) fn resume(&mut self, run: Option<String>, after: u64, effects: &mut Vec<Effect>) {
        let mut params = json!({"sessionKey": self.session.key});
        if let Some(run) = &run {
            params["runId"] = run.as_str().into();
            params["afterSeq"] = after.into();
        }
        self.sync.resuming.insert(run.clone());
        self.call(CallKind::Resume(run), "chat.resume", params, effects);
    }

    /// Processes the missed events.
    pub(super) fn resumed(
        &mut self,
        requested: &Option<String>,
        result: Result<Value, RpcError>,
        effects: &mut Vec<Effect>,
    ) {
        self.sync.resuming.remove(requested);
        let payload = match (result, requested) {
            (Ok(payload), _) => payload,
            (Err(_), None) => return,
            (Err(error), Some(run)) => {
                if self.run.as_ref().is_some_and(|active| active.id == *run) {
                    self.transcript.settle();
                    self.run = None;
                    self.mark_finished(run);
                    self.notice(Notice::warning(&format!("how this run ended is not known: {}", error.message)));
                }
                return;
            }
        };
        for snapshot in payload["runs"].as_array().map(Vec::as_slice).unwrap_or_default() {
            let Some(run) = snapshot["runId"].as_str() else { continue };
            let is_known = self.sync.resuming.contains(&Some(run.to_owned()))
                || (requested.is_none() && self.run.as_ref().is_some_and(|active| active.id == run));
            if !is_known {
                self.snapshot(run, snapshot, effects);
            }
        }
    }

    fn snapshot(&mut self, run: &str, snapshot: &Value, effects: &mut Vec<Effect>) {
        self.is_catching_up = true;
        for event in snapshot["events"].as_array().map(Vec::as_slice).unwrap_or_default() {
            self.agent_event(event, effects);
        }
        self.is_catching_up = false;
        match snapshot["state"].as_str() {
            Some("running") => {
                if self.run.as_ref().is_none_or(|active| active.id != run) {
                    self.begin_run(run);
                }
                if let (Some(active), Some(seq)) = (&mut self.run, snapshot["seq"].as_u64()) {
                    active.seq = active.seq.max(seq);
                }
            }
            Some("ended") => self.end_run(run, &snapshot["last"], effects),
            Some(_) | None => {}
        }
    }

    /// Shows the messages of a session that is opened.
    fn open(&mut self, messages: &[Value], payload: &Value) {
        let has_active_run = payload["sessionInfo"]["hasActiveRun"] == true;
        if payload["hasMore"] == true {
            self.notice(Notice::info("earlier messages are not shown"));
        }
        for message in messages {
            if message["role"] == "user" {
                let text = message_text(message);
                self.transcript.push(TranscriptItem::User(UserMessage::of(&text)));
            } else {
                let run = message["__openclaw"]["runId"].as_str().unwrap_or_default().to_owned();
                self.show_stored(&run, message, &mut Vec::new());
            }
        }
        self.last_run =
            messages.iter().rev().find_map(|message| message["__openclaw"]["runId"].as_str().map(str::to_owned));
        // A call without a result may still be running.
        if !has_active_run {
            self.transcript.settle();
        }
    }

    /// Adds what is stored and not shown: of the active run, and of pending messages.
    fn reconcile(&mut self, messages: &[Value]) {
        let active = self.run.as_ref().map(|run| run.id.clone());
        let mut shown = match &active {
            Some(run) => {
                self.transcript.find(|item| matches!(item, TranscriptItem::ModelText(answer) if answer.run == *run))
            }
            None => Vec::new(),
        };
        shown.reverse();
        let mut current: Option<String> = None;
        for message in messages {
            if message["role"] == "user" {
                let key = message["idempotencyKey"].as_str().unwrap_or_default();
                let run = key.strip_suffix(":user").unwrap_or(key);
                if active.as_deref() == Some(run) {
                    current = active.clone();
                } else if self.pending.iter().any(|pending| pending.run == run) {
                    // It may be the start of a run, or part of the active one.
                    let of_run = message["__openclaw"]["runId"].as_str();
                    if of_run == Some(run) {
                        if let Some(ended) = self.run.as_ref().map(|run| run.id.clone()) {
                            self.mark_finished(&ended);
                        }
                        self.begin_run(run);
                        current = Some(run.to_owned());
                        shown.clear();
                    } else {
                        self.take_pending(run);
                    }
                }
                continue;
            }
            if let Some(run) = current.clone().filter(|run| message["__openclaw"]["runId"] == run.as_str()) {
                self.show_stored(&run, message, &mut shown);
            }
        }
        // The rest of the streamed text was not stored: the gateway stopped before its end, and asks the model again.
        for id in shown {
            if !self.transcript.is_committed(id) {
                self.transcript.remove(id);
            } else if let Some(item) = self.transcript.get_mut(id)
                && !item.is_settled()
            {
                item.settle();
                self.notice(Notice::warning("the gateway was restarted; the model is asked again"));
            }
        }
        if let Some(run) = &mut self.run {
            (run.answer, run.reasoning, run.phase) = (None, None, Phase::Waiting);
        }
        for id in self.transcript.find(|item| matches!(item, TranscriptItem::Reasoning(_)) && !item.is_settled()) {
            if let Some(item) = self.transcript.get_mut(id) {
                item.settle();
            }
        }
    }

    /// Shows a stored message of the model or a stored result. `shown` are the answers of its run that are shown
    /// already, the next one last.
    fn show_stored(&mut self, run: &str, message: &Value, shown: &mut Vec<crate::transcript::ItemId>) {
        match message["role"].as_str() {
            Some("assistant") => {
                for block in message["content"].as_array().map(Vec::as_slice).unwrap_or_default() {
                    self.show_block(run, block, shown);
                }
                if let Some(error) = message["errorMessage"].as_str() {
                    self.notice(Notice::error(error));
                }
            }
            Some("toolResult") => {
                let id = message["toolCallId"].as_str().and_then(|call| self.transcript.tool(call));
                let now = self.now;
                if let Some(TranscriptItem::Tool(tool)) = id.and_then(|id| self.transcript.get_mut(id)) {
                    tool.finish(message, message["isError"] == true, now);
                }
            }
            Some(_) | None => {}
        }
    }

    fn show_block(&mut self, run: &str, block: &Value, shown: &mut Vec<crate::transcript::ItemId>) {
        let is_reconciled = self.run.as_ref().is_some_and(|active| active.id == run);
        match block["type"].as_str() {
            Some("text") => {
                let text = block["text"].as_str().unwrap_or_default();
                if text.trim().is_empty() {
                    return;
                }
                if let Some(id) = shown.pop()
                    && let Some(TranscriptItem::ModelText(answer)) = self.transcript.get_mut(id)
                {
                    if !answer.is_settled {
                        answer.text.set(&sanitize::clean(text));
                        answer.is_settled = true;
                    }
                } else {
                    self.transcript.push(TranscriptItem::ModelText(ModelText::complete(run, text)));
                }
            }
            Some("thinking") if !is_reconciled => {
                let text = sanitize::clean(block["thinking"].as_str().unwrap_or_default());
                if !text.trim().is_empty() {
                    let reasoning = Reasoning { text, started_at: 0, updated_at: 0, ended_at: Some(0) };
                    self.transcript.push(TranscriptItem::Reasoning(reasoning));
                }
            }
            Some("toolCall") => {
                let Some(call) = block["id"].as_str() else { return };
                if self.transcript.tool(call).is_none() {
                    let name = block["name"].as_str().unwrap_or("tool");
                    let tool = ToolCall::started(call, name, &block["arguments"], 0);
                    self.transcript.push(TranscriptItem::Tool(Box::new(tool)));
                }
            }
            Some(_) | None => {}
        }
    }
}

/// Returns the text of a user's message.
pub(super) fn message_text(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let text = |block: &Value| match block["type"].as_str() {
                Some("text") => block["text"].as_str().map(str::to_owned),
                Some("image") => Some("[image]".to_owned()),
                Some(_) | None => None,
            };
            blocks.iter().filter_map(text).collect::<Vec<_>>().join("\n")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => String::new(),
    }
}
