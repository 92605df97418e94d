//! Recovery of runs without a task: those found after a restart, and those whose end could not be stored.

use std::sync::Arc;

use homard_audit::{AuditKind, AuditRecord};
use homard_command::Command;
use homard_delivery::run_output::RunOutput;
use homard_proto::{SessionKey, message::ToolResult};
use homard_store::{
    Accept, DeliveryRow, Error as StoreError, Failure, FailureKind, Outcome, Rec, RunRow, RunState, UnfinishedRun,
    recovery::{self, RecoveryPlan},
};
use tokio::sync::watch;

use super::{
    Admission, HubLifecycle, Inbound,
    held::HeldEntry,
    shared::{LiveRun, LiveState, interrupted},
};
use crate::{
    delivery::output_style,
    lane::{LaneJob, ResumeState, Ticket, recovered_end::end_records},
    run::RunError,
    tape::{StoredValue, Tape},
    tool::RunOrigin,
    wire::RunReport,
};

/// Result of a recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecoveryResult {
    /// Number of runs that were queued again or resumed.
    pub resumed: usize,
    /// Number of held runs.
    pub held: usize,
}

/// What happens to runs that were active at several crashes in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CrashLoops {
    /// They are held.
    #[default]
    Hold,
    /// They are resumed, and so are runs that are held already.
    Resume,
}

/// A run to resume, with its stored state.
pub(super) struct ResumedRun {
    pub(super) accept: Accept,
    pub(super) resume: Option<ResumeState>,
    pub(super) absorbed: Vec<RunRow>,
    pub(super) deliveries: Vec<DeliveryRow>,
}

