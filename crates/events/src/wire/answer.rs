//! Results of runs, and how responses contain them. The protocol generations differ here.

use homard_proto::{
    EntryId, ErrorShape, Generation, RunId, SessionId, SessionKey,
    message::{Message, Usage},
    transcript::{Entry, Kind as Line},
};
use homard_queue::inbox::{Disposition, SUMMARIZED};
use homard_reply::payload::{Kind, Payload, ReplyTo};
use homard_store::{EndRecord, RunRow};
use serde_json::{Value, json};

use super::{
    TRUNCATED_FIELD,
    chat::{message, reply_text},
    stop_reason,
};
use crate::{
    event::{AbortReason, Failure, FailureKind, Outcome, RunEnd, RunEvent, StoredEvent, TapeEvent, TruncatedInput},
    replies,
};

/// Result of a run for clients: from its tape right after its end, later from the store.
#[derive(Debug, Clone, PartialEq)]
pub struct RunReport {
    run: RunId,
    key: SessionKey,
    session: Option<SessionId>,
    outcome: Outcome,
    replies: Vec<Payload>,
    /// The complete reply, if it differs from `replies`.
    complete_reply: Option<Vec<Payload>>,
    model: (String, String),
    usage: Usage,
    truncated_input: Option<TruncatedInput>,
    is_summarized: bool,
    started_at: Option<u64>,
    ended_at: u64,
}

impl RunReport {
    /// Builds the result of a run that has just ended.
    pub fn of(run: &RunId, key: &SessionKey, end: &RunEnd) -> Self {
        Self {
            run: run.clone(),
            key: key.clone(),
            session: end.session.clone(),
            outcome: end.outcome.clone(),
            replies: end.replies.clone(),
            complete_reply: end.complete_reply.clone(),
            model: end.model.clone(),
            usage: end.usage.clone(),
            truncated_input: end.truncated_input,
            is_summarized: end.is_summarized,
            started_at: end.started_at,
            ended_at: end.ended_at,
        }
    }

    /// Builds the result from the store. The transcript's entries are needed if [`is_in_transcript`] says so.
    pub fn from_row(row: &RunRow, ended: &EndRecord, entries: &[Entry]) -> Self {
        let payload_of_entry = |entry: &Entry| match &entry.kind {
            Line::Message(stored) => match &stored.message {
                Message::Assistant(assistant) => Some(replies::payload_of(assistant)),
                Message::User(_) | Message::ToolResult(_) | Message::Other(_) => None,
            },
            Line::ModelChange(_) | Line::Other(_) => None,
        };
        let reply = |id: &EntryId| entries.iter().find(|entry| entry.id == *id).and_then(payload_of_entry);
        Self {
            run: row.run.clone(),
            key: row.key.clone(),
            session: row.session.clone(),
            outcome: ended.outcome.clone(),
            replies: stored_payloads(ended).unwrap_or_else(|| derived(ended, reply)),
            complete_reply: None,
            model: ended.model.clone(),
            usage: ended.usage.clone(),
            truncated_input: ended.steps.truncated_input(),
            is_summarized: ended.steps.is_summarized(&row.run),
            // A command has no start of its own: it is answered at once.
            started_at: row.started_at.or_else(|| ended.command_reply.as_ref().map(|_| ended.ended_at)),
            ended_at: ended.ended_at,
        }
    }

    /// Key of the session.
    pub fn key(&self) -> &SessionKey {
        &self.key
    }

    /// Returns the run's last chat event without a sequence number, for a client that reconnects after its end.
    pub fn final_event(&self) -> Value {
        let replies: Vec<_> = self.replies.iter().map(reply_text).collect();
        let chat_message = (!replies.is_empty()).then(|| message(&replies.join("\n\n"), self.ended_at));
        let mut last_event = json!({"runId": self.run, "sessionKey": self.key, "agentId": self.key.agent()});
        let chat_message = match &self.outcome {
            Outcome::Failed(failure) => {
                last_event["state"] = "error".into();
                last_event["errorMessage"] = failure.message.as_str().into();
                None
            }
            Outcome::Done | Outcome::Aborted(_) => {
                last_event["state"] = if self.outcome == Outcome::Done { "final" } else { "aborted" }.into();
                last_event["stopReason"] = stop_reason(&self.outcome).into();
                chat_message
            }
        };
        let mut event = json!({"runId": self.run, "sessionKey": self.key, "state": "ended", "events": []});
        if let Some(chat_message) = chat_message {
            event["message"] = chat_message.clone();
            last_event["message"] = chat_message;
        }
        event["last"] = last_event;
        event
    }

