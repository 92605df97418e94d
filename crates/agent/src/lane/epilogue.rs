//! The only code that ends a run.
//!
//! Return, panic, abort and timeout all end here: open tool calls get a result, the run its terminal record, the
//! session its counters, in one commit, followed by one `Ended` event. Nothing else ends a run, so a run ends exactly
//! once.

use std::sync::Arc;

use homard_proto::{
    CallId, EntryId, SessionId,
    message::{Assistant, Block, Message, StopReason, ToolResult, Usage, User},
    transcript::{Entry, Kind},
};
use homard_reply::{
    failure, footer,
    payload::{Kind as ReplyKind, Payload},
    shape::Expectation,
};
use homard_store::{EndRecord, Error as StoreError, Rec, RunTimeline, UnfinishedRun, recovery::own_entries};

use super::{
    Lane, Ticket,
    inbox::Disposition,
    model_choice,
    output::recovered_deliveries,
    replies::text_without_entry,
    session::OpenSession,
    start::{AUTO_COMPACT, AUTO_FLUSH, event_of_entry},
};
use crate::{
    Hub, Inbound,
    ambient::{Ambient, iso},
    command::Command,
    delivery::{queue_records, run_output::RunOutput},
    event::{Failure, FailureKind, HeartbeatKind, Outcome, RunEnd, RunEvent, TapeEvent, TruncatedInput},
    hooks,
    profile::Profile,
    replies::Replies,
    run::{AnsweredBy, ContextFill, FinalRecords, RunError, RunResult, session_stats},
    schedule::heartbeat::finding,
    timeline::{self, TimelineRange},
    wire,
    writer::AfterCommit,
};

/// Sent to subscribers of a run when the process shuts down.
const SUSPENDED: &str = "gateway_draining: the gateway is stopping; the run continues after the restart";

