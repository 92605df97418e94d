//! Debouncing: merges consecutive messages of one sender. Pure: the caller provides the time.

use std::{collections::VecDeque, time::Duration};

/// Maximum number of messages merged.
const MAX_ITEMS: usize = 50;

/// Maximum number of senders with pending messages; beyond that, the oldest is released.
const MAX_SENDERS: usize = 1000;

/// How a message is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DebounceMode {
    /// It may be merged with its neighbours.
    Merge,
    /// It is passed on alone, after releasing what is pending before it: media and commands.
    Alone,
}

/// Pending messages by sender.
#[derive(Debug, Clone)]
pub struct Debounce<T> {
    window_ms: u64,
    /// Ordered by the time of each sender's first message.
    pending: VecDeque<PendingMessages<T>>,
}

#[derive(Debug, Clone)]
struct PendingMessages<T> {
    key: String,
    items: Vec<T>,
    due_ms: u64,
}

impl<T> Debounce<T> {
    /// Creates a debouncer that releases a sender's messages after this period of silence; zero disables it.
    pub fn new(window: Duration) -> Self {
        let window_ms = homard_stdx::time::millis(window);
        Self { window_ms, pending: VecDeque::new() }
    }

    /// Adds a message; returns the groups that are complete now, in order of arrival.
    pub fn push(&mut self, key: &str, item: T, mode: DebounceMode, now_ms: u64) -> Vec<Vec<T>> {
        if self.window_ms == 0 || mode == DebounceMode::Alone {
            return self.take(key).into_iter().chain([vec![item]]).collect();
        }
        let due_ms = now_ms.saturating_add(self.window_ms);
        match self.pending.iter_mut().find(|group| group.key == key) {
            Some(group) => {
                group.items.push(item);
                group.due_ms = due_ms;
                if group.items.len() >= MAX_ITEMS { self.take(key).into_iter().collect() } else { Vec::new() }
            }
            None => {
                self.pending.push_back(PendingMessages { key: key.to_owned(), items: vec![item], due_ms });
                let is_full = self.pending.len() > MAX_SENDERS;
                let first = if is_full { self.pending.pop_front() } else { None };
                first.map(|group| group.items).into_iter().collect()
            }
        }
    }

    /// Returns the groups whose senders have been silent long enough.
    pub fn due(&mut self, now_ms: u64) -> Vec<Vec<T>> {
        let (due, remaining) = self.pending.drain(..).partition(|group| group.due_ms <= now_ms);
        self.pending = remaining;
        let due: VecDeque<PendingMessages<T>> = due;
        due.into_iter().map(|group| group.items).collect()
    }

    /// Time of the next release, if anything is pending.
    pub fn next_due(&self) -> Option<u64> {
        self.pending.iter().map(|group| group.due_ms).min()
    }

    /// Takes the pending messages of one sender.
    pub fn take(&mut self, key: &str) -> Option<Vec<T>> {
        let index = self.pending.iter().position(|group| group.key == key)?;
        self.pending.remove(index).map(|group| group.items)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn messages_are_released_after_a_period_of_silence() {
        let mut debounce = Debounce::new(Duration::from_millis(100));
        assert_eq!(debounce.push("a", 1, DebounceMode::Merge, 0), Vec::<Vec<i32>>::new());
        assert_eq!(debounce.push("b", 2, DebounceMode::Merge, 50), Vec::<Vec<i32>>::new());
        assert_eq!(debounce.push("a", 3, DebounceMode::Merge, 60), Vec::<Vec<i32>>::new());
        assert_eq!((debounce.due(149), debounce.next_due()), (vec![], Some(150)));
        assert_eq!((debounce.due(150), debounce.next_due()), (vec![vec![2]], Some(160)));
        assert_eq!((debounce.due(900), debounce.next_due()), (vec![vec![1, 3]], None));
    }

    #[test]
    fn a_message_that_stands_alone_releases_pending_ones() {
        let mut debounce = Debounce::new(Duration::from_millis(100));
        debounce.push("a", 1, DebounceMode::Merge, 0);
        debounce.push("b", 2, DebounceMode::Merge, 0);
        assert_eq!(debounce.push("a", 3, DebounceMode::Alone, 1), [vec![1], vec![3]]);
        assert_eq!(debounce.due(900), [vec![2]]);
        assert_eq!(Debounce::new(Duration::ZERO).push("a", 1, DebounceMode::Merge, 0), [vec![1]]);
    }

    #[test]
    fn pending_messages_are_bounded() {
        let mut debounce = Debounce::new(Duration::from_secs(1));
        let released: Vec<Vec<usize>> =
            (0..MAX_ITEMS + 1).flat_map(|n| debounce.push("a", n, DebounceMode::Merge, 0)).collect();
        assert_eq!(released, [(0..MAX_ITEMS).collect::<Vec<_>>()]);
        let first: Vec<Vec<usize>> =
            (0..MAX_SENDERS).flat_map(|n| debounce.push(&format!("s{n}"), n, DebounceMode::Merge, 0)).collect();
        assert_eq!(first, [vec![MAX_ITEMS]]);
    }

    proptest! {
        /// Nothing is lost or duplicated, and each sender's messages keep their order.
        #[test]
        fn every_message_is_released_once_and_in_order(
            steps in prop::collection::vec((0usize..3, any::<bool>(), 0u64..120), 0..80),
        ) {
            let mut debounce = Debounce::new(Duration::from_millis(100));
            let (mut now, mut received, mut sent) = (0, vec![vec![]; 3], vec![vec![]; 3]);
            for (n, (sender, is_alone, pause)) in steps.into_iter().enumerate() {
                now += pause;
                let mode = if is_alone { DebounceMode::Alone } else { DebounceMode::Merge };
                let mut released = debounce.due(now);
                released.extend(debounce.push(&sender.to_string(), (sender, n), mode, now));
                sent[sender].push(n);
                for batch in released {
                    let sender = batch[0].0;
                    prop_assert!(batch.iter().all(|(other, _)| *other == sender));
                    received[sender].extend(batch.into_iter().map(|(_, n)| n));
                }
            }
            for batch in debounce.due(u64::MAX) {
                received[batch[0].0].extend(batch.into_iter().map(|(_, n)| n));
            }
            prop_assert_eq!(received, sent);
        }
    }
}
