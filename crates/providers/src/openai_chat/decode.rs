//! Decoder for responses of the Chat Completions API.

use homard_model::{
    Error, ErrorKind, ModelEvent, Signature,
    classify::classify,
    stream::{AnswerEnd, CallDelta},
};
use homard_proto::message::{StopReason, Usage};
use serde_json::Value;

use super::chunk::{CallPiece, Choice, Chunk, Delta, DeltaContent, Text};
use crate::{
    sse::Frame,
    wire::{Decode, malformed_event, truncated_event},
};

/// Decoder state.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    calls: Vec<OpenCall>,
    /// Field that contained the current reasoning; it is sent back in the same one.
    reasoning: Option<&'static str>,
    /// Encrypted reasoning that belongs to a call, by call id.
    details: Vec<(String, String)>,
    has_begun: bool,
    stop: Option<StopReason>,
    usage: Usage,
}

/// A tool call that is being streamed. Its position in [`Decoder::calls`] is the index in emitted events.
#[derive(Debug)]
struct OpenCall {
    /// The server's index, if any. Some servers use the same one for every call.
    index: Option<u64>,
    id: Option<String>,
    named: bool,
}

impl Decode for Decoder {
    fn push(&mut self, frame: &Frame, events: &mut Vec<ModelEvent>) {
        if frame.data.trim() == "[DONE]" {
            let stop = self.stop.unwrap_or_else(|| self.natural_stop());
            // An end without a beginning is not an answer.
            events.extend(self.signatures());
            events.push(if self.has_begun { self.done(stop) } else { truncated_event() });
            return;
        }
        match serde_json::from_str::<Chunk<'_>>(&frame.data) {
            Ok(chunk) if chunk.is_error() => events.push(ModelEvent::Failed(classify(None, &[], &frame.data))),
            Ok(chunk) => self.chunk(chunk, events),
            Err(error) => events.push(malformed_event(frame, &error)),
        }
    }

    fn finish(&mut self) -> ModelEvent {
        // Some servers omit the end marker; a finish reason is sufficient.
        self.stop.map_or_else(truncated_event, |stop| self.done(stop))
    }
}

impl Decoder {
    fn done(&self, stop: StopReason) -> ModelEvent {
        ModelEvent::Done(AnswerEnd { stop, usage: self.usage.clone() })
    }

    fn natural_stop(&self) -> StopReason {
        if self.calls.is_empty() { StopReason::Stop } else { StopReason::ToolUse }
    }

    fn chunk(&mut self, chunk: Chunk<'_>, events: &mut Vec<ModelEvent>) {
        if let Some(tokens) = chunk.usage.or(chunk.x_groq.and_then(|groq| groq.usage)) {
            self.usage = tokens.into();
        }
        // One choice was requested; of several, the first is used.
        let mut choices = chunk.choices.unwrap_or_default().into_iter();
        let Some(choice) = choices.find(|choice| choice.index.unwrap_or(0) == 0) else { return };
        self.has_begun = true;
        self.choice(choice, events);
    }

    fn choice(&mut self, choice: Choice<'_>, events: &mut Vec<ModelEvent>) {
        if let Some(tokens) = choice.usage {
            self.usage = tokens.into();
        }
        self.delta(choice.delta.unwrap_or_default(), events);
        let failed = |kind, message: &str| ModelEvent::Failed(Error::new(kind, message));
        match choice.finish_reason.as_ref().map(|reason| &*reason.0) {
            None | Some("") => return,
            Some("length" | "model_length") => self.stop = Some(StopReason::Length),
            Some("tool_calls" | "function_call") => self.stop = Some(StopReason::ToolUse),
            Some("content_filter") => {
                events.push(failed(ErrorKind::ContentFilter, "the provider's content filter stopped the answer"));
            }
            Some("insufficient_system_resource") => {
                events.push(failed(
                    ErrorKind::Overloaded,
                    "the provider ran out of resources in the middle of the answer",
                ));
            }
            Some("error" | "network_error") => {
                events.push(failed(ErrorKind::Server, "the provider failed in the middle of the answer"));
            }
            // Not only `stop`: servers have other names, and some use it although they expect a tool result.
            Some(_) => self.stop = Some(self.natural_stop()),
        }
        events.extend(self.signatures());
    }

