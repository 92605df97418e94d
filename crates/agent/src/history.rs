//! The history of a session as sent to a model, with the transcript entry of each message.
//!
//! A compaction must know the first entry it keeps and the previous summary. Both are kept here, so that its cost
//! depends on the size of the history and not of the transcript.

use std::{
    ops::Deref,
    sync::{Arc, OnceLock},
};

use homard_compact::{HistoryLine, escalate};
use homard_prompt::context_budget::MeasuredHistory;
use homard_proto::{EntryId, message::Message, transcript::Entry};
use homard_store::branch::{self, ContextView, Summary};
use serde_json::Value;

/// History of a session for a model. Dereferences to its messages, with the summary of the last compaction first.
#[derive(Debug, Clone, Default)]
pub(crate) struct SessionHistory {
    /// As in the transcript.
    view: ContextView,
    /// As sent to a model.
    messages: Vec<Arc<Message>>,
    /// Cached token estimate of each message: every request needs the size of the history.
    estimates: Vec<OnceLock<u64>>,
    /// Original of the message that a run shows in changed form, and its index.
    original: Option<(usize, Arc<Message>)>,
}

impl Deref for SessionHistory {
    type Target = [Arc<Message>];

    fn deref(&self) -> &Self::Target {
        &self.messages
    }
}

impl SessionHistory {
    /// Reads the history from a transcript.
    pub(crate) fn read(entries: &[Entry]) -> Self {
        Self::of(branch::view(entries))
    }

    fn of(view: ContextView) -> Self {
        let max_chars = view.summary.as_ref().and_then(|summary| escalate::kept_chars(&summary.details));
        let visible_message = |(index, (_, message)): (usize, &(EntryId, Arc<Message>))| {
            // Tool results kept by a compaction are shortened as it specified.
            let truncated = max_chars
                .filter(|_| index < view.kept)
                .and_then(|max_chars| escalate::truncate_result(message, max_chars));
            truncated.map_or_else(|| message.clone(), Arc::new)
        };
        let summary = view.summary.iter().map(|summary| summary.message.clone());
        let messages: Vec<_> = summary.chain(view.lines.iter().enumerate().map(visible_message)).collect();
        let estimates = vec![OnceLock::new(); messages.len()];
        Self { view, messages, estimates, original: None }
    }

    /// Shows a message in changed form, until the run ends or the history is compacted.
    pub(crate) fn override_message(&mut self, index: usize, message: Arc<Message>) {
        if let Some(shown) = self.messages.get_mut(index) {
            let original = std::mem::replace(shown, message);
            self.estimates[index] = OnceLock::new();
            self.original.get_or_insert((index, original));
        }
    }

    /// Restores the original of a changed message.
    pub(crate) fn without_override(mut self) -> Self {
        if let Some((index, original)) = self.original.take() {
            self.messages[index] = original;
            self.estimates[index] = OnceLock::new();
        }
        self
    }

    /// Appends the message of a new entry.
    pub(crate) fn push(&mut self, id: EntryId, message: Arc<Message>) {
        self.messages.push(message.clone());
        self.estimates.push(OnceLock::new());
        self.view.lines.push((id, message));
    }

    /// Returns the summary of the last compaction, if any.
    pub(crate) fn summary(&self) -> Option<&Summary> {
        self.view.summary.as_ref()
    }

    /// Returns the number of entries that the last compaction kept; `None` without a compaction.
    pub(crate) fn kept(&self) -> Option<usize> {
        self.view.summary.as_ref().map(|_| self.view.kept)
    }

    /// Returns the entries after the summary, as sent to a model.
    pub(crate) fn lines(&self) -> Vec<HistoryLine> {
        let original = |index: usize| {
            self.original.as_ref().filter(|(original, _)| *original == index).map(|(_, message)| message)
        };
        let messages =
            self.messages.iter().enumerate().map(|(index, messages)| original(index).unwrap_or(messages).clone());
        let messages = messages.skip(usize::from(self.view.summary.is_some()));
        self.view.lines.iter().zip(messages).map(|((id, _), message)| HistoryLine::new(id.clone(), message)).collect()
    }

