//! How messages wait in line: they are taken in, offered to the run at work, stopped, or left for the next start.

use std::{borrow::Cow, sync::atomic::Ordering};

use homard_proto::{Route, RunId};
use homard_store::{AbortReason, Rec};
use tokio::sync::oneshot;

use super::{
    Lane, Queued,
    inbox::{Letter, Offer, Placed, Pushed},
    is_admitted,
};
use crate::{
    command::queue::{Overrides, Settings},
    hub::Admission,
    run::Handed,
};

impl Letter for Queued {
    fn run(&self) -> &RunId {
        &self.inbound.run
    }

    fn text(&self) -> Cow<'_, str> {
        self.inbound.message.content.text().into()
    }

    fn route(&self) -> &Route {
        &self.inbound.route
    }

    fn settings(&self) -> Option<&Settings> {
        self.settings.as_ref()
    }
}

impl Lane {
    /// Takes a message in: answers it at once, or puts it in line.
    pub(super) async fn receive(&mut self, queued: Queued, active: Option<&mut Queued>) {
        let is_idle = active.is_none() && self.inbox.is_empty();
        if is_idle {
            self.refresh();
        }
        let queued = if queued.is_recovered() { Some(queued) } else { self.admit(queued, is_idle).await };
        match queued {
            Some(queued) if queued.is_control(active.is_some() || !self.inbox.is_empty()) => {
                self.control(queued, active).await;
            }
            Some(queued) => self.enqueue(queued, active).await,
            None => {}
        }
    }

    async fn enqueue(&mut self, mut queued: Queued, active: Option<&mut Queued>) {
        let is_idle = active.is_none() && self.inbox.is_empty();
        queued.settings = self.settings(&queued);
        let (tape, now) = (queued.tape.clone(), self.now());
        let (placed, gone) = match self.inbox.push(queued, active.is_some(), now) {
            Pushed::In { placed, gone } => (placed, gone),
            Pushed::Full(queued) => return self.turn_away(queued).await,
        };
        tape.place(placed);
        if !is_idle {
            self.accept_all();
        }
        let reason = if placed == Placed::Interrupted { AbortReason::Interrupted } else { AbortReason::Dropped };
        for mut queued in gone {
            queued.stop(reason);
            self.turn_down(queued).await;
        }
        if let (Placed::Interrupted, Some(active)) = (placed, active.filter(|active| active.reason.is_none())) {
            active.guests.iter_mut().for_each(|guest| guest.stop(reason));
            self.stop_active(active, reason).await;
        }
        self.offers.store(self.inbox.has_offer(), Ordering::Release);
    }

    /// How a message waits for its turn.
    pub(super) fn settings(&self, queued: &Queued) -> Option<Settings> {
        // What goes on after a restart has begun, and a command wants a turn of its own.
        let inline = queued.inbound.queue.filter(|_| !queued.is_resumed && queued.inbound.command.is_none())?;
        let session = self.session.as_ref().map(|session| Overrides::from(&session.record)).unwrap_or_default();
        let (channel, config) = self.hub.rules.queue.of(&queued.inbound.route);
        Some(inline.settings(&session, &channel, &config))
    }

    /// There is no room for a message. One that goes by the rules of the queue is kept as a run that ended so; any other
    /// is not taken in, and its sender may send it again.
    async fn turn_away(&mut self, mut queued: Queued) {
        if queued.settings.is_some() || queued.is_recovered() {
            tracing::warn!(run = %queued.inbound.run, key = %self.key, "a message was rejected: too many wait");
            queued.tape.place(Placed::Rejected);
            queued.stop(AbortReason::Dropped);
            self.turn_down(queued).await;
        } else {
            self.hub.forget(&queued.tape);
            queued.tape.refuse();
            queued.admit.send_replace(Admission::Overloaded);
            // What it changed in the session's record was not stored.
            self.is_stale = true;
        }
    }

    /// Sends all messages that wait on their way to disk.
    pub(super) fn accept_all(&mut self) {
        let (hub, inbox) = (&self.hub, &mut self.inbox);
        inbox.iter_mut().for_each(|queued| queued.accept(&hub.writer));
    }

    /// Waits until it is known which of the messages that wait were taken in, and lets go of the others.
    pub(super) async fn settle_admissions(&mut self) {
        let mut any_refused = false;
        for queued in self.inbox.iter_mut().filter(|queued| queued.accepting.is_empty()) {
            any_refused |= !is_admitted(queued).await;
        }
        if any_refused {
            for queued in self.inbox.take_out(Queued::is_refused) {
                self.never_was(&queued);
            }
        }
    }

    /// Hands the run at work a message that came for it. What it does not get stays in line.
    pub(super) async fn offer(&mut self, tell: oneshot::Sender<Handed>, active: Option<&mut Queued>) {
        self.settle_admissions().await;
        match (self.inbox.offer(), active) {
            (Some(Offer::Take(guest)), Some(active)) => {
                let handed = Handed::Message(guest.inbound.message.clone(), guest.tape.clone());
                match tell.send(handed) {
                    Ok(()) => active.guests.push(guest),
                    Err(_) => self.inbox.put_back([guest]),
                }
            }
            (Some(Offer::Take(guest)), None) => self.inbox.put_back([guest]),
            // It gets a turn of its own as well, so nothing is lost if nobody listens.
            (Some(Offer::Copy(text)), _) => drop(tell.send(Handed::Copy(text))),
            (None, _) => {}
        }
        self.offers.store(self.inbox.has_offer(), Ordering::Release);
    }

    /// Stops a run, or all of them. Whoever asked hears of it once a restart would know it, too. A message that turns out
    /// not to be taken in, as the retry of a run that is over, is no run and cannot be stopped.
    pub(super) async fn abort(
        &mut self,
        run: Option<&RunId>,
        reason: AbortReason,
        active: Option<&mut Queued>,
    ) -> Vec<RunId> {
        let meant = |queued: &Queued| run.is_none_or(|run| *run == queued.inbound.run);
        let mut stopped = Vec::new();
        // Those that wait first, so that none of them starts when the active one has gone.
        for mut queued in self.inbox.take_out(meant) {
            queued.stop(reason);
            let run = queued.inbound.run.clone();
            if self.turn_down(queued).await {
                stopped.push(run);
            }
        }
        self.offers.store(self.inbox.has_offer(), Ordering::Release);
        // A message that became a part of the run at work cannot be taken out of it any more. One that is stopping was
        // stopped by somebody else.
        let is_meant = |active: &Queued| meant(active) || active.guests.iter().any(meant);
        if let Some(active) = active.filter(|active| active.reason.is_none() && is_meant(active)) {
            stopped.push(active.inbound.run.clone());
            stopped.extend(active.guests.iter().map(|guest| guest.inbound.run.clone()));
            active.guests.iter_mut().filter(|guest| meant(guest)).for_each(|guest| guest.stop(reason));
            self.stop_active(active, reason).await;
        }
        stopped
    }

    /// Stops the run at work at once; returns when a restart would know it, too.
    async fn stop_active(&mut self, active: &mut Queued, reason: AbortReason) {
        active.stop(reason);
        let run = active.inbound.run.clone();
        if let Err(error) = self.hub.writer.commit(vec![Rec::Abort { run: run.clone(), reason }]).await {
            tracing::warn!(%run, %error, "the wish to stop could not be stored");
        }
    }

    /// Leaves what waits as it is on disk, because the process is going down.
    pub(super) async fn leave(&mut self) {
        self.accept_all();
        self.settle_admissions().await;
        for queued in self.inbox.clear() {
            self.suspend(&queued);
        }
    }
}
