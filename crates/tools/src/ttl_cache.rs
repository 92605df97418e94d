//! A cache with a time to live.

use std::{collections::HashMap, hash::Hash, time::Duration};

use homard_stdx::sync::{Mutex, MutexGuard};
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
        let entries = self.entries();
        let (stored_at, answer) = entries.get(key)?;
        (stored_at.elapsed() < self.ttl).then(|| answer.clone())
    }

    /// Inserts an entry.
    pub(crate) fn put(&self, key: K, answer: V) {
        let mut entries = self.entries();
        entries.retain(|_, (stored_at, _)| stored_at.elapsed() < self.ttl);
        if entries.len() >= MAX_ENTRIES && !entries.contains_key(&key) {
            let oldest = entries.iter().min_by_key(|(_, (stored_at, _))| *stored_at).map(|(key, _)| key.clone());
            oldest.and_then(|oldest| entries.remove(&oldest));
        }
        entries.insert(key, (Instant::now(), answer));
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<K, (Instant, V)>> {
        self.entries.lock()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_entry_is_cached_until_it_expires() {
        let cache = TtlCache::new(Duration::from_secs(60));
        cache.put("a", 1);
        advance(Duration::from_secs(59)).await;
        assert_eq!((cache.get(&"a"), cache.get(&"b")), (Some(1), None));
        advance(Duration::from_secs(1)).await;
        assert_eq!(cache.get(&"a"), None);
        cache.put("b", 2);
        assert_eq!(cache.entries().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_entry_is_evicted() {
        let cache = TtlCache::new(Duration::from_secs(600));
        for n in 0..=MAX_ENTRIES {
            cache.put(n, n);
            advance(Duration::from_millis(1)).await;
        }
        assert_eq!(
            (cache.get(&0), cache.get(&1), cache.get(&MAX_ENTRIES), cache.entries().len()),
            (None, Some(1), Some(MAX_ENTRIES), MAX_ENTRIES)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_zero_ttl_caches_nothing() {
        let cache = TtlCache::new(Duration::ZERO);
        cache.put("a", 1);
        assert_eq!(cache.get(&"a"), None);
    }
}
