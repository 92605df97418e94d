//! Scheduled work: jobs that run when it is their time, and heartbeats that look whether there is something to do.
//!
//! [`job`] is what a job is, [`due`] when it runs (pure), [`shelf`] where jobs are kept, `clock` the task that runs
//! them and [`heartbeat`] the task that wakes the main sessions. Everybody else holds a [`Schedule`], which asks these
//! tasks.

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

/// How many wishes may wait: each has somebody who waits with it.
const WISHES: usize = 64;
/// How much news is kept for a listener that is behind; what is older is lost to it.
const NEWS: usize = 256;

/// What a schedule needs to know.
#[derive(Debug)]
pub struct Settings {
    /// Whether jobs are run at all.
    pub is_enabled: bool,
    /// The machine's time zone, for jobs that name none.
    pub zone: TimeZone,
    /// The heartbeats, one for each agent that has one.
    pub pulses: Vec<Pulse>,
    /// How an agent's HEARTBEAT.md is read.
    pub file: heartbeat::Reader,
}

/// A handle on the schedule. Clones are cheap and are the same schedule.
#[derive(Debug, Clone)]
pub struct Schedule {
    wishes: mpsc::Sender<Wish>,
    seen: watch::Receiver<Arc<Seen>>,
    shelf: Arc<dyn Shelf>,
    heart: Heart,
    news: News,
    hub: Hub,
}

/// The schedule's tasks; they end when the token that they were started with is cancelled.
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

/// Says whether a job may be as it is; an error says why not.
pub type Permit = Box<dyn Fn(&Job) -> Result<(), String> + Send>;

impl Schedule {
    /// Loads the jobs and starts to run them. To be called once the hub has recovered; to be stopped
    /// before the hub shuts down.
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

    /// The jobs.
    pub fn seen(&self) -> Arc<Seen> {
        self.seen.borrow().clone()
    }

    /// Where the jobs are kept.
    pub fn place(&self) -> String {
        self.shelf.place()
    }

    /// Hears of every `cron` and `heartbeat` event from here on.
    pub fn listen(&self) -> broadcast::Receiver<(&'static str, Value)> {
        self.news.0.subscribe()
    }

    /// Makes a job.
    pub async fn add(&self, fields: Extra) -> Result<Job, Error> {
        self.add_if(fields, Box::new(|_| Ok(()))).await
    }

    /// Makes a job if it is permitted.
    pub async fn add_if(&self, fields: Extra, permit: Permit) -> Result<Job, Error> {
        self.ask(|tell| Wish::Add(fields, permit, tell)).await
    }

    /// Changes a job.
    pub async fn update(&self, id: &str, patch: Extra) -> Result<Job, Error> {
        self.update_if((id, patch), Box::new(|_| Ok(()))).await
    }

    /// Changes a job if it is permitted as it would be then.
    pub async fn update_if(&self, (id, patch): (&str, Extra), permit: Permit) -> Result<Job, Error> {
        self.ask(|tell| Wish::Change((id.to_owned(), patch), permit, tell)).await
    }

    /// Removes a job; says whether there was one. The story of its runs stays.
    pub async fn remove(&self, id: &str) -> Result<bool, Error> {
        self.ask(|tell| Wish::Remove(id.to_owned(), tell)).await
    }

    /// Runs a job now. Does not wait for its end.
    pub async fn run(&self, id: &str, mode: Mode) -> Result<Ran, Error> {
        self.ask(|tell| Wish::Run(id.to_owned(), mode, tell)).await
    }

    /// The story of a job's runs, oldest first.
    pub async fn runs(&self, id: &str) -> Result<Vec<Value>, Error> {
        Ok(self.shelf.runs(id).await?)
    }

    /// Tells an agent's main session something, and wakes it if it shall hear that at once. The heartbeat that hears it
    /// first has no more authority than this.
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

    /// The heartbeats.
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

/// What everybody is told, as an event's name and payload.
#[derive(Debug, Clone)]
struct News(broadcast::Sender<(&'static str, Value)>);

impl News {
    fn new() -> Self {
        Self(broadcast::channel(NEWS).0)
    }

    fn tell(&self, event: &'static str, payload: Value) {
        // Nobody may listen, and that is fine.
        self.0.send((event, payload)).ok();
    }
}

#[cfg(test)]
mod tests;
