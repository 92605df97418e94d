//! A run as a conversation: `chat` events beside the `agent` events that they go with.
//!
//! The text of a `chat` event is that of the whole run, its messages apart by a blank line: what protocol 4 expects.
//! Clients of protocol 3 know the text of the message that is being said; they show what they are told in place of what
//! they showed, so the longer text serves them as well, and nothing that was said before a tool was called goes away.
//!
//! Every run gets one last event. A message that became a part of another run gets it at that moment, without words: its
//! answer is the other's.

use homard_proto::{
    event::{Agent, Chat, ChatState},
    message::StopReason,
};
use serde_json::{Map, Value, json};

use super::{Projection, stop_reason};
use crate::{
    event::{End, Event, Outcome, RunEvent},
    tape::Tape,
};

/// Something that clients are told.
#[derive(Debug, Clone, PartialEq)]
pub enum News {
    /// A step of a run.
    Agent(Agent),
    /// The same as a conversation shows it.
    Chat(Chat),
}

/// One run on its way to clients, in both forms.
#[derive(Debug)]
pub struct Telling {
    steps: Projection,
    talk: Talk,
}

impl Telling {
    /// The beginning of a run's story.
    pub fn new(tape: &Tape) -> Self {
        Self { steps: Projection::new(tape), talk: Talk::new(tape) }
    }

    /// Takes in an event. Text is kept until [`flush`](Self::flush), as in [`Projection::push`].
    pub fn push(&mut self, event: Event) -> Vec<News> {
        let mut told = if self.steps.goes_on(&event) { Vec::new() } else { self.flush() };
        let last = self.talk.hear(&event, self.steps.seq + 1);
        told.extend(self.steps.push(event).into_iter().map(News::Agent));
        told.extend(last.map(News::Chat));
        told
    }

    /// Tells the text so far.
    pub fn flush(&mut self) -> Vec<News> {
        let Some(words) = self.steps.flush() else { return Vec::new() };
        let delta = self.talk.delta(self.steps.seq, words.ts);
        [News::Agent(words)].into_iter().chain(delta.map(News::Chat)).collect()
    }

    /// Nothing more can be told of the run; whoever waits for its end is told why.
    pub fn break_off(&mut self, why: &str) -> Vec<News> {
        let mut told = self.flush();
        let last =
            Chat { error_message: Some(why.to_owned()), ..self.talk.event(self.steps.seq + 1, ChatState::Error) };
        told.extend(self.talk.end(last).map(News::Chat));
        told
    }
}

/// What was said in a run.
#[derive(Debug)]
struct Talk {
    run: String,
    key: String,
    agent: Option<String>,
    /// All of it, and how much of it was told. Blanks at an end wait until they turn out to be in the middle.
    text: String,
    told: usize,
    /// Whether what was told is void.
    is_void: bool,
    /// Which message is being said, where in the text it begins, and whether it has said anything but blanks.
    message: Option<u32>,
    begin: usize,
    has_words: bool,
    /// Whether the run began. The words of a command that is answered at once come with its end.
    is_started: bool,
    is_over: bool,
}

impl Talk {
    fn new(tape: &Tape) -> Self {
        Self {
            run: tape.run().to_string(),
            key: tape.key().to_string(),
            agent: tape.key().agent().map(ToString::to_string),
            text: String::new(),
            told: 0,
            is_void: false,
            message: None,
            begin: 0,
            has_words: false,
            is_started: false,
            is_over: false,
        }
    }