impl Lane {
    /// Ends a run, whatever its result.
    pub(super) async fn end(&mut self, mut queued: Ticket, profile: &Profile, driven: RunResult) {
        let RunResult { result, history: told, undone_compactions: void, side_usage: beside } = driven;
        let guests = std::mem::take(&mut queued.absorbed);
        self.open_output(&mut queued, profile);
        let queued = &queued;
        // The outcome is known only when all earlier records are committed or rejected.
        let stored = self.hub.writer.barrier().await;
        let (stored_at, tape) = (self.hub.ambient.now_ms(), &queued.tape);
        if let Err(error) = stored {
            tape.mark_broken(&error.to_string());
        }
        let Some(outcome) = outcome(queued, &result) else {
            return guests.iter().chain([queued]).for_each(|queued| self.suspend(queued));
        };
        let facts = tape.events();
        let mut story = RunSummary::of(&facts);
        story.compactions.retain(|(made, _)| !void.contains(made));
        // After a rejected commit, the final reply would not match the transcript on disk.
        let mut last = result.ok().filter(|_| tape.broken().is_none()).unwrap_or_default();
        last.history = told;
        self.complete_transcript(queued, &story, (profile, &outcome), &mut last).await;
        let mut said = Replies::of(&facts, &queued.inbound.route);
        if let Some(kept) = queued.output.as_ref().and_then(|line| line.close()) {
            said.keep_blocks(kept);
        }
        let has_blocks = said.has_blocks();
        let (lines, has_token) = (said.entries(), said.is_heartbeat_ok);
        if !last.calls.is_empty() {
            said.end_with_client_calls();
        }
        if matches!(outcome, Outcome::Aborted(_)) {
            said.stop();
        }
        let mut usage = story.usage;
        usage += &beside;
        if let Some(words) = &mut last.reply {
            profile.secrets.mask_string(words);
        }
        let replies = match &last.reply {
            Some(words) => vec![Payload::answer(words)],
            // The gateway submitted the run itself; there is no recipient.
            None if queued.is_internal() => Vec::new(),
            None => {
                let mut replies = self.replies(queued, profile, (said, &outcome), &usage);
                if let (Some(input), Some((provider, model))) = (story.truncated_input, &story.model) {
                    let sizes = (input.kept_tokens, input.original_tokens);
                    let line = footer::truncated(&format!("{provider}/{model}"), sizes);
                    footer::warn(&mut replies, &line, has_blocks);
                }
                replies
            }
        };
        let mut replies =
            self.before_sending(queued, profile, with_hook_messages(&queued.hook_messages, replies)).await;
        replies.iter_mut().for_each(|reply| profile.secrets.mask_string(&mut reply.text));
        let heartbeat = self.read_heartbeat(queued, profile, (&outcome, has_token), &mut replies);
        // After the last hook and all commits except that of the terminal record, which cannot contain its own time.
        let at = self.hub.ambient.now_ms();
        let (accepted_at, stored_at) = (tape.accepted_at(), Some(stored_at));
        let steps = timeline::build_timeline(
            &tape.events(),
            TimelineRange {
                accepted_at,
                earlier_starts: &queued.earlier_starts,
                held: queued.reentry,
                stored_at,
                until: at,
            },
        );
        let spec = profile.spec();
        let mut end = RunEnd {
            outcome,
            replies,
            complete_reply: None,
            entries: lines,
            heartbeat,
            calls: std::mem::take(&mut last.calls),
            model: story.model.unwrap_or_else(|| (spec.provider.clone(), spec.model.clone())),
            usage,
            last_usage: story.last_usage,
            truncated_input: story.truncated_input,
            is_summarized: tape.disposition() == Disposition::Summarized,
            session: story.session,
            started_at: queued.earlier_starts.first().copied().or(story.started_at),
            ended_at: at,
        };
        let mut stored =
            EndRecord { words: last.reply.take().or_else(|| text_without_entry(&end)), ..ended(&end, steps) };
        end.complete_reply = has_blocks.then(|| wire::complete_reply(&stored, &facts));
        wire::store_payloads(&mut stored, end.payloads(), &facts);
        let outgoing = self.finals(queued, &end, (!story.compactions.is_empty(), has_blocks));
        if let Some(answer) = &mut end.heartbeat {
            if let HeartbeatKind::Finding { is_queued } = &mut answer.kind {
                *is_queued = !outgoing.is_empty();
            }
            if let Some(mark) = self.exclude_heartbeat(queued, answer, &facts) {
                last.records.push(mark);
                last.history = None;
            }
        }
        let end = Arc::new(end);
        let answered_by = last.answered_by.take();
        last.records.extend(self.update_session(
            queued,
            (&end, answered_by.as_ref()),
            (last.credential.as_ref(), &story.compactions, story.is_counted),
        ));
        last.records.extend(queue_records(&outgoing));
        last.records.push(Rec::Terminal { run: queued.inbound.run.clone(), ended: Box::new(stored) });
        tape.stage(at, RunEvent::Ended(end.clone()));
        last.staged_events += 1;
        // Before the terminal record, because the final replies repeat the text of withdrawn blocks.
        let (taken_back, told) = match &queued.output {
            Some(line) => self.hub.deliveries.withdraw(line, at),
            None => Default::default(),
        };
        if !taken_back.is_empty() {
            self.hub.writer.send(taken_back, AfterCommit::default());
        }
        self.hub.send_deliveries((last.records, AfterCommit::end(tape, last.staged_events)), outgoing, None);
        // The barrier follows the terminal record, so the session's next run cannot overtake it.
        if let Err(error) = self.hub.writer.barrier().await {
            tape.mark_broken(&error.to_string());
            self.hub.force_end_later((queued.inbound.run.clone(), tape.accepted_at()));
        }
        match (&mut self.session, tape.broken(), last.history.take()) {
            (Some(session), None, Some(told)) if !queued.is_resumed && is_same_transcript(queued, session) => {
                session.history = told
            }
            // The run never started and wrote nothing.
            (Some(_), None, None) if queued.session.is_none() && !queued.is_resumed => {}
            // The transcript on disk differs from the cached one or contains more: it is read again for the next
            // message.
            (Some(_) | None, _, _) => self.session = None,
        }
        self.fire_sent(queued, profile, &end);
        self.fire_agent_end(queued, profile, &end);
        self.hub.report(told);
        if let Some(post) = &queued.inbound.delivery {
            self.hub.report_undeliverable(&queued.inbound.run, post);
        }
        self.hub.forget(&queued.tape);
        self.end_absorbed(guests, &end).await;
        // A scheduled run has a transcript of its own, and no message follows.
        let may_ask = tape.broken().is_none() && !self.key.is_cron() && !profile.is_one_shot;
        match last.fill {
            ContextFill::Nearly if may_ask => self.submit_compaction(queued, AUTO_FLUSH),
            ContextFill::Full if may_ask => self.submit_compaction(queued, AUTO_COMPACT),
            ContextFill::Fine | ContextFill::Nearly | ContextFill::Full => {}
        }
    }

