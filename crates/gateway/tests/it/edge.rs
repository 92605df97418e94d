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
    let generated = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let tls = Tls::new(generated.cert.pem().as_bytes(), generated.signing_key.serialize_pem().as_bytes()).unwrap();
    (generated.cert.der().clone(), tls)
}

async fn with_tls() -> (TestGateway, TlsConnector) {
    let (certificate, tls) = certificate();
    let settings = Settings { tls: Some(tls), ..settings(SocketAddr::from(([127, 0, 0, 1], 0))) };
    let gateway = TestGateway::with_settings(
        settings,
        Arc::new(MemoryStore::default()),
        says(&["hi"]),
        HubRules::default(),
        |it| it,
    )
    .await;
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
    (gateway, TlsConnector::from(Arc::new(config.with_no_client_auth())))
}

async fn connect_tls(gateway: &TestGateway, connector: &TlsConnector) -> tokio_rustls::client::TlsStream<TcpStream> {
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    connector.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap()
}

#[tokio::test]
async fn a_gateway_serves_tls() {
    let (gateway, connector) = with_tls().await;
    let mut stream = connect_tls(&gateway, &connector).await;
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with(r#"{"ok":true,"status":"live"}"#), "{answer}");
    let stream = connect_tls(&gateway, &connector).await;
    let (mut socket, _) = client_async("wss://localhost/", stream).await.unwrap();
    let challenge = socket.next().await.unwrap().unwrap().into_text().unwrap();
    assert!(challenge.contains("connect.challenge"));
    let request = json!({"type": "req", "id": "1", "method": "connect", "params": connect(4)});
    socket.send(Message::text(request.to_string())).await.unwrap();
    let hello: Value = serde_json::from_str(&socket.next().await.unwrap().unwrap().into_text().unwrap()).unwrap();
    assert_eq!(hello["payload"]["type"], "hello-ok", "{hello}");
    // A page that the gateway served may connect.
    let stream = connect_tls(&gateway, &connector).await;
    let request = tokio_tungstenite::tungstenite::ClientRequestBuilder::new("wss://localhost/".parse().unwrap());
    assert!(client_async(request.with_header("Origin", "https://localhost"), stream).await.is_ok());
}

#[tokio::test]
async fn plaintext_connections_get_no_response_and_stay_unauthenticated() {
    let (gateway, connector) = with_tls().await;
    let mut plain = TcpStream::connect(gateway.address).await.unwrap();
    plain.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let received = crate::limits::read_to_close(plain).await;
    // A TLS alert: one byte for its type, two for the version, two for the length, and two of content.
    assert!(received.is_empty() || (received.len() == 7 && received[0] == 21), "{received:?}");
    // A peer that starts a handshake and stalls delays no other, and is closed by the pre-authentication timeout.
    let mut silent = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(gateway.address).await.unwrap();
        stream.write_all(&[22, 3, 1]).await.unwrap();
        silent.push(stream);
    }
    connect_tls(&gateway, &connector).await;
    tokio::time::pause();
    let started_at = Instant::now();
    for mut stream in silent {
        assert_eq!(timeout(PATIENCE, stream.read(&mut [0; 1])).await.unwrap().unwrap_or(0), 0);
    }
    assert!(started_at.elapsed().as_secs() <= 11, "{:?}", started_at.elapsed());
}

