//! A cache with a time to live.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Maximum number of entries; the oldest is evicted.
const MAX_ENTRIES: usize = 100;

/// A cache with a time to live.
#[derive(Debug)]
pub(crate) struct TtlCache<K, V> {
    entries: Mutex<HashMap<K, (Instant, V)>>,
    ttl: Duration,
}

impl<K: Clone + Eq + Hash, V: Clone> TtlCache<K, V> {
    /// Creates a cache that keeps entries for this time.
    pub(crate) fn new(time: Duration) -> Self {
        Self { entries: Mutex::default(), ttl: time }
    }

    /// Returns an entry that has not expired.
    pub(crate) fn get(&self, key: &K) -> Option<V> {
        let kept = self.entries();
        let (since, answer) = kept.get(key)?;
        (since.elapsed() < self.ttl).then(|| answer.clone())
    }

    /// Inserts an entry.
    pub(crate) fn put(&self, key: K, answer: V) {
        let mut kept = self.entries();
        kept.retain(|_, (since, _)| since.elapsed() < self.ttl);
        if kept.len() >= MAX_ENTRIES && !kept.contains_key(&key) {
            let oldest = kept.iter().min_by_key(|(_, (since, _))| *since).map(|(key, _)| key.clone());
            oldest.and_then(|oldest| kept.remove(&oldest));
        }
        kept.insert(key, (Instant::now(), answer));
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<K, (Instant, V)>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_kept_for_its_time() {
        let recent = TtlCache::new(Duration::from_secs(60));
        recent.put("a", 1);
        advance(Duration::from_secs(59)).await;
        assert_eq!((recent.get(&"a"), recent.get(&"b")), (Some(1), None));
        advance(Duration::from_secs(1)).await;
        assert_eq!(recent.get(&"a"), None);
        recent.put("b", 2);
        assert_eq!(recent.entries().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_makes_room() {
        let recent = TtlCache::new(Duration::from_secs(600));
        for n in 0..=MAX_ENTRIES {
            recent.put(n, n);
            advance(Duration::from_millis(1)).await;
        }
        assert_eq!(
            (recent.get(&0), recent.get(&1), recent.get(&MAX_ENTRIES), recent.entries().len()),
            (None, Some(1), Some(MAX_ENTRIES), MAX_ENTRIES)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn no_time_keeps_nothing() {
        let recent = TtlCache::new(Duration::ZERO);
        recent.put("a", 1);
        assert_eq!(recent.get(&"a"), None);
    }
}
