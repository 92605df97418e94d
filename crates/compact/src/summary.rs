//! Summing up, as a machine that asks its caller for a model's answers.
//!
//! What is too long for one question is summed up in parts and the parts are merged. Every question is asked at most
//! twice, and what no answer was good for is replaced by quotations, so the work ends whatever the model does.

mod section;

use std::sync::Arc;

use homard_model::tokens::estimate;
use homard_proto::message::Message;
use serde_json::{Map, Value, json};

use crate::{
    cut,
    failures::Failures,
    files::Files,
    prompt::{FOCUS, Kind},
    settings::Mode,
};
use section::{Asker, Section};

/// What stands where there was no conversation before the turn that is cut.
pub(crate) const NO_HISTORY: &str = "Nothing was said before this turn.";

/// What parts the summary of the history from that of the turn.
pub(crate) const TURN: &str = "\n\n---\n\n# Context of the turn that goes on\n\n";

/// How many parts in a row may fail before the model is not asked any more.
const FAILED_PARTS: u32 = 2;

/// What is to be summed up.
#[derive(Debug, Clone)]
pub struct Job {
    /// Whole turns.
    pub history: Vec<Arc<Message>>,
    /// The beginning of the turn whose end is kept.
    pub prefix: Vec<Arc<Message>>,
    /// What the last compaction wrote.
    pub previous: Option<Previous>,
    /// The newest request, if it must be quoted beside the summary.
    pub request: Option<Quote>,
    /// What that may weigh; a longer one loses its middle.
    pub request_budget: u64,
    /// What the user asked to pay attention to.
    pub focus: Option<String>,
    /// The window of the model that sums up; zero if none is to be asked.
    pub window: u64,
    /// What the summary may weigh, without the quoted request.
    pub budget: u64,
    /// How large the parts are.
    pub mode: Mode,
}

/// A request that is quoted beside a summary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quote {
    /// What is quoted.
    pub text: String,
    /// The size of the whole request, if the quotation is only a part of it.
    pub whole: Option<Size>,
}

/// How long a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// In tokens, estimated.
    pub tokens: u64,
    /// In characters.
    pub chars: u64,
}

impl Quote {
    /// The request that the details of a compaction quote.
    pub(crate) fn read(details: &Value) -> Option<Self> {
        let text = details.get(REQUEST)?.as_str()?.to_owned();
        let number = |name: &str| details.get(CUT)?.get(name)?.as_u64();
        let whole = number("originalTokens").zip(number("originalChars")).map(|(tokens, chars)| Size { tokens, chars });
        Some(Self { text, whole })
    }

    /// The quotation within `budget`; a longer one loses its middle.
    fn within(self, budget: u64) -> Self {
        let text = cut::middle(&self.text, budget);
        let whole = self.whole.or_else(|| (text != self.text).then(|| Size::of(&self.text)));
        Self { text, whole }
    }
}

impl Size {
    fn of(text: &str) -> Self {
        Self { tokens: estimate(text), chars: text.chars().count() as u64 }
    }
}

/// The member of a compaction's details that quotes the newest request.
const REQUEST: &str = "request";

/// The member that says how much of the request the quotation is, if it is not all of it:
/// `{originalTokens, keptTokens, originalChars, keptChars}`.
pub const CUT: &str = "requestCut";

/// What a compaction wrote.
#[derive(Debug, Clone, PartialEq)]
pub struct Previous {
    /// Its summary.
    pub text: String,
    /// Its details.
    pub details: Value,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Ask a model and tell [`Summariser::answer`].
    Ask(Ask),
    /// It is done.
    Done(Summary),
}

/// A question to a model. With its answer it fits into the window of the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// The system prompt.
    pub system: String,
    /// The only message.
    pub user: String,
    /// How many tokens the answer may have.
    pub max_tokens: u64,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The question was too long after all.
    Overflow,
    /// Anything else.
    Failed,
}

