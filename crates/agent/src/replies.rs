//! What a run's facts come to for the user: the pure shaping of `homard_reply`, fed from a tape.
//!
//! It is asked twice: when a model has ended its turn, whether the user would be left with nothing; and at the end of the
//! run, what is sent.

use homard_proto::{
    CallId, EntryId, Route, SessionKey,
    message::{Assistant, Block, StopReason, ToolResult, join_text},
};
use homard_reply::{
    label::{self, Style},
    payload::{Kind, Payload},
    sent::{Sent, Withheld},
    shape::{self, Duty, Ending, Shaped, ToolFailure, Turn},
    spoken::{self, Rules, Said},
};
use serde_json::Value;

use crate::{
    event::{Event, RunEvent},
    lane::slots::Class,
    schedule::SCHEDULE,
};

/// What a run has said and done so far, as far as the user is concerned.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    said: Vec<SaidMessage>,
    thoughts: Vec<String>,
    /// The calls of the last message: their names and arguments are known before their results.
    calls: Vec<(String, String, Value)>,
    failure: Option<ToolFailure>,
    ending: Ending,
    /// Whether the model said last that nothing needs attention.
    pub(crate) is_quiet: bool,
    delivered: Vec<Payload>,
    sent: Sent,
    origin: Route,
}

/// A message of the model's for the user.
#[derive(Debug)]
struct SaidMessage {
    /// Its line in the transcript.
    entry: EntryId,
    /// How many messages of the person the run had read before it.
    input: u32,
    payload: Payload,
}

/// What the user can expect of a run, whatever the model thinks of it: who wrote to the agent alone gets an answer.
pub(crate) fn is_answer_due(class: Class, principal: &str, key: &SessionKey) -> bool {
    let is_person = match class {
        Class::Main => principal != SCHEDULE,
        Class::Subagent | Class::Cron | Class::Nested | Class::Heartbeat => false,
    };
    is_person && key.kind() != "group"
}

