//! State machine of one compaction, which asks its caller for model answers.
//!
//! Nothing is written on the way: the result is one [`Outcome`], so an interrupted compaction has no effect. The
//! transcript keeps every entry; the outcome says from which one on they are shown, and contains the summary for the
//! others.

use std::sync::Arc;

use homard_model::tokens::estimate;
use homard_proto::message::{Block, Content, Message, User};
use serde_json::{Map, Value, json};

use crate::{
    escalate::{GaveUp, Ladder, Rung, kept_chars, result_chars, shorten},
    line::{History, Line, weight},
    plan::{Keep, Nothing, Plan, plan},
    serialise::name_image,
    settings::{Limits, Mode},
    summary::{self, Ask, Job, NO_HISTORY, Previous, Quote, Refused, Summariser, Summary, Way},
};

/// Minimum space for a conversation, in tokens.
const LEAST_ROOM: u64 = 1_024;

/// Minimum size of a summary, in tokens; a shorter one is useless.
const LEAST_SUMMARY: u64 = 256;

/// Overhead of the message that contains a summary, and of a request quoted in it, in tokens.
const WRAPPING: u64 = 64;

/// Minimum number of characters shown of a tool result.
const LEAST_RESULT: usize = 400;

/// Input of a compaction.
#[derive(Debug, Clone)]
pub struct Task {
    /// Messages shown to the model, oldest first, after the summary of the last compaction.
    pub lines: Vec<Line>,
    /// How many of them the last compaction kept; `None` if there was none.
    pub kept: Option<usize>,
    /// Result of the last compaction.
    pub previous: Option<Previous>,
    /// Token limits of the conversation.
    pub limits: Limits,
    /// What the user asked to pay attention to.
    pub focus: Option<String>,
    /// Context windows of the summary models: if one fails, the next one is tried. An extract replaces the summary only
    /// when none is left.
    pub summary_windows: Vec<u64>,
    /// Size of the parts that a summary model reads.
    pub mode: Mode,
}

/// Next step of a compaction.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Send a request to the model at index [`Compaction::asked`] and report the answer to [`Compaction::answer`].
    Ask(Ask),
    /// The compaction is complete.
    Done(Box<Outcome>),
    /// There was nothing to compact.
    Nothing(Nothing),
    /// Compaction is not possible.
    GaveUp(GaveUp),
}

/// Result of a compaction.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Summary of the lines that are no longer shown.
    pub summary: String,
    /// Details for programs and the next compaction. `resultChars`, read by [`crate::escalate::kept_chars`], means that
    /// the tool results among the kept lines are shown as [`shorten`] truncates them.
    pub details: Value,
    /// How the summary was created; `None` if no line was removed and only tool results were truncated.
    pub way: Option<Way>,
    /// Index of the first line that is still shown; the number of lines if none is.
    pub kept: usize,
    /// Strategies used, in order.
    pub rungs: Vec<Rung>,
    /// Estimated tokens before.
    pub before: u64,
    /// Estimated tokens after.
    pub after: u64,
}

/// A compaction in progress.
#[derive(Debug)]
pub struct Compaction {
    task: Task,
    ladder: Ladder,
    /// Index of the first line that is still shown.
    kept: usize,
    result_chars: Option<usize>,
    /// Truncation of the results that the last compaction kept; the input is already truncated.
    carried: Option<usize>,
    way: Option<Way>,
    rungs: Vec<Rung>,
    before: u64,
    at_work: Option<Pass>,
    /// Index of the summary model in use.
    asked: usize,
    end: Option<Step>,
}

/// A strategy in progress.
#[derive(Debug)]
struct Pass {
    summariser: Box<Summariser>,
    /// Index of the first line shown after it.
    kept: usize,
    keep: Keep,
    /// True if a model is used.
    asks: bool,
}

impl Compaction {
    /// Creates a compaction that uses the strategies `ladder` has not used yet.
    pub fn new(task: Task, ladder: Ladder) -> Self {
        let Limits { room, overhead, threshold, .. } = task.limits;
        let end = (room < LEAST_ROOM).then_some(Step::GaveUp(GaveUp::NoRoom { overhead, threshold }));
        let carried = task.previous.as_ref().and_then(|previous| kept_chars(&previous.details));
        let mut compaction = Self {
            carried,
            task,
            ladder,
            kept: 0,
            result_chars: None,
            way: None,
            rungs: Vec::new(),
            before: 0,
            at_work: None,
            asked: 0,
            end,
        };
        compaction.before = compaction.taken();
        compaction
    }

