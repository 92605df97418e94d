//! Origin check: decides from a request's headers and addresses whether it is served, before any upgrade.
//!
//! Each rule covers one attack. A web page of another site can open a socket to this machine; browsers reveal that in
//! `Origin`. A DNS name that an attacker points at this machine (DNS rebinding) shows in `Host`. Behind a proxy every
//! client appears local; the proxy's own headers reveal it. Plain-text traffic can be read in transit; the peer's
//! address shows whether it left this machine.

use std::{net::IpAddr, sync::Arc};

use axum::http::{
    HeaderMap, HeaderName, Uri,
    header::{HOST, ORIGIN},
    uri::Authority,
};

/// Headers that show that the peer is a proxy. Headers whose name contains [`FORWARDED`] count, too.
const PROXY_HEADERS: [&str; 9] = [
    "via",
    "x-real-ip",
    "x-client-ip",
    "x-cluster-client-ip",
    "cf-connecting-ip",
    "cf-connecting-ipv6",
    "true-client-ip",
    "fastly-client-ip",
    "fly-client-ip",
];

/// Substring of the names of most proxy headers.
const FORWARDED: &str = "forwarded";

/// Settings of the origin check.
#[derive(Debug)]
pub(crate) struct OriginRules {
    /// Which remote machines are served.
    pub(crate) remote: RemotePolicy,
    /// Origins that may connect although the gateway does not serve them, such as `https://desk.example`.
    pub(crate) origins: Vec<String>,
    /// Trusted proxies: their `X-Forwarded-For` is believed.
    pub(crate) proxies: Arc<[IpAddr]>,
}

/// Policy for requests from other machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RemotePolicy {
    /// All are served: traffic is encrypted, or the owner accepts the risk.
    All,
    /// Only trusted proxies are served; they encrypt the traffic to their clients.
    TrustedProxies,
}

/// Addresses of both ends of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConnectionAddrs {
    pub(crate) peer: IpAddr,
    pub(crate) local: IpAddr,
    /// Local port.
    pub(crate) port: u16,
}

/// A request that passed the origin check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestOrigin {
    pub(crate) caller: ClientKind,
    /// Address of the client: the peer, or the address that a trusted proxy reports.
    pub(crate) address: IpAddr,
    /// True for a direct connection from this machine, without a proxy.
    pub(crate) is_direct: bool,
    /// True if the request came through a proxy.
    pub(crate) is_proxied: bool,
}

/// Kind of client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClientKind {
    /// A web page whose origin may connect.
    Page,
    Program,
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OriginError {
    /// The name in `Host` does not belong to this machine.
    #[error(
        "the Host header does not name this gateway; use localhost or the address that it listens on, or add the \
         page's address to gateway.controlUi.allowedOrigins"
    )]
    Host,
    /// The page's origin is not allowed to connect.
    #[error(
        "the Origin header is not allowed; open the page that the gateway serves, or add the origin to \
         gateway.controlUi.allowedOrigins"
    )]
    Origin,
    /// The request came through an untrusted proxy.
    #[error(
        "requests through an untrusted proxy are not accepted; connect directly or add the proxy to \
         gateway.trustedProxies"
    )]
    Proxy,
    /// The connection is unencrypted and comes from another machine.
    #[error(
        "without TLS, this gateway serves other machines only through trusted proxies; connect through a proxy, or \
         set gateway.tls.enabled to true"
    )]
    Unencrypted,
}

