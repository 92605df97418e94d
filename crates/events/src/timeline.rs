//! Builds a run's timeline: maps its events to contiguous, labelled spans (`homard trace`).

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use homard_compact::notice;
use homard_proto::{
    CallId,
    message::{Assistant, Block, ToolResult, Usage},
};
use homard_store::{
    Hold, RunTimeline, SpanKind, TimelineSpan,
    timeline::{ModelRequestSpan, PromptStats},
};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::event::{
    CompactionEvent, QueueEvent, ReplyEvent, RequestEvent, RunEvent, StoredEvent, TapeEvent, ToolEvent,
};

/// Maximum characters of a reason, which is shown in a table row.
const MAX_REASON_CHARS: usize = 300;

/// Maximum characters of a withheld text that are shown.
const MAX_EXCERPT_CHARS: usize = 80;

/// Time range of a timeline, in milliseconds since the epoch.
#[derive(Debug, Clone, Copy)]
pub struct TimelineRange<'a> {
    /// When the run was accepted.
    pub accepted_at: u64,
    /// Times of earlier starts in other processes; empty unless the run was active at a restart.
    pub earlier_starts: &'a [u64],
    /// The hold that ended before this process resumed the run, if any.
    pub held: Option<Hold>,
    /// When all records were on disk and only hooks on the final messages remained; `None` if there were none.
    pub stored_at: Option<u64>,
    /// End of the timeline.
    pub until: u64,
}

/// Builds the timeline of these events.
pub fn build_timeline(events: &[TapeEvent], range: TimelineRange<'_>) -> RunTimeline {
    let mut builder = TimelineBuilder {
        covered_until: range.accepted_at,
        until: range.until,
        held: range.held,
        ..TimelineBuilder::default()
    };
    if let [first, resumes @ ..] = range.earlier_starts {
        builder.cover(*first, SpanKind::Queued { slot_ms: 0 });
        builder.phase = TimelinePhase::Between;
        builder.earlier_resumes = resumes.iter().copied().collect();
        builder.resumed_at = Some(resumed_at(events).unwrap_or(range.until));
    }
    for TapeEvent { at, kind } in events {
        builder.process((*at).min(range.until), kind);
    }
    builder.end(range.stored_at.unwrap_or(range.until))
}

/// Returns when a run with these events was resumed.
fn resumed_at(events: &[TapeEvent]) -> Option<u64> {
    let started = events.iter().find(|event| matches!(event.kind, RunEvent::Stored(StoredEvent::Started { .. })));
    // If `Started` was lost to a storage failure, the first event counts; only compactions are replayed with an earlier
    // time.
    let is_new = |event: &&TapeEvent| {
        !matches!(
            event.kind,
            RunEvent::Compaction(CompactionEvent::Started) | RunEvent::Stored(StoredEvent::Compacted { .. })
        )
    };
    started.or_else(|| events.iter().find(is_new)).map(|event| event.at)
}

/// Current phase of a run.
#[derive(Debug, Default)]
enum TimelinePhase {
    /// Queued.
    #[default]
    Waiting,
    /// Between two phases.
    Between,
    /// Waiting for a model's answer.
    Model(Box<ModelRequestSpan>, u64),
    /// Waiting before a retry.
    Retry(String),
    /// Running tools.
    Tools,
    /// Compacting.
    Compacting,
    /// A model has answered, and the answer is being committed.
    Committing,
}

#[derive(Default)]
struct TimelineBuilder {
    steps: Vec<TimelineSpan>,
    /// End of the time covered so far.
    covered_until: u64,
    until: u64,
    phase: TimelinePhase,
    slot_ms: u64,
    /// When this process resumed a run of another one; cleared once the replayed events are processed.
    resumed_at: Option<u64>,
    /// The hold, until it is covered.
    held: Option<Hold>,
    /// Earlier resumes in other processes that are not covered yet.
    earlier_resumes: VecDeque<u64>,
    tools: BTreeMap<CallId, RunningCall>,
}

/// A tool call that has no result yet.
struct RunningCall {
    from: u64,
    name: String,
    /// Digest of its arguments.
    digest: String,
}

