//! Concurrency limits: how many runs may be active at once, across all sessions.
//!
//! A slot is a guard and is returned however its run ends. It is passed inside the wake-up message, so a slot sent to a
//! waiter that has gone is returned, too.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use homard_proto::SessionKey;
use homard_stdx::sync::{Mutex, MutexGuard};
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

/// Minimum wait for a slot that is reported.
const LONG_WAIT: Duration = Duration::from_secs(2);

/// Concurrency class of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunClass {
    /// Conversations.
    Main,
    /// Runs started by runs.
    Subagent,
    /// Scheduled runs.
    Cron,
    /// Requests from one session to another.
    Nested,
    /// Heartbeats. A class of their own, so that they never delay a conversation.
    Heartbeat,
}

impl RunClass {
    /// Returns the class that a request names, or else the one implied by its session.
    pub fn choose(requested: Option<&str>, key: &SessionKey) -> Self {
        match requested.map(str::trim) {
            Some("main") => Self::Main,
            Some("subagent") => Self::Subagent,
            Some("cron") => Self::Cron,
            Some("nested") => Self::Nested,
            Some("heartbeat") => Self::Heartbeat,
            _ if key.is_subagent() => Self::Subagent,
            _ if key.is_cron() => Self::Cron,
            _ => Self::Main,
        }
    }

    /// Returns the serialized name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Subagent => "subagent",
            Self::Cron => "cron",
            Self::Nested => "nested",
            Self::Heartbeat => "heartbeat",
        }
    }
}

/// Slot pools, one per class. A session waits with one run at a time, so first come, first served is fair between
/// sessions. Clones share the same pools.
#[derive(Debug, Clone)]
pub struct Slots {
    main: Arc<Pool>,
    subagent: Arc<Pool>,
    cron: Arc<Pool>,
    nested: Arc<Pool>,
    heartbeat: Arc<Pool>,
    /// Notified when a slot is returned.
    returned: Arc<Notify>,
}

impl Slots {
    /// Creates pools of these sizes (at least one), and the others with one slot.
    pub fn new(main: usize, subagent: usize, cron: usize) -> Self {
        let returned = Arc::new(Notify::new());
        let pool = |size| Arc::new(Pool::new(size, returned.clone()));
        Self {
            main: pool(main),
            subagent: pool(subagent),
            cron: pool(cron),
            nested: pool(1),
            heartbeat: pool(1),
            returned: returned.clone(),
        }
    }

    /// Grants no further slots to runs that did not start yet; they wait. Runs that an active run waits for
    /// (subagents, requests to another session) still start, otherwise it could not end.
    pub fn pause(&self) {
        for pool in [&self.main, &self.cron, &self.heartbeat] {
            pool.lock().is_paused = true;
        }
    }

    /// Returns true after [`Self::pause`].
    pub fn is_paused(&self) -> bool {
        self.main.lock().is_paused
    }

    /// Returns when no slot is in use. Cancel safe.
    pub async fn idle(&self) {
        loop {
            let returned = self.returned.notified();
            tokio::pin!(returned);
            returned.as_mut().enable();
            if self.taken() == 0 {
                return;
            }
            returned.await;
        }
    }

    /// Returns the number of slots in use.
    pub fn taken(&self) -> usize {
        self.loads().iter().map(|load| load.taken).sum()
    }

    /// Resizes a pool (at least one slot). Waiting runs start at once if there are free slots. Active runs continue:
    /// surplus slots disappear as their runs end.
    pub fn resize(&self, class: RunClass, size: usize) {
        self.pool(class).resize(size);
    }

    /// Returns the load of each pool.
    pub fn loads(&self) -> [PoolLoad; 5] {
        [RunClass::Main, RunClass::Subagent, RunClass::Cron, RunClass::Nested, RunClass::Heartbeat].map(|class| {
            let queue = self.pool(class).lock();
            PoolLoad { name: class.name(), size: queue.size, taken: queue.taken, waiting: queue.waiting.len() }
        })
    }

