//! Decoder for responses of the Gemini API.

use homard_model::{
    Error, ErrorKind, ModelEvent, Signature,
    classify::classify,
    stream::{AnswerEnd, CallDelta},
};
use homard_proto::message::{StopReason, Usage};

use super::chunk::{Candidate, Chunk, ChunkPart, Feedback, FunctionCallChunk};
use crate::{
    sse::Frame,
    wire::{Decode, malformed_event, truncated_event},
};

/// Decoder state.
///
/// Only the end of the body marks the end of an answer: some servers send a finish reason too early or with every
/// chunk, and the usage may follow it.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    calls: Vec<ReceivedCall>,
    /// Number of response chunks received.
    chunks: usize,
    response_id: String,
    stop: Option<StopReason>,
    usage: Usage,
}

/// A received call. Its position in the list is its index in the events.
#[derive(Debug, PartialEq, Eq)]
struct ReceivedCall {
    /// Call id in the response; empty if there was none.
    own_id: String,
    /// Call id in the emitted events: `own_id`, or a generated one if that is empty or already in use.
    id: String,
    name: String,
    arguments: String,
    /// Number of the response chunk that contained the call, counted from 1.
    chunk: usize,
}

impl Decode for Decoder {
    fn push(&mut self, frame: &Frame, events: &mut Vec<ModelEvent>) {
        // Without `alt=sse`, and for some errors, the response is a list.
        let chunks = match frame.data.trim_start().starts_with('[') {
            true => serde_json::from_str(&frame.data),
            false => serde_json::from_str(&frame.data).map(|chunk| vec![chunk]),
        };
        let chunks: Vec<Chunk> = match chunks {
            Ok(chunks) => chunks,
            Err(error) => return events.push(malformed_event(frame, &error)),
        };
        for chunk in chunks {
            if chunk.error.is_some() {
                return events.push(ModelEvent::Failed(classify(None, &[], &frame.data)));
            }
            self.chunk(chunk, events);
        }
    }

    fn finish(&mut self) -> ModelEvent {
        let default_stop = if self.calls.is_empty() { StopReason::Stop } else { StopReason::ToolUse };
        let stop = self.stop.map(|stop| if stop == StopReason::Stop { default_stop } else { stop });
        stop.map_or_else(truncated_event, |stop| ModelEvent::Done(AnswerEnd { stop, usage: self.usage.clone() }))
    }
}

impl Decoder {
    fn chunk(&mut self, chunk: Chunk, events: &mut Vec<ModelEvent>) {
        self.chunks += 1;
        if let Some(id) = chunk.response_id {
            self.response_id = id;
        }
        // The counts grow from chunk to chunk, so the last ones are the totals.
        if let Some(tokens) = chunk.usage_metadata {
            self.usage = tokens.into();
        }
        if let Some(Feedback { block_reason: Some(reason), block_reason_message }) = chunk.prompt_feedback {
            let message = format!("the provider rejected the prompt ({reason})");
            return events.push(failed(ErrorKind::ContentFilter, &message, block_reason_message));
        }
        // One candidate was requested; of several, the first is used.
        let mut candidates = chunk.candidates.unwrap_or_default().into_iter();
        let candidate = candidates.find(|candidate| candidate.index.unwrap_or(0) == 0);
        if let Some(candidate) = candidate {
            self.candidate(candidate, events);
        }
    }

    fn candidate(&mut self, candidate: Candidate, events: &mut Vec<ModelEvent>) {
        for part in candidate.content.and_then(|content| content.parts).unwrap_or_default() {
            // A finish reason that is followed by more content is ignored.
            self.stop = None;
            self.part(part, events);
        }
        let Some(reason) = candidate.finish_reason else { return };
        match finish_meaning(&reason) {
            FinishMeaning::None => {}
            FinishMeaning::Good(stop) => self.stop = Some(stop),
            FinishMeaning::Bad(kind, message) => {
                events.push(failed(kind, &format!("{message} ({reason})"), candidate.finish_message));
            }
        }
    }

    fn part(&mut self, part: ChunkPart, events: &mut Vec<ModelEvent>) {
        let is_thought = part.thought.unwrap_or(false);
        if let Some(text) = part.text.filter(|text| !text.is_empty()) {
            events.push(if is_thought { ModelEvent::Thinking(text) } else { ModelEvent::Text(text) });
        }
        let signature = part.thought_signature.filter(|signature| !signature.is_empty());
        match part.function_call {
            Some(call) => self.call(call, signature, events),
            // A part may consist only of the signature.
            None => {
                let signature =
                    signature.map(
                        |signature| {
                            if is_thought { Signature::Thinking(signature) } else { Signature::Text(signature) }
                        },
                    );
                events.extend(signature.map(ModelEvent::Signature));
            }
        }
    }