    /// Submits a compaction or a memory flush for a session that is full or nearly full; it runs when nothing else is
    /// queued. It has the principal and the prompt of the last message, so that it has no more authority and its
    /// model gets the same system prompt.
    fn submit_compaction(&self, queued: &Ticket, method: &str) {
        let last = &queued.inbound;
        let (run, message) = (self.hub.ambient.run_id(), User::text("/compact", self.hub.ambient.now_ms()));
        let inbound = Inbound {
            command: Some(Command::Compact(None)),
            is_literal: false,
            extra_prompt: last.extra_prompt.clone(),
            route: last.route.clone(),
            authority: last.authority,
            ..Inbound::plain(run, (&last.principal, method), self.key.clone(), message)
        };
        let hub = Hub::of(&self.hub);
        // In a task of its own, because this lane itself has to accept it.
        self.hub.spawn("compaction", async move {
            if let Err(error) = hub.submit(inbound).await {
                tracing::warn!(%error, "failed to start a compaction; the next run compacts the conversation first");
            }
        });
    }

    /// Leaves a run unfinished on disk because the process shuts down: the next process resumes it.
    pub(super) fn suspend(&self, queued: &Ticket) {
        queued.tape.mark_broken(SUSPENDED);
        self.hub.forget(&queued.tape);
    }

    /// Adds the entries that complete the transcript: the partial answer, and a result for each open tool call.
    async fn complete_transcript(
        &self,
        queued: &Ticket,
        story: &RunSummary,
        (profile, outcome): (&Profile, &Outcome),
        last: &mut FinalRecords,
    ) {
        let Some(session) = &queued.session else { return };
        let hooks = self.hub.config.rules().hooks.clone();
        let place = hooks::message_context(profile, Some(session), &queued.inbound);
        let (at, tape) = (self.hub.ambient.now_ms(), &queued.tape);
        let line = |message: Message, last: &mut FinalRecords| {
            let (kind, id) = (Kind::message(message.clone()), self.hub.ambient.entry_id());
            if let Some(told) = &mut last.history {
                told.push(id.clone(), Arc::new(message));
            }
            let entry = Box::new(Entry { kind, id: id.clone(), parent_id: None, timestamp: iso(at) });
            let run = Some(queued.inbound.run.clone());
            last.records.push(Rec::Entry { run, key: self.key.clone(), session: session.clone(), entry });
            id
        };
        let partial = tape.unfinished_text();
        // After a rejected commit, the text would precede the missing tool results.
        if *outcome != Outcome::Done && tape.broken().is_none() && !partial.is_empty() {
            let said = partial_answer(profile, story.model.as_ref(), partial, at);
            let said = match hooks::before_write(&hooks, &place, Message::Assistant(said.clone())).await {
                Message::Assistant(kept) => Arc::new(kept),
                Message::User(_) | Message::ToolResult(_) | Message::Other(_) => Arc::new(said),
            };
            let entry = line(Message::Assistant((*said).clone()), last);
            tape.stage(at, RunEvent::Assistant { entry, said });
            last.staged_events += 1;
        }
        // Entries keep the order of the calls, so results before the first open call are in the transcript already.
        let known = |asked: &CallState| {
            let mut answers = queued.known_results.iter().filter(|_| story.assistant_count == queued.prior_answers);
            let known = answers.find(|answer| answer.tool_call_id == asked.call.as_str());
            // It has the timestamp of its entry, as if the run had continued.
            known.map(|answer| ToolResult { timestamp: at, ..answer.clone() })
        };
        for asked in story.calls.iter().skip_while(|asked| asked.answer.is_some()) {
            let unanswered = || Arc::new(known(asked).unwrap_or_else(|| asked.missing_result(at)));
            let result = match &asked.answer {
                Some(answer) => answer.clone(),
                None => hooks::persist(&hooks, &place, unanswered(), true).await,
            };
            line(Message::ToolResult((*result).clone()), last);
            if asked.answer.is_none() {
                tape.stage(at, RunEvent::ToolEnded { call: asked.call.clone(), result, shown: None });
                last.staged_events += 1;
            }
        }
    }