/// What stands for what was summed up.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// For the model that goes on.
    pub text: String,
    /// How it came about.
    pub way: Way,
    /// For programs, and for the next compaction.
    pub details: Value,
}

/// How a summary came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// A model wrote it at once.
    Asked,
    /// A model wrote parts and merged them.
    Staged,
    /// A model wrote some of it; quotations stand for the rest.
    Partial,
    /// No model wrote any of it: quotations only.
    Extract,
}

impl Way {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Asked, Self::Staged, Self::Partial, Self::Extract];

    /// The word for it in details and events.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Staged => "staged",
            Self::Partial => "partial",
            Self::Extract => "extract",
        }
    }
}

/// Sums up.
#[derive(Debug)]
pub struct Summariser {
    sections: Vec<Section>,
    asker: Asker,
    at: usize,
    failed_parts: u32,
    files: Files,
    failures: Failures,
    request: Option<Quote>,
    budget: u64,
}

impl Summariser {
    /// A machine that has not asked yet.
    pub fn new(job: Job) -> Self {
        let details = job.previous.as_ref().map_or(&Value::Null, |previous| &previous.details);
        let (mut files, mut failures) = (Files::from_details(details), Failures::from_details(details));
        for message in job.history.iter().chain(&job.prefix) {
            files.note(message);
            failures.note(message);
        }
        let request = job.request.map(|request| request.within(job.request_budget));
        let focus = job.focus.map(|focus| cut::one_line(&focus, FOCUS)).filter(|focus| !focus.is_empty());
        let asker = Asker { window: job.window, mode: job.mode, focus };
        let previous = job.previous.map(|previous| own_words(&previous.text).to_owned());
        // The rest is for file lists and failures.
        let words = (job.budget * 3 / 4).saturating_sub(estimate(TURN));
        let is_split = !job.prefix.is_empty();
        let of_history = if is_split { words * 2 / 3 } else { words };
        let mut sections = vec![Section::new(Kind::History, job.history, previous, of_history, &asker)];
        if is_split {
            sections.push(Section::new(Kind::Turn, job.prefix, None, words - of_history, &asker));
        }
        Self { sections, asker, at: 0, failed_parts: 0, files, failures, request, budget: job.budget }
    }

    /// How many questions there will be at most.
    pub fn most_asks(&self) -> usize {
        self.sections.iter().map(Section::most_asks).sum()
    }

    /// What to do next. Until it was answered a question is asked again.
    pub fn step(&mut self) -> Step {
        while let Some(section) = self.sections.get_mut(self.at) {
            match section.ask(&self.asker) {
                Some(ask) => return Step::Ask(ask),
                None => self.at += 1,
            }
        }
        Step::Done(self.summary())
    }

    /// Takes what the model said to the last question; says whether that question is given up.
    pub fn answer(&mut self, answer: Result<&str, Refused>) -> bool {
        let has_failed = answer == Err(Refused::Failed);
        let Some(section) = self.sections.get_mut(self.at) else { return false };
        let is_given_up = section.take(answer);
        match (has_failed, is_given_up) {
            (true, true) => self.failed_parts += 1,
            (false, _) => self.failed_parts = 0,
            (true, false) => {}
        }
        if self.failed_parts >= FAILED_PARTS {
            // Nobody is there: more questions only take time.
            self.asker.window = 0;
        }
        is_given_up
    }

    fn summary(&self) -> Summary {
        let history = self.sections.first().map_or("", Section::text);
        let turn = self.sections.get(1).map_or("", Section::text);
        let mut text = match (history.is_empty(), turn.is_empty()) {
            (false, true) => history.to_owned(),
            (true, true) => NO_HISTORY.to_owned(),
            (true, false) => format!("{NO_HISTORY}{TURN}{turn}"),
            (false, false) => format!("{history}{TURN}{turn}"),
        };
        let appendix = self.appendix(self.budget / 4);
        let words = self.budget.saturating_sub(estimate(&appendix));
        text = cut::lines(&text.replace("</summary", "<\\/summary"), words);
        text.push_str(&appendix);
        if let Some(Quote { text: request, whole }) = &self.request {
            let head = if whole.is_some() { "without its middle" } else { "word for word" };
            text.push_str(&format!(
                "\n\n{LATEST}\nThe newest message of the user, {head}:\n{request}\n</latest-request>"
            ));
        }
        Summary { text, way: self.way(), details: self.details() }
    }

