//! Seeded pseudo-random numbers.

/// A pseudo-random number generator (splitmix64).
#[derive(Debug, Clone)]
pub(super) struct SplitMix(u64);

impl SplitMix {
    /// Creates a generator with this seed.
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Creates a generator for a named part, independent of the numbers drawn by others.
    pub(super) fn of(seed: u64, name: &str) -> Self {
        // FNV-1a.
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self(name.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, mix))
    }

    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `limit`, which is at least one.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next_u64() % limit.max(1)
    }

    /// Returns true with a probability of `chance` percent.
    pub(super) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_and_name_give_the_same_numbers() {
        let draw = |seed, name| {
            let mut rng = SplitMix::of(seed, name);
            [rng.below(1_000), rng.below(1_000), rng.below(1_000)]
        };
        assert_eq!(draw(1, "a"), draw(1, "a"));
        assert_ne!(draw(1, "a"), draw(2, "a"));
        assert_ne!(draw(1, "a"), draw(1, "b"));
    }
}
