//! Events of a streamed answer, and their assembly into a message.

use homard_proto::message::{Block, StopReason, TextBlock, ThinkingBlock, ToolCall, Usage};
use serde_json::{Map, Value};

use crate::error::Error;

/// An event of a streamed answer.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelEvent {
    /// Text; appended to the preceding text, unless that is signed.
    Text(String),
    /// Reasoning; appended to the preceding reasoning, unless that is signed.
    Thinking(String),
    /// A part of a tool call.
    Call(CallDelta),
    /// A signature to be returned unchanged to the provider, with the block that it belongs to.
    Signature(Signature),
    /// No content: a heartbeat of the provider, or bytes of an incomplete event. Shows that the stream is alive.
    Heartbeat,
    /// No response has arrived for a while, and the request continues. Not a sign of life. The text says where the request
    /// was sent and what to check.
    NoResponse(String),
    /// Successful end.
    Done(AnswerEnd),
    /// Failed end.
    Failed(Error),
}

/// A part of a tool call. Parts of one call share their index; calls may be interleaved.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallDelta {
    /// Index of the call in this answer.
    pub index: usize,
    /// Call id, once, at the start.
    pub id: Option<String>,
    /// Tool name, once, at the start.
    pub name: Option<String>,
    /// Next part of the arguments' JSON text.
    pub arguments: String,
}

/// Opaque data that a provider attaches to a block and expects back in later requests: a signature, an item id, or
/// encrypted reasoning. Each variant names its transcript field.
///
/// It ends its block: text or reasoning after it starts a new one. A signature without a preceding block creates an
/// empty block of its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signature {
    /// Signature of the current reasoning block; stored in its field `thinkingSignature`.
    Thinking(String),
    /// Encrypted reasoning, which is a separate block; stored in its field `thinkingSignature`, with `redacted: true`.
    Redacted(String),
    /// Signature or item id of the current text block; stored in its field `textSignature`.
    Text(String),
    /// Signature of the tool call with this index; stored in its field `thoughtSignature`.
    Call(usize, String),
}

/// Successful end of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct AnswerEnd {
    /// Stop reason.
    pub stop: StopReason,
    /// Token usage and cost.
    pub usage: Usage,
}

/// An answer under construction: blocks in the order in which they started.
#[derive(Debug, Default)]
pub struct ModelAnswer {
    parts: Vec<AnswerPart>,
}

#[derive(Debug)]
enum AnswerPart {
    Text { text: String, signature: Option<String> },
    Thinking { text: String, signature: Option<String>, is_redacted: bool },
    Call { index: usize, id: String, name: String, arguments: String, signature: Option<String> },
}

impl ModelAnswer {
    /// True if it has no content yet.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Appends text.
    pub fn text(&mut self, delta: &str) {
        match self.parts.last_mut() {
            Some(AnswerPart::Text { text, signature: None }) => text.push_str(delta),
            _ => self.parts.push(AnswerPart::Text { text: delta.to_owned(), signature: None }),
        }
    }

    /// Appends reasoning.
    pub fn thinking(&mut self, delta: &str) {
        match self.parts.last_mut() {
            Some(AnswerPart::Thinking { text, signature: None, .. }) => text.push_str(delta),
            _ => self.parts.push(AnswerPart::Thinking { text: delta.to_owned(), signature: None, is_redacted: false }),
        }
    }

    /// Appends a part of a tool call.
    pub fn call(&mut self, delta: CallDelta) {
        let existing = self.parts.iter_mut().find_map(|part| match part {
            AnswerPart::Call { index, id, name, arguments, .. } if *index == delta.index => Some((id, name, arguments)),
            AnswerPart::Call { .. } | AnswerPart::Text { .. } | AnswerPart::Thinking { .. } => None,
        });
        match existing {
            Some((id, name, arguments)) => {
                id.push_str(delta.id.as_deref().unwrap_or_default());
                name.push_str(delta.name.as_deref().unwrap_or_default());
                arguments.push_str(&delta.arguments);
            }
            None => self.parts.push(AnswerPart::Call {
                index: delta.index,
                id: delta.id.unwrap_or_default(),
                name: delta.name.unwrap_or_default(),
                arguments: delta.arguments,
                signature: None,
            }),
        }
    }

    /// Adds a signature to a block. A signature for an unknown call is dropped.
    pub fn sign(&mut self, value: Signature) {
        let text = String::new();
        match (value, self.parts.last_mut()) {
            (Signature::Thinking(value), Some(AnswerPart::Thinking { signature: signature @ None, .. }))
            | (Signature::Text(value), Some(AnswerPart::Text { signature: signature @ None, .. })) => {
                *signature = Some(value)
            }
            (Signature::Thinking(value), _) => {
                self.parts.push(AnswerPart::Thinking { text, signature: Some(value), is_redacted: false });
            }
            (Signature::Redacted(value), _) => {
                self.parts.push(AnswerPart::Thinking { text, signature: Some(value), is_redacted: true })
            }
            (Signature::Text(value), _) => self.parts.push(AnswerPart::Text { text, signature: Some(value) }),
            (Signature::Call(call_index, value), _) => {
                for part in &mut self.parts {
                    match part {
                        AnswerPart::Call { index, signature, .. } if *index == call_index => {
                            *signature = Some(value.clone())
                        }
                        AnswerPart::Call { .. } | AnswerPart::Text { .. } | AnswerPart::Thinking { .. } => {}
                    }
                }
            }
        }
    }

