//! Flags that mean the same on every command, and parsers for their values.

use std::time::Duration;

use homard_settings::parse_duration_in;

/// `-n, --limit N` of a list.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(super) struct Limit {
    /// Maximum number of entries
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: Option<u16>,
}

impl Limit {
    /// Returns the limit, if one was given.
    pub(super) fn get(self) -> Option<u16> {
        self.limit
    }
}

/// Parses a duration such as `90s` or `5m`; a bare number is seconds.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    parse(text, Duration::from_secs(1))
}

/// Parses a duration such as `90s` or `5m`; a bare number is milliseconds.
pub(super) fn milliseconds(text: &str) -> Result<Duration, String> {
    parse(text, Duration::from_millis(1))
}

fn parse(text: &str, unit: Duration) -> Result<Duration, String> {
    parse_duration_in(text, unit).ok_or_else(|| "not a duration such as 90s or 5m".to_owned())
}

/// Returns a duration in whole seconds, rounded up.
pub(super) fn whole_seconds(span: Duration) -> u64 {
    span.as_secs() + u64::from(span.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::duration;

    #[test]
    fn a_printed_duration_can_be_parsed() {
        for span in [40, 1_240, 59_000, 120_000, 7_200_000, 172_800_000].map(Duration::from_millis) {
            assert_eq!(seconds(&duration(span)), Ok(span));
        }
    }

    #[test]
    fn a_bare_number_keeps_its_unit() {
        assert_eq!((seconds("5"), milliseconds("5")), (Ok(Duration::from_secs(5)), Ok(Duration::from_millis(5))));
        assert_eq!(seconds("5m"), milliseconds("5m"));
        assert_eq!(seconds("soon"), Err("not a duration such as 90s or 5m".to_owned()));
        assert_eq!([0, 1, 1_000, 1_001].map(|ms| whole_seconds(Duration::from_millis(ms))), [0, 1, 1, 2]);
    }
}
