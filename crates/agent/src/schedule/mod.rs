//! Scheduled work: cron jobs, and heartbeats.
//!
//! [`job`] is the job format, [`due`] decides when it runs (pure), [`shelf`] stores jobs, `clock` is the scheduler task
//! and [`heartbeat`] the task that wakes the main sessions. All other code uses a [`Schedule`], which sends requests to
//! these tasks.

mod address;
mod clock;
pub mod due;
mod edit;
pub mod heartbeat;
pub mod job;
mod settle;
pub mod shelf;
mod turn;

pub(crate) use turn::SCHEDULE;

use std::sync::Arc;

use homard_proto::{AgentId, Extra};
use homard_store::{Authority, Error as StoreError};
use jiff::tz::TimeZone;
use serde_json::Value;
use tokio::{
    sync::{broadcast, mpsc, oneshot, watch},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use self::{
    clock::{Clock, Wish},
    heartbeat::{Heart, Pulse},
    job::{Job, Wake},
    shelf::Shelf,
};
use crate::{hub::Hub, lane::chores::ChangeError, task};
pub use clock::{Error, Mode, Ran, Seen};
pub(crate) use turn::clock_line;

/// Capacity of the request queue: every request has a waiting caller.
const WISHES: usize = 64;
/// Number of events kept for a slow subscriber; older ones are lost to it.
const NEWS: usize = 256;

/// Settings of the schedule.
#[derive(Debug)]
pub struct Settings {
    /// True if jobs run at all.
    pub is_enabled: bool,
    /// The machine's time zone, for jobs without one.
    pub zone: TimeZone,
    /// Heartbeats, one for each agent that has one.
    pub pulses: Vec<Pulse>,
    /// Reads an agent's HEARTBEAT.md.
    pub file: heartbeat::Reader,
}

/// Handle of the schedule. Clones are cheap and share the same state.
#[derive(Debug, Clone)]
pub struct Schedule {
    wishes: mpsc::Sender<Wish>,
    seen: watch::Receiver<Arc<Seen>>,
    shelf: Arc<dyn Shelf>,
    heart: Heart,
    news: News,
    hub: Hub,
}

/// The schedule's tasks; they end when their token is cancelled.
#[derive(Debug)]
pub struct Tasks(JoinHandle<()>, JoinHandle<()>);

impl Tasks {
    /// Waits until both have ended.
    pub async fn ended(self) {
        for task in [self.0, self.1] {
            if let Err(error) = task.await {
                tracing::error!(%error, "a task of the schedule broke");
            }
        }
    }
}

/// Checks whether a job is allowed; an error says why not.
pub type Permit = Box<dyn Fn(&Job) -> Result<(), String> + Send>;

impl Schedule {
    /// Loads the jobs and starts to run them. Call it after the hub has recovered; stop it before the hub shuts down.
    pub async fn start(
        hub: &Hub,
        shelf: Arc<dyn Shelf>,
        settings: Settings,
        stop: CancellationToken,
    ) -> Result<(Self, Tasks), StoreError> {
        let (news, zone) = (News::new(), settings.zone.clone());
        let (heart, beating) = heartbeat::prepare((hub, settings.zone), settings.pulses, settings.file, &news);
        let parts = (heart.clone(), news.clone());
        let (clock, seen) = Clock::load((hub.clone(), shelf.clone()), zone, parts, settings.is_enabled).await?;
        let (wishes, wished) = mpsc::channel(WISHES);
        let tasks = Tasks(
            task::spawn("schedule", clock.run(wished, stop.clone())),
            task::spawn("heartbeat", beating.run(stop)),
        );
        Ok((Self { wishes, seen, shelf, heart, news, hub: hub.clone() }, tasks))
    }

    /// Returns the jobs.
    pub fn seen(&self) -> Arc<Seen> {
        self.seen.borrow().clone()
    }

    /// Returns the location of the jobs, for messages.
    pub fn place(&self) -> String {
        self.shelf.place()
    }

    /// Subscribes to `cron` and `heartbeat` events.
    pub fn listen(&self) -> broadcast::Receiver<(&'static str, Value)> {
        self.news.0.subscribe()
    }

    /// Adds a job.
    pub async fn add(&self, fields: Extra) -> Result<Job, Error> {
        self.add_if(fields, Box::new(|_| Ok(()))).await
    }

    /// Adds a job if it is allowed.
    pub async fn add_if(&self, fields: Extra, permit: Permit) -> Result<Job, Error> {
        self.ask(|tell| Wish::Add(fields, permit, tell)).await
    }

    /// Changes a job.
    pub async fn update(&self, id: &str, patch: Extra) -> Result<Job, Error> {
        self.update_if((id, patch), Box::new(|_| Ok(()))).await
    }

    /// Changes a job if the result is allowed.
    pub async fn update_if(&self, (id, patch): (&str, Extra), permit: Permit) -> Result<Job, Error> {
        self.ask(|tell| Wish::Change((id.to_owned(), patch), permit, tell)).await
    }

    /// Removes a job. Returns true if it existed. Its run history is kept.
    pub async fn remove(&self, id: &str) -> Result<bool, Error> {
        self.ask(|tell| Wish::Remove(id.to_owned(), tell)).await
    }

    /// Runs a job now. Does not wait for its end.
    pub async fn run(&self, id: &str, mode: Mode) -> Result<Ran, Error> {
        self.ask(|tell| Wish::Run(id.to_owned(), mode, tell)).await
    }

    /// Returns the run history of a job, oldest first.
    pub async fn runs(&self, id: &str) -> Result<Vec<Value>, Error> {
        Ok(self.shelf.runs(id).await?)
    }

    /// Sends an event to an agent's main session, and wakes it according to `wake`. The heartbeat that consumes it has
    /// no more authority than this.
    pub async fn wake(
        &self,
        agent: Option<AgentId>,
        (text, authority): (&str, Authority),
        wake: &Wake,
    ) -> Result<(), ChangeError> {
        let agent = agent.unwrap_or_else(|| self.hub.agents().default_id().clone());
        self.hub.note_event_of(&agent.main_session(), text.to_owned(), authority).await?;
        if *wake != Wake::NextHeartbeat {
            self.heart.wake(agent, "wake".to_owned());
        }
        Ok(())
    }

    /// Returns the heartbeats.
    pub fn heart(&self) -> &Heart {
        &self.heart
    }

    async fn ask<T>(&self, wish: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> Wish) -> Result<T, Error> {
        let (tell, told) = oneshot::channel();
        if self.wishes.send(wish(tell)).await.is_err() {
            return Err(Error::Stopping);
        }
        told.await.unwrap_or(Err(Error::Stopping))
    }
}

/// Publishes events as name and payload.
#[derive(Debug, Clone)]
struct News(broadcast::Sender<(&'static str, Value)>);

impl News {
    fn new() -> Self {
        Self(broadcast::channel(NEWS).0)
    }

    fn tell(&self, event: &'static str, payload: Value) {
        // There may be no subscribers.
        self.0.send((event, payload)).ok();
    }
}

#[cfg(test)]
mod tests;
