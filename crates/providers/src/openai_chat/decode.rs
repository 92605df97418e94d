//! An answer in the chunks of Chat Completions.

use std::borrow::Cow;

use homard_model::{
    Error, ErrorKind, Event,
    stream::{CallDelta, Done},
};
use homard_proto::message::{StopReason, Usage};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

/// An answer that is being read. Pure: the data of the events goes in, the pieces of the answer come out.
///
/// It says [`Event::Done`] or [`Event::Failed`] once, and nothing after it.
#[derive(Debug, Default)]
pub struct Decoder {
    calls: Vec<Call>,
    stop: Option<StopReason>,
    usage: Usage,
    ended: bool,
}

/// A call that has begun. Its place in the list is its index for the reader.
#[derive(Debug)]
struct Call {
    /// The server's index, if it gave one. Some servers give every call the same.
    index: Option<u64>,
    id: Option<String>,
    named: bool,
}

impl Decoder {
    /// Takes the data of one event.
    pub fn push(&mut self, data: &str) -> Vec<Event> {
        let mut events = Vec::new();
        if self.ended {
            return events;
        }
        if data.trim() == "[DONE]" {
            events.push(self.end(Event::Done(Done {
                stop: self.stop.unwrap_or_else(|| self.natural_stop()),
                usage: self.usage.clone(),
            })));
            return events;
        }
        match serde_json::from_str::<Chunk<'_>>(data) {
            Ok(chunk) => self.chunk(chunk, &mut events),
            Err(error) => {
                let error =
                    Error::new(ErrorKind::Malformed, format!("a chunk is not what it should be ({error}): {data}"));
                events.push(self.end(Event::Failed(error)));
            }
        }
        events
    }

    /// Takes note that the body is over. `None` if the answer had ended before.
    pub fn finish(&mut self) -> Option<Event> {
        if self.ended {
            return None;
        }
        // Some servers leave out the end marker; the reason to stop is as good.
        let last = match self.stop {
            Some(stop) => Event::Done(Done { stop, usage: self.usage.clone() }),
            None => Event::Failed(Error::new(ErrorKind::Truncated, "the answer broke off before its end")),
        };
        Some(self.end(last))
    }

    /// Whether the answer has ended.
    pub fn ended(&self) -> bool {
        self.ended
    }

    fn end(&mut self, last: Event) -> Event {
        self.ended = true;
        last
    }

    fn natural_stop(&self) -> StopReason {
        if self.calls.is_empty() { StopReason::Stop } else { StopReason::ToolUse }
    }

    fn chunk(&mut self, chunk: Chunk<'_>, events: &mut Vec<Event>) {
        if let Some(error) = chunk.error {
            events.push(self.end(Event::Failed(failure(error.get()))));
            return;
        }
        if let Some(tokens) = chunk.usage {
            self.usage = tokens.into();
        }
        // One answer was asked for; a server that sends more is heard for the first.
        let Some(choice) = chunk.choices.unwrap_or_default().into_iter().find(|choice| choice.index.unwrap_or(0) == 0)
        else {
            return;
        };
        if let Some(tokens) = choice.usage {
            self.usage = tokens.into();
        }
        let delta = choice.delta.unwrap_or_default();
        let filled = |text: Option<Text<'_>>| text.map(|text| text.0.into_owned()).filter(|text| !text.is_empty());
        // Servers that send both names send the same words twice.
        events.extend(filled(delta.reasoning_content).or(filled(delta.reasoning)).map(Event::Thinking));
        events.extend(filled(delta.content).map(Event::Text));
        events.extend(filled(delta.refusal).map(Event::Text));
        for piece in delta.tool_calls.unwrap_or_default() {
            events.push(Event::Call(self.call(piece)));
        }
        match choice.finish_reason.as_ref().map(|reason| &*reason.0) {
            None | Some("") => {}
            Some("length") => self.stop = Some(StopReason::Length),
            Some("tool_calls" | "function_call") => self.stop = Some(StopReason::ToolUse),
            Some("content_filter") => {
                let error = Error::new(ErrorKind::Rejected, "the provider's content filter stopped the answer");
                events.push(self.end(Event::Failed(error)));
            }
            Some("error") => {
                let error = Error::new(ErrorKind::Server, "the provider failed in the middle of the answer");
                events.push(self.end(Event::Failed(error)));
            }
            // Not only `stop`: servers have their own words, and some say it although they want a call answered.
            Some(_) => self.stop = Some(self.natural_stop()),
        }
    }

    fn call(&mut self, piece: CallPiece<'_>) -> CallDelta {
        let id = piece.id.map(|id| id.0.into_owned()).filter(|id| !id.is_empty());
        let function = piece.function.unwrap_or_default();
        let name = function.name.map(|name| name.0.into_owned()).filter(|name| !name.is_empty());
        let index = self.place(piece.index, id.as_deref(), name.is_some());
        let call = &mut self.calls[index];
        // Some servers repeat id and name with every piece; the reader wants them once.
        let id = if call.id.is_none() { id } else { None };
        let name = if call.named { None } else { name };
        if id.is_some() {
            call.id.clone_from(&id);
        }
        call.named |= name.is_some();
        CallDelta { index, id, name, arguments: function.arguments.map(|text| text.0.into_owned()).unwrap_or_default() }
    }

    /// Which call a piece belongs to; a new one if it fits none.
    fn place(&mut self, index: Option<u64>, id: Option<&str>, named: bool) -> usize {
        let known = match (id, index) {
            (Some(id), _) => {
                let fits = |call: &Call| call.index == index && call.id.as_deref().is_none_or(|known| known == id);
                self.calls.iter().rposition(fits)
            }
            (None, Some(_)) => self.calls.iter().rposition(|call| call.index == index),
            // With neither, a name is the only sign of a new call.
            (None, None) => self.calls.len().checked_sub(1).filter(|last| !(named && self.calls[*last].named)),
        };
        known.unwrap_or_else(|| {
            self.calls.push(Call { index, id: None, named: false });
            self.calls.len() - 1
        })
    }
}