impl TimelineBuilder {
    fn process(&mut self, at: u64, kind: &RunEvent) {
        match kind {
            RunEvent::Stored(event) => self.process_stored(at, event),
            RunEvent::Queue(event) => self.process_queue(at, event),
            RunEvent::Model(event) => self.process_request(at, event),
            RunEvent::Tool(ToolEvent::Started { call, name, arguments }) => {
                if !matches!(self.phase, TimelinePhase::Tools) {
                    self.start_phase(at, TimelinePhase::Tools);
                }
                let started = RunningCall { from: at, name: name.clone(), digest: digest(arguments) };
                self.tools.insert(call.clone(), started);
            }
            // Only the end of a compaction before a restart is known.
            RunEvent::Compaction(CompactionEvent::Started) if self.is_replayed(at) => {}
            RunEvent::Compaction(CompactionEvent::Started) => self.start_phase(at, TimelinePhase::Compacting),
            RunEvent::Compaction(CompactionEvent::Failed { why }) => {
                self.compacted(at, SpanKind::Compaction { tokens: None, how: short(why), input: None });
            }
            RunEvent::HookDecision(note) => {
                let duration_ms = u64::try_from(note.duration.as_millis()).unwrap_or(0);
                let (point, hook) = (note.point.name().to_owned(), note.hook.clone());
                let kind = SpanKind::Hook { point, hook, decision: short(&note.decision.to_string()) };
                self.add_parallel(at.saturating_sub(duration_ms), at, kind);
            }
            RunEvent::Reply(ReplyEvent::Block(_)) => self.add_parallel(at, at, SpanKind::Block),
            RunEvent::Reply(ReplyEvent::Withheld(withheld)) => {
                let (call, repetition) = (withheld.call.to_string(), withheld.repetition.name().to_owned());
                let (chars, text) = (withheld.text.chars().count() as u64, excerpt(&withheld.text));
                self.add_parallel(at, at, SpanKind::Withheld { call, repetition, chars, text });
            }
            RunEvent::Text { .. } | RunEvent::Thinking { .. } | RunEvent::Tool(ToolEvent::Progress { .. }) => {}
        }
    }

    fn process_stored(&mut self, at: u64, event: &StoredEvent) {
        match event {
            StoredEvent::Started { .. } if self.resumed_at.is_some() => {}
            StoredEvent::Started { .. } => self.start_phase(at, TimelinePhase::Between),
            StoredEvent::Assistant { message: answer, .. } => self.answered(at, answer),
            StoredEvent::ToolEnded { call, result, .. } => self.tool_ended(at, call, result),
            StoredEvent::Compacted { before, after, strategy, input, .. } => {
                let (tokens, how) = (Some((*before, *after)), (*strategy).to_owned());
                self.compacted(at, SpanKind::Compaction { tokens, how, input: *input });
            }
            StoredEvent::Input(_) if self.has_model_request() => self.add_parallel(at, at, SpanKind::Joined),
            StoredEvent::Input(_) | StoredEvent::Ended(_) => {}
        }
    }

    fn process_queue(&mut self, at: u64, event: &QueueEvent) {
        match event {
            QueueEvent::SlotWaited(time) => self.slot_ms += millis(*time),
            QueueEvent::DispositionChanged(changed) => {
                let (disposition, position) = changed.wire_name();
                let position = position.map(|position| position as u64);
                self.add_parallel(at, at, SpanKind::Placed { disposition: disposition.to_owned(), position });
            }
            QueueEvent::Busy(busy) => {
                let (activity, busy_ms) = (busy.activity.to_string(), millis(busy.lasts));
                self.add_parallel(at, at, SpanKind::Busy { activity, busy_ms });
            }
            QueueEvent::Summarized(runs) => self.add_parallel(at, at, SpanKind::Summarized { runs: runs.to_vec() }),
            QueueEvent::Absorbed { .. } => {}
        }
    }

