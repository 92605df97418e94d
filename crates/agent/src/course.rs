//! Builds a run's timeline: maps its events to contiguous, labelled spans (`homard trace`).

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use homard_compact::notice;
use homard_proto::{
    CallId,
    message::{Block, Usage},
};
use homard_store::{
    Hold, Step, Steps, What,
    timeline::{Asked, Prompt},
};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::event::{Event, RunEvent};

/// Maximum characters of a reason, which is shown in a table row.
const WHY: usize = 300;

/// Maximum characters of a withheld text that are shown.
const EXCERPT: usize = 80;

/// Time range of a timeline, in milliseconds since the epoch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span<'a> {
    pub(crate) accepted_at: u64,
    /// Times of earlier starts in other processes; empty unless the run was active at a restart.
    pub(crate) begun: &'a [u64],
    /// The hold that ended before this process resumed the run, if any.
    pub(crate) held: Option<Hold>,
    /// When all records were on disk and only hooks on the final messages remained; `None` if there were none.
    pub(crate) stored_at: Option<u64>,
    pub(crate) until: u64,
}

/// Builds the timeline of these events.
pub(crate) fn of(facts: &[Event], span: Span<'_>) -> Steps {
    let mut course = Course { mark: span.accepted_at, until: span.until, held: span.held, ..Course::default() };
    if let [first, again @ ..] = span.begun {
        course.cover(*first, What::Queued { slot_ms: 0 });
        course.phase = Phase::Between;
        course.again = again.iter().copied().collect();
        course.took_up = Some(took_up(facts).unwrap_or(span.until));
    }
    for Event { at, kind } in facts {
        course.hear((*at).min(span.until), kind);
    }
    course.end(span.stored_at.unwrap_or(span.until))
}

/// Returns when a run with these events was resumed.
fn took_up(facts: &[Event]) -> Option<u64> {
    let started = facts.iter().find(|fact| matches!(fact.kind, RunEvent::Started { .. }));
    // If `Started` was lost to a storage failure, the first event counts; only compactions are replayed with an earlier
    // time.
    let is_new = |fact: &&Event| !matches!(fact.kind, RunEvent::Compacting | RunEvent::Compacted { .. });
    started.or_else(|| facts.iter().find(is_new)).map(|fact| fact.at)
}

/// Current phase of a run.
#[derive(Debug, Default)]
enum Phase {
    /// Queued.
    #[default]
    Waiting,
    /// Between two phases.
    Between,
    /// Waiting for a model's answer.
    Model(Box<Asked>, u64),
    /// Waiting before a retry.
    Retry(String),
    /// Running tools.
    Tools,
    /// Compacting.
    Compacting,
    /// A model has answered, and the answer is being committed.
    Said,
}

#[derive(Default)]
struct Course {
    steps: Vec<Step>,
    /// End of the time covered so far.
    mark: u64,
    until: u64,
    phase: Phase,
    slot_ms: u64,
    /// When this process resumed a run of another one; cleared once the replayed events are processed.
    took_up: Option<u64>,
    /// The hold, until it is covered.
    held: Option<Hold>,
    /// Earlier resumes in other processes that are not covered yet.
    again: VecDeque<u64>,
    /// Start time, tool name and digest of the arguments of each running call.
    tools: BTreeMap<CallId, (u64, String, String)>,
}