    /// Returns the current ladder, for another attempt.
    pub fn ladder(&self) -> Ladder {
        self.ladder
    }

    /// Returns the index of the summary model in use.
    pub fn asked(&self) -> usize {
        self.asked
    }

    /// Returns the next step. A request is returned again until it is answered.
    pub fn step(&mut self) -> Step {
        loop {
            if let Some(end) = &self.end {
                return end.clone();
            }
            match self.at_work.as_mut().map(|pass| (pass.summariser.step(), pass.kept)) {
                Some((summary::Step::Ask(ask), _)) => return Step::Ask(ask),
                // A model that could not even be asked has failed as well.
                Some((summary::Step::Done(summary), _)) if summary.way == Way::Extract && self.ask_next() => {}
                Some((summary::Step::Done(summary), kept)) => self.replace(summary, kept),
                None if self.is_enough() => self.end = Some(Step::Done(Box::new(self.outcome()))),
                // A summary that is not shorter than the original is useless.
                None if self.had_room() && !self.rungs.is_empty() => self.end = Some(Step::Nothing(Nothing::Short)),
                None => match self.ladder.climb() {
                    Some(rung) => self.take(rung),
                    None => self.end = Some(Step::GaveUp(GaveUp::Spent)),
                },
            }
        }
    }

    /// Handles the model's answer to the last request.
    pub fn answer(&mut self, answer: Result<&str, Refused>) {
        if let Some(pass) = &mut self.at_work
            && pass.summariser.answer(answer)
        {
            self.ask_next();
        }
    }

    /// Restarts the current strategy with the next model instead of falling back to quotations; returns true if there
    /// is one.
    fn ask_next(&mut self) -> bool {
        let Some(keep) = self.at_work.as_ref().filter(|pass| pass.asks).map(|pass| pass.keep) else { return false };
        if self.asked + 1 >= self.task.summary_windows.len() {
            return false;
        }
        self.asked += 1;
        self.sum_up(keep, true).is_ok()
    }

    /// Returns the tokens used by the conversation.
    fn taken(&self) -> u64 {
        let summary = self.task.previous.as_ref().map_or(0, |previous| estimate(&previous.text) + WRAPPING);
        summary + weight(&self.task.lines[self.kept..])
    }

    fn is_enough(&self) -> bool {
        let taken = self.taken();
        let has_changed = self.kept > 0 || self.result_chars.is_some();
        has_changed && taken <= self.task.limits.room && taken < self.before
    }

    /// True if the conversation fits anyway: then only a saving justifies the compaction.
    fn had_room(&self) -> bool {
        self.before <= self.task.limits.room && !self.ladder.is_recovery()
    }

    fn take(&mut self, rung: Rung) {
        self.rungs.push(rung);
        let keep = self.task.limits.keep;
        match rung {
            Rung::Summary => {
                let planned = self.sum_up(Keep::Recent(keep), true);
                let nothing = planned.err().or_else(|| self.is_too_little().then_some(Nothing::Short));
                if let Some(nothing) = nothing.filter(|_| self.had_room()) {
                    self.end = Some(Step::Nothing(nothing));
                }
            }
            Rung::Results => self.shorten(result_chars(self.task.limits.window)),
            Rung::Half => self.sum_up(Keep::Recent(keep / 2), true).unwrap_or_default(),
            Rung::Quarter => self.sum_up(Keep::Recent(keep / 4), true).unwrap_or_default(),
            Rung::Unit => {
                // All results of the last unit together get half of the space.
                let lines = self.task.lines[self.kept..].iter().rev();
                let results = lines.take_while(|line| matches!(*line.message, Message::ToolResult(_))).count();
                let each = self.task.limits.room * 2 / results.max(1) as u64;
                self.shorten(usize::try_from(each).unwrap_or(usize::MAX).max(LEAST_RESULT));
                self.sum_up(Keep::Recent(0), false).unwrap_or_default();
            }
            Rung::Bare => self.sum_up(Keep::None, false).unwrap_or_default(),
        }
    }

    /// True if the lines to summarize are hardly longer than a short summary, so that no model is used.
    fn is_too_little(&self) -> bool {
        let Some(pass) = &self.at_work else { return false };
        self.replaced(pass.kept) < 2 * LEAST_SUMMARY + WRAPPING
    }

