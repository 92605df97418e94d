//! The numbered security requirements of the network edge: what unauthenticated peers, web pages and devices cannot do.
//! Limits are in `limits`, networks and proxies in `edge`.

use std::{fs, net::Ipv4Addr, time::Duration};

use futures_util::future::join_all;
use homard_gateway::{ControlUi, Secret, Settings};
use serde_json::{Value, json};
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
};

use crate::{
    http::http,
    limits::rest,
    support::{TOKEN, TestClient, TestGateway, connect, says, settings, sign},
};

/// Ways in which a link, a page or the browser history could inject another gateway or a token, as query, path and
/// `Referer`.
fn slipped_in(elsewhere: &str) -> Vec<(String, String)> {
    let names = ["gatewayUrl", "gateway_url", "gateway", "url", "ws", "wsUrl", "endpoint", "server", "host", "remote"];
    let queries = names.map(|name| format!("{name}=ws://{elsewhere}&token={TOKEN}"));
    let forms = queries.iter().flat_map(|query| [format!("/?{query}"), format!("/chat?x=1&{query}")]);
    let more = [
        format!("/?token={TOKEN}"),
        format!("/?password={TOKEN}&session=main"),
        format!("/?redirect=http://{elsewhere}/"),
    ];
    let encoded = queries[0].replace(':', "%3A").replace('/', "%2F");
    let forms: Vec<_> = forms.chain(more).chain([format!("/?{encoded}"), format!("/;{}", queries[0])]).collect();
    let referers = [format!("http://{elsewhere}/#token={TOKEN}"), format!("http://localhost/?{}", queries[0])];
    forms.into_iter().enumerate().map(|(at, form)| (form, referers[at % 2].clone())).collect()
}

