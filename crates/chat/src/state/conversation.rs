//! The conversation of a session: its items, its active run, and what waits for it.
//!
//! It consumes events and stored messages of the gateway. It sends nothing; what it needs from the gateway is
//! requested by the state that owns it.

mod run_events;
mod stored;

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    pending::{PendingMessage, PendingState},
    sync::Sync,
};
use crate::{
    approval::Approval,
    sanitize,
    transcript::{ItemId, ModelText, Notice, Transcript, TranscriptItem, UserMessage},
};

/// How long the message of a run is awaited that another client started.
const MESSAGE_WAIT_MS: u64 = 2_000;
/// Ids of finished runs that are remembered.
const MAX_FINISHED: usize = 1_000;
/// Characters of a command in the notice of its approval.
const MAX_COMMAND_CHARS: usize = 100;

/// What an active run does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing came from the model yet.
    Waiting,
    Thinking,
    Answering,
    Tool(String),
    Compacting,
    Retrying {
        until: u64,
        why: String,
    },
    Stopping,
}

/// The run whose answer is shown.
#[derive(Debug, Clone)]
pub(crate) struct ActiveRun {
    pub(crate) id: String,
    /// Sequence number of its last event.
    pub(crate) seq: u64,
    pub(crate) started_at: u64,
    pub(crate) phase: Phase,
    /// The message and the reasoning that are streamed.
    pub(crate) answer: Option<ItemId>,
    pub(crate) reasoning: Option<ItemId>,
}

/// What is known about the session.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SessionInfo {
    pub(crate) key: String,
    pub(crate) label: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) thinking: Option<String>,
    /// Used tokens and size of the context window.
    pub(crate) context: Option<(u64, u64)>,
    pub(crate) cost: Option<f64>,
}

/// Ids of runs.
#[derive(Debug, Default)]
pub(crate) struct RunLog {
    /// Runs that ended. Their late events are ignored.
    finished: Vec<String>,
    /// Runs that this chat started: their messages are not those of others.
    pub(super) own: BTreeSet<String>,
    pub(super) last: Option<String>,
}

impl RunLog {
    fn is_finished(&self, run: &str) -> bool {
        self.finished.iter().any(|finished| finished == run)
    }

    pub(super) fn mark_finished(&mut self, run: &str) {
        if self.finished.len() >= MAX_FINISHED {
            self.finished.remove(0);
        }
        self.finished.push(run.to_owned());
        self.last = Some(run.to_owned());
    }
}

/// The conversation.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    /// Time of the event that is processed.
    pub(crate) now: u64,
    pub(crate) session: SessionInfo,
    pub(crate) transcript: Transcript,
    pub(crate) pending: Vec<PendingMessage>,
    pub(crate) run: Option<ActiveRun>,
    pub(super) runs: RunLog,
    pub(super) sync: Sync,
    /// True while missed events are processed: some of them may be in the history.
    is_catching_up: bool,
    pub(crate) approvals: Vec<Approval>,
    /// True if the model, the context or the cost of the session may have changed.
    needs_refresh: bool,
}

impl Conversation {
    /// The conversation of a session that is not loaded yet.
    pub(super) fn new(session: String) -> Self {
        Self { session: SessionInfo { key: session, ..SessionInfo::default() }, ..Self::default() }
    }

    /// Returns true once if the session must be described again.
    pub(super) fn take_refresh(&mut self) -> bool {
        std::mem::take(&mut self.needs_refresh)
    }

    pub(super) fn notice(&mut self, notice: Notice) {
        self.transcript.push(TranscriptItem::Notice(notice));
    }

    /// Returns a message that is not part of the conversation yet.
    pub(super) fn pending_mut(&mut self, run: &str) -> Option<&mut PendingMessage> {
        self.pending.iter_mut().find(|message| message.run == run)
    }

    /// True if an event of a run counts now.
    pub(super) fn accepts(&self, run: Option<&str>) -> bool {
        let Some(run) = run else { return false };
        let is_active = self.run.as_ref().is_some_and(|active| active.id == run);
        self.sync.accepts(run, is_active || self.pending.iter().any(|message| message.run == run))
    }

    /// The connection broke: what was not confirmed is sent again later.
    pub(super) fn lost(&mut self) {
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
    }

    /// Makes a run the one that is shown: its message becomes part of the conversation.
    pub(super) fn begin_run(&mut self, run: &str) {
        if self.run.is_some() {
            self.transcript.settle();
        }
        if !self.take_pending(run) && !self.runs.own.contains(run) {
            let until = self.now + MESSAGE_WAIT_MS;
            self.transcript.push(TranscriptItem::Awaited { run: run.to_owned(), until });
        }
        self.run = Some(ActiveRun {
            id: run.to_owned(),
            seq: 0,
            started_at: self.now,
            phase: Phase::Waiting,
            answer: None,
            reasoning: None,
        });
        self.runs.last = Some(run.to_owned());
    }

    /// Moves a pending message into the conversation.
    pub(super) fn take_pending(&mut self, run: &str) -> bool {
        let Some(index) = self.pending.iter().position(|message| message.run == run) else { return false };
        let message = self.pending.remove(index);
        self.transcript.push(TranscriptItem::User(UserMessage::of(&message.draft.shown)));
        true
    }

    fn set_phase(&mut self, phase: Phase) {
        if let Some(run) = &mut self.run
            && run.phase != Phase::Stopping
        {
            run.phase = phase;
        }
    }

    /// Processes a `chat` event: the last one ends its run.
    pub(super) fn chat_event(&mut self, payload: &Value) {
        let Some(run) = payload["runId"].as_str() else { return };
        if matches!(payload["state"].as_str(), Some("final" | "aborted" | "error")) {
            self.end_run(run, payload);
        }
    }

    /// Ends a run with its last `chat` event.
    pub(super) fn end_run(&mut self, run: &str, payload: &Value) {
        if self.runs.is_finished(run) {
            return;
        }
        self.runs.mark_finished(run);
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
        self.needs_refresh = true;
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

    /// Adds a request for approval of this session. Returns true if it is new.
    pub(super) fn add_approval(&mut self, approval: Approval) -> bool {
        let is_here = approval.session.as_ref().is_none_or(|session| *session == self.session.key);
        let is_new = is_here && self.approvals.iter().all(|known| known.id != approval.id);
        if is_new {
            self.approvals.push(approval);
        }
        is_new
    }

    pub(super) fn approval_resolved(&mut self, payload: &Value) {
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

    /// The request for approval that is shown.
    pub(crate) fn open_approval(&self) -> Option<&Approval> {
        self.approvals.iter().find(|approval| approval.sent.is_none())
    }

    /// Reads a row of a session.
    pub(super) fn read_session(&mut self, row: &Value) {
        if row["key"].as_str().is_some_and(|key| key != self.session.key) {
            return;
        }
        let text = |name: &str| row[name].as_str().map(sanitize::one_line);
        self.session.label = text("label").or_else(|| text("displayName")).or(self.session.label.take());
        self.session.model = super::choices::model_name(row).or(self.session.model.take());
        self.session.thinking = text("thinkingLevel").or(self.session.thinking.take());
        let used = row["totalTokens"].as_u64().zip(row["contextTokens"].as_u64());
        self.session.context = used.filter(|(_, window)| *window > 0).or(self.session.context);
    }
}

/// Returns the text of a message of a `chat` event.
fn final_text(message: &Value) -> String {
    let blocks = message["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    blocks.iter().filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n\n")
}
