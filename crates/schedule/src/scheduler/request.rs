//! Requests to the scheduler: add, change, remove and run jobs.

use homard_agent::profile::Agents;
use homard_proto::{Extra, RunId};
use serde_json::json;
use tokio::sync::oneshot;

use super::{Error, Scheduler};
use crate::{
    JobCheck, due,
    edit::{self, JobContext},
    job::CronJob,
};

/// Result of a request to run a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunNowResult {
    /// It is running, or has just run.
    Started(RunId),
    /// It is not due.
    NotDue,
    /// It is already running.
    AlreadyRunning,
}

/// Whether a job runs unconditionally, or only if it is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunMode {
    /// Only if it is due.
    Due,
    /// Unconditionally.
    Force,
}

type ReplySender<T> = oneshot::Sender<Result<T, Error>>;

/// A request to the scheduler.
pub(crate) enum ScheduleRequest {
    Add(Extra, JobCheck, ReplySender<CronJob>),
    Change((String, Extra), JobCheck, ReplySender<CronJob>),
    Remove(String, ReplySender<bool>),
    Run(String, RunMode, ReplySender<RunNowResult>),
}

impl Scheduler {
    /// Executes a request. The caller may have gone; the result is then dropped.
    pub(super) async fn handle(&mut self, request: ScheduleRequest) {
        match request {
            ScheduleRequest::Add(fields, check, reply) => reply.send(self.add(fields, check).await).ok(),
            ScheduleRequest::Change((id, patch), check, reply) => reply.send(self.change(&id, patch, check).await).ok(),
            ScheduleRequest::Remove(id, reply) => reply.send(self.remove(&id).await).ok(),
            ScheduleRequest::Run(id, mode, reply) => reply.send(self.run_now(&id, mode).await).ok(),
        };
    }

    async fn add(&mut self, fields: Extra, check: JobCheck) -> Result<CronJob, Error> {
        let id = self.hub.ambient().nonce();
        let mut job = edit::create(fields, &id, self.job_context(&self.hub.agents())).map_err(Error::Invalid)?;
        check(&job).map_err(Error::Invalid)?;
        self.plan(&mut job);
        let mut jobs = self.jobs.clone();
        jobs.push(job.clone());
        self.store_jobs(jobs).await?;
        let next = job.state.next_run_at_ms;
        self.events.publish("cron", json!({"jobId": job.id, "action": "added", "nextRunAtMs": next}));
        Ok(job)
    }

    async fn change(&mut self, id: &str, patch: Extra, check: JobCheck) -> Result<CronJob, Error> {
        let mut jobs = self.jobs.clone();
        let job = jobs.iter_mut().find(|job| job.id == id).ok_or_else(|| Error::Unknown(id.to_owned()))?;
        let mut changed = edit::change(job, patch, self.job_context(&self.hub.agents())).map_err(Error::Invalid)?;
        check(&changed).map_err(Error::Invalid)?;
        self.plan(&mut changed);
        job.clone_from(&changed);
        self.reported_problems.remove(id);
        self.store_jobs(jobs).await?;
        let next = changed.state.next_run_at_ms;
        self.events.publish("cron", json!({"jobId": id, "action": "updated", "nextRunAtMs": next}));
        Ok(changed)
    }

    async fn remove(&mut self, id: &str) -> Result<bool, Error> {
        let jobs: Vec<_> = self.jobs.iter().filter(|job| job.id != id).cloned().collect();
        if jobs.len() == self.jobs.len() {
            return Ok(false);
        }
        self.store_jobs(jobs).await?;
        self.events.publish("cron", json!({"jobId": id, "action": "removed"}));
        Ok(true)
    }

    async fn run_now(&mut self, id: &str, mode: RunMode) -> Result<RunNowResult, Error> {
        let now = self.now();
        let mut jobs = self.jobs.clone();
        let job = jobs.iter_mut().find(|job| job.id == id).ok_or_else(|| Error::Unknown(id.to_owned()))?;
        if let Some(reason) = job.unsupported() {
            return Err(Error::Invalid(reason));
        }
        if job.state.running_at_ms.is_some() {
            return Ok(RunNowResult::AlreadyRunning);
        }
        let due = due::due(job, &self.zone, now).ok().filter(|_| job.enabled);
        let slot = match (mode, due.and_then(|due| due.run)) {
            (RunMode::Due, None) => return Ok(RunNowResult::NotDue),
            (RunMode::Due, Some(slot)) => {
                job.state.settled_at_ms = Some(slot);
                slot
            }
            (RunMode::Force, _) => now,
        };
        let run =
            job.run_id(slot).ok_or_else(|| Error::Invalid(format!("job id \"{id}\" cannot be part of a run id")))?;
        job.state.running_at_ms = Some(now);
        job.state.running_slot_ms = Some(slot);
        self.store_jobs(jobs).await?;
        self.start(id, slot).await;
        Ok(RunNowResult::Started(run))
    }

    fn job_context<'a>(&'a self, agents: &'a Agents) -> JobContext<'a> {
        JobContext { agents, zone: &self.zone, now: self.now() }
    }

    /// Sets when a job runs next.
    fn plan(&self, job: &mut CronJob) {
        let after = job.state.settled_at_ms.unwrap_or(0).max(self.now());
        let next = due::next(job, &self.zone, after).ok().flatten();
        job.state.next_run_at_ms = next.filter(|_| job.enabled);
    }
}
