//! Milliseconds.

use std::time::{Duration, SystemTime};

/// Returns a duration in milliseconds; a longer one than fits is the maximum.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Returns a time in milliseconds since the epoch; 0 for times before it.
pub fn epoch_millis(time: SystemTime) -> u64 {
    millis(time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_out_of_range_are_limits() {
        assert_eq!([millis(Duration::from_secs(2)), millis(Duration::MAX)], [2_000, u64::MAX]);
        let epoch = SystemTime::UNIX_EPOCH;
        let times = [epoch + Duration::from_micros(1_999), epoch - Duration::from_secs(1)];
        assert_eq!(times.map(epoch_millis), [1, 0]);
    }
}
