//! Decoder for responses of the Gemini API.

use homard_model::{
    Error, ErrorKind, Event, Seal,
    classify::classify,
    stream::{CallDelta, Done},
};
use homard_proto::message::{StopReason, Usage};

use super::chunk::{Call, Candidate, Chunk, Feedback, Part};
use crate::{
    sse::Frame,
    wire::{Decode, broken_off, malformed},
};

/// Decoder state.
///
/// Only the end of the body marks the end of an answer: some servers send a finish reason too early or with every
/// chunk, and the usage may follow it.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    calls: Vec<Heard>,
    chunks: usize,
    response_id: String,
    stop: Option<StopReason>,
    usage: Usage,
}

/// A received call. Its position in the list is its index for the reader.
#[derive(Debug, PartialEq, Eq)]
struct Heard {
    /// The model's own id, or empty.
    given: String,
    /// Id used outside.
    id: String,
    name: String,
    arguments: String,
    /// Number of the chunk that contained it.
    chunk: usize,
}

impl Decode for Decoder {
    fn push(&mut self, frame: &Frame, events: &mut Vec<Event>) {
        // Without `alt=sse`, and for some errors, the response is a list.
        let chunks = match frame.data.trim_start().starts_with('[') {
            true => serde_json::from_str(&frame.data),
            false => serde_json::from_str(&frame.data).map(|chunk| vec![chunk]),
        };
        let chunks: Vec<Chunk> = match chunks {
            Ok(chunks) => chunks,
            Err(error) => return events.push(malformed(frame, &error)),
        };
        for chunk in chunks {
            if chunk.error.is_some() {
                return events.push(Event::Failed(classify(None, &[], &frame.data)));
            }
            self.chunk(chunk, events);
        }
    }

    fn finish(&mut self) -> Event {
        let natural = if self.calls.is_empty() { StopReason::Stop } else { StopReason::ToolUse };
        let stop = self.stop.map(|stop| if stop == StopReason::Stop { natural } else { stop });
        stop.map_or_else(broken_off, |stop| Event::Done(Done { stop, usage: self.usage.clone() }))
    }
}

impl Decoder {
    fn chunk(&mut self, chunk: Chunk, events: &mut Vec<Event>) {
        self.chunks += 1;
        if let Some(id) = chunk.response_id {
            self.response_id = id;
        }
        // The counts grow from chunk to chunk, so the last ones are the totals.
        if let Some(tokens) = chunk.usage_metadata {
            self.usage = tokens.into();
        }
        if let Some(Feedback { block_reason: Some(reason), block_reason_message }) = chunk.prompt_feedback {
            let said = format!("the provider does not take the prompt ({reason})");
            return events.push(failed(ErrorKind::ContentFilter, &said, block_reason_message));
        }
        // One candidate was requested; of several, the first is used.
        let mut candidates = chunk.candidates.unwrap_or_default().into_iter();
        let candidate = candidates.find(|candidate| candidate.index.unwrap_or(0) == 0);
        if let Some(candidate) = candidate {
            self.candidate(candidate, events);
        }
    }

    fn candidate(&mut self, candidate: Candidate, events: &mut Vec<Event>) {
        for part in candidate.content.and_then(|content| content.parts).unwrap_or_default() {
            // A finish reason that is followed by more content is ignored.
            self.stop = None;
            self.part(part, events);
        }
        let Some(reason) = candidate.finish_reason else { return };
        match ending(&reason) {
            Ending::None => {}
            Ending::Good(stop) => self.stop = Some(stop),
            Ending::Bad(kind, said) => {
                events.push(failed(kind, &format!("{said} ({reason})"), candidate.finish_message));
            }
        }
    }

    fn part(&mut self, part: Part, events: &mut Vec<Event>) {
        let is_thought = part.thought.unwrap_or(false);
        if let Some(text) = part.text.filter(|text| !text.is_empty()) {
            events.push(if is_thought { Event::Thinking(text) } else { Event::Text(text) });
        }
        let seal = part.thought_signature.filter(|seal| !seal.is_empty());
        match part.function_call {
            Some(call) => self.call(call, seal, events),
            // A part may consist only of the signature.
            None => {
                let seal = seal.map(|seal| if is_thought { Seal::Thinking(seal) } else { Seal::Text(seal) });
                events.extend(seal.map(Event::Seal));
            }
        }
    }

