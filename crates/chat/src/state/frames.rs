//! Events of runs: they build the conversation.

use serde_json::{Value, json};

use super::{ActiveRun, CallKind, Effect, Phase, State};
use crate::{
    approval::Approval,
    sanitize,
    state::PendingState,
    transcript::{ModelText, Notice, Reasoning, ToolCall, TranscriptItem, UserMessage},
};

/// Characters of a command in the notice of its approval.
const MAX_COMMAND_CHARS: usize = 100;

impl State {
    /// Processes an event of the gateway.
    pub(super) fn event(&mut self, name: &str, payload: &Value, effects: &mut Vec<Effect>) {
        let is_here = payload["sessionKey"].as_str() == Some(&self.session.key);
        match name {
            "agent" if is_here && self.accepts(payload["runId"].as_str()) => self.agent_event(payload, effects),
            "chat" if is_here && self.accepts(payload["runId"].as_str()) => self.chat_event(payload, effects),
            "session.message" if is_here => self.stored_message(payload),
            "exec.approval.requested" => {
                if let Some(approval) = Approval::read(payload, self.now) {
                    self.add_approval(approval, effects);
                }
            }
            "exec.approval.resolved" => self.approval_resolved(payload),
            "shutdown" => self.hint("the gateway is stopping"),
            _ => {}
        }
    }

    /// Processes a step of a run.
    pub(super) fn agent_event(&mut self, payload: &Value, effects: &mut Vec<Effect>) {
        let (Some(run), data) = (payload["runId"].as_str(), &payload["data"]) else { return };
        let seq = payload["seq"].as_u64().unwrap_or_default();
        if self.is_finished(run) {
            return;
        }
        let text = |name: &str| data[name].as_str().unwrap_or_default();
        let stream = payload["stream"].as_str().unwrap_or_default();
        if stream == "lifecycle" && matches!(text("phase"), "queue" | "waiting" | "end" | "error") {
            // The end of a run is its last `chat` event.
            if text("phase") == "queue" {
                self.set_disposition(run, data);
            }
            return;
        }
        if self.run.as_ref().is_none_or(|active| active.id != run) {
            self.begin_run(run);
        }
        match self.run.as_mut() {
            // Seen before the connection broke.
            Some(active) if seq > 0 && seq <= active.seq => return,
            Some(active) => active.seq = active.seq.max(seq),
            None => return,
        }
        match stream {
            "lifecycle" => self.lifecycle(data),
            "assistant" => self.answer_text(run, text("text"), text("delta"), data["replace"] == true),
            "thinking" => self.reasoning_text(text("text"), text("delta")),
            "tool" => self.tool_event(data),
            "compaction" => self.compaction(data),
            _ => {}
        }
        if stream == "lifecycle" && text("phase") == "model" {
            self.refresh(effects);
        }
    }

    fn set_disposition(&mut self, run: &str, data: &Value) {
        if let Some(message) = self.pending.iter_mut().find(|message| message.run == run) {
            message.state = PendingState::of_disposition(data);
        }
    }

    /// Makes a run the one that is shown: its message becomes part of the conversation.
    pub(super) fn begin_run(&mut self, run: &str) {
        if self.run.is_some() {
            self.transcript.settle();
        }
        self.take_pending(run);
        self.run = Some(ActiveRun {
            id: run.to_owned(),
            seq: 0,
            started_at: self.now,
            phase: Phase::Waiting,
            answer: None,
            reasoning: None,
        });
        self.last_run = Some(run.to_owned());
    }

    /// Moves a pending message into the conversation.
    pub(super) fn take_pending(&mut self, run: &str) -> bool {
        let Some(index) = self.pending.iter().position(|message| message.run == run) else { return false };
        let message = self.pending.remove(index);
        self.transcript.push(TranscriptItem::User(UserMessage::of(&message.draft.shown)));
        true
    }

