//! The scheduler task, which runs jobs when they are due. It is the only writer of jobs.
//!
//! A slot is stored in the job before it runs; its run id is derived from it; and the slot is removed from the job only
//! after its end is in the run history. So after a crash at any point the next process submits the same run again, and
//! the hub knows whether it has run.

mod wish;

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use homard_store::Error as StoreError;
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::{
    News,
    address::address,
    due,
    heartbeat::Heart,
    job::{Job, Payload, Wake, When},
    settle::{Turn, note_end, ran_line, settle},
    shelf::Shelf,
    turn::{self, Ask, Came},
};
use crate::{hub::Hub, lane::slots::Class};
pub(super) use wish::Wish;
pub use wish::{Mode, Ran};

/// Maximum sleep, because the system clock may be changed in the meantime.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// Minimum sleep.
const BREATH: Duration = Duration::from_millis(20);
/// How late an interrupted slot may still be run by the next process.
const TAKEN_UP_MS: u64 = 3_600_000;

/// Published view of the jobs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Seen {
    /// Jobs, oldest first.
    pub jobs: Vec<Job>,
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
    #[error("the schedule is stopping; ask again when the gateway is back")]
    Stopping,
}

/// The scheduler.
pub(super) struct Clock {
    pub(super) hub: Hub,
    pub(super) shelf: Arc<dyn Shelf>,
    pub(super) zone: TimeZone,
    pub(super) heart: Heart,
    pub(super) news: News,
    seen: watch::Sender<Arc<Seen>>,
    jobs: Vec<Job>,
    /// Jobs that this version cannot parse.
    strange: Vec<Value>,
    /// Last reported problem of each schedule, so that it is logged once.
    complaints: HashMap<String, String>,
    turns: FuturesUnordered<BoxFuture<'static, (Turn, Option<Came>)>>,
}

impl Clock {
    /// Creates a scheduler for the stored jobs.
    pub(super) async fn load(
        (hub, shelf): (Hub, Arc<dyn Shelf>),
        zone: TimeZone,
        (heart, news): (Heart, News),
        is_enabled: bool,
    ) -> Result<(Self, watch::Receiver<Arc<Seen>>), StoreError> {
        let (mut jobs, mut strange) = (Vec::<Job>::new(), Vec::new());
        for value in shelf.load().await? {
            match serde_json::from_value::<Job>(value.clone()) {
                Ok(job) if !jobs.iter().any(|known| known.id == job.id) => jobs.push(job),
                Ok(_) | Err(_) => strange.push(value),
            }
        }
        if !strange.is_empty() {
            tracing::warn!(count = strange.len(), place = shelf.place(), "some jobs cannot be read; they are kept");
        }
        let (seen, see) = watch::channel(Arc::new(Seen { jobs: jobs.clone(), revision: 1, is_enabled }));
        let (complaints, turns) = (HashMap::new(), FuturesUnordered::new());
        Ok((Self { hub, shelf, zone, heart, news, seen, jobs, strange, complaints, turns }, see))
    }

