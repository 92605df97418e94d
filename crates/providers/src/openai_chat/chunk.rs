//! Chunks of the Chat Completions API, as far as they are read. All fields are optional.

use std::{borrow::Cow, fmt};

use homard_proto::message::Usage;
use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor},
};
use serde_json::{Value, value::RawValue};

#[derive(Deserialize)]
pub(super) struct Chunk<'a> {
    #[serde(borrow)]
    object: Option<Text<'a>>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) choices: Option<Vec<Choice<'a>>>,
    pub(super) usage: Option<CompletionUsage>,
    pub(super) x_groq: Option<Groq>,
}

impl Chunk<'_> {
    /// True for an error in place of a chunk; servers use two formats.
    pub(super) fn is_error(&self) -> bool {
        self.error.is_some() || self.object.as_ref().is_some_and(|object| object.0 == "error")
    }
}

#[derive(Deserialize)]
pub(super) struct Groq {
    pub(super) usage: Option<CompletionUsage>,
}

#[derive(Deserialize)]
pub(super) struct Choice<'a> {
    pub(super) index: Option<u64>,
    #[serde(borrow)]
    pub(super) delta: Option<Delta<'a>>,
    #[serde(borrow)]
    pub(super) finish_reason: Option<Text<'a>>,
    pub(super) usage: Option<CompletionUsage>,
}

#[derive(Deserialize, Default)]
pub(super) struct Delta<'a> {
    #[serde(borrow)]
    pub(super) content: Option<DeltaContent<'a>>,
    #[serde(borrow)]
    pub(super) reasoning_content: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) reasoning: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) reasoning_text: Option<Text<'a>>,
    pub(super) reasoning_details: Option<Vec<Value>>,
    #[serde(borrow)]
    pub(super) refusal: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) tool_calls: Option<Vec<CallPiece<'a>>>,
}

#[derive(Deserialize)]
pub(super) struct CallPiece<'a> {
    pub(super) index: Option<u64>,
    #[serde(borrow)]
    pub(super) id: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) function: Option<FunctionPiece<'a>>,
}

#[derive(Deserialize, Default)]
pub(super) struct FunctionPiece<'a> {
    #[serde(borrow)]
    pub(super) name: Option<Text<'a>>,
    pub(super) arguments: Option<Value>,
}

/// A string that is copied only if it contains escapes; an `Option<Cow<str>>` always would be.
#[derive(Deserialize)]
pub(super) struct Text<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

/// Content: a text, or Mistral's list of texts and reasoning.
#[derive(Default)]
pub(super) struct DeltaContent<'a> {
    pub(super) reasoning: String,
    pub(super) text: Cow<'a, str>,
}

impl<'de: 'a, 'a> Deserialize<'de> for DeltaContent<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DeltaContentVisitor)
    }
}

struct DeltaContentVisitor;

impl<'de> Visitor<'de> for DeltaContentVisitor {
    type Value = DeltaContent<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or a list of text parts")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(DeltaContent { text: Cow::Borrowed(text), ..DeltaContent::default() })
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(DeltaContent { text: Cow::Owned(text.to_owned()), ..DeltaContent::default() })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        // Mistral sends a list of `{"text": "…"}` and `{"thinking": [{"text": "…"}]}`.
        let mut all = DeltaContent::default();
        while let Some(part) = list.next_element::<Value>()? {
            all.text.to_mut().push_str(part["text"].as_str().unwrap_or_default());
            let reasoning = part["thinking"].as_array().into_iter().flatten();
            all.reasoning.extend(reasoning.filter_map(|entry| entry["text"].as_str()));
        }
        Ok(all)
    }
}

#[derive(Deserialize)]
pub(super) struct CompletionUsage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    total_tokens: Option<u64>,
    prompt_tokens_details: Option<PromptTokens>,
    completion_tokens_details: Option<CompletionTokens>,
    /// DeepSeek's name for cached tokens.
    prompt_cache_hit_tokens: Option<u64>,
}

#[derive(Deserialize, Default)]
struct PromptTokens {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct CompletionTokens {
    reasoning_tokens: Option<u64>,
}

impl From<CompletionUsage> for Usage {
    fn from(tokens: CompletionUsage) -> Self {
        let prompt = tokens.prompt_tokens.unwrap_or(0);
        let details = tokens.prompt_tokens_details.unwrap_or_default();
        let cache_read = details.cached_tokens.or(tokens.prompt_cache_hit_tokens).unwrap_or(0).min(prompt);
        let cache_write = details.cache_write_tokens.unwrap_or(0).min(prompt - cache_read);
        let completion = tokens.completion_tokens.unwrap_or(0);
        let reasoning_tokens =
            tokens.completion_tokens_details.and_then(|details| details.reasoning_tokens).unwrap_or(0);
        // xAI counts reasoning separately, which only the total shows.
        let separate_total = prompt.saturating_add(completion).saturating_add(reasoning_tokens);
        let output = if tokens.total_tokens == Some(separate_total) {
            completion.saturating_add(reasoning_tokens)
        } else {
            completion
        };
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
