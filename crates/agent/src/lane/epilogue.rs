//! The end of every run that was started.
//!
//! Return, panic, abort and timeout all end here: open tool calls get a result, the run its terminal record, the
//! session its counters, in one commit, followed by one `Ended` event. Nothing else ends a run that this process started,
//! so it ends exactly once. Commands that are answered at once and absorbed messages end elsewhere (`lane/control.rs`,
//! `lane/absorbed.rs`), and so do runs of an earlier process that are not resumed (`lane/recovered_end.rs`).

use std::sync::Arc;

use homard_command::Command;
use homard_delivery::DeliveryReport;
use homard_proto::{
    EntryId,
    message::{Assistant, Block, Message, StopReason, ToolResult, Usage, User},
    transcript::{Entry, Kind},
};
use homard_queue::inbox::Disposition;
use homard_reply::{
    failure, footer,
    payload::{Kind as ReplyKind, Payload},
};
use homard_runtime::ambient::iso;
use homard_store::{EndRecord, Error as StoreError, Rec};

use super::{
    Lane, Ticket,
    absorbed::end_absorbed,
    heartbeat::{exclude_heartbeat, read_heartbeat},
    hooks::{before_sending, fire_agent_end, fire_sent},
    model_choice,
    output::{ShownProgress, final_deliveries, open_output},
    replies::{RepliesOf, build_replies, text_without_entry},
    run_summary::{CallState, RunSummary},
    session::OpenSession,
    start::{AUTO_COMPACT, AUTO_FLUSH},
    ticket::ActiveRun,
};
use crate::{
    Hub, Inbound, InboundSender,
    delivery::queue_records,
    event::{Failure, FailureKind, HeartbeatAnswer, HeartbeatKind, Outcome, RunEnd, StoredEvent, TapeEvent},
    hooks,
    lane::heartbeat::finding,
    profile::Profile,
    replies::Replies,
    run::{AnsweredBy, ContextFill, FinalRecords, RunError, RunResult, session_stats},
    tape::{Commit, Tape},
    timeline::{self, TimelineRange},
    wire,
};

/// Sent to subscribers of a run when the process shuts down.
const SUSPENDED: &str = "gateway_draining: the gateway is stopping; the run continues after the restart";

/// A run that is being ended.
struct EndingRun<'a> {
    active: &'a ActiveRun,
    profile: &'a Profile,
    outcome: Outcome,
    /// When all records of the run were on disk or rejected.
    stored_at: u64,
    /// Its events; of a broken tape, without those whose records are not on disk.
    events: Vec<TapeEvent>,
    summary: RunSummary,
    records: FinalRecords,
}

/// What a run sends at its end.
struct FinalReplies {
    payloads: Vec<Payload>,
    /// Transcript entries that contain the reply.
    entries: Vec<EntryId>,
    heartbeat: Option<HeartbeatAnswer>,
    /// True if a part of the answer was sent in blocks.
    has_blocks: bool,
}

impl Lane {
    /// Ends a run, whatever its result.
    pub(super) async fn end(&mut self, mut active: ActiveRun, profile: &Profile, run_result: RunResult) {
        let RunResult { result, history, undone_compactions, side_usage } = run_result;
        let absorbed = std::mem::take(&mut active.absorbed);
        open_output(self, &mut active, profile);
        let (active, tape) = (&active, &active.ticket.tape);
        let stored_at = self.await_records(tape).await;
        let Some(outcome) = outcome(&active.ticket, &result) else {
            return absorbed.iter().chain([&active.ticket]).for_each(|ticket| self.suspend(ticket));
        };
        let events = tape.events();
        let mut summary = RunSummary::of(&events);
        summary.compactions.retain(|(id, _)| !undone_compactions.contains(id));
        summary.usage += &side_usage;
        // After a rejected commit, the final reply would not match the transcript on disk.
        let mut records = result.ok().filter(|_| tape.broken().is_none()).unwrap_or_default();
        records.history = history;
        let mut commit = records.commit.take().unwrap_or_else(|| Commit::new(tape));
        let mut ending = EndingRun { active, profile, outcome, stored_at, events, summary, records };
        self.complete_transcript(&mut ending, &mut commit).await;
        let replies = self.final_replies(&mut ending).await;
        let end = self.commit_end(&mut ending, replies, commit).await;
        end_absorbed(self, absorbed, &end).await;
        self.compact_if_full(&ending);
    }

