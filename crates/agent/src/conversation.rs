//! What a model is told of a session, message by message, with the lines of the transcript that say it.
//!
//! A compaction must know which line it keeps first, and what the last one wrote. Both are at hand here, so that it costs
//! what the conversation holds and not what the transcript does.

use std::{
    ops::Deref,
    sync::{Arc, OnceLock},
};

use homard_compact::{Line, escalate};
use homard_proto::{EntryId, message::Message, transcript::Entry};
use homard_store::branch::{self, Summary, View};
use serde_json::Value;

use crate::context::budget::Said;

/// What a model is told of a session. It reads as its messages, the summary of the last compaction first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Conversation {
    /// As the transcript says it.
    view: View,
    /// As a model reads it.
    told: Vec<Arc<Message>>,
    /// What each of these weighs, once it was weighed: every question asks how long the conversation is.
    weights: Vec<OnceLock<u64>>,
    /// The message that a run shows otherwise than it is, and where it stands.
    bare: Option<(usize, Arc<Message>)>,
}

impl Deref for Conversation {
    type Target = [Arc<Message>];

    fn deref(&self) -> &Self::Target {
        &self.told
    }
}

impl Conversation {
    /// What a transcript tells.
    pub(crate) fn read(entries: &[Entry]) -> Self {
        Self::of(branch::view(entries))
    }

    fn of(view: View) -> Self {
        let most = view.summary.as_ref().and_then(|summary| escalate::kept_chars(&summary.details));
        let shown = |(place, (_, message)): (usize, &(EntryId, Arc<Message>))| {
            // Results that a compaction kept are shown as short as it said.
            let short = most.filter(|_| place < view.kept).and_then(|most| escalate::shorten(message, most));
            short.map_or_else(|| message.clone(), Arc::new)
        };
        let summary = view.summary.iter().map(|summary| summary.message.clone());
        let told: Vec<_> = summary.chain(view.lines.iter().enumerate().map(shown)).collect();
        let weights = vec![OnceLock::new(); told.len()];
        Self { view, told, weights, bare: None }
    }

    /// Shows a message otherwise than it is, until the run is over or the conversation is made short.
    pub(crate) fn dress(&mut self, place: usize, message: Arc<Message>) {
        if let Some(told) = self.told.get_mut(place) {
            let bare = std::mem::replace(told, message);
            self.weights[place] = OnceLock::new();
            self.bare.get_or_insert((place, bare));
        }
    }

    /// As it is.
    pub(crate) fn undressed(mut self) -> Self {
        if let Some((place, bare)) = self.bare.take() {
            self.told[place] = bare;
            self.weights[place] = OnceLock::new();
        }
        self
    }

    /// Adds what a new line says.
    pub(crate) fn push(&mut self, line: EntryId, message: Arc<Message>) {
        self.told.push(message.clone());
        self.weights.push(OnceLock::new());
        self.view.lines.push((line, message));
    }

    /// What stands for everything before, if there was a compaction.
    pub(crate) fn summary(&self) -> Option<&Summary> {
        self.view.summary.as_ref()
    }

    /// How many lines the last compaction kept; `None` if there was none.
    pub(crate) fn kept(&self) -> Option<usize> {
        self.view.summary.as_ref().map(|_| self.view.kept)
    }

    /// The lines behind the summary, as a model reads them.
    pub(crate) fn lines(&self) -> Vec<Line> {
        let bare = |place: usize| self.bare.as_ref().filter(|(bare, _)| *bare == place).map(|(_, message)| message);
        let told = self.told.iter().enumerate().map(|(place, told)| bare(place).unwrap_or(told).clone());
        let told = told.skip(usize::from(self.view.summary.is_some()));
        self.view.lines.iter().zip(told).map(|((id, _), message)| Line::new(id.clone(), message)).collect()
    }

    /// What is known of its size.
    pub(crate) fn said(&self) -> Said<'_> {
        let known = |summary: &Summary| summary.details.get(TOKENS_AFTER).and_then(Value::as_u64);
        Said {
            messages: &self.told,
            weights: &self.weights,
            old: self.view.kept + usize::from(self.view.summary.is_some()),
            known: self.view.summary.as_ref().and_then(known),
        }
    }

    /// What is told after a compaction that wrote this summary and kept the lines from `kept` on.
    pub(crate) fn compacted(&self, summary: Summary, kept: usize) -> Self {
        let lines = self.view.lines[kept.min(self.view.lines.len())..].to_vec();
        Self::of(View { summary: Some(summary), kept: lines.len(), lines })
    }
}

