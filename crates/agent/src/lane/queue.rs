//! Queueing in a lane: messages are accepted, offered to the active run, aborted, or left for the next start.

use std::{
    borrow::Cow,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use homard_proto::{AgentId, Route, RunId, SessionKey};
use homard_store::{AbortReason, Rec};
use tokio::{sync::oneshot, time::Instant};

use super::{
    BUSY_AFTER, Lane, Ticket,
    inbox::{Disposition, PushResult, QueueItem, SteerOffer, is_alike},
    is_admitted,
};
use crate::{
    activity::{self, Activity, Busy},
    command::queue::{QueueMode, QueueOverrides, QueueSettings},
    event::RunEvent,
    hub::Admission,
    policy::SenderRole,
    run::Steered,
    writer::admission,
};

impl QueueItem for Ticket {
    fn run(&self) -> &RunId {
        &self.inbound.run
    }

    fn text(&self) -> Cow<'_, str> {
        self.inbound.message.content.text().into()
    }

    fn route(&self) -> &Route {
        &self.inbound.route
    }

    fn sender(&self) -> SenderRole {
        self.inbound.sender_role()
    }

    fn settings(&self) -> Option<&QueueSettings> {
        self.settings.as_ref()
    }

    fn is_boundary(&self) -> bool {
        self.inbound.starts_transcript()
    }
}

impl Lane {
    /// Receives a message: answers it at once or enqueues it.
    pub(super) async fn receive(&mut self, queued: Ticket, active: Option<&mut Ticket>) {
        let is_idle = active.is_none() && self.inbox.is_empty();
        if is_idle {
            self.refresh();
        }
        let queued = if queued.is_recovered { Some(queued) } else { self.admit(queued, is_idle).await };
        let Some(queued) = queued else { return };
        self.register_parent(&queued).await;
        if queued.is_control(!is_idle) {
            self.control(queued, active).await;
        } else {
            self.enqueue(queued, active, is_idle).await;
        }
    }

    async fn enqueue(&mut self, mut queued: Ticket, mut active: Option<&mut Ticket>, is_idle: bool) {
        // A compaction or plugin command aborts the active run: a compaction should not wait for a run that makes the
        // context longer. A recovered command has already done so.
        let is_wish = queued.task().is_some() && !queued.is_internal() && !queued.is_recovered;
        let is_anew = queued.inbound.starts_transcript();
        if is_wish {
            self.fire_command(&queued.inbound);
        }
        if let Some(active) = &active {
            active.hurry.cancel();
        }
        queued.settings = self.settings(&queued, active.as_deref());
        // A message with queue settings may displace others, so it must be on disk first. Its sender is answered once
        // it has its place.
        if (queued.settings.is_some() || is_wish) && !is_idle && !queued.accept_records.is_empty() {
            let records = std::mem::take(&mut queued.accept_records);
            let admission = admission(&self.hub.writer.commit_with_verdicts(records).await);
            if !matches!(admission, Admission::Accepted) {
                self.drop_rejected(&queued);
                queued.admit.send_replace(admission);
                return;
            }
        }
        queued.waits_since = Some(Instant::now());
        let is_stored = queued.accept_records.is_empty();
        let (tape, admit, now) = (queued.tape.clone(), queued.admit.clone(), self.now());
        let (placed, gone) = match self.inbox.push(queued, active.is_some(), now) {
            PushResult::In { placed, gone } => (placed, gone),
            PushResult::Full(queued) => return self.reject(queued).await,
        };
        tape.set_disposition(placed);
        if is_stored {
            admit.send_replace(Admission::Accepted);
        }
        if !is_idle {
            self.accept_all();
        }
        let reason = if placed == Disposition::Interrupted { AbortReason::Interrupted } else { AbortReason::Dropped };
        if let Some(active) = active.as_deref_mut().filter(|active| is_anew || self.is_abandoned(active)) {
            self.stop_abandoned(active).await;
        }
        if let Some(active) = active.as_deref_mut().filter(|active| is_wish && active.reason.is_none()) {
            self.stop_active(active, AbortReason::Stop).await;
        }
        if let (Disposition::Interrupted, Some(active)) = (placed, active.filter(|active| active.reason.is_none())) {
            active.absorbed.iter_mut().for_each(|guest| guest.stop(reason));
            self.stop_active(active, reason).await;
        }
        for mut queued in gone {
            queued.stop(reason);
            self.end_unstarted(queued).await;
        }
        self.update_places();
    }

    /// Emits a new disposition for each queued message whose kind of place changed, and sets the flag that tells the
    /// active run whether a message is offered. Called after every change of the inbox, so that the last reported
    /// disposition holds.
    pub(super) fn update_places(&self) {
        let at = self.hub.ambient.now_ms();
        self.inbox.places().for_each(|(queued, placed)| queued.tape.update_disposition(at, placed));
        self.has_pending_steer.store(self.inbox.has_offer(), Ordering::Release);
    }