    fn delta(&mut self, delta: Delta<'_>, events: &mut Vec<ModelEvent>) {
        let non_empty = |text: Option<Text<'_>>| text.map(|text| text.0.into_owned()).filter(|text| !text.is_empty());
        for detail in delta.reasoning_details.unwrap_or_default() {
            if let (Some("reasoning.encrypted"), Some(id)) = (detail["type"].as_str(), detail["id"].as_str()) {
                self.details.push((id.to_owned(), detail.to_string()));
            }
        }
        // Servers that send several of these fields send the same text in each.
        let by_field = [
            ("reasoning_content", non_empty(delta.reasoning_content)),
            ("reasoning", non_empty(delta.reasoning)),
            ("reasoning_text", non_empty(delta.reasoning_text)),
        ];
        if let Some((field, text)) = by_field.into_iter().find_map(|(field, text)| Some((field, text?))) {
            self.reasoning.get_or_insert(field);
            events.push(ModelEvent::Thinking(text));
        }
        let (reasoning, text) = match delta.content {
            Some(DeltaContent { reasoning, text }) => (reasoning, text.into_owned()),
            None => Default::default(),
        };
        events.extend((!reasoning.is_empty()).then_some(ModelEvent::Thinking(reasoning)));
        for text in [Some(text), non_empty(delta.refusal)].into_iter().flatten().filter(|text| !text.is_empty()) {
            events.extend(self.end_reasoning());
            events.push(ModelEvent::Text(text));
        }
        for part in delta.tool_calls.unwrap_or_default() {
            events.extend(self.end_reasoning());
            events.push(ModelEvent::Call(self.call(part)));
        }
    }

    fn end_reasoning(&mut self) -> Option<ModelEvent> {
        self.reasoning.take().map(|field| ModelEvent::Signature(Signature::Thinking(field.to_owned())))
    }

    /// Returns the remaining signatures at the end of the answer: of open reasoning, and of calls.
    fn signatures(&mut self) -> Vec<ModelEvent> {
        let mut signatures: Vec<_> = self.end_reasoning().into_iter().collect();
        for (id, detail) in self.details.drain(..) {
            let call = self.calls.iter().position(|call| call.id.as_ref() == Some(&id));
            signatures.extend(call.map(|call| ModelEvent::Signature(Signature::Call(call, detail))));
        }
        signatures
    }

    fn call(&mut self, part: CallPiece<'_>) -> CallDelta {
        let id = part.id.map(|id| id.0.into_owned()).filter(|id| !id.is_empty());
        let function = part.function.unwrap_or_default();
        let name = function.name.map(|name| name.0.into_owned()).filter(|name| !name.is_empty());
        let index = self.find_call(part.index, id.as_deref(), name.is_some());
        let call = &mut self.calls[index];
        // Some servers repeat id and name with every part; the reader expects them once.
        let id = if call.id.is_none() { id } else { None };
        let name = if call.named { None } else { name };
        if id.is_some() {
            call.id.clone_from(&id);
        }
        call.named |= name.is_some();
        let arguments = match function.arguments {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text,
            // Some servers send the arguments as JSON and not as a string.
            Some(json) => json.to_string(),
        };
        CallDelta { index, id, name, arguments }
    }

    /// Returns the call that a part belongs to; a new one if it matches none.
    fn find_call(&mut self, index: Option<u64>, id: Option<&str>, named: bool) -> usize {
        let existing = match (id, index) {
            (Some(id), _) => {
                let is_same =
                    |call: &OpenCall| call.index == index && call.id.as_deref().is_none_or(|existing| existing == id);
                self.calls.iter().rposition(is_same)
            }
            (None, Some(_)) => self.calls.iter().rposition(|call| call.index == index),
            // Without both, only a name indicates a new call.
            (None, None) => self.calls.len().checked_sub(1).filter(|last| !(named && self.calls[*last].named)),
        };
        existing.unwrap_or_else(|| {
            self.calls.push(OpenCall { index, id: None, named: false });
            self.calls.len() - 1
        })
    }
}
