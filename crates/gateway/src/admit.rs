//! Who may knock: decided on the request's headers, before anything is upgraded.
//!
//! A page from elsewhere can open a socket to this machine; the browser says so in `Origin`. A name that an attacker
//! points at this machine shows in `Host`. A proxy makes everybody look local; it shows in its own headers.

use std::net::IpAddr;

use axum::http::{
    HeaderMap, HeaderName, Uri,
    header::{FORWARDED, HOST, ORIGIN},
    uri::Authority,
};

/// Headers by which a proxy says that the peer is not the client.
const PROXY_HEADERS: [HeaderName; 5] = [
    FORWARDED,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-forwarded-host"),
    HeaderName::from_static("x-forwarded-proto"),
    HeaderName::from_static("x-real-ip"),
];

/// What a request is judged by.
#[derive(Debug)]
pub(crate) struct Rules {
    /// Addresses that the gateway listens on.
    pub(crate) bound: Vec<IpAddr>,
    /// Origins that may connect from elsewhere, such as `https://desk.example`.
    pub(crate) origins: Vec<String>,
    /// Proxies that may say for whom they ask.
    pub(crate) proxies: Vec<IpAddr>,
}

impl Rules {
    /// Where a request comes from that was let in: the peer, or whom a trusted proxy names.
    pub(crate) fn client(&self, headers: &HeaderMap, peer: IpAddr) -> IpAddr {
        let peer = peer.to_canonical();
        let is_proxied = PROXY_HEADERS.iter().any(|name| headers.contains_key(name));
        if is_proxied { behind(headers, peer, &self.proxies).unwrap_or(peer) } else { peer }
    }
}

/// Somebody who may knock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Knock {
    /// What kind of program it is.
    pub(crate) caller: Caller,
    /// Where it is: the peer, or whom a trusted proxy names.
    pub(crate) address: IpAddr,
    /// Whether it is on this machine, with nobody in between.
    pub(crate) is_direct: bool,
}

/// What kind of program knocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A page in a browser; its origin may connect.
    Page,
    /// Anything else.
    Program,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    /// The name in `Host` is not this machine's.
    #[error("this Host is not the gateway's; use localhost or the address that it listens on")]
    Host,
    /// The page's origin may not connect.
    #[error("this Origin may not connect; open the page from the gateway's host or add it to allowed origins")]
    Origin,
    /// A proxy stands in between.
    #[error("requests through a proxy are not accepted; connect directly or name it in gateway.trustedProxies")]
    Proxy,
}

/// Decides whether a request may go on.
pub(crate) fn check(headers: &HeaderMap, peer: IpAddr, rules: &Rules) -> Result<Knock, Refused> {
    let peer = peer.to_canonical();
    let is_proxied = PROXY_HEADERS.iter().any(|name| headers.contains_key(name));
    let address = if is_proxied { behind(headers, peer, &rules.proxies).ok_or(Refused::Proxy)? } else { peer };
    let host = only(headers, HOST).and_then(|host| authority(host?)).ok_or(Refused::Host)?;
    // A proxy hands on the name by which it was called, which is the place of a page that may connect.
    let is_named = is_proxied && rules.origins.iter().any(|origin| is_at(origin, &host));
    if !is_ours(&host, &rules.bound) && !is_named {
        return Err(Refused::Host);
    }
    let caller = match only(headers, ORIGIN) {
        Some(None) => Caller::Program,
        Some(Some(origin)) if may_connect(origin, (&host, is_proxied), &rules.origins) => Caller::Page,
        Some(Some(_)) | None => return Err(Refused::Origin),
    };
    Ok(Knock { caller, address, is_direct: !is_proxied && peer.is_loopback() })
}

/// For whom a proxy asks: the last address on the way that is no trusted proxy. `None` if the peer is not trusted, or does
/// not say it.
fn behind(headers: &HeaderMap, peer: IpAddr, proxies: &[IpAddr]) -> Option<IpAddr> {
    if !proxies.contains(&peer) {
        return None;
    }
    let way = only(headers, HeaderName::from_static("x-forwarded-for"))??;
    let mut way = way.split(',').rev().map(|hop| hop.trim().parse::<IpAddr>().map(|hop| hop.to_canonical()));
    way.find(|hop| hop.as_ref().map_or(true, |hop| !proxies.contains(hop)))?.ok()
}

/// Whether an origin's place is this host.
fn is_at(origin: &str, host: &Authority) -> bool {
    let uri = origin.trim_end_matches('/').to_ascii_lowercase().parse::<Uri>();
    uri.is_ok_and(|uri| uri.authority().is_some_and(|place| place == host))
}

