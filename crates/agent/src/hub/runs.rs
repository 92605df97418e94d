//! Runs as the hub shows them: stop them, wait for them, read their results.

use std::time::Duration;

use homard_proto::{RunId, SessionKey};
use homard_queue::slots::Slots;
use homard_store::{EndRecord, Error as StoreError, RunRow, RunState};

use super::{Admission, Hub, Inbound, LiveRunStatus, WaitResult, shared::LiveRun};
use crate::{
    event::AbortReason,
    tape::{Subscriber, TapeState},
    wire::{self, RunReport},
};

/// Runs of a hub. What [`Hub::runs`] returns.
#[derive(Debug, Clone, Copy)]
pub struct HubRuns<'a> {
    pub(super) hub: &'a Hub,
}

impl<'a> HubRuns<'a> {
    /// Returns the concurrency limits.
    pub fn slots(self) -> &'a Slots {
        &self.hub.0.slots
    }

    /// Aborts one run of a session, or all of them with the child runs they started. Returns the aborted runs. `/stop`
    /// also ends the session's background commands.
    pub async fn abort(self, key: &SessionKey, run: Option<RunId>, reason: AbortReason) -> Vec<RunId> {
        let is_all = run.is_none();
        let mut stopped = self.hub.0.abort(key, run, reason).await;
        if is_all {
            for child in self.hub.0.descendants(key) {
                stopped.extend(self.hub.0.abort(&child, None, reason).await);
            }
            if reason == AbortReason::Stop {
                self.hub.0.background.stop(key);
            }
        }
        stopped
    }

    /// Executes a stop command: aborts the session's runs and their child runs. Returns the aborted runs.
    pub async fn stop(self, command: &Inbound) -> Vec<RunId> {
        let stopped = self.abort(&command.session.key, None, AbortReason::Stop).await;
        match self.hub.sessions().get(&command.session.key).await {
            Ok(record) => self.hub.0.fire_command(command, record.as_deref()),
            Err(error) => {
                tracing::warn!(key = %command.session.key, %error, "failed to read the session");
                self.hub.0.fire_command(command, None);
            }
        }
        stopped
    }

    /// Returns active and queued runs, oldest first.
    pub fn live(self) -> Vec<LiveRunStatus> {
        let now = self.hub.0.ambient.now_ms();
        let mut runs: Vec<_> =
            self.hub.0.lock().runs.values().filter_map(|run| LiveRunStatus::of(&run.tape, now)).collect();
        runs.sort_by_key(|run| run.accepted_at);
        runs
    }

    /// Returns the session of a live run.
    pub fn session_of(self, run: &RunId) -> Option<SessionKey> {
        self.hub.0.lock().runs.get(run).map(|run| run.tape.key().clone())
    }

    /// Returns the session of a run, live or still in the store.
    pub async fn find_session(self, run: &RunId) -> Result<Option<SessionKey>, StoreError> {
        match self.session_of(run) {
            Some(key) => Ok(Some(key)),
            None => Ok(self.hub.0.store.run(run).await?.map(|row| row.key)),
        }
    }

    /// True if the session has an active or queued run.
    pub fn has_live(self, key: &SessionKey) -> bool {
        self.hub.0.lock().runs.values().any(|run| run.tape.key() == key)
    }

    /// Waits for the end of a run, up to a time limit, without affecting it.
    ///
    /// An unknown run is waited for like a slow one: its sender may be about to submit it.
    pub async fn wait(self, run: &RunId, timeout: Duration) -> Result<WaitResult, StoreError> {
        let timeout = tokio::time::sleep(timeout);
        tokio::pin!(timeout);
        loop {
            let claimed = self.hub.0.arrivals.notified();
            tokio::pin!(claimed);
            claimed.as_mut().enable();
            let follower = self.follow(run);
            let tape = follower.as_ref().map(|follower| follower.tape().clone());
            let state = match follower {
                Some(follower) => tokio::select! {
                    biased;
                    state = follower.end() => state,
                    () = &mut timeout => return Ok(tape.map_or(WaitResult::Timeout, |tape| WaitResult::now(&tape))),
                },
                None => TapeState::Rejected,
            };
            if let (Some(tape), true) = (tape, state != TapeState::Rejected) {
                return Ok(WaitResult::now(&tape));
            }
            let row = self.hub.0.store.run(run).await?;
            if let Some(row) = row
                && let RunState::Ended(ended) = &row.state
            {
                return Ok(WaitResult::Ended(Box::new(self.report_end(&row, ended).await?)));
            }
            tokio::select! {
                biased;
                () = claimed => {}
                () = &mut timeout => return Ok(WaitResult::Timeout),
            }
        }
    }

    /// Subscribes to the events of a live run from its beginning; `None` if it is not live.
    pub fn follow(self, run: &RunId) -> Option<Subscriber> {
        self.hub.0.lock().runs.get(run).map(|run| Subscriber::new(run.tape.clone()))
    }

    /// Same as `follow`, but waits until a request that claims the run's id is admitted: the repetition of a request whose
    /// run has ended is no live run.
    pub async fn follow_admitted(self, run: &RunId) -> Option<Subscriber> {
        let (tape, mut admission) = self.hub.0.lock().runs.get(run).map(LiveRun::claim)?;
        let admitted = admission.wait_for(|admission| !matches!(admission, Admission::Pending)).await;
        // The sender is gone only if the run is.
        matches!(admitted.as_deref(), Ok(Admission::Accepted) | Err(_)).then(|| Subscriber::new(tape))
    }

    /// Returns the result of a finished run with its replies; `None` if it has not ended or is unknown.
    pub async fn result(self, run: &RunId) -> Result<Option<RunReport>, StoreError> {
        match self.hub.0.store.run(run).await? {
            Some(row) => self.report(&row).await,
            None => Ok(None),
        }
    }

    /// Returns the result of a stored run, with its replies from its transcript; `None` if it has not ended.
    pub(super) async fn report(self, row: &RunRow) -> Result<Option<RunReport>, StoreError> {
        let RunState::Ended(ended) = &row.state else { return Ok(None) };
        self.report_end(row, ended).await.map(Some)
    }

    async fn report_end(self, row: &RunRow, ended: &EndRecord) -> Result<RunReport, StoreError> {
        let entries = match &row.session {
            Some(session) if wire::is_in_transcript(ended) => self.hub.0.store.transcript(&row.key, session).await?,
            Some(_) | None => None,
        };
        Ok(RunReport::from_row(row, ended, &entries.unwrap_or_default()))
    }
}
