//! Admission of a message: claims its run id, passes it to its lane and waits for the decision.

use std::sync::Arc;

use homard_store::{RunRow, RunState};
use tokio::sync::watch;

use super::{AcceptedRun, Admission, HubRuns, Inbound, SubmitError, SubmitOutcome, shared::LiveRun};
use crate::{
    lane::{LaneJob, Ticket},
    tape::{Subscriber, Tape},
};

/// Maximum number of live runs, active and queued.
const MAX_LIVE: usize = 50_000;

impl HubRuns<'_> {
    /// Accepts a message; see [`Hub::submit`](super::Hub::submit).
    pub(super) async fn submit(self, inbound: Inbound) -> Result<AcceptedRun, SubmitError> {
        if self.hub.0.draining.is_cancelled() {
            return Err(SubmitError::Stopping);
        }
        self.hub.lifecycle().recover_session(&inbound.session.key).await?;
        self.await_transcript(&inbound).await;
        let (run, key) = (inbound.id.run.clone(), inbound.session.key.clone());
        self.await_claim(&inbound).await;
        let received = self.hub.hooks().received_event(&inbound);
        let (tape, mut admission, is_new) = self.claim(inbound)?;
        let verdict = match admission.wait_for(|admission| !matches!(admission, Admission::Pending)).await {
            Ok(verdict) => verdict.clone(),
            // The lane ended before it read the job.
            Err(_) => return Err(SubmitError::Stopping),
        };
        let accepted = |at, outcome| Ok(AcceptedRun { run: run.clone(), key: key.clone(), at, outcome });
        match verdict {
            Admission::Accepted if is_new => {
                self.hub.hooks().fire_received(received);
                accepted(tape.accepted_at(), SubmitOutcome::New(tape))
            }
            Admission::Accepted => accepted(tape.accepted_at(), SubmitOutcome::InFlight(tape)),
            Admission::Duplicate(row) => match (self.report(&row).await?, self.host_of(&row)) {
                (Some(report), _) => accepted(row.accepted_at, SubmitOutcome::Finished(Box::new(report))),
                (None, Some(host)) => accepted(row.accepted_at, SubmitOutcome::InFlight(host)),
                (None, None) => match self.held_for(&row).await? {
                    Some(held) => Err(SubmitError::Held(held)),
                    None => {
                        let report = self.hub.lifecycle().force_end(&row).await?;
                        accepted(row.accepted_at, SubmitOutcome::Finished(Box::new(report)))
                    }
                },
            },
            Admission::Conflict => {
                // The id belongs to another request; this tape must not be found under it.
                self.hub.0.forget(&tape);
                Err(SubmitError::Conflict(run))
            }
            Admission::Blocked => Err(SubmitError::Blocked),
            Admission::SessionChanged => Err(SubmitError::SessionChanged),
            Admission::Overloaded => Err(SubmitError::Overloaded),
            Admission::Failed(error) => {
                // The lane may remove the tape only after an active run; until then a retry must not get this failure.
                self.hub.0.forget(&tape);
                Err(error.into())
            }
            Admission::Pending => Err(SubmitError::Stopping),
        }
    }

    /// Waits for the admission of another request that claims the same id. The store decides which of them owns it.
    async fn await_claim(self, inbound: &Inbound) {
        loop {
            let other_claim = self
                .hub
                .0
                .lock()
                .runs
                .get(&inbound.id.run)
                .filter(|live_run| !live_run.is_of(inbound))
                .map(LiveRun::claim);
            let Some((tape, mut admission)) = other_claim else { return };
            let live_run = admission.wait_for(|admission| !matches!(admission, Admission::Pending)).await;
            if matches!(live_run.as_deref(), Ok(Admission::Accepted) | Err(_)) {
                return;
            }
            drop(live_run);
            self.hub.0.forget(&tape);
        }
    }

    /// Waits for runs of other sessions that write to the transcript this message names (for example a run that started
    /// before its session was reset), so that the entries of two runs are not interleaved.
    async fn await_transcript(self, inbound: &Inbound) {
        let Some(transcript) = &inbound.session.transcript else { return };
        let is_elsewhere = |run: &&LiveRun| run.tape.key() != &inbound.session.key && run.tape.started_in(transcript);
        let runs: Vec<_> = self.hub.0.lock().runs.values().filter(is_elsewhere).map(|run| run.tape.clone()).collect();
        for tape in runs {
            Subscriber::new(tape).end().await;
        }
    }

    /// Claims the id and passes the message to its lane, under one lock.
    fn claim(self, inbound: Inbound) -> Result<(Arc<Tape>, watch::Receiver<Admission>, bool), SubmitError> {
        let mut live = self.hub.0.lock();
        if live.runs.len() >= MAX_LIVE {
            return Err(SubmitError::Overloaded);
        }
        if let Some(live_run) = live.runs.get(&inbound.id.run) {
            if !live_run.is_of(&inbound) {
                return Err(SubmitError::Conflict(inbound.id.run));
            }
            return Ok((live_run.tape.clone(), live_run.admission.clone(), false));
        }
        let tape = Tape::new(
            inbound.id.run.clone(),
            inbound.session.key.clone(),
            self.hub.0.ambient.now_ms(),
            self.hub.0.feed.clone(),
        );
        let (admit, admission) = watch::channel(Admission::Pending);
        live.runs.insert(inbound.id.run.clone(), LiveRun::new(&tape, &inbound, admission.clone()));
        let key = inbound.session.key.clone();
        let queued = Ticket::new(inbound, tape.clone(), admit, &self.hub.0.stopping);
        self.hub.0.send(&mut live, &key, LaneJob::Run(Box::new(queued)));
        self.hub.0.arrivals.notify_waiters();
        Ok((tape, admission, true))
    }

    /// Returns the tape of the host run of an absorbed message, while that run is live.
    fn host_of(self, row: &RunRow) -> Option<Arc<Tape>> {
        let RunState::Absorbed(host) = &row.state else { return None };
        self.hub.0.lock().runs.get(host).map(|host| host.tape.clone())
    }
}