    fn call(&mut self, call: Call, seal: Option<String>, events: &mut Vec<Event>) {
        let Some(name) = call.name.filter(|name| !name.is_empty()) else {
            return events.push(failed(ErrorKind::Server, "the model made a call without a name", None));
        };
        let given = call.id.unwrap_or_default();
        let arguments = call.args.map_or_else(String::new, |args| args.get().to_owned());
        let is_same = |heard: &Heard| heard.name == name && heard.arguments == arguments && heard.given == given;
        // A confused model repeats a call in every chunk; two equal calls without ids in one chunk are intended.
        if self.calls.iter().any(|heard| is_same(heard) && (heard.chunk != self.chunks || !given.is_empty())) {
            return;
        }
        let index = self.calls.len();
        let id = if given.is_empty() || self.calls.iter().any(|heard| heard.id == given) {
            self.made_id(index)
        } else {
            given.clone()
        };
        let delta = CallDelta { index, id: Some(id.clone()), name: Some(name.clone()), arguments: arguments.clone() };
        self.calls.push(Heard { given, id, name, arguments, chunk: self.chunks });
        events.push(Event::Call(delta));
        events.extend(seal.map(|seal| Event::Seal(Seal::Call(index, seal))));
    }

    /// Generates a call id that is unique in this answer and across answers.
    fn made_id(&self, index: usize) -> String {
        let answer: String = self.response_id.chars().filter(char::is_ascii_alphanumeric).collect();
        let mut id = format!("call{answer}n{index}");
        while self.calls.iter().any(|heard| heard.id == id) {
            id.push('x');
        }
        id
    }
}

/// Meaning of a finish reason.
enum Ending {
    None,
    Good(StopReason),
    Bad(ErrorKind, &'static str),
}

fn ending(reason: &str) -> Ending {
    match reason {
        "" | "FINISH_REASON_UNSPECIFIED" => Ending::None,
        "STOP" => Ending::Good(StopReason::Stop),
        "MAX_TOKENS" | "CONTINUATION" => Ending::Good(StopReason::Length),
        "SAFETY"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "LANGUAGE"
        | "MODEL_ARMOR"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT" => {
            Ending::Bad(ErrorKind::ContentFilter, "the provider's content filter stopped the answer")
        }
        "RECITATION" | "IMAGE_RECITATION" => {
            Ending::Bad(ErrorKind::ContentFilter, "the provider stopped the answer because it repeats a known text")
        }
        "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" | "TOO_MANY_TOOL_CALLS" => {
            Ending::Bad(ErrorKind::Server, "the model made a call that its provider cannot read")
        }
        "MISSING_THOUGHT_SIGNATURE" => {
            Ending::Bad(ErrorKind::Rejected, "the provider misses a signature in the conversation")
        }
        // Unknown reasons are more likely failures, because a success would not need a new name.
        _ => Ending::Bad(ErrorKind::Server, "the provider stopped the answer"),
    }
}

fn failed(kind: ErrorKind, said: &str, why: Option<String>) -> Event {
    let why = why.filter(|why| !why.trim().is_empty());
    let why = why.map(|why| format!(": {}", why.trim())).unwrap_or_default();
    Event::Failed(Error::new(kind, format!("{said}{why}")))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(chunks: &[Value]) -> Vec<Event> {
        let mut decoder = Decoder::default();
        let mut events = Vec::new();
        for chunk in chunks {
            decoder.push(&Frame { event: String::new(), data: chunk.to_string() }, &mut events);
        }
        events.push(decoder.finish());
        events
    }

    fn chunk(text: &str, reason: Option<&str>) -> Value {
        json!({"candidates": [{"content": {"parts": [{"text": text}]}, "finishReason": reason}]})
    }

    #[test]
    fn only_the_last_reason_to_stop_counts() {
        let text = |text: &str| Event::Text(text.to_owned());
        let done = |stop| Event::Done(Done { stop, usage: Usage::default() });
        let stop = Some("STOP");
        let length = Some("MAX_TOKENS");
        let each = [chunk("a", stop), chunk("b", stop), chunk("c", length)];
        assert_eq!(read(&each), [text("a"), text("b"), text("c"), done(StopReason::Length)]);
        let early = [chunk("", stop), chunk("a", None), chunk("b", stop)];
        assert_eq!(read(&early), [text("a"), text("b"), done(StopReason::Stop)]);
        assert_eq!(read(&early[..2]), [text("a"), broken_off()]);
    }
}
