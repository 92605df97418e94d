//! State machine that summarizes messages and asks its caller for model answers.
//!
//! Input that is too long for one request is summarized in parts, which are then merged. Every request is sent at most
//! twice, and parts without a usable answer are replaced by quotations, so the work terminates whatever the model does.

mod section;

use std::sync::Arc;

use homard_model::tokens::estimate;
use homard_proto::message::Message;
use serde_json::{Map, Value, json};

use crate::{
    cut,
    failures::ToolFailures,
    files::TouchedFiles,
    prompt::{Kind, MAX_FOCUS_CHARS},
    settings::CompactionMode,
};
use section::{SummaryModel, SummarySection};

/// Placeholder if there is no conversation before the turn that is split.
pub(crate) const NO_HISTORY: &str = "Nothing was said before this turn.";

/// Separator between the summary of the history and that of the turn.
pub(crate) const TURN_SEPARATOR: &str = "\n\n---\n\n# Context of the turn that goes on\n\n";

/// Number of consecutive failed parts after which the model is no longer used.
const MAX_FAILED_PARTS: u32 = 2;

/// Input of the [`Summarizer`].
#[derive(Debug, Clone)]
pub struct SummaryJob {
    /// Complete turns.
    pub history: Vec<Arc<Message>>,
    /// Beginning of the turn whose end is kept.
    pub prefix: Vec<Arc<Message>>,
    /// Result of the last compaction.
    pub previous: Option<PreviousCompaction>,
    /// Newest request, if it must be quoted beside the summary.
    pub request: Option<QuotedRequest>,
    /// Maximum tokens of the quoted request; a longer one loses its middle.
    pub request_budget: u64,
    /// What the user asked to pay attention to.
    pub focus: Option<String>,
    /// Context window of the summary model; zero for no model.
    pub window: u64,
    /// Maximum tokens of the summary, without the quoted request.
    pub budget: u64,
    /// Size of the parts.
    pub mode: CompactionMode,
}

/// A request that is quoted beside a summary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotedRequest {
    /// Quoted text.
    pub text: String,
    /// Size of the whole request, if it is quoted only in part.
    pub whole: Option<TextSize>,
}

/// Size of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextSize {
    /// Estimated tokens.
    pub tokens: u64,
    /// Characters.
    pub chars: u64,
}

impl QuotedRequest {
    /// Reads the quoted request from the details of a compaction.
    pub(crate) fn read(details: &Value) -> Option<Self> {
        let text = details.get(REQUEST)?.as_str()?.to_owned();
        let number = |name: &str| details.get(REQUEST_CUT)?.get(name)?.as_u64();
        let whole =
            number("originalTokens").zip(number("originalChars")).map(|(tokens, chars)| TextSize { tokens, chars });
        Some(Self { text, whole })
    }

    /// Truncates the quotation to `budget` in its middle.
    fn within(self, budget: u64) -> Self {
        let text = cut::middle(&self.text, budget);
        let whole = self.whole.or_else(|| (text != self.text).then(|| TextSize::of(&self.text)));
        Self { text, whole }
    }
}

impl TextSize {
    fn of(text: &str) -> Self {
        Self { tokens: estimate(text), chars: text.chars().count() as u64 }
    }
}

/// Member of a compaction's details with the quoted newest request.
const REQUEST: &str = "request";

/// Member of a compaction's details with the size of the quoted part, if the request was truncated: `{originalTokens,
/// keptTokens, originalChars, keptChars}`.
pub const REQUEST_CUT: &str = "requestCut";

/// Result of an earlier compaction.
#[derive(Debug, Clone, PartialEq)]
pub struct PreviousCompaction {
    /// Summary.
    pub text: String,
    /// Details.
    pub details: Value,
}

/// Next step.
#[derive(Debug, Clone, PartialEq)]
pub enum SummaryStep {
    /// Send a request to a model and report the answer to [`Summarizer::answer`].
    Ask(SummaryRequest),
    /// The summary is complete.
    Done(CompactionSummary),
}

/// A request to a model. Together with its answer it fits into the window of the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummaryRequest {
    /// System prompt.
    pub system: String,
    /// The only message.
    pub user: String,
    /// Maximum output tokens.
    pub max_tokens: u64,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SummaryFailure {
    /// Context overflow.
    Overflow,
    /// Any other failure.
    Failed,
}