impl Course {
    fn hear(&mut self, at: u64, kind: &RunEvent) {
        match kind {
            RunEvent::Started { .. } if self.took_up.is_some() => {}
            RunEvent::Started { .. } => self.turn(at, Phase::Between),
            RunEvent::Waited(time) => self.slot_ms += u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
            RunEvent::Asking(asked) => self.turn(at, Phase::Model(Box::new((**asked).clone()), at)),
            RunEvent::Heard => {
                if let Phase::Model(asked, since) = &mut self.phase {
                    asked.first_ms = Some(at.saturating_sub(*since));
                }
            }
            RunEvent::Discarded { why, usage } => {
                self.fail(why);
                if let Phase::Model(asked, _) = &mut self.phase {
                    took(asked, usage);
                }
            }
            RunEvent::Assistant { said, .. } => {
                let is_of_before = self.is_of_before(said.timestamp);
                let at = self.when(at, said.timestamp);
                if let Phase::Model(asked, _) = &mut self.phase {
                    took(asked, &said.usage);
                    asked.error = said.error_message.as_deref().map(short);
                } else if is_of_before {
                    // The request was made before the restart, and its details were not recorded.
                    let mut asked = Asked { provider: said.provider.clone(), ..Asked::default() };
                    (asked.model, asked.prompt) = (said.model.clone(), Prompt::default());
                    took(&mut asked, &said.usage);
                    asked.error = said.error_message.as_deref().map(short);
                    self.phase = Phase::Model(Box::new(asked), self.mark);
                }
                self.pass((at, is_of_before), Phase::Said);
            }
            RunEvent::Retrying { why, .. } => {
                self.fail(why);
                self.turn(at, Phase::Retry(short(why)));
            }
            RunEvent::Switched { from, reason, why } => {
                self.fail(why);
                self.turn(at, Phase::Between);
                let (from_model, reason, why) = (from.clone(), reason.clone(), short(why));
                self.aside(at, at, What::Switched { from_model, reason, why });
            }
            RunEvent::ToolStarted { call, name, arguments } => {
                if !matches!(self.phase, Phase::Tools) {
                    self.turn(at, Phase::Tools);
                }
                self.tools.insert(call.clone(), (at, name.clone(), digest(arguments)));
            }
            RunEvent::ToolEnded { call, result, .. } => {
                let is_of_before = self.is_of_before(result.timestamp);
                let at = self.when(at, result.timestamp);
                let (from, name, digest) =
                    self.tools.remove(call).unwrap_or_else(|| (at, result.tool_name.clone(), String::new()));
                let call = call.to_string();
                let cut = result.content.last().and_then(Block::as_text).and_then(notice::sizes);
                let cut = cut.map(|(all, kept)| (all as u64, kept as u64));
                self.aside(from, at, What::Tool { name, call, digest, is_error: result.is_error, cut });
                if self.tools.is_empty() {
                    // The start of a refused call, or of one answered before a restart, was not recorded.
                    if !matches!(self.phase, Phase::Tools) && at > self.mark {
                        self.phase = Phase::Tools;
                    }
                    self.pass((at, is_of_before), Phase::Between);
                }
            }
            // Only the end of a compaction before a restart is known.
            RunEvent::Compacting if self.is_of_before(at) => {}
            RunEvent::Compacting => self.turn(at, Phase::Compacting),
            RunEvent::Compacted { before, after, way, input, .. } => {
                let (tokens, how) = (Some((*before, *after)), (*way).to_owned());
                self.made_short(at, What::Compaction { tokens, how, input: *input });
            }
            RunEvent::NotCompacted { why } => {
                self.made_short(at, What::Compaction { tokens: None, how: short(why), input: None });
            }
            RunEvent::Hooked(note) => {
                let took = u64::try_from(note.took.as_millis()).unwrap_or(0);
                let (point, hook) = (note.point.name().to_owned(), note.hook.clone());
                self.aside(
                    at.saturating_sub(took),
                    at,
                    What::Hook { point, hook, decision: short(&note.decision.to_string()) },
                );
            }
            RunEvent::Input(_) if self.has_asked() => {
                self.aside(at, at, What::Joined);
            }
            RunEvent::Block(_) => self.aside(at, at, What::Block),
            RunEvent::Withheld(withheld) => {
                let (call, repetition) = (withheld.call.to_string(), withheld.repetition.name().to_owned());
                let (chars, text) = (withheld.text.chars().count() as u64, excerpt(&withheld.text));
                self.aside(at, at, What::Withheld { call, repetition, chars, text });
            }
            RunEvent::Placed(placed) => {
                let (disposition, position) = placed.told();
                let position = position.map(|position| position as u64);
                self.aside(at, at, What::Placed { disposition: disposition.to_owned(), position });
            }
            RunEvent::Busy(busy) => {
                let ms = u64::try_from(busy.lasts.as_millis()).unwrap_or(u64::MAX);
                self.aside(at, at, What::Busy { activity: busy.activity.to_string(), busy_ms: ms });
            }
            RunEvent::Summarized(runs) => self.aside(at, at, What::Summarized { runs: runs.to_vec() }),
            RunEvent::Input(_)
            | RunEvent::Absorbed { .. }
            | RunEvent::Answering { .. }
            | RunEvent::Rewound { .. }
            | RunEvent::Text { .. }
            | RunEvent::Thinking { .. }
            | RunEvent::ToolProgress { .. }
            | RunEvent::Ended(_) => {}
        }
    }

