//! Held runs: runs that were active at several crashes in a row and may be their cause.
//!
//! A held run exists only in the store: its session serves new messages, and no restart resumes it. The owner
//! releases it (its message is queued again, behind newer messages) or drops it (it ends). After a day it ends by
//! itself.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use homard_audit::{AuditKind, AuditRecord};
use homard_events::trace::HeldRun;
use homard_proto::{RunId, message::ToolResult};
use homard_runtime::Ambient;
use homard_store::{
    Error as StoreError, Failure, FailureKind, Outcome, Rec, RunRow, RunState, UnfinishedRun, Verdict,
    recovery::{HOLD_EXPIRED, MAX_HOLD_MS},
};

use super::{HubRuns, recover::ResumedRun};
use crate::{
    delivery::queue_records,
    lane::{
        ResumeState,
        recovered_end::{close_records, end_records},
    },
    tape::stored::unfinished_runs,
    writer::WriteRequest,
};

/// Why a held run was neither released nor dropped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeldError {
    /// No held run has this id.
    #[error("run {0} is not held; list held runs with: homard runs held")]
    NotHeld(RunId),
    /// The decision could not be stored.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Builds the records that drop a held run without a hub. Its channel gets no message.
pub fn drop_records(ambient: &Ambient, unfinished: &UnfinishedRun) -> Vec<Rec> {
    end_records(ambient, unfinished, None, interrupted(DROPPED_REASON), &[])
}

/// Failure message of a run that the owner dropped.
const DROPPED_REASON: &str = "the run was active at several crashes in a row, was held, and was dropped";

fn interrupted(why: &str) -> Outcome {
    Outcome::Failed(Failure { kind: FailureKind::Internal, message: format!("INTERRUPTED: {why}") })
}

/// Ids of the currently held runs.
#[derive(Debug, Default)]
pub(crate) struct HeldRuns {
    /// Locked while a run is released, dropped or expired, so that only one of these happens to it.
    deciding: tokio::sync::Mutex<()>,
    runs: Mutex<BTreeSet<RunId>>,
}

impl HeldRuns {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<RunId>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Message to the sender of a run that is held.
const ON_HOLD_NOTICE: &str = "⚠️ Your message is on hold: the gateway crashed several times in a row while processing it. The owner \
                       can continue or drop it; without a decision it expires after a day. New messages are answered.";

/// A run that is held until the owner decides or it expires.
#[derive(Debug, Clone)]
pub(super) struct HeldEntry {
    pub(super) run: RunId,
    pub(super) held_at: u64,
}

impl HubRuns<'_> {
    /// Returns the held runs in order of acceptance.
    pub async fn held(self) -> Result<Vec<HeldRun>, StoreError> {
        Ok(self.hub.0.store.recover().await?.iter().filter_map(HeldRun::of).collect())
    }

    /// Returns the ids of the held runs without reading the store.
    pub fn held_ids(self) -> Vec<RunId> {
        self.hub.0.held.lock().iter().cloned().collect()
    }

    /// Queues a held run again.
    pub async fn release(self, run: &RunId) -> Result<(), HeldError> {
        let _one_at_a_time = self.hub.0.held.deciding.lock().await;
        self.find_held(run).await?;
        let release = Rec::Release { run: run.clone(), at: self.hub.0.ambient.now_ms() };
        if self.hub.0.writer.commit_with_verdicts(vec![release]).await?.first() != Some(&Verdict::Stored) {
            return Err(HeldError::NotHeld(run.clone()));
        }
        self.hub.0.held.lock().remove(run);
        self.note_held(run, "released");
        // Read again: the stored run has changed.
        let found = unfinished_runs(&*self.hub.0.store).await?.into_iter().find(|found| found.row.run == *run);
        let Some(found) = found else { return Err(HeldError::NotHeld(run.clone())) };
        let resume = Some(ResumeState::reentry(&found));
        let UnfinishedRun { accept, absorbed, deliveries, .. } = found.into_inner();
        self.hub.lifecycle().requeue(ResumedRun { accept, resume, absorbed, deliveries });
        Ok(())
    }

