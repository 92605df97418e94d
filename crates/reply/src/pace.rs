//! Delay between two blocks, to imitate human typing.

use std::{ops::RangeInclusive, time::Duration};

use homard_stdx::time::millis;

/// Range of [`BlockDelay::Natural`], in milliseconds.
const NATURAL: RangeInclusive<u64> = 800..=2500;

/// Delay between two blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BlockDelay {
    /// No delay.
    #[default]
    Off,
    /// As long as a person takes to send the next message.
    Natural,
    /// Between these two; if `max` is not above `min`, always `min`.
    Custom {
        /// Shortest delay.
        min: Duration,
        /// Longest delay.
        max: Duration,
    },
}

impl BlockDelay {
    /// Returns the delay of block number `index`, counted from 0; the first is not delayed. `random` is any number.
    pub fn after(&self, index: usize, random: u64) -> Duration {
        if index == 0 {
            return Duration::ZERO;
        }
        match self {
            Self::Off => Duration::ZERO,
            Self::Natural => between(*NATURAL.start(), *NATURAL.end(), random),
            Self::Custom { min, max } if max <= min => *min,
            Self::Custom { min, max } => between(millis(*min), millis(*max), random),
        }
    }
}

fn between(min: u64, max: u64, random: u64) -> Duration {
    let choices = max.saturating_sub(min).saturating_add(1);
    Duration::from_millis(min + random % choices)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Conformance case 137.
    #[test]
    fn the_first_block_is_not_delayed_and_later_ones_are() {
        let at = |index, random| BlockDelay::Natural.after(index, random);
        assert_eq!(at(0, 99), Duration::ZERO);
        assert_eq!([at(1, 0), at(2, 1700), at(3, 1701)], [ms(800), ms(2500), ms(800)]);
    }

    #[test]
    fn custom_bounds_apply_and_swapped_bounds_use_the_minimum() {
        let after = |min, max, random| BlockDelay::Custom { min: ms(min), max: ms(max) }.after(1, random);
        assert_eq!([after(10, 12, 0), after(10, 12, 2), after(10, 12, 3)], [ms(10), ms(12), ms(10)]);
        assert_eq!([after(10, 10, 7), after(10, 3, 7)], [ms(10), ms(10)]);
    }

    #[test]
    fn off_means_no_delay() {
        assert_eq!(BlockDelay::Off.after(5, u64::MAX), Duration::ZERO);
    }

    #[test]
    fn the_longest_bounds_do_not_overflow() {
        let delay = BlockDelay::Custom { min: Duration::ZERO, max: Duration::MAX };
        // In this range, the delay of the second block is the random number, in milliseconds.
        assert_eq!(delay.after(1, 17), ms(17));
    }
}
