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
    fn panics_its_lane(self) -> bool {
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
fn retire(fixture: &RaceFixture, key: usize, jobs: &Queue) -> bool {
    fixture.lanes.lock().unwrap().retire(&key, jobs)
}

/// The mistake this test must catch: a job may arrive between the check and the lock.
fn check_before_locking(fixture: &RaceFixture, key: usize, jobs: &Queue) -> bool {
    Queue::is_empty(jobs) && fixture.lanes.lock().unwrap().retire(&key, &Queue::default())
}

/// State shared by the hub and its lanes.
#[derive(Default)]
struct RaceFixture {
    lanes: Mutex<Registry<usize, Queue>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// True while a lane works on a key.
    active: [AtomicBool; KEYS],
    processed: Mutex<Vec<RaceJob>>,
}

impl RaceFixture {
    fn submit(self: &Arc<Self>, job: RaceJob, retire: Retire) {
        self.lanes.lock().unwrap().send(&job.key, job, || {
            let (fixture, jobs) = (self.clone(), Queue::default());
            let lane = jobs.clone();
            let thread = thread::spawn(move || while fixture.live(job.key, &lane, retire).is_err() {});
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
        assert!(!self.active[job.key].swap(true, Ordering::SeqCst), "two lanes are at work on one key");
        self.processed.lock().unwrap().push(job);
        let result = if job.panics_its_lane() {
            let mut unread = Vec::new();
            self.lanes.lock().unwrap().visit_jobs(&job.key, &mut jobs.clone(), |job| unread.push(*job));
            assert!(!unread.contains(&job), "a job that was taken is in the mailbox");
            Err(job)
        } else {
            Ok(())
        };
        self.active[job.key].store(false, Ordering::SeqCst);
        result
    }
}

/// Every submitter submits several jobs to every key.
fn run_scenario(retire: Retire) {
    let fixture = Arc::new(RaceFixture::default());
    let jobs =
        |submitter| (0..ROUNDS).flat_map(move |round| (0..KEYS).map(move |key| RaceJob { key, submitter, round }));
    let submitters = (0..SUBMITTERS).map(|submitter| {
        let fixture = fixture.clone();
        thread::spawn(move || jobs(submitter).for_each(|job| fixture.submit(job, retire)))
    });
    let submitters: Vec<_> = submitters.collect();
    submitters.into_iter().for_each(|submitter| submitter.join().unwrap());
    // All jobs are submitted, so no lane starts any more.
    let lanes = std::mem::take(&mut *fixture.threads.lock().unwrap());
    lanes.into_iter().for_each(|lane| lane.join().unwrap());

    let mut processed = fixture.processed.lock().unwrap().clone();
    // Stable, so that a key's jobs of one submitter stay in the order in which they were taken.
    processed.sort_by_key(|job| (job.submitter, job.key));
    let mut submitted: Vec<_> = (0..SUBMITTERS).flat_map(jobs).collect();
    submitted.sort_by_key(|job| (job.submitter, job.key));
    assert_eq!(processed, submitted, "each job is taken once, and in its order");
    let registry = fixture.lanes.lock().unwrap();
    let remaining: Vec<_> = (0..KEYS).filter(|key| registry.contains(key)).collect();
    assert_eq!(remaining, [0; 0], "no lane is left");
}

#[test]
fn every_job_is_processed_once_in_random_schedules() {
    check_random(|| run_scenario(retire), SCHEDULES);
}

#[test]
fn every_job_is_processed_once_in_pct_schedules() {
    check_pct(|| run_scenario(retire), SCHEDULES, 3);
}

#[test]
fn a_lane_that_checks_before_it_locks_is_caught() {
    let random = catch_unwind(AssertUnwindSafe(|| check_random(|| run_scenario(check_before_locking), SCHEDULES)));
    let pct = catch_unwind(AssertUnwindSafe(|| check_pct(|| run_scenario(check_before_locking), SCHEDULES, 3)));
    assert_eq!([random.is_err(), pct.is_err()], [true, true]);
}
