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

use super::scope::{HeldBlocks, ReplyOutput, RunIo, RunScope};
use crate::{
    delivery::queue_records,
    event::ReplyEvent,
    hub::is_answer_due,
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
            scope.io.tape.thinking(scope.io.now(), self.ordinal, &masked);
        }
    }

    /// Ends a stretch of text because something else follows: pending text is sent, if the reply is sent in blocks.
    pub(super) fn pause(&mut self, scope: &mut RunScope) {
        if std::mem::take(&mut self.is_open) {
            self.flush_text(scope);
            scope.output.block(&scope.io, |blocks, now| blocks.pause(self.parser.found(), now));
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
            scope.io.tape.thinking(scope.io.now(), self.ordinal, &rest);
        }
    }

    /// Sends complete blocks after a pause in the stream, if the reply is sent in blocks.
    pub(super) fn tick(&self, scope: &mut RunScope) {
        scope.output.block(&scope.io, |blocks, now| blocks.tick(self.parser.trailing(), self.parser.found(), now));
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
        scope.output.block(&scope.io, |blocks, now| blocks.end_message(self.parser.found(), now));
        scope.output.end_held_blocks(&scope.io);
        let has_reasoning = content.iter().any(|block| matches!(block, Block::Thinking(_)));
        if has_reasoning { content } else { with_reasoning(content) }
    }

    fn show(&mut self, scope: &mut RunScope, part: &ParsedPart) {
        let at = scope.io.now();
        if !part.thinking.is_empty() {
            scope.io.tape.thinking(at, self.ordinal, &part.thinking);
        }
        if !part.text.is_empty() {
            self.is_shown = true;
            scope.io.tape.text(at, self.ordinal, &part.text);
        }
        if !part.text.is_empty() || !self.parser.trailing().is_empty() {
            scope.output.block(&scope.io, |blocks, now| blocks.push_text(&part.text, self.parser.found(), now));
        }
    }
}

impl ReplyOutput {
    /// Applies an operation to the block splitter, if any, and sends the resulting blocks.
    fn block(&mut self, io: &RunIo, operation: impl FnOnce(&mut BlockStream, u64) -> Vec<Payload>) {
        let now = io.now();
        if let Some(payloads) = self.blocks.as_mut().map(|blocks| operation(blocks, now)) {
            self.send(io, payloads);
        }
    }

    /// Sends blocks of the current message. They are held back as long as the whole message may repeat what a tool has
    /// sent.
    fn send(&mut self, io: &RunIo, payloads: Vec<Payload>) {
        if payloads.is_empty() {
            return;
        }
        let replies = Replies::of(&io.tape.events(), &self.route);
        for block in payloads {
            self.held.text.push_str(&block.text);
            self.held.text.push('\n');
            self.held.blocks.push(block);
            if !replies.may_repeat(&self.held.text) {
                self.release_held_blocks(io);
            }
        }
    }

    /// Completes the current message: held blocks are dropped if the whole message repeats what a tool has sent, and
    /// sent otherwise.
    fn end_held_blocks(&mut self, io: &RunIo) {
        if !self.held.blocks.is_empty() {
            let replies = Replies::of(&io.tape.events(), &self.route);
            if !replies.repeats(&self.held.text) {
                self.release_held_blocks(io);
            }
        }
        self.held = HeldBlocks::default();
    }

    /// Discards the blocks of the current message, which the model writes again. None of them was sent.
    pub(super) fn rewind_blocks(&mut self) {
        self.blocks.iter_mut().for_each(BlockStream::discard_message);
        self.held = HeldBlocks::default();
    }

    fn release_held_blocks(&mut self, io: &RunIo) {
        for block in std::mem::take(&mut self.held.blocks) {
            self.send_block(io, block);
        }
    }

    /// Sends the media that waited for the end of the run.
    pub(super) fn send_rest(&mut self, io: &RunIo, payloads: Vec<Payload>) {
        if payloads.is_empty() {
            return;
        }
        let replies = Replies::of(&io.tape.events(), &self.route);
        for block in payloads.into_iter().filter_map(|block| replies.remaining(block)) {
            self.send_block(io, block);
        }
    }

    /// Sends a block to the run's subscribers and to its channel. A block that fails on the channel is sent again with
    /// the rest of the answer.
    fn send_block(&self, io: &RunIo, block: Payload) {
        let Some(output) = self.channel.clone() else {
            return io.emit(ReplyEvent::Block(Arc::new(block)));
        };
        let outgoing = output.block(&block, io.now(), io.hub.ambient.random());
        let mut records = queue_records(&outgoing);
        let Some(first) = records.next() else { return };
        let mut commit = Commit::new(&io.tape);
        commit.stored_event(io.now(), ReplyEvent::Block(Arc::new(block)), first);
        commit.records(records);
        io.hub.send_with_deliveries(commit, outgoing, Some(&output));
    }
}

/// Tells the chat of the run, once per run, that no model is available and that the run waits.
pub(super) fn report_wait(scope: &mut RunScope, why: &str, after: Duration) {
    let RunScope { output, request, io, profile, model, .. } = scope;
    output.waited += after;
    let is_answer_due = is_answer_due(request.class, &request.origin.principal, io.tape.key());
    if output.is_wait_reported || output.waited < REPORT_WAIT_AFTER || !is_answer_due || output.channel.is_none() {
        return;
    }
    output.is_wait_reported = true;
    let (why, max_secs) = (profile.secrets.mask(why).into_owned(), model.failover.retry_time().as_secs());
    let text = format!("⏳ No model can answer at the moment: {why}. I keep trying for up to {max_secs} s.");
    output.send_block(io, Payload { kind: Kind::Notice, ..Payload::answer(text) });
}

/// Announces a tool call on the run's channel, if enabled.
pub(super) fn announce_tool(scope: &RunScope, name: &str, arguments: &Value) {
    if scope.output.channel.as_ref().is_some_and(|channel| channel.announces_tools()) {
        let text = label::summary(name, &label::subjects(name, arguments, None), Style::Plain);
        let text = scope.profile.secrets.mask(&text).into_owned();
        scope.output.send_block(&scope.io, Payload { kind: Kind::Tool, ..Payload::answer(text) });
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