    /// Returns the tokens replaced by a summary that keeps the lines from `kept` on.
    fn replaced(&self, kept: usize) -> u64 {
        let previous = self.task.previous.as_ref().map_or(0, |previous| estimate(&previous.text));
        previous + weight(&self.task.lines[self.kept..kept])
    }

    /// Truncates each tool result to this many characters.
    fn shorten(&mut self, chars: usize) {
        let chars = self.result_chars.map_or(chars, |before| before.min(chars));
        for line in &mut self.task.lines[self.kept..] {
            if let Some(short) = shorten(&line.message, chars) {
                *line = Line::new(line.entry.clone(), Arc::new(short));
                self.result_chars = Some(chars);
            }
        }
    }

    /// Starts to summarize the lines that are still shown and not to be kept.
    fn sum_up(&mut self, keep: Keep, asks: bool) -> Result<(), Nothing> {
        let window = self.task.summary_windows.get(self.asked).copied().filter(|_| asks).unwrap_or(0);
        let lines = &self.task.lines[self.kept..];
        let kept = self.task.kept.and_then(|kept| kept.checked_sub(self.kept));
        let plan = plan(&History { lines, kept }, keep)?;
        let job = self.job(&plan, lines, window);
        let summariser = Box::new(Summariser::new(job));
        self.at_work = Some(Pass { summariser, kept: self.kept + plan.kept, keep, asks });
        Ok(())
    }

    fn job(&self, plan: &Plan, lines: &[Line], window: u64) -> Job {
        let messages = |lines: &[Line]| lines.iter().map(|line| line.message.clone()).collect();
        let is_user = |line: &Line| matches!(*line.message, Message::User(_));
        let quoted = plan.request.map(|at| Quote { text: request_of(&lines[at].message), whole: None });
        // If no newer request is kept, the previously quoted one is the newest.
        let before = || Quote::read(&self.task.previous.as_ref()?.details);
        let request = quoted.or_else(|| before().filter(|_| !lines[plan.kept..].iter().any(is_user)));
        let Limits { room, summary, .. } = self.task.limits;
        let request_budget = request_budget(&self.task.limits);
        let quoted = request.as_ref().map_or(0, |request| estimate(&request.text)).min(request_budget);
        let taken = weight(&lines[plan.kept..]) + quoted + WRAPPING;
        // If the conversation fits anyway, only a summary shorter than the original is worth writing.
        let gain = self.replaced(self.kept + plan.kept).saturating_sub(quoted + WRAPPING);
        let summary = if self.had_room() { summary.min(gain) } else { summary };
        Job {
            history: messages(&lines[plan.history.clone()]),
            prefix: messages(&lines[plan.prefix.clone()]),
            previous: self.task.previous.clone(),
            request,
            request_budget,
            focus: self.task.focus.clone(),
            window,
            budget: summary.min(room.saturating_sub(taken)).max(LEAST_SUMMARY),
            mode: self.task.mode,
        }
    }

    fn replace(&mut self, summary: Summary, kept: usize) {
        self.at_work = None;
        self.kept = kept;
        self.way = Some(match (self.way, summary.way) {
            (None, way) => way,
            (Some(before), way) if before == way => way,
            (Some(Way::Asked | Way::Staged), Way::Asked | Way::Staged) => Way::Staged,
            (Some(_), _) => Way::Partial,
        });
        self.task.previous = Some(Previous { text: summary.text, details: summary.details });
    }

    fn outcome(&self) -> Outcome {
        let previous = self.task.previous.clone();
        let previous = previous.unwrap_or(Previous { text: NO_HISTORY.to_owned(), details: json!({}) });
        let mut details = match previous.details {
            Value::Object(details) => details,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
        };
        details.remove("resultChars");
        // Lines that it kept and that are kept again stay truncated.
        let carried = self.carried.filter(|_| self.task.kept.is_some_and(|kept| self.kept < kept));
        if let Some(chars) = self.result_chars.into_iter().chain(carried).min() {
            details.insert("resultChars".to_owned(), json!(chars));
        }
        let overhead = self.task.limits.overhead;
        Outcome {
            summary: previous.text,
            details: Value::Object(details),
            way: self.way,
            kept: self.kept,
            rungs: self.rungs.clone(),
            before: overhead + self.before,
            after: overhead + self.taken(),
        }
    }
}

/// Returns how many tokens of the newest request are kept at least.
pub fn request_budget(limits: &Limits) -> u64 {
    limits.room.saturating_sub(LEAST_SUMMARY + WRAPPING)
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