    fn process_request(&mut self, at: u64, event: &RequestEvent) {
        match event {
            RequestEvent::Requested(span) => {
                self.start_phase(at, TimelinePhase::Model(Box::new((**span).clone()), at));
            }
            RequestEvent::FirstToken => {
                if let TimelinePhase::Model(span, since) = &mut self.phase {
                    span.first_ms = Some(at.saturating_sub(*since));
                }
            }
            RequestEvent::AnswerDropped { why, usage } => {
                self.fail(why);
                if let TimelinePhase::Model(span, _) = &mut self.phase {
                    add_usage(span, usage);
                }
            }
            RequestEvent::Retrying { why, .. } => {
                self.fail(why);
                self.start_phase(at, TimelinePhase::Retry(short(why)));
            }
            RequestEvent::CandidateFailed { from, reason, why } => {
                self.fail(why);
                self.start_phase(at, TimelinePhase::Between);
                let (from_model, reason, why) = (from.clone(), reason.clone(), short(why));
                self.add_parallel(at, at, SpanKind::Switched { from_model, reason, why });
            }
            RequestEvent::Changed { .. } | RequestEvent::NoResponse { .. } | RequestEvent::MessageReset { .. } => {}
        }
    }

    fn answered(&mut self, at: u64, answer: &Assistant) {
        let is_replayed = self.is_replayed(answer.timestamp);
        let at = self.time_of(at, answer.timestamp);
        if let TimelinePhase::Model(span, _) = &mut self.phase {
            add_usage(span, &answer.usage);
            span.error = answer.error_message.as_deref().map(short);
        } else if is_replayed {
            // The request was made before the restart, and its details were not recorded.
            let mut span = ModelRequestSpan { provider: answer.provider.clone(), ..ModelRequestSpan::default() };
            (span.model, span.prompt) = (answer.model.clone(), PromptStats::default());
            add_usage(&mut span, &answer.usage);
            span.error = answer.error_message.as_deref().map(short);
            self.phase = TimelinePhase::Model(Box::new(span), self.covered_until);
        }
        self.change_phase(at, is_replayed, TimelinePhase::Committing);
    }

    fn tool_ended(&mut self, at: u64, call: &CallId, result: &ToolResult) {
        let is_replayed = self.is_replayed(result.timestamp);
        let at = self.time_of(at, result.timestamp);
        let answered = || RunningCall { from: at, name: result.tool_name.clone(), digest: String::new() };
        let RunningCall { from, name, digest } = self.tools.remove(call).unwrap_or_else(answered);
        let call = call.to_string();
        let cut = result.content.last().and_then(Block::as_text).and_then(notice::parse_stored);
        let cut = cut.map(|(all, kept)| (all as u64, kept as u64));
        self.add_parallel(from, at, SpanKind::Tool { name, call, digest, is_error: result.is_error, cut });
        if self.tools.is_empty() {
            // The start of a refused call, or of one answered before a restart, was not recorded.
            if !matches!(self.phase, TimelinePhase::Tools) && at > self.covered_until {
                self.phase = TimelinePhase::Tools;
            }
            self.change_phase(at, is_replayed, TimelinePhase::Between);
        }
    }

