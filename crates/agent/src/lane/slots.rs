//! How many runs may be at work at once, in all sessions together.
//!
//! A slot is a guard: whatever happens to its run, it is given back. It is handed over inside the message that says so,
//! so one that comes for somebody who has gone gives itself back, too.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use homard_proto::SessionKey;
use tokio::{sync::oneshot, time::Instant};

/// From how long a wait for a slot is worth telling.
const LONG: Duration = Duration::from_secs(2);

/// Which pool a run draws from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Conversations.
    Main,
    /// Runs that a run started.
    Subagent,
    /// Scheduled runs.
    Cron,
    /// What one session asks of another.
    Nested,
    /// Regular looks at whether there is something to do. Apart, so that they never keep a conversation waiting.
    Heartbeat,
}

impl Class {
    /// The pool that a request names, or else that its session implies.
    pub fn choose(named: Option<&str>, key: &SessionKey) -> Self {
        match named.map(str::trim) {
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

    /// What a request calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Subagent => "subagent",
            Self::Cron => "cron",
            Self::Nested => "nested",
            Self::Heartbeat => "heartbeat",
        }
    }
}

/// The pools. A session waits for a slot with one run at a time, so first come, first served is fair between sessions.
/// Clones are the same pools.
#[derive(Debug, Clone)]
pub struct Slots {
    main: Arc<Pool>,
    subagent: Arc<Pool>,
    cron: Arc<Pool>,
    nested: Arc<Pool>,
    heartbeat: Arc<Pool>,
}

impl Slots {
    /// Pools of these sizes, and the others of one; a size below one is one.
    pub fn new(main: usize, subagent: usize, cron: usize) -> Self {
        let pool = |size| Arc::new(Pool::new(size));
        Self { main: pool(main), subagent: pool(subagent), cron: pool(cron), nested: pool(1), heartbeat: pool(1) }
    }

    /// Gives a pool another size; below one is one. What waits starts at once if there is room now. What is at work
    /// stays at work: slots too many go as their runs end.
    pub fn resize(&self, class: Class, size: usize) {
        self.pool(class).resize(size);
    }

    /// How full each pool is, by the name of its class.
    pub fn loads(&self) -> [Load; 5] {
        [Class::Main, Class::Subagent, Class::Cron, Class::Nested, Class::Heartbeat].map(|class| {
            let line = self.pool(class).lock();
            Load { name: class.name(), size: line.size, taken: line.taken, waiting: line.waiting.len() }
        })
    }

    fn pool(&self, class: Class) -> &Arc<Pool> {
        match class {
            Class::Main => &self.main,
            Class::Subagent => &self.subagent,
            Class::Cron => &self.cron,
            Class::Nested => &self.nested,
            Class::Heartbeat => &self.heartbeat,
        }
    }

    /// A slot, if one is free and nobody waits for it.
    pub(crate) fn try_take(&self, class: Class) -> Option<Slot> {
        self.pool(class).lock().try_take().then(|| Slot::of(self.pool(class)))
    }

    /// Waits for a slot. Cancel safe: whoever goes away leaves the line.
    pub(crate) async fn take(&self, class: Class) -> Slot {
        self.pool(class).take().await
    }
}

impl Default for Slots {
    fn default() -> Self {
        Self::new(4, 8, 1)
    }
}

/// How full a pool is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// What a request calls it.
    pub name: &'static str,
    /// How many runs may be at work.
    pub size: usize,
    /// How many are.
    pub taken: usize,
    /// How many wait; some may have gone.
    pub waiting: usize,
}

/// The right to be at work. It is given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    pool: Arc<Pool>,
    is_held: bool,
    waited: Duration,
}

impl Slot {
    fn of(pool: &Arc<Pool>) -> Self {
        Self { pool: pool.clone(), is_held: true, waited: Duration::ZERO }
    }

    /// How long it was waited for, if that was long enough to be told.
    pub(crate) fn long_wait(&self) -> Option<Duration> {
        (self.waited >= LONG).then_some(self.waited)
    }

