//! Events of the Responses API, as far as they are read. All fields are optional.

use homard_proto::message::Usage;
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

#[derive(Deserialize)]
pub(super) struct Chunk<'a> {
    pub(super) r#type: Option<String>,
    pub(super) sequence_number: Option<i64>,
    pub(super) output_index: Option<u64>,
    pub(super) item_id: Option<String>,
    pub(super) content_index: Option<u64>,
    pub(super) summary_index: Option<u64>,
    pub(super) delta: Option<Value>,
    text: Option<Value>,
    refusal: Option<Value>,
    arguments: Option<Value>,
    pub(super) name: Option<String>,
    pub(super) part: Option<OutputPart>,
    #[serde(borrow)]
    pub(super) item: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) response: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

impl Chunk<'_> {
    /// Returns the complete text of the part that this event ends.
    pub(super) fn whole(&mut self) -> String {
        let own = self.text.take().or_else(|| self.refusal.take()).or_else(|| self.arguments.take());
        own.map(text).or_else(|| self.part.take().map(OutputPart::into_text)).unwrap_or_default()
    }
}

/// Converts a value to text. Some servers send arguments as JSON and not as a string.
pub(super) fn text(value: Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text,
        value @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => value.to_string(),
    }
}

/// Kind of an item, parsed first, because items of other kinds may have any form.
#[derive(Deserialize)]
pub(super) struct Kind {
    pub(super) r#type: Option<String>,
}

/// An output item.
#[derive(Deserialize)]
pub(super) struct Output {
    pub(super) id: Option<String>,
    pub(super) call_id: Option<String>,
    pub(super) name: Option<String>,
    pub(super) arguments: Option<Value>,
    pub(super) phase: Option<String>,
    pub(super) content: Option<Vec<OutputPart>>,
    pub(super) summary: Option<Vec<OutputPart>>,
}

#[derive(Deserialize)]
pub(super) struct OutputPart {
    pub(super) r#type: Option<String>,
    text: Option<String>,
    refusal: Option<String>,
}

impl OutputPart {
    pub(super) fn into_text(self) -> String {
        self.text.or(self.refusal).unwrap_or_default()
    }
}

/// The answer as contained in its last event.
#[derive(Deserialize, Default)]
pub(super) struct Response<'a> {
    pub(super) status: Option<String>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
    pub(super) incomplete_details: Option<Incomplete>,
    #[serde(borrow)]
    pub(super) output: Option<Vec<&'a RawValue>>,
    pub(super) usage: Option<ResponseUsage>,
}

#[derive(Deserialize)]
pub(super) struct Incomplete {
    pub(super) reason: Option<String>,
}

/// Token usage. Reasoning is included in the output tokens.
#[derive(Deserialize)]
pub(super) struct ResponseUsage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    total_tokens: Option<u64>,
    input_tokens_details: Option<InputTokens>,
}

#[derive(Deserialize, Default)]
struct InputTokens {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
}

impl From<ResponseUsage> for Usage {
    fn from(tokens: ResponseUsage) -> Self {
        let prompt = tokens.input_tokens.unwrap_or(0);
        let details = tokens.input_tokens_details.unwrap_or_default();
        let cache_read = details.cached_tokens.unwrap_or(0).min(prompt);
        let cache_write = details.cache_write_tokens.unwrap_or(0).min(prompt - cache_read);
        let output = tokens.output_tokens.unwrap_or(0);
        Self {
            input: prompt - cache_read - cache_write,
            output,
            cache_read,
            cache_write,
            total_tokens: tokens.total_tokens.unwrap_or(prompt.saturating_add(output)),
            ..Self::default()
        }
    }
}
