//! Where a run's time went: its events, made into steps that leave no moment without a name.

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

/// How long a reason may be, in characters: it is for a line of a table.
const WHY: usize = 300;

/// How many characters of a withheld text are shown.
const EXCERPT: usize = 80;

/// When a run was accepted, and up to when it is told. Milliseconds since the epoch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span<'a> {
    pub(crate) accepted_at: u64,
    /// When it began, each time, before this process had it; empty unless a restart found it at work.
    pub(crate) begun: &'a [u64],
    /// When it was held before this process took it up, if it was.
    pub(crate) held: Option<Hold>,
    /// When all that it did was on disk, so that only hooks on its last messages were left; `None` if there were none.
    pub(crate) stored_at: Option<u64>,
    pub(crate) until: u64,
}

/// What these events come to.
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

/// When a run was taken up on whose tape these are.
fn took_up(facts: &[Event]) -> Option<u64> {
    let started = facts.iter().find(|fact| matches!(fact.kind, RunEvent::Started { .. }));
    // A disk that failed may have kept its beginning; only compactions are told with a time from before.
    let is_new = |fact: &&Event| !matches!(fact.kind, RunEvent::Compacting | RunEvent::Compacted { .. });
    started.or_else(|| facts.iter().find(is_new)).map(|fact| fact.at)
}

/// What a run is doing.
#[derive(Debug, Default)]
enum Phase {
    /// It waits for its turn.
    #[default]
    Waiting,
    /// It is between two things.
    Between,
    /// A model is being asked.
    Model(Box<Asked>, u64),
    /// It waits before it asks again.
    Retry(String),
    /// Tools are at work.
    Tools,
    /// The conversation is being made short.
    Compacting,
    /// A model has answered, and what it said is on its way to disk.
    Said,
}

#[derive(Default)]
struct Course {
    steps: Vec<Step>,
    /// Up to when all is told.
    mark: u64,
    until: u64,
    phase: Phase,
    slot_ms: u64,
    /// When this process took up a run that another had begun, as long as what that did is being told.
    took_up: Option<u64>,
    /// When it was held, as long as that is not told.
    held: Option<Hold>,
    /// When others had taken it up before this one, as far as that is not told yet.
    again: VecDeque<u64>,
    /// Since when a call is at work, the tool, and a digest of the arguments.
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
                    // It was asked before the restart, and nobody noted how.
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
                    // One that was refused, or that answered before a restart, was not seen to begin.
                    if !matches!(self.phase, Phase::Tools) && at > self.mark {
                        self.phase = Phase::Tools;
                    }
                    self.pass((at, is_of_before), Phase::Between);
                }
            }
            // Of one before a restart, only the end is known.
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

    /// Whether a model was asked by now.
    fn has_asked(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.what, What::Model(_)))
    }

    /// When something was said: what is told again after a restart happened when its line says.
    fn when(&mut self, at: u64, written: u64) -> u64 {
        let is_of_before = self.is_of_before(written);
        // Between the line before this one and this one, somebody else may have taken the run up.
        while is_of_before && let Some(again) = self.again.pop_front_if(|again| *again <= written) {
            self.phase = Phase::Between;
            self.cover(again, What::Down);
        }
        // Lines of that moment or later only complete the transcript.
        if let Some(hold) = self.held.filter(|hold| is_of_before && hold.held_at <= written) {
            self.phase = Phase::Between;
            self.cover(hold.held_at, What::Down);
        }
        if is_of_before { written } else { at }
    }

    /// Whether something was written before this process took the run up.
    fn is_of_before(&self, written: u64) -> bool {
        self.took_up.is_some_and(|took_up| written < took_up)
    }

    /// This process took the run up.
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

    /// Something new begins: what was done until now gets its name.
    fn turn(&mut self, at: u64, next: Phase) {
        // What was written before the process took the run up is all told.
        self.come_back();
        self.name(at, next);
    }

    /// Something else begins, or began before this process took the run up.
    fn pass(&mut self, (at, is_of_before): (u64, bool), next: Phase) {
        match is_of_before {
            true => self.name(at, next),
            false => self.turn(at, next),
        }
    }

    /// What was done until now gets its name.
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

    /// Notes why a question failed. The first reason counts: what comes later is about all attempts.
    fn fail(&mut self, why: &str) {
        if let Phase::Model(asked, _) = &mut self.phase {
            asked.error.get_or_insert_with(|| short(why));
        }
    }

    /// Names the time up to a moment. Steps that took none and say nothing are left out.
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
        // Whoever is still at work was stopped.
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

/// The beginning of a text, in one line.
fn excerpt(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(EXCERPT).collect()
}

fn short(why: &str) -> String {
    why.chars().take(WHY).collect()
}

/// A digest of a call's arguments: what is in them stays in the transcript.
fn digest(arguments: &Value) -> String {
    let sum = Sha256::digest(arguments.to_string());
    sum.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}
