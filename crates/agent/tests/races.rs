//! Model-checks the lane registry: submitters, lanes that retire and lanes that panic, in thousands of schedules.
//!
//! The registry is the hub's own file; only its lock and the mailboxes are replaced by versions at which the scheduler
//! may switch threads.
#![allow(clippy::unwrap_used, reason = "tests may")]

#[path = "../src/hub/registry.rs"]
mod registry;

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
};

use registry::{Mailbox, Registry};
use shuttle::{
    check_pct, check_random,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

const KEYS: usize = 2;
const SUBMITTERS: usize = 3;
const ROUNDS: usize = 2;
const SCHEDULES: usize = 3_000;

/// A submitted job. A job of the first submitter panics its lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RaceJob {
    key: usize,
    submitter: usize,
    round: usize,
}

impl RaceJob {
    fn breaks_its_lane(self) -> bool {
        self.submitter == 0
    }
}

#[derive(Debug, Clone, Default)]
struct Queue(Arc<Mutex<VecDeque<RaceJob>>>);

impl Mailbox for Queue {
    type Job = RaceJob;
    type Jobs = Self;

    fn put(&self, job: RaceJob) {
        self.0.lock().unwrap().push_back(job);
    }

    fn is_empty(jobs: &Self) -> bool {
        jobs.0.lock().unwrap().is_empty()
    }

    fn drain(jobs: &mut Self) -> Vec<RaceJob> {
        jobs.0.lock().unwrap().drain(..).collect()
    }
}

/// How an idle lane retires. Returns true if it may end.
type Retire = fn(&RaceFixture, usize, &Queue) -> bool;

/// As the hub does it.
fn retire(house: &RaceFixture, key: usize, jobs: &Queue) -> bool {
    house.lanes.lock().unwrap().retire(&key, jobs)
}

/// The mistake this test must catch: a job may arrive between the check and the lock.
fn look_before_locking(house: &RaceFixture, key: usize, jobs: &Queue) -> bool {
    Queue::is_empty(jobs) && house.lanes.lock().unwrap().retire(&key, &Queue::default())
}

/// State shared by the hub and its lanes.
#[derive(Default)]
struct RaceFixture {
    lanes: Mutex<Registry<usize, Queue>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// True while a lane works on a key.
    at_work: [AtomicBool; KEYS],
    taken: Mutex<Vec<RaceJob>>,
}

impl RaceFixture {
    fn submit(self: &Arc<Self>, job: RaceJob, retire: Retire) {
        self.lanes.lock().unwrap().send(&job.key, job, || {
            let (house, jobs) = (self.clone(), Queue::default());
            let lane = jobs.clone();
            let thread = thread::spawn(move || while house.live(job.key, &lane, retire).is_err() {});
            self.threads.lock().unwrap().push(thread);
            jobs
        });
    }

    /// Runs a lane until it retires or panics.
    fn live(&self, key: usize, jobs: &Queue, retire: Retire) -> Result<(), RaceJob> {
        loop {
            let next = jobs.0.lock().unwrap().pop_front();
            match next {
                Some(job) => self.work(job, jobs)?,
                None if retire(self, key, jobs) => return Ok(()),
                None => {}
            }
        }
    }

    fn work(&self, job: RaceJob, jobs: &Queue) -> Result<(), RaceJob> {
        assert!(!self.at_work[job.key].swap(true, Ordering::SeqCst), "two lanes are at work on one key");
        self.taken.lock().unwrap().push(job);
        let result = if job.breaks_its_lane() {
            let mut spared = Vec::new();
            self.lanes.lock().unwrap().visit_jobs(&job.key, &mut jobs.clone(), |job| spared.push(*job));
            assert!(!spared.contains(&job), "a job that was taken is in the mailbox");
            Err(job)
        } else {
            Ok(())
        };
        self.at_work[job.key].store(false, Ordering::SeqCst);
        result
    }
}

/// Every submitter submits several jobs to every key.
fn a_busy_day(retire: Retire) {
    let house = Arc::new(RaceFixture::default());
    let jobs =
        |submitter| (0..ROUNDS).flat_map(move |round| (0..KEYS).map(move |key| RaceJob { key, submitter, round }));
    let submitters = (0..SUBMITTERS).map(|submitter| {
        let house = house.clone();
        thread::spawn(move || jobs(submitter).for_each(|job| house.submit(job, retire)))
    });
    let submitters: Vec<_> = submitters.collect();
    submitters.into_iter().for_each(|submitter| submitter.join().unwrap());
    // All jobs are submitted, so no lane starts any more.
    let lanes = std::mem::take(&mut *house.threads.lock().unwrap());
    lanes.into_iter().for_each(|lane| lane.join().unwrap());

    let mut taken = house.taken.lock().unwrap().clone();
    // Stable, so that a key's jobs of one submitter stay in the order in which they were taken.
    taken.sort_by_key(|job| (job.submitter, job.key));
    let mut submitted: Vec<_> = (0..SUBMITTERS).flat_map(jobs).collect();
    submitted.sort_by_key(|job| (job.submitter, job.key));
    assert_eq!(taken, submitted, "each job is taken once, and in its order");
    let registry = house.lanes.lock().unwrap();
    let left: Vec<_> = (0..KEYS).filter(|key| registry.contains(key)).collect();
    assert_eq!(left, [0; 0], "no lane is left");
}

#[test]
fn every_job_is_taken_once_in_random_orders() {
    check_random(|| a_busy_day(retire), SCHEDULES);
}

#[test]
fn every_job_is_taken_once_in_orders_with_few_but_nasty_turns() {
    check_pct(|| a_busy_day(retire), SCHEDULES, 3);
}

#[test]
fn a_lane_that_looks_before_it_locks_would_be_caught() {
    let random = catch_unwind(AssertUnwindSafe(|| check_random(|| a_busy_day(look_before_locking), SCHEDULES)));
    let pct = catch_unwind(AssertUnwindSafe(|| check_pct(|| a_busy_day(look_before_locking), SCHEDULES, 3)));
    assert_eq!([random.is_err(), pct.is_err()], [true, true]);
}
