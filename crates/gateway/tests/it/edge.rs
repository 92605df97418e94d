//! Access from other machines: TLS, networks and trusted proxies.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
};

use async_trait::async_trait;
use futures_util::{SinkExt, StreamExt};
use homard_agent::HubRules;
use homard_gateway::{
    Endpoints, Error, PluginEndpoints, PluginHttpRequest, PluginHttpResponse, RouteAuth, Scope, Secret, Settings, Tls,
    Webhooks, bind,
};
use homard_proto::ErrorShape;
use homard_store::MemoryStore;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::{Instant, timeout},
};
use tokio_rustls::TlsConnector;
use tokio_tungstenite::{client_async, tungstenite::Message};

use crate::support::{PATIENCE, TOKEN, TestClient, TestGateway, connect, says, settings};

/// The trusted proxy in the settings of these tests.
const PROXY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);

/// Creates a certificate for localhost and TLS settings with it.
fn certificate() -> (CertificateDer<'static>, Tls) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let tls = Tls::new(made.cert.pem().as_bytes(), made.signing_key.serialize_pem().as_bytes()).unwrap();
    (made.cert.der().clone(), tls)
}

async fn with_tls() -> (TestGateway, TlsConnector) {
    let (certificate, tls) = certificate();
    let settings = Settings { tls: Some(tls), ..settings(SocketAddr::from(([127, 0, 0, 1], 0))) };
    let world =
        TestGateway::set(settings, Arc::new(MemoryStore::default()), says(&["hi"]), HubRules::default(), |it| it).await;
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
    (world, TlsConnector::from(Arc::new(config.with_no_client_auth())))
}

async fn secret(world: &TestGateway, connector: &TlsConnector) -> tokio_rustls::client::TlsStream<TcpStream> {
    let stream = TcpStream::connect(world.address).await.unwrap();
    connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap()
}

