//! The only source of wall-clock time and new ids, so that a test can control both.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use homard_proto::{EntryId, RunId, SessionId};
use tokio::time::Instant;
use uuid::Uuid;

/// Source of wall-clock time, ids and random numbers.
#[derive(Debug, Clone)]
pub struct Ambient(Arc<Source>);

#[derive(Debug)]
enum Source {
    System,
    Virtual { epoch_ms: u64, origin: Instant, ids: AtomicU64 },
}

impl Ambient {
    /// Uses the system clock and random ids.
    pub fn system() -> Self {
        Self(Arc::new(Source::System))
    }

    /// Uses a clock that starts at `epoch_ms` and advances with tokio's clock, which a test may pause; ids count up
    /// from 1.
    pub fn fixed(epoch_ms: u64) -> Self {
        Self(Arc::new(Source::Virtual { epoch_ms, origin: Instant::now(), ids: AtomicU64::new(0) }))
    }

    /// Returns milliseconds since the epoch. For display and records; durations are measured with tokio's clock.
    pub fn now_ms(&self) -> u64 {
        match &*self.0 {
            Source::System => {
                #[allow(clippy::disallowed_methods, reason = "the only access to the system clock and randomness")]
                let now = SystemTime::now();
                homard_stdx::time::epoch_millis(now)
            }
            Source::Virtual { epoch_ms, origin, .. } => epoch_ms + origin.elapsed().as_millis() as u64,
        }
    }

    /// Returns a run id, for a message whose sender gave none.
    pub fn run_id(&self) -> RunId {
        self.parsed(|text| RunId::parse(text).ok(), |n| format!("run-{n}"))
    }

    /// Returns a session id, which identifies one transcript: a session keeps its key, and gets a new id with each new
    /// transcript.
    pub fn session_id(&self) -> SessionId {
        self.parsed(|text| SessionId::parse(text).ok(), |n| format!("session-{n}"))
    }

    /// Returns an id for a transcript entry: eight hex digits, as OpenClaw writes them.
    pub fn entry_id(&self) -> EntryId {
        self.parsed(|text| EntryId::parse(&text[text.len() - 8..]).ok(), |n| format!("{n:08x}"))
    }

    /// Returns an unguessable text.
    pub fn nonce(&self) -> String {
        self.parsed(|text| Some(text.to_owned()), |n| format!("nonce-{n}"))
    }

    /// Returns a random number; with the virtual clock, the next number of a sequence.
    pub fn random(&self) -> u64 {
        match &*self.0 {
            #[allow(clippy::disallowed_methods, reason = "the only access to the system clock and randomness")]
            Source::System => Uuid::new_v4().as_u64_pair().1,
            Source::Virtual { ids, .. } => ids.fetch_add(1, Ordering::Relaxed) + 1,
        }
    }

    /// Generates an id: calls `parse` with new texts until it accepts one. With the system clock each text is a random
    /// UUID, with the virtual clock it is the result of `sequential` for the next number.
    fn parsed<T>(&self, parse: impl Fn(&str) -> Option<T>, sequential: impl Fn(u64) -> String) -> T {
        loop {
            let text = match &*self.0 {
                #[allow(clippy::disallowed_methods, reason = "the only access to the system clock and randomness")]
                Source::System => Uuid::new_v4().to_string(),
                Source::Virtual { ids, .. } => sequential(ids.fetch_add(1, Ordering::Relaxed) + 1),
            };
            if let Some(id) = parse(&text) {
                return id;
            }
        }
    }
}

/// Formats a time as in transcripts: ISO 8601, UTC, milliseconds.
pub fn iso(ms: u64) -> String {
    let time = jiff::Timestamp::from_millisecond(i64::try_from(ms).unwrap_or(i64::MAX)).unwrap_or(jiff::Timestamp::MAX);
    format!("{time:.3}")
}

/// Parses a time of a transcript into milliseconds since the epoch.
pub fn from_iso(text: &str) -> Option<u64> {
    u64::try_from(text.parse::<jiff::Timestamp>().ok()?.as_millisecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_format_of_transcripts() {
        assert_eq!(iso(1_794_709_851_780), "2026-11-15T02:30:51.780Z");
        assert_eq!(from_iso("2026-11-15T02:30:51.780Z"), Some(1_794_709_851_780));
        assert_eq!(from_iso("yesterday"), None);
        assert_eq!(iso(u64::MAX).len(), "9999-12-30T22:00:00.000Z".len());
    }
}
