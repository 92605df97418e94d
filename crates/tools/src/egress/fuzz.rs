//! R50: fuzz test for host names. `cargo xtask fuzz` runs it for longer.

use std::net::IpAddr;

use super::{
    address::non_public_kind,
    destination::{check, parse},
};

/// Number of mutated inputs, unless `FUZZ_ROUNDS` overrides it.
const ROUNDS: u64 = 20_000;

#[allow(clippy::disallowed_methods, reason = "a switch for whoever runs the tests")]
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Deterministic random number generator.
struct HostFuzzRng(u64);

impl HostFuzzRng {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed ^ (mixed >> 31)) % limit.max(1) as u64) as usize
    }
}

const HOSTS: [&str; 9] = [
    "example.com",
    "www.example.co.uk.",
    "127.0.0.1",
    "0x7f.1",
    "[::ffff:10.0.0.1]",
    "localhost",
    "b\u{fc}cher.example",
    "router.local",
    "8.8.8.8",
];
const PIECES: [&str; 16] = [
    ".", "..", "-", "_", "%00", "%2e", "\u{3002}", "\u{ff0e}", "@", ":80", "\\", "\u{200b}", "\u{ff11}", "0x", "xn--",
    "#",
];

fn mutated(seed: u64) -> String {
    let mut rng = HostFuzzRng(seed);
    let mut host: Vec<char> = HOSTS[rng.below(HOSTS.len())].chars().collect();
    for _ in 0..rng.below(5) {
        let at = rng.below(host.len() + 1);
        let end = (at + rng.below(8)).min(host.len());
        match rng.below(5) {
            0 if at < host.len() => host[at] = char::from(rng.below(128) as u8),
            1 => drop(host.drain(at..end)),
            2 => {
                let part = host[at..end].to_vec();
                host.splice(end..end, part);
            }
            _ => {
                let piece = PIECES[rng.below(PIECES.len())];
                host.splice(at..at, piece.chars());
            }
        }
    }
    format!("https://{}/", host.into_iter().collect::<String>())
}

/// Every accepted name consists of plain labels or is a public address, and parses to the same value again: the name
/// that was checked is the name that is dialled.
#[test]
fn r50_fuzz_hostname() {
    let from = number("FUZZ_FROM").unwrap_or(0);
    for seed in from..from + number("FUZZ_ROUNDS").unwrap_or(ROUNDS) {
        let text = mutated(seed);
        let Ok(url) = parse(&text, &[]) else { continue };
        let host = url.host_str().unwrap_or_default().to_owned();
        let bare = host.trim_matches(['[', ']']);
        match bare.parse::<IpAddr>() {
            Ok(address) => assert_eq!(non_public_kind(address), None, "seed {seed}: {text}"),
            Err(_) => {
                let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
                let is_label = |label: &str| !label.is_empty() && label.len() < 64 && label.bytes().all(is_plain);
                assert!(bare.split('.').all(is_label), "seed {seed}: {text} was read as {host}");
                let is_inside = |name: &str| bare == name || bare.ends_with(&format!(".{name}"));
                assert!(!["localhost", "local"].into_iter().any(is_inside), "seed {seed}: {text}");
            }
        }
        let again = check(url.clone(), &[]).ok();
        assert_eq!(again.as_ref(), Some(&url), "seed {seed}: {text}");
        assert_eq!(parse(url.as_str(), &[]).ok(), Some(url), "seed {seed}: {text}");
    }
}
