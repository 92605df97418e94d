//! Inputs of fuzz tests, derived from a seed, so that a failure can be repeated.

use std::ops::Range;

use crate::SeededRng;

/// Returns the seeds of a fuzz test: `rounds` of them, from 0 on, unless the variables `FUZZ_ROUNDS` and `FUZZ_FROM` of
/// the environment say otherwise. `cargo xtask fuzz` sets them.
pub fn seeds(rounds: u64) -> Range<u64> {
    let from = number("FUZZ_FROM").unwrap_or(0);
    from..from + number("FUZZ_ROUNDS").unwrap_or(rounds)
}

#[allow(clippy::disallowed_methods, reason = "a switch for those who run the tests")]
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Returns one of the inputs with up to four mutations: a bit flipped, a part removed, doubled or truncated, or a
/// fragment inserted.
pub fn mutated(seed: u64, inputs: &[&[u8]], fragments: &[&[u8]]) -> Vec<u8> {
    let mut rng = SeededRng::new(seed);
    let mut bytes = rng.pick(inputs).to_vec();
    for _ in 0..rng.index(5) {
        let at = rng.index(bytes.len() + 1);
        let end = (at + rng.index(12)).min(bytes.len());
        match rng.index(6) {
            0 if at < bytes.len() => bytes[at] ^= 1 << rng.index(8),
            1 => drop(bytes.drain(at..end)),
            2 => {
                let part = bytes[at..end].to_vec();
                bytes.splice(end..end, part);
            }
            3 => bytes.truncate(at),
            _ => drop(bytes.splice(at..at, rng.pick(fragments).iter().copied())),
        }
    }
    bytes
}

/// Like [`mutated`], for texts; what is not UTF-8 afterwards is replaced.
pub fn mutated_text(seed: u64, inputs: &[&str], fragments: &[&str]) -> String {
    let [inputs, fragments] = [inputs, fragments].map(|texts| texts.iter().map(|it| it.as_bytes()).collect::<Vec<_>>());
    String::from_utf8_lossy(&mutated(seed, &inputs, &fragments)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_input() {
        let inputs = (0..100).map(|seed| mutated_text(seed, &["alpha", "beta"], &["-", "ü"])).collect::<Vec<_>>();
        let again = (0..100).map(|seed| mutated_text(seed, &["alpha", "beta"], &["-", "ü"])).collect::<Vec<_>>();
        assert_eq!(inputs, again);
        let is_unchanged = |input: &&String| ["alpha", "beta"].contains(&input.as_str());
        assert!((5..60).contains(&inputs.iter().filter(is_unchanged).count()));
        assert!(inputs.iter().any(|input| input.contains('ü')));
    }
}
