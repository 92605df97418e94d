//! Timeline of a run: labelled spans, small enough to be stored with every run.
//!
//! Main spans tile the time from a run's acceptance to its end: each starts where the previous one ended, so that every
//! millisecond has a label. An *aside* is a detail that overlaps the main spans, such as a single tool call, a hook or
//! a failover.

use homard_proto::RunId;
use serde::{Deserialize, Deserializer, Serialize};

/// One span of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimelineSpan {
    /// Start in milliseconds since the epoch.
    pub from: u64,
    /// End in milliseconds since the epoch.
    pub to: u64,
    /// Label.
    #[serde(flatten)]
    pub what: SpanKind,
}

/// Label of a span.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum SpanKind {
    /// Waited in the queue, at the end for a slot.
    Queued {
        /// Time spent waiting for a slot.
        slot_ms: u64,
    },
    /// Built the prompt: files, hooks, history.
    Prepared,
    /// Requested an answer from a model.
    Model(Box<ModelRequestSpan>),
    /// Waited to retry after a model request failed.
    Retry {
        /// Error of the failed request.
        why: String,
    },
    /// Committed what must be on disk before a tool starts.
    Stored,
    /// Ran tools.
    Tools,
    /// Compacted the history, or tried to.
    Compaction {
        /// Estimated tokens before and after; `None` if nothing was compacted.
        tokens: Option<(u64, u64)>,
        /// Strategy, or the reason why nothing was compacted.
        how: String,
        /// Part of the run's message that was kept, if it did not fit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<TruncatedInput>,
    },
    /// The gateway was not running, or had not recovered the run yet.
    Down,
    /// Held after several crashes in a row, until the owner released it.
    Held,
    /// Committed the final reply.
    Finished,
    /// Ran hooks on the final records and replies.
    FinalHooks,
    /// Further spans that are not stored individually.
    More {
        /// Number of spans.
        steps: u64,
    },
    /// Aside: one tool call.
    Tool {
        /// Tool name.
        name: String,
        /// Call id.
        call: String,
        /// Digest of the arguments: equal calls have equal digests.
        digest: String,
        /// True if it failed.
        is_error: bool,
        /// Characters of the result before and after truncation, if it was truncated.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cut: Option<(u64, u64)>,
    },
    /// Aside: a hook made a decision.
    Hook {
        /// Hook point.
        point: String,
        /// Hook name.
        hook: String,
        /// Decision.
        decision: String,
    },
    /// Aside: a candidate failed or was skipped, and the next one is tried.
    Switched {
        /// The candidate, as `provider/model`.
        from_model: String,
        /// Why it failed or was skipped, as a short name such as `rate_limit`.
        reason: String,
        /// Error message, truncated if it is long.
        why: String,
    },
    /// Aside: a message was steered into the run.
    Joined,
    /// Aside: the disposition of the run's message changed after it was reported to the sender.
    Placed {
        /// The disposition as reported to senders: `steered`, `queued`, `summarized` and so on.
        disposition: String,
        /// Position in the queue, if any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        position: Option<u64>,
    },
    /// Aside: the run has been in the queue for 30 seconds, because its session is busy or no slot is free.
    Busy {
        /// Activity that it waits for.
        activity: String,
        /// Duration of that activity so far.
        busy_ms: u64,
    },
    /// Aside: the queue overflowed, and the model received a summary of these messages instead of their text.
    Summarized {
        /// Runs of the summarized messages.
        runs: Vec<RunId>,
    },
    /// Aside: a part of the reply was sent before the reply was complete.
    Block,
    /// Aside: a text of the reply was not sent, because a tool had sent it to the same conversation.
    Withheld {
        /// Tool call that had sent it.
        call: String,
        /// How the text repeats the one that the call sent: the same words (`same`), whole sentences of it (`part`), or
        /// all of it after a short introduction (`introduced`).
        repetition: String,
        /// Number of characters.
        chars: u64,
        /// Beginning of the text.
        text: String,
    },
}