/// What a compaction says in its details of how many tokens the conversation takes after it.
pub(crate) const TOKENS_AFTER: &str = "tokensAfter";

#[cfg(test)]
mod tests {
    use homard_model::Spec;
    use homard_proto::{message::User, transcript::Kind};
    use serde_json::{from_value, json};

    use super::*;
    use crate::context::budget;

    fn id(number: usize) -> EntryId {
        EntryId::parse(&format!("l{number}")).unwrap()
    }

    fn entry(number: usize, kind: Kind) -> Entry {
        let parent_id = number.checked_sub(1).map(id);
        Entry { kind, id: id(number), parent_id, timestamp: "t".to_owned() }
    }

    /// Turns of a request, a call and its long result.
    fn transcript(turns: usize) -> Vec<Entry> {
        let turn = |at: usize| {
            [
                json!({"role": "user", "content": format!("request {at}"), "timestamp": 0}),
                json!({"role": "assistant", "content": [{"type": "toolCall", "id": "c", "name": "x", "arguments": {}}]}),
                json!({"role": "toolResult", "toolCallId": "c", "toolName": "x",
                    "content": [{"type": "text", "text": "word ".repeat(2_000)}]}),
            ]
        };
        let messages = (0..turns).flat_map(turn).map(|message| Kind::message(from_value(message).unwrap()));
        messages.enumerate().map(|(at, kind)| entry(at, kind)).collect()
    }

    /// What it comes to in memory is what a restart reads.
    #[test]
    fn it_is_after_a_compaction_what_the_transcript_says() {
        let mut entries = transcript(4);
        let mut conversation = Conversation::read(&entries);
        // One that keeps some, one that keeps fewer and shows less of them, one that keeps nothing.
        for (kept, details) in
            [(3, json!({"a": 1, "tokensAfter": 7})), (3, json!({"resultChars": 4_000})), (99, json!({}))]
        {
            let line = id(entries.len());
            let first = conversation.lines().get(kept).map_or_else(|| line.clone(), |line| line.entry.clone());
            let compaction = entry(entries.len(), Kind::compaction("in short", &first, 9_000, details.clone()));
            entries.push(compaction);
            let summary = Summary::new("in short".to_owned(), details, (line, Some(9_000)));
            conversation = conversation.compacted(summary, kept);
            let message: Message = from_value(json!({"role": "user", "content": "more", "timestamp": 0})).unwrap();
            conversation.push(id(entries.len()), Arc::new(message.clone()));
            entries.push(entry(entries.len(), Kind::message(message)));
            let read = Conversation::read(&entries);
            assert_eq!(weight(&conversation), weight(&read));
            assert_eq!(conversation.to_vec(), read.to_vec());
            assert_eq!(conversation.lines(), read.lines());
            assert_eq!((conversation.said().old, conversation.said().known), (read.said().old, read.said().known));
        }
        assert_eq!(conversation.len(), 2);
    }

    /// What it weighs, which must be what it weighs to somebody who weighs all of it anew.
    fn weight(conversation: &Conversation) -> u64 {
        let weigh = |said| budget::weigh(&Spec::default(), 0, said).tokens();
        let weight = weigh(conversation.said());
        assert_eq!(weight, weigh(Said { weights: &[], ..conversation.said() }));
        weight
    }

    #[test]
    fn what_a_run_shows_otherwise_is_not_summed_up_or_kept() {
        let plain = Conversation::read(&transcript(2));
        let before = weight(&plain);
        let mut dressed = plain.clone();
        dressed.dress(3, Arc::new(Message::User(User::text("request 1, by the way", 0))));
        assert_ne!(dressed.to_vec(), plain.to_vec());
        assert!(weight(&dressed) > before);
        assert_eq!(dressed.lines(), plain.lines());
        let undressed = dressed.undressed();
        assert_eq!((undressed.to_vec(), weight(&undressed)), (plain.to_vec(), before));
    }
}