    /// Updates the session's counters after the run.
    fn update_session(
        &mut self,
        queued: &Ticket,
        (end, answered_by): (&RunEnd, Option<&AnsweredBy>),
        (credential, compactions, is_counted): (Option<&Arc<str>>, &[CompactionSize], bool),
    ) -> Option<Rec> {
        // The cached session may differ from the one on disk.
        if queued.tape.broken().is_some() {
            return None;
        }
        // A run that ends after its session got a new transcript does not change the counters of the new one.
        let session = self.session.as_mut().filter(|session| is_same_transcript(queued, session))?;
        let record = &mut session.record;
        session.stats.write(record);
        record.updated_at = record.updated_at.max(end.ended_at);
        // A run that was stopped in the queue left nothing unfinished, and the gateway's own runs are not the user's.
        if queued.session.is_some() && !queued.is_internal() {
            record.aborted_last_run = Some(matches!(end.outcome, Outcome::Aborted(_)));
        }
        if let Some(credential) = credential {
            model_choice::prefer_credential(record, credential);
        }
        // A fallback may have answered: lists and `/status` show the model that did.
        let began_with = record.model_provider.as_ref().zip(record.model.as_ref());
        if let (Some(began_with), Some(AnsweredBy { provider, model, window })) = (began_with, answered_by)
            && began_with != (provider, model)
        {
            (record.model_provider, record.model) = (Some(provider.clone()), Some(model.clone()));
            record.context_tokens = Some(*window);
        }
        if end.usage != Usage::default() {
            record.input_tokens = Some(end.usage.input);
            record.output_tokens = Some(end.usage.output);
        }
        // Requests outside the conversation say nothing about its size.
        if end.last_usage != Usage::default() {
            record.total_tokens = Some(prompt_size(&end.last_usage));
        }
        if let Some((_, after)) = compactions.last() {
            session_stats::add_compactions(record, compactions.len());
            // Without a later model request, the remaining size is an estimate.
            if !is_counted {
                record.total_tokens = Some(*after);
            }
        }
        if let Some(answer) = &end.heartbeat {
            finding::record_finding(record, answer, end.ended_at);
        }
        let (key, expect) = (self.key.clone(), Some(record.session_id.clone()));
        Some(Rec::Patch { run: Some(queued.inbound.run.clone()), key, expect, record: Box::new(record.clone()) })
    }
}

/// Prepends messages of hooks to the last answer, because some clients show only that one.
fn with_hook_messages(news: &[String], mut replies: Vec<Payload>) -> Vec<Payload> {
    let Some(words) = (!news.is_empty()).then(|| news.join("\n")) else { return replies };
    match replies.iter_mut().rev().find(|reply| reply.kind == ReplyKind::Answer) {
        Some(last) => last.text = format!("{words}\n\n{}", last.text),
        None => replies.push(Payload::answer(words)),
    }
    replies
}

/// True if the session still has the transcript of the run, or the run never started.
fn is_same_transcript(queued: &Ticket, session: &OpenSession) -> bool {
    queued.session.as_ref().is_none_or(|id| *id == session.record.session_id)
}