    /// Waits until all records of a run are on disk or rejected: only then its outcome is known. Returns the time.
    async fn await_records(&self, tape: &Arc<Tape>) -> u64 {
        let stored = self.hub.writer.barrier().await;
        let stored_at = self.hub.ambient.now_ms();
        if let Err(error) = stored {
            tape.mark_broken(&error.to_string());
        }
        stored_at
    }

    /// Builds the replies that were not sent yet, after hooks.
    async fn final_replies(&self, ending: &mut EndingRun<'_>) -> FinalReplies {
        let EndingRun { active, profile, outcome, events, summary, records, .. } = ending;
        let ticket = &active.ticket;
        let mut collected = Replies::of(&*events, &ticket.inbound.reply.route);
        if let Some(block_count) = active.output.as_ref().and_then(|output| output.close()) {
            collected.keep_blocks(block_count);
        }
        let has_blocks = collected.has_blocks();
        let (entries, has_token) = (collected.entries(), collected.is_heartbeat_ok);
        if !records.calls.is_empty() {
            collected.end_with_client_calls();
        }
        if matches!(outcome, Outcome::Aborted(_)) {
            collected.stop();
        }
        if let Some(text) = &mut records.reply {
            profile.secrets.mask_string(text);
        }
        let replies = match &records.reply {
            Some(text) => vec![Payload::answer(text)],
            // The gateway submitted the run itself; there is no recipient.
            None if ticket.is_internal() => Vec::new(),
            None => {
                let mut replies =
                    build_replies(self, ticket, profile, RepliesOf { collected, outcome, usage: &summary.usage });
                if let (Some(input), Some((provider, model))) = (summary.truncated_input, &summary.model) {
                    let model = format!("{provider}/{model}");
                    let warning = footer::truncated(&model, input.kept_tokens, input.original_tokens);
                    footer::warn(&mut replies, &warning, has_blocks);
                }
                replies
            }
        };
        let replies = with_hook_messages(&active.hook_messages, replies);
        let mut payloads = before_sending(self, active, profile, replies).await;
        payloads.iter_mut().for_each(|reply| profile.secrets.mask_string(&mut reply.text));
        let heartbeat = match outcome {
            Outcome::Done => read_heartbeat(self, active, profile, has_token, &mut payloads),
            Outcome::Failed(_) | Outcome::Aborted(_) => None,
        };
        FinalReplies { payloads, entries, heartbeat, has_blocks }
    }

    /// Commits the run's end with everything that depends on it, and publishes it.
    async fn commit_end(
        &mut self,
        ending: &mut EndingRun<'_>,
        replies: FinalReplies,
        mut commit: Commit,
    ) -> Arc<RunEnd> {
        // After the last hook and all commits except that of the terminal record, which cannot contain its own time.
        let at = self.hub.ambient.now_ms();
        let (active, profile, has_blocks) = (ending.active, ending.profile, replies.has_blocks);
        let run = &active.ticket.inbound.id.run;
        let mut end = ending.run_end(replies, at);
        let mut stored = ending.end_record(&end);
        end.complete_reply = has_blocks.then(|| wire::complete_reply(&stored, &ending.events));
        wire::store_payloads(&mut stored, end.payloads(), &ending.events);
        let shown = ShownProgress { is_compacted: !ending.summary.compactions.is_empty(), has_blocks };
        let outgoing = final_deliveries(self, active, &end, shown);
        if let Some(answer) = &mut end.heartbeat {
            if let HeartbeatKind::Finding { is_queued } = &mut answer.kind {
                *is_queued = !outgoing.is_empty();
            }
            if let Some(mark) = exclude_heartbeat(self, active, answer, &ending.events) {
                commit.record(mark);
                ending.records.history = None;
            }
        }
        let end = Arc::new(end);
        commit.records(self.update_session(ending, &end));
        commit.records(queue_records(&outgoing));
        let terminal = Rec::Terminal { run: run.clone(), ended: Box::new(stored) };
        commit.stored_event(at, StoredEvent::Ended(end.clone()), terminal);
        let reports = self.withdraw_blocks(active, at);
        self.hub.send_with_deliveries(commit, outgoing, None);
        // The barrier follows the terminal record, so the session's next run cannot overtake it.
        let tape = &active.ticket.tape;
        if let Err(error) = self.hub.writer.barrier().await {
            tape.mark_broken(&error.to_string());
        }
        // The barrier reports the failure of its own batch only, and the end may have been in an earlier one.
        if !tape.is_end_stored() {
            self.hub.force_end_later(run.clone(), tape.accepted_at());
        }
        self.keep_session(ending);
        fire_sent(self, active, profile, &end);
        fire_agent_end(self, &active.ticket, profile, &end);
        self.hub.report(reports);
        if let Some(delivery) = &active.ticket.inbound.reply.delivery {
            self.hub.report_undeliverable(run, delivery);
        }
        self.hub.forget(tape);
        end
    }

