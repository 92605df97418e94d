//! Scheduled work: cron jobs, and heartbeats.
//!
//! [`job`] is the job format, [`due`] decides when it runs (pure), [`store`] stores jobs, `scheduler` is the scheduler
//! task and [`heartbeat`] the task that wakes the main sessions. All other code uses a [`Schedule`], which sends
//! requests to these tasks.

mod answer_target;
pub mod due;
mod edit;
pub mod heartbeat;
pub mod job;
mod run;
mod scheduler;
mod slot_state;
pub mod store;

use std::sync::Arc;

use homard_agent::{ChangeError, Hub};
use homard_proto::{AgentId, Extra};
use homard_runtime::task;
use homard_store::{Authority, Error as StoreError};
use jiff::tz::TimeZone;
use serde_json::Value;
use tokio::{
    sync::{broadcast, mpsc, oneshot, watch},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use self::{
    heartbeat::{HeartbeatConfig, Heartbeats},
    job::{CronJob, WakeMode},
    scheduler::{ScheduleParts, ScheduleRequest, Scheduler},
    store::JobStore,
};

pub use scheduler::{Error, RunMode, RunNowResult, ScheduleView};

/// Capacity of the request queue: every request has a waiting caller.
const REQUEST_QUEUE: usize = 64;
/// Number of events kept for a slow subscriber; older ones are lost to it.
const EVENT_BUFFER: usize = 256;

/// Settings of the schedule.
#[derive(Debug)]
pub struct ScheduleSettings {
    /// True if jobs run at all.
    pub is_enabled: bool,
    /// The machine's time zone, for jobs without one.
    pub zone: TimeZone,
    /// Heartbeats, one for each agent that has one.
    pub heartbeats: Vec<HeartbeatConfig>,
    /// Reads an agent's HEARTBEAT.md.
    pub file: heartbeat::HeartbeatFile,
}

/// Handle of the schedule. Clones are cheap and share the same state.
#[derive(Debug, Clone)]
pub struct Schedule {
    requests: mpsc::Sender<ScheduleRequest>,
    view: watch::Receiver<Arc<ScheduleView>>,
    store: Arc<dyn JobStore>,
    heartbeats: Heartbeats,
    events: ScheduleEvents,
    hub: Hub,
}

/// The schedule's tasks; they end when their token is cancelled.
#[derive(Debug)]
pub struct ScheduleTasks(JoinHandle<()>, JoinHandle<()>);

impl ScheduleTasks {
    /// Waits until both have ended.
    pub async fn ended(self) {
        for task in [self.0, self.1] {
            if let Err(error) = task.await {
                tracing::error!(%error, "a scheduler task failed");
            }
        }
    }
}

/// Checks whether a job is allowed; an error says why not.
pub type JobCheck = Box<dyn Fn(&CronJob) -> Result<(), String> + Send>;

impl Schedule {
    /// Loads the jobs and starts to run them. Call it after the hub has recovered; stop it before the hub shuts down.
    pub async fn start(
        hub: &Hub,
        store: Arc<dyn JobStore>,
        settings: ScheduleSettings,
        stop: CancellationToken,
    ) -> Result<(Self, ScheduleTasks), StoreError> {
        let (events, zone) = (ScheduleEvents::new(), settings.zone.clone());
        let (heartbeats, heartbeat_task) =
            heartbeat::prepare(hub, settings.zone, settings.heartbeats, settings.file, &events);
        let parts =
            ScheduleParts { heartbeats: heartbeats.clone(), events: events.clone(), is_enabled: settings.is_enabled };
        let (scheduler, view) = Scheduler::load(hub.clone(), store.clone(), zone, parts).await?;
        let (requests, receiver) = mpsc::channel(REQUEST_QUEUE);
        let tasks = ScheduleTasks(
            task::spawn("schedule", scheduler.run(receiver, stop.clone())),
            task::spawn("heartbeat", heartbeat_task.run(stop)),
        );
        Ok((Self { requests, view, store, heartbeats, events, hub: hub.clone() }, tasks))
    }

    /// Returns the jobs.
    pub fn view(&self) -> Arc<ScheduleView> {
        self.view.borrow().clone()
    }

    /// Returns the location of the jobs, for messages.
    pub fn location(&self) -> String {
        self.store.location()
    }

    /// Subscribes to `cron` and `heartbeat` events.
    pub fn subscribe(&self) -> broadcast::Receiver<(&'static str, Value)> {
        self.events.0.subscribe()
    }

    /// Adds a job.
    pub async fn add(&self, fields: Extra) -> Result<CronJob, Error> {
        self.add_if(fields, Box::new(|_| Ok(()))).await
    }

    /// Adds a job if it is allowed.
    pub async fn add_if(&self, fields: Extra, check: JobCheck) -> Result<CronJob, Error> {
        self.send_request(|reply| ScheduleRequest::Add(fields, check, reply)).await
    }

    /// Changes a job.
    pub async fn update(&self, id: &str, patch: Extra) -> Result<CronJob, Error> {
        self.update_if(id, patch, Box::new(|_| Ok(()))).await
    }

    /// Changes a job if the result is allowed.
    pub async fn update_if(&self, id: &str, patch: Extra, check: JobCheck) -> Result<CronJob, Error> {
        self.send_request(|reply| ScheduleRequest::Change((id.to_owned(), patch), check, reply)).await
    }

    /// Removes a job. Returns true if it existed. Its run history is kept.
    pub async fn remove(&self, id: &str) -> Result<bool, Error> {
        self.send_request(|reply| ScheduleRequest::Remove(id.to_owned(), reply)).await
    }

    /// Runs a job now. Does not wait for its end.
    pub async fn run(&self, id: &str, mode: RunMode) -> Result<RunNowResult, Error> {
        self.send_request(|reply| ScheduleRequest::Run(id.to_owned(), mode, reply)).await
    }

    /// Returns the run history of a job, oldest first.
    pub async fn history(&self, id: &str) -> Result<Vec<Value>, Error> {
        Ok(self.store.history(id).await?)
    }

    /// Sends an event to an agent's main session, and wakes it according to `wake`. The heartbeat that consumes it has
    /// no more authority than this.
    pub async fn wake(
        &self,
        agent: Option<AgentId>,
        text: &str,
        authority: Authority,
        wake: &WakeMode,
    ) -> Result<(), ChangeError> {
        let agent = agent.unwrap_or_else(|| self.hub.agents().default_id().clone());
        self.hub.sessions().note_event_of(&agent.main_session(), text.to_owned(), authority).await?;
        if *wake != WakeMode::NextHeartbeat {
            self.heartbeats.wake(agent, "wake".to_owned());
        }
        Ok(())
    }

    /// Returns the heartbeats.
    pub fn heartbeats(&self) -> &Heartbeats {
        &self.heartbeats
    }

    async fn send_request<T>(
        &self,
        build_request: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> ScheduleRequest,
    ) -> Result<T, Error> {
        let (sender, reply) = oneshot::channel();
        if self.requests.send(build_request(sender)).await.is_err() {
            return Err(Error::Stopping);
        }
        reply.await.unwrap_or(Err(Error::Stopping))
    }
}

/// Publishes events as name and payload.
#[derive(Debug, Clone)]
struct ScheduleEvents(broadcast::Sender<(&'static str, Value)>);

impl ScheduleEvents {
    fn new() -> Self {
        Self(broadcast::channel(EVENT_BUFFER).0)
    }

    fn publish(&self, event: &'static str, payload: Value) {
        // There may be no subscribers.
        self.0.send((event, payload)).ok();
    }
}

#[cfg(test)]
mod tests;
