//! Decoder for responses of the Messages API.

use std::{borrow::Cow, collections::BTreeMap};

use homard_model::{
    Error, ErrorKind, ModelEvent, Signature,
    classify::classify,
    stream::{AnswerEnd, CallDelta},
};
use homard_proto::message::{StopReason, Usage};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use crate::{
    sse::Frame,
    wire::{Decode, malformed_event, truncated_event},
};

/// Decoder state.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// Content blocks that have started and not ended, by their index in the answer.
    open: BTreeMap<u64, OpenBlock>,
    calls: usize,
    has_begun: bool,
    stop: Option<StopReason>,
    usage: Usage,
}

/// A content block of the answer whose start was received, but not its end.
#[derive(Debug)]
enum OpenBlock {
    Text,
    Thinking {
        signature: String,
    },
    /// A tool call. `full_input` contains the arguments if the start of the block did; partial arguments that follow
    /// replace them.
    Call {
        index: usize,
        full_input: String,
    },
    /// A block whose deltas are ignored: redacted reasoning, or a kind that was not requested.
    Other,
}

impl Decode for Decoder {
    fn push(&mut self, frame: &Frame, events: &mut Vec<ModelEvent>) {
        let event = match serde_json::from_str::<Data<'_>>(&frame.data) {
            Ok(event) => event,
            Err(error) => return events.push(malformed_event(frame, &error)),
        };
        // By the data and not by the name of the event, which some servers omit.
        match &*event.r#type {
            "message_start" => {
                self.has_begun = true;
                self.count(event.message.and_then(|message| message.usage));
            }
            "content_block_start" => self.begin(event.index, event.content_block.unwrap_or_default(), events),
            "content_block_delta" => self.delta(event.index, event.delta.unwrap_or_default(), events),
            "content_block_stop" => events.extend(self.end(event.index)),
            "message_delta" => {
                self.count(event.usage);
                let Delta { stop_reason, stop_details, .. } = event.delta.unwrap_or_default();
                let why = stop_details.and_then(|details| non_empty(details.explanation));
                self.stopped(stop_reason.as_ref().map(|reason| &*reason.0), why, events);
            }
            "message_stop" => events.push(self.last()),
            "error" => events.push(ModelEvent::Failed(classify(None, &[], &frame.data))),
            // Some servers send an error without its type.
            _ if event.error.is_some() => events.push(ModelEvent::Failed(classify(None, &[], &frame.data))),
            // `ping`, and future types.
            _ => events.push(ModelEvent::Heartbeat),
        }
    }

    fn finish(&mut self) -> ModelEvent {
        // Without the event for the end of the message, a stop reason ends the answer if every block has ended.
        if self.stop.is_some() && self.open.is_empty() { self.last() } else { truncated_event() }
    }
}

impl Decoder {
    /// Returns the final event: the end of the answer, or a failure if the answer has not begun.
    fn last(&self) -> ModelEvent {
        if !self.has_begun {
            return truncated_event();
        }
        let default_stop = if self.calls > 0 { StopReason::ToolUse } else { StopReason::Stop };
        ModelEvent::Done(AnswerEnd { stop: self.stop.unwrap_or(default_stop), usage: self.usage.clone() })
    }

    fn stopped(&mut self, reason: Option<&str>, why: Option<String>, events: &mut Vec<ModelEvent>) {
        match reason {
            None => {}
            Some("max_tokens" | "model_context_window_exceeded") => self.stop = Some(StopReason::Length),
            Some("tool_use") => self.stop = Some(StopReason::ToolUse),
            Some("refusal" | "sensitive") => {
                let why = why.map(|why| format!(": {}", why.trim_end_matches('.'))).unwrap_or_default();
                let message = format!("the model refused to answer{why}");
                events.push(ModelEvent::Failed(Error::new(ErrorKind::ContentFilter, message)));
            }
            // `end_turn`, `stop_sequence`, and `pause_turn`, after which the next request continues.
            Some(_) => self.stop = Some(StopReason::Stop),
        }
    }

    fn count(&mut self, tokens: Option<MessageUsage>) {
        let Some(tokens) = tokens else { return };
        // Every count contains the totals; some servers know them only at the end, and send zero before.
        let update = |current: &mut u64, reported: Option<u64>| {
            *current = reported.filter(|reported| *reported > 0).unwrap_or(*current)
        };
        let usage = &mut self.usage;
        update(&mut usage.input, tokens.input_tokens);
        update(&mut usage.output, tokens.output_tokens);
        update(&mut usage.cache_read, tokens.cache_read_input_tokens);
        update(&mut usage.cache_write, tokens.cache_creation_input_tokens);
        let parts = [usage.output, usage.cache_read, usage.cache_write];
        usage.total_tokens = parts.into_iter().fold(usage.input, u64::saturating_add);
    }

