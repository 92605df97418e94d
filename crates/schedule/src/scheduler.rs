//! The scheduler task, which runs jobs when they are due. It is the only writer of jobs.
//!
//! A slot is stored in the job before it runs; its run id is derived from it; and the slot is removed from the job only
//! after its end is in the run history. So after a crash at any point the next process submits the same run again, and
//! the hub knows whether it has run.

mod request;

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use homard_agent::hub::Hub;
use homard_queue::slots::RunClass;
use homard_store::Error as StoreError;
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::{
    ScheduleEvents,
    answer_target::answer_target,
    due,
    heartbeat::Heartbeats,
    job::{CronJob, JobPayload, JobSchedule, WakeMode},
    run::{self, ScheduledResult, ScheduledRun},
    slot_state::{RunningSlot, SettleOutput, record_end, run_entry, settle},
    store::JobStore,
};

pub(super) use request::ScheduleRequest;
pub use request::{RunMode, RunNowResult};

/// Maximum sleep, because the system clock may be changed in the meantime.
const MAX_SLEEP: Duration = Duration::from_secs(30);
/// Minimum sleep.
const MIN_SLEEP: Duration = Duration::from_millis(20);
/// How late an interrupted slot may still be run by the next process.
const MAX_RESUME_DELAY_MS: u64 = 3_600_000;

/// Published view of the jobs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ScheduleView {
    /// Jobs, oldest first.
    pub jobs: Vec<CronJob>,
    /// Incremented with every change.
    pub revision: u64,
    /// True if the scheduler is enabled.
    pub is_enabled: bool,
}

/// Why a request to the schedule failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The request is invalid; the text says why.
    #[error("{0}")]
    Invalid(String),
    /// The job does not exist.
    #[error("unknown cron job id: {0}")]
    Unknown(String),
    /// It could not be stored; nothing has changed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The process is shutting down.
    #[error("the scheduler is stopping; try again after the gateway has restarted")]
    Stopping,
}

/// The scheduler.
pub(super) struct Scheduler {
    pub(super) hub: Hub,
    pub(super) store: Arc<dyn JobStore>,
    pub(super) zone: TimeZone,
    pub(super) heartbeats: Heartbeats,
    pub(super) events: ScheduleEvents,
    view: watch::Sender<Arc<ScheduleView>>,
    jobs: Vec<CronJob>,
    /// Jobs that this version cannot parse.
    unreadable: Vec<Value>,
    /// Last reported problem of each schedule, so that it is logged once.
    reported_problems: HashMap<String, String>,
    running_slots: FuturesUnordered<BoxFuture<'static, (RunningSlot, Option<ScheduledResult>)>>,
}

/// What a scheduler works with besides its jobs.
pub(super) struct ScheduleParts {
    pub(super) heartbeats: Heartbeats,
    pub(super) events: ScheduleEvents,
    pub(super) is_enabled: bool,
}

impl Scheduler {
    /// Creates a scheduler for the stored jobs.
    pub(super) async fn load(
        hub: Hub,
        store: Arc<dyn JobStore>,
        zone: TimeZone,
        parts: ScheduleParts,
    ) -> Result<(Self, watch::Receiver<Arc<ScheduleView>>), StoreError> {
        let ScheduleParts { heartbeats, events, is_enabled } = parts;
        let (mut jobs, mut unreadable) = (Vec::<CronJob>::new(), Vec::new());
        for value in store.load().await? {
            match serde_json::from_value::<CronJob>(value.clone()) {
                Ok(job) if !jobs.iter().any(|known| known.id == job.id) => jobs.push(job),
                Ok(_) | Err(_) => unreadable.push(value),
            }
        }
        if !unreadable.is_empty() {
            tracing::warn!(
                count = unreadable.len(),
                place = store.location(),
                "some cron jobs cannot be parsed; they are kept but not run"
            );
        }
        let (view, receiver) = watch::channel(Arc::new(ScheduleView { jobs: jobs.clone(), revision: 1, is_enabled }));
        let (reported_problems, running_slots) = (HashMap::new(), FuturesUnordered::new());
        Ok((
            Self { hub, store, zone, heartbeats, events, view, jobs, unreadable, reported_problems, running_slots },
            receiver,
        ))
    }

