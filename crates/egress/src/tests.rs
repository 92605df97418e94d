//! SSRF attacks on [`Egress`] over real connections.

use std::{
    io::Write as _,
    net::{IpAddr, SocketAddr},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use flate2::{Compression, write::GzEncoder};
use proptest::prelude::*;
use reqwest::dns::{Addrs, Name, Resolving};
use tokio::{io::AsyncWriteExt, net::TcpListener};

use super::{
    test_server::{Server, answer},
    *,
};

fn sent_on_to(location: &str) -> String {
    format!("HTTP/1.1 302 Found\r\nConnection: close\r\nLocation: {location}\r\n\r\n")
}

/// A fake resolver: returns the configured answers in order and repeats the last one.
struct FakeResolver {
    answers: Vec<(&'static str, Vec<IpAddr>)>,
    requests: AtomicUsize,
}

impl FakeResolver {
    fn new(answers: &[(&'static str, &[&str])]) -> Arc<Self> {
        let parsed = answers.iter().map(|(name, to)| (*name, to.iter().map(|ip| ip.parse().unwrap()).collect()));
        Arc::new(Self { answers: parsed.collect(), requests: AtomicUsize::new(0) })
    }
}

impl Resolve for FakeResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let count = self.requests.fetch_add(1, Ordering::Relaxed);
        let matching: Vec<_> = self.answers.iter().filter(|(known, _)| *known == name.as_str()).collect();
        let found =
            matching.get(count.min(matching.len().saturating_sub(1))).map(|(_, to)| to.clone()).unwrap_or_default();
        Box::pin(async move { Ok(Box::new(found.into_iter().map(|ip| SocketAddr::new(ip, 0))) as Addrs) })
    }
}

fn empty_resolver() -> Arc<FakeResolver> {
    FakeResolver::new(&[])
}

fn test_egress(allow: &[&str], names: Arc<FakeResolver>) -> Egress {
    let allow = allow.iter().map(|text| text.parse().unwrap()).collect();
    Egress::new(EgressLimits { allow, bytes: 10_000, ..EgressLimits::default() }, names)
}

async fn fetch(egress: &Egress, url: &str) -> Result<Body, Error> {
    egress.get(&Request::new(url, "*/*")).await?.body().await
}

fn inside(host: &str, kind: &'static str) -> Error {
    Error::NotPublic { host: host.to_owned(), what: kind }
}

#[tokio::test]
async fn an_allowed_server_receives_only_the_chosen_headers() {
    let server = Server::replying(answer("Set-Cookie: a=b\r\nContent-Type: text/plain\r\n", b"hello")).await;
    let egress = test_egress(&["127.0.0.0/8"], empty_resolver());
    for _ in 0..2 {
        let answer = egress.get(&Request::new(server.url("/a?b#c"), "text/html")).await.unwrap();
        assert_eq!((answer.status(), answer.content_type()), (200, Some("text/plain")));
        assert_eq!(answer.url().as_str(), server.url("/a?b#c"));
        assert_eq!(answer.body().await.unwrap(), Body { bytes: b"hello".to_vec(), is_complete: true });
    }
    let agent = EgressLimits::default().user_agent;
    let host = server.address;
    let head = format!(
        "GET /a?b HTTP/1.1\r\naccept: text/html\r\naccept-encoding: gzip\r\nuser-agent: {agent}\r\nhost: {host}\r\n\r\n"
    );
    assert_eq!(*server.requests.lock().unwrap(), [head.clone(), head]);
}

// A21, R64.
#[tokio::test]
async fn this_machine_is_not_reached_in_any_spelling() {
    let server = Server::replying(answer("", b"secret")).await;
    let port = server.address.port();
    let egress = test_egress(
        &[],
        FakeResolver::new(&[("rebound.example", &["127.0.0.1"]), ("mixed.example", &["8.8.8.8", "::1"])]),
    );
    for host in [
        "127.0.0.1",
        "127.1",
        "127.0.1",
        "2130706433",
        "0x7f000001",
        "0x7F.0.0.1",
        "0177.0.0.1",
        "017700000001",
        "127.0.0.1.",
        "0",
        "0.0.0.0",
        "127.127.127.127",
        "１２７.０.０.１",
        "127。0。0。1",
        "%31%32%37.0.0.1",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[0:0:0:0:0:FFFF:127.0.0.1]",
        "[::127.0.0.1]",
        "[2002:7f00:1::]",
        "[64:ff9b::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "localhost",
        "LOCALHOST",
        "localhost.",
        "a.localhost",
        "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ",
        "rebound.example",
        "REBOUND.example.",
        "mixed.example",
    ] {
        let refused = fetch(&egress, &format!("http://{host}:{port}/")).await;
        assert!(matches!(refused, Err(Error::NotPublic { .. })), "{host}: {refused:?}");
    }
    assert_eq!(server.request_count(), 0);
}

// A21, R64.
#[tokio::test]
async fn private_networks_and_cloud_metadata_are_not_reached() {
    let egress = test_egress(&[], empty_resolver());
    for host in [
        "169.254.169.254",
        "0xa9fea9fe",
        "2852039166",
        "[::ffff:169.254.169.254]",
        "[fd00:ec2::254]",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "metadata.google.internal",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "3232235777",
        "100.64.0.1",
        "198.18.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "[fe80::1]",
        "[fc00::1]",
        "[ff02::1]",
        "printer.local",
        "router.home.arpa",
        "[2001:0:7f00:1::]",
        "[2001:db8::1]",
    ] {
        let refused = fetch(&egress, &format!("http://{host}/latest/meta-data/")).await;
        assert!(matches!(refused, Err(Error::NotPublic { .. })), "{host}: {refused:?}");
    }
}

#[tokio::test]
async fn urls_that_are_not_web_pages_are_not_requested() {
    let egress = test_egress(&[], empty_resolver());
    let scheme = |scheme: &str| Error::Scheme { scheme: scheme.to_owned() };
    for (url, error) in [
        ("file:///etc/passwd", scheme("file")),
        ("ftp://example.com/", scheme("ftp")),
        ("gopher://example.com/_GET", scheme("gopher")),
        ("data:text/plain,hello", scheme("data")),
        ("javascript:alert(1)", scheme("javascript")),
        ("http://me@example.com/", Error::Userinfo),
        ("http://me:word@example.com/", Error::Userinfo),
        ("http://example.com@127.0.0.1/", Error::Userinfo),
        ("http://example.com:22/", Error::Port { port: 22 }),
        ("https://example.com:25/", Error::Port { port: 25 }),
        ("http://a..example/", Error::Name { name: "a..example".to_owned() }),
        ("http://example.com../", Error::Name { name: "example.com.".to_owned() }),
    ] {
        assert_eq!(fetch(&egress, url).await, Err(error), "{url}");
    }
    let long_label = format!("http://{}.example/", "a".repeat(64));
    let long_url = format!("http://example.com/{}", "a".repeat(2100));
    for url in [
        "",
        "example.com",
        "//example.com",
        "http://",
        "http://[::1",
        "http://1.2.3.4.5/",
        "http://256.1.1.1/",
        "http://exa\0mple.com/",
        "http://example.com\r\nHost: x/",
        "http://exam%00ple.com/",
        "http://a b/",
        "http://[fe80::1%25eth0]/",
        "http://a,b.example/",
        "http://a'b.example/",
        &long_label,
        &long_url,
    ] {
        let refused = fetch(&egress, url).await;
        assert!(matches!(refused, Err(Error::NotUrl { .. } | Error::Name { .. })), "{url}: {refused:?}");
    }
}

// A21, R64.
#[tokio::test]
async fn a_name_cannot_change_between_the_check_and_the_use() {
    let server = Server::at("127.0.0.2", |mut stream, _| async move {
        stream.write_all(&answer("", b"good")).await.unwrap();
    });
    let server = server.await;
    let names = FakeResolver::new(&[("site.example", &["127.0.0.2"]), ("site.example", &["127.0.0.1"])]);
    let egress = test_egress(&["127.0.0.2/32"], names.clone());
    let url = format!("http://site.example:{}/", server.address.port());
    assert_eq!(fetch(&egress, &url).await, Ok(Body { bytes: b"good".to_vec(), is_complete: true }));
    assert_eq!(names.requests.load(Ordering::Relaxed), 1, "the address that was checked is the one that was dialled");
    assert_eq!(fetch(&egress, &url).await, Err(inside("site.example", "this machine")));
    assert_eq!((server.request_count(), names.requests.load(Ordering::Relaxed)), (1, 2));
}

// A21, R64.
#[tokio::test]
async fn a_redirect_is_checked_like_the_first_url() {
    let secret = Server::replying(answer("", b"secret")).await;
    let port = secret.address.port();
    let names = FakeResolver::new(&[("inner.example", &["127.0.0.1"])]);
    let not_url = |error: &Error| matches!(error, Error::NotUrl { .. });
    for (location, is_right) in [
        (
            format!("http://127.0.0.1:{port}/"),
            (|error| *error == inside("127.0.0.1", "this machine")) as fn(&Error) -> bool,
        ),
        (format!("//127.0.0.1:{port}/"), |error| *error == inside("127.0.0.1", "this machine")),
        (format!("http://[::ffff:127.0.0.1]:{port}/"), |error| *error == inside("[::ffff:7f00:1]", "this machine")),
        (format!("http://inner.example:{port}/"), |error| *error == inside("inner.example", "this machine")),
        ("http://169.254.169.254/".to_owned(), |error| matches!(error, Error::NotPublic { .. })),
        ("http://me@example.com/".to_owned(), |error| *error == Error::Userinfo),
        ("http://example.com:22/".to_owned(), |error| *error == Error::Port { port: 22 }),
        ("file:///etc/passwd".to_owned(), |error| matches!(error, Error::Scheme { .. })),
        ("http://[".to_owned(), not_url),
        (format!("/{}", "a".repeat(3000)), not_url),
    ] {
        let site = Server::at("127.0.0.2", {
            let location = location.clone();
            move |mut stream, _| {
                let head = sent_on_to(&location);
                async move { stream.write_all(head.as_bytes()).await.unwrap() }
            }
        });
        let site = site.await;
        let refused = fetch(&test_egress(&["127.0.0.2/32"], names.clone()), &site.url("/")).await;
        let Err(Error::RedirectTarget(refused)) = refused else { panic!("{location}: {refused:?}") };
        assert!(is_right(&refused), "{location}: {refused:?}");
        assert_eq!(site.request_count(), 1);
    }
    assert_eq!(secret.request_count(), 0);
}

#[tokio::test]
async fn redirects_are_followed_three_times_and_no_more() {
    let site = Server::at("127.0.0.1", |mut stream, head| async move {
        let left: u32 = head[5..].split(' ').next().unwrap().parse().unwrap();
        let response = if left == 0 { answer("", b"here") } else { sent_on_to(&format!("/{}", left - 1)).into_bytes() };
        stream.write_all(&response).await.unwrap();
    });
    let site = site.await;
    let egress = test_egress(&["127.0.0.1"], empty_resolver());
    assert_eq!(fetch(&egress, &site.url("/3")).await, Ok(Body { bytes: b"here".to_vec(), is_complete: true }));
    assert_eq!((fetch(&egress, &site.url("/4")).await, site.request_count()), (Err(Error::Redirects { most: 3 }), 8));
    let looping = Server::replying(sent_on_to("/")).await;
    assert_eq!(
        (fetch(&egress, &looping.url("/")).await, looping.request_count()),
        (Err(Error::Redirects { most: 3 }), 4)
    );
}

#[tokio::test]
async fn a_key_is_sent_to_the_first_server_only() {
    let other = Server::replying(answer("", b"")).await;
    let first = Server::replying(sent_on_to(&other.url("/"))).await;
    let mut key = HeaderValue::from_static("a-key");
    key.set_sensitive(true);
    let request = Request::new(first.url("/"), "*/*").with_key("x-key", key);
    assert!(!format!("{request:?}").contains("a-key"));
    test_egress(&["127.0.0.1"], empty_resolver()).get(&request).await.unwrap();
    let received_key = |server: &Server| {
        server.requests.lock().unwrap().iter().map(|head| head.contains("x-key: a-key")).collect::<Vec<_>>()
    };
    assert_eq!([received_key(&first), received_key(&other)], [vec![true], vec![false]]);
}

#[tokio::test]
async fn every_hop_is_observed() {
    let site = Server::replying(sent_on_to("http://10.0.0.1/")).await;
    let noted = Arc::new(Mutex::new(Vec::new()));
    let log = noted.clone();
    let observer = Observer::new(move |hop| log.lock().unwrap().push(hop.clone()));
    let egress = test_egress(&["127.0.0.1"], empty_resolver());
    for url in [&site.url("/"), "nothing", "http://unknown.example/"] {
        egress.get(&Request::new(url, "*/*").observed_by(observer.clone())).await.unwrap_err();
    }
    let hop = |host: &str, port, outcome| Hop { host: host.to_owned(), port, outcome };
    assert_eq!(
        *noted.lock().unwrap(),
        [
            hop("127.0.0.1", Some(site.address.port()), HopOutcome::Ok),
            hop("10.0.0.1", Some(80), HopOutcome::Denied),
            hop("", None, HopOutcome::Denied),
            hop("unknown.example", Some(80), HopOutcome::Failed),
        ]
    );
}

#[tokio::test]
async fn an_exception_applies_to_one_port_only() {
    let [open, closed] = [Server::replying(answer("", b"open")).await, Server::replying(answer("", b"shut")).await];
    let names = FakeResolver::new(&[("box.lan", &["127.0.0.1"])]);
    let egress = test_egress(&[&format!("box.lan:{}", open.address.port())], names);
    let url_of = |server: &Server| format!("http://Box.LAN.:{}/", server.address.port());
    assert_eq!(fetch(&egress, &url_of(&open)).await, Ok(Body { bytes: b"open".to_vec(), is_complete: true }));
    assert_eq!(
        fetch(&egress, &url_of(&closed)).await,
        Err(Error::OtherPort { host: "box.lan".to_owned(), port: closed.address.port() })
    );
    assert_eq!(fetch(&egress, &open.url("/")).await, Err(inside("127.0.0.1", "this machine")));
    assert_eq!((open.request_count(), closed.request_count()), (1, 0));
}

#[tokio::test]
async fn a_decompression_bomb_is_cut_at_the_limit() {
    let mut compressed = GzEncoder::new(Vec::new(), Compression::best());
    compressed.write_all(&vec![b'x'; 64 << 20]).unwrap();
    let server = Server::replying(answer("Content-Encoding: gzip\r\n", &compressed.finish().unwrap())).await;
    let body = fetch(&test_egress(&["127.0.0.1"], empty_resolver()), &server.url("/")).await;
    assert_eq!(body, Ok(Body { bytes: vec![b'x'; 10_000], is_complete: false }));
}

#[tokio::test]
async fn an_endless_body_is_cut_at_the_limit() {
    let server = Server::at("127.0.0.1", |mut stream, _| async move {
        stream.write_all(&answer("", b"")).await.unwrap();
        while stream.write_all(&[b'x'; 4096]).await.is_ok() {}
    });
    let server = server.await;
    let body = fetch(&test_egress(&["127.0.0.1"], empty_resolver()), &server.url("/")).await;
    assert_eq!(body, Ok(Body { bytes: vec![b'x'; 10_000], is_complete: false }));
}

#[tokio::test]
async fn a_body_that_breaks_off_is_an_error() {
    let server = Server::replying(answer("Content-Length: 100\r\n", b"not a hundred")).await;
    let body = fetch(&test_egress(&["127.0.0.1"], empty_resolver()), &server.url("/")).await;
    assert!(matches!(body, Err(Error::Unreachable { .. })), "{body:?}");
}

/// The clock is paused and advances only when all tasks wait, so timeouts are exact and the test is fast.
#[tokio::test(start_paused = true)]
async fn a_silent_server_times_out() {
    let silent = Server::at("127.0.0.1", |stream, _| async move {
        std::future::pending::<()>().await;
        drop(stream);
    });
    let silent = silent.await;
    let started = Instant::now();
    let timeout_error = |limit| Err(Error::Timeout { host: "127.0.0.1".to_owned(), limit: Duration::from_secs(limit) });
    assert_eq!(fetch(&test_egress(&["127.0.0.1"], empty_resolver()), &silent.url("/")).await, timeout_error(30));
    assert_eq!(started.elapsed().as_secs(), 30);

    let stalled = Server::at("127.0.0.1", |mut stream, _| async move {
        stream.write_all(&answer("", b"and then")).await.unwrap();
        std::future::pending::<()>().await;
    });
    let stalled = stalled.await;
    let started = Instant::now();
    assert_eq!(fetch(&test_egress(&["127.0.0.1"], empty_resolver()), &stalled.url("/")).await, timeout_error(15));
    assert_eq!(started.elapsed().as_secs(), 15);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_sends_slowly_times_out() {
    let dripping = Server::at("127.0.0.1", |mut stream, _| async move {
        stream.write_all(&answer("", b"")).await.unwrap();
        let mut clock = tokio::time::interval(Duration::from_secs(4));
        while stream.write_all(b"x").await.is_ok() {
            clock.tick().await;
        }
    });
    let dripping = dripping.await;
    let started = Instant::now();
    let timeout_error = Err(Error::Timeout { host: "127.0.0.1".to_owned(), limit: Duration::from_secs(30) });
    assert_eq!(fetch(&test_egress(&["127.0.0.1"], empty_resolver()), &dripping.url("/")).await, timeout_error);
    assert_eq!(started.elapsed().as_secs(), 30);
}

#[tokio::test]
async fn the_names_of_this_machine_are_known() {
    let server = Server::replying(answer("", b"here")).await;
    let port = server.address.port();
    let allow = vec![format!("localhost:{port}").parse().unwrap()];
    let egress = Egress::new(EgressLimits { allow, ..EgressLimits::default() }, Arc::new(SystemResolver));
    let body = fetch(&egress, &format!("http://localhost:{port}/")).await;
    assert_eq!(body, Ok(Body { bytes: b"here".to_vec(), is_complete: true }));
}

#[tokio::test]
async fn an_unresolved_name_and_a_closed_port_are_reported() {
    let egress = test_egress(&["127.0.0.1"], empty_resolver());
    let why = "the name has no address".to_owned();
    let host = "nowhere.example".to_owned();
    assert_eq!(fetch(&egress, "http://nowhere.example/").await, Err(Error::Unreachable { host, why }));
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let refused = fetch(&egress, &format!("http://{closed}/")).await;
    assert!(matches!(refused, Err(Error::Unreachable { .. })), "{refused:?}");
}

/// Spells an IPv4 address in the forms that some parser accepts.
fn spelled(address: u32, parts: usize, bases: [u8; 4], finish: u8) -> String {
    let number = |value: u32, base: u8| match base {
        0 => format!("{value}"),
        1 => format!("0{value:o}"),
        2 => format!("0x{value:x}"),
        _ => format!("0X{value:0>9X}"),
    };
    let mut spelled: Vec<String> = (0..parts - 1).map(|n| number(address >> (24 - 8 * n) & 0xff, bases[n])).collect();
    spelled.push(number(u32::try_from(u64::from(address) & ((1 << (40 - 8 * parts)) - 1)).unwrap(), bases[parts - 1]));
    match finish {
        0 => spelled.join("."),
        1 => spelled.join(".") + ".",
        2 => spelled.join("。"),
        3 => spelled.join(".").chars().map(|c| char::from_u32(u32::from(c) + 0xfee0).unwrap()).collect(),
        _ => spelled.join(".").bytes().map(|byte| format!("%{byte:02x}")).collect(),
    }
}

/// Spells an IPv4 address embedded in IPv6.
fn carried(address: u32, encoding: u8) -> String {
    let (high, low) = (address >> 16, address & 0xffff);
    let dotted = std::net::Ipv4Addr::from_bits(address);
    match encoding {
        0 => format!("[::ffff:{dotted}]"),
        1 => format!("[::ffff:{high:x}:{low:x}]"),
        2 => format!("[0000:0000:0000:0000:0000:FFFF:{high:04X}:{low:04X}]"),
        3 => format!("[64:ff9b::{dotted}]"),
        _ => format!("[64:ff9b::{high:x}:{low:x}]"),
    }
}

/// Generates IPv4 addresses that are not public.
fn inner_address() -> impl Strategy<Value = u32> {
    // Special-purpose blocks (RFC 6890, multicast, reserved): first address and prefix length.
    const BLOCKS: &[(u32, u32)] = &[
        (0x0000_0000, 8),
        (0x0a00_0000, 8),
        (0x6440_0000, 10),
        (0x7f00_0000, 8),
        (0xa9fe_0000, 16),
        (0xac10_0000, 12),
        (0xc000_0000, 24),
        (0xc0a8_0000, 16),
        (0xc612_0000, 15),
        (0xe000_0000, 4),
        (0xf000_0000, 4),
    ];
    (prop::sample::select(BLOCKS), any::<u32>()).prop_map(|((start, prefix), host)| start | (host >> prefix))
}

fn public_address() -> impl Strategy<Value = u32> {
    // 1.1.0.0 to 9.255.255.255 contains no special-purpose block.
    0x0101_0000_u32..0x0a00_0000
}

proptest! {
    #[test]
    fn an_inner_address_is_refused_in_every_spelling(
        address in inner_address(), parts in 1_usize..=4, bases in any::<[u8; 4]>(), finish in 0_u8..5, encoding in 0_u8..5,
    ) {
        for host in [spelled(address, parts, bases.map(|base| base % 4), finish), carried(address, encoding)] {
            let checked = destination::parse(&format!("http://{host}/"), &[]);
            prop_assert!(matches!(checked, Err(Error::NotPublic { .. })), "{host}: {checked:?}");
        }
        let tunnel = format!("http://[2002:{:x}:{:x}::1]/", address >> 16, address & 0xffff);
        prop_assert_eq!(destination::parse(&tunnel, &[]).is_err(), true);
    }

    #[test]
    fn a_public_address_is_allowed_in_every_spelling(
        address in public_address(), parts in 1_usize..=4, bases in any::<[u8; 4]>(), finish in 0_u8..5, encoding in 0_u8..5,
    ) {
        for host in [spelled(address, parts, bases.map(|base| base % 4), finish), carried(address, encoding)] {
            let checked = destination::parse(&format!("http://{host}/"), &[]);
            prop_assert!(checked.is_ok(), "{host}: {checked:?}");
        }
    }

    #[test]
    fn the_connected_address_is_the_checked_one(host in "\\PC{0,40}") {
        if let Ok(url) = destination::parse(&format!("http://{host}/"), &[]) {
            let dialled = url.host_str().unwrap();
            prop_assert!(dialled.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_[]:".contains(&byte)), "{dialled}");
            prop_assert_eq!(destination::check(url.clone(), &[]), Ok(url));
        }
    }
}

/// Fake list of a server's interface addresses.
fn is_interface(address: IpAddr) -> bool {
    ["93.184.216.34", "2606:2800:220:1::1"].iter().any(|local| local.parse() == Ok(address))
}

fn with_interfaces(egress: Egress) -> Egress {
    let exceptions = egress.rules.exceptions.clone();
    Egress { rules: Arc::new(DestinationRules { exceptions, is_local: is_interface }), ..egress }
}

#[tokio::test]
async fn this_machine_is_not_reached_by_its_public_addresses() {
    let server = Server::replying(sent_on_to("http://93.184.216.34:8080/")).await;
    let names = FakeResolver::new(&[("own.test", &["93.184.216.34"])]);
    let egress = with_interfaces(test_egress(&["127.0.0.0/8"], names));
    let refused = |host: &str| inside(host, "an address of this machine");
    for host in ["93.184.216.34", "[2606:2800:220:1::1]", "own.test"] {
        assert_eq!(fetch(&egress, &format!("http://{host}:8080/")).await, Err(refused(host)));
    }
    let sent_on = fetch(&egress, &server.url("/")).await;
    assert_eq!(sent_on, Err(Error::RedirectTarget(Box::new(refused("93.184.216.34")))));
    assert_eq!(refused("93.184.216.34").outcome(), HopOutcome::Denied);
    // Allowed if the owner lists the address, a block or the name.
    for allowed in ["93.184.216.34", "93.184.0.0/16", "own.test"] {
        let rules = DestinationRules { exceptions: vec![allowed.parse().unwrap()], is_local: is_interface };
        let host = if allowed == "own.test" { allowed } else { "93.184.216.34" };
        let checked = rules.check_not_local(host, "93.184.216.34".parse().unwrap());
        assert_eq!(checked, Ok(()), "{allowed}");
    }
}

#[tokio::test]
async fn one_local_address_among_others_is_refused() {
    let names = FakeResolver::new(&[("mixed.test", &["8.8.8.8", "2606:2800:220:1::1"])]);
    let egress = with_interfaces(test_egress(&[], names));
    assert_eq!(
        fetch(&egress, "http://mixed.test:8080/").await,
        Err(inside("mixed.test", "an address of this machine"))
    );
}