#[tokio::test]
async fn r31_no_endpoint_and_no_token_comes_from_an_address() {
    let elsewhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let there = elsewhere.local_addr().unwrap().to_string();
    let folder = std::env::temp_dir().join(format!("homard-r31-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("index.html"), "<script>go()</script>").unwrap();
    let installed = ControlUi::open(&folder).unwrap();
    let forms = slipped_in(&there);
    assert!(forms.len() >= 20, "{}", forms.len());
    for world in
        [TestGateway::new(says(&["hi"])).await, TestGateway::with(|gateway| gateway.with_control_ui(installed)).await]
    {
        for (form, referer) in &forms {
            let mut stream = TcpStream::connect(world.address).await.unwrap();
            let head =
                format!("GET {form} HTTP/1.1\r\nHost: localhost\r\nReferer: {referer}\r\nConnection: close\r\n\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
            let page = String::from_utf8(rest(stream).await).unwrap();
            // It appears neither in the page nor in a redirect, and the policy forbids connections elsewhere.
            assert!(!page.contains(&there) && !page.contains(TOKEN), "{form}: {page}");
            assert!(!page.to_lowercase().contains("\r\nlocation:"), "{form}: {page}");
            if page.starts_with("HTTP/1.1 200") {
                assert!(page.contains("referrer-policy: no-referrer"), "{form}: {page}");
                let policy = page.split("content-security-policy: ").nth(1).unwrap().split("\r\n").next().unwrap();
                let connects = policy.split("; ").find_map(|rule| rule.strip_prefix("connect-src "));
                let allowed =
                    connects.or_else(|| policy.split("; ").find_map(|rule| rule.strip_prefix("default-src ")));
                assert!(matches!(allowed, Some("'none'" | "'self' data:")), "{form}: {policy}");
            } else {
                assert!(page.starts_with("HTTP/1.1 404"), "{form}: {page}");
            }
            // A token in the URL does not authenticate a socket either.
            let mut socket = TestClient::open_at(world.address, form).await.ok().unwrap();
            let mut params = connect(4);
            params["auth"] = json!({});
            let refused = socket.ask("1", "connect", params).await;
            assert_eq!(refused["error"]["details"]["code"], "DEVICE_IDENTITY_REQUIRED", "{form}: {refused}");
        }
    }
    fs::remove_dir_all(&folder).unwrap();
    assert!(matches!(futures_util::poll!(std::pin::pin!(elsewhere.accept())), std::task::Poll::Pending));
}

/// Client ids.
const CLIENTS: [&str; 5] = ["openclaw-control-ui", "webchat-ui", "cli", "gateway-client", "openclaw-tui"];

fn foreign_origins(port: u16) -> Vec<String> {
    let mut bad: Vec<String> = [
        "null",
        "",
        "file://",
        "https://evil.example",
        "http://desk.example",
        "https://desk.example:444",
        "https://desk.example:80",
        "https://desk.example.",
        "https://desk.example.evil.example",
        "https://evil.desk.example",
        "https://deskxexample",
        "https://desk.example/",
        "https://desk.example/x",
        "https://desk.example?x",
        "https://desk.example#x",
        "https://desk.example, https://evil.example",
        "https://desk.example https://evil.example",
        "wss://desk.example",
        "desk.example",
        "*",
        "http://localhost.evil.example",
        "http://localhost.",
        "http://localhost/",
        "http://localhost:port",
        "http://localhost:80evil",
        "http://127.0.0.1.nip.io",
        "http://0x7f000001",
        "http://0177.0.0.1",
        "http://2130706433",
        "http://127.1",
        "http://0.0.0.0",
        "http://[::]",
        "http://[::1].evil.example",
        "http://[::ffff:7f00:1].evil.example",
        "http://localhost@evil.example",
        "http://evil.example@localhost",
        "http://evil.example#@localhost",
        "http://evil.example?localhost",
        "http://evil.example/localhost",
        "//localhost",
        "localhost",
        "http:localhost",
        "http:///localhost",
        "chrome-extension://localhost",
    ]
    .map(str::to_owned)
    .into();
    for scheme in ["ftp", "ws", "wss", "javascript", "data", "blob:http", "moz-extension", "app", "httpx", "https+http"]
    {
        bad.push(format!("{scheme}://localhost:{port}"));
    }
    for name in
        ["evil.example", "xn--localhost", "localhost%00", "localhost%2eevil", "loopback", "ip6-localhost", "l0calhost"]
    {
        bad.push(format!("http://{name}:{port}"));
    }
    // L11: another program on this machine is not the gateway.
    for place in ["localhost", "127.0.0.1", "[::1]", "127.0.0.2"] {
        bad.extend([
            format!("http://{place}:5173"),
            format!("https://{place}:{}", port.wrapping_add(1)),
            format!("http://{place}:80"),
        ]);
    }
    bad
}

/// The client does not wait for the upgrade: it sends its credentials at once.
#[tokio::test]
async fn r32_the_origin_is_judged_before_the_upgrade_whoever_the_client_says_it_is() {
    let world = TestGateway::new(says(&["hi"])).await;
    let bad = foreign_origins(world.address.port());
    assert!(bad.len() >= 60, "{}", bad.len());
    for origin in &bad {
        let tries = CLIENTS.map(|id| async move {
            let mut params = connect(4);
            params["client"]["id"] = id.into();
            let said = json!({"type": "req", "id": "1", "method": "connect", "params": params}).to_string();
            let mut stream = TcpStream::connect(world.address).await.unwrap();
            let head = format!(
                "GET /?client={id} HTTP/1.1\r\nHost: localhost\r\nOrigin: {origin}\r\nUser-Agent: {id}\r\nUpgrade: \
                 websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: \
                 dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            );
            stream.write_all(&[head.as_bytes(), &frame(said.as_bytes())].concat()).await.unwrap();
            stream.shutdown().await.ok();
            String::from_utf8_lossy(&rest(stream).await).into_owned()
        });
        for answer in join_all(tries).await {
            assert!(answer.starts_with("HTTP/1.1 403"), "{origin}: {answer}");
            assert!(!answer.contains("connect.challenge") && !answer.contains("101"), "{origin}: {answer}");
        }
    }
    let own = |name: &str| format!("http://{name}:{}", world.address.port());
    for id in CLIENTS {
        for origin in
            ["https://desk.example", "HTTPS://DESK.example", &own("localhost"), &own("127.0.0.1"), &own("[::1]")]
        {
            let mut socket = TestClient::open(world.address, &[("origin", origin)]).await.ok().unwrap();
            let mut params = connect(4);
            params["client"]["id"] = id.into();
            assert_eq!(socket.ask("1", "connect", params).await["ok"], true, "{id} from {origin}");
        }
    }
}

/// A client's text frame with a zero mask.
fn frame(text: &[u8]) -> Vec<u8> {
    let length = u16::try_from(text.len()).unwrap().to_be_bytes();
    [&[0x81, 0xfe], &length[..], &[0; 4], text].concat()
}

#[tokio::test]
async fn r33_only_names_of_this_machine_are_answered() {
    let world = TestGateway::new(says(&["hi"])).await;
    let port = world.address.port();
    let foreign = [
        "evil.example",
        "localhost.evil.example",
        "localhost.",
        "localhost..",
        "xlocalhost",
        "localhost.localdomain",
        "127.0.0.1.nip.io",
        "127-0-0-1.sslip.io",
        "7f000001.c0a80001.rbndr.us",
        "make-127-0-0-1-rr.1u.ms",
        "A.192.168.0.1.1time.127.0.0.1.forever.rebind.network",
        "127.0.0.2",
        "127.0.0.1.",
        "127.1",
        "0177.0.0.1",
        "0x7f.0.0.1",
        "2130706433",
        "0.0.0.0",
        "0",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::1%25lo]",
        "[0:0:0:0:0:0:0:2]",
        "169.254.169.254",
        "192.168.0.1",
        "desk.example",
        "evil@localhost",
        "localhost@evil.example",
        "localhost:port",
        "localhost, evil.example",
        "localhost evil.example",
        "",
    ];
    assert!(foreign.len() >= 30);
    for host in foreign {
        for path in ["/", "/health", "/v1/models", "/control-ui-config.json", "/hooks/wake"] {
            let (status, _) = http(world.address, &format!("GET {path} HTTP/1.1\r\nHost: {host}")).await;
            // D16: 403, where the requirement had another number. What is not a host at all is rejected earlier.
            assert!(status == 403 || status == 400, "{host}{path} was answered with {status}");
        }
        if !host.is_empty() {
            let tried = TestClient::open(world.address, &[("host", host)]).await;
            assert!(matches!(tried.err(), Some(400 | 403)), "{host}");
        }
    }
    for host in
        ["localhost", "LOCALHOST", "127.0.0.1", "[::1]", &format!("localhost:{port}"), &world.address.to_string()]
    {
        let (status, _) = http(world.address, &format!("GET /health HTTP/1.1\r\nHost: {host}")).await;
        assert_eq!(status, 200, "{host}");
    }
}

#[tokio::test]
async fn r34_nobody_is_local_behind_a_proxy_that_is_not_listed() {
    let world = TestGateway::new(says(&["hi"])).await;
    for name in ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"] {
        for value in ["127.0.0.1", "::1", "for=127.0.0.1;host=localhost", "localhost", "https", "127.0.0.9", "nonsense"]
        {
            assert_eq!(TestClient::open(world.address, &[(name, value)]).await.err(), Some(403), "{name}");
            let (status, _) =
                http(world.address, &format!("GET /health HTTP/1.1\r\nHost: localhost\r\n{name}: {value}")).await;
            assert_eq!(status, 403, "{name}: {value}");
        }
    }
}

#[tokio::test]
async fn r35_a_page_on_this_machine_guesses_ten_times() {
    let password =
        Settings { secret: Secret::new(None, Some(TOKEN.to_owned())), ..settings(([127, 0, 0, 1], 0).into()) };
    let store = std::sync::Arc::new(homard_store::MemoryStore::default());
    let world =
        TestGateway::set(password, store, says(&["hi"]), homard_agent::HubRules::default(), |gateway| gateway).await;
    let (address, origin) = (world.address, format!("http://localhost:{}", world.address.port()));
    let origin = &origin;
    let guess = |token: &'static str| async move {
        let mut socket = TestClient::open(address, &[("origin", origin)]).await.ok().unwrap();
        let mut params = connect(4);
        params["auth"] = json!({"token": token});
        let mut answer = socket.ask("1", "connect", params).await;
        (answer["error"]["details"]["code"].take(), answer["error"]["retryAfterMs"].as_u64())
    };
    let mut codes = Vec::new();
    for _ in 0..1000 {
        codes.push(guess("guess").await.0);
    }
    assert_eq!(codes.iter().filter(|code| **code == "AUTH_PASSWORD_MISMATCH").count(), 10);
    assert_eq!(codes[10..], vec![json!("AUTH_RATE_LIMITED"); 990]);
    // HTTP shares the limiter: there, too, the correct password is not compared.
    let head = format!("GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}");
    assert_eq!(http(world.address, &head).await.0, 429);
    // Five minutes, minus the time of the attempts.
    let (_, wait) = guess("guess").await;
    let wait = Duration::from_millis(wait.unwrap());
    assert!((200..=300).contains(&wait.as_secs()), "{wait:?}");
    tokio::time::pause();
    tokio::time::advance(wait / 2).await;
    tokio::time::resume();
    assert_eq!(guess(TOKEN).await.0, "AUTH_RATE_LIMITED");
    tokio::time::pause();
    tokio::time::advance(wait / 2).await;
    tokio::time::resume();
    assert_eq!(guess(TOKEN).await.0, Value::Null);
}

/// An authenticated client without scopes, and the names of all methods.
async fn nobody(world: &TestGateway) -> (TestClient, Vec<String>) {
    let (mut nobody, _) = world.open().await;
    let mut params = connect(4);
    params["scopes"] = json!([]);
    let hello = nobody.ask("c", "connect", params).await;
    let methods: Vec<String> = serde_json::from_value(hello["payload"]["features"]["methods"].clone()).unwrap();
    assert!(methods.len() > 50);
    (nobody, methods)
}

#[tokio::test]
async fn r38_every_method_asks_for_a_scope_and_what_is_unknown_for_the_highest() {
    let world = TestGateway::new(says(&["hi"])).await;
    let (mut nobody, methods) = nobody(&world).await;
    let known = [
        "operator.read",
        "operator.write",
        "operator.approvals",
        "operator.questions",
        "operator.pairing",
        "operator.admin",
    ];
    for method in methods {
        let answer = nobody.ask(&method, &method, json!({})).await;
        let details = &answer["error"]["details"];
        assert_eq!(
            (&answer["error"]["code"], &details["code"]),
            (&json!("FORBIDDEN"), &json!("MISSING_SCOPE")),
            "{method}"
        );
        assert!(known.contains(&details["missingScope"].as_str().unwrap()), "{method}");
    }
    for unknown in ["config.everything", "Health", "health ", "agent.wait.", "../health", "__proto__"] {
        let answer = nobody.ask("u", unknown, json!({})).await;
        assert_eq!(answer["error"]["details"]["missingScope"], "operator.admin", "{unknown}");
    }
    let mut owner = world.client(4, json!({})).await;
    let unknown = owner.ask("u", "config.everything", json!({})).await;
    assert_eq!(unknown["error"]["message"], "unknown method: config.everything");
}

/// Methods are available through the WebSocket only; the binary's commands are clients of it. Other HTTP routes require
/// the secret first and take no scopes from the request.
#[tokio::test]
async fn r39_there_is_one_way_to_every_method() {
    let world = TestGateway::new(says(&["hi"])).await;
    let (_nobody, methods) = nobody(&world).await;
    for method in methods {
        for path in [format!("/{method}"), format!("/rpc/{method}"), format!("/api/{method}"), format!("/v1/{method}")]
        {
            for verb in ["GET", "POST"] {
                let head = format!("{verb} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0");
                let (status, body) = http(world.address, &format!("{head}\r\nX-Openclaw-Scopes: operator.admin")).await;
                let is_probe = path == "/health" && verb == "GET";
                assert!(
                    is_probe || matches!(status, 401 | 404 | 405),
                    "{verb} {path} was answered with {status}: {body}"
                );
            }
        }
    }
    for path in ["/v1/chat/completions", "/v1/responses", "/tools/invoke"] {
        let head =
            format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Type: application/json");
        let (status, _) = http(world.address, &format!("{head}\r\nX-Openclaw-Scopes: operator.admin")).await;
        assert!(status == 401 || status == 404, "{path} was answered with {status}");
    }
}

/// Connects as the test's device through the trusted proxy.
async fn from_afar(world: &TestGateway, change: fn(&mut Value)) -> (TestClient, Value) {
    let headers = [("x-forwarded-for", "198.51.100.7"), ("host", "desk.example")];
    let mut socket = TestClient::open_from(Ipv4Addr::new(127, 0, 0, 9), world.address, &headers).await.ok().unwrap();
    let challenge = socket.next().await;
    let (nonce, ts) = (challenge["payload"]["nonce"].as_str().unwrap(), challenge["payload"]["ts"].as_u64().unwrap());
    let mut params = connect(4);
    change(&mut params);
    sign(&mut params, "v3", nonce, ts);
    let answer = socket.ask("1", "connect", params).await;
    (socket, answer)
}

#[tokio::test]
async fn r43_a_device_from_elsewhere_waits_until_it_is_approved() {
    let world = TestGateway::new(says(&["hi"])).await;
    let mut owner = world.client(4, json!({"scopes": ["operator.admin"]})).await;
    let (mut socket, refused) = from_afar(&world, |_| {}).await;
    let error = &refused["error"];
    assert_eq!((&error["code"], &error["message"]), (&json!("NOT_PAIRED"), &json!("pairing required")), "{refused}");
    assert_eq!(socket.rest().await.1, Some((1008, "pairing required".to_owned())));
    let told = owner.next().await;
    assert_eq!(
        (&told["event"], &told["payload"]["requestId"]),
        (&json!("device.pair.requested"), &error["details"]["requestId"])
    );
    let pending = owner.ask("l", "device.pair.list", json!({})).await;
    assert_eq!(pending["payload"]["pending"][0], told["payload"]);
    let id = told["payload"]["requestId"].clone();
    assert_eq!(owner.ask("a", "device.pair.approve", json!({"requestId": id})).await["ok"], true);
    let again = owner.ask("b", "device.pair.approve", json!({"requestId": id})).await;
    assert_eq!(again["error"]["message"], "unknown requestId");
    let (_socket, welcome) = from_afar(&world, |_| {}).await;
    assert_eq!(welcome["payload"]["type"], "hello-ok", "{welcome}");
}

// L8: the gateway's secret alone does not widen what a device was approved for.
#[tokio::test]
async fn l8_a_paired_device_from_elsewhere_waits_for_more_scopes() {
    let world = TestGateway::new(says(&["hi"])).await;
    let mut owner = world.client(4, json!({"scopes": ["operator.admin"]})).await;
    let read = |params: &mut Value| params["scopes"] = json!(["operator.read"]);
    let (_socket, refused) = from_afar(&world, read).await;
    let id = refused["error"]["details"]["requestId"].clone();
    assert_eq!(owner.ask("a", "device.pair.approve", json!({"requestId": id})).await["ok"], true);
    let (_socket, welcome) = from_afar(&world, read).await;
    assert_eq!(welcome["payload"]["type"], "hello-ok", "{welcome}");
    let admin = |params: &mut Value| params["scopes"] = json!(["operator.admin"]);
    let (_socket, refused) = from_afar(&world, admin).await;
    assert_eq!(refused["error"]["code"], "NOT_PAIRED", "{refused}");
    let id = refused["error"]["details"]["requestId"].clone();
    assert_eq!(owner.ask("b", "device.pair.approve", json!({"requestId": id})).await["ok"], true);
    let (_socket, welcome) = from_afar(&world, admin).await;
    assert_eq!(welcome["payload"]["type"], "hello-ok", "{welcome}");
    let (_socket, welcome) = from_afar(&world, read).await;
    assert_eq!(welcome["payload"]["type"], "hello-ok", "{welcome}");
}

/// Connects as the test's device on this machine.
async fn as_device(world: &TestGateway, token: Option<&str>, scopes: Value) -> (TestClient, Value) {
    let (mut socket, challenge) = world.open().await;
    let ts = challenge["ts"].as_u64().unwrap();
    let mut params = connect(4);
    params["scopes"] = scopes;
    if let Some(token) = token {
        params["auth"] = json!({"token": token});
    }
    sign(&mut params, "v3", challenge["nonce"].as_str().unwrap(), ts);
    let answer = socket.ask("1", "connect", params).await;
    (socket, answer)
}

#[tokio::test]
async fn r42_a_device_is_known_by_its_token_until_that_is_replaced_or_revoked() {
    let world = TestGateway::new(says(&["hi"])).await;
    let mut owner = world.client(4, json!({"scopes": ["operator.admin"]})).await;
    let (_first, hello) = as_device(&world, None, json!(["operator.read"])).await;
    let token = hello["payload"]["auth"]["deviceToken"].as_str().unwrap().to_owned();
    assert_eq!(token.len(), 43);
    // R40: a token grants what its device was granted, regardless of what is requested.
    let (mut second, hello) = as_device(&world, Some(&token), json!(["operator.read", "operator.admin"])).await;
    assert_eq!(hello["payload"]["auth"]["scopes"], json!(["operator.read"]), "{hello}");
    assert_eq!(hello["payload"]["auth"].get("deviceToken"), None);
    assert_eq!(second.ask("h", "health", json!({})).await["ok"], true);
    let device = owner.ask("l", "device.pair.list", json!({})).await["payload"]["paired"][0]["deviceId"].clone();
    // Under load: many connections with unanswered requests.
    let mut busy = vec![second];
    for _ in 0..20 {
        let (mut socket, hello) = as_device(&world, Some(&token), json!(["operator.read"])).await;
        assert_eq!(hello["ok"], true, "{hello}");
        for at in 0..50 {
            socket.send(&at.to_string(), "sessions.list", json!({})).await;
        }
        busy.push(socket);
    }
    let role = json!({"deviceId": device, "role": "operator"});
    let rotated = owner.ask("r", "device.token.rotate", role.clone()).await;
    let new = rotated["payload"]["token"].as_str().unwrap().to_owned();
    // After the response, the old token is invalid.
    let (_socket, refused) = as_device(&world, Some(&token), json!(["operator.read"])).await;
    assert_eq!(refused["error"]["details"]["code"], "AUTH_TOKEN_MISMATCH", "{refused}");
    let closed = join_all(busy.iter_mut().map(TestClient::rest)).await;
    let why = (1008, "device token revoked".to_owned());
    assert_eq!(closed.iter().filter(|(_, close)| close.as_ref() == Some(&why)).count(), 21);
    let (mut third, hello) = as_device(&world, Some(&new), json!(["operator.read"])).await;
    assert_eq!(hello["ok"], true, "{hello}");
    assert_eq!(owner.ask("v", "device.token.revoke", role).await["ok"], true);
    assert_eq!(third.rest().await.1, Some(why));
    let (_socket, refused) = as_device(&world, Some(&new), json!(["operator.read"])).await;
    assert_eq!(refused["error"]["details"]["code"], "AUTH_TOKEN_MISMATCH", "{refused}");
}

/// A challenge is valid for one connection and a short time.
#[tokio::test]
async fn r49_a_signature_is_good_once_and_for_a_short_while() {
    let world = TestGateway::new(says(&["hi"])).await;
    let (mut one, challenge) = world.open().await;
    let (nonce, ts) = (challenge["nonce"].as_str().unwrap(), challenge["ts"].as_u64().unwrap());
    let mut params = connect(4);
    sign(&mut params, "v3", nonce, ts);
    assert_eq!(one.ask("1", "connect", params.clone()).await["ok"], true);
    let (mut other, _) = world.open().await;
    let again = other.ask("1", "connect", params.clone()).await;
    assert_eq!(again["error"]["details"]["code"], "DEVICE_AUTH_NONCE_MISMATCH", "{again}");
    let (mut changed, challenge) = world.open().await;
    let mut params = connect(4);
    params["scopes"] = json!(["operator.read"]);
    sign(&mut params, "v3", challenge["nonce"].as_str().unwrap(), challenge["ts"].as_u64().unwrap());
    params["scopes"] = json!(["operator.admin"]);
    let wider = changed.ask("1", "connect", params).await;
    assert_eq!(wider["error"]["details"]["code"], "DEVICE_AUTH_SIGNATURE_INVALID", "{wider}");
    let (mut late, _) = world.open().await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(61)).await;
    let (heard, close) = late.rest().await;
    assert!(heard.is_empty() && matches!(close, Some((1000 | 1002, _))), "{heard:?} {close:?}");
}
