//! One compaction from beginning to end, as a machine that asks its caller for a model's answers.
//!
//! Nothing is written on the way: what it comes to is one [`Outcome`], so a compaction that was broken off changed
//! nothing. The transcript keeps every line; the outcome says from which on they are shown, and what stands for the rest.

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

/// With less room there is no conversation.
const LEAST_ROOM: u64 = 1_024;

/// The least that a summary may take; less says nothing.
const LEAST_SUMMARY: u64 = 256;

/// What surrounds a summary in the message that holds it, and a request that is quoted in it.
const WRAPPING: u64 = 64;

/// The least that is shown of a tool result, in characters.
const LEAST_RESULT: usize = 400;

/// What is to be made short, and for whom.
#[derive(Debug, Clone)]
pub struct Task {
    /// What a model is shown, oldest first, behind the summary of the last compaction.
    pub lines: Vec<Line>,
    /// How many of them the last compaction kept; `None` if there was none.
    pub kept: Option<usize>,
    /// What the last compaction wrote.
    pub previous: Option<Previous>,
    /// What the conversation may take.
    pub limits: Limits,
    /// What the user asked to pay attention to.
    pub focus: Option<String>,
    /// The windows of the models that sum up: when one fails, the next one is asked. Quotations stand for a summary only
    /// when none is left.
    pub summary_windows: Vec<u64>,
    /// How large the parts are that it reads.
    pub mode: Mode,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Ask the model that [`Compaction::asked`] says, and tell [`Compaction::answer`].
    Ask(Ask),
    /// It is done.
    Done(Box<Outcome>),
    /// There was nothing to do.
    Nothing(Nothing),
    /// It cannot be done.
    GaveUp(GaveUp),
}

/// What a compaction came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// What stands for the lines that are no longer shown.
    pub summary: String,
    /// For programs and the next compaction. `resultChars`, read by [`crate::escalate::kept_chars`], says that the
    /// results among the lines that were kept are shown as [`shorten`] makes them.
    pub details: Value,
    /// How the summary came about; `None` if no line was taken out and only results are shown shorter.
    pub way: Option<Way>,
    /// The first line that is still shown; as many as there are lines if none is.
    pub kept: usize,
    /// The ways that were taken, in order.
    pub rungs: Vec<Rung>,
    /// What everything took before, in estimated tokens.
    pub before: u64,
    /// What it takes now.
    pub after: u64,
}

/// Makes a conversation short.
#[derive(Debug)]
pub struct Compaction {
    task: Task,
    ladder: Ladder,
    /// The first line that is still shown.
    kept: usize,
    result_chars: Option<usize>,
    /// How short the results are shown that the last compaction kept; what is given here is as short already.
    carried: Option<usize>,
    way: Option<Way>,
    rungs: Vec<Rung>,
    before: u64,
    at_work: Option<Pass>,
    /// Which of the models is asked.
    asked: usize,
    end: Option<Step>,
}

/// One way, being taken.
#[derive(Debug)]
struct Pass {
    summariser: Box<Summariser>,
    /// The first line that is shown after it.
    kept: usize,
    keep: Keep,
    /// Whether models are asked at all.
    asks: bool,
}

impl Compaction {
    /// A compaction that takes the ways that `ladder` did not take yet.
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

    /// The ladder as far as it was climbed, for another attempt.
    pub fn ladder(&self) -> Ladder {
        self.ladder
    }

    /// Which of the models is asked, by its place among the windows of the task.
    pub fn asked(&self) -> usize {
        self.asked
    }

    /// What to do next. Until it was answered a question is asked again.
    pub fn step(&mut self) -> Step {
        loop {
            if let Some(end) = &self.end {
                return end.clone();
            }
            match self.at_work.as_mut().map(|pass| (pass.summariser.step(), pass.kept)) {
                Some((summary::Step::Ask(ask), _)) => return Step::Ask(ask),
                // One that could not even be asked has failed, too.
                Some((summary::Step::Done(summary), _)) if summary.way == Way::Extract && self.ask_next() => {}
                Some((summary::Step::Done(summary), kept)) => self.replace(summary, kept),
                None if self.is_enough() => self.end = Some(Step::Done(Box::new(self.outcome()))),
                // A summary that is no shorter than what it stands for is worth nothing.
                None if self.had_room() && !self.rungs.is_empty() => self.end = Some(Step::Nothing(Nothing::Short)),
                None => match self.ladder.climb() {
                    Some(rung) => self.take(rung),
                    None => self.end = Some(Step::GaveUp(GaveUp::Spent)),
                },
            }
        }
    }