#[tokio::test]
async fn a_gateway_speaks_tls() {
    let (world, connector) = with_tls().await;
    let mut stream = secret(&world, &connector).await;
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with(r#"{"ok":true,"status":"live"}"#), "{answer}");
    let stream = secret(&world, &connector).await;
    let (mut socket, _) = client_async("wss://localhost/", stream).await.unwrap();
    let challenge = socket.next().await.unwrap().unwrap().into_text().unwrap();
    assert!(challenge.contains("connect.challenge"));
    let request = json!({"type": "req", "id": "1", "method": "connect", "params": connect(4)});
    socket.send(Message::text(request.to_string())).await.unwrap();
    let hello: Value = serde_json::from_str(&socket.next().await.unwrap().unwrap().into_text().unwrap()).unwrap();
    assert_eq!(hello["payload"]["type"], "hello-ok", "{hello}");
    // A page that the gateway served may connect.
    let stream = secret(&world, &connector).await;
    let request = tokio_tungstenite::tungstenite::ClientRequestBuilder::new("wss://localhost/".parse().unwrap());
    assert!(client_async(request.with_header("Origin", "https://localhost"), stream).await.is_ok());
}

#[tokio::test]
async fn who_does_not_speak_tls_is_told_nothing_and_stays_a_stranger() {
    let (world, connector) = with_tls().await;
    let mut plain = TcpStream::connect(world.address).await.unwrap();
    plain.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let heard = crate::limits::rest(plain).await;
    // A TLS alert: one byte for its type, two for the version, two for the length, and two of content.
    assert!(heard.is_empty() || (heard.len() == 7 && heard[0] == 21), "{heard:?}");
    // A peer that starts a handshake and stalls delays no other, and is closed by the pre-authentication timeout.
    let mut silent = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        stream.write_all(&[22, 3, 1]).await.unwrap();
        silent.push(stream);
    }
    secret(&world, &connector).await;
    tokio::time::pause();
    let begun = Instant::now();
    for mut stream in silent {
        assert_eq!(timeout(PATIENCE, stream.read(&mut [0; 1])).await.unwrap().unwrap_or(0), 0);
    }
    assert!(begun.elapsed().as_secs() <= 11, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn r34_nobody_is_exposed_without_being_asked() {
    let everywhere = || settings(SocketAddr::from(([0, 0, 0, 0], 0)));
    let refused = |settings| async { bind(settings).await.err().map(|error| error.to_string()) };
    let open = Settings { secret: Secret::new(None, None), allow_insecure: true, ..everywhere() };
    assert_eq!(refused(open).await.unwrap(), Error::NoSecret.to_string());
    let told = refused(everywhere()).await.unwrap();
    for way_out in ["gateway.tls.enabled", "gateway.trustedProxies", "gateway.allowInsecure", "gateway.bind"] {
        assert!(told.contains(way_out), "{told}");
    }
    // A trusted proxy on this machine does not justify listening on the network.
    assert!(matches!(bind(everywhere()).await, Err(Error::Exposed(_))));
    let mapped = settings("[::ffff:0.0.0.0]:0".parse().unwrap());
    assert!(matches!(bind(mapped).await, Err(Error::Exposed(_))));
    let short = Settings { secret: Secret::new(Some("x".repeat(15)), None), allow_insecure: true, ..everywhere() };
    assert!(matches!(bind(short).await, Err(Error::ShortToken { length: 15, .. })));
    let proxy = Settings { trusted_proxies: vec![IpAddr::from([192, 0, 2, 9])], ..everywhere() };
    for served in [
        Settings { allow_insecure: true, ..everywhere() },
        Settings { tls: Some(certificate().1), ..everywhere() },
        proxy,
    ] {
        assert!(bind(served).await.is_ok());
    }
}

#[tokio::test]
async fn one_port_is_chosen_for_all_addresses() {
    let here = |last: u8| SocketAddr::from(([127, 0, 0, last], 0));
    let gateway = bind(Settings { bind: vec![here(1), here(2)], ..settings(here(1)) }).await.unwrap();
    let [one, other] = gateway.local_addrs()[..] else { panic!("{:?}", gateway.local_addrs()) };
    assert_eq!((one.port(), one.ip(), other.ip()), (other.port(), here(1).ip(), here(2).ip()));
}

/// A plugin with one unauthenticated path, which returns the body length and the client address.
#[derive(Debug)]
struct EchoPlugin;

#[async_trait]
impl PluginEndpoints for EchoPlugin {
    fn methods(&self) -> Vec<String> {
        Vec::new()
    }

    fn required_scope(&self, _: &str) -> Option<Scope> {
        None
    }

    async fn call(&self, _: &str, _: Value, _: Value) -> Result<Value, ErrorShape> {
        unreachable!()
    }

    fn route_auth(&self, path: &str) -> Option<RouteAuth> {
        (path == "/parrot").then_some(RouteAuth::Plugin)
    }

    fn max_body(&self, _: &str) -> usize {
        1024 * 1024
    }

    async fn handle(&self, asked: PluginHttpRequest) -> Option<PluginHttpResponse> {
        let body = format!("{} bytes of {}", asked.body.len(), asked.from).into_bytes();
        Some(PluginHttpResponse { status: 200, headers: Vec::new(), body })
    }
}

async fn world() -> TestGateway {
    let webhooks = Webhooks::new("the-hook-token", "/hooks").unwrap();
    TestGateway::with(|gateway| {
        let endpoints = Endpoints { chat_completions: true, ..Endpoints::default() };
        gateway.with_webhooks(webhooks).with_endpoints(endpoints).with_plugins(Arc::new(EchoPlugin))
    })
    .await
}

/// Connects from the address of the proxy.
async fn proxy(world: &TestGateway) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((PROXY, 0).into()).unwrap();
    socket.connect(world.address).await.unwrap()
}

/// A request that the proxy forwards for a client, over HTTP/1.1 with keep-alive.
fn handed_on(client: &str, line: &str, more: &str) -> String {
    format!("{line} HTTP/1.1\r\nHost: desk.example\r\nX-Forwarded-For: {client}\r\n{more}\r\n")
}

/// Returns the status and everything sent until the gateway closed the connection.
async fn asked(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), request: &str) -> (u16, String) {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut answer)).await.expect("it stayed open").unwrap();
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
}