    /// Takes in an event; returns the run's last one. `seq` is that of the step that the event will be.
    fn hear(&mut self, event: &Event, seq: u64) -> Option<Chat> {
        match &event.kind {
            RunEvent::Started { .. } => self.is_started = true,
            RunEvent::Text { message, delta } => {
                if self.message.replace(*message) != Some(*message) {
                    self.has_words = false;
                }
                self.say(delta);
            }
            RunEvent::Rewound { message } => self.take_back(*message),
            // Words that were not heard before were said before a restart.
            RunEvent::Assistant { said, .. } => {
                if self.message.take().is_none() && said.stop_reason != StopReason::Error {
                    self.has_words = false;
                    self.say(&said.text());
                }
            }
            RunEvent::Absorbed { .. } => {
                let last = self.event(1, ChatState::Final);
                return self.end(last);
            }
            RunEvent::Ended(end) => {
                let last = self.last(end, seq);
                return self.end(last);
            }
            RunEvent::Waited(_)
            | RunEvent::Input(_)
            | RunEvent::Thinking { .. }
            | RunEvent::Answering { .. }
            | RunEvent::Retrying { .. }
            | RunEvent::Switched { .. }
            | RunEvent::ToolStarted { .. }
            | RunEvent::ToolProgress { .. }
            | RunEvent::ToolEnded { .. } => {}
        }
        None
    }

    fn say(&mut self, words: &str) {
        if self.has_words {
            return self.text.push_str(words);
        }
        let words = words.trim_start();
        if !words.is_empty() {
            self.has_words = true;
            self.text.truncate(self.text.trim_end().len());
            self.begin = self.text.len();
            if !self.text.is_empty() {
                self.text.push_str("\n\n");
            }
            self.text.push_str(words);
        }
    }

    /// What a message has said is void: the model is asked again.
    fn take_back(&mut self, message: u32) {
        if self.message == Some(message) && std::mem::take(&mut self.has_words) {
            self.text.truncate(self.begin);
            if self.told > self.begin {
                (self.is_void, self.told) = (true, 0);
            }
        }
    }

    /// Tells what is new in the text, or all of it if what was told is void.
    fn delta(&mut self, seq: u64, at: u64) -> Option<Chat> {
        let text = self.text.trim_end();
        let is_telling = self.is_started && !self.is_over;
        let new = text.get(self.told..).filter(|new| is_telling && !new.is_empty())?.to_owned();
        let message = message(text, at);
        self.told = text.len();
        let replace = std::mem::take(&mut self.is_void).then_some(true);
        Some(Chat { delta_text: Some(new), replace, message: Some(message), ..self.event(seq, ChatState::Delta) })
    }

    fn last(&self, end: &End, seq: u64) -> Chat {
        let said = |text: &str| (!text.is_empty()).then(|| message(text, end.ended_at));
        let (state, mut said) = match &end.outcome {
            // What is delivered counts, not what was heard on the way.
            Outcome::Done => {
                let replies: Vec<_> = end.replies.iter().map(|reply| reply.text().trim()).collect();
                (ChatState::Final, said(&replies.join("\n\n")))
            }
            Outcome::Aborted(_) => (ChatState::Aborted, said(self.text.trim_end())),
            Outcome::Failed(failure) => {
                let error_message = Some(failure.message.clone());
                return Chat { error_message, ..self.event(seq, ChatState::Error) };
            }
        };
        // A run that ends well and never began is a command, or a part of another run: no step of its own came before.
        let is_own = self.is_started || state != ChatState::Final;
        if let Some(said) = said.as_mut().filter(|_| !is_own) {
            said["stopReason"] = "stop".into();
            said["usage"] = json!({"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0});
        }
        let stop_reason = Some(stop_reason(&end.outcome).to_owned());
        Chat { message: said, stop_reason, ..self.event(if is_own { seq } else { 1 }, state) }
    }

    /// The run's last event, unless it had one.
    fn end(&mut self, last: Chat) -> Option<Chat> {
        (!std::mem::replace(&mut self.is_over, true)).then_some(last)
    }

    fn event(&self, seq: u64, state: ChatState) -> Chat {
        Chat {
            run_id: self.run.clone(),
            session_key: self.key.clone(),
            agent_id: self.agent.clone(),
            seq,
            state,
            delta_text: None,
            replace: None,
            message: None,
            stop_reason: None,
            error_message: None,
            extra: Map::new(),
        }
    }
}

fn message(text: &str, at: u64) -> Value {
    json!({"role": "assistant", "content": [{"type": "text", "text": text}], "timestamp": at})
}

#[cfg(test)]
mod tests;
