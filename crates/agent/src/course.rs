//! Where a run's time went: its events, made into steps that leave no moment without a name.

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use homard_proto::{CallId, message::Usage};
use homard_store::{
    Step, Steps, What,
    timeline::{Asked, Prompt},
};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::event::{Event, RunEvent};

/// How long a reason may be, in characters: it is for a line of a table.
const WHY: usize = 300;

/// When a run was accepted, and up to when it is told. Milliseconds since the epoch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) accepted_at: u64,
    /// When it began first, if a restart found it.
    pub(crate) began_before: Option<u64>,
    pub(crate) until: u64,
}

/// What these events come to.
pub(crate) fn of(facts: &[Event], span: Span) -> Steps {
    let mut course = Course { mark: span.accepted_at, until: span.until, ..Course::default() };
    if let Some(began) = span.began_before {
        course.cover(began, What::Queued { slot_ms: 0 });
        course.phase = Phase::Between;
        let started = facts.iter().find(|fact| matches!(fact.kind, RunEvent::Started { .. }));
        course.took_up = Some(started.map_or(span.until, |started| started.at));
    }
    for Event { at, kind } in facts {
        course.hear((*at).min(span.until), kind);
    }
    course.end()
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
    tools: HashMap<CallId, (u64, String)>,
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
            RunEvent::Assistant { said, .. } => {
                let at = self.when(at, said.timestamp);
                if let Phase::Model(asked, _) = &mut self.phase {
                    took(asked, &said.usage);
                    asked.error = said.error_message.as_deref().map(short);
                } else if self.took_up.is_some() {
                    // It was asked before the restart, and nobody noted how.
                    let mut asked = Asked { provider: said.provider.clone(), ..Asked::default() };
                    (asked.model, asked.prompt) = (said.model.clone(), Prompt::default());
                    took(&mut asked, &said.usage);
                    self.phase = Phase::Model(Box::new(asked), self.mark);
                }
                self.turn(at, Phase::Said);
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
            RunEvent::ToolStarted { call, arguments, .. } => {
                if !matches!(self.phase, Phase::Tools) {
                    self.turn(at, Phase::Tools);
                }
                self.tools.insert(call.clone(), (at, digest(arguments)));
            }
            RunEvent::ToolEnded { call, result, .. } => {
                let at = self.when(at, result.timestamp);
                let (from, digest) = self.tools.remove(call).unwrap_or((at, String::new()));
                let (name, call) = (result.tool_name.clone(), call.to_string());
                self.aside(from, at, What::Tool { name, call, digest, is_error: result.is_error });
                if self.tools.is_empty() {
                    // One that was refused, or that answered before a restart, was not seen to begin.
                    if !matches!(self.phase, Phase::Tools) && at > self.mark {
                        self.phase = Phase::Tools;
                    }
                    self.turn(at, Phase::Between);
                }
            }
            RunEvent::Compacting => self.turn(at, Phase::Compacting),
            RunEvent::Compacted { before, after, way, .. } => {
                self.made_short(at, Some((*before, *after)), (*way).to_owned());
            }
            RunEvent::NotCompacted { why } => self.made_short(at, None, short(why)),
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
    fn when(&self, at: u64, written: u64) -> u64 {
        if self.took_up.is_some_and(|took_up| written < took_up) { written } else { at }
    }

    /// This process took the run up.
    fn come_back(&mut self) {
        if let Some(took_up) = self.took_up.take() {
            self.phase = Phase::Between;
            self.cover(took_up, What::Down);
        }
    }

    /// Something else begins: what was done until now gets its name.
    fn turn(&mut self, at: u64, next: Phase) {
        // What was written before the process took the run up comes first.
        if self.took_up.is_some_and(|took_up| at >= took_up) {
            self.come_back();
        }
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

    fn made_short(&mut self, at: u64, tokens: Option<(u64, u64)>, how: String) {
        self.turn(self.mark, Phase::Between);
        self.cover(at, What::Compaction { tokens, how });
    }

    fn fail(&mut self, why: &str) {
        if let Phase::Model(asked, _) = &mut self.phase {
            asked.error = Some(short(why));
        }
    }

    /// Names the time up to a moment. Steps that took none and say nothing are left out.
    fn cover(&mut self, at: u64, what: What) {
        let (from, to) = (self.mark, at.max(self.mark).min(self.until.max(self.mark)));
        let says_nothing = matches!(
            what,
            What::Queued { .. } | What::Prepared | What::Stored | What::Tools | What::Finished | What::Down
        );
        if to > from || !says_nothing {
            self.steps.push(Step { from, to, what });
        }
        self.mark = to;
    }

    fn aside(&mut self, from: u64, to: u64, what: What) {
        self.steps.push(Step { from: from.min(to), to, what });
    }

    fn end(mut self) -> Steps {
        let until = self.until;
        // Whoever is still at work was stopped.
        let open: Vec<_> = self.tools.drain().collect();
        for (call, (from, digest)) in open {
            let what = What::Tool { name: String::new(), call: call.to_string(), digest, is_error: true };
            self.aside(from, until, what);
        }
        self.come_back();
        match self.phase {
            Phase::Said | Phase::Between => self.cover(until, What::Finished),
            Phase::Waiting | Phase::Model(..) | Phase::Retry(_) | Phase::Tools | Phase::Compacting => {
                self.turn(until, Phase::Between)
            }
        }
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

fn short(why: &str) -> String {
    why.chars().take(WHY).collect()
}

/// A digest of a call's arguments: what is in them stays in the transcript.
fn digest(arguments: &Value) -> String {
    let sum = Sha256::digest(arguments.to_string());
    sum.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}