    /// Main loop of the scheduler.
    pub(super) async fn run(mut self, mut wishes: mpsc::Receiver<Wish>, stop: CancellationToken) {
        self.take_up().await;
        loop {
            self.tick().await;
            let pause = self.pause();
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                Some((turn, came)) = self.turns.next(), if !self.turns.is_empty() => {
                    if let Some(came) = came {
                        self.finish(turn, came).await;
                    }
                }
                Some(wish) = wishes.recv() => self.heed(wish).await,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    fn now(&self) -> u64 {
        self.hub.ambient().now_ms()
    }

    fn is_enabled(&self) -> bool {
        self.seen.borrow().is_enabled
    }

    /// Returns the time until the next due job.
    fn pause(&self) -> Duration {
        let now = self.now();
        let next = self.jobs.iter().filter(|job| job.enabled).filter_map(|job| job.state.next_run_at_ms).min();
        let until = next.map_or(LOOK_AGAIN, |next| Duration::from_millis(next.saturating_sub(now)));
        until.clamp(BREATH, LOOK_AGAIN)
    }

    /// Stores and publishes these jobs; on failure nothing changes.
    async fn keep(&mut self, jobs: Vec<Job>) -> Result<(), StoreError> {
        let values = jobs.iter().map(|job| json!(job)).chain(self.strange.iter().cloned()).collect();
        self.shelf.save(values).await?;
        self.jobs = jobs;
        self.seen.send_modify(|seen| {
            *seen =
                Arc::new(Seen { jobs: self.jobs.clone(), revision: seen.revision + 1, is_enabled: seen.is_enabled });
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
        let (mut lines, mut starts) = (Vec::new(), Vec::new());
        for job in jobs.iter_mut().filter(|job| job.enabled && job.unsupported().is_none()) {
            match due::due(job, &self.zone, now) {
                Ok(due) => settle(job, &due, now, (&mut lines, &mut starts)),
                Err(why) => {
                    let why = why.to_string();
                    if self.complaints.insert(job.id.clone(), why.clone()).as_ref() != Some(&why) {
                        tracing::warn!(job = job.id, why, "a job cannot be scheduled");
                    }
                }
            }
        }
        if jobs == self.jobs {
            return;
        }
        if let Err(error) = self.keep(jobs).await {
            tracing::error!(%error, "jobs could not be kept, so nothing was started");
            return;
        }
        for (id, line) in lines {
            self.tell_story(&id, line).await;
        }
        for (id, slot) in starts {
            self.start(&id, slot).await;
        }
    }

    /// Executes a slot. It is already stored as running.
    async fn start(&mut self, id: &str, slot: u64) {
        let Some(job) = self.jobs.iter().find(|job| job.id == id).cloned() else { return };
        let now = self.now();
        let turn = Turn { job: job.id.clone(), slot, began: now };
        self.news.tell("cron", json!({"jobId": id, "action": "started", "runAtMs": now}));
        match &job.payload {
            Payload::SystemEvent(event) => {
                let said = self.tell_main(&job, &event.text).await.map(|()| event.text.clone());
                self.finish(turn, Came { said, heartbeat: None, session: None, is_old: false }).await;
            }
            Payload::AgentTurn(asked) => {
                let text = turn::prompt(&job, asked, now, &self.zone);
                let names = job.run_id(slot).zip(job.session(self.hub.agents().default_id()));
                let Some((run, key)) = names else {
                    return self.finish(turn, Came::failed(format!("\"{id}\" cannot name a session"))).await;
                };
                let inbound = turn::isolated(Ask { run, key, class: Class::Cron, text }, &job, asked, now);
                let (hub, address) = (self.hub.clone(), address(&job, asked));
                let main = job.agent(self.hub.agents().default_id()).main_session();
                self.turns.push(Box::pin(async move {
                    let came = match turn::addressed(&hub, inbound, &address, &main).await {
                        Ok(inbound) => turn::run(&hub, inbound).await,
                        Err(why) => Some(Came::failed(why)),
                    };
                    (turn, came)
                }));
            }
            // Such a job is never due.
            Payload::Other(_) => {}
        }
    }

    /// Sends a job's event to the main session and wakes it.
    async fn tell_main(&mut self, job: &Job, text: &str) -> Result<(), String> {
        let agent = job.agent(self.hub.agents().default_id());
        let noted = self.hub.note_event(&agent.main_session(), text.to_owned()).await;
        noted.map_err(|error| error.to_string())?;
        if job.wake_mode != Wake::NextHeartbeat {
            self.heart.wake(agent, format!("cron:{}", job.id));
        }
        Ok(())
    }

    /// Records the end of a slot: first in the run history, then in the job, so that a crash in between is detected.
    async fn finish(&mut self, turn: Turn, came: Came) {
        let now = self.now();
        let mut jobs = self.jobs.clone();
        let job = jobs.iter_mut().find(|job| job.id == turn.job);
        if !(came.is_old && self.is_told(&turn).await) {
            let line = ran_line(&turn, &came, job.as_deref(), (self.hub.agents().default_id(), now));
            self.tell_story(&turn.job, line).await;
        }
        let Some(job) = job else { return };
        let is_last = matches!(job.schedule, When::At(_)) && job.state.settled_at_ms == Some(turn.slot);
        let goes = is_last && came.said.is_ok() && job.delete_after_run == Some(true);
        job.enabled &= !is_last;
        note_end(job, &turn, came.said.err(), now);
        if goes {
            jobs.retain(|job| job.id != turn.job);
        }
        match self.keep(jobs).await {
            Ok(()) if goes => self.news.tell("cron", json!({"jobId": turn.job, "action": "removed"})),
            Ok(()) => {}
            Err(error) => tracing::error!(%error, job = turn.job, "the end of a job's run could not be kept"),
        }
    }

    /// True if the run history contains this slot.
    async fn is_told(&mut self, turn: &Turn) -> bool {
        let story = self.shelf.runs(&turn.job).await.unwrap_or_default();
        story.iter().any(|line| line["slotMs"] == turn.slot && line["outcome"] == "ran")
    }

    async fn tell_story(&mut self, job: &str, mut line: Value) {
        if let Some(fields) = line.as_object_mut() {
            fields.retain(|_, value| !value.is_null());
        }
        self.news.tell("cron", line.clone());
        if let Err(error) = self.shelf.append(job, line).await {
            tracing::error!(%error, job, "the story of a job could not be kept");
        }
    }

    /// Resumes the slots that the previous process was running.
    async fn take_up(&mut self) {
        let now = self.now();
        for job in self.jobs.clone() {
            let Some(slot) = job.state.running_slot_ms else {
                if job.state.running_at_ms.is_some() {
                    // Written by OpenClaw: its outcome is unknown.
                    let jobs = self.jobs.iter().cloned().map(|mut other| {
                        other.state.running_at_ms = other.state.running_at_ms.filter(|_| other.id != job.id);
                        other
                    });
                    self.keep_quietly(jobs.collect()).await;
                }
                continue;
            };
            let is_late = now.saturating_sub(slot) > TAKEN_UP_MS;
            let is_isolated = matches!(job.payload, Payload::AgentTurn(_));
            if is_isolated && (!is_late || self.is_known(&job, slot).await) {
                self.start(&job.id, slot).await;
            } else {
                let came = Came::failed("the gateway stopped in the middle of it".to_owned());
                self.finish(Turn { job: job.id, slot, began: job.state.running_at_ms.unwrap_or(now) }, came).await;
            }
        }
    }

    async fn keep_quietly(&mut self, jobs: Vec<Job>) {
        if let Err(error) = self.keep(jobs).await {
            tracing::error!(%error, "jobs could not be kept");
        }
    }

    /// True if the hub knows the run of a slot.
    async fn is_known(&mut self, job: &Job, slot: u64) -> bool {
        let Some(run) = job.run_id(slot) else { return false };
        let is_over = matches!(self.hub.wait(&run, Duration::ZERO).await, Ok(crate::hub::Waited::Ended(_)));
        is_over || self.hub.session_of(&run).is_some()
    }
}
