//! Durations and ages, in the syntax that the duration flags accept: `40ms`, `1.24s`, `2m 3s`, `3d 4h`.

use std::time::Duration;

use homard_stdx::time::millis;

/// Formats a duration with at most two units; below one minute, with at most two decimals.
pub fn duration(span: Duration) -> String {
    duration_ms(millis(span))
}

/// Same as `duration`, for milliseconds.
pub fn duration_ms(ms: u64) -> String {
    // 59.995 s and more would be rounded to 60 s.
    let seconds = if ms < 59_995 { ms / 1000 } else { ms.saturating_add(500) / 1000 };
    let pair = |first: u64, name: &str, second: u64, next: &str| match second {
        0 => format!("{first}{name}"),
        _ => format!("{first}{name} {second}{next}"),
    };
    match seconds {
        _ if ms < 1000 => format!("{ms}ms"),
        0..60 => {
            let hundredths = (ms + 5) / 10;
            let decimals = format!("{}.{:02}", hundredths / 100, hundredths % 100);
            format!("{}s", decimals.trim_end_matches('0').trim_end_matches('.'))
        }
        60..3_600 => pair(seconds / 60, "m", seconds % 60, "s"),
        3_600..86_400 => pair(seconds / 3_600, "h", seconds % 3_600 / 60, "m"),
        86_400.. => pair(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    }
}

/// Formats the time since a moment, in its largest unit.
pub fn age(now_ms: u64, then_ms: u64) -> String {
    let seconds = now_ms.saturating_sub(then_ms) / 1000;
    match seconds {
        0..60 => format!("{seconds}s ago"),
        60..3_600 => format!("{}m ago", seconds / 60),
        3_600..86_400 => format!("{}h ago", seconds / 3_600),
        86_400.. => format!("{}d ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units_at_most() {
        let ms = [0, 999, 1_000, 1_240, 20_500, 59_994, 59_999, 60_000, 123_000, 5_400_000, 90_061_000];
        let expected = ["0ms", "999ms", "1s", "1.24s", "20.5s", "59.99s", "1m", "1m", "2m 3s", "1h 30m", "1d 1h"];
        assert_eq!(ms.map(duration_ms), expected);
        assert_eq!(duration(Duration::from_secs(40)), "40s");
    }

    #[test]
    fn ages_use_the_largest_unit() {
        let ages = [0, 59_999, 60_000, 3_599_999, 3_600_000, 86_400_000].map(|ms| age(ms, 0));
        assert_eq!(ages, ["0s ago", "59s ago", "1m ago", "59m ago", "1h ago", "1d ago"]);
        assert_eq!(age(5, 10), "0s ago");
    }
}