    /// Main loop of the scheduler.
    pub(super) async fn run(mut self, mut requests: mpsc::Receiver<ScheduleRequest>, stop: CancellationToken) {
        self.resume().await;
        loop {
            self.tick().await;
            let pause = self.pause();
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                Some((running, result)) = self.running_slots.next(), if !self.running_slots.is_empty() => {
                    if let Some(result) = result {
                        self.finish(running, result).await;
                    }
                }
                Some(request) = requests.recv() => self.handle(request).await,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    fn now(&self) -> u64 {
        self.hub.ambient().now_ms()
    }

    fn is_enabled(&self) -> bool {
        self.view.borrow().is_enabled
    }

    /// Returns the time until the next due job.
    fn pause(&self) -> Duration {
        let now = self.now();
        let next = self.jobs.iter().filter(|job| job.enabled).filter_map(|job| job.state.next_run_at_ms).min();
        let until = next.map_or(MAX_SLEEP, |next| Duration::from_millis(next.saturating_sub(now)));
        until.clamp(MIN_SLEEP, MAX_SLEEP)
    }

    /// Stores and publishes these jobs; on failure nothing changes.
    async fn store_jobs(&mut self, jobs: Vec<CronJob>) -> Result<(), StoreError> {
        let values = jobs.iter().map(|job| json!(job)).chain(self.unreadable.iter().cloned()).collect();
        self.store.save(values).await?;
        self.jobs = jobs;
        self.view.send_modify(|view| {
            *view = Arc::new(ScheduleView {
                jobs: self.jobs.clone(),
                revision: view.revision + 1,
                is_enabled: view.is_enabled,
            });
        });
        Ok(())
    }

    /// Checks every job, settles past slots and starts due ones.
    async fn tick(&mut self) {
        if !self.is_enabled() {
            return;
        }
        let now = self.now();
        let mut jobs = self.jobs.clone();
        let mut output = SettleOutput::default();
        for job in jobs.iter_mut().filter(|job| job.enabled && job.unsupported().is_none()) {
            match due::due(job, &self.zone, now) {
                Ok(due) => settle(job, &due, now, &mut output),
                Err(why) => {
                    let why = why.to_string();
                    if self.reported_problems.insert(job.id.clone(), why.clone()).as_ref() != Some(&why) {
                        tracing::warn!(job = job.id, why, "cron job cannot be scheduled");
                    }
                }
            }
        }
        let SettleOutput { lines, starts } = output;
        if jobs == self.jobs {
            return;
        }
        if let Err(error) = self.store_jobs(jobs).await {
            tracing::error!(%error, "failed to store the cron jobs; no job was started");
            return;
        }
        for (id, line) in lines {
            let line = self.append_history(&id, line).await;
            self.events.publish("cron", line);
        }
        for (id, slot) in starts {
            self.start(&id, slot).await;
        }
    }

    /// Executes a slot. It is already stored as running.
    async fn start(&mut self, id: &str, slot: u64) {
        let Some(job) = self.jobs.iter().find(|job| job.id == id).cloned() else { return };
        let now = self.now();
        let running = RunningSlot { job: job.id.clone(), slot, started_at_ms: now };
        self.events.publish("cron", json!({"jobId": id, "action": "started", "runAtMs": now}));
        match &job.payload {
            JobPayload::SystemEvent(event) => {
                let reply = self.notify_main(&job, &event.text).await.map(|()| event.text.clone());
                self.finish(running, ScheduledResult { reply, heartbeat: None, session: None, had_ended: false }).await;
            }
            JobPayload::AgentTurn(agent_turn) => {
                let text = run::prompt(&job, agent_turn, now, &self.zone);
                let ids = job.run_id(slot).zip(job.session(self.hub.agents().default_id()));
                let Some((run, key)) = ids else {
                    return self
                        .finish(
                            running,
                            ScheduledResult::failed(format!("job id \"{id}\" cannot be part of a session key")),
                        )
                        .await;
                };
                let inbound =
                    run::isolated(ScheduledRun { run, key, class: RunClass::Cron, text }, &job, agent_turn, now);
                let (hub, target) = (self.hub.clone(), answer_target(&job, agent_turn));
                let main = job.agent(self.hub.agents().default_id()).main_session();
                self.running_slots.push(Box::pin(async move {
                    let result = match run::with_delivery(&hub, inbound, &target, &main).await {
                        Ok(inbound) => run::run(&hub, inbound).await,
                        Err(reason) => Some(ScheduledResult::failed(reason)),
                    };
                    (running, result)
                }));
            }
            // Such a job is never due.
            JobPayload::Other(_) => {}
        }
    }

    /// Sends a job's event to the main session and wakes it.
    async fn notify_main(&mut self, job: &CronJob, text: &str) -> Result<(), String> {
        let agent = job.agent(self.hub.agents().default_id());
        let result = self.hub.sessions().note_event(&agent.main_session(), text.to_owned()).await;
        result.map_err(|error| error.to_string())?;
        if job.wake_mode != WakeMode::NextHeartbeat {
            self.heartbeats.wake(agent, format!("cron:{}", job.id));
        }
        Ok(())
    }

    /// Records the end of a slot: first in the run history, then in the job, so that a crash in between is detected. It is
    /// published last: a client that reads the job because of the event finds the end in it.
    async fn finish(&mut self, running: RunningSlot, result: ScheduledResult) {
        let now = self.now();
        let mut jobs = self.jobs.clone();
        let job = jobs.iter_mut().find(|job| job.id == running.job);
        let mut finished = None;
        if !(result.had_ended && self.is_in_history(&running).await) {
            let line = run_entry(&running, &result, job.as_deref(), self.hub.agents().default_id(), now);
            finished = Some(self.append_history(&running.job, line).await);
        }
        let Some(job) = job else { return self.publish_all(finished) };
        let is_last = matches!(job.schedule, JobSchedule::At(_)) && job.state.settled_at_ms == Some(running.slot);
        let is_deleted = is_last && result.reply.is_ok() && job.delete_after_run == Some(true);
        job.enabled &= !is_last;
        record_end(job, &running, result.reply.err(), now);
        if is_deleted {
            jobs.retain(|job| job.id != running.job);
        }
        let stored = self.store_jobs(jobs).await;
        self.publish_all(finished);
        match stored {
            Ok(()) if is_deleted => self.events.publish("cron", json!({"jobId": running.job, "action": "removed"})),
            Ok(()) => {}
            Err(error) => tracing::error!(%error, job = running.job, "failed to store the result of a cron run"),
        }
    }

    fn publish_all(&self, events: impl IntoIterator<Item = Value>) {
        events.into_iter().for_each(|event| self.events.publish("cron", event));
    }

    /// True if the run history contains this slot.
    async fn is_in_history(&mut self, running: &RunningSlot) -> bool {
        let history = self.store.history(&running.job).await.unwrap_or_default();
        history.iter().any(|line| line["slotMs"] == running.slot && line["outcome"] == "ran")
    }

    /// Appends to the run history of a job. Returns what was appended, for the event.
    async fn append_history(&mut self, job: &str, mut line: Value) -> Value {
        if let Some(fields) = line.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
        }
        if let Err(error) = self.store.append(job, line.clone()).await {
            tracing::error!(%error, job, "failed to append to the run log of a cron job");
        }
        line
    }

    /// Resumes the slots that the previous process was running.
    async fn resume(&mut self) {
        let now = self.now();
        for job in self.jobs.clone() {
            let Some(slot) = job.state.running_slot_ms else {
                if job.state.running_at_ms.is_some() {
                    // Written by OpenClaw: its outcome is unknown.
                    let jobs = self.jobs.iter().cloned().map(|mut other| {
                        other.state.running_at_ms = other.state.running_at_ms.filter(|_| other.id != job.id);
                        other
                    });
                    self.store_jobs_or_log(jobs.collect()).await;
                }
                continue;
            };
            let is_late = now.saturating_sub(slot) > MAX_RESUME_DELAY_MS;
            let is_isolated = matches!(job.payload, JobPayload::AgentTurn(_));
            if is_isolated && (!is_late || self.is_known(&job, slot).await) {
                self.start(&job.id, slot).await;
            } else {
                let result = ScheduledResult::failed("the gateway stopped while the job was running".to_owned());
                self.finish(
                    RunningSlot { job: job.id, slot, started_at_ms: job.state.running_at_ms.unwrap_or(now) },
                    result,
                )
                .await;
            }
        }
    }

    async fn store_jobs_or_log(&mut self, jobs: Vec<CronJob>) {
        if let Err(error) = self.store_jobs(jobs).await {
            tracing::error!(%error, "failed to store the cron jobs");
        }
    }

    /// True if the hub knows the run of a slot.
    async fn is_known(&mut self, job: &CronJob, slot: u64) -> bool {
        let Some(run) = job.run_id(slot) else { return false };
        let is_over =
            matches!(self.hub.runs().wait(&run, Duration::ZERO).await, Ok(homard_agent::hub::WaitResult::Ended(_)));
        is_over || self.hub.runs().session_of(&run).is_some()
    }
}