    fn pool(&self, class: RunClass) -> &Arc<Pool> {
        match class {
            RunClass::Main => &self.main,
            RunClass::Subagent => &self.subagent,
            RunClass::Cron => &self.cron,
            RunClass::Nested => &self.nested,
            RunClass::Heartbeat => &self.heartbeat,
        }
    }

    /// Takes a slot if one is free and no run waits for it.
    pub fn try_take(&self, class: RunClass) -> Option<Slot> {
        self.pool(class).lock().try_take().then(|| Slot::of(self.pool(class)))
    }

    /// Waits for a slot. Cancel safe: a dropped future leaves the queue.
    pub async fn take(&self, class: RunClass) -> Slot {
        self.pool(class).take().await
    }
}

impl Default for Slots {
    fn default() -> Self {
        Self::new(4, 8, 1)
    }
}

/// Load of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolLoad {
    /// Name of the class.
    pub name: &'static str,
    /// Number of slots.
    pub size: usize,
    /// Number of slots in use.
    pub taken: usize,
    /// Number of waiters; some may have gone.
    pub waiting: usize,
}

/// Concurrency permit of a run. Returned on drop.
#[derive(Debug)]
pub struct Slot {
    pool: Arc<Pool>,
    is_held: bool,
    waited: Duration,
}

impl Slot {
    fn of(pool: &Arc<Pool>) -> Self {
        Self { pool: pool.clone(), is_held: true, waited: Duration::ZERO }
    }

    /// Returns the time waited, if it was long enough to be reported.
    pub fn long_wait(&self) -> Option<Duration> {
        (self.waited >= LONG_WAIT).then_some(self.waited)
    }

    fn release(&mut self) {
        if std::mem::take(&mut self.is_held) {
            let mut queue = self.pool.lock();
            queue.taken -= 1;
            queue.grant(&self.pool);
            drop(queue);
            self.pool.returned.notify_waiters();
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.release();
    }
}

/// A run's slot, which its tools may lend to other runs while they wait for something. Clones share the slot; the
/// default value has no slot to lend.
#[derive(Debug, Clone, Default)]
pub struct Lender(Arc<Mutex<LentSlot>>);

#[derive(Debug, Default)]
struct LentSlot {
    slot: Option<Slot>,
    /// Number of the run's tools that are waiting.
    waiting: usize,
    /// True while one tool waits to take the slot again. The other tools of the run then need not.
    is_reclaiming: bool,
}

impl From<Slot> for Lender {
    fn from(slot: Slot) -> Self {
        Self(Arc::new(Mutex::new(LentSlot { slot: Some(slot), ..LentSlot::default() })))
    }
}

impl Lender {
    /// Waits for something that other runs have to do (a child, an approval). The slot is released while any tool of
    /// the run waits, and taken again afterwards.
    ///
    /// If this future is dropped halfway, the slot may stay released: a run that has ended needs none.
    pub async fn lend<T>(&self, future: impl Future<Output = T>) -> T {
        let tool_wait = ToolWait::begin(self);
        let result = future.await;
        drop(tool_wait);
        if let Some(pool) = self.pool_to_reclaim() {
            let slot_wait = SlotWait(self);
            let slot = pool.take_again().await;
            self.lock().slot = Some(slot);
            drop(slot_wait);
        }
        result
    }

    /// Returns the pool to take the slot from again, if no tool waits any more and the slot was released.
    fn pool_to_reclaim(&self) -> Option<Arc<Pool>> {
        let mut state = self.lock();
        let can_reclaim = state.waiting == 0 && !state.is_reclaiming;
        let pool = state.slot.as_ref().filter(|slot| can_reclaim && !slot.is_held)?.pool.clone();
        state.is_reclaiming = true;
        Some(pool)
    }

    fn lock(&self) -> MutexGuard<'_, LentSlot> {
        self.0.lock()
    }
}

