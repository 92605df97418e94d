//! State machine of one compaction, which asks its caller for model answers.
//!
//! Nothing is written before it is complete: the result is one [`FinishedCompaction`], so an interrupted compaction has
//! no effect. The transcript keeps every entry; the outcome says from which one on they are sent, and contains the
//! summary for the others.

use std::sync::Arc;

use homard_model::tokens::estimate;
use homard_proto::message::{Block, Content, Message, User};
use serde_json::{Map, Value, json};

use crate::{
    escalate::{CompactionFailure, CompactionStrategy, Ladder, kept_chars, result_chars, truncate_result},
    line::{History, HistoryLine, total_tokens},
    plan::{CompactionPlan, Keep, NothingToCompact, plan},
    serialise::name_image,
    settings::{CompactionLimits, CompactionMode},
    summary::{
        self, CompactionSummary, NO_HISTORY, PreviousCompaction, QuotedRequest, Summarizer, SummaryFailure, SummaryJob,
        SummaryMethod, SummaryRequest,
    },
};

/// Minimum space for a conversation, in tokens.
const MIN_SPACE: u64 = 1_024;

/// Minimum size of a summary, in tokens; a shorter one is useless.
const MIN_SUMMARY_TOKENS: u64 = 256;

/// Overhead of the message that contains a summary, and of a request quoted in it, in tokens.
const WRAPPER_TOKENS: u64 = 64;

/// Minimum number of characters sent of a tool result.
const MIN_RESULT_CHARS: usize = 400;

/// Input of a compaction.
#[derive(Debug, Clone)]
pub struct CompactionInput {
    /// Messages sent to the model, oldest first, after the summary of the last compaction.
    pub lines: Vec<HistoryLine>,
    /// How many of them the last compaction kept; `None` if there was none.
    pub kept: Option<usize>,
    /// Result of the last compaction.
    pub previous: Option<PreviousCompaction>,
    /// Token limits of the conversation.
    pub limits: CompactionLimits,
    /// What the user asked to pay attention to.
    pub focus: Option<String>,
    /// Context windows of the summary models: if one fails, the next one is tried. An extract replaces the summary only
    /// when none is left.
    pub summary_windows: Vec<u64>,
    /// Size of the parts that a summary model reads.
    pub mode: CompactionMode,
}

/// Next step of a compaction.
#[derive(Debug, Clone, PartialEq)]
pub enum CompactionStep {
    /// Send a request to the model at index [`Compaction::model_index`] and report the answer to
    /// [`Compaction::answer`].
    Ask(SummaryRequest),
    /// The compaction is complete.
    Done(Box<FinishedCompaction>),
    /// There was nothing to compact.
    Nothing(NothingToCompact),
    /// Compaction is not possible.
    GaveUp(CompactionFailure),
}

/// Result of a compaction.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedCompaction {
    /// Summary of the lines that are no longer sent to the model.
    pub summary: String,
    /// Details for programs and the next compaction. `resultChars`, read by [`crate::escalate::kept_chars`], means that
    /// the tool results among the kept lines are sent as [`crate::escalate::truncate_result`] truncates them.
    pub details: Value,
    /// How the summary was created; `None` if no line was removed and only tool results were truncated.
    pub method: Option<SummaryMethod>,
    /// Index of the first line that is still sent to the model; the number of lines if none is.
    pub kept: usize,
    /// Strategies used, in order.
    pub strategies: Vec<CompactionStrategy>,
    /// Estimated tokens before the compaction.
    pub before: u64,
    /// Estimated tokens after the compaction.
    pub after: u64,
}

/// A compaction in progress.
#[derive(Debug)]
pub struct Compaction {
    task: CompactionInput,
    ladder: Ladder,
    /// Index of the first line that is still sent to the model.
    kept: usize,
    result_chars: Option<usize>,
    /// Number of characters to which the last compaction truncated the results that it kept; they are already truncated
    /// in the input.
    previous_result_chars: Option<usize>,
    method: Option<SummaryMethod>,
    strategies: Vec<CompactionStrategy>,
    before: u64,
    pass: Option<SummaryPass>,
    /// Index of the summary model in use.
    model_index: usize,
    end: Option<CompactionStep>,
}

