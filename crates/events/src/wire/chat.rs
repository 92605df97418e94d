//! Chat projection of a run: `chat` events beside the corresponding `agent` events.
//!
//! The text of a `chat` event is that of the whole run, with a blank line between messages, as protocol 4 expects.
//! Clients of protocol 3 expect the text of the current message; they replace what they show, so the longer text works
//! for them as well, and text before a tool call does not disappear.
//!
//! Every run gets one final event. An absorbed message gets it when it is absorbed, without text: its answer is that of
//! the host run.

use homard_command::OWN_API;
use homard_proto::{
    Generation, RunId, SessionKey,
    event::{AgentEvent, ChatEvent, ChatState},
    message::{Assistant, StopReason},
};
use homard_queue::inbox::SUMMARIZED;
use homard_reply::payload::{Kind, Payload};
use serde_json::{Map, Value, json};

use super::{Projection, stop_reason};
use crate::{
    event::{Outcome, QueueEvent, ReplyEvent, RequestEvent, RunEnd, RunEvent, StoredEvent, TapeEvent},
    replies,
};

/// Event of a run in the form that gateway clients receive: an `agent` event or a `chat` event.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientEvent {
    /// A step of a run.
    Agent(AgentEvent),
    /// New chat text for clients of one generation: each has its own pace.
    Delta(Generation, ChatEvent),
    /// The final chat event of the run.
    Chat(ChatEvent),
}

/// Projection of one run for clients, in both forms.
#[derive(Debug)]
pub struct RunProjection {
    steps: Projection,
    chat: ChatProjection,
}

impl RunProjection {
    /// Starts the projection of a run.
    pub fn new(run: &RunId, key: &SessionKey) -> Self {
        Self { steps: Projection::new(run, key), chat: ChatProjection::new(run, key) }
    }

    /// Processes an event. Text is buffered until [`flush`](Self::flush), as in [`Projection::push`], and chat text
    /// until [`delta`](Self::delta). Everything buffered is emitted before the final event.
    pub fn push(&mut self, event: TapeEvent) -> Vec<ClientEvent> {
        let mut events = Vec::new();
        if matches!(event.kind, RunEvent::Stored(StoredEvent::Ended(_)) | RunEvent::Queue(QueueEvent::Absorbed { .. }))
        {
            events = self.flush_all(event.at);
        } else if !self.steps.continues_message(&event) {
            events.extend(self.flush());
        }
        if matches!(event.kind, RunEvent::Stored(StoredEvent::Assistant { .. })) {
            events.extend(self.emit_reset(event.at));
        }
        let last = self.chat.process(&event, self.steps.seq + 1);
        events.extend(self.steps.push(event).into_iter().map(ClientEvent::Agent));
        events.extend(last.map(ClientEvent::Chat));
        events
    }

    /// Emits the buffered text as a step.
    pub fn flush(&mut self) -> Option<ClientEvent> {
        let step = self.steps.flush()?;
        self.chat.mark_shown(self.steps.seq, step.ts);
        Some(ClientEvent::Agent(step))
    }

    /// Emits the chat text that steps have emitted since the last delta.
    pub fn delta(&mut self, generation: Generation) -> Option<ClientEvent> {
        self.chat.delta(generation).map(|delta| ClientEvent::Delta(generation, delta))
    }

    /// Sequence number of the last step.
    pub fn seq(&self) -> u64 {
        self.steps.seq
    }

    /// Returns the chat text of the emitted steps, as one message.
    pub fn so_far(&self) -> Option<Value> {
        let chat = &self.chat;
        let text = &chat.text[..chat.shown];
        (chat.is_started && !text.is_empty()).then(|| message(text, chat.at))
    }

    /// Emits that discarded text was not replaced, if so.
    fn emit_reset(&mut self, at: u64) -> Option<ClientEvent> {
        let reset = self.steps.settle(at)?;
        self.chat.mark_shown(self.steps.seq, at);
        Some(ClientEvent::Agent(reset))
    }

    /// Emits everything buffered before the end: no more text follows.
    fn flush_all(&mut self, at: u64) -> Vec<ClientEvent> {
        let steps: Vec<_> = self.flush().into_iter().chain(self.emit_reset(at)).collect();
        self.chat.message = None;
        let deltas = [Generation::Three, Generation::Four].map(|generation| self.delta(generation));
        steps.into_iter().chain(deltas.into_iter().flatten()).collect()
    }

