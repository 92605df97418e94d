//! What the hub does with runs that nobody is at work on: those that a restart finds, and those whose end was not stored.

use homard_proto::message::Usage;
use homard_store::{
    Accept, Ended, Error as StoreError, Failure, FailureKind, Outcome, Rec, RunRow, Unfinished,
    recovery::{self, Plan},
};
use tokio::sync::watch;

use super::{Admission, Hub, Inbound, shared::LiveRun};
use crate::{
    lane::{Job, Queued, Resume, epilogue::ending},
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
            match self.plan(&found).await? {
                Plan::Requeue => going_on.push((found.accept, None)),
                Plan::Resume(answers) => {
                    let resume = Resume { session: found.row.session, entries: found.entries, answers };
                    going_on.push((found.accept, Some(resume)));
                }
                Plan::End(outcome, answers) => endings.extend(ending(&self.0.ambient, &found, outcome, &answers)),
            }
        }
        // The ends first: a run that goes on reads the transcript behind them.
        self.0.writer.commit(endings).await?;
        // What was at work is at the end of its transcript, also before a message that the disk once kept from beginning.
        going_on.sort_by_key(|(_, resume)| resume.is_none());
        let count = going_on.len();
        going_on.into_iter().for_each(|(accept, resume)| self.requeue(accept, resume));
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
            let message = "INTERRUPTED: the program was restarted, and the session had got a new transcript".to_owned();
            return Ok(Plan::End(Outcome::Failed(Failure { kind: FailureKind::Internal, message }), answers));
        }
        Ok(Plan::Resume(answers))
    }

    /// How many runs are unfinished on disk.
    pub async fn unfinished(&self) -> Result<usize, StoreError> {
        Ok(self.0.store.recover().await?.len())
    }

    /// Takes nothing in from here on, and says why. For a start at which what is unfinished is better left alone.
    pub fn hold(&self, why: &str) {
        self.0.lock().held = Some(why.to_owned());
    }

    /// Puts a run that is on disk back in line.
    fn requeue(&self, accept: Accept, resume: Option<Resume>) {
        let asked = (accept.principal.clone(), accept.method.clone(), accept.fingerprint.clone());
        let tape = Tape::new(accept.run.clone(), accept.key.clone(), accept.at, self.0.feed.clone());
        let (admit, admission) = watch::channel(Admission::Accepted);
        let key = accept.key.clone();
        let mut inbound = Inbound::from(accept);
        inbound.command = self.0.rules.command(&inbound.principal, &inbound.message.content.text());
        let queued = Queued::new(inbound, tape.clone(), admit, &self.0.stopping);
        let queued = match resume {
            Some(resume) => queued.resuming(resume),
            None => queued,
        };
        let mut live = self.0.lock();
        live.runs.insert(tape.run().clone(), LiveRun { tape, asked, admission });
        self.0.send(&mut live, &key, Job::Run(Box::new(queued)));
    }

    /// Ends a run whose end was not stored when it came: it is not alive, or its id would still be claimed.
    pub(super) async fn bury(&self, row: &RunRow) -> Result<Reported, StoreError> {
        let message = "INTERRUPTED: the run's end could not be stored when it came".to_owned();
        let ended = Ended {
            outcome: Outcome::Failed(Failure { kind: FailureKind::Internal, message }),
            replies: Vec::new(),
            model: (String::new(), String::new()),
            usage: Usage::default(),
            started_at: None,
            ended_at: self.0.ambient.now_ms(),
        };
        let terminal = Rec::Terminal { run: row.run.clone(), ended: Box::new(ended.clone()) };
        self.0.writer.commit(vec![terminal]).await?;
        Ok(Reported::from_row(row, &ended, &[]))
    }
}
