//! Where lanes with nothing to do keep their history at hand for a while, and how much of it all of them may keep.
//!
//! A message that follows soon finds its history read. But thousands of sessions may have been at work within that
//! while, and what they keep together has to be bounded: who rests longest leaves first.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use tokio::sync::oneshot;

/// How many messages resting lanes keep at hand together; up to twice as many between two looks, and more if some
/// conversations are long.
const MESSAGES: usize = 4_096;

/// What a lane takes beside its messages, in messages.
const LANE: usize = 8;

/// What a lane counts for, at most. A long conversation is the one that is not to be read again, and must not drive out
/// all others, either.
const MOST: usize = MESSAGES / 4;

/// The lanes that rest, longest first.
#[derive(Debug, Default)]
pub(crate) struct Rest(Mutex<Places>);

#[derive(Debug, Default)]
struct Places {
    taken: VecDeque<Place>,
    /// What they weigh together, those included that were left since the last look.
    weight: usize,
}

/// A place that a lane took. Its lane learns that it has to go when this is dropped.
#[derive(Debug)]
struct Place {
    lane: oneshot::Sender<()>,
    weight: usize,
}

impl Rest {
    /// Takes a place for a lane with so many messages. What is returned ends when the lane has to go; a lane that goes
    /// back to work drops it.
    pub(super) fn take(&self, messages: usize) -> oneshot::Receiver<()> {
        let (lane, told) = oneshot::channel();
        let weight = (messages + LANE).min(MOST);
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        places.weight += weight;
        places.taken.push_back(Place { lane, weight });
        if places.weight > 2 * MESSAGES {
            places.clear();
        }
        told
    }
}

impl Places {
    /// Forgets who went, and then has those go that rest longest, until what is left may stay.
    fn clear(&mut self) {
        self.taken.retain(|place| !place.lane.is_closed());
        self.weight = self.taken.iter().map(|place| place.weight).sum();
        while self.weight > MESSAGES
            && let Some(place) = self.taken.pop_front()
        {
            self.weight -= place.weight;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a lane has to go.
    fn is_sent_away(place: &mut oneshot::Receiver<()>) -> bool {
        matches!(place.try_recv(), Err(oneshot::error::TryRecvError::Closed))
    }

    #[test]
    fn who_rests_longest_leaves_when_it_is_too_much() {
        let rest = Rest::default();
        let mut places: Vec<_> = (0..1_000).map(|_| rest.take(40)).collect();
        let staying: Vec<_> = places.iter_mut().map(|place| !is_sent_away(place)).collect();
        let stay = staying.iter().filter(|stays| **stays).count();
        assert!(stay * (40 + LANE) <= 2 * MESSAGES && stay * (40 + LANE) > MESSAGES / 2, "{stay} stay");
        assert!(staying.is_sorted(), "one left before another that rested longer");
    }

    /// One session that is busy all the time does not drive out those who rest.
    #[test]
    fn who_went_back_to_work_has_no_place() {
        let rest = Rest::default();
        let mut quiet = rest.take(40);
        for _ in 0..10_000 {
            drop(rest.take(100));
        }
        assert!(!is_sent_away(&mut quiet));
    }

    #[test]
    fn a_long_conversation_drives_nobody_out_and_is_not_driven_out() {
        let rest = Rest::default();
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
