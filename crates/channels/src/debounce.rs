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
        let window_ms = u64::try_from(window.as_millis()).unwrap_or(u64::MAX);
        Self { window_ms, pending: VecDeque::new() }
    }

    /// Adds a message; returns the groups that are complete now, in order of arrival.
    pub fn push(&mut self, key: &str, item: T, treat: DebounceMode, now_ms: u64) -> Vec<Vec<T>> {
        if self.window_ms == 0 || treat == DebounceMode::Alone {
            return self.take(key).into_iter().chain([vec![item]]).collect();
        }
        let due_ms = now_ms.saturating_add(self.window_ms);
        match self.pending.iter_mut().find(|waiting| waiting.key == key) {
            Some(waiting) => {
                waiting.items.push(item);
                waiting.due_ms = due_ms;
                if waiting.items.len() >= MAX_ITEMS { self.take(key).into_iter().collect() } else { Vec::new() }
            }
            None => {
                self.pending.push_back(PendingMessages { key: key.to_owned(), items: vec![item], due_ms });
                let too_many = self.pending.len() > MAX_SENDERS;
                let first = if too_many { self.pending.pop_front() } else { None };
                first.map(|waiting| waiting.items).into_iter().collect()
            }
        }
    }

    /// Returns the groups whose senders have been silent long enough.
    pub fn due(&mut self, now_ms: u64) -> Vec<Vec<T>> {
        let (due, waiting) = self.pending.drain(..).partition(|waiting| waiting.due_ms <= now_ms);
        self.pending = waiting;
        let due: VecDeque<PendingMessages<T>> = due;
        due.into_iter().map(|waiting| waiting.items).collect()
    }

    /// Time of the next release, if anything is pending.
    pub fn next_due(&self) -> Option<u64> {
        self.pending.iter().map(|waiting| waiting.due_ms).min()
    }

    /// Takes the pending messages of one sender.
    pub fn take(&mut self, key: &str) -> Option<Vec<T>> {
        let at = self.pending.iter().position(|waiting| waiting.key == key)?;
        self.pending.remove(at).map(|waiting| waiting.items)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_sender_is_done_after_a_silence() {
        let mut debounce = Debounce::new(Duration::from_millis(100));
        assert_eq!(debounce.push("a", 1, DebounceMode::Merge, 0), Vec::<Vec<i32>>::new());
        assert_eq!(debounce.push("b", 2, DebounceMode::Merge, 50), Vec::<Vec<i32>>::new());
        assert_eq!(debounce.push("a", 3, DebounceMode::Merge, 60), Vec::<Vec<i32>>::new());
        assert_eq!((debounce.due(149), debounce.next_due()), (vec![], Some(150)));
        assert_eq!((debounce.due(150), debounce.next_due()), (vec![vec![2]], Some(160)));
        assert_eq!((debounce.due(900), debounce.next_due()), (vec![vec![1, 3]], None));
    }

    #[test]
    fn what_stands_alone_ends_what_waits() {
        let mut debounce = Debounce::new(Duration::from_millis(100));
        debounce.push("a", 1, DebounceMode::Merge, 0);
        debounce.push("b", 2, DebounceMode::Merge, 0);
        assert_eq!(debounce.push("a", 3, DebounceMode::Alone, 1), [vec![1], vec![3]]);
        assert_eq!(debounce.due(900), [vec![2]]);
        assert_eq!(Debounce::new(Duration::ZERO).push("a", 1, DebounceMode::Merge, 0), [vec![1]]);
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut debounce = Debounce::new(Duration::from_secs(1));
        let whole: Vec<Vec<usize>> =
            (0..MAX_ITEMS + 1).flat_map(|n| debounce.push("a", n, DebounceMode::Merge, 0)).collect();
        assert_eq!(whole, [(0..MAX_ITEMS).collect::<Vec<_>>()]);
        let first: Vec<Vec<usize>> =
            (0..MAX_SENDERS).flat_map(|n| debounce.push(&format!("s{n}"), n, DebounceMode::Merge, 0)).collect();
        assert_eq!(first, [vec![MAX_ITEMS]]);
    }

    proptest! {
        /// Nothing is lost or duplicated, and each sender's messages keep their order.
        #[test]
        fn every_message_comes_once_and_in_order(
            steps in prop::collection::vec((0usize..3, any::<bool>(), 0u64..120), 0..80),
        ) {
            let mut debounce = Debounce::new(Duration::from_millis(100));
            let (mut now, mut out, mut sent) = (0, vec![vec![]; 3], vec![vec![]; 3]);
            for (n, (sender, alone, pause)) in steps.into_iter().enumerate() {
                now += pause;
                let treat = if alone { DebounceMode::Alone } else { DebounceMode::Merge };
                let mut whole = debounce.due(now);
                whole.extend(debounce.push(&sender.to_string(), (sender, n), treat, now));
                sent[sender].push(n);
                for batch in whole {
                    let sender = batch[0].0;
                    prop_assert!(batch.iter().all(|(other, _)| *other == sender));
                    out[sender].extend(batch.into_iter().map(|(_, n)| n));
                }
            }
            for batch in debounce.due(u64::MAX) {
                out[batch[0].0].extend(batch.into_iter().map(|(_, n)| n));
            }
            prop_assert_eq!(out, sent);
        }
    }
}
