//! One section of a summary: its requests, their answers, and the replacement of missing answers.

use std::{fmt::Write, sync::Arc};

use homard_model::tokens::estimate;
use homard_proto::message::Message;

use super::{SummaryFailure, SummaryRequest, without_appendix};
use crate::{
    cut,
    extract::extract,
    prompt::{self, Kind, RETRY_NOTE, SYSTEM, SummaryStage},
    serialise::{TranscriptPiece, pieces},
    settings::CompactionMode,
};

/// Minimum tokens of a piece for a request.
const MIN_PIECE_TOKENS: u64 = 300;

/// Minimum length allowed for an answer in tokens, however little of it is kept: headings alone take some.
const MIN_ANSWER_TOKENS: u64 = 400;

/// Overhead of a request in tokens.
const FRAME_TOKENS: u64 = 64;

/// The model that writes summaries, and how it is asked.
#[derive(Debug)]
pub(super) struct SummaryModel {
    /// Context window; zero for no model.
    pub(super) window: u64,
    pub(super) mode: CompactionMode,
    pub(super) focus: Option<String>,
}

impl SummaryModel {
    /// Returns the tokens for a request and its answer. Estimates are not exact, so a fifth is left free.
    fn usable(&self) -> u64 {
        self.window / 5 * 4
    }

    /// Returns the tokens of messages that fit into one request.
    fn piece(&self, messages: &[Arc<Message>], overhead: u64) -> u64 {
        let free = self.usable().saturating_sub(overhead);
        match self.mode {
            CompactionMode::Default => free,
            CompactionMode::Safeguard => free.min((self.window as f64 * self.ratio(messages)) as u64),
        }
    }

    /// Returns the share of the window that one request fills: less if single messages are large, so that fewer of them
    /// are cut.
    fn ratio(&self, messages: &[Arc<Message>]) -> f64 {
        let all: u64 = messages.iter().map(|message| homard_model::tokens::of_message(message)).sum();
        let share = all as f64 / (messages.len().max(1) as f64) * 1.2 / (self.window.max(1) as f64);
        if share > 0.1 { 0.4 - (2.0 * share).min(0.25) } else { 0.4 }
    }
}

/// Current step of a section: first each piece is summarized, then the summaries are merged.
#[derive(Debug, Clone, Copy)]
enum SectionStep {
    /// Summarizing the piece with this index.
    Part(usize),
    Merge,
    Over,
}

/// One section of a summary.
#[derive(Debug)]
pub(super) struct SummarySection {
    kind: Kind,
    messages: Vec<Arc<Message>>,
    previous: Option<String>,
    pieces: Vec<TranscriptPiece>,
    /// Maximum tokens of the whole section.
    budget: u64,
    /// Maximum tokens of the summary of a piece, so that one request can hold them all.
    share: u64,
    step: SectionStep,
    /// Why the current request is sent a second time.
    retry: Option<RetryReason>,
    parts: Vec<String>,
    text: String,
    pub(super) answered: usize,
    pub(super) replaced: usize,
    pub(super) merged: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RetryReason {
    TooLong,
    Failed,
    Unfit,
}

impl SummarySection {
    pub(super) fn new(
        kind: Kind,
        messages: Vec<Arc<Message>>,
        previous: Option<String>,
        budget: u64,
        model: &SummaryModel,
    ) -> Self {
        let previous = previous.map(|text| cut::lines(&text, budget));
        let longest = prompt::instruction(kind, SummaryStage::Update, budget, model.focus.as_deref());
        let answer = budget.max(MIN_ANSWER_TOKENS);
        let overhead = estimate(SYSTEM) + estimate(&longest) + estimate(RETRY_NOTE) + FRAME_TOKENS + answer;
        let with_previous = overhead + previous.as_deref().map_or(0, estimate);
        let max_piece = model.piece(&messages, with_previous);
        let pieces = match (messages.is_empty(), max_piece < MIN_PIECE_TOKENS) {
            (true, _) => Vec::new(),
            // No model can be used.
            (false, true) => vec![TranscriptPiece { messages: 0..messages.len(), text: String::new(), tokens: 0 }],
            (false, false) => pieces(&messages, max_piece),
        };
        // The earlier summary is one of those that are merged.
        let part_budget = model.usable().saturating_sub(overhead) / (pieces.len() as u64 + 1);
        let share = if pieces.len() > 1 { budget.min(part_budget.saturating_sub(FRAME_TOKENS / 4)) } else { budget };
        Self {
            kind,
            messages,
            previous,
            pieces,
            budget,
            share,
            step: SectionStep::Part(0),
            retry: None,
            parts: Vec::new(),
            text: String::new(),
            answered: 0,
            replaced: 0,
            merged: 0,
        }
    }

