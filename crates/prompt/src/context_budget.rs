//! Context budget: whether a request fits into a model's context window. Checked before every request, also between
//! tool calls.

use std::sync::{Arc, OnceLock};

use homard_model::{Error, ErrorKind, ModelSpec, tokens};
use homard_proto::message::Message;

/// Minimum context window for an agent, in tokens.
pub const MIN_WINDOW: u64 = 16_000;

/// Context window below which an agent loses context quickly and gets a lean prompt.
pub const SMALL_WINDOW: u64 = 32_000;

/// Whether a model's context window is large enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowFit {
    /// Large enough, or unknown.
    Fine,
    /// Small, but usable.
    Small,
    /// Too small.
    TooSmall,
}

impl WindowFit {
    /// Classifies a model's context window.
    pub fn of(spec: &ModelSpec) -> Self {
        match spec.context_window {
            0 => Self::Fine,
            window if window < MIN_WINDOW => Self::TooSmall,
            window if window < SMALL_WINDOW => Self::Small,
            _ => Self::Fine,
        }
    }
}

/// Error for a model whose context window is too small for an agent.
pub fn too_small(spec: &ModelSpec) -> Error {
    let ModelSpec { provider, model, context_window, .. } = spec;
    Error::new(
        ErrorKind::Rejected,
        format!(
            "{provider}/{model} has a context window of {context_window} tokens, but an agent needs {MIN_WINDOW}; choose \
             another model, or correct its contextWindow in models.providers.{provider} if that is wrong"
        ),
    )
}

/// Returns the error for a request that cannot fit; `None` if it may.
pub fn overflow(spec: &ModelSpec, overhead: u64, history: MeasuredHistory<'_>) -> Option<Error> {
    let size = measure(spec, overhead, history);
    let window = spec.context_window;
    // An estimate may be too high, a provider's count is not: a request that might fit is not rejected.
    let min_tokens = size.counted + size.estimated * 3 / 4;
    (window > 0 && min_tokens > window).then(|| {
        let text = format!(
            "the conversation has about {} tokens, but {}/{} has a context window of {window}; start a new session \
             with /new, or choose a model with a larger context window",
            size.tokens(),
            spec.provider,
            spec.model
        );
        Error::new(ErrorKind::Overflow, text)
    })
}

/// A history, and what is known about its size.
#[derive(Debug, Clone, Copy)]
pub struct MeasuredHistory<'a> {
    /// The messages.
    pub messages: &'a [Arc<Message>],
    /// Cached token estimate of each message. Messages beyond the end of this slice are estimated each time.
    pub estimates: &'a [OnceLock<u64>],
    /// Number of messages older than the last compaction.
    pub kept: usize,
    /// Tokens of these, including overhead, as recorded by the compaction.
    pub kept_tokens: Option<u64>,
}

impl MeasuredHistory<'_> {
    /// Returns the estimated tokens of the messages from this index on.
    fn estimate(&self, from: usize) -> u64 {
        let message_tokens = |(index, message): (usize, &Arc<Message>)| match self.estimates.get(index) {
            Some(cached) => *cached.get_or_init(|| tokens::of_message(message)),
            None => tokens::of_message(message),
        };
        self.messages.iter().enumerate().skip(from).map(message_tokens).sum()
    }
}

/// Size of a request in tokens. The single measure: it decides when to compact, and it is shown wherever the size of
/// the context is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestSize {
    /// Tokens that the provider reported up to its last answer.
    pub counted: u64,
    /// Estimated tokens of the rest, or of everything.
    pub estimated: u64,
}

impl RequestSize {
    /// Returns the total.
    pub fn tokens(self) -> u64 {
        self.counted + self.estimated
    }
}

