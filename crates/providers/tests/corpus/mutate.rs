//! Deterministic corruption of bytes by seed.

use std::ops::Range;

use homard_stdx::SeededRng;

/// Default number of corrupted copies of each stream; `FUZZ_ROUNDS` overrides it.
const ROUNDS: u64 = 300;

/// Returns the seeds: `FUZZ_ROUNDS` of them, from `FUZZ_FROM` on.
pub(crate) fn seeds() -> Range<u64> {
    let from = number("FUZZ_FROM").unwrap_or(0);
    from..from + number("FUZZ_ROUNDS").unwrap_or(ROUNDS)
}

#[allow(clippy::disallowed_methods, reason = "a switch for whoever runs the tests")]
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Byte sequences that occur in streams or break parsers.
const PIECES: [&[u8]; 16] = [
    b"\n",
    b"\n\n",
    b"\r",
    b"data: ",
    b"event: ",
    b"null",
    b"{}",
    b"[]",
    b"\"",
    b"}",
    b"-1",
    b"1e999",
    b"18446744073709551616",
    b"\xff\xfe",
    b"\\ud800",
    b"[DONE]",
];

/// Returns a copy with one to four mutations: a byte changed, a piece removed, doubled, moved or inserted, or the end
/// cut off.
pub(crate) fn damaged(bytes: &[u8], seed: u64) -> Vec<u8> {
    let mut rng = SeededRng::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ bytes.len() as u64);
    let mut bytes = bytes.to_vec();
    for _ in 0..=rng.below(4) {
        let at = rng.index(bytes.len() + 1);
        let end = (at + rng.index(40)).min(bytes.len());
        match rng.below(7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << rng.below(8),
            1 => drop(bytes.drain(at..end)),
            2 => {
                let piece = bytes[at..end].to_vec();
                bytes.splice(end..end, piece);
            }
            3 => bytes.truncate(at),
            4 => {
                let piece: Vec<_> = bytes.drain(at..end).collect();
                let target = rng.index(bytes.len() + 1);
                bytes.splice(target..target, piece);
            }
            _ => {
                let piece = PIECES[rng.index(PIECES.len())];
                bytes.splice(at..at, piece.iter().copied());
            }
        }
    }
    bytes
}