#[tokio::test]
async fn r34_a_gateway_is_never_exposed_by_default() {
    let all_interfaces = || settings(SocketAddr::from(([0, 0, 0, 0], 0)));
    let bind_error = |settings| async { bind(settings).await.err().map(|error| error.to_string()) };
    let open = Settings { secret: Secret::new(None, None), allow_insecure: true, ..all_interfaces() };
    assert_eq!(bind_error(open).await.unwrap(), Error::NoSecret.to_string());
    let message = bind_error(all_interfaces()).await.unwrap();
    for setting in ["gateway.tls.enabled", "gateway.trustedProxies", "gateway.allowInsecure", "gateway.bind"] {
        assert!(message.contains(setting), "{message}");
    }
    // A trusted proxy on this machine does not justify listening on the network.
    assert!(matches!(bind(all_interfaces()).await, Err(Error::Exposed(_))));
    let mapped = settings("[::ffff:0.0.0.0]:0".parse().unwrap());
    assert!(matches!(bind(mapped).await, Err(Error::Exposed(_))));
    let short = Settings { secret: Secret::new(Some("x".repeat(15)), None), allow_insecure: true, ..all_interfaces() };
    assert!(matches!(bind(short).await, Err(Error::ShortToken { length: 15, .. })));
    let proxy = Settings { trusted_proxies: vec![IpAddr::from([192, 0, 2, 9])], ..all_interfaces() };
    for accepted in [
        Settings { allow_insecure: true, ..all_interfaces() },
        Settings { tls: Some(certificate().1), ..all_interfaces() },
        proxy,
    ] {
        assert!(bind(accepted).await.is_ok());
    }
}

#[tokio::test]
async fn one_port_is_chosen_for_all_addresses() {
    let loopback = |last: u8| SocketAddr::from(([127, 0, 0, last], 0));
    let gateway = bind(Settings { bind: vec![loopback(1), loopback(2)], ..settings(loopback(1)) }).await.unwrap();
    let [first, second] = gateway.local_addrs()[..] else { panic!("{:?}", gateway.local_addrs()) };
    assert_eq!((first.port(), first.ip(), second.ip()), (second.port(), loopback(1).ip(), loopback(2).ip()));
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

    async fn handle(&self, request: PluginHttpRequest) -> Option<PluginHttpResponse> {
        let body = format!("{} bytes of {}", request.body.len(), request.from).into_bytes();
        Some(PluginHttpResponse { status: 200, headers: Vec::new(), body })
    }
}

async fn gateway() -> TestGateway {
    let webhooks = Webhooks::new("the-hook-token", "/hooks").unwrap();
    TestGateway::with(|gateway| {
        let endpoints = Endpoints { chat_completions: true, ..Endpoints::default() };
        gateway.with_webhooks(webhooks).with_endpoints(endpoints).with_plugins(Arc::new(EchoPlugin))
    })
    .await
}

/// Connects from the address of the proxy.
async fn proxy(gateway: &TestGateway) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((PROXY, 0).into()).unwrap();
    socket.connect(gateway.address).await.unwrap()
}

/// A request that the proxy forwards for a client, over HTTP/1.1 with keep-alive.
fn proxied_request(client: &str, line: &str, headers: &str) -> String {
    format!("{line} HTTP/1.1\r\nHost: desk.example\r\nX-Forwarded-For: {client}\r\n{headers}\r\n")
}

/// Returns the status and everything sent until the gateway closed the connection.
async fn exchange(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), request: &str) -> (u16, String) {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut answer)).await.expect("it stayed open").unwrap();
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
}

#[tokio::test]
async fn failed_attempts_behind_a_proxy_are_counted_per_client() {
    let gateway = gateway().await;
    let routes = [("GET /v1/models", "Authorization: Bearer"), ("POST /hooks/wake", "x-openclaw-token:")];
    for (line, header) in routes {
        for _ in 0..20 {
            let guess = proxied_request("198.51.100.7", line, &format!("{header} guess\r\nContent-Length: 0\r\n"));
            exchange(&mut proxy(&gateway).await, &guess).await;
        }
        let correct = if line.starts_with("GET") { TOKEN } else { "the-hook-token" };
        let headers = format!("{header} {correct}\r\nContent-Length: 0\r\n");
        let (locked, _) = exchange(&mut proxy(&gateway).await, &proxied_request("198.51.100.7", line, &headers)).await;
        // The gateway's token is long enough to be unguessable; that of the webhooks is not.
        assert_eq!(locked, if line.starts_with("GET") { 200 } else { 429 }, "{line}");
        let wrong = format!("{header} guess\r\nContent-Length: 0\r\n");
        let (locked, _) = exchange(&mut proxy(&gateway).await, &proxied_request("198.51.100.7", line, &wrong)).await;
        assert_eq!(locked, 429, "{line}");
        let (other_client, _) =
            exchange(&mut proxy(&gateway).await, &proxied_request("198.51.100.8", line, &headers)).await;
        assert!(other_client == 200 || other_client == 400, "{line} was answered with {other_client}");
    }
    // The proxy itself is not locked out: the owner can still authenticate through it.
    let headers = [("x-forwarded-for", "198.51.100.8"), ("host", "desk.example")];
    let mut socket = TestClient::open_from(PROXY, gateway.address, &headers).await.ok().unwrap();
    assert_eq!(socket.ask("1", "connect", connect(4)).await["ok"], true);
}

