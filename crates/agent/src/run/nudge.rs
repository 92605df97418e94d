//! Extra instructions to the model when its last answer is unusable: a reply is required, or the answer was cut off.
//! They are not stored in the transcript.
//!
//! An answer that leaves a person without a reply is discarded, as if the model had failed. The model is asked once
//! more, without tool calls; its second answer counts, even if it is silence. Tool calls in it are ignored.

use std::sync::Arc;

use homard_model::Request;
use homard_proto::{
    EntryId,
    message::{Assistant, Block, Message, StopReason, User},
};
use homard_reply::shape::{Expectation, ReplyStatus};

use super::RunScope;
use crate::{
    event::{RunEvent, StoredEvent, TapeEvent},
    hub::is_answer_due,
    replies::{self, Replies},
};

/// Instruction after an answer without a reply.
pub const REPLY_NUDGE: &str = "[The person who wrote has not received a reply yet. Reply now, in text that they can read, \
                        with what you know so far. You cannot use tools in this reply. Only if the person really wants \
                        no reply, answer NO_REPLY once more.]";

/// Instruction after an answer that was cut off when the user had read part of it.
pub const CONTINUE_NUDGE: &str = "[Your answer was cut off where it ends above, and the person has read it up to there. Continue \
                       from there without repeating any of it.]";

/// Instruction that is appended to the requests of a run until the next complete answer, because the last answer was
/// unusable or cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ModelNudge {
    /// No instruction.
    Nothing,
    /// [`REPLY_NUDGE`]: the answer contained no reply, but one is required.
    Answer,
    /// [`CONTINUE_NUDGE`]: the answer was cut off and should be continued.
    Continue,
}

/// True if an answer leaves the user without a reply, so that the model must be asked once more.
pub(super) fn must_ask_again(scope: &mut RunScope, content: &[Block]) -> bool {
    let is_call = |block: &Block| matches!(block, Block::ToolCall(_));
    let RunScope { request, io, model, .. } = scope;
    let is_answer_due = is_answer_due(request.class, &request.origin.principal, io.tape.key());
    if model.nudge == ModelNudge::Answer || content.iter().any(is_call) || !is_answer_due {
        return false;
    }
    let provider = model.spec().provider.clone();
    let answer = Arc::new(Assistant { content: content.to_vec(), provider, ..Assistant::default() });
    if !replies::payload_of(&answer).is_empty() {
        return false;
    }
    let mut events = io.tape.events();
    // The answer has no entry yet; the id is a placeholder that is not read.
    if let Ok(entry) = EntryId::parse("unsaid") {
        let kind = RunEvent::Stored(StoredEvent::Assistant { entry, message: answer });
        events.push(TapeEvent { at: io.now(), kind });
    }
    let status = Replies::of(&events, &request.origin.route).shape(None, false, Expectation::Answer).0.status;
    if status == ReplyStatus::Missing {
        model.nudge = ModelNudge::Answer;
    }
    status == ReplyStatus::Missing
}

impl ModelNudge {
    /// Adds the instruction to a request. For a required reply, tool calls are disabled, but the tools stay in the
    /// request, because earlier calls in it refer to them.
    pub(super) fn add_to(self, request: &mut Request, now: u64) {
        let (instruction, may_call) = match self {
            Self::Nothing => return,
            Self::Answer => (REPLY_NUDGE, false),
            Self::Continue => (CONTINUE_NUDGE, true),
        };
        request.allow_calls = may_call;
        request.messages.push(Arc::new(Message::User(User::text(instruction, now))));
    }

    /// Removes tool calls from an answer that must not have any; some models make them regardless.
    pub(super) fn remove_forbidden_calls(self, content: &mut Vec<Block>, stop: StopReason) -> StopReason {
        if self != Self::Answer {
            return stop;
        }
        content.retain(|block| !matches!(block, Block::ToolCall(_)));
        if stop == StopReason::ToolUse { StopReason::Stop } else { stop }
    }
}
