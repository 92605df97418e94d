//! The end of a run that was found unfinished and is not resumed.

use std::sync::Arc;

use homard_delivery::run_output::RunOutput;
use homard_proto::{
    message::{Message, ToolResult},
    transcript::{Entry, Kind},
};
use homard_reply::shape::Expectation;
use homard_runtime::ambient::{Ambient, iso};
use homard_store::{EndRecord, Rec, UnfinishedRun, recovery::own_entries};

use super::{output::recovered_deliveries, run_summary::RunSummary, start::event_of_entry};
use crate::{
    event::{Outcome, ReplyEvent, RunEvent, TapeEvent},
    replies::Replies,
    timeline::{self, TimelineRange},
};

/// Builds the records that end a recovered run which is not resumed.
pub(crate) fn end_records(
    ambient: &Ambient,
    unfinished: &UnfinishedRun,
    output: Option<&RunOutput>,
    outcome: Outcome,
    answers: &[ToolResult],
) -> Vec<Rec> {
    let at = ambient.now_ms();
    let run_entries = own_entries(&unfinished.row.run, &unfinished.entries);
    let mut events: Vec<_> =
        run_entries.iter().filter_map(|entry| event_of_entry(entry, at)).map(TapeEvent::from).collect();
    let blocks = output.map(|output| output.resume(&unfinished.deliveries)).unwrap_or_default();
    events.extend(
        blocks.into_iter().map(|block| TapeEvent { at, kind: RunEvent::Reply(ReplyEvent::Block(Arc::new(block))) }),
    );
    let summary = RunSummary::of(&events);
    let row = &unfinished.row;
    let first_start = row.started_at.unwrap_or(row.accepted_at);
    let starts: Vec<_> = std::iter::once(first_start).chain(row.resumed_at.iter().copied()).collect();
    let range = TimelineRange {
        accepted_at: row.accepted_at,
        earlier_starts: &starts,
        held: row.hold,
        stored_at: None,
        until: at,
    };
    let steps = timeline::build_timeline(&events, range);
    let run = &row.run;
    let mut records = close_records(ambient, unfinished, answers);
    let collected = Replies::of(&events, &unfinished.accept.options.route);
    let entries = collected.entries();
    if let Some(output) = output {
        let error = match &outcome {
            Outcome::Failed(failure) => Some(failure.message.clone()),
            Outcome::Done | Outcome::Aborted(_) => None,
        };
        let replies = collected.shape(error, false, Expectation::Free).0.payloads;
        records.extend(recovered_deliveries(output, unfinished, &outcome, replies, at));
    }
    let ended = EndRecord {
        outcome,
        replies: entries,
        model: summary.model.unwrap_or_default(),
        usage: summary.usage,
        steps,
        ended_at: at,
        command_reply: None,
        payloads: None,
    };
    records.push(Rec::Terminal { run: run.clone(), ended: Box::new(ended) });
    records
}

/// Builds the entries that answer the open tool calls of a recovered run, so that its transcript is complete.
pub(crate) fn close_records(ambient: &Ambient, unfinished: &UnfinishedRun, answers: &[ToolResult]) -> Vec<Rec> {
    let (at, run) = (ambient.now_ms(), &unfinished.row.run);
    let run_entries = own_entries(run, &unfinished.entries);
    // If the session continued without the run, a result would follow the wrong message.
    let (Some(session), true) = (&unfinished.row.session, run_entries.len() == unfinished.entries.len()) else {
        return Vec::new();
    };
    let events: Vec<_> =
        run_entries.iter().filter_map(|entry| event_of_entry(entry, at)).map(TapeEvent::from).collect();
    let summary = RunSummary::of(&events);
    let open = summary.calls.iter().filter(|call_state| call_state.answer.is_none());
    let records = open.map(|call_state| {
        let stored = answers.iter().find(|answer| answer.tool_call_id == call_state.call.as_str()).cloned();
        let message = Message::ToolResult(stored.unwrap_or_else(|| call_state.missing_result(at)));
        let (kind, id) = (Kind::message(message), ambient.entry_id());
        let entry = Box::new(Entry { kind, id, parent_id: None, timestamp: iso(at) });
        Rec::Entry { run: Some(run.clone()), key: unfinished.row.key.clone(), session: session.clone(), entry }
    });
    records.collect()
}
