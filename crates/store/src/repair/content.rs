//! Repairs the content of messages: blank texts, images, arguments, reasoning and its signatures.

use std::sync::Arc;

use homard_proto::message::{Assistant, Block, Content, Message, TextBlock, ThinkingBlock, ToolCall};
use serde_json::{Map, Value};

use super::policy::{BlankPolicy, ProviderPolicy, SignaturePolicy};

/// Maximum size of an image in bytes that providers accept.
const MAX_IMAGE: usize = 5 << 20;

/// Replacement for the empty output of a tool.
const NO_OUTPUT: &str = "(no output)";

/// The two spellings of the signature on a call or a text.
const SIGNATURE_FIELDS: [&str; 2] = ["thoughtSignature", "thought_signature"];

/// Decision about a block.
enum BlockDecision {
    Kept,
    Dropped,
    Replaced(Block),
}

/// Removes from the messages what the provider does not accept; a message without remaining content is dropped.
pub(super) fn clean(history: &mut Vec<Arc<Message>>, policy: &ProviderPolicy) {
    history.retain_mut(|message| {
        let (cleaned, is_empty) = match &**message {
            Message::User(user) => {
                let cleaned = match &user.content {
                    Content::Blocks(blocks) => rewritten(blocks, |block| input_block(block, policy.blanks)),
                    Content::Text(_) => None,
                };
                let is_empty = match (&user.content, &cleaned) {
                    (Content::Text(text), _) => policy.blanks == BlankPolicy::Dropped && text.trim().is_empty(),
                    (Content::Blocks(blocks), None) => is_unusable(blocks),
                    (Content::Blocks(_), Some(blocks)) => is_unusable(blocks),
                };
                (cleaned, is_empty)
            }
            Message::Assistant(assistant) => {
                let cleaned = assistant_blocks(assistant, policy);
                let is_empty = is_unusable(cleaned.as_deref().unwrap_or(&assistant.content));
                (cleaned, is_empty)
            }
            Message::ToolResult(result) => {
                let mut cleaned = rewritten(&result.content, |block| input_block(block, policy.blanks));
                let is_blank = is_unusable(cleaned.as_deref().unwrap_or(&result.content));
                if policy.blanks == BlankPolicy::Dropped && is_blank {
                    cleaned = Some(vec![Block::text(NO_OUTPUT)]);
                }
                (cleaned, false)
            }
            Message::Other(_) => (None, true),
        };
        if let Some(blocks) = cleaned.filter(|_| !is_empty) {
            set(Arc::make_mut(message), blocks);
        }
        !is_empty
    });
}

/// Replaces the content of a message by these blocks.
fn set(message: &mut Message, blocks: Vec<Block>) {
    match message {
        Message::User(user) => user.content = Content::Blocks(blocks),
        Message::Assistant(assistant) => assistant.content = blocks,
        Message::ToolResult(result) => result.content = blocks,
        Message::Other(_) => {}
    }
}

/// True if the blocks contain nothing that any provider understands.
fn is_unusable(blocks: &[Block]) -> bool {
    blocks.iter().all(|block| matches!(block, Block::Other(_)))
}

/// Applies a decision to each block; `None` if all are kept.
fn rewritten(blocks: &[Block], decide: impl Fn(&Block) -> BlockDecision) -> Option<Vec<Block>> {
    // Fast path: it is almost always taken, and this runs for every message of every request.
    if blocks.iter().all(|block| matches!(decide(block), BlockDecision::Kept)) {
        return None;
    }
    let rewritten_blocks = blocks.iter().filter_map(|block| match decide(block) {
        BlockDecision::Kept => Some(block.clone()),
        BlockDecision::Dropped => None,
        BlockDecision::Replaced(other) => Some(other),
    });
    Some(rewritten_blocks.collect())
}

/// Decides about a block of a user message or tool result.
fn input_block(block: &Block, blanks: BlankPolicy) -> BlockDecision {
    match block {
        Block::Text(text) if blanks == BlankPolicy::Dropped && text.text.trim().is_empty() => BlockDecision::Dropped,
        Block::Image(image) if image.data.is_empty() => BlockDecision::Dropped,
        Block::Image(image) if image.data.len() / 4 * 3 > MAX_IMAGE => {
            let size = image.data.len() / 4 * 3 / (1 << 20);
            BlockDecision::Replaced(Block::text(format!(
                "(an image of {size} MiB was left out: models accept at most 5 MiB)"
            )))
        }
        Block::Text(_) | Block::Image(_) | Block::Thinking(_) | Block::ToolCall(_) | Block::Other(_) => {
            BlockDecision::Kept
        }
    }
}

