//! What a run says on a channel, from the lane's side: its line is opened when it begins, and at its end what is left to
//! say goes into the outbox together with that end.

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

/// Whether nobody wants to hear what a run says that was stopped for this reason.
pub(super) fn is_unwanted(reason: AbortReason) -> bool {
    match reason {
        AbortReason::User | AbortReason::Stop | AbortReason::Interrupted => true,
        AbortReason::Timeout | AbortReason::Dropped => false,
    }
}

/// What is said on a channel when a run has ended like this.
fn said(outcome: &Outcome, replies: Vec<Payload>) -> Vec<Payload> {
    match outcome {
        Outcome::Done | Outcome::Failed(_) => replies,
        Outcome::Aborted(reason) if is_unwanted(*reason) => Vec::new(),
        Outcome::Aborted(_) => {
            // Clients are told in another way; whoever is on a channel would read nothing.
            let why = outcome.error().map(|why| Payload { kind: Kind::Error, ..Payload::answer(why) });
            replies.into_iter().chain(why).collect()
        }
    }
}

impl Lane {
    /// Opens the line of a run whose answer goes to somebody on a channel, and takes up what it said there before.
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

    /// What a run says at its end, for the outbox. A talkative session says first that it is new, and that it was made
    /// short; not behind blocks, because then the answer has begun.
    pub(super) fn finals(&self, queued: &Queued, end: &End, (is_compacted, has_blocks): (bool, bool)) -> Vec<Delivery> {
        let Some(line) = &queued.line else { return Vec::new() };
        // That a heartbeat failed is no news for a chat, unless it was about something that happened.
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
    /// Gives a run its line, and has it speak in blocks where the channel or the owner wants that. What a run has said
    /// before a restart is not said again, so one that goes on says the rest whole.
    pub(super) fn speak_out(&self, scope: &mut RunScope) {
        scope.post.clone_from(&self.line);
        let Some(line) = &self.line else { return };
        let (wishes, manner) = (&scope.profile.delivery, line.manner());
        // What a heartbeat says may turn out to be nothing to report.
        if self.is_resumed || self.inbound.class == Class::Heartbeat {
            scope.blocks = None;
        } else if scope.blocks.is_none() && manner.takes_blocks.unwrap_or(wishes.sends_blocks) {
            scope.blocks = Some(Blocks::new(wishes.blocks_for(manner.text_limit, manner.nature)));
        }
    }
}

/// What is done about the deliveries of a run that a restart found and that ends like this: what it said last goes into
/// the outbox; if nobody wants to hear it, what waits there is taken back.
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
    /// The line of a message's run, if its answer goes to somebody on a channel.
    pub(crate) fn line(&self, inbound: &crate::Inbound, style: Style) -> Option<Arc<Line>> {
        let post = inbound.post.clone().filter(|post| post.trouble.is_none())?;
        // One that is not set up any more says so when it is written to.
        let manner = inbound.route.channel.as_deref().and_then(|channel| self.mail.manner(channel));
        Line::open((&inbound.run, &inbound.route), post, manner.unwrap_or_default(), style)
    }
}