/// Checks whether a request may proceed.
pub(crate) fn check(
    headers: &HeaderMap,
    addresses: ConnectionAddrs,
    rules: &OriginRules,
) -> Result<RequestOrigin, OriginError> {
    let (peer, local) = (addresses.peer.to_canonical(), addresses.local.to_canonical());
    let is_proxied = headers.keys().map(HeaderName::as_str).any(is_proxy_header);
    let address =
        if is_proxied { forwarded_client(headers, peer, &rules.proxies).ok_or(OriginError::Proxy)? } else { peer };
    // The traffic stays on this machine, so that it cannot be read in transit.
    let is_on_this_machine = peer.is_loopback() || peer == local;
    if !is_on_this_machine && !is_proxied && rules.remote == RemotePolicy::TrustedProxies {
        return Err(OriginError::Unencrypted);
    }
    let host = single_header(headers, HOST).and_then(|host| parse_authority(host?)).ok_or(OriginError::Host)?;
    // A configured name, which an attacker cannot point elsewhere. Connections from this machine do not need it.
    let is_configured_name =
        (is_proxied || !peer.is_loopback()) && rules.origins.iter().any(|origin| has_authority(origin, &host));
    if !is_local_host(&host, local) && !is_configured_name {
        return Err(OriginError::Host);
    }
    let is_direct = !is_proxied && peer.is_loopback();
    let own_port = is_direct.then_some(addresses.port);
    let caller = match single_header(headers, ORIGIN) {
        Some(None) if is_cross_site(headers) => return Err(OriginError::Origin),
        Some(None) => ClientKind::Program,
        Some(Some(origin)) if is_origin_allowed(origin, &host, is_proxied, own_port, &rules.origins) => {
            ClientKind::Page
        }
        Some(Some(_)) | None => return Err(OriginError::Origin),
    };
    Ok(RequestOrigin { caller, address, is_direct, is_proxied })
}

fn is_proxy_header(name: &str) -> bool {
    PROXY_HEADERS.contains(&name) || name.contains(FORWARDED)
}

/// True for a cross-site request for which browsers send no `Origin`. Following a link (`navigate`) is allowed.
fn is_cross_site(headers: &HeaderMap) -> bool {
    let has_value =
        |name, value: &str| headers.get(HeaderName::from_static(name)).is_some_and(|actual| actual == value);
    has_value("sec-fetch-site", "cross-site") && !has_value("sec-fetch-mode", "navigate")
}

/// Returns the client's address as reported by a trusted proxy: the last hop that is not itself a trusted proxy. `None`
/// if the peer is not trusted or reports no valid address.
fn forwarded_client(headers: &HeaderMap, peer: IpAddr, proxies: &[IpAddr]) -> Option<IpAddr> {
    if !proxies.contains(&peer) {
        return None;
    }
    let hops = single_header(headers, HeaderName::from_static("x-forwarded-for"))??;
    let mut hops = hops.split(',').rev().map(|hop| hop.trim().parse::<IpAddr>().map(|hop| hop.to_canonical()));
    hops.find(|hop| hop.as_ref().map_or(true, |hop| !proxies.contains(hop)))?.ok()
}

/// True if the origin's authority equals this host.
fn has_authority(origin: &str, host: &Authority) -> bool {
    let uri = origin.trim_end_matches('/').to_ascii_lowercase().parse::<Uri>();
    uri.is_ok_and(|uri| uri.authority().is_some_and(|authority| authority == host))
}

/// Returns the value of a header that may occur once: `None` if it is repeated or not text, `Some(None)` if it is
/// absent.
fn single_header(headers: &HeaderMap, name: HeaderName) -> Option<Option<&str>> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Some(None),
        (Some(value), None) => value.to_str().ok().map(Some),
        (Some(_), Some(_)) => None,
    }
}

/// Parses a host and port in lower case. `None` if the text contains anything that could hide another name.
fn parse_authority(text: &str) -> Option<Authority> {
    let authority: Authority = text.to_ascii_lowercase().parse().ok()?;
    is_plain(&authority).then_some(authority)
}

/// True if the authority consists of a host and an optional port only: no user info, nothing in between.
fn is_plain(authority: &Authority) -> bool {
    let rest = authority.as_str().strip_prefix(authority.host());
    let port = rest.map(|rest| rest.strip_prefix(':').unwrap_or(rest));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
        && port.is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || parse_ip(host).is_some_and(|address| address.to_canonical().is_loopback())
}

fn parse_ip(host: &str) -> Option<IpAddr> {
    match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse().ok().map(IpAddr::V6),
        None => host.parse().ok().map(IpAddr::V4),
    }
}

/// True if the host is a loopback name or the local address of the connection. Unlike a name, an address cannot be
/// pointed elsewhere.
fn is_local_host(host: &Authority, local: IpAddr) -> bool {
    let is_loopback_name = matches!(host.host(), "localhost" | "127.0.0.1" | "[::1]");
    is_loopback_name || parse_ip(host.host()) == Some(local)
}

