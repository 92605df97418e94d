//! The requirements of security, by their numbers: what strangers, pages and devices cannot do.

use std::{net::Ipv4Addr, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, timeout},
};

use crate::{
    doors::http,
    support::{PATIENCE, Socket, TOKEN, World, connect, says, sign},
};

/// A WebSocket without a library between: what is sent is sent as it is.
async fn raw(world: &World) -> TcpStream {
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let head = "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = vec![0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, b"HTTP/1.1 101");
    stream
}

/// Everything until the other side closes.
async fn rest(mut stream: TcpStream) -> Vec<u8> {
    let mut heard = Vec::new();
    // A reset is an end, too.
    timeout(PATIENCE, stream.read_to_end(&mut heard)).await.expect("it was not closed").ok();
    heard
}

/// Memory of this process that is in use.
fn resident() -> u64 {
    let pages: u64 = std::fs::read_to_string("/proc/self/statm").unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[tokio::test]
async fn r21_a_stranger_says_at_most_64_kib_at_once() {
    let world = World::new(says(&["hi"])).await;
    let (mut socket, _) = world.open().await;
    socket.say(&format!("\"{}\"", "x".repeat(65_535))).await;
    let close = (1009, "message too large: at most 65536 bytes are taken".to_owned());
    assert_eq!(socket.rest().await, (Vec::new(), Some(close)));
    let before = resident();
    for _ in 0..20 {
        let mut stream = raw(&world).await;
        // A masked text frame that says it has 1 GiB.
        stream.write_all(&[0x81, 0xff, 0, 0, 0, 0, 0x40, 0, 0, 0, 1, 2, 3, 4]).await.unwrap();
        let heard = rest(stream).await;
        assert!(heard.windows(2).any(|pair| pair == 1009_u16.to_be_bytes()), "it should be closed with 1009");
    }
    assert!(resident() < before + 16 * 1024 * 1024, "memory was taken for what was only announced");
}

#[tokio::test]
async fn r22_strangers_are_few_and_stay_a_short_while() {
    let world = World::new(says(&["hi"])).await;
    let mut silent = Vec::new();
    for _ in 0..2000 {
        silent.push(TcpStream::connect(world.address).await.unwrap());
    }
    let begun = Instant::now();
    let mut owner = world.client(4, json!({})).await;
    assert!(begun.elapsed() < Duration::from_secs(1), "the owner waited {:?}", begun.elapsed());
    assert_eq!(owner.ask("1", "health", json!({})).await["ok"], true);
    let is_open = |stream: &TcpStream| matches!(stream.try_read(&mut [0; 1]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock);
    let held = silent.iter().filter(|stream| is_open(stream)).count();
    assert!(held <= 32, "{held} strangers are held");
    // From here on time passes as fast as nobody has anything to do.
    tokio::time::pause();
    let begun = Instant::now();
    for mut stream in silent {
        assert_eq!(timeout(PATIENCE, stream.read(&mut [0; 1])).await.unwrap().unwrap_or(0), 0);
    }
    assert!(begun.elapsed() < Duration::from_secs(12), "they were held for {:?}", begun.elapsed());
}

/// Slow loris: a request that comes a byte at a time keeps nobody out, and ends.
#[tokio::test]
async fn r22_who_speaks_slowly_does_not_stay_longer() {
    let world = World::new(says(&["hi"])).await;
    let mut slow = TcpStream::connect(world.address).await.unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ").await.unwrap();
    tokio::time::pause();
    let begun = Instant::now();
    let mut ticks = tokio::time::interval(Duration::from_millis(200));
    let mut byte = [0; 1];
    loop {
        tokio::select! {
            _ = ticks.tick() => if slow.write_all(b"a").await.is_err() { break },
            heard = slow.read(&mut byte) => if heard.unwrap_or(0) == 0 { break },
        }
        assert!(begun.elapsed() < Duration::from_secs(15), "it is still there");
    }
}

#[tokio::test]
async fn r24_an_attachment_is_measured_before_it_is_decoded() {
    let world = World::new(says(&["hi"])).await;
    let mut owner = world.client(4, json!({})).await;
    let attachment = json!({"fileName": "a.png", "mimeType": "image/png", "content": "A".repeat(20_000_000)});
    let params = json!({"sessionKey": "main", "message": "look", "idempotencyKey": "r24", "attachments": [attachment]});
    let answer = owner.ask("1", "chat.send", params).await;
    assert_eq!((&answer["ok"], &answer["error"]["code"]), (&json!(false), &json!("INVALID_REQUEST")), "{answer}");
}

#[tokio::test]
async fn r25_deep_and_wide_json_is_an_error_and_nothing_else() {
    let world = World::new(says(&["hi"])).await;
    let mut owner = world.client(4, json!({})).await;
    for depth in [65, 1000, 1_000_000] {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        owner.say(&format!(r#"{{"type":"req","id":"d","method":"health","params":{open}{close}}}"#)).await;
        owner.say(&open).await;
    }
    let keys: Vec<_> = (0..200_000).map(|at| format!(r#""k{at}":1"#)).collect();
    owner.say(&format!(r#"{{"type":"req","id":"w","method":"sessions.list","params":{{{}}}}}"#, keys.join(","))).await;
    let wide = owner.answer("w").await;
    assert_eq!(wide["error"]["code"], "INVALID_REQUEST");
    assert!(wide.to_string().len() < 100_000, "the refusal has {} bytes", wide.to_string().len());
    assert_eq!(owner.ask("1", "health", json!({})).await["ok"], true);
}

#[tokio::test]
async fn r31_a_page_may_speak_to_this_gateway_only() {
    let world = World::new(says(&["hi"])).await;
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let head = "GET /?gatewayUrl=wss://evil.example&token=x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let page = String::from_utf8(rest(stream).await).unwrap();
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    assert!(page.contains("content-security-policy: default-src 'none'; style-src 'sha256-"), "{page}");
    assert!(page.contains("referrer-policy: no-referrer") && !page.contains("evil.example"), "{page}");
}

#[tokio::test]
async fn r32_the_origin_is_judged_before_the_upgrade_whoever_the_client_says_it_is() {
    let world = World::new(says(&["hi"])).await;
    let port = world.address.port();
    let mut bad: Vec<String> =
        ["null", "file://", "https://evil.example", "http://desk.example", "https://desk.example:444"]
            .into_iter()
            .chain([
                "https://desk.example.",
                "https://desk.example.evil.example",
                "https://evil.desk.example",
                "desk.example",
            ])
            .chain([
                "http://localhost.evil.example",
                "http://localhost.",
                "http://127.0.0.1.nip.io",
                "http://0x7f000001",
            ])
            .chain([
                "http://2130706433",
                "http://127.1",
                "http://[::ffff:7f00:1].evil.example",
                "chrome-extension://localhost",
            ])
            .chain([
                "http://localhost@evil.example",
                "http://evil.example@localhost",
                "https://desk.example/",
                "//localhost",
            ])
            .map(str::to_owned)
            .collect();
    for scheme in ["ftp", "ws", "wss", "javascript", "data", "blob:http", "moz-extension", "app"] {
        bad.push(format!("{scheme}://localhost:{port}"));
    }
    for at in 0..32 {
        bad.push(format!("http://{at}.evil.example:{port}"));
    }
    assert!(bad.len() >= 60);
    for origin in &bad {
        let tried = Socket::open(world.address, &[("origin", origin)]).await;
        assert_eq!(tried.err(), Some(403), "{origin}");
    }
    for id in ["openclaw-control-ui", "webchat-ui", "cli", "gateway-client", "openclaw-tui"] {
        for origin in ["https://desk.example", "http://localhost:5173"] {
            let mut socket = Socket::open(world.address, &[("origin", origin)]).await.ok().unwrap();
            let mut params = connect(4);
            params["client"]["id"] = id.into();
            assert_eq!(socket.ask("1", "connect", params).await["ok"], true, "{id} from {origin}");
        }
    }
}

#[tokio::test]
async fn r33_only_names_of_this_machine_are_answered() {
    let world = World::new(says(&["hi"])).await;
    let foreign =
        ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "127.0.0.2", "0.0.0.0", "[::]", "desk.example"];
    for host in foreign.into_iter().chain(["localhost.", "evil@localhost", "2130706433", "127.1", "rbndr.us", "1u.ms"])
    {
        for path in ["/", "/health", "/v1/models", "/control-ui-config.json", "/hooks/wake"] {
            let (status, _) = http(world.address, &format!("GET {path} HTTP/1.1\r\nHost: {host}")).await;
            // D16: 403, where the requirement had another number.
            assert!(status == 403 || status == 400, "{host}{path} was answered with {status}");
        }
        let tried = Socket::open(world.address, &[("host", host)]).await;
        assert!(matches!(tried.err(), Some(400 | 403)), "{host}");
    }
}

#[tokio::test]
async fn r34_nobody_is_local_behind_a_proxy_that_is_not_listed() {
    let world = World::new(says(&["hi"])).await;
    for name in ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"] {
        assert_eq!(Socket::open(world.address, &[(name, "127.0.0.1")]).await.err(), Some(403), "{name}");
        let (status, _) =
            http(world.address, &format!("GET /health HTTP/1.1\r\nHost: localhost\r\n{name}: 127.0.0.1")).await;
        assert_eq!(status, 403, "{name}");
    }
}

#[tokio::test]
async fn r35_a_page_on_this_machine_guesses_ten_times() {
    let world = World::new(says(&["hi"])).await;
    let mut codes = Vec::new();
    for _ in 0..40 {
        let mut socket = Socket::open(world.address, &[("origin", "http://localhost:5173")]).await.ok().unwrap();
        let mut params = connect(4);
        params["auth"] = json!({"token": "guess"});
        codes.push(socket.ask("1", "connect", params).await["error"]["details"]["code"].as_str().unwrap().to_owned());
    }
    assert_eq!(codes.iter().filter(|code| *code == "AUTH_TOKEN_MISMATCH").count(), 10);
    assert_eq!(codes[10..], vec!["AUTH_RATE_LIMITED".to_owned(); 30]);
    // Over HTTP it is the same door.
    let head = format!("GET /v1/models HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}");
    let (status, _) = http(world.address, &head).await;
    assert_ne!(status, 200);
}

#[tokio::test]
async fn r38_r39_every_method_asks_for_a_scope_and_nobody_without_one_is_answered() {
    let world = World::new(says(&["hi"])).await;
    let (mut nobody, _) = world.open().await;
    let mut params = connect(4);
    params["scopes"] = json!([]);
    let hello = nobody.ask("c", "connect", params).await;
    let methods: Vec<String> = serde_json::from_value(hello["payload"]["features"]["methods"].clone()).unwrap();
    assert!(methods.len() > 50);
    for method in methods {
        let answer = nobody.ask(&method, &method, json!({})).await;
        assert_eq!(
            (&answer["error"]["code"], &answer["error"]["details"]["code"]),
            (&json!("FORBIDDEN"), &json!("MISSING_SCOPE")),
            "{method}"
        );
    }
    let unknown = nobody.ask("u", "config.everything", json!({})).await;
    assert_eq!(unknown["error"]["message"], "unknown method: config.everything");
    for path in ["/v1/chat/completions", "/v1/responses", "/tools/invoke"] {
        let head =
            format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Type: application/json");
        let (status, _) = http(world.address, &format!("{head}\r\nX-Openclaw-Scopes: operator.admin")).await;
        assert!(status == 401 || status == 404, "{path} was answered with {status}");
    }
}

/// Connects as the test's device, through the proxy that is listed.
async fn from_afar(world: &World, change: fn(&mut Value)) -> (Socket, Value) {
    let headers = [("x-forwarded-for", "198.51.100.7"), ("host", "desk.example")];
    let mut socket = Socket::open_from(Ipv4Addr::new(127, 0, 0, 9), world.address, &headers).await.ok().unwrap();
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
    let world = World::new(says(&["hi"])).await;
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

#[tokio::test]
async fn r42_a_device_is_known_by_its_token_until_that_is_revoked() {
    let world = World::new(says(&["hi"])).await;
    let mut owner = world.client(4, json!({"scopes": ["operator.admin"]})).await;
    let as_device = |token: Option<String>, scopes: Value| {
        let world = &world;
        async move {
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
    };
    let (_first, hello) = as_device(None, json!(["operator.read"])).await;
    let token = hello["payload"]["auth"]["deviceToken"].as_str().unwrap().to_owned();
    assert_eq!(token.len(), 43);
    // R40: a token is worth what its device was granted, whatever is asked for.
    let (mut second, hello) = as_device(Some(token.clone()), json!(["operator.read", "operator.admin"])).await;
    assert_eq!(hello["payload"]["auth"]["scopes"], json!(["operator.read"]), "{hello}");
    assert_eq!(hello["payload"]["auth"].get("deviceToken"), None);
    assert_eq!(second.ask("h", "health", json!({})).await["ok"], true);
    let device = owner.ask("l", "device.pair.list", json!({})).await["payload"]["paired"][0]["deviceId"].clone();
    let begun = Instant::now();
    let revoked = owner.ask("r", "device.token.revoke", json!({"deviceId": device, "role": "operator"})).await;
    assert_eq!(revoked["ok"], true, "{revoked}");
    assert_eq!(second.rest().await.1, Some((1008, "device token revoked".to_owned())));
    assert!(begun.elapsed() < Duration::from_secs(2));
    let (_socket, refused) = as_device(Some(token), json!(["operator.read"])).await;
    assert_eq!(refused["error"]["details"]["code"], "AUTH_TOKEN_MISMATCH", "{refused}");
}