    /// Emits a busy event, once for each message that has waited long for the active run. What the run does for another
    /// sender is not disclosed.
    pub(super) fn emit_busy(&mut self, active: &Ticket) {
        let (doing, since) = activity::of(&active.tape.events());
        let lasts = Duration::from_millis(self.hub.ambient.now_ms().saturating_sub(since));
        self.tell_waiting(|waiting, _| {
            (if is_alike(waiting, active) { doing.clone() } else { Activity::Elsewhere }, lasts)
        });
    }

    /// Tells those whose messages have waited long for a slot, each once.
    pub(super) fn tell_slots_in_use(&mut self) {
        self.tell_waiting(|_, waited| (Activity::OtherSessions, waited));
    }

    /// When the message that has waited longest is to be told so.
    pub(super) fn next_notice(&mut self) -> Option<Instant> {
        self.inbox.iter_mut().filter_map(|waiting| waiting.waits_since).min().map(|since| since + BUSY_AFTER)
    }

    /// `busy` says for a message that has waited so long with what it is busy that it waits for, and for how long.
    fn tell_waiting(&mut self, busy: impl Fn(&Ticket, Duration) -> (Activity, Duration)) {
        let now = self.hub.ambient.now_ms();
        for waiting in self.inbox.iter_mut() {
            let Some(waited) = waiting.waits_since.map(|since| since.elapsed()).filter(|it| *it >= BUSY_AFTER) else {
                continue;
            };
            waiting.waits_since = None;
            // A message that is not on disk yet may be the retry of another.
            if !matches!(*waiting.admit.borrow(), Admission::Accepted) {
                continue;
            }
            let (activity, lasts) = busy(waiting, waited);
            waiting.tape.emit(now, RunEvent::Busy(Arc::new(Busy { activity, lasts, waited })));
        }
    }

    /// True if a run works on a transcript that the session no longer has.
    fn is_abandoned(&self, active: &Ticket) -> bool {
        let now = self.session.as_ref().map(|session| &session.record.session_id);
        active.session.is_some() && active.session.as_ref() != now
    }

    /// Aborts the gateway's own run for an abandoned transcript, so that it delays no message.
    async fn stop_abandoned(&mut self, active: &mut Ticket) {
        if active.is_internal() && active.reason.is_none() {
            self.stop_active(active, AbortReason::Interrupted).await;
        }
    }

    /// Registers the parent session of a run, also if its own message does not name it.
    async fn register_parent(&mut self, queued: &Ticket) {
        if let Err(error) = self.open().await {
            tracing::warn!(key = %self.key, %error, "failed to read the session");
        }
        let parent = self.session.as_ref().and_then(|session| session.record.spawned_by.as_deref());
        let agent = self.key.agent().cloned().unwrap_or_else(AgentId::main);
        if let Some(parent) = parent.and_then(|parent| SessionKey::parse(parent, &agent).ok()) {
            self.hub.set_parent(&queued.inbound.run, parent);
        }
    }

    /// Returns the queue settings of a message.
    fn settings(&self, queued: &Ticket, active: Option<&Ticket>) -> Option<QueueSettings> {
        // A resumed run has started already, and a command gets a turn of its own.
        let inline = queued.inbound.queue.filter(|_| !queued.is_resumed && queued.inbound.command.is_none())?;
        let session = self.session.as_ref().map(|session| QueueOverrides::from(&session.record)).unwrap_or_default();
        let (channel, config) = self.hub.config.rules().queue.of(&queued.inbound.route);
        let mut settings = inline.settings(&session, &channel, &config);
        if queued.is_recovered {
            // It displaced others when it arrived and was not displaced itself.
            settings.cap = usize::MAX;
        }
        let is_elsewhere = active.is_some_and(|active| !self.can_absorb(queued, active));
        if (queued.is_recovered && settings.mode == QueueMode::Interrupt)
            || (is_elsewhere && matches!(settings.mode, QueueMode::Steer | QueueMode::SteerBacklog))
        {
            settings.mode = QueueMode::Followup;
        }
        Some(settings)
    }

    /// True if a message may be absorbed by a run: same route, authority, class and transcript. A run that is being
    /// stopped or does not ask a model absorbs nothing.
    fn can_absorb(&self, queued: &Ticket, active: &Ticket) -> bool {
        let transcript = self.session.as_ref().map(|session| &session.record.session_id);
        active.reason.is_none()
            && active.task().is_none()
            && active.fixed_reply().is_none()
            && queued.inbound.route == active.inbound.route
            && queued.sender() == active.sender()
            && queued.inbound.class == active.inbound.class
            && active.session.as_ref() == transcript
    }

