//! Recovery of runs without a task: those found after a restart, and those whose end could not be stored.

use std::sync::Arc;

use homard_audit::{Fact, What};
use homard_proto::{SessionKey, message::ToolResult};
use homard_store::{
    Accept, DeliveryRow, Error as StoreError, Failure, FailureKind, Outcome, Rec, RunRow, RunState, Unfinished,
    recovery::{self, Plan},
};
use tokio::sync::watch;

use super::{
    Admission, Hub, Inbound,
    held::Held,
    shared::{Live, LiveRun, interrupted},
};
use crate::{
    command::Command,
    lane::{Job, Queued, Resume, epilogue::ending},
    post::line::{Line, Style},
    run::RunError,
    tape::Tape,
    tool::Origin,
    wire::Reported,
};

/// Result of a recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recovered {
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
pub(super) struct GoingOn {
    pub(super) accept: Accept,
    pub(super) resume: Option<Resume>,
    pub(super) absorbed: Vec<RunRow>,
    pub(super) posted: Vec<DeliveryRow>,
}

impl Hub {
    /// Recovers all unfinished runs and undelivered messages of earlier processes. For the gateway's start.
    ///
    /// When this returns, runs that are not resumed have ended or are held.
    pub async fn recover(&self, loops: CrashLoops) -> Result<Recovered, StoreError> {
        let mut backlog = self.0.backlog.open(&*self.0.store).await?;
        let (going_on, recovered) = self.settle_found(backlog.all(), loops).await?;
        // Before any new message is sent on the channels.
        self.0.take_up_mail().await?;
        backlog.all_done();
        drop(backlog);
        self.requeue_all(going_on);
        self.take_up_children().await?;
        self.take_up_commands().await?;
        Ok(recovered)
    }

    /// Recovers the unfinished runs of one session, which precede anything new in it. Every request does this; a caller
    /// that wants to know which runs it waits for may do it first.
    pub async fn recover_session(&self, key: &SessionKey) -> Result<Recovered, StoreError> {
        if self.0.backlog.is_empty() {
            return Ok(Recovered::default());
        }
        let mut backlog = self.0.backlog.open(&*self.0.store).await?;
        let found = backlog.of(key);
        if found.is_empty() {
            return Ok(Recovered::default());
        }
        let (going_on, recovered) = self.settle_found(found, CrashLoops::Hold).await?;
        // While the backlog is locked, so that the next request finds these runs in the queue.
        self.requeue_all(going_on);
        backlog.done(key);
        Ok(recovered)
    }

    /// Ends and holds the runs that are not resumed, in one commit.
    async fn settle_found(
        &self,
        all: Vec<Unfinished>,
        loops: CrashLoops,
    ) -> Result<(Vec<GoingOn>, Recovered), StoreError> {
        let (mut going_on, mut records, mut held) = (Vec::new(), Vec::new(), Vec::new());
        for found in all {
            let plan = self.plan(&found, loops).await?;
            self.note_recovery(&found, &plan);
            let begun = found.row.started_at.into_iter().chain(found.row.taken_up.iter().copied()).collect();
            let go_on = |resume| GoingOn {
                accept: found.accept.clone(),
                resume,
                absorbed: found.guests.clone(),
                posted: found.posted.clone(),
            };
            match plan {
                Plan::Requeue => going_on.push(go_on(None)),
                Plan::Resume(answers) => {
                    let (session, entries) = (found.row.session.clone(), found.entries.clone());
                    going_on.push(go_on(Some(Resume { session, begun, entries, answers, reentry: None })));
                }
                Plan::Reenter => going_on.push(go_on(Some(Resume::reentry(&found)))),
                Plan::Hold(answers) => {
                    records.extend(self.holding(&found, &answers));
                    held.push(Held { run: found.row.run.clone(), held_at: self.0.ambient.now_ms() });
                }
                Plan::StayHeld => {
                    let held_at = found.row.hold.map_or(found.row.accepted_at, |hold| hold.held_at);
                    held.push(Held { run: found.row.run.clone(), held_at });
                }
                Plan::End(outcome, answers) => {
                    records.extend(self.ending(&found, outcome, &answers));
                    if let Some(session) = found.row.session.clone().filter(|_| found.accept.options.is_ephemeral) {
                        records.push(Rec::Delete { key: found.row.key.clone(), expect: session });
                    }
                }
            }
        }
        // Ends are committed first: a resumed run reads the transcript after them.
        self.0.writer.commit(records).await?;
        // Runs that were active go first, because their entries are at the end of the transcript; also before a message
        // that could not be started because of a storage failure.
        going_on.sort_by_key(|run: &GoingOn| run.resume.as_ref().is_none_or(|resume| resume.reentry.is_some()));
        let recovered = Recovered { resumed: going_on.len(), held: held.len() };
        held.into_iter().for_each(|held| self.keep_held(held));
        Ok((going_on, recovered))
    }

    /// Builds the records that end a run which is not resumed.
    pub(super) fn ending(&self, found: &Unfinished, outcome: Outcome, answers: &[ToolResult]) -> Vec<Rec> {
        ending(&self.0.ambient, (found, self.line_of(found).as_deref()), outcome, answers)
    }