/// Measures a request: the usage that this model reported with its last answer, plus an estimate of the rest. Usage
/// reported before a compaction no longer applies. `overhead` is the size of system prompt and tools.
pub fn measure(spec: &ModelSpec, overhead: u64, history: MeasuredHistory<'_>) -> RequestSize {
    let MeasuredHistory { messages, kept, kept_tokens, .. } = history;
    let counted = |message: &Arc<Message>| match &**message {
        Message::Assistant(assistant) if spec.wrote(assistant) => {
            let usage = &assistant.usage;
            Some(usage.input + usage.output + usage.cache_read + usage.cache_write).filter(|tokens| *tokens > 0)
        }
        Message::Assistant(_) | Message::User(_) | Message::ToolResult(_) | Message::Other(_) => None,
    };
    let recent = messages.iter().enumerate().skip(kept).rev();
    let last = recent.into_iter().find_map(|(index, message)| Some((index, counted(message)?)));
    match (last, kept_tokens) {
        (Some((index, counted)), _) => RequestSize { counted, estimated: history.estimate(index + 1) },
        (None, Some(kept_tokens)) => RequestSize { counted: 0, estimated: kept_tokens + history.estimate(kept) },
        (None, None) => RequestSize { counted: 0, estimated: overhead + history.estimate(0) },
    }
}

#[cfg(test)]
mod tests {
    use homard_proto::message::User;
    use serde_json::{from_value, json};

    use super::*;

    fn spec(context_window: u64) -> ModelSpec {
        ModelSpec {
            provider: "p".to_owned(),
            model: "m".to_owned(),
            api: "a".to_owned(),
            context_window,
            ..ModelSpec::default()
        }
    }

    fn assistant(model: &str, input: u64) -> Arc<Message> {
        let usage = json!({"input": input, "output": 10, "cacheRead": 5, "cacheWrite": 0, "totalTokens": 0});
        let message =
            json!({"role": "assistant", "content": [], "api": "a", "provider": "p", "model": model, "usage": usage});
        from_value(message).unwrap()
    }

    fn user(text: &str) -> Arc<Message> {
        Arc::new(Message::User(User::text(text, 0)))
    }

    fn fresh(messages: &[Arc<Message>]) -> MeasuredHistory<'_> {
        MeasuredHistory { messages, estimates: &[], kept: 0, kept_tokens: None }
    }

    #[test]
    fn windows_are_classified_as_too_small_small_or_fine() {
        let fits = [0, 12_000, 16_000, 20_000, 32_000, 200_000].map(|window| WindowFit::of(&spec(window)));
        use WindowFit::{Fine, Small, TooSmall};
        assert_eq!(fits, [Fine, TooSmall, Small, Small, Fine, Fine]);
        let text = "p/m has a context window of 12000 tokens, but an agent needs 16000; choose another model, or \
                    correct its contextWindow in models.providers.p if that is wrong";
        assert_eq!(too_small(&spec(12_000)).message, text);
    }

    #[test]
    fn usage_reported_by_the_same_model_is_used() {
        let hi = user("hi");
        let rest = tokens::of_message(&hi);
        let size = |messages: Vec<_>| measure(&spec(0), 0, fresh(&messages));
        assert_eq!(
            size(vec![user(&"x".repeat(9_999)), assistant("m", 100), hi.clone()]),
            RequestSize { counted: 115, estimated: rest }
        );
        // Another model has another tokenizer.
        let all = vec![hi.clone(), assistant("other", 100), hi];
        assert_eq!(size(all.clone()).counted, 0);
        assert!(size(all).estimated >= 2 * rest);
        // Usage reported before a compaction no longer applies.
        let kept = [assistant("m", 90_000), user("hi")];
        let compacted = |known| measure(&spec(0), 7, MeasuredHistory { kept: 1, kept_tokens: known, ..fresh(&kept) });
        assert_eq!(compacted(None), RequestSize { counted: 0, estimated: 7 + rest + tokens::of_message(&kept[0]) });
        // The size recorded by the compaction does.
        assert_eq!(compacted(Some(400)), RequestSize { counted: 0, estimated: 400 + rest });
    }

    #[test]
    fn only_requests_that_cannot_fit_are_rejected() {
        let messages = [assistant("m", 19_000), user(&"word ".repeat(4_000))];
        assert_eq!(overflow(&spec(40_000), 0, fresh(&messages)), None);
        assert_eq!(overflow(&spec(0), 0, fresh(&messages)), None);
        let error = overflow(&spec(20_000), 0, fresh(&messages)).unwrap();
        assert_eq!(error.kind, ErrorKind::Overflow);
        assert!(error.message.ends_with(
            "p/m has a context window of 20000; start a new session \
                 with /new, or choose a model with a larger context window"
        ));
    }
}