/// What a provider says in the middle of a stream, instead of a status.
fn failure(raw: &str) -> Error {
    let error: Value = serde_json::from_str(raw).unwrap_or_default();
    let message = match error.get("message").unwrap_or(&error) {
        Value::String(message) => message.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => raw.to_owned(),
    };
    let field = |name| match error.get(name) {
        Some(Value::String(text)) => text.to_lowercase(),
        Some(Value::Number(number)) => number.to_string(),
        _ => String::new(),
    };
    let (code, r#type) = (field("code"), field("type"));
    let status = code.parse().ok().filter(|status| (400..600).contains(status));
    let says = |word| code.contains(word) || r#type.contains(word);
    let kind = match status {
        Some(status) => crate::http::kind_of(status),
        None if says("rate_limit") || says("too_many") => ErrorKind::RateLimit,
        None if says("auth") || says("permission") || says("api_key") || says("quota") => ErrorKind::Auth,
        None if says("invalid") || says("context_length") || says("not_found") => ErrorKind::Rejected,
        None => ErrorKind::Server,
    };
    Error { kind, status, retry_after: None, message }
}

#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    choices: Option<Vec<Choice<'a>>>,
    usage: Option<Tokens>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    #[serde(borrow)]
    finish_reason: Option<Text<'a>>,
    usage: Option<Tokens>,
}

#[derive(Deserialize, Default)]
struct Delta<'a> {
    #[serde(borrow)]
    content: Option<Text<'a>>,
    #[serde(borrow)]
    reasoning_content: Option<Text<'a>>,
    #[serde(borrow)]
    reasoning: Option<Text<'a>>,
    #[serde(borrow)]
    refusal: Option<Text<'a>>,
    #[serde(borrow)]
    tool_calls: Option<Vec<CallPiece<'a>>>,
}

#[derive(Deserialize)]
struct CallPiece<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    id: Option<Text<'a>>,
    #[serde(borrow)]
    function: Option<FunctionPiece<'a>>,
}

#[derive(Deserialize, Default)]
struct FunctionPiece<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
    #[serde(borrow)]
    arguments: Option<Text<'a>>,
}

/// A text that is copied only where it has escapes; an `Option<Cow<str>>` would always be.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
struct Tokens {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    total_tokens: Option<u64>,
    prompt_tokens_details: Option<PromptTokens>,
}

#[derive(Deserialize)]
struct PromptTokens {
    cached_tokens: Option<u64>,
}

impl From<Tokens> for Usage {
    fn from(tokens: Tokens) -> Self {
        let prompt = tokens.prompt_tokens.unwrap_or(0);
        let output = tokens.completion_tokens.unwrap_or(0);
        let cache_read = tokens.prompt_tokens_details.and_then(|details| details.cached_tokens).unwrap_or(0);
        Self {
            input: prompt.saturating_sub(cache_read),
            output,
            cache_read,
            total_tokens: tokens.total_tokens.unwrap_or(prompt.saturating_add(output)),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_last(event: &Event) -> bool {
        matches!(event, Event::Done(_) | Event::Failed(_))
    }

    fn chunk() -> impl Strategy<Value = String> {
        prop_oneof![
            Just(r#"{"choices":[{"delta":{"content":"a"}}]}"#.to_owned()),
            Just(r#"{"choices":[{"delta":{"tool_calls":[{"id":"x","function":{"arguments":"{"}},{}]}}]}"#.to_owned()),
            Just(r#"{"choices":[{"delta":null,"finish_reason":"stop"}]}"#.to_owned()),
            Just(r#"{"choices":null,"error":null,"usage":null}"#.to_owned()),
            Just(r#"{"error":{"code":429}}"#.to_owned()),
            Just("{}".to_owned()),
            Just("[DONE]".to_owned()),
            "\\PC*",
        ]
    }

    proptest! {
        #[test]
        fn any_chunks_end_exactly_once_and_last(chunks in proptest::collection::vec(chunk(), 0..8)) {
            let mut decoder = Decoder::default();
            let mut events: Vec<_> = chunks.iter().flat_map(|chunk| decoder.push(chunk)).collect();
            events.extend(decoder.finish());
            prop_assert_eq!(events.iter().filter(|event| is_last(event)).count(), 1);
            prop_assert!(events.last().is_some_and(is_last));
            prop_assert_eq!(decoder.finish(), None);
            prop_assert_eq!(decoder.push("[DONE]"), Vec::new());
        }
    }
}