impl SpanKind {
    /// True if the span is an aside: it overlaps the main spans instead of being one of them.
    pub fn is_aside(&self) -> bool {
        match self {
            Self::Tool { .. }
            | Self::Hook { .. }
            | Self::Switched { .. }
            | Self::Joined
            | Self::Placed { .. }
            | Self::Busy { .. }
            | Self::Summarized { .. }
            | Self::Block
            | Self::Withheld { .. } => true,
            Self::Queued { .. }
            | Self::Prepared
            | Self::Model(_)
            | Self::Retry { .. }
            | Self::Stored
            | Self::Tools
            | Self::Compaction { .. }
            | Self::Down
            | Self::Held
            | Self::Finished
            | Self::FinalHooks
            | Self::More { .. } => false,
        }
    }
}

/// A model request and its result.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ModelRequestSpan {
    /// Provider.
    pub provider: String,
    /// Model.
    pub model: String,
    /// Name of the credential, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Size of the prompt.
    pub prompt: PromptStats,
    /// Milliseconds until the first token; `None` if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_ms: Option<u64>,
    /// Prompt tokens that were not cached.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Prompt tokens read from the provider's cache.
    pub cache_read: u64,
    /// Prompt tokens written to the provider's cache.
    pub cache_write: u64,
    /// Cost in US dollars.
    pub cost: f64,
    /// Error, if the request failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Size and composition of a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PromptStats {
    /// Sections of the system prompt with their length in characters; only if they changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sections: Vec<(String, u64)>,
    /// Length of the system prompt in characters.
    pub system: u64,
    /// Number of tools.
    pub tools: u64,
    /// Number of messages.
    pub messages: u64,
    /// Estimated tokens of the whole prompt.
    pub tokens: u64,
    /// First part that differs from the session's previous request, where the provider's cache ends; `None` if messages
    /// were only appended, empty if there was no previous request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<String>,
    /// Number of old tool results that were shortened or removed because the provider's cache had expired anyway.
    #[serde(skip_serializing_if = "is_none")]
    pub pruned: u64,
    /// What was omitted or cut; only in the first request with this prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shortened: Option<PromptCuts>,
    /// Id of the system prompt and the tools in the request log, if they were kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

fn is_none(count: &u64) -> bool {
    *count == 0
}

/// A message that did not fit into the context window: the model received its beginning and its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TruncatedInput {
    /// Estimated tokens of the message.
    pub original_tokens: u64,
    /// Estimated tokens of the kept part.
    pub kept_tokens: u64,
    /// Characters of the message.
    pub original_chars: u64,
    /// Characters of the kept part.
    pub kept_chars: u64,
}

/// What a prompt omits or cuts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PromptCuts {
    /// `lean` or `bare`; `rich` for a full prompt with truncated files.
    pub style: String,
    /// Context window in tokens that caused the lean prompt; `None` if the config chose the style.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// Number of tools omitted.
    pub tools: u64,
    /// Workspace files that are truncated.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<TruncatedFile>,
}

/// A workspace file that is truncated in a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TruncatedFile {
    /// File name.
    pub name: String,
    /// Characters of the file.
    pub chars: u64,
    /// Characters kept in the prompt.
    pub kept: u64,
}

/// Spans of a run, oldest first.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(transparent)]
pub struct RunTimeline(Vec<TimelineSpan>);

impl RunTimeline {
    /// Maximum number of spans. The beginning of a long run shows where its time went, and rows must stay small.
    pub const MAX: usize = 200;

    /// Creates a timeline from ordered spans. Those beyond [`MAX`](Self::MAX) are replaced by one [`SpanKind::More`].
    pub fn new(mut spans: Vec<TimelineSpan>) -> Self {
        if spans.len() > Self::MAX {
            let excess = spans.split_off(Self::MAX - 1);
            let from = spans.iter().rev().find(|span| !span.what.is_aside()).map_or(0, |span| span.to);
            let last = excess.iter().rev().find(|span| !span.what.is_aside());
            spans.extend(last.map(|last| TimelineSpan {
                from,
                to: last.to,
                what: SpanKind::More { steps: excess.len() as u64 },
            }));
        }
        Self(spans)
    }

    /// Returns all spans.
    pub fn all(&self) -> &[TimelineSpan] {
        &self.0
    }

    /// Returns how much of the run's message the model received, if it was truncated.
    pub fn truncated_input(&self) -> Option<TruncatedInput> {
        let input = |span: &TimelineSpan| if let SpanKind::Compaction { input, .. } = span.what { input } else { None };
        self.0.iter().rev().find_map(input)
    }