    /// Withdraws blocks that were not sent, before the terminal record, because the final replies repeat their text.
    fn withdraw_blocks(&self, active: &ActiveRun, at: u64) -> Vec<DeliveryReport> {
        let Some(output) = &active.output else { return Vec::new() };
        let (withdrawn, reports) = self.hub.deliveries.withdraw(output, at);
        if !withdrawn.is_empty() {
            self.hub.writer.send(withdrawn);
        }
        reports
    }

    /// Keeps the session in memory with the run's history, if that is what is on disk.
    fn keep_session(&mut self, ending: &mut EndingRun<'_>) {
        let active = ending.active;
        let (broken, is_resumed) = (active.ticket.tape.broken(), active.ticket.is_resumed);
        match (&mut self.session, broken, ending.records.history.take()) {
            (Some(session), None, Some(history)) if !is_resumed && is_same_transcript(active, session) => {
                session.history = history
            }
            // The run never started and wrote nothing.
            (Some(_), None, None) if active.progress.session.is_none() && !is_resumed => {}
            // The transcript on disk differs from the cached one or contains more: it is read again for the next
            // message.
            (Some(_) | None, _, _) => self.session = None,
        }
    }

    /// Submits a compaction or a memory flush if the session is full or nearly full.
    fn compact_if_full(&self, ending: &EndingRun<'_>) {
        let ticket = &ending.active.ticket;
        // A scheduled run has a transcript of its own, and no message follows.
        let may_compact = ticket.tape.broken().is_none() && !self.key.is_cron() && !ending.profile.run.is_one_shot;
        match ending.records.fill {
            ContextFill::Nearly if may_compact => self.submit_compaction(ticket, AUTO_FLUSH),
            ContextFill::Full if may_compact => self.submit_compaction(ticket, AUTO_COMPACT),
            ContextFill::Fine | ContextFill::Nearly | ContextFill::Full => {}
        }
    }

    /// Submits a compaction or a memory flush for a session that is full or nearly full; it runs when nothing else is
    /// queued. It has the principal and the prompt of the last message, so that it has no more authority and its
    /// model gets the same system prompt.
    fn submit_compaction(&self, ticket: &Ticket, method: &str) {
        let last = &ticket.inbound;
        let (run, message) = (self.hub.ambient.run_id(), User::text("/compact", self.hub.ambient.now_ms()));
        let sender =
            InboundSender { authority: last.sender.authority, ..InboundSender::new(&last.sender.principal, method) };
        let mut inbound = Inbound::plain(run, sender, self.key.clone(), message);
        inbound.command = Some(Command::Compact(None));
        inbound.is_literal = false;
        inbound.reply.route = last.reply.route.clone();
        inbound.options.extra_prompt = last.options.extra_prompt.clone();
        let hub = Hub(self.hub.clone());
        // In a task of its own, because this lane itself has to accept it.
        self.hub.spawn("compaction", async move {
            if let Err(error) = hub.submit(inbound).await {
                tracing::warn!(%error, "failed to start a compaction; the next run compacts the conversation first");
            }
        });
    }

    /// Leaves a run unfinished on disk because the process shuts down: the next process resumes it.
    pub(super) fn suspend(&self, ticket: &Ticket) {
        ticket.tape.mark_broken(SUSPENDED);
        self.hub.forget(&ticket.tape);
    }