    /// Ends a held run.
    pub async fn drop_held(self, run: &RunId) -> Result<(), HeldError> {
        self.end_held(run, interrupted(DROPPED_REASON)).await?;
        self.note_held(run, "dropped");
        Ok(())
    }

    /// Lists a run as held and ends it when it expires.
    pub(super) fn keep_held(self, entry: HeldEntry) {
        self.hub.0.held.lock().insert(entry.run.clone());
        let hub = self.hub.clone();
        self.hub.0.spawn_until_drained("held-run", async move {
            let remaining_ms = entry.held_at.saturating_add(MAX_HOLD_MS).saturating_sub(hub.0.ambient.now_ms());
            tokio::time::sleep(Duration::from_millis(remaining_ms.saturating_add(1))).await;
            match hub.runs().end_held(&entry.run, interrupted(HOLD_EXPIRED)).await {
                Ok(()) => hub.runs().note_held(&entry.run, "expired"),
                // Released or dropped in the meantime.
                Err(HeldError::NotHeld(_)) => {}
                Err(HeldError::Store(error)) => {
                    tracing::warn!(run = %entry.run, %error, "failed to end an expired run; the next start ends it");
                }
            }
        });
    }

    async fn end_held(self, run: &RunId, outcome: Outcome) -> Result<(), HeldError> {
        let _one_at_a_time = self.hub.0.held.deciding.lock().await;
        let found = self.find_held(run).await?;
        let records = self.hub.lifecycle().end_records(&found, outcome, &[]);
        let mut deliveries = Vec::new();
        for record in &records {
            if let Rec::Queue(delivery) = record {
                deliveries.push((**delivery).clone());
            }
        }
        let (request, verdicts) = WriteRequest::with_verdicts(records);
        self.hub.0.send_with_deliveries(request, deliveries, None);
        verdicts.await?;
        self.hub.0.held.lock().remove(run);
        // Waiters read the end of the run from the store.
        self.hub.0.arrivals.notify_waiters();
        Ok(())
    }

    /// Returns the held run that a stored run waits for: itself, or its host run.
    pub(super) async fn held_for(self, row: &RunRow) -> Result<Option<RunId>, StoreError> {
        let run = match &row.state {
            RunState::Absorbed(host) => host,
            RunState::Accepted | RunState::Running | RunState::Held | RunState::Ended(_) => &row.run,
        };
        let found = self.hub.0.store.run(run).await?;
        Ok(found.filter(|row| row.state == RunState::Held).map(|row| row.run))
    }

    async fn find_held(self, run: &RunId) -> Result<UnfinishedRun, HeldError> {
        let found = self.hub.0.store.recover().await?.into_iter();
        let mut held = found.filter(|found| found.row.state == RunState::Held);
        held.find(|found| found.row.run == *run).ok_or_else(|| HeldError::NotHeld(run.clone()))
    }

    /// Builds the records that hold a run. Its open tool calls are answered first, so that the session can continue
    /// without it; its sender gets a message on the channel it came from.
    pub(super) fn hold_records(self, unfinished: &UnfinishedRun, answers: &[ToolResult]) -> Vec<Rec> {
        let at = self.hub.0.ambient.now_ms();
        let mut records = close_records(&self.hub.0.ambient, unfinished, answers);
        if let Some(output) = self.hub.lifecycle().output_of(unfinished) {
            output.resume(&unfinished.deliveries);
            // The number of attempts makes the name unique if a released run is held again.
            let name = format!("held{}", unfinished.attempts.len());
            records.extend(queue_records(&output.notice(&name, ON_HOLD_NOTICE, at)));
        }
        records.push(Rec::Hold { run: unfinished.row.run.clone(), at });
        records
    }

    fn note_held(self, run: &RunId, decision: &str) {
        self.hub.audit().note(AuditRecord::new(AuditKind::Recovered).outcome(decision).with("run", run.as_str()));
    }
}