/// Returns true if a page of this origin may connect. `own_port` is the gateway's port, for a request from this
/// machine.
fn is_origin_allowed(
    origin: &str,
    host: &Authority,
    is_proxied: bool,
    own_port: Option<u16>,
    allowed: &[String],
) -> bool {
    let lowercase = origin.to_ascii_lowercase();
    let Ok(uri) = lowercase.parse::<Uri>() else { return false };
    let (Some(scheme @ ("http" | "https")), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return false;
    };
    // Accept a scheme and an authority only: parts that a parser ignores could hide another authority.
    if !is_plain(authority) || lowercase != format!("{scheme}://{authority}") {
        return false;
    }
    let is_listed = |allowed: &String| allowed.trim_end_matches('/').eq_ignore_ascii_case(origin);
    let port = authority.port_u16().unwrap_or(if scheme == "https" { 443 } else { 80 });
    let is_own = own_port == Some(port) && is_loopback(authority.host());
    // Pages served by the gateway itself may connect, by any name of this machine; pages of other local programs may
    // not. Behind a proxy neither can be determined.
    is_own || (!is_proxied && authority == host) || allowed.iter().any(is_listed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client_kind(headers: &[(&'static str, &str)]) -> Result<ClientKind, OriginError> {
        check_from("127.0.0.1", headers).map(|origin| origin.caller)
    }

    fn check_from(peer: &str, headers: &[(&'static str, &str)]) -> Result<RequestOrigin, OriginError> {
        check_with(RemotePolicy::All, peer, "127.0.0.7", headers)
    }

    fn check_with(
        remote: RemotePolicy,
        peer: &str,
        local: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<RequestOrigin, OriginError> {
        let rules = OriginRules {
            remote,
            origins: vec!["https://desk.example/".to_owned()],
            proxies: ["127.0.0.9", "10.0.0.9"].map(|proxy| proxy.parse().unwrap()).into(),
        };
        let headers = headers.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
        let (peer, local) = (peer.parse().unwrap(), local.parse().unwrap());
        check(&headers.collect(), ConnectionAddrs { peer, local, port: 18789 }, &rules)
    }

    #[test]
    fn remote_requests_need_encryption_or_a_trusted_proxy() {
        let from = |remote, peer: &str, extra: &[(&'static str, &str)]| {
            let headers: Vec<_> = [("host", "192.0.2.1:18789")].iter().chain(extra).copied().collect();
            check_with(remote, peer, "192.0.2.1", &headers).map(|origin| (origin.is_direct, origin.is_proxied))
        };
        let forwarded_for = [("x-forwarded-for", "198.51.100.7")];
        assert_eq!(from(RemotePolicy::All, "192.0.2.2", &[]), Ok((false, false)));
        assert_eq!(from(RemotePolicy::TrustedProxies, "192.0.2.2", &[]), Err(OriginError::Unencrypted));
        assert_eq!(from(RemotePolicy::TrustedProxies, "192.0.2.2", &forwarded_for), Err(OriginError::Proxy));
        assert_eq!(from(RemotePolicy::TrustedProxies, "10.0.0.9", &forwarded_for), Ok((false, true)));
        // A request from a proxy's machine without proxy headers is not a proxied request.
        assert_eq!(from(RemotePolicy::TrustedProxies, "10.0.0.9", &[]), Err(OriginError::Unencrypted));
        // Same machine, through its own network address.
        assert_eq!(from(RemotePolicy::TrustedProxies, "192.0.2.1", &[]), Ok((false, false)));
        assert_eq!(from(RemotePolicy::TrustedProxies, "::ffff:192.0.2.1", &[]), Ok((false, false)));
    }

    #[test]
    fn remote_requests_need_the_local_address_or_a_configured_name() {
        let kind_for = |host: &str, origin: Option<&str>| {
            let headers: Vec<_> = [("host", host)].into_iter().chain(origin.map(|origin| ("origin", origin))).collect();
            check_with(RemotePolicy::All, "192.0.2.2", "192.0.2.1", &headers).map(|origin| origin.caller)
        };
        for host in ["192.0.2.1", "192.0.2.1:18789", "desk.example"] {
            assert_eq!(kind_for(host, None), Ok(ClientKind::Program), "{host}");
        }
        for host in ["192.0.2.2", "0.0.0.0", "evil.example", "192.0.2.1.nip.io", "desk.example:18789", "127.0.0.7"] {
            assert_eq!(kind_for(host, None), Err(OriginError::Host), "{host}");
        }
        for origin in ["http://192.0.2.1:18789", "https://192.0.2.1:18789", "https://desk.example"] {
            assert_eq!(kind_for("192.0.2.1:18789", Some(origin)), Ok(ClientKind::Page), "{origin}");
        }
        // A page served from the loopback of another machine is foreign.
        for origin in ["http://localhost:5173", "http://192.0.2.1", "http://192.0.2.2:18789", "null"] {
            assert_eq!(kind_for("192.0.2.1:18789", Some(origin)), Err(OriginError::Origin), "{origin}");
        }
    }

    #[test]
    fn cross_site_requests_without_origin_are_rejected_except_navigation() {
        let from = |site: &str, mode: &str| {
            client_kind(&[("host", "localhost"), ("sec-fetch-site", site), ("sec-fetch-mode", mode)])
        };
        assert_eq!(from("cross-site", "no-cors"), Err(OriginError::Origin));
        assert_eq!(from("cross-site", "websocket"), Err(OriginError::Origin));
        assert_eq!(from("cross-site", "navigate"), Ok(ClientKind::Program));
        assert_eq!(from("same-origin", "cors"), Ok(ClientKind::Program));
        assert_eq!(from("none", "navigate"), Ok(ClientKind::Program));
    }

    #[test]
    fn a_trusted_proxy_reports_the_client_which_is_never_local() {
        let client_of = |forwarded_for: &str| {
            check_from("127.0.0.9", &[("host", "desk.example"), ("x-forwarded-for", forwarded_for)])
                .map(|origin| (origin.address.to_string(), origin.is_direct))
        };
        assert_eq!(client_of("198.51.100.7"), Ok(("198.51.100.7".to_owned(), false)));
        // Entries written by the client precede those that the proxies added.
        assert_eq!(client_of("127.0.0.1, 198.51.100.7, 10.0.0.9"), Ok(("198.51.100.7".to_owned(), false)));
        assert_eq!(client_of("::ffff:198.51.100.7"), Ok(("198.51.100.7".to_owned(), false)));
        for forwarded_for in ["", "unknown", "198.51.100.7, nonsense", "10.0.0.9"] {
            assert_eq!(client_of(forwarded_for), Err(OriginError::Proxy), "{forwarded_for}");
        }
        let kind_from = |peer: &str, host: &str, origin: &str| {
            let headers = [("host", host), ("x-forwarded-for", "198.51.100.7"), ("origin", origin)];
            check_from(peer, &headers).map(|origin| origin.caller)
        };
        assert_eq!(kind_from("127.0.0.9", "desk.example", "https://desk.example"), Ok(ClientKind::Page));
        assert_eq!(kind_from("127.0.0.9", "evil.example", "https://desk.example"), Err(OriginError::Host));
        assert_eq!(kind_from("127.0.0.9", "desk.example", "http://localhost"), Err(OriginError::Origin));
        assert_eq!(kind_from("127.0.0.1", "desk.example", "https://desk.example"), Err(OriginError::Proxy));
        let direct = check_from("127.0.0.1", &[("host", "localhost")]).unwrap();
        assert_eq!((direct.is_direct, direct.address.to_string()), (true, "127.0.0.1".to_owned()));
    }

    #[test]
    fn only_host_names_of_this_machine_are_accepted() {
        for host in ["localhost", "localhost:1", "LOCALHOST:18789", "127.0.0.1:18789", "[::1]", "[::1]:9", "127.0.0.7"]
        {
            assert_eq!(client_kind(&[("host", host)]), Ok(ClientKind::Program), "{host}");
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
            "[127.0.0.1]",
            "[127.0.0.7]:80",
            "::1",
        ];
        for host in foreign {
            assert_eq!(client_kind(&[("host", host)]), Err(OriginError::Host), "{host}");
        }
        assert_eq!(client_kind(&[]), Err(OriginError::Host));
    }

    #[test]
    fn a_duplicate_header_is_rejected() {
        let check_duplicate = |name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, "localhost".parse().unwrap());
            headers.append(HeaderName::from_static(name), value.parse().unwrap());
            headers.append(HeaderName::from_static(name), value.parse().unwrap());
            let rules = OriginRules { remote: RemotePolicy::All, origins: Vec::new(), proxies: Arc::default() };
            let loopback = "127.0.0.1".parse().unwrap();
            check(&headers, ConnectionAddrs { peer: loopback, local: loopback, port: 18789 }, &rules)
                .map(|origin| origin.caller)
        };
        assert_eq!(check_duplicate("host", "localhost"), Err(OriginError::Host));
        assert_eq!(check_duplicate("origin", "http://localhost"), Err(OriginError::Origin));
    }

    #[test]
    fn a_page_needs_the_gateways_origin_or_a_listed_one() {
        let kind_from = |origin: &str| client_kind(&[("host", "127.0.0.7:18789"), ("origin", origin)]);
        let allowed = [
            "http://localhost:18789",
            "https://127.0.0.1:18789",
            "http://[::1]:18789",
            "http://127.0.0.7:18789",
            "https://desk.example",
            "HTTPS://Desk.Example",
        ];
        for origin in allowed {
            assert_eq!(kind_from(origin), Ok(ClientKind::Page), "{origin}");
        }
        let rejected = [
            "null",
            "",
            "https://evil.example",
            "http://localhost",
            "http://localhost:5173",
            "https://127.0.0.1:8443",
            "http://[::1]:3000",
            "http://127.0.0.7",
            "http://localhost:187890",
            "http://localhost.:18789",
            "http://evil.example:18789",
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
            "http://localhost:517#",
            "http://localhost?",
            "http://[127.0.0.1]",
        ];
        for origin in rejected {
            assert_eq!(kind_from(origin), Err(OriginError::Origin), "{origin}");
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(4000))]

        /// Arbitrary headers never cause a panic, and only requests that name this machine unambiguously are admitted.
        #[test]
        fn r50_arbitrary_headers_are_checked_without_panicking(
            host in "[a-z0-9:.@\\[\\]%/-]{0,30}", origin in "(https?://)?[a-z0-9:.@\\[\\]%/-]{0,30}", forwarded_for in "[0-9a-f:., ]{0,40}",
        ) {
            let results = [
                check_from("127.0.0.1", &[("host", &host)]).map(|_| ()),
                check_from("127.0.0.1", &[("host", "localhost"), ("origin", &origin)]).map(|_| ()),
                check_from("127.0.0.9", &[("host", "desk.example"), ("x-forwarded-for", &forwarded_for)]).map(|_| ()),
            ];
            if results[0].is_ok() {
                let local_names = ["localhost", "127.0.0.1", "[::1]", "127.0.0.7"];
                let name = local_names.iter().find(|name| host.starts_with(**name)).expect("a name of this machine");
                let rest = &host[name.len()..];
                assert!(rest.is_empty() || rest[1..].bytes().all(|byte| byte.is_ascii_digit()), "{host}");
            }
            if results[1].is_ok() {
                assert!(!origin.contains('@') && origin.starts_with("http"), "{origin}");
            }
        }
    }

    #[test]
    fn proxied_requests_are_never_local() {
        for name in [
            "forwarded",
            "x-forwarded-for",
            "x-forwarded-host",
            "x-forwarded-proto",
            "x-forwarded-port",
            "x-forwarded",
            "x-original-forwarded-for",
            "x-real-ip",
            "x-client-ip",
            "x-cluster-client-ip",
            "via",
            "cf-connecting-ip",
            "cf-connecting-ipv6",
            "true-client-ip",
            "fastly-client-ip",
            "fly-client-ip",
        ] {
            assert_eq!(client_kind(&[("host", "localhost"), (name, "127.0.0.1")]), Err(OriginError::Proxy), "{name}");
        }
    }
}