impl HubLifecycle<'_> {
    /// Recovers all unfinished runs and undelivered messages of earlier processes. For the gateway's start.
    ///
    /// When this returns, runs that are not resumed have ended or are held.
    pub async fn recover(self, loops: CrashLoops) -> Result<RecoveryResult, StoreError> {
        let mut backlog = self.hub.0.backlog.open(&*self.hub.0.store).await?;
        let (resumed, result) = self.settle_unfinished(backlog.all(), loops).await?;
        // Before any new message is sent on the channels.
        self.hub.0.recover_outbox().await?;
        backlog.all_done();
        drop(backlog);
        self.requeue_all(resumed);
        self.hub.children().recover().await?;
        self.hub.background().recover().await?;
        Ok(result)
    }

    /// Recovers the unfinished runs of one session, which precede anything new in it. Every request does this; a caller
    /// that wants to know which runs it waits for may do it first.
    pub async fn recover_session(self, key: &SessionKey) -> Result<RecoveryResult, StoreError> {
        if self.hub.0.backlog.is_empty() {
            return Ok(RecoveryResult::default());
        }
        let mut backlog = self.hub.0.backlog.open(&*self.hub.0.store).await?;
        let unfinished = backlog.of(key);
        if unfinished.is_empty() {
            return Ok(RecoveryResult::default());
        }
        let (resumed, result) = self.settle_unfinished(unfinished, CrashLoops::Hold).await?;
        // While the backlog is locked, so that the next request finds these runs in the queue.
        self.requeue_all(resumed);
        backlog.done(key);
        Ok(result)
    }

    /// Ends and holds the runs that are not resumed, in one commit.
    async fn settle_unfinished(
        self,
        unfinished: Vec<StoredValue<UnfinishedRun>>,
        loops: CrashLoops,
    ) -> Result<(Vec<ResumedRun>, RecoveryResult), StoreError> {
        let (mut resumed, mut records, mut held) = (Vec::new(), Vec::new(), Vec::new());
        for run in unfinished {
            let plan = self.plan(&run, loops).await?;
            self.note_recovery(&run, &plan);
            let starts = run.row.started_at.into_iter().chain(run.row.resumed_at.iter().copied()).collect();
            let resumed_run = |resume| ResumedRun {
                accept: run.accept.clone(),
                resume,
                absorbed: run.absorbed.clone(),
                deliveries: run.deliveries.clone(),
            };
            match plan {
                RecoveryPlan::Requeue => resumed.push(resumed_run(None)),
                RecoveryPlan::Resume(answers) => {
                    let (session, entries) = (run.row.session.clone(), run.entries());
                    resumed.push(resumed_run(Some(ResumeState {
                        session,
                        starts,
                        entries,
                        known_results: answers,
                        reentry: None,
                    })));
                }
                RecoveryPlan::Reenter => resumed.push(resumed_run(Some(ResumeState::reentry(&run)))),
                RecoveryPlan::Hold(answers) => {
                    records.extend(self.hub.runs().hold_records(&run, &answers));
                    held.push(HeldEntry { run: run.row.run.clone(), held_at: self.hub.0.ambient.now_ms() });
                }
                RecoveryPlan::StayHeld => {
                    let held_at = run.row.hold.map_or(run.row.accepted_at, |hold| hold.held_at);
                    held.push(HeldEntry { run: run.row.run.clone(), held_at });
                }
                RecoveryPlan::End(outcome, answers) => {
                    records.extend(self.end_records(&run, outcome, &answers));
                    if let Some(session) = run.row.session.clone().filter(|_| run.accept.options.is_ephemeral) {
                        records.push(Rec::Delete { key: run.row.key.clone(), expect: session });
                    }
                }
            }
        }
        // Ends are committed first: a resumed run reads the transcript after them.
        self.hub.0.writer.commit(records).await?;
        // Runs that were active go first, because their entries are at the end of the transcript; also before a message
        // that could not be started because of a storage failure.
        resumed.sort_by_key(|run: &ResumedRun| run.resume.as_ref().is_none_or(|resume| resume.reentry.is_some()));
        let result = RecoveryResult { resumed: resumed.len(), held: held.len() };
        held.into_iter().for_each(|held| self.hub.runs().keep_held(held));
        Ok((resumed, result))
    }

    /// Builds the records that end a run which is not resumed.
    pub(super) fn end_records(self, unfinished: &UnfinishedRun, outcome: Outcome, answers: &[ToolResult]) -> Vec<Rec> {
        end_records(&self.hub.0.ambient, unfinished, self.output_of(unfinished).as_deref(), outcome, answers)
    }

    /// Builds the channel output of a recovered run; `None` if it did not come from a channel.
    pub(super) fn output_of(self, unfinished: &UnfinishedRun) -> Option<Arc<RunOutput>> {
        let inbound = Inbound::from(unfinished.accept.clone());
        let key = &unfinished.row.key;
        let profile = self
            .hub
            .agents()
            .of(key.agent())
            .in_session(key, inbound.options.cwd.as_ref())
            .overridden(&inbound.options.overrides);
        let style = output_style(&profile, &RunOrigin::of(&inbound), &unfinished.row.key);
        self.hub.0.run_output(&inbound, style)
    }

    fn requeue_all(self, runs: Vec<ResumedRun>) {
        runs.into_iter().for_each(|run| self.requeue(run));
    }

    /// Decides what happens to a recovered run. A run whose session got a new transcript in the meantime cannot be
    /// resumed, because its lane works in the new transcript.
    async fn plan(self, unfinished: &UnfinishedRun, loops: CrashLoops) -> Result<RecoveryPlan, StoreError> {
        let answers = match recovery::plan(unfinished, self.hub.0.ambient.now_ms()) {
            RecoveryPlan::Resume(answers) => answers,
            RecoveryPlan::Hold(answers) if loops == CrashLoops::Resume => answers,
            plan @ (RecoveryPlan::Requeue
            | RecoveryPlan::Reenter
            | RecoveryPlan::Hold(_)
            | RecoveryPlan::StayHeld
            | RecoveryPlan::End(..)) => return Ok(plan),
        };
        if let Some(session) = &unfinished.row.session
            && self.hub.0.store.find(session).await?.as_ref() != Some(&unfinished.row.key)
        {
            let message = RunError::Orphaned.to_string();
            return Ok(RecoveryPlan::End(Outcome::Failed(Failure { kind: FailureKind::Internal, message }), answers));
        }
        Ok(RecoveryPlan::Resume(answers))
    }

    fn note_recovery(self, unfinished: &UnfinishedRun, plan: &RecoveryPlan) {
        let decision = match plan {
            RecoveryPlan::Requeue => "requeued",
            RecoveryPlan::Resume(_) => "resumed",
            RecoveryPlan::Reenter => "released",
            RecoveryPlan::Hold(_) | RecoveryPlan::StayHeld => "held",
            RecoveryPlan::End(..) => "ended",
        };
        let record = AuditRecord::new(AuditKind::Recovered).actor(unfinished.row.key.as_str()).outcome(decision);
        self.hub.audit().note(record.with("run", unfinished.row.run.as_str()));
    }

    /// Returns the number of runs of earlier processes that were not recovered yet, without held runs.
    pub async fn unfinished(self) -> Result<usize, StoreError> {
        if self.hub.0.backlog.is_empty() {
            return Ok(0);
        }
        Ok(self.hub.0.backlog.open(&*self.hub.0.store).await?.waiting())
    }

    /// Puts a stored run back into its session's queue, with the runs absorbed by it.
    pub(super) fn requeue(self, run: ResumedRun) {
        let ResumedRun { accept, resume, absorbed, deliveries } = run;
        let key = accept.key.clone();
        let mut live = self.hub.0.lock();
        let at = accept.at;
        let mut ticket = self.restore(&mut live, Inbound::from(accept), at);
        ticket.host(absorbed.into_iter().map(|row| {
            let at = row.accepted_at;
            self.restore(&mut live, Inbound::from(row), at)
        }));
        let ticket = ticket.with_deliveries(deliveries);
        let ticket = match resume {
            Some(resume) => ticket.resuming(resume),
            None => ticket,
        };
        self.hub.0.send(&mut live, &key, LaneJob::Run(Box::new(ticket)));
        self.hub.0.arrivals.notify_waiters();
    }

    /// Registers a stored run as live again.
    fn restore(self, live: &mut LiveState, mut inbound: Inbound, at: u64) -> Ticket {
        let (run, key) = (inbound.id.run.clone(), inbound.session.key.clone());
        let tape = Tape::new(run.clone(), key, at, self.hub.0.feed.clone());
        let (admit, admission) = watch::channel(Admission::Accepted);
        let text = inbound.message.content.text();
        inbound.command = match inbound.session.key.is_cron() {
            // A scheduled run has a transcript of its own.
            true => Some(Command::NewTranscriptWith(text)),
            false if inbound.is_literal => None,
            false => {
                let command = self.hub.0.config.rules().parse(&inbound.sender.principal, &text).command;
                // The set of commands may have changed since the message was accepted; its authority has not.
                command.filter(|command| inbound.sender.authority.is_full() || !command.needs_admin())
            }
        };
        live.runs.insert(run, LiveRun::new(&tape, &inbound, admission));
        Ticket::new(inbound, tape, admit, &self.hub.0.stopping).recovered()
    }

    /// Ends a run whose terminal record could not be stored when it ended. It is not live, or its id would still be
    /// claimed.
    pub(super) async fn force_end(self, row: &RunRow) -> Result<RunReport, StoreError> {
        let ended = interrupted(row.accepted_at, self.hub.0.ambient.now_ms());
        let run = match &row.state {
            RunState::Absorbed(host) => host,
            RunState::Accepted | RunState::Running | RunState::Held | RunState::Ended(_) => &row.run,
        };
        let terminal = Rec::Terminal { run: run.clone(), ended: Box::new(ended.clone()) };
        self.hub.0.writer.commit(vec![terminal]).await?;
        Ok(RunReport::from_row(row, &ended, &[]))
    }
}
