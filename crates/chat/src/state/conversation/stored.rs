//! Stored messages, and the missed events of runs: they complete the conversation after a connection.

use serde_json::Value;

use super::{Conversation, Phase};
use crate::{
    sanitize,
    transcript::{ItemId, ModelText, Notice, Reasoning, ToolCall, TranscriptItem, UserMessage},
};

impl Conversation {
    pub(in crate::state) fn snapshot(&mut self, run: &str, snapshot: &Value) {
        self.is_catching_up = true;
        for event in snapshot["events"].as_array().map(Vec::as_slice).unwrap_or_default() {
            self.agent_event(event);
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
            Some("ended") => self.end_run(run, &snapshot["last"]),
            Some(_) | None => {}
        }
    }

    /// Shows the messages of a session that is opened.
    pub(in crate::state) fn open(&mut self, messages: &[Value], payload: &Value) {
        let has_active_run = payload["sessionInfo"]["hasActiveRun"] == true;
        if payload["hasMore"] == true {
            self.notice(Notice::info("earlier messages are not shown"));
        }
        for message in messages {
            if message["role"] == "user" {
                for item in self.user_items(message) {
                    self.transcript.push(item);
                }
            } else {
                let run = message["__openclaw"]["runId"].as_str().unwrap_or_default().to_owned();
                self.show_stored(&run, message, &mut Vec::new());
            }
        }
        self.runs.last =
            messages.iter().rev().find_map(|message| message["__openclaw"]["runId"].as_str().map(str::to_owned));
        // A call without a result may still be running.
        if !has_active_run {
            self.transcript.settle();
        }
    }

    /// Adds what is stored and not shown: of the active run, and of pending messages.
    pub(in crate::state) fn reconcile(&mut self, messages: &[Value]) {
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
                            self.runs.mark_finished(&ended);
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
    fn show_stored(&mut self, run: &str, message: &Value, shown: &mut Vec<ItemId>) {
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

    fn show_block(&mut self, run: &str, block: &Value, shown: &mut Vec<ItemId>) {
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

    /// Processes a stored message: those of other clients, and of the system, are shown.
    pub(in crate::state) fn stored_message(&mut self, payload: &Value) {
        let message = &payload["message"];
        if message["role"] != "user" || self.sync.is_loading() {
            return;
        }
        let key = message["idempotencyKey"].as_str().unwrap_or_default();
        let run = key.strip_suffix(":user").unwrap_or(key);
        if self.runs.own.contains(run) {
            return;
        }
        let items = self.user_items(message);
        if let Err(items) = self.transcript.fill_awaited(run, items) {
            for item in items {
                self.transcript.push(item);
            }
        }
    }

    /// Returns what is shown of a stored user's message. A message of the system is for the model; its notes tell the user
    /// what happened.
    fn user_items(&self, message: &Value) -> Vec<TranscriptItem> {
        if message["inputProvenance"]["kind"] == "internal_system" {
            let notes = message["notes"].as_array().into_iter().flatten().filter_map(Value::as_str);
            return notes.map(|note| self.system_note(note)).collect();
        }
        let text = message_text(message);
        if text.trim().is_empty() {
            return Vec::new();
        }
        vec![TranscriptItem::User(UserMessage::of(&text))]
    }

    /// Returns a note of the system as an item: a command that was allowed with its output, or a notice.
    fn system_note(&self, note: &str) -> TranscriptItem {
        let note = note.strip_prefix("System event: ").unwrap_or(note);
        let Some((facts, rest)) = note.strip_prefix("Exec finished (approval ").and_then(|rest| rest.split_once("): "))
        else {
            return TranscriptItem::Notice(Notice::info(note));
        };
        let (id, error) = facts.split_once(", ").map_or((facts, None), |(id, error)| (id, Some(error)));
        let (command, output) = match self.transcript.waiting_command(id) {
            Some(command) => {
                let one_line = command.split_whitespace().collect::<Vec<_>>().join(" ");
                let output = rest.strip_prefix(one_line.replace('[', "(").replace(']', ")").as_str());
                output.map_or((rest.to_owned(), ""), |output| (command, output.trim()))
            }
            None => (rest.to_owned(), ""),
        };
        TranscriptItem::Tool(Box::new(ToolCall::approved(&command, output, error)))
    }
}

/// Returns the text of a user's message.
fn message_text(message: &Value) -> String {
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