    /// Takes what the model said to the last question.
    pub fn answer(&mut self, answer: Result<&str, Refused>) {
        if let Some(pass) = &mut self.at_work
            && pass.summariser.answer(answer)
        {
            self.ask_next();
        }
    }

    /// Begins the way at hand anew with the next model, before anything is quoted in place of what the last one did not
    /// say; says whether there is one.
    fn ask_next(&mut self) -> bool {
        let Some(keep) = self.at_work.as_ref().filter(|pass| pass.asks).map(|pass| pass.keep) else { return false };
        if self.asked + 1 >= self.task.summary_windows.len() {
            return false;
        }
        self.asked += 1;
        self.sum_up(keep, true).is_ok()
    }

    /// What the conversation takes of its room.
    fn taken(&self) -> u64 {
        let summary = self.task.previous.as_ref().map_or(0, |previous| estimate(&previous.text) + WRAPPING);
        summary + weight(&self.task.lines[self.kept..])
    }

    fn is_enough(&self) -> bool {
        let taken = self.taken();
        let has_changed = self.kept > 0 || self.result_chars.is_some();
        has_changed && taken <= self.task.limits.room && taken < self.before
    }

    /// Whether nothing forces to make it shorter: then only what is gained by it counts.
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
                // All results of the last unit together get half of the room.
                let lines = self.task.lines[self.kept..].iter().rev();
                let results = lines.take_while(|line| matches!(*line.message, Message::ToolResult(_))).count();
                let each = self.task.limits.room * 2 / results.max(1) as u64;
                self.shorten(usize::try_from(each).unwrap_or(usize::MAX).max(LEAST_RESULT));
                self.sum_up(Keep::Recent(0), false).unwrap_or_default();
            }
            Rung::Bare => self.sum_up(Keep::None, false).unwrap_or_default(),
        }
    }

    /// Whether the lines to summarise are hardly longer than a short summary of them, so that no model is asked.
    fn is_too_little(&self) -> bool {
        let Some(pass) = &self.at_work else { return false };
        self.replaced(pass.kept) < 2 * LEAST_SUMMARY + WRAPPING
    }

    /// What a summary stands for that leaves the lines from `kept` on, in tokens.
    fn replaced(&self, kept: usize) -> u64 {
        let previous = self.task.previous.as_ref().map_or(0, |previous| estimate(&previous.text));
        previous + weight(&self.task.lines[self.kept..kept])
    }

    /// Shows at most so many characters of each result.
    fn shorten(&mut self, chars: usize) {
        let chars = self.result_chars.map_or(chars, |before| before.min(chars));
        for line in &mut self.task.lines[self.kept..] {
            if let Some(short) = shorten(&line.message, chars) {
                *line = Line::new(line.entry.clone(), Arc::new(short));
                self.result_chars = Some(chars);
            }
        }
    }

    /// Begins to sum up what is not to be kept of the lines that are still shown.
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
        // As long as no newer one is kept, the one that was quoted before is the newest.
        let before = || Quote::read(&self.task.previous.as_ref()?.details);
        let request = quoted.or_else(|| before().filter(|_| !lines[plan.kept..].iter().any(is_user)));
        let Limits { room, summary, .. } = self.task.limits;
        let request_budget = request_budget(&self.task.limits);
        let quoted = request.as_ref().map_or(0, |request| estimate(&request.text)).min(request_budget);
        let taken = weight(&lines[plan.kept..]) + quoted + WRAPPING;
        // Where nothing forces it, only a summary that is shorter than what it stands for is worth writing.
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
        // Lines that it kept and that are kept again stay as short.
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

/// How many tokens of the newest request are kept at least, however little room there is for anything else.
pub fn request_budget(limits: &Limits) -> u64 {
    limits.room.saturating_sub(LEAST_SUMMARY + WRAPPING)
}

/// A request word for word; pictures are named.
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
