//! Channel output of a run, as seen by its lane: opened at the run's start; at its end, the remaining replies are put
//! into the outbox in the commit of that end.

use std::sync::Arc;

use homard_delivery::run_output::{ABORTED, OutputStyle, RunOutput};
use homard_queue::slots::RunClass;
use homard_reply::{
    blocks::BlockStream,
    footer,
    payload::{Kind, Payload},
};
use homard_store::{Delivery, DeliveryState, Rec, UnfinishedRun};
use serde_json::Value;

use super::{Lane, replies::reply_prefix, ticket::ActiveRun};
use crate::{
    delivery::output_style,
    event::{AbortReason, Outcome, ReplyEvent, RunEnd},
    profile::Profile,
    run::RunScope,
    tool::RunOrigin,
};

/// What the reader of a chat has seen of a run before its final replies.
#[derive(Debug, Clone, Copy)]
pub(super) struct ShownProgress {
    /// True if the session was compacted.
    pub(super) is_compacted: bool,
    /// True if blocks were sent.
    pub(super) has_blocks: bool,
}

/// True if a run aborted for this reason sends nothing more to its channel.
pub(super) fn is_unwanted(reason: AbortReason) -> bool {
    match reason {
        AbortReason::User | AbortReason::Stop | AbortReason::Interrupted => true,
        AbortReason::Timeout | AbortReason::Dropped => false,
    }
}

/// Returns the payloads to deliver for an outcome.
fn final_payloads(outcome: &Outcome, replies: Vec<Payload>) -> Vec<Payload> {
    match outcome {
        Outcome::Done | Outcome::Failed(_) => replies,
        Outcome::Aborted(reason) if is_unwanted(*reason) => Vec::new(),
        Outcome::Aborted(_) => {
            // Clients get the outcome as an event; on a channel nothing would be visible.
            let error = outcome.error().map(|error| Payload { kind: Kind::Error, ..Payload::answer(error) });
            replies.into_iter().chain(error).collect()
        }
    }
}

/// Opens the channel output of a run whose reply goes to a channel, and restores its earlier deliveries.
pub(super) fn open_output(lane: &Lane, active: &mut ActiveRun, profile: &Profile) {
    if active.output.is_some() {
        return;
    }
    let record = lane.session.as_ref().map(|session| &session.record);
    let verbose = record.and_then(|record| record.verbose_level.as_deref());
    let style = OutputStyle {
        prefix: reply_prefix(lane, profile),
        is_verbose: verbose.unwrap_or(profile.levels(profile.spec()).verbose) != "off",
        ..output_style(profile, &RunOrigin::of(&active.ticket.inbound), &lane.key)
    };
    active.output = lane.hub.run_output(&active.ticket.inbound, style);
    let Some(output) = &active.output else { return };
    for block in output.resume(&std::mem::take(&mut active.ticket.earlier_deliveries)) {
        active.ticket.tape.emit(lane.hub.ambient.now_ms(), ReplyEvent::Block(Arc::new(block)));
    }
}

/// Builds a run's final deliveries. A verbose session first announces a new session or a compaction, unless blocks
/// were sent already.
pub(super) fn final_deliveries(lane: &Lane, active: &ActiveRun, end: &RunEnd, shown: ShownProgress) -> Vec<Delivery> {
    let Some(output) = &active.output else { return Vec::new() };
    // A failed heartbeat is not reported to a chat, unless it was caused by an event.
    if active.ticket.inbound.options.class == RunClass::Heartbeat && end.outcome != Outcome::Done && !active.has_events
    {
        return Vec::new();
    }
    let payloads = final_payloads(&end.outcome, end.replies.clone());
    let session = lane.session.as_ref().filter(|_| output.is_verbose() && !shown.has_blocks && !payloads.is_empty());
    let opening = session.map(|session| {
        let new_session =
            (session.history.len() == 1 && !active.ticket.is_resumed).then_some(&session.record.session_id);
        let count = session.record.extra.get("compactionCount").and_then(Value::as_u64).unwrap_or(1);
        footer::opening(new_session, shown.is_compacted.then_some(count))
    });
    output.finals(opening.into_iter().flatten().chain(payloads), end.ended_at)
}

impl ActiveRun {
    /// Gives a run its channel output, with block streaming where the channel or the configuration wants it. A resumed
    /// run does not repeat earlier deliveries, so it sends the remaining text at once.
    pub(super) fn attach_output(&self, scope: &mut RunScope) {
        scope.output.channel.clone_from(&self.output);
        let Some(output) = &self.output else { return };
        let (settings, traits) = (&scope.profile.delivery, output.traits());
        // A heartbeat's text may turn out to be an acknowledgement with nothing to report.
        if self.ticket.is_resumed || self.ticket.inbound.options.class == RunClass::Heartbeat {
            scope.output.blocks = None;
        } else if scope.output.blocks.is_none() && traits.takes_blocks.unwrap_or(settings.sends_blocks) {
            scope.output.blocks = Some(BlockStream::new(settings.blocks_for(traits.text_limit, traits.merge)));
        }
    }
}

/// Builds the delivery records of a recovered run that ends with this outcome: its final replies go into the outbox; if
/// they are unwanted, queued deliveries are withdrawn.
pub(super) fn recovered_deliveries(
    output: &RunOutput,
    unfinished: &UnfinishedRun,
    outcome: &Outcome,
    replies: Vec<Payload>,
    at: u64,
) -> Vec<Rec> {
    let mut records = Vec::new();
    if matches!(outcome, Outcome::Aborted(reason) if is_unwanted(*reason)) {
        let pending = unfinished.deliveries.iter().filter(|row| match row.state {
            DeliveryState::Queued | DeliveryState::Failed { .. } => true,
            DeliveryState::Sending
            | DeliveryState::Sent { .. }
            | DeliveryState::Unknown { .. }
            | DeliveryState::Dead { .. } => false,
        });
        records.extend(pending.map(|row| {
            let state = DeliveryState::Dead { reason: ABORTED.to_owned() };
            Rec::Deliver { id: row.delivery.id.clone(), state, at }
        }));
    }
    records.extend(crate::delivery::queue_records(&output.finals(final_payloads(outcome, replies), at)));
    records
}
