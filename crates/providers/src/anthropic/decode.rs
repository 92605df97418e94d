//! Decoder for responses of the Messages API.

use std::{borrow::Cow, collections::BTreeMap};

use homard_model::{
    Error, ErrorKind, Event, Seal,
    classify::classify,
    stream::{CallDelta, Done},
};
use homard_proto::message::{StopReason, Usage};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use crate::{
    sse::Frame,
    wire::{Decode, broken_off, malformed},
};

/// Decoder state.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// Open blocks by their index in the answer.
    open: BTreeMap<u64, Open>,
    calls: usize,
    has_begun: bool,
    stop: Option<StopReason>,
    usage: Usage,
}

/// An open block.
#[derive(Debug)]
enum Open {
    Text,
    Thinking {
        signature: String,
    },
    /// `whole` are arguments that arrived at once; partial ones that follow replace them.
    Call {
        index: usize,
        whole: String,
    },
    /// A block of an unrequested kind.
    Other,
}

impl Decode for Decoder {
    fn push(&mut self, frame: &Frame, events: &mut Vec<Event>) {
        let event = match serde_json::from_str::<Data<'_>>(&frame.data) {
            Ok(event) => event,
            Err(error) => return events.push(malformed(frame, &error)),
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
                let why = stop_details.and_then(|details| filled(details.explanation));
                self.stopped(stop_reason.as_ref().map(|reason| &*reason.0), why, events);
            }
            "message_stop" => events.push(self.last()),
            "error" => events.push(Event::Failed(classify(None, &[], &frame.data))),
            // Some servers send an error without its type.
            _ if event.error.is_some() => events.push(Event::Failed(classify(None, &[], &frame.data))),
            // `ping`, and future types.
            _ => events.push(Event::Alive),
        }
    }

    fn finish(&mut self) -> Event {
        // A stop reason is as good as the end event, if no block is open.
        if self.stop.is_some() && self.open.is_empty() { self.last() } else { broken_off() }
    }
}

impl Decoder {
    fn last(&self) -> Event {
        if !self.has_begun {
            return broken_off();
        }
        let natural = if self.calls > 0 { StopReason::ToolUse } else { StopReason::Stop };
        Event::Done(Done { stop: self.stop.unwrap_or(natural), usage: self.usage.clone() })
    }

    fn stopped(&mut self, reason: Option<&str>, why: Option<String>, events: &mut Vec<Event>) {
        match reason {
            None => {}
            Some("max_tokens" | "model_context_window_exceeded") => self.stop = Some(StopReason::Length),
            Some("tool_use") => self.stop = Some(StopReason::ToolUse),
            Some("refusal" | "sensitive") => {
                let why = why.map(|why| format!(": {}", why.trim_end_matches('.'))).unwrap_or_default();
                let message = format!("the model refused to answer{why}");
                events.push(Event::Failed(Error::new(ErrorKind::ContentFilter, message)));
            }
            // `end_turn`, `stop_sequence`, and `pause_turn`, after which the next request continues.
            Some(_) => self.stop = Some(StopReason::Stop),
        }
    }

    fn count(&mut self, tokens: Option<Tokens>) {
        let Some(tokens) = tokens else { return };
        // Every count contains the totals; some servers know them only at the end, and send zero before.
        let update = |known: &mut u64, told: Option<u64>| *known = told.filter(|told| *told > 0).unwrap_or(*known);
        let usage = &mut self.usage;
        update(&mut usage.input, tokens.input_tokens);
        update(&mut usage.output, tokens.output_tokens);
        update(&mut usage.cache_read, tokens.cache_read_input_tokens);
        update(&mut usage.cache_write, tokens.cache_creation_input_tokens);
        let parts = [usage.output, usage.cache_read, usage.cache_write];
        usage.total_tokens = parts.into_iter().fold(usage.input, u64::saturating_add);
    }

    fn begin(&mut self, place: u64, block: Begun<'_>, events: &mut Vec<Event>) {
        self.has_begun = true;
        let open = match &*block.r#type {
            "text" => {
                events.extend(filled(block.text).map(Event::Text));
                Open::Text
            }
            "thinking" => {
                events.extend(filled(block.thinking).map(Event::Thinking));
                Open::Thinking { signature: filled(block.signature).unwrap_or_default() }
            }
            "redacted_thinking" => {
                events.extend(filled(block.data).map(|data| Event::Seal(Seal::Redacted(data))));
                Open::Other
            }
            "tool_use" => {
                let index = self.calls;
                self.calls += 1;
                let (id, name) = (filled(block.id), filled(block.name));
                events.push(Event::Call(CallDelta { index, id, name, arguments: String::new() }));
                let whole = block.input.filter(|input| input.as_object().is_some_and(|input| !input.is_empty()));
                Open::Call { index, whole: whole.map(|input| input.to_string()).unwrap_or_default() }
            }
            _ => Open::Other,
        };
        self.open.insert(place, open);
    }

    fn delta(&mut self, place: u64, delta: Delta<'_>, events: &mut Vec<Event>) {
        let open = self.open.get_mut(&place);
        match (&*delta.r#type, open) {
            (_, Some(Open::Other)) => {}
            ("text_delta", _) => events.extend(filled(delta.text).map(Event::Text)),
            ("thinking_delta", _) => events.extend(filled(delta.thinking).map(Event::Thinking)),
            ("signature_delta", Some(Open::Thinking { signature })) => signature.extend(filled(delta.signature)),
            ("input_json_delta", Some(Open::Call { index, whole })) => {
                if let Some(arguments) = filled(delta.partial_json) {
                    whole.clear();
                    events.push(Event::Call(CallDelta { index: *index, arguments, ..CallDelta::default() }));
                }
            }
            (
                "signature_delta" | "input_json_delta",
                None | Some(Open::Text | Open::Thinking { .. } | Open::Call { .. }),
            ) => {
                let message = format!("there is no block for a {}", delta.r#type);
                events.push(Event::Failed(Error::new(ErrorKind::Malformed, message)));
            }
            // Citations, and future types.
            _ => events.push(Event::Alive),
        }
    }

    fn end(&mut self, place: u64) -> Option<Event> {
        match self.open.remove(&place)? {
            Open::Thinking { signature } if !signature.is_empty() => Some(Event::Seal(Seal::Thinking(signature))),
            Open::Call { index, whole } if !whole.is_empty() => {
                Some(Event::Call(CallDelta { index, arguments: whole, ..CallDelta::default() }))
            }
            Open::Text | Open::Thinking { .. } | Open::Call { .. } | Open::Other => None,
        }
    }
}

fn filled(text: Option<Text<'_>>) -> Option<String> {
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
    content_block: Option<Begun<'a>>,
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    usage: Option<Tokens>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Message {
    usage: Option<Tokens>,
}

#[derive(Deserialize, Default)]
struct Begun<'a> {
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
struct Tokens {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
}
