//! What the hub does with runs that nobody is at work on: those that a restart finds, and those whose end was not stored.

use homard_audit::{Fact, What};
use homard_store::{
    Accept, DeliveryRow, Error as StoreError, Failure, FailureKind, Outcome, Rec, RunRow, RunState, Unfinished,
    recovery::{self, Plan},
};
use tokio::sync::watch;

use super::{
    Admission, Hub, Inbound,
    shared::{Live, LiveRun, interrupted},
};
use crate::{
    command::Command,
    lane::{Job, Queued, Resume, epilogue::ending},
    post::line::Style,
    run::RunError,
    tape::Tape,
    wire::Reported,
};

impl Hub {
    /// Takes up what a restart finds unfinished: to be called once, before anything is submitted.
    ///
    /// Returns how many runs go on. The others have ended, and say so.
    pub async fn recover(&self) -> Result<usize, StoreError> {
        let (mut going_on, mut endings) = (Vec::new(), Vec::new());
        for found in self.0.store.recover().await? {
            let plan = self.plan(&found).await?;
            self.note_recovery(&found, &plan);
            match plan {
                Plan::Requeue => going_on.push((found.accept, None, Vec::new(), found.posted)),
                Plan::Resume(answers) => {
                    let resume = Resume {
                        session: found.row.session,
                        begun: found.row.started_at.into_iter().chain(found.row.taken_up).collect(),
                        entries: found.entries,
                        answers,
                    };
                    going_on.push((found.accept, Some(resume), found.guests, found.posted));
                }
                Plan::End(outcome, answers) => {
                    let inbound = Inbound::from(found.accept.clone());
                    let style = Style::of(&self.agents().of(found.row.key.agent()).working_in(inbound.cwd.as_ref()));
                    let line = self.0.line(&inbound, style);
                    endings.extend(ending(&self.0.ambient, (&found, line.as_deref()), outcome, &answers));
                }
            }
        }
        // The ends first: a run that goes on reads the transcript behind them.
        self.0.writer.commit(endings).await?;
        // What was at work is at the end of its transcript, also before a message that the disk once kept from beginning.
        going_on.sort_by_key(|(_, resume, ..)| resume.is_none());
        let count = going_on.len();
        // Before anything else is said to those who are to hear it.
        self.0.take_up_mail().await?;
        for (accept, resume, guests, posted) in going_on {
            self.requeue(accept, resume, (guests, posted));
        }
        self.take_up_children().await?;
        Ok(count)
    }

    /// What becomes of a run that a restart found. One whose session got a new transcript meanwhile cannot go on: its
    /// lane works in the new one.
    async fn plan(&self, found: &Unfinished) -> Result<Plan, StoreError> {
        let answers = match recovery::plan(found, self.0.ambient.now_ms()) {
            Plan::Resume(answers) => answers,
            plan @ (Plan::Requeue | Plan::End(..)) => return Ok(plan),
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
            Plan::End(..) => "ended",
        };
        let fact = Fact::new(What::Recovered).by(found.row.key.as_str()).ended(decision);
        self.audit().note(fact.with("run", found.row.run.as_str()));
    }

    /// How many runs are unfinished on disk.
    pub async fn unfinished(&self) -> Result<usize, StoreError> {
        Ok(self.0.store.recover().await?.len())
    }

    /// Takes nothing in from here on, and says why. For a start at which what is unfinished is better left alone.
    pub fn hold(&self, why: &str) {
        self.0.lock().held = Some(why.to_owned());
    }

    /// Puts a run that is on disk back in line, with the runs that end with it.
    fn requeue(&self, accept: Accept, resume: Option<Resume>, (guests, posted): (Vec<RunRow>, Vec<DeliveryRow>)) {
        let key = accept.key.clone();
        let mut live = self.0.lock();
        let at = accept.at;
        let mut queued = self.revive(&mut live, Inbound::from(accept), at);
        queued.host(guests.into_iter().map(|row| {
            let at = row.accepted_at;
            self.revive(&mut live, Inbound::from(row), at)
        }));
        let queued = queued.having_posted(posted);
        let queued = match resume {
            Some(resume) => queued.resuming(resume),
            None => queued,
        };
        self.0.send(&mut live, &key, Job::Run(Box::new(queued)));
    }

    /// A run that is on disk is alive again.
    fn revive(&self, live: &mut Live, mut inbound: Inbound, at: u64) -> Queued {
        let (run, key) = (inbound.run.clone(), inbound.key.clone());
        let tape = Tape::new(run.clone(), key, at, self.0.feed.clone());
        let (admit, admission) = watch::channel(Admission::Accepted);
        let text = inbound.message.content.text();
        inbound.command = match inbound.key.is_cron() {
            // A scheduled run has a transcript of its own.
            true => Some(Command::BeginWith(text)),
            false if inbound.is_literal => None,
            false => self.0.setup.rules().read(&inbound.principal, &text).command,
        };
        live.runs.insert(run, LiveRun::new(&tape, &inbound, admission));
        Queued::new(inbound, tape, admit, &self.0.stopping).found()
    }

    /// Ends a run whose end was not stored when it came: it is not alive, or its id would still be claimed.
    pub(super) async fn bury(&self, row: &RunRow) -> Result<Reported, StoreError> {
        let ended = interrupted(row.accepted_at, self.0.ambient.now_ms());
        let run = match &row.state {
            RunState::Absorbed(host) => host,
            RunState::Accepted | RunState::Running | RunState::Ended(_) => &row.run,
        };
        let terminal = Rec::Terminal { run: run.clone(), ended: Box::new(ended.clone()) };
        self.0.writer.commit(vec![terminal]).await?;
        Ok(Reported::from_row(row, &ended, &[]))
    }
}