/// The finished summary that replaces compacted messages.
#[derive(Debug, Clone, PartialEq)]
pub struct CompactionSummary {
    /// Text for the model.
    pub text: String,
    /// How it was created.
    pub method: SummaryMethod,
    /// Details for programs and the next compaction.
    pub details: Value,
}

/// How a summary was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SummaryMethod {
    /// A model wrote it in one request.
    Asked,
    /// A model wrote parts and merged them.
    Staged,
    /// A model wrote some of it; quotations replace the remainder.
    Partial,
    /// No model was used: quotations only.
    Extract,
}

impl SummaryMethod {
    /// All variants.
    pub const ALL: [Self; 4] = [Self::Asked, Self::Staged, Self::Partial, Self::Extract];

    /// Returns its name in details and events.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Staged => "staged",
            Self::Partial => "partial",
            Self::Extract => "extract",
        }
    }
}

/// A summary in progress.
#[derive(Debug)]
pub struct Summarizer {
    sections: Vec<SummarySection>,
    model: SummaryModel,
    /// Index of the section in progress.
    section_index: usize,
    failed_parts: u32,
    files: TouchedFiles,
    failures: ToolFailures,
    request: Option<QuotedRequest>,
    budget: u64,
}

impl Summarizer {
    /// Creates the state machine.
    pub fn new(job: SummaryJob) -> Self {
        let details = job.previous.as_ref().map_or(&Value::Null, |previous| &previous.details);
        let (mut files, mut failures) = (TouchedFiles::from_details(details), ToolFailures::from_details(details));
        for message in job.history.iter().chain(&job.prefix) {
            files.note(message);
            failures.note(message);
        }
        let request = job.request.map(|request| request.within(job.request_budget));
        let focus = job.focus.map(|focus| cut::one_line(&focus, MAX_FOCUS_CHARS)).filter(|focus| !focus.is_empty());
        let model = SummaryModel { window: job.window, mode: job.mode, focus };
        let previous = job.previous.map(|previous| without_appendix(&previous.text).to_owned());
        // The remainder is for file lists and failures.
        let text_budget = (job.budget * 3 / 4).saturating_sub(estimate(TURN_SEPARATOR));
        let is_split = !job.prefix.is_empty();
        let history_budget = if is_split { text_budget * 2 / 3 } else { text_budget };
        let mut sections = vec![SummarySection::new(Kind::History, job.history, previous, history_budget, &model)];
        if is_split {
            sections.push(SummarySection::new(Kind::Turn, job.prefix, None, text_budget - history_budget, &model));
        }
        Self { sections, model, section_index: 0, failed_parts: 0, files, failures, request, budget: job.budget }
    }

    /// Returns the maximum number of requests.
    pub fn max_requests(&self) -> usize {
        self.sections.iter().map(SummarySection::max_requests).sum()
    }

    /// Returns the next step. A request is returned again until it is answered.
    pub fn step(&mut self) -> SummaryStep {
        while let Some(section) = self.sections.get_mut(self.section_index) {
            match section.next_request(&self.model) {
                Some(request) => return SummaryStep::Ask(request),
                None => self.section_index += 1,
            }
        }
        SummaryStep::Done(self.summary())
    }

    /// Handles the answer to the last request; returns true if that request is given up.
    pub fn answer(&mut self, answer: Result<&str, SummaryFailure>) -> bool {
        let has_failed = answer == Err(SummaryFailure::Failed);
        let Some(section) = self.sections.get_mut(self.section_index) else { return false };
        let is_given_up = section.take(answer);
        match (has_failed, is_given_up) {
            (true, true) => self.failed_parts += 1,
            (false, _) => self.failed_parts = 0,
            (true, false) => {}
        }
        if self.failed_parts >= MAX_FAILED_PARTS {
            // The model is unavailable: further requests would only take time.
            self.model.window = 0;
        }
        is_given_up
    }

