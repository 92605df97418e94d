//! The one way in which a run ends.
//!
//! Return, panic, abort and timeout all come here. Open calls get an answer, the run gets its terminal record, the
//! session its numbers: one commit, and then one `Ended`. Nothing else ends a run, so none can end twice or not at all.

use std::sync::Arc;

use homard_proto::{
    CallId, EntryId, SessionId,
    message::{Assistant, Block, Message, StopReason, ToolResult, Usage},
    transcript::{Entry, Kind},
};
use homard_store::{Ended, Error as StoreError, Rec};

use super::{Lane, Queued};
use crate::{
    ambient::iso,
    event::{AbortReason, End, Event, Failure, FailureKind, Outcome, Reply, RunEvent},
    profile::Profile,
    run::RunError,
    tape::Tape,
    writer::Then,
};

impl Lane {
    /// Ends a run, whatever became of it.
    pub(super) async fn end(&mut self, queued: &Queued, profile: &Profile, result: Result<(), RunError>) {
        let (at, tape) = (self.hub.ambient.now_ms(), &queued.tape);
        let story = Story::of(&tape.facts());
        let outcome = outcome(queued, result);
        let (mut closing, mut held) = self.close(tape, &story, (profile, &outcome), at);
        let end = Arc::new(End {
            outcome,
            replies: story.replies,
            model: (profile.model.spec().provider.clone(), profile.model.spec().model.clone()),
            usage: story.usage,
            last_usage: story.last_usage,
            session: story.session,
            started_at: story.started_at,
            ended_at: at,
        });
        closing.push(Rec::Terminal { run: queued.inbound.run.clone(), ended: Box::new(ended(&end)) });
        closing.extend(self.settle(&end));
        tape.hold(at, RunEvent::Ended(end));
        held += 1;
        self.hub.writer.send(closing, Then::Publish(tape.clone(), held));
        // The barrier is behind the terminal record, so the next run of this session cannot overtake it.
        if let Err(error) = self.hub.writer.barrier().await {
            tape.break_off(&error.to_string());
        }
        match (&mut self.session, tape.broken()) {
            (Some(session), None) => session.history.extend(new_messages(&tape.facts())),
            // What is on disk is not what we believe: read it again with the next message.
            (_, Some(_)) => self.session = None,
            (None, None) => {}
        }
        self.hub.forget(&queued.inbound.run);
    }

    /// The lines that make the transcript whole: what was said before it was broken off, an answer for each open call.
    /// Returns them and how many facts they put on the tape.
    fn close(
        &self,
        tape: &Arc<Tape>,
        story: &Story,
        (profile, outcome): (&Profile, &Outcome),
        at: u64,
    ) -> (Vec<Rec>, usize) {
        let (mut lines, mut held) = (Vec::new(), 0);
        let mut line = |message: Message| {
            let (kind, id) = (Kind::message(message), self.hub.ambient.entry_id());
            let entry = Entry { kind, id: id.clone(), parent_id: None, timestamp: iso(at) };
            lines.push(Rec::Entry { key: self.key.clone(), entry: Box::new(entry) });
            id
        };
        let partial = tape.unfinished_text();
        if *outcome != Outcome::Done && !partial.is_empty() {
            let said = Arc::new(broken_off(profile, partial, at));
            let entry = line(Message::Assistant((*said).clone()));
            tape.hold(at, RunEvent::Assistant { entry, said });
            held += 1;
        }
        // Lines keep the order of the calls, so those before the first open call are in the transcript already.
        for asked in story.calls.iter().skip_while(|asked| asked.answer.is_some()) {
            let result = asked.answer.clone().unwrap_or_else(|| Arc::new(asked.unanswered(at)));
            line(Message::ToolResult((*result).clone()));
            if asked.answer.is_none() {
                tape.hold(at, RunEvent::ToolEnded { call: asked.call.clone(), result });
                held += 1;
            }
        }
        (lines, held)
    }

    /// The session's numbers after the run.
    fn settle(&mut self, end: &End) -> Option<Rec> {
        let record = &mut self.session.as_mut()?.record;
        record.updated_at = record.updated_at.max(end.ended_at);
        record.aborted_last_run = Some(matches!(end.outcome, Outcome::Aborted(_)));
        if end.usage != Usage::default() {
            record.input_tokens = Some(end.usage.input);
            record.output_tokens = Some(end.usage.output);
            record.total_tokens = Some(prompt_size(&end.last_usage));
        }
        let (key, expect) = (self.key.clone(), Some(record.session_id.clone()));
        Some(Rec::Patch { key, expect, record: Box::new(record.clone()) })
    }
}

/// How full the context was at the last model call.
fn prompt_size(last: &Usage) -> u64 {
    last.input + last.cache_read + last.cache_write
}