#[tokio::test]
async fn authentication_through_a_proxy_covers_one_client_only() {
    let gateway = gateway().await;
    let mut stream = proxy(&gateway).await;
    let authenticated =
        proxied_request("198.51.100.7", "GET /v1/models", &format!("Authorization: Bearer {TOKEN}\r\n"));
    // Another client's request on the same connection, as proxies send it.
    let unauthenticated = proxied_request("198.51.100.8", "GET /health", "");
    let (status, answer) = exchange(&mut stream, &format!("{authenticated}{unauthenticated}")).await;
    assert_eq!((status, answer.matches("HTTP/1.1").count()), (200, 1), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
    // Without a proxy, a connection belongs to one client and stays open.
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    let request = format!("GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n");
    let last = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let (_, answer) = exchange(&mut stream, &format!("{request}\r\n{last}")).await;
    assert_eq!(answer.matches("HTTP/1.1 200").count(), 2, "{answer}");
}

#[tokio::test]
async fn unauthenticated_clients_behind_a_proxy_evict_only_their_own() {
    let gateway = gateway().await;
    let upgrade = |client: &'static str| {
        let headers = [("x-forwarded-for", client), ("host", "desk.example")];
        let address = gateway.address;
        async move { TestClient::open_from(PROXY, address, &headers).await.ok().unwrap() }
    };
    let mut quiet = upgrade("198.51.100.7").await;
    assert_eq!(quiet.next().await["event"], "connect.challenge");
    let mut flood = Vec::new();
    for _ in 0..100 {
        let mut socket = upgrade("198.51.100.8").await;
        assert_eq!(socket.next().await["event"], "connect.challenge");
        flood.push(socket);
    }
    // The oldest of the crowd was evicted, the quiet connection was not.
    assert_eq!(flood[0].read_to_close().await.1.map(|(code, _)| code), Some(1002));
    assert_eq!(quiet.ask("1", "connect", connect(4)).await["ok"], true);
    assert_eq!(flood[99].ask("1", "connect", connect(4)).await["ok"], true);
}

#[tokio::test]
async fn request_bodies_for_plugins_are_limited_by_the_plugin() {
    let gateway = gateway().await;
    // The connection is closed after the response: the byte allowance of one request is not for the next.
    let request =
        |length: usize| format!("POST /parrot HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    let body = "x".repeat(500_000);
    let (status, answer) = exchange(&mut stream, &format!("{}{body}", request(body.len()))).await;
    assert_eq!(status, 200);
    assert!(answer.ends_with("500000 bytes of 127.0.0.1"), "{answer}");
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    assert_eq!(exchange(&mut stream, &request(1024 * 1024 + 1)).await.0, 413);
    // The client address is the one that the proxy reports.
    let via_proxy = proxied_request("198.51.100.7", "POST /parrot", "Content-Length: 0\r\n");
    let (_, answer) = exchange(&mut proxy(&gateway).await, &via_proxy).await;
    assert!(answer.ends_with("0 bytes of 198.51.100.7"), "{answer}");
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    stream.write_all(format!("{}x", request(10)).as_bytes()).await.unwrap();
    tokio::time::pause();
    let mut answer = [0; 12];
    timeout(PATIENCE, stream.read_exact(&mut answer)).await.expect("it is still waited for").unwrap();
    assert_eq!(&answer, b"HTTP/1.1 408");
}