    /// True if a model request was made.
    fn has_model_request(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.what, SpanKind::Model(_)))
    }

    /// Returns the time of a message: a replayed one has the time of its entry.
    fn time_of(&mut self, at: u64, entry_at: u64) -> u64 {
        let is_replayed = self.is_replayed(entry_at);
        // Another process may have resumed the run between the previous entry and this one.
        while is_replayed
            && let Some(resumed_at) = self.earlier_resumes.pop_front_if(|resumed_at| *resumed_at <= entry_at)
        {
            self.phase = TimelinePhase::Between;
            self.cover(resumed_at, SpanKind::Down);
        }
        // Entries from the time of the hold on only complete the transcript.
        if let Some(hold) = self.held.filter(|hold| is_replayed && hold.held_at <= entry_at) {
            self.phase = TimelinePhase::Between;
            self.cover(hold.held_at, SpanKind::Down);
        }
        if is_replayed { entry_at } else { at }
    }

    /// True if something was written before this process resumed the run.
    fn is_replayed(&self, entry_at: u64) -> bool {
        self.resumed_at.is_some_and(|resumed_at| entry_at < resumed_at)
    }

    /// Covers the downtime before this process resumed the run.
    fn cover_downtime(&mut self) {
        if let Some(resumed_at) = self.resumed_at.take() {
            self.phase = TimelinePhase::Between;
            if let Some(Hold { held_at, released_at, .. }) = self.held.take() {
                self.cover(held_at.min(resumed_at), SpanKind::Down);
                self.cover(released_at.unwrap_or(resumed_at).min(resumed_at), SpanKind::Held);
            }
            self.cover(resumed_at, SpanKind::Down);
        }
    }

    /// Starts a new phase and covers the time of the previous one.
    fn start_phase(&mut self, at: u64, next: TimelinePhase) {
        // All replayed entries are processed.
        self.cover_downtime();
        self.label_phase(at, next);
    }

    /// Starts a new phase, in this process or before it resumed the run.
    fn change_phase(&mut self, at: u64, is_replayed: bool, next: TimelinePhase) {
        match is_replayed {
            true => self.label_phase(at, next),
            false => self.start_phase(at, next),
        }
    }

    /// Covers the time of the current phase with its label.
    fn label_phase(&mut self, at: u64, next: TimelinePhase) {
        let kind = match std::mem::replace(&mut self.phase, next) {
            TimelinePhase::Waiting => SpanKind::Queued { slot_ms: self.slot_ms },
            TimelinePhase::Between | TimelinePhase::Compacting => SpanKind::Prepared,
            TimelinePhase::Model(span, _) => SpanKind::Model(span),
            TimelinePhase::Retry(why) => SpanKind::Retry { why },
            TimelinePhase::Tools => SpanKind::Tools,
            TimelinePhase::Committing => SpanKind::Stored,
        };
        self.cover(at, kind);
    }

    fn compacted(&mut self, at: u64, kind: SpanKind) {
        let is_replayed = self.is_replayed(at);
        let at = self.time_of(at, at);
        if !is_replayed {
            self.cover_downtime();
        }
        self.label_phase(self.covered_until, TimelinePhase::Between);
        self.cover(at, kind);
    }

    /// Records why a request failed. The first reason counts: later ones describe all attempts.
    fn fail(&mut self, why: &str) {
        if let TimelinePhase::Model(span, _) = &mut self.phase {
            span.error.get_or_insert_with(|| short(why));
        }
    }

    /// Labels the time up to a moment. Empty spans without information are left out.
    fn cover(&mut self, at: u64, kind: SpanKind) {
        let (from, to) = (self.covered_until, at.max(self.covered_until).min(self.until.max(self.covered_until)));
        let is_uninformative = matches!(
            kind,
            SpanKind::Queued { .. }
                | SpanKind::Prepared
                | SpanKind::Stored
                | SpanKind::Tools
                | SpanKind::Finished
                | SpanKind::FinalHooks
                | SpanKind::Down
                | SpanKind::Held
        );
        if to > from || !is_uninformative {
            self.steps.push(TimelineSpan { from, to, what: kind });
        }
        self.covered_until = to;
    }

    fn add_parallel(&mut self, from: u64, to: u64, kind: SpanKind) {
        self.steps.push(TimelineSpan { from: from.min(to), to, what: kind });
    }

    fn end(mut self, stored_at: u64) -> RunTimeline {
        // Calls that are still running were stopped.
        for (call, RunningCall { from, name, digest }) in std::mem::take(&mut self.tools) {
            let kind = SpanKind::Tool { name, call: call.to_string(), digest, is_error: true, cut: None };
            self.add_parallel(from, stored_at, kind);
        }
        self.cover_downtime();
        match self.phase {
            TimelinePhase::Committing | TimelinePhase::Between => self.cover(stored_at, SpanKind::Finished),
            TimelinePhase::Waiting
            | TimelinePhase::Model(..)
            | TimelinePhase::Retry(_)
            | TimelinePhase::Tools
            | TimelinePhase::Compacting => self.start_phase(stored_at, TimelinePhase::Between),
        }
        self.cover(self.until, SpanKind::FinalHooks);
        RunTimeline::new(self.steps)
    }
}

fn add_usage(span: &mut ModelRequestSpan, usage: &Usage) {
    span.input = usage.input;
    span.output = usage.output;
    span.cache_read = usage.cache_read;
    span.cache_write = usage.cache_write;
    span.cost = usage.cost.total;
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Shortens a text to one line.
fn excerpt(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(MAX_EXCERPT_CHARS).collect()
}

fn short(reason: &str) -> String {
    reason.chars().take(MAX_REASON_CHARS).collect()
}

/// Digests a call's arguments: their content stays in the transcript.
fn digest(arguments: &Value) -> String {
    let hash = Sha256::digest(arguments.to_string());
    hash.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}