    /// Outcome of the run.
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// Replies for the user.
    pub fn replies(&self) -> &[Payload] {
        &self.replies
    }

    /// Returns the text of the last answer, if any.
    pub fn last_answer(&self) -> Option<&str> {
        let answers = self.replies.iter().rev().filter(|reply| reply.kind == Kind::Answer);
        answers.map(|reply| reply.text.trim()).find(|text| !text.is_empty())
    }

    /// Returns the second response to `agent`: a payload, and an error if the run did not succeed.
    ///
    /// Protocol 3 reports a model's failure in a payload, protocol 4 in an error; and protocol 3 shows every assistant
    /// message, protocol 4 the last one.
    pub fn response(&self, generation: Generation) -> (Value, Option<ErrorShape>) {
        match (&self.outcome, generation) {
            (Outcome::Done, _)
            | (Outcome::Aborted(AbortReason::User | AbortReason::Stop | AbortReason::Interrupted), Generation::Three)
            | (Outcome::Failed(Failure { kind: FailureKind::Model, .. }), Generation::Three) => {
                (self.completed(generation), None)
            }
            (Outcome::Aborted(AbortReason::User | AbortReason::Stop | AbortReason::Interrupted), Generation::Four) => {
                let stop_reason = stop_reason(&self.outcome);
                let stopped =
                    json!({"runId": self.run, "status": "timeout", "summary": "aborted", "stopReason": stop_reason});
                (stopped, None)
            }
            (Outcome::Failed(_) | Outcome::Aborted(AbortReason::Timeout | AbortReason::Dropped), _) => {
                failed(&self.run, self.outcome.error().unwrap_or_default())
            }
        }
    }

    /// Returns the response to a repeated `chat.send`. It has the outcome, not the replies.
    pub fn repeated_response(&self, generation: Generation) -> (Value, Option<ErrorShape>) {
        match self.response(generation) {
            (answer, None) if answer["status"] == "ok" => (json!({"runId": self.run, "status": "ok"}), None),
            (mut answer, None) => {
                answer["endedAt"] = self.ended_at.into();
                (answer, None)
            }
            error @ (_, Some(_)) => error,
        }
    }

    fn completed(&self, generation: Generation) -> Value {
        json!({"runId": self.run, "status": "ok", "summary": "completed", "result": self.result(generation)})
    }

    /// Returns the result of a run: payloads for the user, metadata for programs.
    pub fn result(&self, generation: Generation) -> Value {
        let usage = &self.usage;
        let mut result = json!({
            "payloads": payloads(generation, &self.replies),
            "meta": {
                "durationMs": self.ended_at.saturating_sub(self.started_at.unwrap_or(self.ended_at)),
                "agentMeta": {
                    "sessionId": self.session, "sessionKey": self.key, "provider": self.model.0, "model": self.model.1,
                    "usage": {
                        "input": usage.input, "output": usage.output, "cacheRead": usage.cache_read,
                        "cacheWrite": usage.cache_write, "total": usage.total_tokens,
                    },
                },
                "aborted": matches!(self.outcome, Outcome::Aborted(_)),
            },
        });
        if let Some(input) = &self.truncated_input {
            result["meta"][TRUNCATED_FIELD] = json!(input);
        }
        if self.is_summarized {
            result["meta"]["disposition"] = SUMMARIZED.into();
        }
        result
    }

    /// Returns the response to `agent.wait`: equal at the end of the run, later, and after a restart.
    pub fn wait_response(&self, generation: Generation) -> Value {
        let status = if self.outcome == Outcome::Done { "ok" } else { "error" };
        let mut answer = json!({"runId": self.run, "status": status});
        if let Some(at) = self.started_at {
            answer["startedAt"] = at.into();
        }
        answer["endedAt"] = self.ended_at.into();
        if let Some(error) = self.outcome.error() {
            answer["error"] = error.into();
        }
        if generation == Generation::Four {
            answer["stopReason"] = stop_reason(&self.outcome).into();
        }
        if let Some(input) = &self.truncated_input {
            answer[TRUNCATED_FIELD] = json!(input);
        }
        if self.is_summarized {
            answer["disposition"] = SUMMARIZED.into();
        }
        answer["result"] =
            json!({"payloads": payloads(generation, self.complete_reply.as_ref().unwrap_or(&self.replies))});
        answer
    }
}

