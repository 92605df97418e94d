//! What an answer is made of, and how the pieces become a message.

use homard_proto::message::{Block, StopReason, TextBlock, ThinkingBlock, ToolCall, Usage};
use serde_json::{Map, Value};

use crate::error::Error;

/// A piece of an answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Words; they join the words before them.
    Text(String),
    /// Reasoning; it joins the reasoning before it.
    Thinking(String),
    /// A piece of a tool call.
    Call(CallDelta),
    /// The end of a good answer.
    Done(Done),
    /// The end of a bad one.
    Failed(Error),
}

/// A piece of a tool call. Pieces of one call share their index; calls may be interleaved.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallDelta {
    /// Which call of this answer.
    pub index: usize,
    /// The call's id, once, at its beginning.
    pub id: Option<String>,
    /// The tool's name, once, at its beginning.
    pub name: Option<String>,
    /// The next piece of the arguments' JSON text.
    pub arguments: String,
}

/// How a good answer ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Done {
    /// Why the model stopped.
    pub stop: StopReason,
    /// What it cost.
    pub usage: Usage,
}

/// An answer under construction: blocks in the order in which they began.
#[derive(Debug, Default)]
pub struct Answer {
    parts: Vec<Part>,
}

#[derive(Debug)]
enum Part {
    Text(String),
    Thinking(String),
    Call { index: usize, id: String, name: String, arguments: String },
}

impl Answer {
    /// Adds words.
    pub fn text(&mut self, delta: &str) {
        match self.parts.last_mut() {
            Some(Part::Text(text)) => text.push_str(delta),
            _ => self.parts.push(Part::Text(delta.to_owned())),
        }
    }

    /// Adds reasoning.
    pub fn thinking(&mut self, delta: &str) {
        match self.parts.last_mut() {
            Some(Part::Thinking(text)) => text.push_str(delta),
            _ => self.parts.push(Part::Thinking(delta.to_owned())),
        }
    }

    /// Adds a piece of a tool call.
    pub fn call(&mut self, delta: CallDelta) {
        let known = self.parts.iter_mut().find_map(|part| match part {
            Part::Call { index, id, name, arguments } if *index == delta.index => Some((id, name, arguments)),
            Part::Call { .. } | Part::Text(_) | Part::Thinking(_) => None,
        });
        match known {
            Some((id, name, arguments)) => {
                id.push_str(delta.id.as_deref().unwrap_or_default());
                name.push_str(delta.name.as_deref().unwrap_or_default());
                arguments.push_str(&delta.arguments);
            }
            None => self.parts.push(Part::Call {
                index: delta.index,
                id: delta.id.unwrap_or_default(),
                name: delta.name.unwrap_or_default(),
                arguments: delta.arguments,
            }),
        }
    }

    /// The words and reasoning so far, without calls: what may be kept of an answer that broke off.
    pub fn into_partial(mut self) -> Vec<Block> {
        self.parts.retain(|part| !matches!(part, Part::Call { .. }));
        self.into_blocks()
    }

    /// The finished blocks. A call without an id gets one from its place; arguments that are not JSON stay a text.
    pub fn into_blocks(self) -> Vec<Block> {
        let block = |part| match part {
            Part::Text(text) => Block::Text(TextBlock { text, extra: Map::new() }),
            Part::Thinking(thinking) => {
                Block::Thinking(ThinkingBlock { thinking, thinking_signature: None, extra: Map::new() })
            }
            Part::Call { index, id, name, arguments } => Block::ToolCall(ToolCall {
                id: if id.trim().is_empty() { format!("call_{index}") } else { id },
                name,
                arguments: parse_arguments(&arguments),
                extra: Map::new(),
            }),
        };
        self.parts.into_iter().map(block).collect()
    }
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

    #[test]
    fn blocks_keep_the_order_in_which_they_began() {
        let mut answer = Answer::default();
        let piece = |index, id: Option<&str>, name: Option<&str>, arguments: &str| CallDelta {
            index,
            id: id.map(str::to_owned),
            name: name.map(str::to_owned),
            arguments: arguments.to_owned(),
        };
        answer.thinking("hm");
        answer.text("Let ");
        answer.text("me.");
        answer.call(piece(0, Some("a"), Some("read"), "{\"pa"));
        answer.call(piece(1, None, Some("ls"), ""));
        answer.call(piece(0, None, None, "th\":1}"));
        let told = serde_json::to_value(answer.into_blocks()).unwrap();
        assert_eq!(
            told,
            json!([
                {"type": "thinking", "thinking": "hm"},
                {"type": "text", "text": "Let me."},
                {"type": "toolCall", "id": "a", "name": "read", "arguments": {"path": 1}},
                {"type": "toolCall", "id": "call_1", "name": "ls", "arguments": {}},
            ])
        );
    }

    #[test]
    fn arguments_that_are_not_json_stay_a_text() {
        assert_eq!(parse_arguments("{\"path\": "), json!("{\"path\": "));
    }
}
