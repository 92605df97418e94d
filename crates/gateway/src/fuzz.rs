//! R50: fuzz tests of everything an unauthenticated peer can send, with mutations derived from a seed. `cargo xtask
//! fuzz` runs them for longer.
//!
//! Nothing may panic, and what is accepted must also be accepted by a second, deliberately simple parser.

use std::{net::IpAddr, sync::Arc};

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use homard_proto::frame::{self, IncomingFrame, MAX_DEPTH};
use homard_stdx::fuzz::{mutated, seeds};

use crate::{
    auth::ip_prefix,
    origin_check::{ConnectionAddrs, OriginError, OriginRules, RemotePolicy, check},
};

/// Number of mutated inputs, unless `FUZZ_ROUNDS` is set.
const ROUNDS: u64 = 20_000;

#[test]
fn r50_fuzz_frame() {
    let texts: [&[u8]; 4] = [
        br#"{"type":"req","id":"1","method":"connect","params":{"minProtocol":3,"maxProtocol":4,"client":{"id":"cli"}}}"#,
        br#"{"type":"req","id":"a","method":"chat.send","params":{"message":"h\u00e9","n":[1,2.5e3,-0,null,true]}}"#,
        br#"{"type":"res","id":7,"ok":true}"#,
        br#"[[[[[[[[[[]]]]]]]]]]"#,
    ];
    let deep = "[".repeat(40);
    let fragments: [&[u8]; 14] = [
        b"\"",
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"\\ud800",
        b"1e999",
        b"\xff",
        b"null",
        b"\"id\":\"x\",",
        deep.as_bytes(),
    ];
    for seed in seeds(ROUNDS) {
        let bytes = mutated(seed, &texts, &fragments);
        match frame::read(&bytes) {
            IncomingFrame::Request(request) => {
                assert!(!request.id.is_empty() && !request.method.is_empty(), "seed {seed}");
                let encoded = serde_json::to_vec(&request).unwrap();
                assert_eq!(frame::read(&encoded), IncomingFrame::Request(request), "seed {seed}");
            }
            IncomingFrame::Malformed(response) => assert!(response.error.is_some() && !response.ok, "seed {seed}"),
            IncomingFrame::NotJson(response) => {
                assert!(response.error.is_some() && !response.ok, "seed {seed}");
                let is_json = serde_json::from_slice::<serde_json::Value>(&bytes).is_ok();
                let brackets = bytes.iter().filter(|byte| matches!(byte, b'[' | b'{')).count();
                assert!(!is_json || brackets > MAX_DEPTH, "seed {seed}");
            }
        }
    }
}

/// Runs the origin check with these headers; `None` if they are not valid headers.
fn check_origin(peer: &str, headers: &[(&'static str, &[u8])]) -> Option<Result<IpAddr, OriginError>> {
    let rules = OriginRules {
        remote: RemotePolicy::All,
        origins: vec!["https://desk.example".to_owned()],
        proxies: Arc::from([IpAddr::from([127, 0, 0, 9]), IpAddr::from([10, 0, 0, 9])]),
    };
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(HeaderName::from_static(name), HeaderValue::from_bytes(value).ok()?);
    }
    let addresses = ConnectionAddrs { peer: peer.parse().unwrap(), local: IpAddr::from([127, 0, 0, 1]), port: 5173 };
    Some(check(&map, addresses, &rules).map(|origin| origin.address))
}

/// True if the rest of an authority is empty or a port.
fn is_port(rest: &str) -> bool {
    rest.is_empty() || rest.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

const ORIGIN_PIECES: [&[u8]; 14] = [
    b".",
    b":",
    b"@",
    b"/",
    b"//",
    b"[",
    b"]",
    b"%00",
    b"localhost",
    b"evil.example",
    b"127.0.0.1",
    b"::ffff:",
    b" ",
    b"\t",
];

#[test]
fn r50_fuzz_origin() {
    let texts: [&[u8]; 6] = [
        b"http://localhost:5173",
        b"https://127.0.0.1",
        b"http://[::1]:80",
        b"https://desk.example",
        b"http://evil.example",
        b"null",
    ];
    for seed in seeds(ROUNDS) {
        let origin = mutated(seed, &texts, &ORIGIN_PIECES);
        if !matches!(check_origin("127.0.0.1", &[("host", b"localhost"), ("origin", &origin)]), Some(Ok(_))) {
            continue;
        }
        let text = String::from_utf8(origin).unwrap().to_ascii_lowercase();
        let authority = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://")).unwrap();
        let is_local_name = ["localhost", "[::1]"].iter().any(|name| authority.strip_prefix(name).is_some_and(is_port));
        let is_loopback =
            [Some(authority), authority.rsplit_once(':').map(|(host, _)| host)].into_iter().flatten().any(|host| {
                let address_text = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
                address_text.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
            });
        assert!(is_local_name || is_loopback || text == "https://desk.example", "seed {seed}: {text}");
    }
}

#[test]
fn r50_fuzz_host() {
    let texts: [&[u8]; 5] = [b"localhost:18789", b"127.0.0.1", b"[::1]:80", b"desk.example", b"evil.example:18789"];
    for seed in seeds(ROUNDS) {
        let host = mutated(seed, &texts, &ORIGIN_PIECES);
        if !matches!(check_origin("127.0.0.1", &[("host", &host)]), Some(Ok(_))) {
            continue;
        }
        let text = String::from_utf8(host).unwrap().to_ascii_lowercase();
        assert!(
            ["localhost", "127.0.0.1", "[::1]"].iter().any(|name| text.strip_prefix(name).is_some_and(is_port)),
            "seed {seed}: {text}"
        );
    }
}

#[test]
fn r50_fuzz_ip() {
    let texts: [&[u8]; 6] = [
        b"198.51.100.7",
        b"127.0.0.1, 198.51.100.7, 10.0.0.9",
        b"::ffff:198.51.100.7",
        b"2001:db8::1, 127.0.0.9",
        b"[2001:db8::1]:80",
        b"unknown",
    ];
    let fragments: [&[u8]; 11] =
        [b",", b", ", b"::", b":", b".", b"0", b"255", b"ffff", b"%lo", b"127.0.0.1", b", 127.0.0.9, 10.0.0.9"];
    for seed in seeds(ROUNDS) {
        let forwarded_for = mutated(seed, &texts, &fragments);
        let Some(Ok(address)) =
            check_origin("127.0.0.9", &[("host", b"desk.example"), ("x-forwarded-for", &forwarded_for)])
        else {
            continue;
        };
        // Expected: the last hop that is not a trusted proxy.
        let text = String::from_utf8(forwarded_for).unwrap();
        let hops = text.rsplit(',').map(|hop| hop.trim().parse::<IpAddr>().map(|hop| hop.to_canonical()));
        let proxies = [IpAddr::from([127, 0, 0, 9]), IpAddr::from([10, 0, 0, 9])];
        let last = hops.map(Result::unwrap).find(|hop| !proxies.contains(hop));
        assert_eq!(Some(address), last, "seed {seed}: {text}");
        let prefix = ip_prefix(address);
        assert_eq!((ip_prefix(prefix), address.to_canonical()), (prefix, address), "seed {seed}: {text}");
        if let IpAddr::V4(ipv4) = address {
            assert_eq!(ip_prefix(ipv4.to_ipv6_mapped().into()), prefix, "seed {seed}: {text}");
        }
    }
}
