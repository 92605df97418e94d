//! What a model is told beside the conversation when its last answer cannot stand: that somebody waits for one, or that it
//! was cut off in the middle. These words stand in no transcript.
//!
//! An answer that leaves a person with nothing is void, as if the model had failed. It is asked once more, and may
//! not call tools; what it says then counts, be it that it wants to say nothing. Calls that come all the same are not made.

use std::sync::Arc;

use homard_model::Request;
use homard_proto::{
    EntryId,
    message::{Assistant, Block, Message, StopReason, User},
};
use homard_reply::shape::{Duty, Verdict};

use super::RunScope;
use crate::{
    event::{Event, RunEvent},
    replies::{self, Replies},
};

/// What a model is told that has not answered.
pub const PLEA: &str = "[The person who wrote has not got any answer yet. Answer now, in words that they can read, from what \
                        you know by now. You cannot use tools in this answer. Only if silence is truly what they want, \
                        reply with NO_REPLY once more.]";

/// What a model is told whose answer was cut off after the user had read some of it.
pub const CUT: &str = "[Your answer was cut off where it ends above, and the person has read it up to there. Go on from there \
                       without saying anything of it again.]";

/// What a model is told beside the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plea {
    /// Nothing.
    Nothing,
    /// That somebody waits for an answer.
    Answer,
    /// That its answer was cut off.
    GoOn,
}

impl RunScope {
    /// Whether an answer leaves the user with nothing, and the model is to be asked once more.
    pub(super) fn must_ask_again(&mut self, content: &[Block]) -> bool {
        let is_call = |block: &Block| matches!(block, Block::ToolCall(_));
        let (class, principal, key) = (self.class, &self.origin.principal, self.tape.key());
        let is_due = replies::is_answer_due(class, principal, key);
        if self.plea == Plea::Answer || content.iter().any(is_call) || !is_due {
            return false;
        }
        let provider = self.failover.candidate().model.spec().provider.clone();
        let said = Arc::new(Assistant { content: content.to_vec(), provider, ..Assistant::default() });
        if !replies::payload_of(&said).is_empty() {
            return false;
        }
        let mut facts = self.tape.facts();
        // It has no line yet, and its name is not looked at.
        if let Ok(entry) = EntryId::parse("unsaid") {
            facts.push(Event { at: self.hub.ambient.now_ms(), kind: RunEvent::Assistant { entry, said } });
        }
        let verdict = Replies::of(&facts, &self.origin.route).shape(None, false, Duty::Answer).0.verdict;
        if verdict == Verdict::Missing {
            self.plea = Plea::Answer;
        }
        verdict == Verdict::Missing
    }

    /// Adds what a model is told to what it is asked. Who shall answer at last may not call tools; it knows of them all the
    /// same, as its calls so far make no sense without.
    pub(super) fn plead(&self, request: &mut Request) {
        let (words, may_call) = match self.plea {
            Plea::Nothing => return,
            Plea::Answer => (PLEA, false),
            Plea::GoOn => (CUT, true),
        };
        request.may_call = may_call;
        request.messages.push(Arc::new(Message::User(User::text(words, self.hub.ambient.now_ms()))));
    }

    /// Takes calls out of an answer that may have none, as some models make them all the same.
    pub(super) fn without_forbidden_calls(&self, content: &mut Vec<Block>, stop: StopReason) -> StopReason {
        if self.plea != Plea::Answer {
            return stop;
        }
        content.retain(|block| !matches!(block, Block::ToolCall(_)));
        if stop == StopReason::ToolUse { StopReason::Stop } else { stop }
    }
}
