//! The visible part of a model's stream: text, reasoning and blocks as they are shown while streaming.

use std::{sync::Arc, time::Duration};

use homard_proto::message::{Block, ThinkingBlock, join_text};
use homard_reply::{
    blocks::BlockStream,
    label::{self, Style},
    parse_stream::{MessageParser, ParseRules, ParsedPart},
    payload::{Kind, Payload},
    reasoning_tags,
};
use homard_secrets::{MaskedStream, Secrets};
use serde_json::Value;
use tokio::time::sleep;

use super::RunScope;
use crate::{
    delivery::queue_records,
    event::ReplyEvent,
    replies::{self, Replies},
    tape::Commit,
};

/// An assistant message being streamed to the user.
pub(super) struct StreamedReply {
    parser: MessageParser,
    /// Text and reasoning with masked secrets.
    text: MaskedStream,
    reasoning: MaskedStream,
    provider: String,
    /// Ordinal of the assistant message in the run.
    ordinal: u32,
    /// True if any of it was shown.
    is_shown: bool,
    /// True if text came last.
    is_open: bool,
}

/// Time that a run waits for models before it reports the wait on its channel.
const REPORT_WAIT_AFTER: Duration = Duration::from_secs(10);

/// Blocks of the current message that are held back, because the whole message may repeat what a tool has sent.
#[derive(Debug, Default)]
pub(crate) struct HeldBlocks {
    blocks: Vec<Payload>,
    /// Text of the message so far.
    text: String,
}

impl StreamedReply {
    /// Starts an empty message.
    pub(super) fn new(provider: &str, ordinal: u32, secrets: &Secrets) -> Self {
        let enforce_final = homard_model::uses_reasoning_tags(provider);
        let (parser, provider) = (MessageParser::new(ParseRules { enforce_final }), provider.to_owned());
        let (text, reasoning) = (secrets.stream(), secrets.stream());
        Self { parser, text, reasoning, provider, ordinal, is_shown: false, is_open: false }
    }

    /// Appends a text delta.
    pub(super) fn push_text(&mut self, scope: &mut RunScope, delta: &str) {
        self.flush_reasoning(scope);
        let part = self.parser.push(&self.text.push(delta));
        self.show(scope, &part);
        self.is_open = true;
    }

    /// Appends a reasoning delta.
    pub(super) fn push_reasoning(&mut self, scope: &mut RunScope, delta: &str) {
        self.pause(scope);
        let masked = self.reasoning.push(delta);
        if !masked.is_empty() {
            scope.tape.thinking(scope.hub.ambient.now_ms(), self.ordinal, &masked);
        }
    }

    /// Ends a stretch of text because something else follows: pending text is sent, if the reply is sent in blocks.
    pub(super) fn pause(&mut self, scope: &mut RunScope) {
        if std::mem::take(&mut self.is_open) {
            self.flush_text(scope);
            scope.block(|blocks, now| blocks.pause(self.parser.found(), now));
        }
    }

    /// Emits text that was held back because it could be the start of a secret.
    fn flush_text(&mut self, scope: &mut RunScope) {
        let rest = self.text.finish();
        if !rest.is_empty() {
            let part = self.parser.push(&rest);
            self.show(scope, &part);
        }
    }

    /// Emits reasoning that was held back for the same reason.
    fn flush_reasoning(&mut self, scope: &mut RunScope) {
        let rest = self.reasoning.finish();
        if !rest.is_empty() {
            scope.tape.thinking(scope.hub.ambient.now_ms(), self.ordinal, &rest);
        }
    }

    /// Sends complete blocks after a pause in the stream, if the reply is sent in blocks.
    pub(super) fn tick(&self, scope: &mut RunScope) {
        scope.block(|blocks, now| blocks.tick(self.parser.trailing(), self.parser.found(), now));
    }

    /// Completes the message: emits the rest and returns the content to store. Reasoning written into the text is
    /// stored as reasoning, unless the provider sent reasoning of its own.
    pub(super) fn finish(mut self, scope: &mut RunScope, content: Vec<Block>) -> Vec<Block> {
        self.flush_reasoning(scope);
        self.flush_text(scope);
        let part = self.parser.finish();
        self.show(scope, &part);
        if !self.is_shown {
            // An answer that lacks the required final tag.
            let text = replies::read_text(&join_text(&content), &self.provider).text;
            self.show(scope, &ParsedPart { text, thinking: String::new() });
        }
        scope.block(|blocks, now| blocks.end_message(self.parser.found(), now));
        scope.end_held_blocks();
        let has_reasoning = content.iter().any(|block| matches!(block, Block::Thinking(_)));
        if has_reasoning { content } else { with_reasoning(content) }
    }

    fn show(&mut self, scope: &mut RunScope, part: &ParsedPart) {
        let at = scope.hub.ambient.now_ms();
        if !part.thinking.is_empty() {
            scope.tape.thinking(at, self.ordinal, &part.thinking);
        }
        if !part.text.is_empty() {
            self.is_shown = true;
            scope.tape.text(at, self.ordinal, &part.text);
        }
        if !part.text.is_empty() || !self.parser.trailing().is_empty() {
            scope.block(|blocks, now| blocks.push_text(&part.text, self.parser.found(), now));
        }
    }
}

