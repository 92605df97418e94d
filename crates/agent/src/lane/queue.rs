//! Queueing in a lane: messages are accepted, offered to the active run, aborted, or left for the next start.

use std::{
    borrow::Cow,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use homard_policy::tools::SenderRole;
use homard_proto::{AgentId, Route, RunId, SessionKey};
use homard_queue::{
    inbox::{Disposition, PushResult, QueueItem, SteerOffer, is_alike},
    settings::{QueueMode, QueueOverrides, QueueSettings},
};
use homard_store::{AbortReason, Rec};
use tokio::{sync::oneshot, time::Instant};

use super::{BUSY_AFTER, Lane, Ticket, control::control, hooks::fire_command, ticket::ActiveRun};
use crate::{
    activity::{self, Activity, Busy},
    event::QueueEvent,
    hub::Admission,
    run::Steered,
};

impl QueueItem for Ticket {
    fn run(&self) -> &RunId {
        &self.inbound.id.run
    }

    fn text(&self) -> Cow<'_, str> {
        self.inbound.message.content.text().into()
    }

    fn route(&self) -> &Route {
        &self.inbound.reply.route
    }

    fn sender(&self) -> SenderRole {
        self.inbound.sender.role()
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
    pub(super) async fn receive(&mut self, ticket: Ticket, active: Option<&mut ActiveRun>) {
        let is_idle = active.is_none() && self.inbox.is_empty();
        if is_idle {
            self.refresh();
        }
        let ticket = if ticket.is_recovered { Some(ticket) } else { self.build_acceptance(ticket, is_idle).await };
        let Some(ticket) = ticket else { return };
        self.register_parent(&ticket).await;
        if ticket.is_control(!is_idle) {
            control(self, ticket, active).await;
        } else {
            self.enqueue(ticket, active, is_idle).await;
        }
    }

    async fn enqueue(&mut self, mut ticket: Ticket, mut active: Option<&mut ActiveRun>, is_idle: bool) {
        // A compaction or plugin command aborts the active run: a compaction should not wait for a run that makes the
        // context longer. A recovered command has already done so.
        let is_task = ticket.task().is_some() && !ticket.is_internal() && !ticket.is_recovered;
        let starts_transcript = ticket.inbound.starts_transcript();
        if is_task {
            fire_command(self, &ticket.inbound);
        }
        if let Some(active) = &active {
            active.hurry.cancel();
        }
        ticket.settings = self.settings(&ticket, active.as_deref());
        // A message with queue settings may displace others, so it must be on disk first. Its sender is answered once
        // it has a disposition.
        if (ticket.settings.is_some() || is_task)
            && !is_idle
            && let Err(rejection) = ticket.acceptance.store(&self.hub.writer).await
        {
            self.drop_rejected(&ticket);
            return ticket.acceptance.decide(rejection);
        }
        ticket.waits_since = Some(Instant::now());
        let undecided = ticket.acceptance.undecided();
        let (tape, now) = (ticket.tape.clone(), self.now());
        let (disposition, removed) = match self.inbox.push(ticket, active.is_some(), now) {
            PushResult::In { disposition, removed } => (disposition, removed),
            PushResult::Full(ticket) => return self.reject(ticket).await,
        };
        tape.set_disposition(disposition);
        if let Some(admission) = undecided {
            admission.send_replace(Admission::Accepted);
        }
        if !is_idle {
            self.accept_all();
        }
        let reason =
            if disposition == Disposition::Interrupted { AbortReason::Interrupted } else { AbortReason::Dropped };
        if let Some(active) = active.as_deref_mut().filter(|active| starts_transcript || self.is_abandoned(active)) {
            self.stop_abandoned(active).await;
        }
        if let Some(active) = active.as_deref_mut().filter(|active| is_task && active.ticket.reason.is_none()) {
            self.stop_active(active, AbortReason::Stop).await;
        }
        if let (Disposition::Interrupted, Some(active)) =
            (disposition, active.filter(|active| active.ticket.reason.is_none()))
        {
            active.absorbed.iter_mut().for_each(|absorbed| absorbed.stop(reason));
            self.stop_active(active, reason).await;
        }
        for mut ticket in removed {
            ticket.stop(reason);
            self.end_unstarted(ticket).await;
        }
        self.update_dispositions();
    }

    /// Emits a new disposition for each queued message whose kind of disposition changed, and sets the flag that shows
    /// the active run whether a message is offered. Called after every change of the inbox, so that the last reported
    /// disposition holds.
    pub(super) fn update_dispositions(&self) {
        let at = self.hub.ambient.now_ms();
        self.inbox.dispositions().for_each(|(ticket, disposition)| ticket.tape.update_disposition(at, disposition));
        self.has_pending_steer.store(self.inbox.has_offer(), Ordering::Release);
    }

    /// Emits a busy event, once for each message that has waited long for the active run. What the run does for another
    /// sender is not disclosed.
    pub(super) fn emit_busy(&mut self, active: &ActiveRun) {
        let (activity, since) = activity::of(&active.ticket.tape.events());
        let lasts = Duration::from_millis(self.hub.ambient.now_ms().saturating_sub(since));
        self.emit_waiting(|waiting, _| {
            (if is_alike(waiting, &active.ticket) { activity.clone() } else { Activity::Elsewhere }, lasts)
        });
    }

    /// Emits a busy event, once for each message that has waited long for a slot.
    pub(super) fn emit_slots_busy(&mut self) {
        self.emit_waiting(|_, waited| (Activity::OtherSessions, waited));
    }

    /// Returns when the next busy event is due: for the message that has waited longest.
    pub(super) fn next_busy_event(&mut self) -> Option<Instant> {
        self.inbox.iter_mut().filter_map(|waiting| waiting.waits_since).min().map(|since| since + BUSY_AFTER)
    }

    /// Emits a busy event for each message that has waited for [`BUSY_AFTER`]. `busy` returns the activity that it
    /// waits for, and the duration of that activity so far.
    fn emit_waiting(&mut self, busy: impl Fn(&Ticket, Duration) -> (Activity, Duration)) {
        let now = self.hub.ambient.now_ms();
        for waiting in self.inbox.iter_mut() {
            let Some(waited) = waiting.waits_since.map(|since| since.elapsed()).filter(|it| *it >= BUSY_AFTER) else {
                continue;
            };
            waiting.waits_since = None;
            // A message that is not on disk yet may be the retry of another.
            if !waiting.acceptance.is_accepted() {
                continue;
            }
            let (activity, lasts) = busy(waiting, waited);
            waiting.tape.emit(now, QueueEvent::Busy(Arc::new(Busy { activity, lasts, waited })));
        }
    }

    /// True if a run works on a transcript that the session no longer has.
    fn is_abandoned(&self, active: &ActiveRun) -> bool {
        let current = self.session.as_ref().map(|session| &session.record.session_id);
        active.progress.session.is_some() && active.progress.session.as_ref() != current
    }

    /// Aborts the gateway's own run for an abandoned transcript, so that it delays no message.
    async fn stop_abandoned(&mut self, active: &mut ActiveRun) {
        if active.ticket.is_internal() && active.ticket.reason.is_none() {
            self.stop_active(active, AbortReason::Interrupted).await;
        }
    }

    /// Registers the parent session of a run, also if its own message does not name it.
    async fn register_parent(&mut self, ticket: &Ticket) {
        if let Err(error) = self.open().await {
            tracing::warn!(key = %self.key, %error, "failed to read the session");
        }
        let parent = self.session.as_ref().and_then(|session| session.record.spawned_by.as_deref());
        let agent = self.key.agent().cloned().unwrap_or_else(AgentId::main);
        if let Some(parent) = parent.and_then(|parent| SessionKey::parse(parent, &agent).ok()) {
            self.hub.set_parent(&ticket.inbound.id.run, parent);
        }
    }

    /// Returns the queue settings of a message; `None` if it is not subject to the queue mode.
    fn settings(&self, ticket: &Ticket, active: Option<&ActiveRun>) -> Option<QueueSettings> {
        // A resumed run has started already, and a command gets a run of its own.
        let inline = ticket.inbound.queue.filter(|_| !ticket.is_resumed && ticket.inbound.command.is_none())?;
        let session = self.session.as_ref().map(|session| QueueOverrides::from(&session.record)).unwrap_or_default();
        let (channel, config) = self.hub.config.rules().queue.of(&ticket.inbound.reply.route);
        let mut settings = inline.settings(&session, &channel, &config);
        if ticket.is_recovered {
            // It displaced others when it arrived and was not displaced itself.
            settings.cap = usize::MAX;
        }
        let is_other_context = active.is_some_and(|active| !self.can_absorb(ticket, active));
        if (ticket.is_recovered && settings.mode == QueueMode::Interrupt)
            || (is_other_context && matches!(settings.mode, QueueMode::Steer | QueueMode::SteerBacklog))
        {
            settings.mode = QueueMode::Followup;
        }
        Some(settings)
    }

    /// True if a message may be absorbed by a run: same route, authority, class and transcript. A run that is being
    /// stopped or does not ask a model absorbs nothing.
    fn can_absorb(&self, ticket: &Ticket, active: &ActiveRun) -> bool {
        let transcript = self.session.as_ref().map(|session| &session.record.session_id);
        active.ticket.reason.is_none()
            && active.ticket.task().is_none()
            && active.ticket.fixed_reply().is_none()
            && ticket.inbound.reply.route == active.ticket.inbound.reply.route
            && ticket.sender() == active.ticket.sender()
            && ticket.inbound.options.class == active.ticket.inbound.options.class
            && active.progress.session.as_ref() == transcript
    }

    /// Rejects a message because the queue is full. A message with queue settings is stored as an aborted run; any
    /// other is not accepted, and its sender may send it again.
    async fn reject(&mut self, mut ticket: Ticket) {
        if ticket.settings.is_some() || ticket.is_recovered {
            tracing::warn!(run = %ticket.inbound.id.run, key = %self.key, "message rejected: the queue is full");
            ticket.tape.set_disposition(Disposition::Rejected);
            ticket.acceptance.decide(Admission::Accepted);
            ticket.stop(AbortReason::Dropped);
            self.end_unstarted(ticket).await;
        } else {
            self.hub.forget(&ticket.tape);
            ticket.tape.mark_rejected();
            ticket.acceptance.decide(Admission::Overloaded);
            // Its changes to the session's record were not stored.
            self.must_reload = true;
        }
    }

    /// Queues all waiting messages for the writer.
    pub(super) fn accept_all(&mut self) {
        let (hub, inbox) = (&self.hub, &mut self.inbox);
        inbox.iter_mut().for_each(|ticket| ticket.accept(&hub.writer));
    }

    /// Waits for the admission of all waiting messages that were passed to the writer, and removes those that were not
    /// accepted. A message whose records are unsent was not passed to the writer yet.
    pub(super) async fn await_admissions(&mut self) {
        let mut any_refused = false;
        for ticket in self.inbox.iter_mut().filter(|ticket| !ticket.acceptance.is_unsent()) {
            any_refused |= !ticket.is_admitted().await;
        }
        if any_refused {
            for ticket in self.inbox.take_out(Ticket::is_refused) {
                self.drop_rejected(&ticket);
            }
        }
    }

    /// Hands an offered message to the active run. A message that is not taken stays in the queue.
    pub(super) async fn offer(&mut self, reply: oneshot::Sender<Steered>, active: Option<&mut ActiveRun>) {
        self.await_admissions().await;
        // A run that is being stopped absorbs nothing.
        let Some(active) = active.filter(|active| active.ticket.reason.is_none()) else { return };
        match self.inbox.offer() {
            Some(SteerOffer::Take(ticket)) => {
                let steered = Steered::Message(ticket.inbound.message.clone(), ticket.tape.clone());
                match reply.send(steered) {
                    Ok(()) => active.absorbed.push(ticket),
                    Err(_) => self.inbox.put_back([ticket]),
                }
            }
            // It also gets a run of its own, so a dropped receiver loses nothing.
            Some(SteerOffer::Copy(text)) => drop(reply.send(Steered::Copy(text))),
            None => {}
        }
        self.update_dispositions();
    }

    /// Aborts one run or all of them. Returns once the abort is on disk. A message that turns out not to be accepted
    /// (for example the retry of an ended run) is not a run and cannot be aborted.
    pub(super) async fn abort(
        &mut self,
        run: Option<&RunId>,
        reason: AbortReason,
        active: Option<&mut ActiveRun>,
    ) -> Vec<RunId> {
        let is_target = |ticket: &Ticket| run.is_none_or(|run| *run == ticket.inbound.id.run);
        let includes_target = |active: &ActiveRun| is_target(&active.ticket) || active.absorbed.iter().any(is_target);
        // A run that is stopping was aborted by an earlier request.
        let mut active = active.filter(|active| active.ticket.reason.is_none() && includes_target(active));
        if let Some(active) = &mut active {
            // At once, so that the run starts nothing while the rest is committed. Only this lane starts runs, so no
            // queued run starts in its place.
            active.stop(reason);
        }
        let mut stopped = Vec::new();
        for mut ticket in self.inbox.take_out(is_target) {
            ticket.stop(reason);
            let run = ticket.inbound.id.run.clone();
            if self.end_unstarted(ticket).await {
                stopped.push(run);
            }
        }
        self.update_dispositions();
        // A message absorbed by the active run cannot be removed from it any more.
        if let Some(active) = active {
            stopped.push(active.ticket.inbound.id.run.clone());
            stopped.extend(active.absorbed.iter().map(|absorbed| absorbed.inbound.id.run.clone()));
            active
                .absorbed
                .iter_mut()
                .filter(|absorbed| is_target(absorbed))
                .for_each(|absorbed| absorbed.stop(reason));
            self.stop_active(active, reason).await;
        }
        stopped
    }

    /// Aborts the active run at once. Returns when the abort is on disk.
    async fn stop_active(&mut self, active: &mut ActiveRun, reason: AbortReason) {
        active.stop(reason);
        let run = active.ticket.inbound.id.run.clone();
        if let Err(error) = self.hub.writer.commit(vec![Rec::Abort { run: run.clone(), reason }]).await {
            tracing::warn!(%run, %error, "failed to store the abort request");
        }
    }

    /// Leaves the queued messages as they are on disk, because the process shuts down.
    pub(super) async fn leave_queued(&mut self) {
        self.accept_all();
        self.await_admissions().await;
        for ticket in self.inbox.clear() {
            self.suspend(&ticket);
        }
    }
}