/// A strategy in progress.
#[derive(Debug)]
struct SummaryPass {
    summarizer: Box<Summarizer>,
    /// Index of the first line that is sent to the model after it.
    kept: usize,
    keep: Keep,
    /// True if a model is used.
    uses_model: bool,
}

impl Compaction {
    /// Creates a compaction that uses the strategies `ladder` has not used yet.
    pub fn new(task: CompactionInput, ladder: Ladder) -> Self {
        let CompactionLimits { space, overhead, threshold, .. } = task.limits;
        let end =
            (space < MIN_SPACE).then_some(CompactionStep::GaveUp(CompactionFailure::NoSpace { overhead, threshold }));
        let previous_result_chars = task.previous.as_ref().and_then(|previous| kept_chars(&previous.details));
        let mut compaction = Self {
            previous_result_chars,
            task,
            ladder,
            kept: 0,
            result_chars: None,
            method: None,
            strategies: Vec::new(),
            before: 0,
            pass: None,
            model_index: 0,
            end,
        };
        compaction.before = compaction.used_tokens();
        compaction
    }

    /// Returns which strategies were used, so that another attempt continues with the next one.
    pub fn ladder(&self) -> Ladder {
        self.ladder
    }

    /// Returns the index of the summary model in use.
    pub fn model_index(&self) -> usize {
        self.model_index
    }

    /// Returns the next step. A request is returned again until it is answered.
    pub fn step(&mut self) -> CompactionStep {
        loop {
            if let Some(end) = &self.end {
                return end.clone();
            }
            match self.pass.as_mut().map(|pass| (pass.summarizer.step(), pass.kept)) {
                Some((summary::SummaryStep::Ask(request), _)) => return CompactionStep::Ask(request),
                // A model whose window is too small for any request counts as failed.
                Some((summary::SummaryStep::Done(summary), _))
                    if summary.method == SummaryMethod::Extract && self.try_next_model() => {}
                Some((summary::SummaryStep::Done(summary), kept)) => self.replace(summary, kept),
                None if self.is_enough() => self.end = Some(CompactionStep::Done(Box::new(self.outcome()))),
                // A summary that is not shorter than the original is useless.
                None if self.fits_anyway() && !self.strategies.is_empty() => {
                    self.end = Some(CompactionStep::Nothing(NothingToCompact::Short))
                }
                None => match self.ladder.next_strategy() {
                    Some(strategy) => self.start_strategy(strategy),
                    None => self.end = Some(CompactionStep::GaveUp(CompactionFailure::Exhausted)),
                },
            }
        }
    }

    /// Handles the model's answer to the last request. If the request is given up, the next model is tried.
    pub fn answer(&mut self, answer: Result<&str, SummaryFailure>) {
        let Some(pass) = &mut self.pass else { return };
        let is_given_up = pass.summarizer.answer(answer);
        if is_given_up {
            self.try_next_model();
        }
    }

    /// Restarts the current strategy with the next model instead of falling back to quotations; returns true if there
    /// is one.
    fn try_next_model(&mut self) -> bool {
        let Some(keep) = self.pass.as_ref().filter(|pass| pass.uses_model).map(|pass| pass.keep) else { return false };
        if self.model_index + 1 >= self.task.summary_windows.len() {
            return false;
        }
        self.model_index += 1;
        self.start_summary(keep, true).is_ok()
    }

    /// Returns the tokens used by the conversation.
    fn used_tokens(&self) -> u64 {
        let summary = self.task.previous.as_ref().map_or(0, |previous| estimate(&previous.text) + WRAPPER_TOKENS);
        summary + total_tokens(&self.task.lines[self.kept..])
    }