    fn lifecycle(&mut self, data: &Value) {
        let text = |name: &str| sanitize::one_line(data[name].as_str().unwrap_or_default());
        match data["phase"].as_str() {
            Some("model") => {
                self.session.model = Some(format!("{}/{}", text("provider"), text("model")));
                self.set_phase(Phase::Waiting);
            }
            Some("retry") => {
                let until = self.now + data["afterMs"].as_u64().unwrap_or_default();
                let attempt = match (data["attempt"].as_u64(), data["maxAttempts"].as_u64()) {
                    (Some(attempt), Some(max)) => format!(" (attempt {attempt} of {max})"),
                    _ => String::new(),
                };
                self.set_phase(Phase::Retrying { until, why: format!("{}{attempt}", text("error")) });
            }
            Some("fallback_step") => {
                let why = format!("{} failed: {}; trying the next model", text("model"), text("error"));
                self.notice(Notice::warning(&why));
                self.set_phase(Phase::Waiting);
            }
            Some(_) | None => {}
        }
    }

    fn set_phase(&mut self, phase: Phase) {
        if let Some(run) = &mut self.run
            && run.phase != Phase::Stopping
        {
            run.phase = phase;
        }
    }

    /// Processes the text of a message: all of it, and what is new.
    fn answer_text(&mut self, run: &str, text: &str, delta: &str, replaces: bool) {
        self.end_reasoning();
        self.set_phase(Phase::Answering);
        let is_first = text.len() == delta.len() && !replaces;
        let Some(active) = &mut self.run else { return };
        let current = if is_first { None } else { active.answer };
        if let Some(id) = current
            && let Some(TranscriptItem::ModelText(answer)) = self.transcript.get_mut(id)
        {
            if answer.text.set(&sanitize::clean(text)) || !self.transcript.is_committed(id) {
                return;
            }
            // What is in the scrollback cannot be changed.
            self.transcript.settle();
            self.notice(Notice::warning("the text above was discarded; the model began again"));
        } else if let Some(item) = active.answer.and_then(|id| self.transcript.get_mut(id)) {
            item.settle();
        }
        if text.is_empty() {
            return;
        }
        // The history may have had the message already.
        let cleaned = sanitize::clean(text);
        let is_same = |item: &TranscriptItem| {
            matches!(item, TranscriptItem::ModelText(answer) if answer.run == run && answer.is_settled
                && answer.text.source().trim() == cleaned.trim())
        };
        if is_first && !self.transcript.find(is_same).is_empty() && self.is_catching_up {
            return;
        }
        let id = self.transcript.push(TranscriptItem::ModelText(ModelText::streamed(run, text)));
        if let Some(active) = &mut self.run {
            active.answer = Some(id);
        }
    }

    fn reasoning_text(&mut self, text: &str, delta: &str) {
        self.set_phase(Phase::Thinking);
        let (now, cleaned) = (self.now, sanitize::clean(text));
        let Some(active) = &mut self.run else { return };
        if text.len() == delta.len() {
            active.reasoning = None;
        }
        if let Some(TranscriptItem::Reasoning(reasoning)) = active.reasoning.and_then(|id| self.transcript.get_mut(id))
        {
            (reasoning.text, reasoning.updated_at) = (cleaned, now);
            return;
        }
        self.end_reasoning();
        let reasoning = Reasoning { text: cleaned, started_at: now, updated_at: now, ended_at: None };
        let id = self.transcript.push(TranscriptItem::Reasoning(reasoning));
        if let Some(active) = &mut self.run {
            active.reasoning = Some(id);
        }
    }

    fn end_reasoning(&mut self) {
        let now = self.now;
        for id in self.transcript.find(|item| matches!(item, TranscriptItem::Reasoning(_)) && !item.is_settled()) {
            if let Some(TranscriptItem::Reasoning(reasoning)) = self.transcript.get_mut(id) {
                reasoning.ended_at = Some(now);
            }
        }
        if let Some(active) = &mut self.run {
            active.reasoning = None;
        }
    }

