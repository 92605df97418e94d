//! Rate limits of Discord's API: a bucket per route, learned from the response headers, and one limit for all.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use reqwest::header::HeaderMap;
use tokio::time::Instant;

/// Number of entries beyond which expired ones are removed.
const MAX_ENTRIES: usize = 1000;

/// Known limits of one bot.
#[derive(Debug, Default)]
pub(super) struct RateLimits(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Buckets of routes. Several routes can share one.
    buckets: HashMap<Route, Bucket>,
    states: HashMap<Bucket, BucketState>,
    /// Until then all requests are rejected.
    global_until: Option<Instant>,
}

/// A route: method and path without ids, except that of the channel or server, which has limits of its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Route {
    template: String,
    major: String,
}

/// A bucket as Discord names it, per channel or server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Bucket {
    name: String,
    major: String,
}

#[derive(Debug, Clone, Copy)]
struct BucketState {
    remaining: u64,
    resets_at: Instant,
}

impl Route {
    /// Returns the route of a request.
    pub(super) fn of(method: &str, path: &[&str]) -> Self {
        let is_id = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        // The parts after `reactions` are an emoji and a user.
        let end = path.iter().position(|part| *part == "reactions").map_or(path.len(), |at| at + 1);
        let named = path[..end].iter().map(|part| if is_id(part) { "*" } else { *part });
        let major = path.get(1).filter(|part| is_id(part)).copied().unwrap_or_default().to_owned();
        Self { template: format!("{method} {}", named.collect::<Vec<_>>().join("/")), major }
    }
}

impl RateLimits {
    /// Takes one request from the bucket of a route. If it is empty, returns the time until it is filled, and nothing
    /// is taken.
    pub(super) fn take(&self, route: &Route, now: Instant) -> Result<(), Duration> {
        let mut inner = self.lock();
        if let Some(until) = inner.global_until.filter(|until| *until > now) {
            return Err(until - now);
        }
        let Some(bucket) = inner.buckets.get(route).cloned() else { return Ok(()) };
        let Some(state) = inner.states.get_mut(&bucket).filter(|state| state.resets_at > now) else { return Ok(()) };
        match state.remaining.checked_sub(1) {
            Some(remaining) => {
                state.remaining = remaining;
                Ok(())
            }
            None => Err(state.resets_at - now),
        }
    }

    /// Learns the state of a bucket from the headers of a response.
    pub(super) fn learn(&self, route: &Route, headers: &HeaderMap, now: Instant) {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let Some(name) = text("x-ratelimit-bucket") else { return };
        let remaining = text("x-ratelimit-remaining").and_then(|value| value.parse().ok());
        let resets_after = text("x-ratelimit-reset-after").and_then(|value| value.parse::<f64>().ok());
        let resets_after = resets_after.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let (Some(remaining), Some(resets_after)) = (remaining, resets_after) else { return };
        let bucket = Bucket { name: name.to_owned(), major: route.major.clone() };
        let mut inner = self.lock();
        inner.states.insert(bucket.clone(), BucketState { remaining, resets_at: now + resets_after });
        inner.buckets.insert(route.clone(), bucket);
        inner.remove_expired(now);
    }

    /// Records that all requests are rejected for some time.
    pub(super) fn block_all(&self, wait: Duration, now: Instant) {
        self.lock().global_until = Some(now + wait);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn remove_expired(&mut self, now: Instant) {
        if self.states.len() > MAX_ENTRIES || self.buckets.len() > MAX_ENTRIES {
            self.states.retain(|_, state| state.resets_at > now);
            self.buckets.retain(|_, bucket| self.states.contains_key(bucket));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(bucket: &str, remaining: u64, resets_after: f64) -> HeaderMap {
        let texts = [
            ("x-ratelimit-bucket", bucket.to_owned()),
            ("x-ratelimit-remaining", remaining.to_string()),
            ("x-ratelimit-reset-after", resets_after.to_string()),
        ];
        texts.into_iter().map(|(name, text)| (name.parse().unwrap(), text.parse().unwrap())).collect()
    }

    #[test]
    fn a_route_has_no_ids_but_that_of_its_channel() {
        let route = |path: &[&str]| Route::of("GET", path);
        assert_eq!(route(&["channels", "1", "messages", "2"]), route(&["channels", "1", "messages", "3"]));
        assert_ne!(route(&["channels", "1", "messages", "2"]), route(&["channels", "2", "messages", "2"]));
        let reactions = |emoji| route(&["channels", "1", "messages", "2", "reactions", emoji, "@me"]);
        assert_eq!(reactions("👍"), reactions("👎"));
        assert_ne!(Route::of("GET", &["users", "@me"]), Route::of("PATCH", &["users", "@me"]));
    }

    #[tokio::test(start_paused = true)]
    async fn an_empty_bucket_blocks_its_routes_until_it_is_filled() {
        let limits = RateLimits::default();
        let (send, edit) = (Route::of("POST", &["channels", "1", "messages"]), Route::of("PATCH", &["channels", "1"]));
        let elsewhere = Route::of("POST", &["channels", "2", "messages"]);
        assert_eq!(limits.take(&send, Instant::now()), Ok(()), "an unknown limit does not block");
        for route in [&send, &edit] {
            limits.learn(route, &headers("b", 1, 2.5), Instant::now());
        }
        limits.learn(&elsewhere, &headers("b", 1, 2.5), Instant::now());
        assert_eq!(limits.take(&send, Instant::now()), Ok(()));
        tokio::time::advance(Duration::from_secs(1)).await;
        let wait = Err(Duration::from_millis(1500));
        assert_eq!([limits.take(&send, Instant::now()), limits.take(&edit, Instant::now())], [wait, wait]);
        assert_eq!(limits.take(&elsewhere, Instant::now()), Ok(()), "another channel has a bucket of its own");
        tokio::time::advance(Duration::from_millis(1500)).await;
        assert_eq!(limits.take(&send, Instant::now()), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn the_global_limit_blocks_every_route() {
        let limits = RateLimits::default();
        limits.block_all(Duration::from_secs(3), Instant::now());
        let route = Route::of("GET", &["users", "@me"]);
        assert_eq!(limits.take(&route, Instant::now()), Err(Duration::from_secs(3)));
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!(limits.take(&route, Instant::now()), Ok(()));
    }
}