    /// Adds the entries that complete the transcript: the partial answer, and a result for each open tool call.
    async fn complete_transcript(&self, ending: &mut EndingRun<'_>, commit: &mut Commit) {
        let EndingRun { active, profile, outcome, summary, records, .. } = ending;
        let (ticket, history) = (&active.ticket, &mut records.history);
        let Some(session) = &active.progress.session else { return };
        let hooks = self.hub.config.rules().hooks.clone();
        let context = hooks::message_context(profile, Some(session), &ticket.inbound);
        let (at, tape) = (self.hub.ambient.now_ms(), &ticket.tape);
        let mut entry_record = |message: Message| {
            let (kind, id) = (Kind::message(message.clone()), self.hub.ambient.entry_id());
            if let Some(history) = &mut *history {
                history.push(id.clone(), Arc::new(message));
            }
            let entry = Box::new(Entry { kind, id: id.clone(), parent_id: None, timestamp: iso(at) });
            let run = Some(ticket.inbound.id.run.clone());
            (id, Rec::Entry { run, key: self.key.clone(), session: session.clone(), entry })
        };
        let partial = tape.unfinished_text();
        // After a rejected commit, the text would precede the missing tool results.
        if *outcome != Outcome::Done && tape.broken().is_none() && !partial.is_empty() {
            let assistant = partial_answer(profile, summary.model.as_ref(), partial, at);
            let assistant = match hooks::before_write(&hooks, &context, Message::Assistant(assistant.clone())).await {
                Message::Assistant(stored) => Arc::new(stored),
                Message::User(_) | Message::ToolResult(_) | Message::Other(_) => Arc::new(assistant),
            };
            let (entry, record) = entry_record(Message::Assistant((*assistant).clone()));
            commit.stored_event(at, StoredEvent::Assistant { entry, message: assistant }, record);
        }
        // Entries keep the order of the calls, so results before the first open call are in the transcript already.
        let stored_result = |call_state: &CallState| {
            let mut answers = active
                .progress
                .known_results
                .iter()
                .filter(|_| summary.assistant_count == active.progress.prior_answers);
            let stored_result = answers.find(|answer| answer.tool_call_id == call_state.call.as_str());
            // It has the timestamp of its entry, as if the run had continued.
            stored_result.map(|answer| ToolResult { timestamp: at, ..answer.clone() })
        };
        for call_state in summary.calls.iter().skip_while(|call_state| call_state.answer.is_some()) {
            let unanswered = || Arc::new(stored_result(call_state).unwrap_or_else(|| call_state.missing_result(at)));
            let result = match &call_state.answer {
                Some(answer) => answer.clone(),
                None => hooks::persist(&hooks, &context, unanswered(), true).await,
            };
            let (_, record) = entry_record(Message::ToolResult((*result).clone()));
            match &call_state.answer {
                Some(_) => commit.record(record),
                None => {
                    let call = call_state.call.clone();
                    commit.stored_event(at, StoredEvent::ToolEnded { call, result, shown: None }, record);
                }
            }
        }
    }

    /// Updates the session's counters after the run.
    fn update_session(&mut self, ending: &EndingRun<'_>, end: &RunEnd) -> Option<Rec> {
        let EndingRun { active, summary, records, .. } = ending;
        let ticket = &active.ticket;
        // The cached session may differ from the one on disk.
        if ticket.tape.broken().is_some() {
            return None;
        }
        // A run that ends after its session got a new transcript does not change the counters of the new one.
        let session = self.session.as_mut().filter(|session| is_same_transcript(active, session))?;
        let record = &mut session.record;
        session.stats.write(record);
        record.updated_at = record.updated_at.max(end.ended_at);
        // A run that was stopped in the queue left nothing unfinished, and the gateway's own runs are not the user's.
        if active.progress.session.is_some() && !ticket.is_internal() {
            record.aborted_last_run = Some(matches!(end.outcome, Outcome::Aborted(_)));
        }
        if let Some(credential) = &records.credential {
            model_choice::prefer_credential(record, credential);
        }
        // A fallback may have answered: lists and `/status` show the model that did.
        let started_with = record.model_provider.as_ref().zip(record.model.as_ref());
        if let (Some(started_with), Some(AnsweredBy { provider, model, window })) = (started_with, &records.answered_by)
            && started_with != (provider, model)
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
        if let Some((_, after)) = summary.compactions.last() {
            session_stats::add_compactions(record, summary.compactions.len());
            // Without a later model request, the remaining size is an estimate.
            if !summary.is_counted {
                record.total_tokens = Some(*after);
            }
        }
        if let Some(answer) = &end.heartbeat {
            finding::record_finding(record, answer, end.ended_at);
        }
        let (key, expect) = (self.key.clone(), Some(record.session_id.clone()));
        Some(Rec::Patch { run: Some(ticket.inbound.id.run.clone()), key, expect, record: Box::new(record.clone()) })
    }
}