    fn give_back(&mut self) {
        if std::mem::take(&mut self.is_held) {
            let mut line = self.pool.lock();
            line.taken -= 1;
            line.advance(&self.pool);
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// A run's slot, which its tools may lend while they wait for others. Clones are the same slot; the empty one lends nothing.
#[derive(Debug, Clone, Default)]
pub struct Lender(Arc<Mutex<Lent>>);

#[derive(Debug, Default)]
struct Lent {
    slot: Option<Slot>,
    /// How many of the run's tools wait.
    waiting: usize,
    /// Whether one of them has come back and waits for the slot, for all of them.
    is_awaited: bool,
}

impl From<Slot> for Lender {
    fn from(slot: Slot) -> Self {
        Self(Arc::new(Mutex::new(Lent { slot: Some(slot), ..Lent::default() })))
    }
}

impl Lender {
    /// Waits for something that needs others to be at work: a child, an approval. The slot is given back as long as any
    /// tool of the run waits so, and after that waited for again.
    ///
    /// When this is dropped halfway the slot may stay given back: a run that is over needs none.
    pub async fn lend<T>(&self, meanwhile: impl Future<Output = T>) -> T {
        let waits = Waits::begin(self);
        let result = meanwhile.await;
        drop(waits);
        if let Some(pool) = self.wanted() {
            let awaits = Awaits(self);
            let slot = pool.take().await;
            self.lock().slot = Some(slot);
            drop(awaits);
        }
        result
    }

    /// Where to take a slot again, if nobody waits any more and it was given back.
    fn wanted(&self) -> Option<Arc<Pool>> {
        let mut lent = self.lock();
        let is_wanted = lent.waiting == 0 && !lent.is_awaited;
        let pool = lent.slot.as_ref().filter(|slot| is_wanted && !slot.is_held)?.pool.clone();
        lent.is_awaited = true;
        Some(pool)
    }

    fn lock(&self) -> MutexGuard<'_, Lent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A tool that waits for the slot, for all of its run, until it is dropped.
struct Awaits<'a>(&'a Lender);

impl Drop for Awaits<'_> {
    fn drop(&mut self) {
        self.0.lock().is_awaited = false;
    }
}

/// A tool that waits, until it is dropped.
struct Waits<'a>(&'a Lender);

impl<'a> Waits<'a> {
    fn begin(lender: &'a Lender) -> Self {
        let mut lent = lender.lock();
        lent.waiting += 1;
        if let Some(slot) = &mut lent.slot {
            slot.give_back();
        }
        drop(lent);
        Self(lender)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.lock().waiting -= 1;
    }
}

/// Some slots and those who wait for one. One short lock; never held across an await.
#[derive(Debug)]
struct Pool(Mutex<Line>);

/// Whenever the lock is free, nobody waits or all slots are taken.
#[derive(Debug)]
struct Line {
    size: usize,
    taken: usize,
    /// Some of these may have gone; they are skipped when it is their turn.
    waiting: VecDeque<oneshot::Sender<Slot>>,
}

impl Pool {
    fn new(size: usize) -> Self {
        Self(Mutex::new(Line { size: size.max(1), taken: 0, waiting: VecDeque::new() }))
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn resize(self: &Arc<Self>, size: usize) {
        let mut line = self.lock();
        line.size = size.max(1);
        line.advance(self);
    }

    async fn take(self: &Arc<Self>) -> Slot {
        let since = Instant::now();
        loop {
            let Some(turn) = self.lock().line_up() else { return Slot::of(self) };
            // The line is as old as the pool and nobody is sent away, so this is the first answer.
            if let Ok(mut slot) = turn.await {
                slot.waited = since.elapsed();
                return slot;
            }
        }
    }
}

impl Line {
    fn try_take(&mut self) -> bool {
        let is_free = self.taken < self.size;
        self.taken += usize::from(is_free);
        is_free
    }

    /// Takes a slot, or a place in the line if none is free.
    fn line_up(&mut self) -> Option<oneshot::Receiver<Slot>> {
        if self.try_take() {
            return None;
        }
        let (call, turn) = oneshot::channel();
        self.waiting.push_back(call);
        Some(turn)
    }

    /// Hands what is free to those who wait, the first one first.
    fn advance(&mut self, pool: &Arc<Pool>) {
        while self.taken < self.size
            && let Some(next) = self.waiting.pop_front()
        {
            match next.send(Slot::of(pool)) {
                Ok(()) => self.taken += 1,
                // Gone. This one was never counted, and giving it back would want the lock that we hold.
                Err(mut slot) => slot.is_held = false,
            }
        }
    }
}

#[cfg(test)]
mod tests;