/// Builds the records that end a recovered run which is not resumed.
pub(crate) fn end_records(
    ambient: &Ambient,
    (found, line): (&UnfinishedRun, Option<&RunOutput>),
    outcome: Outcome,
    answers: &[ToolResult],
) -> Vec<Rec> {
    let at = ambient.now_ms();
    let own = own_entries(&found.row.run, &found.entries);
    let mut facts: Vec<_> = own.iter().filter_map(|entry| event_of_entry(entry, at)).collect();
    let blocks = line.map(|line| line.resume(&found.deliveries)).unwrap_or_default();
    facts.extend(blocks.into_iter().map(|block| TapeEvent { at, kind: RunEvent::Block(Arc::new(block)) }));
    let story = RunSummary::of(&facts);
    let row = &found.row;
    let first = row.started_at.unwrap_or(row.accepted_at);
    let begun: Vec<_> = std::iter::once(first).chain(row.resumed_at.iter().copied()).collect();
    let span = TimelineRange {
        accepted_at: row.accepted_at,
        earlier_starts: &begun,
        held: row.hold,
        stored_at: None,
        until: at,
    };
    let steps = timeline::build_timeline(&facts, span);
    let run = &row.run;
    let mut records = close_records(ambient, found, answers);
    let said = Replies::of(&facts, &found.accept.options.route);
    let lines = said.entries();
    if let Some(line) = line {
        let error = match &outcome {
            Outcome::Failed(failure) => Some(failure.message.clone()),
            Outcome::Done | Outcome::Aborted(_) => None,
        };
        let replies = said.shape(error, false, Expectation::Free).0.payloads;
        records.extend(recovered_deliveries((line, found), &outcome, replies, at));
    }
    let ended = EndRecord {
        outcome,
        replies: lines,
        model: story.model.unwrap_or_default(),
        usage: story.usage,
        steps,
        ended_at: at,
        words: None,
        payloads: None,
    };
    records.push(Rec::Terminal { run: run.clone(), ended: Box::new(ended) });
    records
}

/// Builds the entries that answer the open tool calls of a recovered run, so that its transcript is complete.
pub(crate) fn close_records(ambient: &Ambient, found: &UnfinishedRun, answers: &[ToolResult]) -> Vec<Rec> {
    let (at, run) = (ambient.now_ms(), &found.row.run);
    let own = own_entries(run, &found.entries);
    // If the session continued without the run, a result would follow the wrong message.
    let (Some(session), true) = (&found.row.session, own.len() == found.entries.len()) else { return Vec::new() };
    let facts: Vec<_> = own.iter().filter_map(|entry| event_of_entry(entry, at)).collect();
    let story = RunSummary::of(&facts);
    let open = story.calls.iter().filter(|asked| asked.answer.is_none());
    let lines = open.map(|asked| {
        let known = answers.iter().find(|answer| answer.tool_call_id == asked.call.as_str()).cloned();
        let message = Message::ToolResult(known.unwrap_or_else(|| asked.missing_result(at)));
        let (kind, id) = (Kind::message(message), ambient.entry_id());
        let entry = Box::new(Entry { kind, id, parent_id: None, timestamp: iso(at) });
        Rec::Entry { run: Some(run.clone()), key: found.row.key.clone(), session: session.clone(), entry }
    });
    lines.collect()
}

/// Returns the context size at the last model request, in tokens.
fn prompt_size(last: &Usage) -> u64 {
    last.input + last.cache_read + last.cache_write
}

/// Maps a run's result to its outcome; `None` if the run was interrupted by the end of the process.
fn outcome(queued: &Ticket, result: &Result<FinalRecords, RunError>) -> Option<Outcome> {
    let failed = |kind, message| Some(Outcome::Failed(Failure { kind, message }));
    if let Some(why) = queued.tape.broken() {
        return failed(FailureKind::Internal, RunError::Store(StoreError::Disk(why)).to_string());
    }
    match result {
        Ok(_) => Some(Outcome::Done),
        Err(RunError::Stopped | RunError::Dropped) => queued.reason.map(Outcome::Aborted),
        Err(RunError::Budget(why)) => failed(FailureKind::Model, format!("Your message was not answered: {why}")),
        Err(RunError::Refused(why)) => failed(FailureKind::Model, format!("Your message was not answered: {why}")),
        Err(error @ (RunError::Model(_) | RunError::Limit(_))) => {
            failed(FailureKind::Model, failure::user_message(&error.to_string()))
        }
        Err(error @ (RunError::Store(_) | RunError::SessionGone | RunError::Orphaned | RunError::Panicked(_))) => {
            failed(FailureKind::Internal, error.to_string())
        }
    }
}

fn ended(end: &RunEnd, steps: RunTimeline) -> EndRecord {
    EndRecord {
        outcome: end.outcome.clone(),
        replies: end.entries.clone(),
        model: end.model.clone(),
        usage: end.usage.clone(),
        steps,
        ended_at: end.ended_at,
        words: None,
        payloads: None,
    }
}

