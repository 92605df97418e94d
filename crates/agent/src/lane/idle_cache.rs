//! Cache of idle lanes: they keep their history in memory for a while, within a global limit.
//!
//! A message that follows soon finds its history loaded. Thousands of sessions may have been active in that time, so
//! their total size is bounded: the longest idle lane is evicted first.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use tokio::sync::oneshot;

/// Maximum messages held by idle lanes together; up to twice as many between two evictions, and more if some
/// conversations are long.
const MAX_IDLE_MESSAGES: usize = 4_096;

/// Weight of a lane besides its messages, in messages.
const LANE_WEIGHT: usize = 8;

/// Maximum weight of a lane. A long conversation is the most expensive to reload, and must not evict all others,
/// either.
const MAX_LANE_WEIGHT: usize = MAX_IDLE_MESSAGES / 4;

/// Idle lanes, longest idle first.
#[derive(Debug, Default)]
pub(crate) struct IdleCache(Mutex<IdleLanes>);

#[derive(Debug, Default)]
struct IdleLanes {
    taken: VecDeque<IdleLane>,
    /// Total weight, including lanes that became active since the last eviction.
    weight: usize,
}

/// An idle lane. Dropping it tells the lane to retire.
#[derive(Debug)]
struct IdleLane {
    lane: oneshot::Sender<()>,
    weight: usize,
}

impl IdleCache {
    /// Registers an idle lane with this many messages. The receiver resolves when the lane is evicted; a lane that
    /// becomes active drops it.
    pub(super) fn take(&self, messages: usize) -> oneshot::Receiver<()> {
        let (lane, told) = oneshot::channel();
        let weight = (messages + LANE_WEIGHT).min(MAX_LANE_WEIGHT);
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        places.weight += weight;
        places.taken.push_back(IdleLane { lane, weight });
        if places.weight > 2 * MAX_IDLE_MESSAGES {
            places.evict();
        }
        told
    }
}

impl IdleLanes {
    /// Removes lanes that are no longer idle, then evicts the longest idle ones until the limit holds.
    fn evict(&mut self) {
        self.taken.retain(|place| !place.lane.is_closed());
        self.weight = self.taken.iter().map(|place| place.weight).sum();
        while self.weight > MAX_IDLE_MESSAGES
            && let Some(place) = self.taken.pop_front()
        {
            self.weight -= place.weight;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// True if a lane was evicted.
    fn is_sent_away(place: &mut oneshot::Receiver<()>) -> bool {
        matches!(place.try_recv(), Err(oneshot::error::TryRecvError::Closed))
    }

    #[test]
    fn who_rests_longest_leaves_when_it_is_too_much() {
        let rest = IdleCache::default();
        let mut places: Vec<_> = (0..1_000).map(|_| rest.take(40)).collect();
        let staying: Vec<_> = places.iter_mut().map(|place| !is_sent_away(place)).collect();
        let stay = staying.iter().filter(|stays| **stays).count();
        assert!(
            stay * (40 + LANE_WEIGHT) <= 2 * MAX_IDLE_MESSAGES && stay * (40 + LANE_WEIGHT) > MAX_IDLE_MESSAGES / 2,
            "{stay} stay"
        );
        assert!(staying.is_sorted(), "one left before another that rested longer");
    }

    /// One session that is constantly active does not evict idle ones.
    #[test]
    fn who_went_back_to_work_has_no_place() {
        let rest = IdleCache::default();
        let mut quiet = rest.take(40);
        for _ in 0..10_000 {
            drop(rest.take(100));
        }
        assert!(!is_sent_away(&mut quiet));
    }

    #[test]
    fn a_long_conversation_drives_nobody_out_and_is_not_driven_out() {
        let rest = IdleCache::default();
        let mut short = rest.take(1);
        for _ in 0..100 {
            drop(rest.take(100_000));
        }
        let mut long = rest.take(100_000);
        assert!(!is_sent_away(&mut short));
        for _ in 0..100 {
            drop(rest.take(40));
        }
        assert!(!is_sent_away(&mut long));
    }
}