    fn call(&mut self, call: FunctionCallChunk, signature: Option<String>, events: &mut Vec<ModelEvent>) {
        let Some(name) = call.name.filter(|name| !name.is_empty()) else {
            return events.push(failed(ErrorKind::Server, "the model made a tool call without a name", None));
        };
        let own_id = call.id.unwrap_or_default();
        let arguments = call.args.map_or_else(String::new, |args| args.get().to_owned());
        let is_same = |received: &ReceivedCall| {
            received.name == name && received.arguments == arguments && received.own_id == own_id
        };
        // A confused model repeats a call in every chunk; two equal calls without ids in one chunk are intended.
        if self.calls.iter().any(|received| is_same(received) && (received.chunk != self.chunks || !own_id.is_empty()))
        {
            return;
        }
        let index = self.calls.len();
        let id = if own_id.is_empty() || self.calls.iter().any(|received| received.id == own_id) {
            self.generate_id(index)
        } else {
            own_id.clone()
        };
        let delta = CallDelta { index, id: Some(id.clone()), name: Some(name.clone()), arguments: arguments.clone() };
        self.calls.push(ReceivedCall { own_id, id, name, arguments, chunk: self.chunks });
        events.push(ModelEvent::Call(delta));
        events.extend(signature.map(|signature| ModelEvent::Signature(Signature::Call(index, signature))));
    }

    /// Generates a call id that is unique in this answer and across answers.
    fn generate_id(&self, index: usize) -> String {
        let answer: String = self.response_id.chars().filter(char::is_ascii_alphanumeric).collect();
        let mut id = format!("call{answer}n{index}");
        while self.calls.iter().any(|received| received.id == id) {
            id.push('x');
        }
        id
    }
}

/// Meaning of a finish reason.
enum FinishMeaning {
    None,
    Good(StopReason),
    Bad(ErrorKind, &'static str),
}

fn finish_meaning(reason: &str) -> FinishMeaning {
    match reason {
        "" | "FINISH_REASON_UNSPECIFIED" => FinishMeaning::None,
        "STOP" => FinishMeaning::Good(StopReason::Stop),
        "MAX_TOKENS" | "CONTINUATION" => FinishMeaning::Good(StopReason::Length),
        "SAFETY"
        | "BLOCKLIST"
        | "PROHIBITED_CONTENT"
        | "SPII"
        | "LANGUAGE"
        | "MODEL_ARMOR"
        | "IMAGE_SAFETY"
        | "IMAGE_PROHIBITED_CONTENT" => {
            FinishMeaning::Bad(ErrorKind::ContentFilter, "the provider's content filter stopped the answer")
        }
        "RECITATION" | "IMAGE_RECITATION" => FinishMeaning::Bad(
            ErrorKind::ContentFilter,
            "the provider stopped the answer because it repeats existing text",
        ),
        "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" | "TOO_MANY_TOOL_CALLS" => {
            FinishMeaning::Bad(ErrorKind::Server, "the model made an invalid tool call")
        }
        "MISSING_THOUGHT_SIGNATURE" => {
            FinishMeaning::Bad(ErrorKind::Rejected, "a thought signature is missing in the conversation")
        }
        // Unknown reasons are more likely failures, because a success would not need a new name.
        _ => FinishMeaning::Bad(ErrorKind::Server, "the provider stopped the answer"),
    }
}

fn failed(kind: ErrorKind, message: &str, why: Option<String>) -> ModelEvent {
    let why = why.filter(|why| !why.trim().is_empty());
    let why = why.map(|why| format!(": {}", why.trim())).unwrap_or_default();
    ModelEvent::Failed(Error::new(kind, format!("{message}{why}")))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(chunks: &[Value]) -> Vec<ModelEvent> {
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
    fn only_the_last_finish_reason_counts() {
        let text = |text: &str| ModelEvent::Text(text.to_owned());
        let done = |stop| ModelEvent::Done(AnswerEnd { stop, usage: Usage::default() });
        let stop = Some("STOP");
        let length = Some("MAX_TOKENS");
        let each = [chunk("a", stop), chunk("b", stop), chunk("c", length)];
        assert_eq!(read(&each), [text("a"), text("b"), text("c"), done(StopReason::Length)]);
        let early = [chunk("", stop), chunk("a", None), chunk("b", stop)];
        assert_eq!(read(&early), [text("a"), text("b"), done(StopReason::Stop)]);
        assert_eq!(read(&early[..2]), [text("a"), truncated_event()]);
    }
}