impl RunScope {
    /// Applies an operation to the block splitter, if any, and sends the resulting blocks.
    fn block(&mut self, operation: impl FnOnce(&mut BlockStream, u64) -> Vec<Payload>) {
        let now = self.hub.ambient.now_ms();
        if let Some(payloads) = self.blocks.as_mut().map(|blocks| operation(blocks, now)) {
            self.send(payloads);
        }
    }

    /// Sends blocks of the current message. They are held back as long as the whole message may repeat what a tool has
    /// sent.
    fn send(&mut self, payloads: Vec<Payload>) {
        if payloads.is_empty() {
            return;
        }
        let replies = Replies::of(&self.tape.events(), &self.origin.route);
        for block in payloads {
            self.held_blocks.text.push_str(&block.text);
            self.held_blocks.text.push('\n');
            self.held_blocks.blocks.push(block);
            if !replies.may_repeat(&self.held_blocks.text) {
                self.release_held_blocks();
            }
        }
    }

    /// Completes the current message: held blocks are dropped if the whole message repeats what a tool has sent, and
    /// sent otherwise.
    fn end_held_blocks(&mut self) {
        if !self.held_blocks.blocks.is_empty() {
            let replies = Replies::of(&self.tape.events(), &self.origin.route);
            if !replies.repeats(&self.held_blocks.text) {
                self.release_held_blocks();
            }
        }
        self.held_blocks = HeldBlocks::default();
    }

    /// Discards the blocks of the current message, which the model writes again. None of them was sent.
    pub(super) fn rewind_blocks(&mut self) {
        self.blocks.iter_mut().for_each(BlockStream::discard_message);
        self.held_blocks = HeldBlocks::default();
    }

    fn release_held_blocks(&mut self) {
        for block in std::mem::take(&mut self.held_blocks.blocks) {
            self.send_block(block);
        }
    }

    /// Sends the media that waited for the end of the run.
    pub(super) fn send_rest(&mut self, payloads: Vec<Payload>) {
        if payloads.is_empty() {
            return;
        }
        let replies = Replies::of(&self.tape.events(), &self.origin.route);
        for block in payloads.into_iter().filter_map(|block| replies.remaining(block)) {
            self.send_block(block);
        }
    }

    /// Sends a block to the run's subscribers and to its channel. A block that fails on the channel is sent again with
    /// the rest of the answer.
    fn send_block(&mut self, block: Payload) {
        let Some(output) = self.output.clone() else {
            return self.emit(ReplyEvent::Block(Arc::new(block)));
        };
        let outgoing = output.block(&block, (self.hub.ambient.now_ms(), self.hub.ambient.random()));
        let mut records = queue_records(&outgoing);
        let Some(first) = records.next() else { return };
        let mut commit = Commit::new(&self.tape);
        commit.fact(self.hub.ambient.now_ms(), ReplyEvent::Block(Arc::new(block)), first);
        commit.records(records);
        self.hub.send_deliveries(commit, outgoing, Some(&output));
    }

    /// Tells the chat of the run, once per run, that no model is available and that the run waits.
    pub(super) fn report_wait(&mut self, why: &str, after: Duration) {
        self.waited += after;
        let is_answer_due = replies::is_answer_due(self.class, &self.origin.principal, self.tape.key());
        if self.is_wait_reported || self.waited < REPORT_WAIT_AFTER || !is_answer_due || self.output.is_none() {
            return;
        }
        self.is_wait_reported = true;
        let (why, max_secs) = (self.profile.secrets.mask(why).into_owned(), self.failover.retry_time().as_secs());
        let text = format!("⏳ No model can answer at the moment: {why}. I keep trying for up to {max_secs} s.");
        self.send_block(Payload { kind: Kind::Notice, ..Payload::answer(text) });
    }

    /// Announces a tool call on the run's channel, if enabled.
    pub(super) fn announce_tool(&mut self, name: &str, arguments: &Value) {
        if self.output.as_ref().is_some_and(|output| output.announces_tools()) {
            let text = label::summary(name, &label::subjects(name, arguments, None), Style::Plain);
            let text = self.profile.secrets.mask(&text).into_owned();
            self.send_block(Payload { kind: Kind::Tool, ..Payload::answer(text) });
        }
    }
}

/// Sleeps until blocks are due without further input, or forever.
pub(super) async fn until_due(due: Option<u64>, now: u64) {
    match due {
        Some(due) => sleep(Duration::from_millis(due.saturating_sub(now))).await,
        None => std::future::pending().await,
    }
}

fn with_reasoning(mut content: Vec<Block>) -> Vec<Block> {
    let first = content.iter_mut().find_map(|block| match block {
        Block::Text(text) => Some(text),
        Block::Thinking(_) | Block::Image(_) | Block::ToolCall(_) | Block::Other(_) => None,
    });
    let Some((thinking, rest)) = first.as_ref().and_then(|text| reasoning_tags::split_reasoning(&text.text)) else {
        return content;
    };
    let rest = rest.to_owned();
    if let Some(text) = first {
        text.text = rest;
    }
    content.insert(0, Block::Thinking(ThinkingBlock { thinking, ..ThinkingBlock::default() }));
    content
}