    /// Ends the projection of a broken run; clients that wait for its end get the reason.
    pub fn break_off(&mut self, why: &str) -> Vec<ClientEvent> {
        let mut events = self.flush_all(self.steps.at);
        let last =
            ChatEvent { error_message: Some(why.to_owned()), ..self.chat.event(self.steps.seq + 1, ChatState::Error) };
        events.extend(self.chat.end(last).map(ClientEvent::Chat));
        events
    }
}

/// Returns a delta with the whole text, for a client that missed earlier deltas.
pub fn whole(delta: &ChatEvent) -> ChatEvent {
    let text = delta.message.as_ref().and_then(|message| message["content"][0]["text"].as_str()).map(str::to_owned);
    ChatEvent { delta_text: text, replace: Some(true), ..delta.clone() }
}

/// Chat text of a run.
#[derive(Debug)]
struct ChatProjection {
    run: String,
    key: String,
    agent: Option<String>,
    /// Text that was sent in blocks.
    blocks: Vec<String>,
    /// The whole text. Trailing whitespace is held back until more text follows.
    text: String,
    /// How much of it steps have emitted, with their sequence number and time.
    shown: usize,
    seq: u64,
    at: u64,
    three: ClientProgress,
    four: ClientProgress,
    /// The current message, its start in the text, and whether it has any text but whitespace.
    message: Option<u32>,
    message_start: usize,
    has_text: bool,
    /// True if the run started. The text of a command that is answered at once comes with its end.
    is_started: bool,
    is_over: bool,
}

/// What clients of one generation have received.
#[derive(Debug, Default)]
struct ClientProgress {
    /// Length of the received text.
    length: usize,
    /// Length of the received text that was discarded, if any.
    discarded: Option<usize>,
}

impl ChatProjection {
    fn new(run: &RunId, key: &SessionKey) -> Self {
        Self {
            run: run.to_string(),
            key: key.to_string(),
            agent: key.agent().map(ToString::to_string),
            blocks: Vec::new(),
            text: String::new(),
            shown: 0,
            seq: 0,
            at: 0,
            three: ClientProgress::default(),
            four: ClientProgress::default(),
            message: None,
            message_start: 0,
            has_text: false,
            is_started: false,
            is_over: false,
        }
    }

    /// Processes an event. Returns the final chat event. `seq` is the sequence number of the event's step.
    fn process(&mut self, event: &TapeEvent, seq: u64) -> Option<ChatEvent> {
        match &event.kind {
            RunEvent::Stored(StoredEvent::Started { .. }) => self.is_started = true,
            RunEvent::Text { message, delta } => {
                if self.message.replace(*message) != Some(*message) {
                    self.has_text = false;
                }
                self.push_text(delta);
            }
            RunEvent::Model(RequestEvent::MessageReset { message }) => self.discard(*message),
            // Text that was not streamed here is from before a restart.
            RunEvent::Stored(StoredEvent::Assistant { message: answer, .. }) => {
                if self.message.take().is_none() && answer.stop_reason != StopReason::Error {
                    self.has_text = false;
                    self.push_text(&replies::payload_of(answer).text);
                    self.mark_shown(seq - 1, event.at);
                }
            }
            RunEvent::Queue(QueueEvent::Absorbed { .. }) => {
                let last = self.event(seq, ChatState::Final);
                return self.end(last);
            }
            RunEvent::Stored(StoredEvent::Ended(end)) => {
                let last = self.last(end, seq);
                return self.end(last);
            }
            RunEvent::Queue(
                QueueEvent::SlotWaited(_)
                | QueueEvent::DispositionChanged(_)
                | QueueEvent::Busy(_)
                | QueueEvent::Summarized(_),
            )
            | RunEvent::Stored(StoredEvent::Input(_) | StoredEvent::ToolEnded { .. } | StoredEvent::Compacted { .. })
            | RunEvent::Thinking { .. }
            | RunEvent::Model(
                RequestEvent::Changed { .. }
                | RequestEvent::Retrying { .. }
                | RequestEvent::CandidateFailed { .. }
                | RequestEvent::Requested(_)
                | RequestEvent::FirstToken
                | RequestEvent::NoResponse { .. }
                | RequestEvent::AnswerDropped { .. },
            )
            | RunEvent::Tool(_)
            | RunEvent::HookDecision(_)
            | RunEvent::Reply(ReplyEvent::Withheld(_))
            | RunEvent::Compaction(_) => {}
            // Tool activity is shown in another way here.
            RunEvent::Reply(ReplyEvent::Block(block)) => {
                self.blocks.extend((block.kind == Kind::Answer).then(|| reply_text(block)))
            }
        }
        None
    }