    fn way(&self) -> Way {
        let sum = |count: fn(&Section) -> usize| self.sections.iter().map(count).sum::<usize>();
        match (sum(|section| section.answered), sum(|section| section.replaced), sum(|section| section.merged)) {
            (0, _, _) => Way::Extract,
            (_, 0, 0) => Way::Asked,
            (_, 0, _) => Way::Staged,
            (_, _, _) => Way::Partial,
        }
    }

    fn details(&self) -> Value {
        let mut details = Map::new();
        details.insert("readFiles".to_owned(), json!(self.files.only_read()));
        details.insert("modifiedFiles".to_owned(), json!(self.files.modified()));
        if self.failures.count() > 0 {
            details.insert("toolFailures".to_owned(), self.failures.newest().collect());
            details.insert("toolFailureCount".to_owned(), json!(self.failures.count()));
        }
        if let Some(Quote { text, whole }) = &self.request {
            details.insert(REQUEST.to_owned(), json!(text));
            if let Some(whole) = whole {
                let kept = Size::of(text);
                let cut = json!({
                    "originalTokens": whole.tokens, "keptTokens": kept.tokens,
                    "originalChars": whole.chars, "keptChars": kept.chars,
                });
                details.insert(CUT.to_owned(), cut);
            }
        }
        details.insert("way".to_owned(), json!(self.way().as_str()));
        Value::Object(details)
    }

    /// What follows the words: failed calls, then files, each within a third of the budget.
    fn appendix(&self, budget: u64) -> String {
        let failures: Vec<_> = self.failures.newest().map(|told| format!("- {told}")).collect();
        let told = failures.len() as u64;
        let mut text =
            list(FAILURES, "", failures.iter().rev().map(String::as_str), budget / 3, self.failures.count() - told);
        text.push_str(&list(READ, "</read-files>", self.files.only_read(), budget / 3, 0));
        text.push_str(&list(MODIFIED, "</modified-files>", self.files.modified(), budget / 3, 0));
        text
    }
}

const FAILURES: &str = "## Tool failures";
const READ: &str = "<read-files>";
const MODIFIED: &str = "<modified-files>";
const LATEST: &str = "<latest-request>";

/// A list between two lines, and how many of it are missing besides those that are known to be.
fn list<'a>(start: &str, end: &str, lines: impl IntoIterator<Item = &'a str>, budget: u64, mut missing: u64) -> String {
    let mut left = budget.saturating_sub(estimate(start) + estimate(end) + 10);
    let mut text = String::new();
    for line in lines {
        let cost = estimate(line) + 1;
        if cost > left {
            // Nothing shorter takes its place, or a list would look whole.
            left = 0;
            missing += 1;
            continue;
        }
        left -= cost;
        text.push('\n');
        text.push_str(line);
    }
    if text.is_empty() {
        return text;
    }
    let more = if missing > 0 { format!("\n(and {missing} more)") } else { String::new() };
    format!("\n\n{start}{text}{more}{}{end}", if end.is_empty() { "" } else { "\n" })
}

/// A summary without what was appended to it, which is made anew each time.
pub(crate) fn own_words(text: &str) -> &str {
    let marks = [FAILURES, READ, MODIFIED, LATEST];
    let starts = marks.iter().filter_map(|mark| {
        let at = |(at, _): &(usize, &str)| *at == 0 || text.as_bytes()[at - 1] == b'\n';
        text.match_indices(mark).find(at).map(|(at, _)| at)
    });
    text[..starts.min().unwrap_or(text.len())].trim()
}

#[cfg(test)]
mod tests;