    /// Builds the channel output of a recovered run; `None` if it did not come from a channel.
    pub(super) fn line_of(&self, found: &Unfinished) -> Option<Arc<Line>> {
        let inbound = Inbound::from(found.accept.clone());
        let key = &found.row.key;
        let profile =
            self.agents().of(key.agent()).in_session(key, inbound.cwd.as_ref()).overridden(&inbound.overrides);
        let style = Style::of(&profile, (&Origin::of(&inbound), &found.row.key));
        self.0.line(&inbound, style)
    }

    fn requeue_all(&self, all: Vec<GoingOn>) {
        all.into_iter().for_each(|run| self.requeue(run));
    }

    /// Decides what happens to a recovered run. A run whose session got a new transcript in the meantime cannot be
    /// resumed, because its lane works in the new transcript.
    async fn plan(&self, found: &Unfinished, loops: CrashLoops) -> Result<Plan, StoreError> {
        let answers = match recovery::plan(found, self.0.ambient.now_ms()) {
            Plan::Resume(answers) => answers,
            Plan::Hold(answers) if loops == CrashLoops::Resume => answers,
            plan @ (Plan::Requeue | Plan::Reenter | Plan::Hold(_) | Plan::StayHeld | Plan::End(..)) => return Ok(plan),
        };
        if let Some(session) = &found.row.session
            && self.0.store.find(session).await?.as_ref() != Some(&found.row.key)
        {
            let message = RunError::Orphaned.to_string();
            return Ok(Plan::End(Outcome::Failed(Failure { kind: FailureKind::Internal, message }), answers));
        }
        Ok(Plan::Resume(answers))
    }

    fn note_recovery(&self, found: &Unfinished, plan: &Plan) {
        let decision = match plan {
            Plan::Requeue => "queued again",
            Plan::Resume(_) => "goes on",
            Plan::Reenter => "released",
            Plan::Hold(_) | Plan::StayHeld => "held",
            Plan::End(..) => "ended",
        };
        let fact = Fact::new(What::Recovered).by(found.row.key.as_str()).ended(decision);
        self.audit().note(fact.with("run", found.row.run.as_str()));
    }

    /// Returns the number of runs of earlier processes that were not recovered yet, without held runs.
    pub async fn unfinished(&self) -> Result<usize, StoreError> {
        if self.0.backlog.is_empty() {
            return Ok(0);
        }
        Ok(self.0.backlog.open(&*self.0.store).await?.waiting())
    }

    /// Puts a stored run back into its session's queue, with the runs absorbed by it.
    pub(super) fn requeue(&self, run: GoingOn) {
        let GoingOn { accept, resume, absorbed, posted } = run;
        let key = accept.key.clone();
        let mut live = self.0.lock();
        let at = accept.at;
        let mut queued = self.revive(&mut live, Inbound::from(accept), at);
        queued.host(absorbed.into_iter().map(|row| {
            let at = row.accepted_at;
            self.revive(&mut live, Inbound::from(row), at)
        }));
        let queued = queued.having_posted(posted);
        let queued = match resume {
            Some(resume) => queued.resuming(resume),
            None => queued,
        };
        self.0.send(&mut live, &key, Job::Run(Box::new(queued)));
        self.0.arrivals.notify_waiters();
    }

    /// Registers a stored run as live again.
    fn revive(&self, live: &mut Live, mut inbound: Inbound, at: u64) -> Queued {
        let (run, key) = (inbound.run.clone(), inbound.key.clone());
        let tape = Tape::new(run.clone(), key, at, self.0.feed.clone());
        let (admit, admission) = watch::channel(Admission::Accepted);
        let text = inbound.message.content.text();
        inbound.command = match inbound.key.is_cron() {
            // A scheduled run has a transcript of its own.
            true => Some(Command::BeginWith(text)),
            false if inbound.is_literal => None,
            false => {
                let command = self.0.setup.rules().read(&inbound.principal, &text).command;
                // The set of commands may have changed since the message was accepted; its authority has not.
                command.filter(|command| inbound.authority.is_full() || !command.needs_admin())
            }
        };
        live.runs.insert(run, LiveRun::new(&tape, &inbound, admission));
        Queued::new(inbound, tape, admit, &self.0.stopping).found()
    }

    /// Ends a run whose terminal record could not be stored when it ended. It is not live, or its id would still be
    /// claimed.
    pub(super) async fn bury(&self, row: &RunRow) -> Result<Reported, StoreError> {
        let ended = interrupted(row.accepted_at, self.0.ambient.now_ms());
        let run = match &row.state {
            RunState::Absorbed(host) => host,
            RunState::Accepted | RunState::Running | RunState::Held | RunState::Ended(_) => &row.run,
        };
        let terminal = Rec::Terminal { run: run.clone(), ended: Box::new(ended.clone()) };
        self.0.writer.commit(vec![terminal]).await?;
        Ok(Reported::from_row(row, &ended, &[]))
    }
}