    fn push_text(&mut self, text: &str) {
        if self.has_text {
            return self.text.push_str(text);
        }
        let text = text.trim_start();
        if !text.is_empty() {
            self.has_text = true;
            self.text.truncate(self.text.trim_end().len());
            self.message_start = self.text.len();
            if !self.text.is_empty() {
                self.text.push_str("\n\n");
            }
            self.text.push_str(text);
        }
    }

    /// Discards the text of a message: the request is retried.
    fn discard(&mut self, message: u32) {
        if self.message == Some(message) && std::mem::take(&mut self.has_text) {
            self.text.truncate(self.message_start);
            self.shown = self.shown.min(self.message_start);
            for progress in [&mut self.three, &mut self.four] {
                if progress.length > self.message_start {
                    progress.discarded = Some(progress.discarded.unwrap_or_default().max(progress.length));
                    progress.length = 0;
                }
            }
        }
    }

    /// Records that steps have emitted all text so far.
    fn mark_shown(&mut self, seq: u64, at: u64) {
        self.shown = self.text.trim_end().len();
        (self.seq, self.at) = (seq, at);
    }

    /// Emits new text, or the whole text if received text was discarded.
    fn delta(&mut self, generation: Generation) -> Option<ChatEvent> {
        if !self.is_started || self.is_over {
            return None;
        }
        let text = &self.text[..self.shown];
        let progress = match generation {
            Generation::Three => &mut self.three,
            Generation::Four => &mut self.four,
        };
        let new = text.get(progress.length..).unwrap_or_default().to_owned();
        let is_due = match generation {
            // Clients without support for replacement get a longer text later, or the final event.
            Generation::Three => {
                !new.is_empty() && progress.discarded.is_none_or(|discarded_len| text.len() > discarded_len)
            }
            // While a message is streamed, discarded text may still be replaced.
            Generation::Four => !new.is_empty() || (progress.discarded.is_some() && self.message.is_none()),
        };
        if !is_due {
            return None;
        }
        progress.length = text.len();
        let replace = progress.discarded.take().map(|_| true);
        let message = message(text, self.at);
        Some(ChatEvent {
            delta_text: Some(new),
            replace,
            message: Some(message),
            ..self.event(self.seq, ChatState::Delta)
        })
    }

    fn last(&self, end: &RunEnd, seq: u64) -> ChatEvent {
        let build = |text: &str| (!text.is_empty()).then(|| message(text, end.ended_at));
        let (state, mut chat_message) = match &end.outcome {
            // The delivered replies count, not the streamed text.
            Outcome::Done => {
                let replies: Vec<_> = self.blocks.iter().cloned().chain(end.replies.iter().map(reply_text)).collect();
                (ChatState::Final, build(&replies.join("\n\n")))
            }
            Outcome::Aborted(_) => (ChatState::Aborted, build(self.text.trim_end())),
            Outcome::Failed(failure) => {
                let error_message = Some(failure.message.clone());
                return ChatEvent { error_message, ..self.event(seq, ChatState::Error) };
            }
        };
        // A successful run that never started is a command, or an absorbed message: it has no steps of its own.
        let has_steps = self.is_started || state != ChatState::Final;
        if let Some(chat_message) = chat_message.as_mut().filter(|_| !has_steps) {
            chat_message["stopReason"] = "stop".into();
            chat_message["usage"] = json!({"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0});
        }
        let stop_reason = Some(stop_reason(&end.outcome).to_owned());
        let mut extra = Map::new();
        if end.is_summarized {
            extra.insert("disposition".to_owned(), SUMMARIZED.into());
        }
        ChatEvent { extra, message: chat_message, stop_reason, ..self.event(if has_steps { seq } else { 1 }, state) }
    }

    /// Returns the final event, unless it was already emitted.
    fn end(&mut self, last: ChatEvent) -> Option<ChatEvent> {
        (!std::mem::replace(&mut self.is_over, true)).then_some(last)
    }

    fn event(&self, seq: u64, state: ChatState) -> ChatEvent {
        ChatEvent {
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

/// Returns the text of a stored assistant message as its run's final event had it. Homard's own messages are shown as
/// written.
pub fn text_of(answer: &Assistant) -> String {
    if answer.api == OWN_API { answer.text() } else { reply_text(&replies::payload_of(answer)) }
}

/// Formats a reply as text: media are listed after it.
pub(super) fn reply_text(reply: &Payload) -> String {
    let media = reply.media.iter().map(String::as_str);
    let lines: Vec<_> = [reply.text.trim()].into_iter().chain(media).filter(|line| !line.is_empty()).collect();
    lines.join("\n")
}

pub(super) fn message(text: &str, at: u64) -> Value {
    json!({"role": "assistant", "content": [{"type": "text", "text": text}], "timestamp": at})
}

#[cfg(test)]
mod tests;
