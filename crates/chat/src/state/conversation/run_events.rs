//! Events of runs: they build the conversation.

use serde_json::Value;

use super::{Conversation, Phase};
use crate::{
    sanitize,
    state::{PendingState, tokens},
    transcript::{ModelText, Notice, Reasoning, ToolCall, TranscriptItem},
};

impl Conversation {
    /// Processes a step of a run.
    pub(in crate::state) fn agent_event(&mut self, payload: &Value) {
        let (Some(run), data) = (payload["runId"].as_str(), &payload["data"]) else { return };
        let seq = payload["seq"].as_u64().unwrap_or_default();
        if self.runs.is_finished(run) {
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
        self.needs_refresh |= stream == "lifecycle" && text("phase") == "model";
    }

    fn set_disposition(&mut self, run: &str, data: &Value) {
        if let Some(message) = self.pending.iter_mut().find(|message| message.run == run) {
            message.state = PendingState::of_disposition(data);
        }
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
            Some("no_response") => {
                let notice = Notice::warning(&format!("{}: {}", text("model"), text("message")));
                // Each of many requests to a slow model would repeat it.
                let is_same = |item: &TranscriptItem| matches!(item, TranscriptItem::Notice(shown) if *shown == notice);
                if self.transcript.find(is_same).is_empty() {
                    self.notice(notice);
                }
            }
            Some(_) | None => {}
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
        let tokens = |name: &str| data[name].as_u64().map(tokens);
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
}