    /// Returns the text and reasoning so far, without calls: what may be kept of a truncated answer.
    pub fn into_partial(mut self) -> Vec<Block> {
        self.parts.retain(|part| !matches!(part, AnswerPart::Call { .. }));
        self.into_blocks()
    }

    /// Returns the finished blocks. A call without an id gets one from its index; arguments that are not JSON stay a
    /// string.
    pub fn into_blocks(self) -> Vec<Block> {
        let block = |part| match part {
            AnswerPart::Text { text, signature } => {
                Block::Text(TextBlock { text, extra: field("textSignature", signature) })
            }
            AnswerPart::Thinking { text: thinking, signature: thinking_signature, is_redacted } => {
                let extra = field("redacted", is_redacted.then_some(true));
                Block::Thinking(ThinkingBlock { thinking, thinking_signature, extra })
            }
            AnswerPart::Call { index, id, name, arguments, signature } => Block::ToolCall(ToolCall {
                id: if id.trim().is_empty() { format!("call_{index}") } else { id },
                name,
                arguments: parse_arguments(&arguments),
                extra: field("thoughtSignature", signature),
            }),
        };
        self.parts.into_iter().map(block).collect()
    }
}

/// Returns an object with one field, or without fields if there is no value.
fn field(name: &str, value: Option<impl Into<Value>>) -> Map<String, Value> {
    value.map(|value| (name.to_owned(), value.into())).into_iter().collect()
}

fn parse_arguments(text: &str) -> Value {
    if text.trim().is_empty() {
        return Value::Object(Map::new());
    }
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call_delta(index: usize, id: Option<&str>, name: Option<&str>, arguments: &str) -> CallDelta {
        CallDelta { index, id: id.map(str::to_owned), name: name.map(str::to_owned), arguments: arguments.to_owned() }
    }

    #[test]
    fn blocks_keep_the_order_in_which_they_started() {
        let mut answer = ModelAnswer::default();
        answer.thinking("hm");
        answer.text("Let ");
        answer.text("me.");
        answer.call(call_delta(0, Some("a"), Some("read"), "{\"pa"));
        answer.call(call_delta(1, None, Some("ls"), ""));
        answer.call(call_delta(0, None, None, "th\":1}"));
        let blocks = serde_json::to_value(answer.into_blocks()).unwrap();
        assert_eq!(
            blocks,
            json!([
                {"type": "thinking", "thinking": "hm"},
                {"type": "text", "text": "Let me."},
                {"type": "toolCall", "id": "a", "name": "read", "arguments": {"path": 1}},
                {"type": "toolCall", "id": "call_1", "name": "ls", "arguments": {}},
            ])
        );
    }

    #[test]
    fn a_signature_ends_its_block_and_stays_with_it() {
        let mut answer = ModelAnswer::default();
        answer.thinking("a");
        answer.sign(Signature::Thinking("s1".to_owned()));
        answer.thinking("b");
        answer.sign(Signature::Thinking("s2".to_owned()));
        answer.sign(Signature::Redacted("s3".to_owned()));
        answer.sign(Signature::Thinking("s4".to_owned()));
        answer.text("x");
        answer.sign(Signature::Text("s5".to_owned()));
        answer.text("y");
        answer.call(call_delta(3, Some("c"), Some("ls"), ""));
        answer.sign(Signature::Call(3, "s6".to_owned()));
        answer.sign(Signature::Call(4, "lost".to_owned()));
        let blocks = serde_json::to_value(answer.into_blocks()).unwrap();
        assert_eq!(
            blocks,
            json!([
                {"type": "thinking", "thinking": "a", "thinkingSignature": "s1"},
                {"type": "thinking", "thinking": "b", "thinkingSignature": "s2"},
                {"type": "thinking", "thinking": "", "thinkingSignature": "s3", "redacted": true},
                {"type": "thinking", "thinking": "", "thinkingSignature": "s4"},
                {"type": "text", "text": "x", "textSignature": "s5"},
                {"type": "text", "text": "y"},
                {"type": "toolCall", "id": "c", "name": "ls", "arguments": {}, "thoughtSignature": "s6"},
            ])
        );
    }

    #[test]
    fn arguments_that_are_not_json_stay_a_string() {
        assert_eq!(parse_arguments("{\"path\": "), json!("{\"path\": "));
    }
}