/// Derives the replies of a run from its outcome, entries and fixed text. `reply` reads an entry.
fn derived(ended: &EndRecord, reply: impl Fn(&EntryId) -> Option<Payload>) -> Vec<Payload> {
    let error = match &ended.outcome {
        Outcome::Failed(failure) => Some(Payload { kind: Kind::Error, ..Payload::answer(&failure.message) }),
        Outcome::Done | Outcome::Aborted(_) => None,
    };
    let fixed_reply = ended.command_reply.clone().map(Payload::answer);
    error.into_iter().chain(ended.replies.iter().filter_map(reply)).chain(fixed_reply).collect()
}

/// Returns the replies stored with a run's end. Unreadable ones of another version are looked up in the transcript.
fn stored_payloads(ended: &EndRecord) -> Option<Vec<Payload>> {
    serde_json::from_value(ended.payloads.clone()?).ok()
}

/// True if part of the replies is in the transcript only.
pub fn is_in_transcript(ended: &EndRecord) -> bool {
    !ended.replies.is_empty() && stored_payloads(ended).is_none()
}

/// Returns the complete reply of a run that sent blocks. `events` are those of its tape.
pub fn complete_reply(ended: &EndRecord, events: &[TapeEvent]) -> Vec<Payload> {
    let payload = |event: &TapeEvent, id: &EntryId| {
        let RunEvent::Stored(StoredEvent::Assistant { entry, message: answer }) = &event.kind else { return None };
        (entry == id).then(|| replies::payload_of(answer))
    };
    derived(ended, |id| events.iter().find_map(|event| payload(event, id)))
}

/// Stores the replies with the end of a run, if they cannot be derived from its entries.
pub fn store_payloads(ended: &mut EndRecord, payloads: &[Payload], events: &[TapeEvent]) {
    if complete_reply(ended, events) != payloads {
        ended.payloads = Some(json!(payloads));
    }
}

/// Converts replies for programs. Protocol 4 shows the last answer, protocol 3 all.
fn payloads(generation: Generation, replies: &[Payload]) -> Vec<Value> {
    let last = replies.iter().rposition(|reply| reply.kind == Kind::Answer);
    let is_visible = |index: usize, reply: &Payload| match generation {
        Generation::Three => true,
        Generation::Four => reply.kind != Kind::Answer || Some(index) == last,
    };
    let visible = replies.iter().enumerate().filter(|(index, reply)| is_visible(*index, reply));
    visible.map(|(_, reply)| payload(reply)).collect()
}

/// Converts a reply for programs.
fn payload(reply: &Payload) -> Value {
    let mut payload = json!({"text": reply.text, "mediaUrl": reply.media.first()});
    if !reply.media.is_empty() {
        payload["mediaUrls"] = json!(reply.media);
    }
    match &reply.reply_to {
        Some(ReplyTo::Id(id)) => payload["replyToId"] = id.as_str().into(),
        Some(ReplyTo::Current) => payload["replyToCurrent"] = true.into(),
        None => {}
    }
    if reply.is_voice {
        payload["audioAsVoice"] = true.into();
    }
    if reply.kind == Kind::Error {
        payload["isError"] = true.into();
    }
    payload
}

/// Adds the queue disposition to a response.
pub fn add_disposition(answer: &mut Value, queue_disposition: Disposition) {
    let (disposition, position) = queue_disposition.wire_name();
    answer["disposition"] = disposition.into();
    if let Some(position) = position {
        answer["position"] = position.into();
    }
}

/// Returns the response for a run that failed: a payload and an error.
pub fn failed(run: &RunId, why: &str) -> (Value, Option<ErrorShape>) {
    (json!({"runId": run, "status": "error", "summary": why}), Some(ErrorShape::unavailable(why)))
}