    fn is_enough(&self) -> bool {
        let used = self.used_tokens();
        let has_changed = self.kept > 0 || self.result_chars.is_some();
        has_changed && used <= self.task.limits.space && used < self.before
    }

    /// True if the conversation fits anyway: then only a saving justifies the compaction.
    fn fits_anyway(&self) -> bool {
        self.before <= self.task.limits.space && !self.ladder.is_recovery()
    }

    fn start_strategy(&mut self, strategy: CompactionStrategy) {
        self.strategies.push(strategy);
        let keep = self.task.limits.keep;
        match strategy {
            CompactionStrategy::Summary => {
                let planned = self.start_summary(Keep::Recent(keep), true);
                let nothing = planned.err().or_else(|| self.is_not_worth_it().then_some(NothingToCompact::Short));
                if let Some(nothing) = nothing.filter(|_| self.fits_anyway()) {
                    self.end = Some(CompactionStep::Nothing(nothing));
                }
            }
            CompactionStrategy::Results => self.truncate_results(result_chars(self.task.limits.window)),
            CompactionStrategy::Half => self.start_summary(Keep::Recent(keep / 2), true).unwrap_or_default(),
            CompactionStrategy::Quarter => self.start_summary(Keep::Recent(keep / 4), true).unwrap_or_default(),
            CompactionStrategy::Unit => {
                // All results of the last unit together get half of the space.
                let lines = self.task.lines[self.kept..].iter().rev();
                let results = lines.take_while(|line| matches!(*line.message, Message::ToolResult(_))).count();
                let chars_per_result = self.task.limits.space * 2 / results.max(1) as u64;
                self.truncate_results(usize::try_from(chars_per_result).unwrap_or(usize::MAX).max(MIN_RESULT_CHARS));
                self.start_summary(Keep::Recent(0), false).unwrap_or_default();
            }
            CompactionStrategy::Bare => self.start_summary(Keep::None, false).unwrap_or_default(),
        }
    }

    /// True if the lines to summarize are hardly longer than a short summary, so that no model is used.
    fn is_not_worth_it(&self) -> bool {
        let Some(pass) = &self.pass else { return false };
        self.replaced_tokens(pass.kept) < 2 * MIN_SUMMARY_TOKENS + WRAPPER_TOKENS
    }

    /// Returns the tokens replaced by a summary that keeps the lines from `kept` on.
    fn replaced_tokens(&self, kept: usize) -> u64 {
        let previous = self.task.previous.as_ref().map_or(0, |previous| estimate(&previous.text));
        previous + total_tokens(&self.task.lines[self.kept..kept])
    }

    /// Truncates each tool result to this many characters.
    fn truncate_results(&mut self, chars: usize) {
        let chars = self.result_chars.map_or(chars, |current| current.min(chars));
        for line in &mut self.task.lines[self.kept..] {
            if let Some(short) = truncate_result(&line.message, chars) {
                *line = HistoryLine::new(line.entry.clone(), Arc::new(short));
                self.result_chars = Some(chars);
            }
        }
    }

    /// Starts to summarize the lines that are still sent to the model, except those to be kept.
    fn start_summary(&mut self, keep: Keep, uses_model: bool) -> Result<(), NothingToCompact> {
        let window = self.task.summary_windows.get(self.model_index).copied().filter(|_| uses_model).unwrap_or(0);
        let lines = &self.task.lines[self.kept..];
        // How many of these lines are older than the last compaction: earlier strategies may have removed some of them.
        let kept = self.task.kept.and_then(|kept| kept.checked_sub(self.kept));
        let plan = plan(&History { lines, kept }, keep)?;
        let job = self.job(&plan, lines, window);
        let summarizer = Box::new(Summarizer::new(job));
        self.pass = Some(SummaryPass { summarizer, kept: self.kept + plan.kept, keep, uses_model });
        Ok(())
    }