    fn summary(&self) -> CompactionSummary {
        let history = self.sections.first().map_or("", SummarySection::text);
        let turn = self.sections.get(1).map_or("", SummarySection::text);
        let mut text = match (history.is_empty(), turn.is_empty()) {
            (false, true) => history.to_owned(),
            (true, true) => NO_HISTORY.to_owned(),
            (true, false) => format!("{NO_HISTORY}{TURN_SEPARATOR}{turn}"),
            (false, false) => format!("{history}{TURN_SEPARATOR}{turn}"),
        };
        let appendix = self.appendix(self.budget / 4);
        let text_budget = self.budget.saturating_sub(estimate(&appendix));
        text = cut::lines(&text.replace("</summary", "<\\/summary"), text_budget);
        text.push_str(&appendix);
        if let Some(QuotedRequest { text: request, whole }) = &self.request {
            let how = if whole.is_some() { "without its middle" } else { "word for word" };
            text.push_str(&format!(
                "\n\n{LATEST}\nThe newest message of the user, {how}:\n{request}\n</latest-request>"
            ));
        }
        CompactionSummary { text, method: self.method(), details: self.details() }
    }

    fn method(&self) -> SummaryMethod {
        let sum = |count: fn(&SummarySection) -> usize| self.sections.iter().map(count).sum::<usize>();
        match (sum(|section| section.answered), sum(|section| section.replaced), sum(|section| section.merged)) {
            (0, _, _) => SummaryMethod::Extract,
            (_, 0, 0) => SummaryMethod::Asked,
            (_, 0, _) => SummaryMethod::Staged,
            (_, _, _) => SummaryMethod::Partial,
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
        if let Some(QuotedRequest { text, whole }) = &self.request {
            details.insert(REQUEST.to_owned(), json!(text));
            if let Some(whole) = whole {
                let kept = TextSize::of(text);
                let cut = json!({
                    "originalTokens": whole.tokens, "keptTokens": kept.tokens,
                    "originalChars": whole.chars, "keptChars": kept.chars,
                });
                details.insert(REQUEST_CUT.to_owned(), cut);
            }
        }
        details.insert("way".to_owned(), json!(self.method().as_str()));
        Value::Object(details)
    }

    /// Returns the text after the summary: failed calls, then files, each within a third of the budget.
    fn appendix(&self, budget: u64) -> String {
        let failures: Vec<_> = self.failures.newest().map(|failure| format!("- {failure}")).collect();
        let listed = failures.len() as u64;
        let mut text =
            list(FAILURES, "", failures.iter().rev().map(String::as_str), budget / 3, self.failures.count() - listed);
        text.push_str(&list(READ, "</read-files>", self.files.only_read(), budget / 3, 0));
        text.push_str(&list(MODIFIED, "</modified-files>", self.files.modified(), budget / 3, 0));
        text
    }
}

const FAILURES: &str = "## Tool failures";
const READ: &str = "<read-files>";
const MODIFIED: &str = "<modified-files>";
const LATEST: &str = "<latest-request>";

/// Formats a list between two lines, with the number of omitted items.
fn list<'a>(start: &str, end: &str, lines: impl IntoIterator<Item = &'a str>, budget: u64, mut missing: u64) -> String {
    let mut remaining = budget.saturating_sub(estimate(start) + estimate(end) + 10);
    let mut text = String::new();
    for line in lines {
        let cost = estimate(line) + 1;
        if cost > remaining {
            // Later items are omitted as well, even if they are shorter: the list must not look complete.
            remaining = 0;
            missing += 1;
            continue;
        }
        remaining -= cost;
        text.push('\n');
        text.push_str(line);
    }
    if text.is_empty() {
        return text;
    }
    let more = if missing > 0 { format!("\n(and {missing} more)") } else { String::new() };
    format!("\n\n{start}{text}{more}{}{end}", if end.is_empty() { "" } else { "\n" })
}

/// Returns a summary without its appendix, which is regenerated each time.
pub(crate) fn without_appendix(text: &str) -> &str {
    let headings = [FAILURES, READ, MODIFIED, LATEST];
    let starts = headings.iter().filter_map(|heading| {
        let is_line_start = |(offset, _): &(usize, &str)| *offset == 0 || text.as_bytes()[offset - 1] == b'\n';
        text.match_indices(heading).find(is_line_start).map(|(offset, _)| offset)
    });
    text[..starts.min().unwrap_or(text.len())].trim()
}

#[cfg(test)]
mod tests;
