//! Cache of idle lanes: they keep their history in memory for a while, within a global limit.
//!
//! A message that follows soon finds its history loaded. Thousands of sessions may have been active in that time, so
//! their total size is bounded: the longest idle lane is evicted first.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use tokio::sync::oneshot;

/// Total weight of idle lanes to which an eviction reduces the cache, in messages. The next eviction starts above twice
/// that weight. More messages may be in memory, because a long conversation counts only as [`MAX_LANE_WEIGHT`].
const MAX_IDLE_MESSAGES: usize = 4_096;

/// Weight of a lane besides its messages, in messages.
const LANE_WEIGHT: usize = 8;

/// Maximum weight of a lane. It lets a long conversation stay, which is the most expensive to reload, and keeps it from
/// evicting all others.
const MAX_LANE_WEIGHT: usize = MAX_IDLE_MESSAGES / 4;

/// Idle lanes, longest idle first.
#[derive(Debug, Default)]
pub(crate) struct IdleCache(Mutex<IdleLanes>);

#[derive(Debug, Default)]
struct IdleLanes {
    lanes: VecDeque<IdleLane>,
    /// Total weight, including lanes that became active since the last eviction.
    weight: usize,
}

/// An idle lane. Dropping it signals the lane to retire.
#[derive(Debug)]
struct IdleLane {
    lane: oneshot::Sender<()>,
    weight: usize,
}

impl IdleCache {
    /// Registers an idle lane with this many messages. The receiver resolves when the lane is evicted; a lane that
    /// becomes active drops it.
    pub(super) fn register(&self, messages: usize) -> oneshot::Receiver<()> {
        let (lane, evicted) = oneshot::channel();
        let weight = (messages + LANE_WEIGHT).min(MAX_LANE_WEIGHT);
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        idle.weight += weight;
        idle.lanes.push_back(IdleLane { lane, weight });
        if idle.weight > 2 * MAX_IDLE_MESSAGES {
            idle.evict();
        }
        evicted
    }
}

impl IdleLanes {
    /// Removes lanes that are no longer idle, then evicts the longest idle ones until the limit holds.
    fn evict(&mut self) {
        self.lanes.retain(|idle| !idle.lane.is_closed());
        self.weight = self.lanes.iter().map(|idle| idle.weight).sum();
        while self.weight > MAX_IDLE_MESSAGES
            && let Some(idle) = self.lanes.pop_front()
        {
            self.weight -= idle.weight;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// True if a lane was evicted.
    fn is_evicted(receiver: &mut oneshot::Receiver<()>) -> bool {
        matches!(receiver.try_recv(), Err(oneshot::error::TryRecvError::Closed))
    }

    #[test]
    fn the_longest_idle_lanes_are_evicted_first() {
        let cache = IdleCache::default();
        let mut receivers: Vec<_> = (0..1_000).map(|_| cache.register(40)).collect();
        let cached: Vec<_> = receivers.iter_mut().map(|receiver| !is_evicted(receiver)).collect();
        let count = cached.iter().filter(|is_cached| **is_cached).count();
        assert!(
            count * (40 + LANE_WEIGHT) <= 2 * MAX_IDLE_MESSAGES && count * (40 + LANE_WEIGHT) > MAX_IDLE_MESSAGES / 2,
            "{count} stay"
        );
        assert!(cached.is_sorted(), "one left before another that rested longer");
    }

    /// One session that is constantly active does not evict idle ones.
    #[test]
    fn active_lanes_do_not_evict_idle_ones() {
        let cache = IdleCache::default();
        let mut quiet = cache.register(40);
        for _ in 0..10_000 {
            drop(cache.register(100));
        }
        assert!(!is_evicted(&mut quiet));
    }

    #[test]
    fn a_long_history_neither_evicts_all_others_nor_is_evicted_first() {
        let cache = IdleCache::default();
        let mut short = cache.register(1);
        for _ in 0..100 {
            drop(cache.register(100_000));
        }
        let mut long = cache.register(100_000);
        assert!(!is_evicted(&mut short));
        for _ in 0..100 {
            drop(cache.register(40));
        }
        assert!(!is_evicted(&mut long));
    }
}