/// Guard of the one tool that takes the lent slot again for its run, once no tool of the run waits any more. It resets
/// [`LentSlot::is_reclaiming`] when it is dropped, even if the future is cancelled.
struct SlotWait<'a>(&'a Lender);

impl Drop for SlotWait<'_> {
    fn drop(&mut self) {
        self.0.lock().is_reclaiming = false;
    }
}

/// Guard of a tool that waits for other runs. Releases the slot of the tool's run at the start, and counts the tool as
/// waiting until it is dropped.
struct ToolWait<'a>(&'a Lender);

impl<'a> ToolWait<'a> {
    fn begin(lender: &'a Lender) -> Self {
        let mut state = lender.lock();
        state.waiting += 1;
        if let Some(slot) = &mut state.slot {
            slot.release();
        }
        drop(state);
        Self(lender)
    }
}

impl Drop for ToolWait<'_> {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
    }
}

/// Slots of a class and their waiters, behind one short lock that is never held across an await.
#[derive(Debug)]
struct Pool {
    queue: Mutex<PoolQueue>,
    /// Notified when a slot is returned; shared by all pools.
    returned: Arc<Notify>,
}

/// Slots of a pool and the runs that wait for one. Invariant while unlocked: no run waits, all slots are taken, or the
/// pool is paused.
#[derive(Debug)]
struct PoolQueue {
    /// True if no further slots are granted.
    is_paused: bool,
    size: usize,
    taken: usize,
    /// Some waiters may have gone; they are skipped when it is their turn.
    waiting: VecDeque<oneshot::Sender<Slot>>,
}

impl Pool {
    fn new(size: usize, returned: Arc<Notify>) -> Self {
        let queue = PoolQueue { is_paused: false, size: size.max(1), taken: 0, waiting: VecDeque::new() };
        Self { queue: Mutex::new(queue), returned }
    }

    fn lock(&self) -> MutexGuard<'_, PoolQueue> {
        self.queue.lock()
    }

    fn resize(self: &Arc<Self>, size: usize) {
        let mut queue = self.lock();
        queue.size = size.max(1);
        queue.grant(self);
    }

    /// Takes a slot for a run that had lent its own. A paused pool grants it beyond its size: the run is active already,
    /// and the pause ends only when it has ended.
    async fn take_again(self: &Arc<Self>) -> Slot {
        let is_paused = {
            let mut queue = self.lock();
            queue.taken += usize::from(queue.is_paused);
            queue.is_paused
        };
        if is_paused { Slot::of(self) } else { self.take().await }
    }

    async fn take(self: &Arc<Self>) -> Slot {
        let started = Instant::now();
        loop {
            let Some(receiver) = self.lock().enqueue() else { return Slot::of(self) };
            // The queue lives as long as the pool and drops no waiter, so the first receive succeeds.
            if let Ok(mut slot) = receiver.await {
                slot.waited = started.elapsed();
                return slot;
            }
        }
    }
}

impl PoolQueue {
    fn try_take(&mut self) -> bool {
        let is_free = !self.is_paused && self.taken < self.size;
        self.taken += usize::from(is_free);
        is_free
    }

    /// Takes a slot, or queues a waiter if none is free.
    fn enqueue(&mut self) -> Option<oneshot::Receiver<Slot>> {
        if self.try_take() {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        self.waiting.push_back(sender);
        Some(receiver)
    }

    /// Hands free slots to waiters in order.
    fn grant(&mut self, pool: &Arc<Pool>) {
        while !self.is_paused
            && self.taken < self.size
            && let Some(next) = self.waiting.pop_front()
        {
            match next.send(Slot::of(pool)) {
                Ok(()) => self.taken += 1,
                // The waiter is gone. This slot was never counted, and returning it would need the lock that is held
                // here.
                Err(mut slot) => slot.is_held = false,
            }
        }
    }
}

#[cfg(test)]
mod tests;