    pub(super) fn max_requests(&self) -> usize {
        let parts = self.pieces.iter().filter(|piece| !piece.text.is_empty()).count();
        2 * (parts + usize::from(self.pieces.len() > 1))
    }

    /// Returns the result, once there is no request left.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the current request; `None` once all were answered.
    pub(super) fn next_request(&mut self, model: &SummaryModel) -> Option<SummaryRequest> {
        loop {
            let request = match self.step {
                SectionStep::Over => return None,
                SectionStep::Part(index) if index == self.pieces.len() => {
                    self.combine();
                    continue;
                }
                SectionStep::Part(index) => self.part_request(index, model),
                SectionStep::Merge => self.merge_request(model),
            };
            let fits = |request: &SummaryRequest| {
                estimate(&request.system) + estimate(&request.user) + request.max_tokens <= model.window
            };
            match request.filter(fits) {
                Some(request) => return Some(request),
                None => self.replace(),
            }
        }
    }

    /// Handles an answer; returns true if it was unusable for the second time, so that its request is given up.
    pub(super) fn take(&mut self, answer: Result<&str, SummaryFailure>) -> bool {
        let validated = match answer {
            Ok(text) => self.validate(without_appendix(text)).ok_or(RetryReason::Unfit),
            Err(SummaryFailure::Overflow) => Err(RetryReason::TooLong),
            Err(SummaryFailure::Failed) => Err(RetryReason::Failed),
        };
        match (validated, self.retry) {
            (Ok(text), _) => self.accept(text),
            (Err(reason), None) => self.retry = Some(reason),
            (Err(_), Some(_)) => {
                self.replace();
                return true;
            }
        }
        false
    }

    fn stage(&self, index: usize) -> SummaryStage {
        match (self.pieces.len(), &self.previous) {
            (0 | 1, None) => SummaryStage::Whole,
            (0 | 1, Some(_)) => SummaryStage::Update,
            (count, _) => SummaryStage::Part(index + 1, count),
        }
    }

    fn part_request(&self, index: usize, model: &SummaryModel) -> Option<SummaryRequest> {
        let piece = self.pieces.get(index).filter(|piece| !piece.text.is_empty())?;
        let short = (self.retry == Some(RetryReason::TooLong)).then(|| cut::middle(&piece.text, piece.tokens / 2));
        let text = short.as_deref().unwrap_or(&piece.text);
        let mut user = format!("<conversation>\n{text}\n</conversation>\n\n");
        let stage = self.stage(index);
        if let (SummaryStage::Update, Some(previous)) = (stage, &self.previous) {
            // Writing to a string cannot fail.
            write!(user, "<previous-summary>\n{previous}\n</previous-summary>\n\n").unwrap_or_default();
        }
        Some(self.build_request(user, stage, self.share, model))
    }