    fn tool_event(&mut self, data: &Value) {
        let (Some(call), now) = (data["toolCallId"].as_str(), self.now) else { return };
        let name = data["name"].as_str().unwrap_or("tool");
        let known = self.transcript.tool(call);
        match data["phase"].as_str() {
            Some("start") => {
                self.end_answer();
                self.set_phase(Phase::Tool(sanitize::one_line(name)));
                match known.and_then(|id| self.transcript.get_mut(id)) {
                    Some(TranscriptItem::Tool(tool)) => tool.restart(now),
                    Some(_) | None => {
                        let tool = ToolCall::started(call, name, &data["args"], now);
                        self.transcript.push(TranscriptItem::Tool(Box::new(tool)));
                    }
                }
            }
            Some("update") => {
                if let Some(TranscriptItem::Tool(tool)) = known.and_then(|id| self.transcript.get_mut(id)) {
                    tool.progress(&data["partialResult"]);
                }
            }
            Some("result") => {
                let id = known.unwrap_or_else(|| {
                    let tool = ToolCall::started(call, name, &Value::Null, now);
                    self.transcript.push(TranscriptItem::Tool(Box::new(tool)))
                });
                if let Some(TranscriptItem::Tool(tool)) = self.transcript.get_mut(id) {
                    tool.finish(&data["result"], data["isError"] == true, now);
                }
                let running =
                    self.transcript.find(|item| matches!(item, TranscriptItem::Tool(tool) if !tool.is_settled()));
                let name = match running.last().and_then(|id| self.transcript.get_mut(*id)) {
                    Some(TranscriptItem::Tool(tool)) => Some(tool.name().to_owned()),
                    Some(_) | None => None,
                };
                self.set_phase(name.map_or(Phase::Waiting, Phase::Tool));
            }
            Some(_) | None => {}
        }
    }

    /// Ends the streamed text and the reasoning: what follows is another message.
    fn end_answer(&mut self) {
        self.end_reasoning();
        if let Some(item) = self.run.as_ref().and_then(|run| run.answer).and_then(|id| self.transcript.get_mut(id)) {
            item.settle();
        }
    }

    fn compaction(&mut self, data: &Value) {
        if data["phase"] == "start" {
            return self.set_phase(Phase::Compacting);
        }
        self.set_phase(Phase::Waiting);
        let tokens = |name: &str| data[name].as_u64().map(super::replies::tokens);
        match (tokens("tokensBefore"), tokens("tokensAfter")) {
            (Some(before), Some(after)) if data["completed"] == true => {
                self.notice(Notice::info(&format!("compacted the conversation: {before} → {after} tokens")));
            }
            _ if data["completed"] == true => self.notice(Notice::info("compacted the conversation")),
            _ => {
                let why = sanitize::one_line(data["error"].as_str().unwrap_or("unknown reason"));
                self.notice(Notice::warning(&format!("the conversation could not be compacted: {why}")));
            }
        }
        if data.get("inputTruncated").is_some() {
            self.notice(Notice::warning(
                "the message does not fit into the context window; the model receives its beginning and end",
            ));
        }
    }

    fn chat_event(&mut self, payload: &Value, effects: &mut Vec<Effect>) {
        let Some(run) = payload["runId"].as_str() else { return };
        if matches!(payload["state"].as_str(), Some("final" | "aborted" | "error")) {
            self.end_run(run, payload, effects);
        }
    }

    /// Ends a run with its last `chat` event.
    pub(super) fn end_run(&mut self, run: &str, payload: &Value, effects: &mut Vec<Effect>) {
        if self.is_finished(run) {
            return;
        }
        self.mark_finished(run);
        if self.pending.iter().any(|message| message.run == run && message.state == PendingState::Recalling) {
            // The response to its abort puts it back into the composer.
            return;
        }
        let text = final_text(&payload["message"]);
        let is_active = self.run.as_ref().is_some_and(|active| active.id == run);
        let had_pending = self.take_pending(run);
        let is_own = is_active || had_pending || run.starts_with("inject-");
        match payload["state"].as_str() {
            Some("final") if is_own => self.show_final(run, &text),
            Some("aborted") if is_own => {
                self.transcript.settle();
                let why = match payload["stopReason"].as_str() {
                    Some("timeout") => "stopped: the time limit was reached",
                    Some("interrupted") => "interrupted: the gateway stopped",
                    Some("dropped") => "dropped from the queue",
                    Some(_) | None => "stopped",
                };
                self.notice(Notice::warning(why));
            }
            Some("error") if is_own => {
                self.transcript.settle();
                let why = payload["errorMessage"].as_str().unwrap_or("the run failed");
                self.notice(Notice::error(why));
            }
            Some(_) | None => {}
        }
        if is_active {
            self.transcript.settle();
            self.run = None;
        }
        self.refresh(effects);
    }

