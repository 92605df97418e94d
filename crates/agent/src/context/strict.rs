//! Messages that are rejected instead of truncated: checks before any model request whether one fits.

use std::sync::Arc;

use homard_compact::{
    Settings,
    compaction::{request_budget, request_of},
    escalate::Ladder,
};
use homard_model::{Error, ErrorKind, ModelSpec, tokens};
use homard_prompt::{context_budget as budget, shortening::grouped};
use homard_proto::message::Message;
use homard_store::timeline::TruncatedInput;

use crate::{compact_session, history::SessionHistory};

/// Returns the newest message, if no model has answered it yet.
pub(crate) fn unanswered(conversation: &[Arc<Message>]) -> Option<&Message> {
    conversation.last().map(|last| &**last).filter(|last| matches!(last, Message::User(_)))
}

/// Returns why a history is not sent to a model, if its newest message must not be truncated and would be; `None` if it
/// fits. `overhead` is the size of system prompt and tools in tokens.
///
/// The message would be truncated if the history has to be compacted and the message exceeds what a compaction can keep
/// of it, even after giving up everything else.
pub(crate) fn refusal(
    spec: &ModelSpec,
    overhead: u64,
    conversation: &SessionHistory,
    settings: &Settings,
) -> Option<Error> {
    let message = request_of(unanswered(conversation)?);
    let window = spec.context_window;
    if !settings.enabled || window == 0 {
        return None;
    }
    let limits = compact_session::limits(conversation, settings, window, overhead, Ladder::default());
    let (size, budget) = (tokens::estimate(&message), request_budget(&limits));
    let is_due = budget::measure(spec, overhead, conversation.measured()).tokens() > limits.threshold;
    let input = || {
        let original_chars = message.chars().count() as u64;
        let kept_chars = u128::from(original_chars) * u128::from(budget) / u128::from(size.max(1));
        let kept_chars = u64::try_from(kept_chars).unwrap_or(original_chars);
        TruncatedInput { original_tokens: size, kept_tokens: budget, original_chars, kept_chars }
    };
    (is_due && size > budget).then(|| too_long(spec, input()))
}

/// Error for a message that does not fit and must not be truncated.
pub(crate) fn too_long(spec: &ModelSpec, input: TruncatedInput) -> Error {
    let ModelSpec { provider, model, context_window, .. } = spec;
    let text = format!(
        "the message has about {} tokens, but {provider}/{model}, with a context window of {}, accepts about {}, \
         and strict forbids truncating it: send it in parts, put it into a file for the agent to read, choose a model \
         with a larger context window, or omit strict",
        grouped(input.original_tokens),
        grouped(*context_window),
        grouped(input.kept_tokens)
    );
    Error::new(ErrorKind::Overflow, text)
}

#[cfg(test)]
mod tests {
    use homard_proto::{EntryId, message::User};

    use super::*;

    /// Returns the error for a message of this many words and a model with this window.
    fn refused(word_count: usize, window: u64) -> Option<String> {
        let mut conversation = SessionHistory::default();
        let message = Message::User(User::text("word ".repeat(word_count), 0));
        conversation.push(EntryId::parse("a").unwrap(), Arc::new(message));
        let spec = ModelSpec {
            provider: "p".to_owned(),
            model: "m".to_owned(),
            context_window: window,
            ..ModelSpec::default()
        };
        refusal(&spec, 1_000, &conversation, &Settings::default()).map(|error| error.message)
    }

    #[test]
    fn a_message_that_would_be_truncated_is_rejected() {
        assert_eq!((refused(28_000, 40_000), refused(90_000, 0)), (None, None));
        let text = refused(31_000, 40_000).unwrap();
        let sizes = "the message has about 31,000 tokens, but p/m, with a context window of 40,000, accepts about \
                     28,680, and strict forbids truncating it";
        assert!(text.starts_with(sizes), "{text}");
        let disabled = Settings { enabled: false, ..Settings::default() };
        assert_eq!(refusal(&ModelSpec::default(), 0, &SessionHistory::default(), &disabled), None);
    }
}