/// The value of a header that may be given once: `None` when it is doubled or not text, `Some(None)` when it is absent.
fn only(headers: &HeaderMap, name: HeaderName) -> Option<Option<&str>> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Some(None),
        (Some(value), None) => value.to_str().ok().map(Some),
        (Some(_), Some(_)) => None,
    }
}

/// A host and port in lower case, without anything that could hide another name.
fn authority(text: &str) -> Option<Authority> {
    let authority: Authority = text.to_ascii_lowercase().parse().ok()?;
    is_plain(&authority).then_some(authority)
}

/// Whether there is nothing but a host and a port: no user before them, and nothing between them.
fn is_plain(authority: &Authority) -> bool {
    let rest = authority.as_str().strip_prefix(authority.host());
    let port = rest.map(|rest| rest.strip_prefix(':').unwrap_or(rest));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
        && port.is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || address(host).is_some_and(|address| address.to_canonical().is_loopback())
}

fn address(host: &str) -> Option<IpAddr> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare.parse().ok()
}

fn is_ours(host: &Authority, bound: &[IpAddr]) -> bool {
    let named = matches!(host.host(), "localhost" | "127.0.0.1" | "[::1]");
    named || address(host.host()).is_some_and(|address| bound.contains(&address))
}

fn may_connect(origin: &str, (host, is_proxied): (&Authority, bool), allowed: &[String]) -> bool {
    let Ok(uri) = origin.to_ascii_lowercase().parse::<Uri>() else { return false };
    let (Some("http" | "https"), Some(from)) = (uri.scheme_str(), uri.authority()) else { return false };
    if !is_plain(from) || origin.ends_with('/') || uri.path() != "/" || uri.query().is_some() {
        return false;
    }
    let listed = |allowed: &String| allowed.trim_end_matches('/').eq_ignore_ascii_case(origin);
    // Behind a proxy nobody is on this machine.
    (!is_proxied && (is_loopback(from.host()) || from == host)) || allowed.iter().any(listed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(headers: &[(&'static str, &str)]) -> Result<Caller, Refused> {
        judged_from("127.0.0.1", headers).map(|knock| knock.caller)
    }

    fn judged_from(peer: &str, headers: &[(&'static str, &str)]) -> Result<Knock, Refused> {
        let rules = Rules {
            bound: vec!["127.0.0.7".parse().unwrap()],
            origins: vec!["https://desk.example/".to_owned()],
            proxies: vec!["127.0.0.9".parse().unwrap(), "10.0.0.9".parse().unwrap()],
        };
        let headers = headers.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
        check(&headers.collect(), peer.parse().unwrap(), &rules)
    }

    #[test]
    fn a_trusted_proxy_says_for_whom_it_asks_and_nobody_behind_it_is_local() {
        let knock = |way: &str| {
            judged_from("127.0.0.9", &[("host", "desk.example"), ("x-forwarded-for", way)])
                .map(|knock| (knock.address.to_string(), knock.is_direct))
        };
        assert_eq!(knock("198.51.100.7"), Ok(("198.51.100.7".to_owned(), false)));
        // What the client itself wrote stands before what the proxies saw.
        assert_eq!(knock("127.0.0.1, 198.51.100.7, 10.0.0.9"), Ok(("198.51.100.7".to_owned(), false)));
        assert_eq!(knock("::ffff:198.51.100.7"), Ok(("198.51.100.7".to_owned(), false)));
        for way in ["", "unknown", "198.51.100.7, nonsense", "10.0.0.9"] {
            assert_eq!(knock(way), Err(Refused::Proxy), "{way}");
        }
        let from = |peer: &str, host: &str, origin: &str| {
            let headers = [("host", host), ("x-forwarded-for", "198.51.100.7"), ("origin", origin)];
            judged_from(peer, &headers).map(|knock| knock.caller)
        };
        assert_eq!(from("127.0.0.9", "desk.example", "https://desk.example"), Ok(Caller::Page));
        assert_eq!(from("127.0.0.9", "evil.example", "https://desk.example"), Err(Refused::Host));
        assert_eq!(from("127.0.0.9", "desk.example", "http://localhost"), Err(Refused::Origin));
        assert_eq!(from("127.0.0.1", "desk.example", "https://desk.example"), Err(Refused::Proxy));
        let direct = judged_from("127.0.0.1", &[("host", "localhost")]).unwrap();
        assert_eq!((direct.is_direct, direct.address.to_string()), (true, "127.0.0.1".to_owned()));
    }

    #[test]
    fn only_names_of_this_machine_are_answered() {
        for host in ["localhost", "localhost:1", "LOCALHOST:18789", "127.0.0.1:18789", "[::1]", "[::1]:9", "127.0.0.7"]
        {
            assert_eq!(judged(&[("host", host)]), Ok(Caller::Program), "{host}");
        }
        let foreign = [
            "",
            "evil.example",
            "evil.example:18789",
            "localhost.evil.example",
            "localhost.",
            "localhost@evil.example",
            "evil@localhost",
            "127.0.0.1.nip.io",
            "127.0.0.2",
            "0.0.0.0",
            "[::]",
            "[::ffff:127.0.0.1]",
            "2130706433",
            "127.1",
            "local host",
            "[::1].evil.example",
            "[::1]evil:80",
        ];
        for host in foreign {
            assert_eq!(judged(&[("host", host)]), Err(Refused::Host), "{host}");
        }
        assert_eq!(judged(&[]), Err(Refused::Host));
    }

    #[test]
    fn a_doubled_header_is_refused() {
        let doubled = |name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, "localhost".parse().unwrap());
            headers.append(HeaderName::from_static(name), value.parse().unwrap());
            headers.append(HeaderName::from_static(name), value.parse().unwrap());
            let rules = Rules { bound: Vec::new(), origins: Vec::new(), proxies: Vec::new() };
            check(&headers, "127.0.0.1".parse().unwrap(), &rules).map(|knock| knock.caller)
        };
        assert_eq!(doubled("host", "localhost"), Err(Refused::Host));
        assert_eq!(doubled("origin", "http://localhost"), Err(Refused::Origin));
    }

    #[test]
    fn a_page_needs_an_origin_of_this_machine_or_of_the_list() {
        let from = |origin: &str| judged(&[("host", "127.0.0.7:18789"), ("origin", origin)]);
        let good = [
            "http://localhost",
            "http://localhost:5173",
            "https://127.0.0.1:8443",
            "http://[::1]:3000",
            "http://127.0.0.7:18789",
            "https://desk.example",
            "HTTPS://Desk.Example",
        ];
        for origin in good {
            assert_eq!(from(origin), Ok(Caller::Page), "{origin}");
        }
        let bad = [
            "null",
            "",
            "https://evil.example",
            "http://desk.example",
            "https://desk.example:444",
            "https://desk.example.evil.example",
            "http://localhost.evil.example",
            "http://localhost.:80",
            "http://localhost@evil.example",
            "http://evil.example@localhost",
            "http://localhost/path",
            "http://localhost/",
            "file://",
            "chrome-extension://localhost",
            "localhost",
            "//localhost",
            "http://127.0.0.1.evil.example",
            "http://2130706433",
            "http://[::1].evil.example",
            "http://[::ffff:7f00:1].evil.example",
            "http://localhost:80evil",
        ];
        for origin in bad {
            assert_eq!(from(origin), Err(Refused::Origin), "{origin}");
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(4000))]

        /// Whatever stands in the headers is judged, and nobody is let in whose words are not plainly this machine's.
        #[test]
        fn r50_any_header_is_judged(
            host in "[a-z0-9:.@\\[\\]%/-]{0,30}", origin in "(https?://)?[a-z0-9:.@\\[\\]%/-]{0,30}", way in "[0-9a-f:., ]{0,40}",
        ) {
            let tried = [
                judged_from("127.0.0.1", &[("host", &host)]).map(|_| ()),
                judged_from("127.0.0.1", &[("host", "localhost"), ("origin", &origin)]).map(|_| ()),
                judged_from("127.0.0.9", &[("host", "desk.example"), ("x-forwarded-for", &way)]).map(|_| ()),
            ];
            if tried[0].is_ok() {
                let known = ["localhost", "127.0.0.1", "[::1]", "127.0.0.7"];
                let name = known.iter().find(|name| host.starts_with(**name)).expect("a name of this machine");
                let rest = &host[name.len()..];
                assert!(rest.is_empty() || rest[1..].bytes().all(|byte| byte.is_ascii_digit()), "{host}");
            }
            if tried[1].is_ok() {
                assert!(!origin.contains('@') && origin.starts_with("http"), "{origin}");
            }
        }
    }

    #[test]
    fn nobody_is_local_behind_a_proxy() {
        for name in ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"] {
            assert_eq!(judged(&[("host", "localhost"), (name, "127.0.0.1")]), Err(Refused::Proxy), "{name}");
        }
    }
}