    /// Rejects a message because the queue is full. A message with queue settings is stored as an aborted run; any
    /// other is not accepted, and its sender may send it again.
    async fn reject(&mut self, mut queued: Ticket) {
        if queued.settings.is_some() || queued.is_recovered {
            tracing::warn!(run = %queued.inbound.run, key = %self.key, "message rejected: the queue is full");
            queued.tape.set_disposition(Disposition::Rejected);
            queued.admit.send_replace(Admission::Accepted);
            queued.stop(AbortReason::Dropped);
            self.end_unstarted(queued).await;
        } else {
            self.hub.forget(&queued.tape);
            queued.tape.mark_rejected();
            queued.admit.send_replace(Admission::Overloaded);
            // Its changes to the session's record were not stored.
            self.is_stale = true;
        }
    }

    /// Queues all waiting messages for the writer.
    pub(super) fn accept_all(&mut self) {
        let (hub, inbox) = (&self.hub, &mut self.inbox);
        inbox.iter_mut().for_each(|queued| queued.accept(&hub.writer));
    }

    /// Waits for the admission of all waiting messages that were passed to the writer, and removes those that were not
    /// accepted. A message that still has its `accept_records` was not passed to the writer yet.
    pub(super) async fn settle_admissions(&mut self) {
        let mut any_refused = false;
        for queued in self.inbox.iter_mut().filter(|queued| queued.accept_records.is_empty()) {
            any_refused |= !is_admitted(queued).await;
        }
        if any_refused {
            for queued in self.inbox.take_out(Ticket::is_refused) {
                self.drop_rejected(&queued);
            }
        }
    }

    /// Hands an offered message to the active run. A message that is not taken stays in the queue.
    pub(super) async fn offer(&mut self, tell: oneshot::Sender<Steered>, active: Option<&mut Ticket>) {
        self.settle_admissions().await;
        // A run that is being stopped absorbs nothing.
        let Some(active) = active.filter(|active| active.reason.is_none()) else { return };
        match self.inbox.offer() {
            Some(SteerOffer::Take(guest)) => {
                let handed = Steered::Message(guest.inbound.message.clone(), guest.tape.clone());
                match tell.send(handed) {
                    Ok(()) => active.absorbed.push(guest),
                    Err(_) => self.inbox.put_back([guest]),
                }
            }
            // It also gets a turn of its own, so a dropped receiver loses nothing.
            Some(SteerOffer::Copy(text)) => drop(tell.send(Steered::Copy(text))),
            None => {}
        }
        self.update_places();
    }

    /// Aborts one run or all of them. Returns once the abort is on disk. A message that turns out not to be accepted
    /// (for example the retry of an ended run) is not a run and cannot be aborted.
    pub(super) async fn abort(
        &mut self,
        run: Option<&RunId>,
        reason: AbortReason,
        active: Option<&mut Ticket>,
    ) -> Vec<RunId> {
        let meant = |queued: &Ticket| run.is_none_or(|run| *run == queued.inbound.run);
        let is_meant = |active: &Ticket| meant(active) || active.absorbed.iter().any(meant);
        // A run that is stopping was aborted by an earlier request.
        let mut active = active.filter(|active| active.reason.is_none() && is_meant(active));
        if let Some(active) = &mut active {
            // At once, so that the run starts nothing while the rest is committed. Only this lane starts runs, so no
            // queued run starts in its place.
            active.stop(reason);
        }
        let mut stopped = Vec::new();
        for mut queued in self.inbox.take_out(meant) {
            queued.stop(reason);
            let run = queued.inbound.run.clone();
            if self.end_unstarted(queued).await {
                stopped.push(run);
            }
        }
        self.update_places();
        // A message absorbed by the active run cannot be removed from it any more.
        if let Some(active) = active {
            stopped.push(active.inbound.run.clone());
            stopped.extend(active.absorbed.iter().map(|guest| guest.inbound.run.clone()));
            active.absorbed.iter_mut().filter(|guest| meant(guest)).for_each(|guest| guest.stop(reason));
            self.stop_active(active, reason).await;
        }
        stopped
    }

    /// Aborts the active run at once. Returns when the abort is on disk.
    async fn stop_active(&mut self, active: &mut Ticket, reason: AbortReason) {
        active.stop(reason);
        let run = active.inbound.run.clone();
        if let Err(error) = self.hub.writer.commit(vec![Rec::Abort { run: run.clone(), reason }]).await {
            tracing::warn!(%run, %error, "failed to store the abort request");
        }
    }

    /// Leaves the queued messages as they are on disk, because the process shuts down.
    pub(super) async fn leave_queued(&mut self) {
        self.accept_all();
        self.settle_admissions().await;
        for queued in self.inbox.clear() {
            self.suspend(&queued);
        }
    }
}