    /// True if a model request was made.
    fn has_asked(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.what, What::Model(_)))
    }

    /// Returns the time of a message: a replayed one has the time of its entry.
    fn when(&mut self, at: u64, written: u64) -> u64 {
        let is_of_before = self.is_of_before(written);
        // Another process may have resumed the run between the previous entry and this one.
        while is_of_before && let Some(again) = self.again.pop_front_if(|again| *again <= written) {
            self.phase = Phase::Between;
            self.cover(again, What::Down);
        }
        // Entries from the time of the hold on only complete the transcript.
        if let Some(hold) = self.held.filter(|hold| is_of_before && hold.held_at <= written) {
            self.phase = Phase::Between;
            self.cover(hold.held_at, What::Down);
        }
        if is_of_before { written } else { at }
    }

    /// True if something was written before this process resumed the run.
    fn is_of_before(&self, written: u64) -> bool {
        self.took_up.is_some_and(|took_up| written < took_up)
    }

    /// Covers the downtime before this process resumed the run.
    fn come_back(&mut self) {
        if let Some(took_up) = self.took_up.take() {
            self.phase = Phase::Between;
            if let Some(Hold { held_at, released_at, .. }) = self.held.take() {
                self.cover(held_at.min(took_up), What::Down);
                self.cover(released_at.unwrap_or(took_up).min(took_up), What::Held);
            }
            self.cover(took_up, What::Down);
        }
    }

    /// Starts a new phase and covers the time of the previous one.
    fn turn(&mut self, at: u64, next: Phase) {
        // All replayed entries are processed.
        self.come_back();
        self.name(at, next);
    }

    /// Starts a new phase, in this process or before it resumed the run.
    fn pass(&mut self, (at, is_of_before): (u64, bool), next: Phase) {
        match is_of_before {
            true => self.name(at, next),
            false => self.turn(at, next),
        }
    }

    /// Covers the time of the current phase with its label.
    fn name(&mut self, at: u64, next: Phase) {
        let what = match std::mem::replace(&mut self.phase, next) {
            Phase::Waiting => What::Queued { slot_ms: self.slot_ms },
            Phase::Between | Phase::Compacting => What::Prepared,
            Phase::Model(asked, _) => What::Model(asked),
            Phase::Retry(why) => What::Retry { why },
            Phase::Tools => What::Tools,
            Phase::Said => What::Stored,
        };
        self.cover(at, what);
    }

    fn made_short(&mut self, at: u64, what: What) {
        let is_of_before = self.is_of_before(at);
        let at = self.when(at, at);
        if !is_of_before {
            self.come_back();
        }
        self.name(self.mark, Phase::Between);
        self.cover(at, what);
    }

    /// Records why a request failed. The first reason counts: later ones describe all attempts.
    fn fail(&mut self, why: &str) {
        if let Phase::Model(asked, _) = &mut self.phase {
            asked.error.get_or_insert_with(|| short(why));
        }
    }

    /// Labels the time up to a moment. Empty spans without information are left out.
    fn cover(&mut self, at: u64, what: What) {
        let (from, to) = (self.mark, at.max(self.mark).min(self.until.max(self.mark)));
        let says_nothing = matches!(
            what,
            What::Queued { .. }
                | What::Prepared
                | What::Stored
                | What::Tools
                | What::Finished
                | What::FinalHooks
                | What::Down
                | What::Held
        );
        if to > from || !says_nothing {
            self.steps.push(Step { from, to, what });
        }
        self.mark = to;
    }

    fn aside(&mut self, from: u64, to: u64, what: What) {
        self.steps.push(Step { from: from.min(to), to, what });
    }

    fn end(mut self, stored_at: u64) -> Steps {
        // Calls that are still running were stopped.
        for (call, (from, name, digest)) in std::mem::take(&mut self.tools) {
            let what = What::Tool { name, call: call.to_string(), digest, is_error: true, cut: None };
            self.aside(from, stored_at, what);
        }
        self.come_back();
        match self.phase {
            Phase::Said | Phase::Between => self.cover(stored_at, What::Finished),
            Phase::Waiting | Phase::Model(..) | Phase::Retry(_) | Phase::Tools | Phase::Compacting => {
                self.turn(stored_at, Phase::Between)
            }
        }
        self.cover(self.until, What::FinalHooks);
        Steps::new(self.steps)
    }
}

fn took(asked: &mut Asked, usage: &Usage) {
    asked.input = usage.input;
    asked.output = usage.output;
    asked.cache_read = usage.cache_read;
    asked.cache_write = usage.cache_write;
    asked.cost = usage.cost.total;
}

/// Shortens a text to one line.
fn excerpt(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(EXCERPT).collect()
}

fn short(why: &str) -> String {
    why.chars().take(WHY).collect()
}

/// Digests a call's arguments: their content stays in the transcript.
fn digest(arguments: &Value) -> String {
    let sum = Sha256::digest(arguments.to_string());
    sum.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}