#[tokio::test]
async fn behind_a_proxy_one_guesses_for_oneself() {
    let world = world().await;
    let places = [("GET /v1/models", "Authorization: Bearer"), ("POST /hooks/wake", "x-openclaw-token:")];
    for (line, header) in places {
        for _ in 0..20 {
            let guess = handed_on("198.51.100.7", line, &format!("{header} guess\r\nContent-Length: 0\r\n"));
            asked(&mut proxy(&world).await, &guess).await;
        }
        let right = if line.starts_with("GET") { TOKEN } else { "the-hook-token" };
        let more = format!("{header} {right}\r\nContent-Length: 0\r\n");
        let (locked, _) = asked(&mut proxy(&world).await, &handed_on("198.51.100.7", line, &more)).await;
        // The gateway's token is long enough to be unguessable; that of the webhooks is not.
        assert_eq!(locked, if line.starts_with("GET") { 200 } else { 429 }, "{line}");
        let wrong = format!("{header} guess\r\nContent-Length: 0\r\n");
        let (locked, _) = asked(&mut proxy(&world).await, &handed_on("198.51.100.7", line, &wrong)).await;
        assert_eq!(locked, 429, "{line}");
        let (another, _) = asked(&mut proxy(&world).await, &handed_on("198.51.100.8", line, &more)).await;
        assert!(another == 200 || another == 400, "{line} was answered with {another}");
    }
    // The proxy itself is not locked out: the owner can still authenticate through it.
    let headers = [("x-forwarded-for", "198.51.100.8"), ("host", "desk.example")];
    let mut socket = TestClient::open_from(PROXY, world.address, &headers).await.ok().unwrap();
    assert_eq!(socket.ask("1", "connect", connect(4)).await["ok"], true);
}

#[tokio::test]
async fn who_is_welcome_through_a_proxy_makes_nobody_else_welcome() {
    let world = world().await;
    let mut stream = proxy(&world).await;
    let known = handed_on("198.51.100.7", "GET /v1/models", &format!("Authorization: Bearer {TOKEN}\r\n"));
    // Another client's request on the same connection, as proxies send it.
    let stranger = handed_on("198.51.100.8", "GET /health", "");
    let (status, answer) = asked(&mut stream, &format!("{known}{stranger}")).await;
    assert_eq!((status, answer.matches("HTTP/1.1").count()), (200, 1), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
    // Without a proxy, a connection belongs to one client and stays open.
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let own = format!("GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n");
    let last = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let (_, answer) = asked(&mut stream, &format!("{own}\r\n{last}")).await;
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 2, "{answer}");
}

#[tokio::test]
async fn strangers_behind_a_proxy_crowd_out_themselves() {
    let world = world().await;
    let upgrade = |client: &'static str| {
        let headers = [("x-forwarded-for", client), ("host", "desk.example")];
        let address = world.address;
        async move { TestClient::open_from(PROXY, address, &headers).await.ok().unwrap() }
    };
    let mut quiet = upgrade("198.51.100.7").await;
    assert_eq!(quiet.next().await["event"], "connect.challenge");
    let mut crowd = Vec::new();
    for _ in 0..100 {
        let mut socket = upgrade("198.51.100.8").await;
        assert_eq!(socket.next().await["event"], "connect.challenge");
        crowd.push(socket);
    }
    // The oldest of the crowd was evicted, the quiet connection was not.
    assert_eq!(crowd[0].rest().await.1.map(|(code, _)| code), Some(1002));
    assert_eq!(quiet.ask("1", "connect", connect(4)).await["ok"], true);
    assert_eq!(crowd[99].ask("1", "connect", connect(4)).await["ok"], true);
}

#[tokio::test]
async fn what_a_stranger_says_to_a_plugin_is_bounded_by_the_plugin() {
    let world = world().await;
    // The connection is closed after the response: the byte allowance of one request is not for the next.
    let request =
        |length: usize| format!("POST /parrot HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let body = "x".repeat(500_000);
    let (status, answer) = asked(&mut stream, &format!("{}{body}", request(body.len()))).await;
    assert_eq!(status, 200);
    assert!(answer.ends_with("500000 bytes of 127.0.0.1"), "{answer}");
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    assert_eq!(asked(&mut stream, &request(1024 * 1024 + 1)).await.0, 413);
    // The client address is the one that the proxy reports.
    let through = handed_on("198.51.100.7", "POST /parrot", "Content-Length: 0\r\n");
    let (_, answer) = asked(&mut proxy(&world).await, &through).await;
    assert!(answer.ends_with("0 bytes of 198.51.100.7"), "{answer}");
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    stream.write_all(format!("{}x", request(10)).as_bytes()).await.unwrap();
    tokio::time::pause();
    let mut answer = [0; 12];
    timeout(PATIENCE, stream.read_exact(&mut answer)).await.expect("it is still waited for").unwrap();
    assert_eq!(&answer, b"HTTP/1.1 408");
}