    /// Returns what is known about the size of the history.
    pub(crate) fn measured(&self) -> MeasuredHistory<'_> {
        let tokens_after = |summary: &Summary| summary.details.get(TOKENS_AFTER).and_then(Value::as_u64);
        MeasuredHistory {
            messages: &self.messages,
            estimates: &self.estimates,
            kept: self.view.kept + usize::from(self.view.summary.is_some()),
            kept_tokens: self.view.summary.as_ref().and_then(tokens_after),
        }
    }

    /// Returns the history after a compaction with this summary that keeps the entries from index `kept` on.
    pub(crate) fn compacted(&self, summary: Summary, kept: usize) -> Self {
        let lines = self.view.lines[kept.min(self.view.lines.len())..].to_vec();
        Self::of(ContextView { summary: Some(summary), kept: lines.len(), lines })
    }
}

/// Field of a compaction's details with the number of context tokens after it.
pub(crate) const TOKENS_AFTER: &str = "tokensAfter";

#[cfg(test)]
mod tests {
    use homard_model::ModelSpec;
    use homard_proto::{message::User, transcript::Kind};
    use serde_json::{from_value, json};

    use super::*;
    use homard_prompt::context_budget as budget;

    fn id(number: usize) -> EntryId {
        EntryId::parse(&format!("l{number}")).unwrap()
    }

    fn entry(number: usize, kind: Kind) -> Entry {
        let parent_id = number.checked_sub(1).map(id);
        Entry { kind, id: id(number), parent_id, timestamp: "t".to_owned() }
    }

    /// Builds turns of a request, a tool call and its long result.
    fn transcript(turns: usize) -> Vec<Entry> {
        let turn = |index: usize| {
            [
                json!({"role": "user", "content": format!("request {index}"), "timestamp": 0}),
                json!({"role": "assistant", "content": [{"type": "toolCall", "id": "c", "name": "x", "arguments": {}}]}),
                json!({"role": "toolResult", "toolCallId": "c", "toolName": "x",
                    "content": [{"type": "text", "text": "word ".repeat(2_000)}]}),
            ]
        };
        let messages = (0..turns).flat_map(turn).map(|message| Kind::message(from_value(message).unwrap()));
        messages.enumerate().map(|(index, kind)| entry(index, kind)).collect()
    }

    /// The state in memory equals what a restart reads.
    #[test]
    fn a_compacted_history_equals_the_one_read_from_the_transcript() {
        let mut entries = transcript(4);
        let mut history = SessionHistory::read(&entries);
        // One that keeps some, one that keeps fewer and shows less of them, one that keeps nothing.
        for (kept, details) in
            [(3, json!({"a": 1, "tokensAfter": 7})), (3, json!({"resultChars": 4_000})), (99, json!({}))]
        {
            let line = id(entries.len());
            let first_kept = history.lines().get(kept).map_or_else(|| line.clone(), |line| line.entry.clone());
            let compaction = entry(entries.len(), Kind::compaction("in short", &first_kept, 9_000, details.clone()));
            entries.push(compaction);
            let summary = Summary::new("in short".to_owned(), details, line, Some(9_000));
            history = history.compacted(summary, kept);
            let message: Message = from_value(json!({"role": "user", "content": "more", "timestamp": 0})).unwrap();
            history.push(id(entries.len()), Arc::new(message.clone()));
            entries.push(entry(entries.len(), Kind::message(message)));
            let reread = SessionHistory::read(&entries);
            assert_eq!(token_estimate(&history), token_estimate(&reread));
            assert_eq!(history.to_vec(), reread.to_vec());
            assert_eq!(history.lines(), reread.lines());
            assert_eq!(
                (history.measured().kept, history.measured().kept_tokens),
                (reread.measured().kept, reread.measured().kept_tokens)
            );
        }
        assert_eq!(history.len(), 2);
    }

    /// Returns the token estimate, which must be the same without the cache.
    fn token_estimate(history: &SessionHistory) -> u64 {
        let estimate = |measured| budget::measure(&ModelSpec::default(), 0, measured).tokens();
        let tokens = estimate(history.measured());
        assert_eq!(tokens, estimate(MeasuredHistory { estimates: &[], ..history.measured() }));
        tokens
    }

    #[test]
    fn an_overridden_message_is_neither_summarized_nor_kept() {
        let plain = SessionHistory::read(&transcript(2));
        let before = token_estimate(&plain);
        let mut overridden = plain.clone();
        overridden.override_message(3, Arc::new(Message::User(User::text("request 1, by the way", 0))));
        assert_ne!(overridden.to_vec(), plain.to_vec());
        assert!(token_estimate(&overridden) > before);
        assert_eq!(overridden.lines(), plain.lines());
        let restored = overridden.without_override();
        assert_eq!((restored.to_vec(), token_estimate(&restored)), (plain.to_vec(), before));
    }
}