    /// True if a model received a summary of this run's message instead of its text.
    pub fn is_summarized(&self, run: &RunId) -> bool {
        let is_match = |span: &TimelineSpan| matches!(&span.what, SpanKind::Summarized { runs } if runs.contains(run));
        self.0.iter().any(is_match)
    }

    /// Returns the number of milliseconds covered by main spans.
    pub fn covered_ms(&self) -> u64 {
        self.0.iter().filter(|span| !span.what.is_aside()).map(|span| span.to - span.from).sum()
    }

    /// Returns the spans from a time on: those that concern a message absorbed by the run.
    pub fn since(&self, at: u64) -> Self {
        let later = self.0.iter().filter(|span| span.to > at || (span.to == at && span.what.is_aside()));
        let later = later.map(|span| TimelineSpan { from: span.from.max(at), ..span.clone() });
        // The message may have waited for the run that absorbed it.
        let first = self.0.iter().find(|span| !span.what.is_aside()).map_or(at, |span| span.from);
        let waited =
            (first > at).then_some(TimelineSpan { from: at, to: first, what: SpanKind::Queued { slot_ms: 0 } });
        Self(waited.into_iter().chain(later).collect())
    }
}

/// Skips spans that another version wrote and this one cannot parse, because the end of a run matters more than its
/// timeline.
impl<'de> Deserialize<'de> for RunTimeline {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spans = Vec::<serde_json::Value>::deserialize(deserializer)?;
        Ok(Self(spans.into_iter().filter_map(|span| serde_json::from_value(span).ok()).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(from: u64, to: u64, what: SpanKind) -> TimelineSpan {
        TimelineSpan { from, to, what }
    }

    #[test]
    fn a_long_timeline_is_truncated_and_covers_all_time() {
        let steps = (0..1_000)
            .map(|start| span(start, start + 1, if start % 2 == 0 { SpanKind::Prepared } else { SpanKind::Tools }));
        let timeline = RunTimeline::new(steps.collect());
        assert_eq!((timeline.all().len(), timeline.covered_ms()), (RunTimeline::MAX, 1_000));
        assert_eq!(timeline.all()[199], span(199, 1_000, SpanKind::More { steps: 801 }));
    }

    #[test]
    fn unknown_spans_are_skipped() {
        let text = r#"[["model",1020],{"from":1,"to":2,"step":"prepared"},{"from":2,"to":3,"step":"novel"}]"#;
        let timeline: RunTimeline = serde_json::from_str(text).unwrap();
        assert_eq!(timeline, RunTimeline(vec![span(1, 2, SpanKind::Prepared)]));
        assert_eq!(serde_json::to_string(&timeline).unwrap(), r#"[{"from":1,"to":2,"step":"prepared"}]"#);
    }

    #[test]
    fn spans_of_earlier_versions_are_read() {
        let text = r#"[{"from":1,"to":2,"step":"compaction","tokens":[9,4],"how":"asked"},
            {"from":1,"to":2,"step":"tool","name":"read","call":"c","digest":"ab","isError":false}]"#;
        let timeline: RunTimeline = serde_json::from_str(text).unwrap();
        let compaction = SpanKind::Compaction { tokens: Some((9, 4)), how: "asked".to_owned(), input: None };
        let (name, call, digest) = ("read".to_owned(), "c".to_owned(), "ab".to_owned());
        let tool = SpanKind::Tool { name, call, digest, is_error: false, cut: None };
        assert_eq!(timeline, RunTimeline(vec![span(1, 2, compaction), span(1, 2, tool)]));
        assert_eq!(timeline.truncated_input(), None);
    }

    #[test]
    fn an_absorbed_message_sees_only_later_spans() {
        let steps = RunTimeline(vec![
            span(0, 5, SpanKind::Queued { slot_ms: 0 }),
            span(5, 9, SpanKind::Prepared),
            span(7, 7, SpanKind::Joined),
            span(9, 20, SpanKind::Tools),
        ]);
        let joined = steps.since(7);
        assert_eq!(
            joined.all(),
            [span(7, 9, SpanKind::Prepared), span(7, 7, SpanKind::Joined), span(9, 20, SpanKind::Tools)]
        );
        assert_eq!(joined.covered_ms(), 13);
        let later = RunTimeline(vec![span(9, 20, SpanKind::Tools)]);
        assert_eq!(later.since(7).all(), [span(7, 9, SpanKind::Queued { slot_ms: 0 }), span(9, 20, SpanKind::Tools)]);
    }
}
