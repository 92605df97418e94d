//! Replies of a run: shapes the events of a tape with the pure functions of `homard_reply`.
//!
//! Used twice: when a model has finished its turn, to check that the user gets a reply; and at the end of the run, to
//! build the replies.

use homard_proto::{
    CallId, EntryId, Route,
    message::{Assistant, Block, StopReason, ToolResult, join_text},
};
use homard_reply::{
    label::{self, Style},
    parse_stream::{self, ParseRules, ParsedReply},
    payload::{Kind, Payload},
    sent::{SentTexts, WithheldText},
    shape::{self, Expectation, ModelEnding, RunReplies, ShapedReplies, ToolFailure},
};
use serde_json::Value;

use crate::event::{ReplyEvent, RunEvent, StoredEvent, TapeEvent};

/// Everything relevant for the replies of a run.
#[derive(Debug, Default)]
pub struct Replies {
    messages: Vec<AnswerMessage>,
    reasoning: Vec<String>,
    /// Calls of the last message: their names and arguments are known before their results.
    calls: Vec<(String, String, Value)>,
    failure: Option<ToolFailure>,
    ending: ModelEnding,
    /// True if the last answer says that nothing needs attention.
    pub is_heartbeat_ok: bool,
    delivered: Vec<Payload>,
    sent: SentTexts,
    origin: Route,
}

/// An assistant message for the user.
#[derive(Debug)]
struct AnswerMessage {
    /// Its transcript entry.
    entry: EntryId,
    /// Number of user messages that the run had read before it.
    input: u32,
    payload: Payload,
}

