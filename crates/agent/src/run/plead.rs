//! Once more, without tools: a person waits for an answer, and the model ended its turn without one.
//!
//! What it said then is void, as if it had failed. It is asked again with a word beside the conversation that stands in no
//! transcript; what it says now counts, be it that it wants to say nothing.

use std::sync::Arc;

use homard_model::ToolSpec;
use homard_proto::EntryId;
use homard_proto::message::{Assistant, Block, Message, User};
use homard_reply::shape::{Duty, Verdict};

use super::RunScope;
use crate::{
    event::{Event, RunEvent},
    replies::{self, Replies},
};

/// What a model is told that has not answered. It stands in no transcript.
pub const PLEA: &str = "[The person who wrote has not got any answer yet. Answer now, in words that they can read, from what \
                    you know by now. You cannot use tools in this answer. Only if silence is truly what they want, reply \
                    with NO_REPLY once more.]";

impl RunScope {
    /// Whether an answer leaves the user with nothing, and the model is to be asked once more.
    pub(super) fn must_ask_again(&mut self, content: &[Block]) -> bool {
        let is_call = |block: &Block| matches!(block, Block::ToolCall(_));
        let (class, principal, key) = (self.class, &self.origin.principal, self.tape.key());
        if self.has_pleaded || content.iter().any(is_call) || !replies::is_answer_due(class, principal, key) {
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
        let replies = Replies::of(&facts, &self.origin.route);
        self.has_pleaded = replies.shape(None, false, Duty::Answer).verdict == Verdict::Missing;
        self.has_pleaded
    }

    /// Adds the plea to what a model is asked, and takes its tools away, if it comes to that.
    pub(super) fn plead(&self, messages: &mut Vec<Arc<Message>>, tools: Arc<[ToolSpec]>) -> Arc<[ToolSpec]> {
        if !self.has_pleaded {
            return tools;
        }
        messages.push(Arc::new(Message::User(User::text(PLEA, self.hub.ambient.now_ms()))));
        Arc::default()
    }
}