impl EndingRun<'_> {
    /// Builds the run's end, as published.
    fn run_end(&mut self, replies: FinalReplies, at: u64) -> RunEnd {
        let FinalReplies { payloads, entries, heartbeat, .. } = replies;
        let (ticket, summary, spec) = (&self.active.ticket, &mut self.summary, self.profile.spec());
        RunEnd {
            outcome: self.outcome.clone(),
            replies: payloads,
            complete_reply: None,
            entries,
            heartbeat,
            calls: std::mem::take(&mut self.records.calls),
            model: summary.model.take().unwrap_or_else(|| (spec.provider.clone(), spec.model.clone())),
            usage: summary.usage.clone(),
            last_usage: summary.last_usage.clone(),
            truncated_input: summary.truncated_input,
            is_summarized: ticket.tape.disposition() == Disposition::Summarized,
            session: summary.session.take(),
            started_at: self.active.progress.earlier_starts.first().copied().or(summary.started_at),
            ended_at: at,
        }
    }

    /// Builds the run's end, as stored.
    fn end_record(&mut self, end: &RunEnd) -> EndRecord {
        let ticket = &self.active.ticket;
        let range = TimelineRange {
            accepted_at: ticket.tape.accepted_at(),
            earlier_starts: &self.active.progress.earlier_starts,
            held: ticket.reentry,
            stored_at: Some(self.stored_at),
            until: end.ended_at,
        };
        EndRecord {
            outcome: end.outcome.clone(),
            replies: end.entries.clone(),
            model: end.model.clone(),
            usage: end.usage.clone(),
            steps: timeline::build_timeline(&ticket.tape.events(), range),
            ended_at: end.ended_at,
            command_reply: self.records.reply.take().or_else(|| text_without_entry(end)),
            payloads: None,
        }
    }
}

/// Prepends messages of hooks to the last answer, because some clients show only that one.
fn with_hook_messages(messages: &[String], mut replies: Vec<Payload>) -> Vec<Payload> {
    let Some(text) = (!messages.is_empty()).then(|| messages.join("\n")) else { return replies };
    match replies.iter_mut().rev().find(|reply| reply.kind == ReplyKind::Answer) {
        Some(last) => last.text = format!("{text}\n\n{}", last.text),
        None => replies.push(Payload::answer(text)),
    }
    replies
}

/// True if the session still has the transcript of the run, or the run never started.
fn is_same_transcript(active: &ActiveRun, session: &OpenSession) -> bool {
    active.progress.session.as_ref().is_none_or(|id| *id == session.record.session_id)
}

/// Returns the context size at the last model request, in tokens.
fn prompt_size(usage: &Usage) -> u64 {
    usage.input + usage.cache_read + usage.cache_write
}

/// Maps a run's result to its outcome; `None` if the run was interrupted by the end of the process.
fn outcome(ticket: &Ticket, result: &Result<FinalRecords, RunError>) -> Option<Outcome> {
    let failed = |kind, message| Some(Outcome::Failed(Failure { kind, message }));
    if let Some(why) = ticket.tape.broken() {
        return failed(FailureKind::Internal, RunError::Store(StoreError::Disk(why)).to_string());
    }
    match result {
        Ok(_) => Some(Outcome::Done),
        Err(RunError::Stopped | RunError::Dropped) => ticket.reason.map(Outcome::Aborted),
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

/// Builds the partial answer of a stopped run: kept for people, not sent to a model again.
fn partial_answer(profile: &Profile, answered_by: Option<&(String, String)>, text: String, at: u64) -> Assistant {
    let spec = profile.spec();
    let (provider, model) = answered_by.cloned().unwrap_or_else(|| (spec.provider.clone(), spec.model.clone()));
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