    fn begin(&mut self, block_index: u64, block: BlockStart<'_>, events: &mut Vec<ModelEvent>) {
        self.has_begun = true;
        let open = match &*block.r#type {
            "text" => {
                events.extend(non_empty(block.text).map(ModelEvent::Text));
                OpenBlock::Text
            }
            "thinking" => {
                events.extend(non_empty(block.thinking).map(ModelEvent::Thinking));
                OpenBlock::Thinking { signature: non_empty(block.signature).unwrap_or_default() }
            }
            "redacted_thinking" => {
                events.extend(non_empty(block.data).map(|data| ModelEvent::Signature(Signature::Redacted(data))));
                OpenBlock::Other
            }
            "tool_use" => {
                let index = self.calls;
                self.calls += 1;
                let (id, name) = (non_empty(block.id), non_empty(block.name));
                events.push(ModelEvent::Call(CallDelta { index, id, name, arguments: String::new() }));
                let full_input = block.input.filter(|input| input.as_object().is_some_and(|input| !input.is_empty()));
                OpenBlock::Call { index, full_input: full_input.map(|input| input.to_string()).unwrap_or_default() }
            }
            _ => OpenBlock::Other,
        };
        self.open.insert(block_index, open);
    }

    fn delta(&mut self, block_index: u64, delta: Delta<'_>, events: &mut Vec<ModelEvent>) {
        let open = self.open.get_mut(&block_index);
        match (&*delta.r#type, open) {
            (_, Some(OpenBlock::Other)) => {}
            ("text_delta", _) => events.extend(non_empty(delta.text).map(ModelEvent::Text)),
            ("thinking_delta", _) => events.extend(non_empty(delta.thinking).map(ModelEvent::Thinking)),
            ("signature_delta", Some(OpenBlock::Thinking { signature })) => {
                signature.extend(non_empty(delta.signature))
            }
            ("input_json_delta", Some(OpenBlock::Call { index, full_input })) => {
                if let Some(arguments) = non_empty(delta.partial_json) {
                    full_input.clear();
                    events.push(ModelEvent::Call(CallDelta { index: *index, arguments, ..CallDelta::default() }));
                }
            }
            (
                "signature_delta" | "input_json_delta",
                None | Some(OpenBlock::Text | OpenBlock::Thinking { .. } | OpenBlock::Call { .. }),
            ) => {
                let message = format!("no matching content block for {}", delta.r#type);
                events.push(ModelEvent::Failed(Error::new(ErrorKind::Malformed, message)));
            }
            // Citations, and future types.
            _ => events.push(ModelEvent::Heartbeat),
        }
    }

    fn end(&mut self, block_index: u64) -> Option<ModelEvent> {
        match self.open.remove(&block_index)? {
            OpenBlock::Thinking { signature } if !signature.is_empty() => {
                Some(ModelEvent::Signature(Signature::Thinking(signature)))
            }
            OpenBlock::Call { index, full_input } if !full_input.is_empty() => {
                Some(ModelEvent::Call(CallDelta { index, arguments: full_input, ..CallDelta::default() }))
            }
            OpenBlock::Text | OpenBlock::Thinking { .. } | OpenBlock::Call { .. } | OpenBlock::Other => None,
        }
    }
}

fn non_empty(text: Option<Text<'_>>) -> Option<String> {
    text.map(|text| text.0.into_owned()).filter(|text| !text.is_empty())
}

/// Data of an event; the fields depend on its type.
#[derive(Deserialize)]
struct Data<'a> {
    #[serde(borrow, default)]
    r#type: Cow<'a, str>,
    #[serde(default)]
    index: u64,
    message: Option<Message>,
    #[serde(borrow)]
    content_block: Option<BlockStart<'a>>,
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    usage: Option<MessageUsage>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Message {
    usage: Option<MessageUsage>,
}

#[derive(Deserialize, Default)]
struct BlockStart<'a> {
    #[serde(borrow, default)]
    r#type: Cow<'a, str>,
    #[serde(borrow)]
    text: Option<Text<'a>>,
    #[serde(borrow)]
    thinking: Option<Text<'a>>,
    #[serde(borrow)]
    signature: Option<Text<'a>>,
    #[serde(borrow)]
    data: Option<Text<'a>>,
    #[serde(borrow)]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    name: Option<Text<'a>>,
    input: Option<Value>,
}

#[derive(Deserialize, Default)]
struct Delta<'a> {
    #[serde(borrow, default)]
    r#type: Cow<'a, str>,
    #[serde(borrow)]
    text: Option<Text<'a>>,
    #[serde(borrow)]
    thinking: Option<Text<'a>>,
    #[serde(borrow)]
    signature: Option<Text<'a>>,
    #[serde(borrow)]
    partial_json: Option<Text<'a>>,
    #[serde(borrow)]
    stop_reason: Option<Text<'a>>,
    #[serde(borrow)]
    stop_details: Option<Details<'a>>,
}

#[derive(Deserialize)]
struct Details<'a> {
    #[serde(borrow)]
    explanation: Option<Text<'a>>,
}

/// A string that is copied only if it contains escapes; an `Option<Cow<str>>` always would be.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
struct MessageUsage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
}