/// Returns the new blocks of an assistant message; `None` if all are kept.
fn assistant_blocks(assistant: &Assistant, policy: &ProviderPolicy) -> Option<Vec<Block>> {
    let is_own = policy.wrote(assistant);
    let length = match policy.signatures {
        SignaturePolicy::DropTrailing => {
            let last = assistant.content.iter().rposition(|block| !matches!(block, Block::Thinking(_)));
            last.map_or(0, |last| last + 1)
        }
        SignaturePolicy::Unchanged
        | SignaturePolicy::Required
        | SignaturePolicy::NoMessageIds
        | SignaturePolicy::Base64
        | SignaturePolicy::Base64Reasoning => assistant.content.len(),
    };
    let rewritten_blocks = rewritten(&assistant.content[..length], |block| match block {
        Block::Text(text) if policy.blanks == BlankPolicy::Dropped && text.text.trim().is_empty() => {
            BlockDecision::Dropped
        }
        Block::Text(text) => match without_signatures(&text.extra, policy.signatures, is_own) {
            Some(extra) => BlockDecision::Replaced(Block::Text(TextBlock { extra, ..text.clone() })),
            None => BlockDecision::Kept,
        },
        Block::Thinking(reasoning) => thinking(reasoning, policy.signatures, is_own),
        Block::ToolCall(call) => call_block(call, policy.signatures, is_own),
        Block::Image(_) | Block::Other(_) => BlockDecision::Kept,
    });
    rewritten_blocks.or_else(|| (length < assistant.content.len()).then(|| assistant.content[..length].to_vec()))
}

/// Decides about a reasoning block: reasoning of another model becomes text, the model's own is returned as its
/// provider requires.
fn thinking(reasoning: &ThinkingBlock, signature_policy: SignaturePolicy, is_own: bool) -> BlockDecision {
    let as_text = || match reasoning.thinking.trim().is_empty() {
        true => BlockDecision::Dropped,
        false => BlockDecision::Replaced(Block::text(&reasoning.thinking)),
    };
    if !is_own {
        let is_redacted = reasoning.extra.get("redacted").and_then(Value::as_bool).unwrap_or(false);
        return if is_redacted { BlockDecision::Dropped } else { as_text() };
    }
    let signature = reasoning.thinking_signature.as_deref().filter(|signature| !signature.trim().is_empty());
    match (signature_policy, signature) {
        (SignaturePolicy::Required, None) => as_text(),
        (SignaturePolicy::Base64Reasoning, signature) if !signature.is_some_and(is_base64) => BlockDecision::Dropped,
        (
            SignaturePolicy::Unchanged
            | SignaturePolicy::Required
            | SignaturePolicy::DropTrailing
            | SignaturePolicy::NoMessageIds,
            _,
        )
        | (SignaturePolicy::Base64 | SignaturePolicy::Base64Reasoning, _) => BlockDecision::Kept,
    }
}

/// Decides about a call: its arguments must be an object, and it must not have a signature that the provider rejects.
fn call_block(call: &ToolCall, signature_policy: SignaturePolicy, is_own: bool) -> BlockDecision {
    let arguments = match &call.arguments {
        Value::Object(_) => None,
        // Another spelling of the field, or a model wrote something that is not an object.
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Some(
            call.extra.get("input").filter(|input| input.is_object()).cloned().unwrap_or(Value::Object(Map::new())),
        ),
    };
    let extra = without_signatures(&call.extra, signature_policy, is_own);
    if arguments.is_none() && extra.is_none() {
        return BlockDecision::Kept;
    }
    BlockDecision::Replaced(Block::ToolCall(ToolCall {
        id: call.id.clone(),
        name: call.name.clone(),
        arguments: arguments.unwrap_or_else(|| call.arguments.clone()),
        extra: extra.unwrap_or_else(|| call.extra.clone()),
    }))
}

/// Returns the fields without the signatures that must be removed; `None` if there are none.
fn without_signatures(
    fields: &Map<String, Value>,
    signature_policy: SignaturePolicy,
    is_own: bool,
) -> Option<Map<String, Value>> {
    let is_rejected = |signature: &Value| match signature_policy {
        _ if !is_own => true,
        SignaturePolicy::NoMessageIds => signature.as_str().is_some_and(|signature| signature.starts_with("msg_")),
        SignaturePolicy::Base64 => !signature.as_str().is_some_and(is_base64),
        SignaturePolicy::Unchanged
        | SignaturePolicy::Required
        | SignaturePolicy::DropTrailing
        | SignaturePolicy::Base64Reasoning => false,
    };
    let rejected: Vec<_> =
        SIGNATURE_FIELDS.into_iter().filter(|name| fields.get(*name).is_some_and(is_rejected)).collect();
    (!rejected.is_empty()).then(|| {
        let mut fields = fields.clone();
        fields.retain(|name, _| !rejected.contains(&name.as_str()));
        fields
    })
}

fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    let is_base64_char = |c: char| c.is_ascii_alphanumeric() || c == '+' || c == '/';
    !body.is_empty() && text.len() - body.len() <= 2 && text.len().is_multiple_of(4) && body.chars().all(is_base64_char)
}