impl Replies {
    /// Collects the replies from a run's events.
    pub fn of<'a>(events: impl IntoIterator<Item = &'a TapeEvent>, origin: &Route) -> Self {
        let mut replies = Self { origin: origin.clone(), ..Self::default() };
        for TapeEvent { kind, .. } in events {
            match kind {
                RunEvent::Stored(StoredEvent::Assistant { entry, message: answer }) => {
                    replies.add_answer(entry, answer)
                }
                RunEvent::Stored(StoredEvent::ToolEnded { call, result, .. }) => replies.add_result(call, result),
                RunEvent::Reply(ReplyEvent::Block(block)) => replies.delivered.push((**block).clone()),
                RunEvent::Stored(StoredEvent::Input(_)) => replies.sent.next_input(),
                RunEvent::Stored(
                    StoredEvent::Started { .. } | StoredEvent::Compacted { .. } | StoredEvent::Ended(_),
                )
                | RunEvent::Queue(_)
                | RunEvent::Text { .. }
                | RunEvent::Thinking { .. }
                | RunEvent::Model(_)
                | RunEvent::HookDecision(_)
                | RunEvent::Reply(ReplyEvent::Withheld(_))
                | RunEvent::Tool(_)
                | RunEvent::Compaction(_) => {}
            }
        }
        replies
    }

    fn add_answer(&mut self, entry: &EntryId, answer: &Assistant) {
        if answer.stop_reason == StopReason::Error {
            return;
        }
        let parsed = read(answer);
        self.ending = if parsed.found.is_silent { ModelEnding::Silence } else { ModelEnding::Text };
        self.is_heartbeat_ok = parsed.found.is_heartbeat;
        let payload = Payload::from(parsed);
        if !payload.is_empty() {
            self.messages.push(AnswerMessage { entry: entry.clone(), input: self.sent.input(), payload });
        }
        self.reasoning.extend(reasoning(answer));
        self.calls =
            answer.tool_calls().map(|call| (call.id.clone(), call.name.clone(), call.arguments.clone())).collect();
        for call in answer.tool_calls() {
            if let Ok(id) = CallId::parse(&call.id) {
                self.sent.begin(&id, &call.name, &call.arguments, &self.origin);
            }
        }
    }

    fn add_result(&mut self, call: &CallId, result: &ToolResult) {
        self.sent.end(call, result.is_error);
        if !result.is_error {
            return;
        }
        let known = self.calls.iter().find(|(id, ..)| id == call.as_str());
        let arguments = known.map_or(&Value::Null, |(.., arguments)| arguments);
        let subjects = label::subjects(&result.tool_name, arguments, None);
        let label = label::summary(&result.tool_name, &subjects, Style::Plain);
        self.failure = Some(ToolFailure { label, error: join_text(&result.content) });
    }

    /// Returns the transcript entries of the replies: all messages except withheld ones.
    pub fn entries(&self) -> Vec<EntryId> {
        let is_new = |message: &&AnswerMessage| self.sent.repetition(&message.payload.text, message.input).is_none();
        self.messages.iter().filter(is_new).map(|message| message.entry.clone()).collect()
    }

    /// Keeps only the blocks that were delivered.
    pub fn keep_blocks(&mut self, count: usize) {
        self.delivered.truncate(count);
    }

    /// True if part of the answer was sent in blocks.
    pub fn has_blocks(&self) -> bool {
        self.delivered.iter().any(|block| block.kind == Kind::Answer)
    }

    /// Returns what is left to send of a complete message, after what tools have sent.
    pub fn remaining(&self, payload: Payload) -> Option<Payload> {
        self.sent.withhold(payload, self.sent.input()).0
    }

    /// True if a partial message repeats, or may come to repeat, what tools have sent.
    pub fn may_repeat(&self, text: &str) -> bool {
        self.sent.may_repeat(text)
    }

    /// True if a complete message repeats what tools have sent.
    pub fn repeats(&self, text: &str) -> bool {
        self.sent.repetition(text, self.sent.input()).is_some()
    }

    /// Drops a tool failure, because the run was stopped.
    pub fn stop(&mut self) {
        self.failure = None;
    }

    /// Marks that the run ended with calls for the client.
    pub fn end_with_client_calls(&mut self) {
        self.ending = ModelEnding::Calls;
    }

    /// True if the model asked not to reply.
    pub fn is_silent(&self) -> bool {
        self.ending == ModelEnding::Silence
    }

    /// Puts the replies in sending order. Also returns the withheld texts.
    pub fn shape(
        self,
        error: Option<String>,
        shows_reasoning: bool,
        expectation: Expectation,
    ) -> (ShapedReplies, Vec<WithheldText>) {
        let (mut messages, mut withheld) = (Vec::new(), Vec::new());
        for AnswerMessage { input, payload, .. } in self.messages {
            let (remaining, withheld_texts) = self.sent.withhold(payload, input);
            messages.extend(remaining);
            withheld.extend(withheld_texts);
        }
        let shaped = shape::shape(RunReplies {
            messages,
            error,
            tools: Vec::new(),
            reasoning: shows_reasoning.then(|| self.reasoning.join("\n\n")).filter(|text| !text.is_empty()),
            failure: self.failure,
            ending: self.ending,
            delivered: &self.delivered,
            is_answered: self.sent.is_answered(),
            expectation,
        });
        (shaped, withheld)
    }
}

/// Returns the visible content of an assistant message.
pub fn payload_of(answer: &Assistant) -> Payload {
    read(answer).into()
}

fn read(answer: &Assistant) -> ParsedReply {
    read_text(&answer.text(), &answer.provider)
}

/// Parses a model's text. If a provider should mark its final answer and does not, the text is shown anyway.
pub fn read_text(text: &str, provider: &str) -> ParsedReply {
    let enforce_final = homard_model::uses_reasoning_tags(provider);
    let parsed = parse_stream::parse_message(text, ParseRules { enforce_final });
    if enforce_final && parsed.text.is_empty() {
        parse_stream::parse_message(text, ParseRules::default())
    } else {
        parsed
    }
}

fn reasoning(answer: &Assistant) -> impl Iterator<Item = String> {
    answer.content.iter().filter_map(|block| match block {
        Block::Thinking(thinking) => Some(thinking.thinking.clone()).filter(|text| !text.trim().is_empty()),
        Block::Text(_) | Block::Image(_) | Block::ToolCall(_) | Block::Other(_) => None,
    })
}