fn outcome(queued: &Queued, result: Result<(), RunError>) -> Outcome {
    if let Some(why) = queued.tape.broken() {
        let message = RunError::Store(StoreError::Disk(why)).to_string();
        return Outcome::Failed(Failure { kind: FailureKind::Internal, message });
    }
    let kind = match result {
        Ok(()) => return Outcome::Done,
        Err(RunError::Stopped | RunError::Dropped) => {
            return Outcome::Aborted(queued.stopped().unwrap_or(AbortReason::Shutdown));
        }
        Err(RunError::Model(_)) => FailureKind::Model,
        Err(RunError::Store(_) | RunError::SessionGone | RunError::Panicked(_)) => FailureKind::Internal,
    };
    let message = result.err().map(|error| error.to_string()).unwrap_or_default();
    Outcome::Failed(Failure { kind, message })
}

fn ended(end: &End) -> Ended {
    Ended {
        outcome: end.outcome.clone(),
        replies: end.replies.iter().map(|reply| reply.entry.clone()).collect(),
        model: end.model.clone(),
        usage: end.usage.clone(),
        started_at: end.started_at,
        ended_at: end.ended_at,
    }
}

/// What was said before the run was stopped: kept for people, not sent to a model again.
fn broken_off(profile: &Profile, text: String, at: u64) -> Assistant {
    let spec = profile.model.spec();
    Assistant {
        content: vec![Block::text(text)],
        api: spec.api.clone(),
        provider: spec.provider.clone(),
        model: spec.model.clone(),
        usage: Usage::default(),
        stop_reason: StopReason::Aborted,
        error_message: None,
        timestamp: at,
        extra: serde_json::Map::new(),
    }
}

/// What a run's facts come to.
#[derive(Default)]
struct Story {
    session: Option<SessionId>,
    started_at: Option<u64>,
    replies: Vec<Reply>,
    usage: Usage,
    last_usage: Usage,
    /// The calls of the last assistant message; those of earlier ones were all answered, or there would be no later one.
    calls: Vec<Asked>,
}

struct Asked {
    call: CallId,
    name: String,
    is_started: bool,
    answer: Option<Arc<ToolResult>>,
}

impl Asked {
    /// The answer to a call that got none.
    fn unanswered(&self, at: u64) -> ToolResult {
        let text = if self.is_started {
            "The run was stopped before this call answered. Whether it took effect is not known."
        } else {
            "The run was stopped before this call was started."
        };
        ToolResult {
            tool_call_id: self.call.to_string(),
            tool_name: self.name.clone(),
            content: vec![Block::text(text)],
            details: None,
            is_error: true,
            timestamp: at,
            extra: serde_json::Map::new(),
        }
    }
}

impl Story {
    fn of(facts: &[Event]) -> Self {
        let mut story = Self::default();
        for Event { at, kind } in facts {
            match kind {
                RunEvent::Started { session } => {
                    story.session = Some(session.clone());
                    story.started_at = Some(*at);
                }
                RunEvent::Assistant { entry, said } => story.hear(entry, said),
                RunEvent::ToolEnded { call, result } => {
                    let asked = story.calls.iter_mut().filter(|asked| asked.call == *call);
                    asked.for_each(|asked| asked.answer = Some(result.clone()));
                }
                RunEvent::ToolStarted { call, .. } => {
                    let asked = story.calls.iter_mut().filter(|asked| asked.call == *call);
                    asked.for_each(|asked| asked.is_started = true);
                }
                RunEvent::Input(_)
                | RunEvent::Text { .. }
                | RunEvent::Thinking { .. }
                | RunEvent::ToolProgress { .. }
                | RunEvent::Ended(_) => {}
            }
        }
        story
    }

    fn hear(&mut self, entry: &EntryId, said: &Assistant) {
        self.usage += &said.usage;
        self.last_usage = said.usage.clone();
        if said.stop_reason == StopReason::Error {
            return;
        }
        let text = said.text();
        if !text.trim().is_empty() {
            self.replies.push(Reply { entry: entry.clone(), text });
        }
        let asked = said.tool_calls().filter_map(|call| {
            let (call, name) = (CallId::parse(&call.id).ok()?, call.name.clone());
            Some(Asked { call, name, is_started: false, answer: None })
        });
        self.calls = asked.collect();
    }
}

/// What a run added to the history after its input, results in the order of their calls.
fn new_messages(facts: &[Event]) -> Vec<Arc<Message>> {
    let mut messages = Vec::new();
    let mut asked: &Assistant = &Assistant::default();
    let mut answers: Vec<&ToolResult> = Vec::new();
    let place =
        |asked: &Assistant, answer: &ToolResult| asked.tool_calls().position(|call| call.id == answer.tool_call_id);
    let mut flush = |asked: &Assistant, answers: &mut Vec<&ToolResult>, next: Option<&Assistant>| {
        answers.sort_by_key(|answer| place(asked, answer));
        messages.extend(answers.drain(..).map(|answer| Arc::new(Message::ToolResult(answer.clone()))));
        messages.extend(next.map(|said| Arc::new(Message::Assistant(said.clone()))));
    };
    for Event { kind, .. } in facts {
        if let RunEvent::ToolEnded { result, .. } = kind {
            answers.push(result);
        } else if let RunEvent::Assistant { said, .. } = kind {
            flush(asked, &mut answers, Some(said));
            asked = said;
        }
    }
    flush(asked, &mut answers, None);
    messages
}