/// Builds the partial answer of a stopped run: kept for people, not sent to a model again.
fn partial_answer(profile: &Profile, by: Option<&(String, String)>, text: String, at: u64) -> Assistant {
    let spec = profile.spec();
    let (provider, model) = by.cloned().unwrap_or_else(|| (spec.provider.clone(), spec.model.clone()));
    Assistant {
        content: vec![Block::text(text)],
        api: spec.api.clone(),
        provider,
        model,
        usage: Usage::default(),
        stop_reason: StopReason::Aborted,
        error_message: None,
        timestamp: at,
        extra: serde_json::Map::new(),
    }
}

/// A compaction's entry id, and the number of tokens after it.
type CompactionSize = (EntryId, u64);

/// Summary of a run's events.
#[derive(Default)]
struct RunSummary {
    session: Option<SessionId>,
    started_at: Option<u64>,
    /// Provider and model of the last answer.
    model: Option<(String, String)>,
    usage: Usage,
    last_usage: Usage,
    /// Truncation of the run's message, if it did not fit into the context window.
    truncated_input: Option<TruncatedInput>,
    /// Compactions with the number of tokens after each.
    compactions: Vec<CompactionSize>,
    /// True if a model reported token usage since the last compaction.
    is_counted: bool,
    /// Number of assistant messages.
    assistant_count: u32,
    /// Tool calls of the last assistant message; those of earlier ones were all answered, or no later one would exist.
    calls: Vec<CallState>,
}

struct CallState {
    call: CallId,
    name: String,
    is_started: bool,
    answer: Option<Arc<ToolResult>>,
}

impl CallState {
    /// Builds the result of a call that got none.
    fn missing_result(&self, at: u64) -> ToolResult {
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

impl RunSummary {
    fn of(facts: &[TapeEvent]) -> Self {
        let mut story = Self::default();
        for TapeEvent { kind, at } in facts {
            match kind {
                RunEvent::Started { session } => {
                    story.session = Some(session.clone());
                    story.started_at = Some(*at);
                }
                RunEvent::Assistant { said, .. } => {
                    story.add_answer(said);
                }
                RunEvent::ToolEnded { call, result, .. } => {
                    let asked = story.calls.iter_mut().filter(|asked| asked.call == *call);
                    asked.for_each(|asked| asked.answer = Some(result.clone()));
                }
                RunEvent::ToolStarted { call, .. } => {
                    let asked = story.calls.iter_mut().filter(|asked| asked.call == *call);
                    asked.for_each(|asked| asked.is_started = true);
                }
                RunEvent::Compacted { entry, after, input, .. } => {
                    story.truncated_input = input.or(story.truncated_input);
                    story.compactions.push((entry.clone(), *after));
                    story.is_counted = false;
                }
                RunEvent::AnswerDropped { usage, .. } => story.usage += usage,
                RunEvent::ModelChanged { provider, model } => story.model = Some((provider.clone(), model.clone())),
                RunEvent::Input(_)
                | RunEvent::Absorbed { .. }
                | RunEvent::SlotWaited(_)
                | RunEvent::DispositionChanged(_)
                | RunEvent::Busy(_)
                | RunEvent::Summarized(_)
                | RunEvent::MessageReset { .. }
                | RunEvent::Retrying { .. }
                | RunEvent::CandidateFailed { .. }
                | RunEvent::Text { .. }
                | RunEvent::Thinking { .. }
                | RunEvent::ToolProgress { .. }
                | RunEvent::Compacting
                | RunEvent::NotCompacted { .. }
                | RunEvent::Block(_)
                | RunEvent::ModelRequested(_)
                | RunEvent::FirstToken
                | RunEvent::HookDecision(_)
                | RunEvent::Withheld(_)
                | RunEvent::Ended(_) => {}
            }
        }
        story
    }

    fn add_answer(&mut self, said: &Assistant) {
        self.assistant_count += 1;
        self.model = Some((said.provider.clone(), said.model.clone()));
        self.usage += &said.usage;
        // A failed request says nothing about the size of the conversation.
        if said.usage != Usage::default() {
            self.last_usage = said.usage.clone();
            self.is_counted = true;
        }
        if said.stop_reason == StopReason::Error {
            return;
        }
        let asked = said.tool_calls().filter_map(|call| {
            let (call, name) = (CallId::parse(&call.id).ok()?, call.name.clone());
            Some(CallState { call, name, is_started: false, answer: None })
        });
        self.calls = asked.collect();
    }
}
