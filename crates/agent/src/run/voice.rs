//! What of a model's words is shown while it speaks.

use homard_proto::message::{Block, ThinkingBlock, join_text};
use homard_reply::{
    spoken::{Part, Rules, Spoken},
    thoughts,
};

use super::RunScope;
use crate::replies;

/// One message of the model's on its way to the user.
pub(super) struct Voice {
    spoken: Spoken,
    provider: String,
    /// Which assistant message of the run it is.
    ordinal: u32,
    /// Whether anything of it was shown.
    is_heard: bool,
}

impl Voice {
    /// Before the first word.
    pub(super) fn new(provider: &str, ordinal: u32) -> Self {
        let enforce_final = homard_model::writes_tags(provider);
        Self { spoken: Spoken::new(Rules { enforce_final }), provider: provider.to_owned(), ordinal, is_heard: false }
    }

    /// The model said more.
    pub(super) fn say(&mut self, scope: &RunScope, delta: &str) {
        let part = self.spoken.hear(delta);
        self.show(scope, &part);
    }

    /// The model thought more.
    pub(super) fn think(&mut self, scope: &RunScope, delta: &str) {
        scope.tape.thinking(scope.hub.ambient.now_ms(), self.ordinal, delta);
    }

    /// The message is complete: shows the rest, and returns what is kept of it. Thoughts before the answer are kept as
    /// thoughts, if the provider has not told of any itself.
    pub(super) fn finish(mut self, scope: &RunScope, content: Vec<Block>) -> Vec<Block> {
        let part = self.spoken.finish();
        self.show(scope, &part);
        if !self.is_heard {
            // An answer that should have been marked as one, and was not.
            let text = replies::read_text(&join_text(&content), &self.provider).text;
            self.show(scope, &Part { text, thinking: String::new() });
        }
        let has_thoughts = content.iter().any(|block| matches!(block, Block::Thinking(_)));
        if has_thoughts { content } else { with_thoughts(content) }
    }

    fn show(&mut self, scope: &RunScope, part: &Part) {
        let at = scope.hub.ambient.now_ms();
        if !part.thinking.is_empty() {
            scope.tape.thinking(at, self.ordinal, &part.thinking);
        }
        if !part.text.is_empty() {
            self.is_heard = true;
            scope.tape.text(at, self.ordinal, &part.text);
        }
    }
}

fn with_thoughts(mut content: Vec<Block>) -> Vec<Block> {
    let first = content.iter_mut().find_map(|block| match block {
        Block::Text(text) => Some(text),
        Block::Thinking(_) | Block::Image(_) | Block::ToolCall(_) | Block::Other(_) => None,
    });
    let Some((thinking, rest)) = first.as_ref().and_then(|text| thoughts::split(&text.text)) else { return content };
    let rest = rest.to_owned();
    if let Some(text) = first {
        text.text = rest;
    }
    content.insert(0, Block::Thinking(ThinkingBlock { thinking, ..ThinkingBlock::default() }));
    content
}
