//! Chunks of a Gemini response, as far as they are read. All fields are optional.

use homard_proto::message::Usage;
use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Chunk {
    pub(super) error: Option<Box<RawValue>>,
    pub(super) candidates: Option<Vec<Candidate>>,
    pub(super) prompt_feedback: Option<Feedback>,
    pub(super) usage_metadata: Option<UsageMetadata>,
    pub(super) response_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Feedback {
    pub(super) block_reason: Option<String>,
    pub(super) block_reason_message: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Candidate {
    pub(super) index: Option<u64>,
    pub(super) content: Option<Content>,
    pub(super) finish_reason: Option<String>,
    pub(super) finish_message: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Content {
    pub(super) parts: Option<Vec<ChunkPart>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ChunkPart {
    pub(super) text: Option<String>,
    pub(super) thought: Option<bool>,
    pub(super) thought_signature: Option<String>,
    pub(super) function_call: Option<FunctionCallChunk>,
}

#[derive(Deserialize)]
pub(super) struct FunctionCallChunk {
    pub(super) id: Option<String>,
    pub(super) name: Option<String>,
    /// Raw JSON, so that it is sent back in the same order.
    pub(super) args: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UsageMetadata {
    prompt_token_count: Option<u64>,
    cached_content_token_count: Option<u64>,
    candidates_token_count: Option<u64>,
    thoughts_token_count: Option<u64>,
    tool_use_prompt_token_count: Option<u64>,
    total_token_count: Option<u64>,
}

impl From<UsageMetadata> for Usage {
    fn from(tokens: UsageMetadata) -> Self {
        // Cached tokens are part of the prompt; reasoning tokens are not part of the candidates.
        let prompt = tokens.prompt_token_count.unwrap_or(0);
        let cache_read = tokens.cached_content_token_count.unwrap_or(0).min(prompt);
        let input = (prompt - cache_read).saturating_add(tokens.tool_use_prompt_token_count.unwrap_or(0));
        let candidates = tokens.candidates_token_count.unwrap_or(0);
        let output = candidates.saturating_add(tokens.thoughts_token_count.unwrap_or(0));
        let all = input.saturating_add(cache_read).saturating_add(output);
        let total_tokens = tokens.total_token_count.unwrap_or(all);
        Self { input, output, cache_read, total_tokens, ..Self::default() }
    }
}
