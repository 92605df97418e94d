//! Channel output of a run, as seen by its lane: opened at the run's start; at its end, the remaining replies are put
//! into the outbox in the commit of that end.

use std::sync::Arc;

use homard_reply::{
    blocks::Blocks,
    footer,
    payload::{Kind, Payload},
};
use homard_store::{Delivery, DeliveryState, Rec, Unfinished};
use serde_json::Value;

use super::{Lane, Queued, slots::Class};
use crate::{
    event::{AbortReason, End, Outcome, RunEvent},
    hub::Shared,
    post::line::{ABORTED, Line, Style},
    profile::Profile,
    run::RunScope,
    tool::Origin,
};

/// True if a run aborted for this reason sends nothing more to its channel.
pub(super) fn is_unwanted(reason: AbortReason) -> bool {
    match reason {
        AbortReason::User | AbortReason::Stop | AbortReason::Interrupted => true,
        AbortReason::Timeout | AbortReason::Dropped => false,
    }
}

/// Returns the payloads to deliver for an outcome.
fn said(outcome: &Outcome, replies: Vec<Payload>) -> Vec<Payload> {
    match outcome {
        Outcome::Done | Outcome::Failed(_) => replies,
        Outcome::Aborted(reason) if is_unwanted(*reason) => Vec::new(),
        Outcome::Aborted(_) => {
            // Clients get the outcome as an event; on a channel nothing would be visible.
            let why = outcome.error().map(|why| Payload { kind: Kind::Error, ..Payload::answer(why) });
            replies.into_iter().chain(why).collect()
        }
    }
}

impl Lane {
    /// Opens the channel output of a run whose reply goes to a channel, and restores its earlier deliveries.
    pub(super) fn open_line(&self, queued: &mut Queued, profile: &Profile) {
        if queued.line.is_some() {
            return;
        }
        let record = self.session.as_ref().map(|session| &session.record);
        let verbose = record.and_then(|record| record.verbose_level.as_deref());
        let style = Style {
            prefix: self.prefix(profile),
            is_talkative: verbose.unwrap_or(profile.levels(profile.spec()).verbose) != "off",
            ..Style::of(profile, (&Origin::of(&queued.inbound), &self.key))
        };
        queued.line = self.hub.line(&queued.inbound, style);
        let Some(line) = &queued.line else { return };
        for block in line.resume(&std::mem::take(&mut queued.posted)) {
            queued.tape.pass(self.hub.ambient.now_ms(), RunEvent::Block(Arc::new(block)));
        }
    }

    /// Builds a run's final deliveries. A verbose session first announces a new session or a compaction, unless blocks
    /// were sent already.
    pub(super) fn finals(&self, queued: &Queued, end: &End, (is_compacted, has_blocks): (bool, bool)) -> Vec<Delivery> {
        let Some(line) = &queued.line else { return Vec::new() };
        // A failed heartbeat is not reported to a chat, unless it was caused by an event.
        if queued.inbound.class == Class::Heartbeat && end.outcome != Outcome::Done && !queued.has_events {
            return Vec::new();
        }
        let said = said(&end.outcome, end.replies.clone());
        let session = self.session.as_ref().filter(|_| line.is_talkative() && !has_blocks && !said.is_empty());
        let opening = session.map(|session| {
            let began = (session.history.len() == 1 && !queued.is_resumed).then_some(&session.record.session_id);
            let count = session.record.extra.get("compactionCount").and_then(Value::as_u64).unwrap_or(1);
            footer::opening(began, is_compacted.then_some(count))
        });
        line.finals(opening.into_iter().flatten().chain(said), end.ended_at)
    }
}

impl Queued {
    /// Gives a run its channel output, with block streaming where the channel or the configuration wants it. A resumed
    /// run does not repeat earlier deliveries, so it sends the remaining text at once.
    pub(super) fn speak_out(&self, scope: &mut RunScope) {
        scope.post.clone_from(&self.line);
        let Some(line) = &self.line else { return };
        let (wishes, manner) = (&scope.profile.delivery, line.manner());
        // A heartbeat's text may turn out to be an acknowledgement with nothing to report.
        if self.is_resumed || self.inbound.class == Class::Heartbeat {
            scope.blocks = None;
        } else if scope.blocks.is_none() && manner.takes_blocks.unwrap_or(wishes.sends_blocks) {
            scope.blocks = Some(Blocks::new(wishes.blocks_for(manner.text_limit, manner.nature)));
        }
    }
}

/// Builds the delivery records of a recovered run that ends with this outcome: its final replies go into the outbox; if
/// they are unwanted, queued deliveries are withdrawn.
pub(super) fn found_ended(
    (line, found): (&Line, &Unfinished),
    outcome: &Outcome,
    replies: Vec<Payload>,
    at: u64,
) -> Vec<Rec> {
    let mut records = Vec::new();
    if matches!(outcome, Outcome::Aborted(reason) if is_unwanted(*reason)) {
        let waits = found.posted.iter().filter(|row| match row.state {
            DeliveryState::Queued | DeliveryState::Failed { .. } => true,
            DeliveryState::Sending
            | DeliveryState::Sent { .. }
            | DeliveryState::Unknown
            | DeliveryState::Dead { .. } => false,
        });
        records.extend(waits.map(|row| {
            let state = DeliveryState::Dead { reason: ABORTED.to_owned() };
            Rec::Deliver { id: row.delivery.id.clone(), state, at }
        }));
    }
    records.extend(crate::post::queueing(&line.finals(said(outcome, replies), at)));
    records
}

impl Shared {
    /// Returns the channel output of a message's run, if its reply goes to a channel.
    pub(crate) fn line(&self, inbound: &crate::Inbound, style: Style) -> Option<Arc<Line>> {
        let post = inbound.post.clone().filter(|post| post.trouble.is_none())?;
        // A channel that is no longer configured fails when it is written to.
        let manner = inbound.route.channel.as_deref().and_then(|channel| self.mail.manner(channel));
        Line::open((&inbound.run, &inbound.route), post, manner.unwrap_or_default(), style)
    }
}