impl Replies {
    /// Gathers them from a run's facts.
    pub(crate) fn of<'a>(facts: impl IntoIterator<Item = &'a Event>, origin: &Route) -> Self {
        let mut replies = Self { origin: origin.clone(), ..Self::default() };
        for Event { kind, .. } in facts {
            match kind {
                RunEvent::Assistant { entry, said } => replies.hear(entry, said),
                RunEvent::ToolEnded { call, result, .. } => replies.note(call, result),
                RunEvent::Block(block) => replies.delivered.push((**block).clone()),
                RunEvent::Input(_) => replies.sent.next_input(),
                RunEvent::Started { .. }
                | RunEvent::Waited(_)
                | RunEvent::Placed(_)
                | RunEvent::Busy(_)
                | RunEvent::Summarized(_)
                | RunEvent::Absorbed { .. }
                | RunEvent::Text { .. }
                | RunEvent::Thinking { .. }
                | RunEvent::Answering { .. }
                | RunEvent::Rewound { .. }
                | RunEvent::Retrying { .. }
                | RunEvent::Switched { .. }
                | RunEvent::Asking(_)
                | RunEvent::Heard
                | RunEvent::Discarded { .. }
                | RunEvent::Hooked(_)
                | RunEvent::Withheld(_)
                | RunEvent::ToolStarted { .. }
                | RunEvent::ToolProgress { .. }
                | RunEvent::Compacting
                | RunEvent::Compacted { .. }
                | RunEvent::NotCompacted { .. }
                | RunEvent::Ended(_) => {}
            }
        }
        replies
    }

    fn hear(&mut self, entry: &EntryId, said: &Assistant) {
        if said.stop_reason == StopReason::Error {
            return;
        }
        let read = read(said);
        self.ending = if read.found.is_silent { Ending::Silence } else { Ending::Words };
        self.is_quiet = read.found.is_heartbeat;
        let payload = Payload::from(read);
        if !payload.is_empty() {
            self.said.push(SaidMessage { entry: entry.clone(), input: self.sent.input(), payload });
        }
        self.thoughts.extend(thoughts(said));
        self.calls =
            said.tool_calls().map(|call| (call.id.clone(), call.name.clone(), call.arguments.clone())).collect();
        for call in said.tool_calls() {
            if let Ok(id) = CallId::parse(&call.id) {
                self.sent.begin(&id, &call.name, &call.arguments, &self.origin);
            }
        }
    }

    fn note(&mut self, call: &CallId, result: &ToolResult) {
        self.sent.end(call, result.is_error);
        if !result.is_error {
            return;
        }
        let known = self.calls.iter().find(|(id, ..)| id == call.as_str());
        let arguments = known.map_or(&Value::Null, |(.., arguments)| arguments);
        let matters = label::matters(&result.tool_name, arguments, None);
        let label = label::summary(&result.tool_name, &matters, Style::Plain);
        self.failure = Some(ToolFailure { label, error: join_text(&result.content) });
    }

    /// The lines of the transcript that hold what the user gets: all messages but those that are withheld.
    pub(crate) fn lines(&self) -> Vec<EntryId> {
        let is_new = |said: &&SaidMessage| self.sent.repetition(&said.payload.text, said.input).is_none();
        self.said.iter().filter(is_new).map(|said| said.entry.clone()).collect()
    }

    /// Only so many blocks have got through.
    pub(crate) fn keep_blocks(&mut self, count: usize) {
        self.delivered.truncate(count);
    }

    /// Whether words of the answer went out in blocks.
    pub(crate) fn has_blocks(&self) -> bool {
        self.delivered.iter().any(|block| block.kind == Kind::Answer)
    }

    /// What is still to be said of a whole message of the model's, after what tools have sent.
    pub(crate) fn left(&self, payload: Payload) -> Option<Payload> {
        self.sent.withhold(payload, self.sent.input()).0
    }

    /// Whether a message of the model's, as far as it is known, repeats what tools have sent, or may come to that.
    pub(crate) fn may_repeat(&self, text: &str) -> bool {
        self.sent.may_repeat(text)
    }

    /// Whether a whole message of the model's repeats what tools have sent.
    pub(crate) fn repeats(&self, text: &str) -> bool {
        self.sent.repetition(text, self.sent.input()).is_some()
    }

    /// The run was stopped: what failed on the way is no news.
    pub(crate) fn stop(&mut self) {
        self.failure = None;
    }

    /// The run ended with calls that somebody else makes.
    pub(crate) fn hand_over(&mut self) {
        self.ending = Ending::Calls;
    }

    /// Whether the model asked not to reply.
    pub(crate) fn is_silent(&self) -> bool {
        self.ending == Ending::Silence
    }

    /// Puts them in the order in which they are sent, and says which texts are withheld.
    pub(crate) fn shape(self, error: Option<String>, shows_thoughts: bool, duty: Duty) -> (Shaped, Vec<Withheld>) {
        let (mut said, mut withheld) = (Vec::new(), Vec::new());
        for SaidMessage { input, payload, .. } in self.said {
            let (left, repeated) = self.sent.withhold(payload, input);
            said.extend(left);
            withheld.extend(repeated);
        }
        let shaped = shape::shape(Turn {
            said,
            error,
            tools: Vec::new(),
            reasoning: shows_thoughts.then(|| self.thoughts.join("\n\n")).filter(|thoughts| !thoughts.is_empty()),
            failure: self.failure,
            ending: self.ending,
            delivered: &self.delivered,
            is_answered: self.sent.is_answered(),
            duty,
        });
        (shaped, withheld)
    }
}

/// What a message of the model's says to the user.
pub fn payload_of(said: &Assistant) -> Payload {
    read(said).into()
}

fn read(said: &Assistant) -> Said {
    read_text(&said.text(), &said.provider)
}

/// Reads what a provider's model said. One that should mark its answer and does not is not kept from the user.
pub(crate) fn read_text(text: &str, provider: &str) -> Said {
    let enforce_final = homard_model::writes_tags(provider);
    let said = spoken::read(text, Rules { enforce_final });
    if enforce_final && said.text.is_empty() { spoken::read(text, Rules::default()) } else { said }
}

fn thoughts(said: &Assistant) -> impl Iterator<Item = String> {
    said.content.iter().filter_map(|block| match block {
        Block::Thinking(thinking) => Some(thinking.thinking.clone()).filter(|text| !text.trim().is_empty()),
        Block::Text(_) | Block::Image(_) | Block::ToolCall(_) | Block::Other(_) => None,
    })
}
