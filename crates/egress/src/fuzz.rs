//! R50: fuzz tests of everything that comes from outside. `cargo xtask fuzz` runs them for longer.

use std::{io::Write, net::IpAddr};

use flate2::{Compression, write::GzEncoder};
use homard_stdx::fuzz::{mutated, mutated_text, seeds};

use crate::{
    EgressException,
    address::non_public_kind,
    body::BodyDecoder,
    destination::{check, parse},
};

/// Number of mutated inputs, unless `FUZZ_ROUNDS` overrides it.
const ROUNDS: u64 = 20_000;

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

/// Every accepted name consists of plain labels or is a public address, and parses to the same value again: the name
/// that was checked is the name that is dialled.
#[test]
fn r50_fuzz_hostname() {
    for seed in seeds(ROUNDS) {
        let text = format!("https://{}/", mutated_text(seed, &HOSTS, &PIECES));
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

/// An accepted exception opens no destination of another name: it is compared with names that it does not contain.
#[test]
fn r50_fuzz_exception() {
    let inputs = ["box.lan", "localhost:8888", "[::1]:443", "10.0.0.0/8", "fc00::/7", "127.0.0.1"];
    let fragments = ["/", ":", "0", "33", "@", "[", "]", ".", "#", "?", " ", "\u{ff0e}", "::", "x"];
    for seed in seeds(ROUNDS) {
        let text = mutated_text(seed, &inputs, &fragments);
        let Ok(exception) = text.parse::<EgressException>() else { continue };
        assert_eq!(parse("http://printer.local/", &[exception]).ok(), None, "seed {seed}: {text}");
    }
}

/// A body is never longer than the limit, and what arrives in one piece reads as it does byte by byte.
#[test]
fn r50_fuzz_gzip() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&b"hello ".repeat(200)).unwrap();
    let packed = encoder.finish().unwrap();
    let twice = packed.repeat(2);
    let inputs: [&[u8]; 3] = [&packed, &twice, b"\x1f\x8b\x08\0\0\0\0\0\0\0"];
    let fragments: [&[u8]; 4] = [b"\x1f\x8b", b"\0\0", b"\xff\xff\xff\xff", &packed];
    let decode = |bytes: &[u8], piece: usize| {
        let mut decoder = BodyDecoder::new("gzip", 1_000).ok()?;
        for piece in bytes.chunks(piece) {
            if !decoder.push(piece).ok()? {
                break;
            }
        }
        decoder.finish().ok()
    };
    for seed in seeds(ROUNDS) {
        let bytes = mutated(seed, &inputs, &fragments);
        let whole = decode(&bytes, bytes.len().max(1));
        assert!(whole.as_ref().is_none_or(|body| body.bytes.len() <= 1_000), "seed {seed}");
        if let (Some(whole), Some(split)) = (whole, decode(&bytes, 1)) {
            assert_eq!(whole, split, "seed {seed}");
        }
    }
}