    fn job(&self, plan: &CompactionPlan, lines: &[HistoryLine], window: u64) -> SummaryJob {
        let messages = |lines: &[HistoryLine]| lines.iter().map(|line| line.message.clone()).collect();
        let is_user = |line: &HistoryLine| matches!(*line.message, Message::User(_));
        let quoted = plan.request.map(|index| QuotedRequest { text: request_of(&lines[index].message), whole: None });
        // If no newer request is kept, the previously quoted one is the newest.
        let previously_quoted = || QuotedRequest::read(&self.task.previous.as_ref()?.details);
        let request = quoted.or_else(|| previously_quoted().filter(|_| !lines[plan.kept..].iter().any(is_user)));
        let CompactionLimits { space, summary, .. } = self.task.limits;
        let request_budget = request_budget(&self.task.limits);
        let quoted = request.as_ref().map_or(0, |request| estimate(&request.text)).min(request_budget);
        let used = total_tokens(&lines[plan.kept..]) + quoted + WRAPPER_TOKENS;
        // If the conversation fits anyway, only a summary shorter than the original is worth writing.
        let gain = self.replaced_tokens(self.kept + plan.kept).saturating_sub(quoted + WRAPPER_TOKENS);
        let summary = if self.fits_anyway() { summary.min(gain) } else { summary };
        SummaryJob {
            history: messages(&lines[plan.history.clone()]),
            prefix: messages(&lines[plan.prefix.clone()]),
            previous: self.task.previous.clone(),
            request,
            request_budget,
            focus: self.task.focus.clone(),
            window,
            budget: summary.min(space.saturating_sub(used)).max(MIN_SUMMARY_TOKENS),
            mode: self.task.mode,
        }
    }

    fn replace(&mut self, summary: CompactionSummary, kept: usize) {
        self.pass = None;
        self.kept = kept;
        self.method = Some(match (self.method, summary.method) {
            (None, method) => method,
            (Some(before), method) if before == method => method,
            (Some(SummaryMethod::Asked | SummaryMethod::Staged), SummaryMethod::Asked | SummaryMethod::Staged) => {
                SummaryMethod::Staged
            }
            (Some(_), _) => SummaryMethod::Partial,
        });
        self.task.previous = Some(PreviousCompaction { text: summary.text, details: summary.details });
    }

    fn outcome(&self) -> FinishedCompaction {
        let previous = self.task.previous.clone();
        let previous = previous.unwrap_or(PreviousCompaction { text: NO_HISTORY.to_owned(), details: json!({}) });
        let mut details = match previous.details {
            Value::Object(details) => details,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
        };
        details.remove("resultChars");
        // Lines that it kept and that are kept again stay truncated.
        let previous_result_chars =
            self.previous_result_chars.filter(|_| self.task.kept.is_some_and(|kept| self.kept < kept));
        if let Some(chars) = self.result_chars.into_iter().chain(previous_result_chars).min() {
            details.insert("resultChars".to_owned(), json!(chars));
        }
        let overhead = self.task.limits.overhead;
        FinishedCompaction {
            summary: previous.text,
            details: Value::Object(details),
            method: self.method,
            kept: self.kept,
            strategies: self.strategies.clone(),
            before: overhead + self.before,
            after: overhead + self.used_tokens(),
        }
    }
}

/// Returns how many tokens of the newest request are kept at least.
pub fn request_budget(limits: &CompactionLimits) -> u64 {
    limits.space.saturating_sub(MIN_SUMMARY_TOKENS + WRAPPER_TOKENS)
}

/// Returns the text of a request; images are replaced by their description.
pub fn request_of(message: &Message) -> String {
    let Message::User(User { content, .. }) = message else { return String::new() };
    match content {
        Content::Text(text) => text.clone(),
        Content::Blocks(blocks) => {
            let parts = blocks.iter().filter_map(|block| match block {
                Block::Text(text) => Some(text.text.clone()),
                Block::Image(image) => Some(format!("\n{}\n", name_image(image))),
                Block::Thinking(_) | Block::ToolCall(_) | Block::Other(_) => None,
            });
            parts.collect()
        }
    }
}

#[cfg(test)]
mod tests;