    fn merge_request(&self, model: &SummaryModel) -> Option<SummaryRequest> {
        let share = if self.retry == Some(RetryReason::TooLong) { self.share / 2 } else { self.share };
        let mut user = String::new();
        for (index, text) in self.previous.iter().chain(&self.parts).enumerate() {
            let text = cut::lines(text, share);
            write!(user, "<checkpoint number=\"{}\">\n{text}\n</checkpoint>\n\n", index + 1).unwrap_or_default();
        }
        Some(self.build_request(user, SummaryStage::Merge, self.budget, model))
    }

    fn build_request(
        &self,
        mut user: String,
        stage: SummaryStage,
        tokens: u64,
        model: &SummaryModel,
    ) -> SummaryRequest {
        user.push_str(&prompt::instruction(self.kind, stage, tokens, model.focus.as_deref()));
        if self.retry == Some(RetryReason::Unfit) {
            user.push_str(RETRY_NOTE);
        }
        SummaryRequest { system: SYSTEM.to_owned(), user, max_tokens: tokens.max(MIN_ANSWER_TOKENS) }
    }

    /// Returns the text of an answer, if it is usable.
    fn validate<'a>(&self, text: &'a str) -> Option<&'a str> {
        let (source_tokens, share) = match self.step {
            SectionStep::Part(index) => (self.pieces.get(index).map_or(0, |piece| piece.tokens), self.share),
            SectionStep::Merge => (self.parts.iter().map(|part| estimate(part)).sum(), self.budget),
            SectionStep::Over => return None,
        };
        let tokens = estimate(text);
        let min_tokens = (source_tokens / 200).clamp(8, 48).min(share);
        let fits = (min_tokens..=2 * share.max(MIN_ANSWER_TOKENS)).contains(&tokens);
        (fits && prompt::has_headings(self.kind, text)).then_some(text)
    }

    fn accept(&mut self, text: &str) {
        self.retry = None;
        match self.step {
            SectionStep::Part(index) => {
                self.parts.push(cut::lines(text, self.share));
                self.answered += 1;
                self.step = SectionStep::Part(index + 1);
            }
            SectionStep::Merge => {
                self.merged += 1;
                self.end(cut::lines(text, self.budget));
            }
            SectionStep::Over => {}
        }
    }

    /// Gives up the current request. The summary of a part is replaced by an extract, the merged summary by the
    /// concatenated parts.
    fn replace(&mut self) {
        self.retry = None;
        match self.step {
            SectionStep::Part(index) => {
                let messages = self.pieces.get(index).map_or(0..0, |piece| piece.messages.clone());
                // The earlier summary is merged into the part whose request would have contained it.
                let previous = self.previous.as_deref().filter(|_| self.pieces.len() == 1);
                self.parts.push(extract(&self.messages[messages], previous, self.share));
                self.replaced += 1;
                self.step = SectionStep::Part(index + 1);
            }
            SectionStep::Merge => {
                self.replaced += 1;
                let joined = self.concatenate();
                self.end(joined);
            }
            SectionStep::Over => {}
        }
    }

    /// Combines the parts once all are present.
    fn combine(&mut self) {
        match self.parts.len() {
            0 => {
                let text = self.previous.clone().unwrap_or_default();
                self.end(text);
            }
            1 => {
                let text = self.parts.remove(0);
                self.end(text);
            }
            // An extract from the messages is better than one from extracts.
            _ if self.answered == 0 => {
                let text = extract(&self.messages, self.previous.as_deref(), self.budget);
                self.end(text);
            }
            _ => self.step = SectionStep::Merge,
        }
    }

    /// Concatenates the parts, each truncated to its share.
    fn concatenate(&self) -> String {
        let texts: Vec<_> = self.previous.iter().chain(&self.parts).collect();
        let part_budget = (self.budget / texts.len().max(1) as u64).saturating_sub(2);
        texts.into_iter().map(|text| cut::lines(text, part_budget)).collect::<Vec<_>>().join("\n\n")
    }

    fn end(&mut self, text: String) {
        self.text = text;
        self.parts.clear();
        self.step = SectionStep::Over;
    }
}