    /// Shows the part of the final text that was not streamed.
    fn show_final(&mut self, run: &str, text: &str) {
        let text = sanitize::clean(text.trim());
        if text.is_empty() {
            return;
        }
        let is_of_run = |item: &TranscriptItem| matches!(item, TranscriptItem::ModelText(answer) if answer.run == run);
        let answers = self.transcript.find(is_of_run);
        let mut streamed = Vec::new();
        for id in &answers {
            if let Some(TranscriptItem::ModelText(answer)) = self.transcript.get_mut(*id) {
                streamed.push(answer.text.source().trim().to_owned());
            }
        }
        let Some(last) = streamed.last().cloned() else {
            self.transcript.push(TranscriptItem::ModelText(ModelText::complete(run, &text)));
            return;
        };
        if streamed.contains(&text) || streamed.join("\n\n") == text || text.ends_with(&last) {
            return;
        }
        let rest = text.find(&last).map(|at| text[at + last.len()..].trim_start_matches([' ', '\n']).to_owned());
        match (rest, answers.last().and_then(|id| self.transcript.get_mut(*id))) {
            // The rest of the last message, or a footer.
            (Some(_), Some(TranscriptItem::ModelText(answer))) if !answer.is_settled => {
                let at = text.find(&last).unwrap_or_default();
                answer.text.set(&text[at..]);
            }
            (Some(rest), _) => {
                self.transcript.push(TranscriptItem::ModelText(ModelText::complete(run, &rest)));
            }
            (None, _) if streamed.iter().any(|part| part.contains(&text)) => {}
            (None, _) => {
                self.transcript.push(TranscriptItem::ModelText(ModelText::complete(run, &text)));
            }
        }
    }

    /// Processes a stored message: those of other clients are shown.
    fn stored_message(&mut self, payload: &Value) {
        let message = &payload["message"];
        if message["role"] != "user" {
            return;
        }
        let key = message["idempotencyKey"].as_str().unwrap_or_default();
        let run = key.strip_suffix(":user").unwrap_or(key);
        if self.own_runs.contains(run) || self.sync.is_loading() {
            return;
        }
        let text = super::sync::message_text(message);
        if !text.trim().is_empty() {
            self.transcript.push(TranscriptItem::User(UserMessage::of(&text)));
        }
    }

    pub(super) fn add_approval(&mut self, approval: Approval, effects: &mut Vec<Effect>) {
        let is_here = approval.session.as_ref().is_none_or(|session| *session == self.session.key);
        if is_here && self.approvals.iter().all(|known| known.id != approval.id) {
            self.approvals.push(approval);
            effects.push(Effect::Bell);
        }
    }

    fn approval_resolved(&mut self, payload: &Value) {
        let Some(index) = self.approvals.iter().position(|approval| payload["id"] == approval.id.as_str()) else {
            return;
        };
        let approval = self.approvals.remove(index);
        let command = homard_stdx::text::fit(&sanitize::one_line(&approval.command), MAX_COMMAND_CHARS);
        let notice = match payload["decision"].as_str() {
            Some("allow-once") => Notice::success(&format!("allowed once: {command}")),
            Some("allow-always") => Notice::success(&format!("allowed from now on: {command}")),
            Some(_) | None if approval.sent.is_some() => Notice::warning(&format!("denied: {command}")),
            Some(_) | None => Notice::warning(&format!("not allowed: {command}")),
        };
        self.notice(notice);
    }

    /// Answers the oldest request for approval.
    pub(super) fn decide(&mut self, decision: crate::approval::Decision, effects: &mut Vec<Effect>) {
        let Some(approval) = self.approvals.iter_mut().find(|approval| approval.sent.is_none()) else { return };
        if !approval.offers(decision) {
            return self.hint("this command can only be allowed once");
        }
        let id = approval.id.clone();
        if self.is_connected() {
            if let Some(approval) = self.approvals.iter_mut().find(|approval| approval.id == id) {
                approval.sent = Some(decision);
            }
            let params = json!({"id": id, "decision": decision.name()});
            self.call(CallKind::Resolve(id), "exec.approval.resolve", params, effects);
        } else {
            self.hint("not connected; the request can be answered when the connection is back");
        }
    }
}

/// Returns the text of a message of a `chat` event.
fn final_text(message: &Value) -> String {
    let blocks = message["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    blocks.iter().filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n\n")
}
