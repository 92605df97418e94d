//! How many runs may be at work at once, in all sessions together.

use std::sync::Arc;

use homard_proto::SessionKey;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Which pool a run draws from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Conversations.
    Main,
    /// Runs that a run started.
    Subagent,
    /// Scheduled runs.
    Cron,
}

impl Class {
    /// The pool that a request names, or else that its session implies.
    pub fn choose(named: Option<&str>, key: &SessionKey) -> Self {
        match named.map(str::trim) {
            Some("subagent") => Self::Subagent,
            Some("cron") => Self::Cron,
            Some("main") => Self::Main,
            _ if key.is_subagent() => Self::Subagent,
            _ if key.is_cron() => Self::Cron,
            _ => Self::Main,
        }
    }
}

impl Class {
    /// What a request calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Subagent => "subagent",
            Self::Cron => "cron",
        }
    }
}

/// The pools. A session waits for a slot with one run at a time, so first come, first served is fair between sessions.
#[derive(Debug, Clone)]
pub struct Slots {
    main: Arc<Semaphore>,
    subagent: Arc<Semaphore>,
    cron: Arc<Semaphore>,
}

impl Slots {
    /// Pools of these sizes; a size below one is one.
    pub fn new(main: usize, subagent: usize, cron: usize) -> Self {
        let pool = |size: usize| Arc::new(Semaphore::new(size.clamp(1, Semaphore::MAX_PERMITS)));
        Self { main: pool(main), subagent: pool(subagent), cron: pool(cron) }
    }

    fn pool(&self, class: Class) -> &Arc<Semaphore> {
        match class {
            Class::Main => &self.main,
            Class::Subagent => &self.subagent,
            Class::Cron => &self.cron,
        }
    }

    /// A slot, if one is free and nobody waits for it.
    pub(crate) fn try_take(&self, class: Class) -> Option<OwnedSemaphorePermit> {
        self.pool(class).clone().try_acquire_owned().ok()
    }

    /// Waits for a slot; it is given back when the permit is dropped. Cancel safe.
    pub(crate) async fn take(&self, class: Class) -> OwnedSemaphorePermit {
        let pool = self.pool(class);
        loop {
            // The pools are never closed, so this is the first answer.
            if let Ok(permit) = pool.clone().acquire_owned().await {
                return permit;
            }
        }
    }
}

impl Default for Slots {
    fn default() -> Self {
        Self::new(4, 8, 1)
    }
}
